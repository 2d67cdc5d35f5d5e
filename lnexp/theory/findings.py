"""What an experiment hands back: findings, one row of the table each, and panels of figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lnexp.theory.intervals import (
    CONTRADICTED,
    INCONCLUSIVE,
    Interval,
    Prediction,
    jointly,
    t_interval,
)

THEOREM, REAL = "theorem", "real model"
"""The settings: the theorem's own, and the model that is trained."""


@dataclass(frozen=True)
class Finding:
    """One statement about one quantity in one setting."""

    statement: str
    """The function of `lnexp.theory.statements` that predicts, or its group: ``lemma_2``, say."""
    place: str
    """Where in the paper."""
    setting: str
    claim: str
    quantity: str
    prediction: Prediction
    measured: Interval
    verdict: str
    note: str = ""


@dataclass(frozen=True)
class Curve:
    """A measured quantity against another, and what is predicted there (or nothing)."""

    label: str
    xs: Sequence[float]
    measured: Sequence[Interval]
    predicted: Sequence[Prediction] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    log: bool = True


@dataclass
class Results:
    """Everything found about one statement."""

    findings: list[Finding] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)


def single(
    statement: str, place: str, setting: str, claim: str, quantity: str,
    prediction: Prediction, samples: Sequence[float], note: str = "",
) -> Finding:  # fmt: skip
    """Judge one number, measured with each seed."""
    measured = t_interval(samples)
    verdict = prediction.verdict(measured)
    return Finding(statement, place, setting, claim, quantity, prediction, measured, verdict, note)


def series(
    statement: str, place: str, setting: str, claim: str, quantity: str,
    axis: str, xs: Sequence[float], samples: Sequence[Sequence[float]],
    predict: Callable[[int], Prediction], label: str,
) -> tuple[Finding, Curve]:  # fmt: skip
    """Judge a statement that is made at each of ``xs``; ``samples[seed][i]`` is the value at xs[i].

    The intervals hold together (Bonferroni).  The row shows the worst place: the first that
    contradicts, else the first that is inconclusive, else the last.
    """
    measured = [t_interval(column, parts=len(xs)) for column in zip(*samples, strict=True)]
    predictions = [predict(int(x)) for x in xs]
    verdicts = [p.verdict(m) for p, m in zip(predictions, measured, strict=True)]
    worst = next(
        (verdicts.index(v) for v in (CONTRADICTED, INCONCLUSIVE) if v in verdicts), len(xs) - 1
    )
    alike = verdicts.count(verdicts[worst])
    note = f"shown at {axis} {xs[worst]:g}; {verdicts[worst]} at {alike} of {len(xs)}"
    finding = Finding(
        statement, place, setting, claim, quantity,
        predictions[worst], measured[worst], jointly(verdicts), note,
    )  # fmt: skip
    return finding, Curve(label, xs, measured, predictions)
