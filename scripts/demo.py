"""`make demo`: does the place of layer normalisation matter without warm-up? Three runs, one answer.

Each arm is a process of its own, and its run directory the only memory: this script can be stopped
anywhere, and the same command continues.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from arms import Child
from children import cores, run_all

from lnexp.errors import InputError
from lnexp.report.figures import save_curves, setting
from lnexp.report.load import load_run
from lnexp.report.tables import PARTING, WARMUP, Arm, comparison_table, notes, sentence

ARMS = {
    "postln_nowarmup": "Post-LN without warm-up",
    "preln_nowarmup": "Pre-LN without warm-up",
    "postln_warmup": "Post-LN with warm-up",
}


def main(arguments: Sequence[str]) -> int:
    """Train the arms, or what is left of them, and compare them; return the exit code."""
    parser = argparse.ArgumentParser(prog="demo.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=cores(), help="runs at once (default: cores)")
    parser.add_argument(
        "overrides", nargs="*", help="KEY=VALUE for all three runs, as in lnexp train"
    )
    options = parser.parse_intermixed_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs={options.jobs} must be at least 1")
    if "dry_run=true" in options.overrides:
        parser.error("dry_run=true trains nothing to compare; give it to lnexp train")

    with ExitStack() as stack:
        children = []
        for experiment, label in ARMS.items():
            command = [sys.executable, "-m", "lnexp", "train", f"+exp={experiment}", "threads=1"]
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            children.append(Child(label, [*command, *options.overrides], out, err))
        code = train_all(children, options.jobs)
        if code:
            return code
        try:
            return conclude([(child.label, child.run_dir()) for child in children])
        except InputError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 2


def train_all(children: Sequence[Child], jobs: int) -> int:
    """Run the children to their end, ``jobs`` at a time; return the exit code."""
    return run_all("demo", children, jobs, "all three")


def conclude(found: Sequence[tuple[str, Path | None]]) -> int:
    """Print the table, what it says, and where the figure and the runs are."""
    arms = [Arm(label, load_run(path)) for label, path in found if path is not None]
    post, pre, warm = arms
    title = f"Post-LN and Pre-LN, with and without warm-up\n{setting(post.run)}"
    runs_dir = post.run.path.parents[2]  # <runs_dir>/<recipe>/<name>/v<N>
    figures = save_curves(arms, title, runs_dir / "figures" / "demo")
    lines = [
        "", setting(post.run), "", comparison_table(arms), "", *notes(arms), "",
        sentence(PARTING, post, pre),
        sentence(WARMUP, post, warm),
        "One seed, one rate, one small model: a demonstration, not evidence.", "",
        *(f"figure  {path}" for path in figures),
        *(f"run     {arm.run.path}" for arm in arms),
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # before the first run was started, or after the last one
        sys.exit(130)
