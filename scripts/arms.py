"""One arm of the demo: a process of `lnexp train`, watched from outside.

What is known of it is what it prints and the status file of its run directory.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from children import Process, View, clock

from lnexp.run_dir import RunDir


@dataclass
class Child(Process):
    """A process of `lnexp train`."""

    path: Path | None = field(default=None, init=False)

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

    def log(self) -> Path | None:
        """The log of the run."""
        path = self.run_dir()
        return RunDir(path).log_file if path else None

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
