"""`make demo`: does the place of layer normalisation matter without warm-up? Three runs, one answer.

Each arm is a process of its own, and its run directory the only memory: this script can be stopped
anywhere, and the same command continues.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from arms import Child, View, clock, seconds_left
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from lnexp.errors import InputError
from lnexp.report.figures import save_curves, setting
from lnexp.report.load import load_run
from lnexp.report.tables import PARTING, WARMUP, Arm, comparison_table, notes, sentence
from lnexp.run_dir import RunDir

ARMS = {
    "postln_nowarmup": "Post-LN without warm-up",
    "preln_nowarmup": "Pre-LN without warm-up",
    "postln_warmup": "Post-LN with warm-up",
}
POLL_SECONDS = 0.25
LINE_SECONDS = 10.0
"""How often progress is printed where there is no terminal."""


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
    received: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup means to go on
        numbers.append(signal.SIGHUP)
    previous = {n: signal.signal(n, lambda number, _: received.append(number)) for n in numbers}
    passed_on, failed = 0, None
    try:
        with Display(children, jobs) as display:
            while True:
                running = [child for child in children if child.running()]
                waiting = [child for child in children if child.process is None]
                for number in received[passed_on:]:
                    stop(running, signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
                    passed_on += 1
                if failed is None and not received:
                    failed = next((child for child in children if child.failed()), None)
                    if failed is not None:
                        stop(running, signal.SIGTERM)
                if received or failed:
                    waiting = []
                elif waiting and len(running) < jobs:
                    waiting[0].start()
                    continue
                if not running and not waiting:
                    break
                display.show()
                time.sleep(POLL_SECONDS)
            if not (received or failed):
                display.show(last=True)
    finally:
        stop([child for child in children if child.running()], signal.SIGTERM)
        for number, handler in previous.items():
            signal.signal(number, handler)
    if received:
        print("demo: interrupted; the same command continues", file=sys.stderr)
        return 128 + received[0]
    return explain(failed) if failed else 0


def stop(children: Sequence[Child], number: int) -> None:
    """Tell the processes to save and end."""
    for child in children:
        if child.process is not None:
            child.process.send_signal(number)


def explain(child: Child) -> int:
    """Say why a child failed: its last line of stderr; return our exit code."""
    assert child.process is not None
    code, lines = child.process.returncode, child.lines(child.err)
    if code == 2 and lines:
        print(lines[-1], file=sys.stderr)
        return 2
    reason = f"it ended with code {code}" if code > 0 else f"it was killed by signal {-code}"
    where = child.run_dir()
    log = f" (more in {RunDir(where).log_file})" if where else ""
    print(f"demo: {child.label} failed: {lines[-1] if lines else reason}{log}", file=sys.stderr)
    return 1


class Display:
    """Progress of all arms: bars on a terminal, elsewhere a line now and then."""

    def __init__(self, children: Sequence[Child], jobs: int) -> None:
        self.children, self.jobs = children, jobs
        self.console = Console(highlight=False, emoji=False, markup=False)
        self.bars: Progress | None = None
        self.tasks: list[TaskID] = []
        self.said_at = time.monotonic()

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[text]}"),
            )
            self.bars = Progress(*columns, console=self.console)
            for name in [*(child.label for child in self.children), "all three"]:
                self.tasks.append(self.bars.add_task(name, total=None, text=""))
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars is not None:
            self.bars.stop()

    def show(self, *, last: bool = False) -> None:
        """Renew the bars, or print a line if the last one is old enough."""
        if self.bars is None and not last and time.monotonic() - self.said_at < LINE_SECONDS:
            return
        views = [child.view() for child in self.children]
        updates = max((v.updates or 0 for v in views), default=0)
        eta = f"eta {clock(seconds_left(self.children, views, self.jobs))}"
        total = View(sum(v.t for v in views), updates * len(views) or None, eta, None)
        if self.bars is None:
            parts = [f"{c.label}: {v}" for c, v in zip(self.children, views)]
            text = " | ".join(parts if last else [*parts, f"all: {eta}"])
            self.console.print(text, soft_wrap=True)
            self.said_at = time.monotonic()
            return
        for task, view in zip(self.tasks, [*views, total], strict=True):
            self.bars.update(
                task, completed=view.t, total=view.updates or updates or 1, text=str(view)
            )


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


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # before the first run was started, or after the last one
        sys.exit(130)
