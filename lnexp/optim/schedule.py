"""Learning-rate schedules: pure functions from the update ``t`` (from 1) to a factor of the peak.

Stateless, so that update 1 runs at the rate the formula gives and resuming has nothing to restore.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lnexp.errors import InputError

Schedule = Callable[[int], float]


def _at_least_one(**values: float) -> None:
    for name, value in values.items():
        if value < 1:
            hint = " (1 means no warm-up)" if name == "warmup" else ""
            raise InputError(f"schedule.{name}={value} must be at least 1 update{hint}")


@dataclass(frozen=True)
class InverseSqrt:
    """``min(t / warmup, 1, sqrt(anchor / t))``: linear warm-up, then inverse square root.

    With ``anchor = warmup`` this is Xiong et al. (2020), equation 1 and section 3.2. ``warmup=1``
    means no warm-up. The paper's literal reading of that is ``anchor=1`` (the rate then falls
    22-fold in 500 updates); the *held* reading keeps the peak as long as a run with ``anchor``
    updates of warm-up would take to reach it.
    """

    warmup: int
    anchor: int

    def __post_init__(self) -> None:
        _at_least_one(warmup=self.warmup, anchor=self.anchor)

    def __call__(self, t: int) -> float:
        """Return the factor of the peak rate at update ``t``."""
        return min(t / self.warmup, 1.0, math.sqrt(self.anchor / t))


@dataclass(frozen=True)
class Constant:
    """``min(t / warmup, 1)``."""

    warmup: int

    def __post_init__(self) -> None:
        _at_least_one(warmup=self.warmup)

    def __call__(self, t: int) -> float:
        """Return the factor of the peak rate at update ``t``."""
        return min(t / self.warmup, 1.0)


@dataclass(frozen=True)
class Linear:
    """Linear warm-up, then linear decay that would reach 0 at update ``total + 1``.

    Devlin et al. (2019); the paper's BERT and RAdam runs. The last update still has a rate above 0.
    """

    warmup: int
    total: int

    def __post_init__(self) -> None:
        _check_total(self.warmup, self.total)

    def __call__(self, t: int) -> float:
        """Return the factor of the peak rate at update ``t``."""
        return min(t / self.warmup, _left(t, self.warmup, self.total))


@dataclass(frozen=True)
class Cosine:
    """Linear warm-up, then half a cosine that would reach 0 at update ``total + 1``.

    Loshchilov and Hutter (2017), without restarts.
    """

    warmup: int
    total: int

    def __post_init__(self) -> None:
        _check_total(self.warmup, self.total)

    def __call__(self, t: int) -> float:
        """Return the factor of the peak rate at update ``t``."""
        left = _left(t, self.warmup, self.total)
        return min(t / self.warmup, (1 - math.cos(math.pi * left)) / 2)


@dataclass(frozen=True)
class Step:
    """Linear warm-up, then the peak, multiplied once by ``factor`` from update ``drop_at`` on.

    The paper's Pre-LN run on IWSLT14: times 0.1 at epoch 8 (section 4). One drop: the authors'
    toolkit would multiply again at every later epoch.
    """

    warmup: int
    drop_at: int
    factor: float

    def __post_init__(self) -> None:
        _at_least_one(warmup=self.warmup, drop_at=self.drop_at)
        if not 0 < self.factor <= 1:
            raise InputError(f"schedule.factor={self.factor} must be above 0 and at most 1")

    def __call__(self, t: int) -> float:
        """Return the factor of the peak rate at update ``t``."""
        return min(t / self.warmup, 1.0) * (self.factor if t >= self.drop_at else 1.0)


def _check_total(warmup: int, total: int) -> None:
    _at_least_one(warmup=warmup, total=total)
    if warmup > total:
        raise InputError(
            f"schedule.warmup={warmup} must not exceed schedule.total={total}; "
            "warm up for fewer updates or train longer"
        )


def _left(t: int, warmup: int, total: int) -> float:
    """Share of the decay still ahead: 1 up to the end of the warm-up, 0 after ``total``."""
    return min(1.0, max(0.0, (total + 1 - t) / (total + 1 - warmup)))
