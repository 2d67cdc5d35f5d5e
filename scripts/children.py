"""Processes run beside each other and watched from outside: progress, interruption, failure.

What a process did is in the files that it writes; nothing here changes it, so that a script can be
stopped anywhere and the same command continues.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

POLL_SECONDS = 0.25
LINE_SECONDS = 10.0
"""How often progress is printed where there is no terminal."""
SHOWN = 6
"""So many processes are shown from first to last; of more, those that run."""


class View(NamedTuple):
    """What a process shows of itself."""

    t: int
    updates: int | None
    """How many it will do; None where that is not known yet."""
    text: str
    seconds_left: float | None

    def __str__(self) -> str:
        return f"{self.t}/{self.updates}  {self.text}" if self.updates else self.text


def end_with_parent() -> None:
    """Have this process told to end, and so to save, should its parent be killed (Linux)."""
    PR_SET_PDEATHSIG = 1  # noqa: N806 (its name in prctl(2))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@dataclass
class Process:
    """A command, and files that hold what it prints."""

    label: str
    command: list[str]
    out: IO[bytes]
    err: IO[bytes]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    ended: float | None = None

    def start(self) -> None:
        """Start the process, in a session of its own: Ctrl-C reaches it through us, once."""
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
            preexec_fn=end_with_parent if sys.platform == "linux" else None,
        )  # fmt: skip

    def running(self) -> bool:
        """Whether the process was started and has not ended."""
        if self.process is None or self.ended is not None:
            return False
        if self.process.poll() is not None:
            self.ended = time.monotonic()
        return self.ended is None

    def failed(self) -> bool:
        """Whether the process ended with an error."""
        return self.process is not None and self.process.poll() not in (None, 0)

    def lines(self, file: IO[bytes]) -> list[str]:
        """What was printed so far; reading moves no offset that the process shares."""
        text = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        return text.decode(errors="replace").splitlines()

    def log(self) -> Path | None:
        """A file that says more of a failure."""
        return None

    def view(self) -> View:
        """Progress in numbers and words."""
        raise TypeError(f"{type(self).__name__} must define view()")


Left = Callable[[Sequence[Process], Sequence[View], int], "float | None"]
"""Seconds until the last of the children ends; None where that cannot be said."""


def seconds_left(children: Sequence[Process], views: Sequence[View], jobs: int) -> float | None:
    """Seconds until the last child ends, if those still waiting take as long as the others."""
    now, lengths, busy, waiting = time.monotonic(), [], [], 0
    for child, view in zip(children, views, strict=True):
        if child.process is None:
            waiting += 1
        elif child.ended is None:
            if view.seconds_left is None:
                return None
            busy.append(view.seconds_left)
            lengths.append(now - child.started + view.seconds_left)
        elif not view.text.startswith("already"):
            lengths.append(child.ended - child.started)
    if waiting and not lengths:
        return None
    slots = [*busy, *[0.0] * max(0, jobs - len(busy))]
    heapq.heapify(slots)
    for _ in range(waiting):
        heapq.heappush(slots, heapq.heappop(slots) + sum(lengths) / len(lengths))
    return max(slots)


def run_all(
    script: str,
    children: Sequence[Process],
    jobs: int,
    everything: str,
    left: Left = seconds_left,
) -> int:
    """Run the children to their end, ``jobs`` at a time; return the exit code.

    ``script`` is whose messages these are, ``everything`` what the children are called together,
    ``left`` estimates when they end.  The first failure ends the others.
    """
    received: list[int] = []
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup means to go on
        numbers.append(signal.SIGHUP)
    previous = {n: signal.signal(n, lambda number, _: received.append(number)) for n in numbers}
    passed_on, failed = 0, None
    try:
        with Display(children, jobs, everything, left) as display:
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
        print(f"{script}: interrupted; the same command continues", file=sys.stderr)
        return 128 + received[0]
    return explain(script, failed) if failed else 0


def stop(children: Sequence[Process], number: int) -> None:
    """Tell the processes to save and end."""
    for child in children:
        if child.process is not None:
            child.process.send_signal(number)


def explain(script: str, child: Process) -> int:
    """Say why a child failed: its last line of stderr; return our exit code."""
    assert child.process is not None
    code, lines = child.process.returncode, child.lines(child.err)
    if code == 2 and lines:
        print(lines[-1], file=sys.stderr)
        return 2
    reason = f"it ended with code {code}" if code > 0 else f"it was killed by signal {-code}"
    log = f" (more in {where})" if (where := child.log()) else ""
    said = f"{script}: {child.label} failed: {lines[-1] if lines else reason}{log}"
    print(said, file=sys.stderr)
    return 1


class Display:
    """Progress of all children: bars on a terminal, elsewhere a line now and then."""

    def __init__(self, children: Sequence[Process], jobs: int, everything: str, left: Left) -> None:
        self.children, self.jobs, self.everything, self.left = children, jobs, everything, left
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
            for name in [*(child.label for child in self.children), self.everything]:
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
        shown = [len(self.children) <= SHOWN or child.running() for child in self.children]
        updates = max((v.updates or 0 for v in views), default=0)
        eta = f"eta {clock(self.left(self.children, views, self.jobs))}"
        # A child that has not said how many it will do is taken to do as many as the largest.
        whole = sum(updates if v.updates is None else v.updates for v in views)
        total = View(sum(v.t for v in views), whole or None, eta, None)
        if self.bars is None:
            parts = [
                f"{child.label}: {view}"
                for child, view, is_shown in zip(self.children, views, shown)
                if is_shown
            ]
            if not last or not parts:
                parts.append(f"all: {total}")
            self.console.print(" | ".join(parts), soft_wrap=True)
            self.said_at = time.monotonic()
            return
        for task, view, is_shown in zip(self.tasks, [*views, total], [*shown, True], strict=True):
            self.bars.update(
                task, completed=view.t, total=view.updates or updates or 1, text=str(view),
                visible=is_shown,
            )  # fmt: skip


def clock(seconds: float | None) -> str:
    """Write seconds as minutes and seconds."""
    return "-" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
