"""Sweeps of `lnexp probe` beside each other: what is planned is made, or found where it was made.

A measurement is a file, and printed by name when it is there; nothing else is known of a sweep.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from children import Process, View, run_all

from lnexp.errors import InputError
from lnexp.report.gradients import Measurement, load_measurement


class Plan(NamedTuple):
    """A sweep of `lnexp probe`, not yet run."""

    label: str
    command: list[str]
    costs: list[float]
    """Of each measurement, in the order in which they are made."""
    placement: str
    experiment: str


@dataclass
class Sweep(Process):
    """A process of `lnexp probe` that makes, or finds, several measurements."""

    costs: Sequence[float] = ()
    """What each measurement costs, in any unit, in the order in which they are made."""

    def measurements(self) -> list[Path]:
        """Files of the measurements made so far."""
        if self.process is None:
            return []
        pattern = re.compile(r"\S.*[\\/]probes[\\/][^\\/]+\.json")
        return [Path(line) for line in self.lines(self.out) if pattern.fullmatch(line)]

    def view(self) -> View:
        """Measurements made and to make."""
        if self.process is None:
            return View(0, len(self.costs), "waiting", None)
        running, done = self.running(), len(self.measurements())  # in this order
        state = ("measuring" if done else "starting") if running else "done"
        return View(done, len(self.costs), state, None)


def sweeps_left(children: Sequence[Process], views: Sequence[View], jobs: int) -> float | None:
    """Seconds until the last sweep ends, if costs go on as fast as they did so far."""
    spent = left = 0.0
    started = []
    for child, view in zip(children, views, strict=True):
        assert isinstance(child, Sweep)
        spent += sum(child.costs[: view.t])
        left += sum(child.costs[view.t :])
        started += [child.started] if child.process is not None else []
    return (time.monotonic() - min(started)) * left / spent if spent else None


def measure(
    script: str, plans: Sequence[Plan], jobs: int, everything: str
) -> tuple[int, list[list[Measurement]]]:
    """Make, or find, what is planned; return the exit code and the measurements of each plan.

    ``script`` is whose messages these are, ``everything`` what the plans are called together.
    """
    with ExitStack() as stack:
        sweeps = []
        for plan in plans:
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            sweeps.append(Sweep(plan.label, plan.command, out, err, costs=plan.costs))
        code = run_all(script, sweeps, jobs, everything, sweeps_left)
        paths = [sweep.measurements() for sweep in sweeps]
    if code:
        return code, []
    for plan, found in zip(plans, paths, strict=True):
        if len(found) != len(plan.costs):
            raise InputError(
                f"{plan.label}: {len(found)} measurements instead of {len(plan.costs)}; give each "
                "key one value"
            )
    return 0, [[load_measurement(path) for path in found] for found in paths]
