"""The command line: a dispatcher that imports a command only when it is asked for.

Exit codes: 0 done (a diverged run included), 2 wrong input, 130 and 143 interrupted, 1 anything
else.
"""

from __future__ import annotations

import os
import sys

from lnexp import __version__

COMMANDS = {
    "train": "train a run, or with -m a sweep; the same command resumes or skips",
    "probe": "measure gradients and norms of the first update, without training",
    "prepare": "fetch, clean, tokenise and keep the text of a recipe",
    "eval": "decode and score the checkpoints of runs; compare them; translate",
    "runs": "list, show and compare runs",
    "theory": "each lemma and theorem of the paper: predicted, measured, verdict",
}

HELP = """usage: lnexp COMMAND ...

What does the place of layer normalisation do to Transformer training?

commands:
{commands}

  lnexp train +exp=preln_nowarmup       Pre-LN without warm-up on the embedded corpus
  lnexp COMMAND --help                  more about a command
  eval "$(lnexp -sc install=bash)"      completion for this shell
"""


def main() -> None:
    """Run the command named on the command line and exit with its code."""
    try:
        sys.exit(dispatch(sys.argv[1:]))
    except KeyboardInterrupt:
        print("lnexp: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def dispatch(arguments: list[str]) -> int:
    """Hand on to a command; return the exit code."""
    match arguments:
        case [] | ["-h" | "--help" | "help", *_]:
            listing = "\n".join(f"  {name:<9} {text}" for name, text in COMMANDS.items())
            print(HELP.format(commands=listing), end="")
            return 0
        case ["--version"]:
            print(f"lnexp {__version__}")
            return 0
        case ["train", *rest]:
            from lnexp.app import train_command

            return train_command(rest)
        case ["probe", *rest]:
            from lnexp.measure import probe_command

            return probe_command(rest)
        case ["theory", *rest]:
            from lnexp.theory.command import theory_command

            return theory_command(rest)
        case ["prepare", *rest]:
            from lnexp.prepare import prepare_command

            return prepare_command(rest)
        case ["runs", *rest]:
            from lnexp.runs import runs_command

            return runs_command(rest)
        case ["eval", *rest]:
            from lnexp.evaluation.command import eval_command

            return eval_command(rest)
        case ["-sc" | "--shell-completion" as flag, *rest]:
            return complete(flag, rest)
        case [word, *_]:
            import difflib

            near = difflib.get_close_matches(word, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(COMMANDS)}"
            print(f"lnexp: {word} is no command; {hint}", file=sys.stderr)
            return 2
    return 2


def complete(flag: str, rest: list[str]) -> int:
    """Answer the shell: the command word here, everything behind it by Hydra."""
    if rest and rest[0].startswith("query"):
        words = os.environ.get("COMP_LINE", "").split(" ")
        if len(words) <= 2:
            begun = words[-1] if len(words) == 2 else ""
            print(" ".join(name for name in COMMANDS if name.startswith(begun)))
            return 0
        if words[1] not in ("train", "probe", "prepare"):
            return 0
        # Hydra expects overrides right behind the program's name.
        os.environ["COMP_LINE"] = " ".join([words[0], *words[2:]])
    from lnexp.app import hydra_only, train

    return hydra_only("train", [flag, *rest], train)
