"""`lnexp runs`: list, show and compare runs from their directories. Writes nothing."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import Any

from lnexp.errors import InputError
from lnexp.report.find import find, resolve
from lnexp.report.inventory import STATES
from lnexp.run_dir import finite

DEFAULT = "runs"
"""Where runs lie if nothing is said: ``runs_dir`` of the config."""


def runs_command(arguments: Sequence[str]) -> int:
    """Parse the command line, print; return the exit code."""
    verb, *rest = arguments or [""]
    try:
        if verb == "show":
            return _show(rest)
        if verb == "diff":
            return _diff(rest)
        return _list(arguments)
    except InputError as error:
        print(_encodable(f"lnexp: {error}", sys.stderr), file=sys.stderr, flush=True)
        return 2


def _list(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="lnexp runs",
        description="List runs: outcome, progress, scores.",
        epilog="lnexp runs show RUN: one run on one screen.  lnexp runs diff A B ...: what differs."
        " Both have --help.",
    )
    parser.add_argument(
        "directories", nargs="*", metavar="DIR", default=[DEFAULT],
        help="directories to look in, at any depth (default: runs)",
    )  # fmt: skip
    filters = {"exp": "asked for by this experiment", "recipe": "of this recipe"}
    for name, text in filters.items():
        parser.add_argument(f"--{name}", action="append", metavar="NAME", help=f"only runs {text}")
    parser.add_argument("--state", action="append", choices=STATES, help="only runs in this state")
    parser.add_argument("--sort", choices=("name", "age", "loss", "bleu"), default="name",
                        help="order within a directory (default: name)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    options = parser.parse_args(arguments)
    from lnexp.report.card import summary
    from lnexp.report.listing import listing, sort_entries

    now = time.time()
    found = find(options.directories, now, _skipped)
    chosen = [
        e
        for e in found
        if (not options.state or e.state in options.state)
        and (not options.recipe or e.recipe in options.recipe)
        and (not options.exp or set(options.exp) & set(e.experiments))
    ]
    chosen = sort_entries(chosen, options.sort)
    if options.json:
        _print_json([summary(entry, now) for entry in chosen])
    elif chosen:
        _say(listing(chosen, _width(), now))
    if not chosen:
        which = f"none of the {len(found)} runs is" if len(found) > 1 else "the only run is not"
        print(f"lnexp: {which} like that", file=sys.stderr)
    return 0


def _show(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="lnexp runs show", description="Show one run: scores, config, origin, checkpoints."
    )
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    _common_options(parser)
    options = parser.parse_args(arguments)
    from lnexp.report.card import card, card_text

    now = time.time()
    [entry] = resolve([options.run], options.runs_dir or [DEFAULT], now, _skipped)
    if options.json:
        _print_json(card(entry, now))
    else:
        _say(card_text(entry, _width(), now))
    return 0


def _diff(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="lnexp runs diff", description="What differs: config, code, machine, data, result."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    _common_options(parser)
    options = parser.parse_args(arguments)
    if len(options.runs) < 2:
        raise InputError(f"diff {options.runs[0]}: one run has no difference; name two or more")
    from lnexp.report.differences import differences, differences_text

    now = time.time()
    entries = resolve(options.runs, options.runs_dir or [DEFAULT], now, _skipped)
    if options.json:
        _print_json({"runs": [str(e.path) for e in entries]} | differences(entries))
    else:
        _say(differences_text(entries, _width()))
    return 0


RUN_HELP = "a run directory, or a part of its name or hash that no other run has"


def _common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs-dir", action="append", metavar="DIR",
                        help="where to look for a name (default: runs)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def _skipped(text: str) -> None:
    print(_encodable(f"lnexp: passed over: {text}", sys.stderr), file=sys.stderr)


def _width() -> int | None:
    """Columns of the terminal; None where the output is no terminal."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def _say(text: str) -> None:
    print(_encodable(text, sys.stdout))


def _encodable(text: str, stream: Any) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _print_json(value: Any) -> None:
    # Escaped, so that it can be printed whatever the locale.
    print(json.dumps(finite(value), indent=1))
