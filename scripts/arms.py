"""One arm of the demo: a process of `lnexp train`, watched from outside.

What is known of it is what it prints and the status file of its run directory; nothing here
outlives the process or changes the run.
"""

from __future__ import annotations

import heapq
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from lnexp.run_dir import RunDir


class View(NamedTuple):
    """What an arm shows of itself."""

    t: int
    updates: int | None
    text: str
    seconds_left: float | None

    def __str__(self) -> str:
        return f"{self.t}/{self.updates}  {self.text}" if self.updates else self.text


@dataclass
class Child:
    """One arm: a process of `lnexp train`, and files that hold what it prints."""

    label: str
    command: list[str]
    out: IO[bytes]
    err: IO[bytes]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    ended: float | None = None
    path: Path | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the process, in a session of its own: Ctrl-C reaches it through us, once."""
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
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

    def run_dir(self) -> Path | None:
        """The run directory, as soon as the process has named it."""
        if self.path is None and self.process is not None:
            lines = self.lines(self.out)
            for line in lines:
                if match := re.fullmatch(r"run (.+?)(?:, from update \d+)?", line):
                    self.path = Path(match[1])
                    break
            if self.path is None and self.process.poll() == 0 and lines:
                self.path = Path(lines[-1])
        return self.path

    def view(self) -> View:
        """Progress in numbers and words, from the status file."""
        if self.process is None:
            return View(0, None, "waiting", None)
        path = self.run_dir()
        if path is None:
            return View(0, None, "starting" if self.running() else "ended", None)
        status = RunDir(path).read_json("status")
        t, updates = int(status.get("t", 0)), status.get("updates")
        state = str(status.get("state", "ended"))
        if not self.running() or state != "running":
            done = any(line.startswith("already ") for line in self.lines(self.out))
            return View(t, updates, f"already {state}" if done else state, 0.0)
        words = [f"loss {status['loss']:.3f}"] if status.get("loss") is not None else []
        if updates and t >= updates:
            return View(t, updates, "  ".join([*words, "scoring"]), 0.0)
        left = status.get("eta_seconds")
        if left is not None:
            left = max(0.0, left - (time.time() - status["time"]))
        words.append(f"eta {clock(left)}")
        return View(t, updates, "  ".join(words), left)


def seconds_left(children: Sequence[Child], views: Sequence[View], jobs: int) -> float | None:
    """Seconds until the last arm ends, if those still waiting take as long as the others."""
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


def clock(seconds: float | None) -> str:
    """Write seconds as minutes and seconds."""
    return "-" if seconds is None else f"{int(seconds) // 60}:{int(seconds) % 60:02}"
