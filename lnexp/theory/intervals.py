"""Intervals over seeds, and what they say about a prediction.

A rule of judgement is part of the prediction, so that it is fixed before anything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SUPPORTED, CONTRADICTED, INCONCLUSIVE = "supported", "contradicted", "inconclusive"


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` seeds with its t-interval."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Prediction:
    """What is claimed, from ``low`` to ``high`` (equal for a value), and how it is judged.

    Contradicted: the interval lies wholly more than ``margin`` away.  Supported: its mean lies
    within the margin, and it reaches no further than ``resolution`` from it.  Inconclusive:
    neither.  ``margin`` is what is forgiven: little where the statement is exact, more where
    asymptotic.
    """

    low: float
    high: float
    margin: float
    resolution: float

    def verdict(self, measured: Interval) -> str:
        """Judge a measurement by the rule above; one that is no number decides nothing."""
        if not all(map(math.isfinite, (measured.mean, measured.low, measured.high))):
            return INCONCLUSIVE
        if measured.high < self.low - self.margin or measured.low > self.high + self.margin:
            return CONTRADICTED
        half_width = max(measured.high - measured.mean, measured.mean - measured.low)
        within = self.low - self.margin <= measured.mean <= self.high + self.margin
        return SUPPORTED if within and half_width <= self.resolution else INCONCLUSIVE


def exactly(value: float, *, resolution: float, margin: float = 0.0) -> Prediction:
    """Predict one value."""
    return Prediction(value, value, margin, resolution)


def jointly(verdicts: Iterable[str]) -> str:
    """Judge a statement by its parts: one contradiction contradicts it, all must support it."""
    found = set(verdicts)
    for verdict in (CONTRADICTED, INCONCLUSIVE):
        if verdict in found:
            return verdict
    return SUPPORTED


def t_interval(samples: Sequence[float], *, parts: int = 1, level: float = 0.95) -> Interval:
    """Student's interval of the mean of ``samples``, one from each seed.

    With ``parts`` above 1 it is widened (Bonferroni) so that so many intervals hold together with
    probability ``level``.
    """
    n = len(samples)
    mean = math.fsum(samples) / n
    if n < 2 or not math.isfinite(mean):
        return Interval(mean, -math.inf, math.inf, n)
    variance = math.fsum((x - mean) ** 2 for x in samples) / (n - 1)
    reach = t_quantile(n - 1, 1 - (1 - level) / parts) * math.sqrt(variance / n)
    return Interval(mean, mean - reach, mean + reach, n)


def t_quantile(freedom: int, level: float) -> float:
    """The t with ``P(|T| <= t) = level`` for Student's T of ``freedom`` degrees."""
    low, high = 0.0, math.pi / 2
    for _ in range(200):  # bisection in atan(t / sqrt(freedom)), where the probability is smooth
        middle = (low + high) / 2
        low, high = (middle, high) if _central(freedom, middle) < level else (low, middle)
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def _central(freedom: int, angle: float) -> float:
    """``P(|T| <= sqrt(freedom) tan(angle))`` (Abramowitz and Stegun, 1964, 26.7.3 and 26.7.4)."""
    cos, sin = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term = cos if odd else 1.0
    total = 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= k / (k + 1) * cos * cos
    return 2 / math.pi * (angle + sin * total) if odd else sin * total


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Least-squares slope of ``ys`` over ``xs``."""
    x0, y0 = math.fsum(xs) / len(xs), math.fsum(ys) / len(ys)
    across = math.fsum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True))
    return across / math.fsum((x - x0) ** 2 for x in xs)


def exponent(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The ``a`` of the power law ``y ~ x^a`` that fits best on logarithmic axes; NaN for a zero."""
    if min(*xs, *ys) <= 0:
        return math.nan
    return slope([math.log(x) for x in xs], [math.log(y) for y in ys])
