"""Figure 3 of the paper: measurements of `lnexp probe`, gathered into curves with intervals.

A number is the Frobenius norm of one feed-forward matrix's gradient with one seed; intervals are
over seeds. The rules of judgement stand here and were fixed before the first full measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lnexp.errors import InputError
from lnexp.report.readings import is_reading, read_measurement
from lnexp.theory.intervals import Interval, exponent, slope, t_interval

STACKS = ("encoder", "decoder")
MATRICES = ("w1", "w2")

DEPTH_MARGIN = 0.05
"""Exponents in the number of layers that count as none: 4 % from 6 to 14 layers."""
LAYER_MARGIN = 0.02
"""Logarithms of a layer's factor that count as none: 10 % from the first to the last of six."""

LABELS = {
    "post_ln": "Post-LN", "pre_ln": "Pre-LN", "deep_norm": "DeepNorm", "admin": "Admin",
    "b2t": "B2T", "resi_dual": "ResiDual", "sandwich": "Sandwich-LN", "peri_ln": "Peri-LN",
    "reordered": "reordered norm", "lns": "LayerNorm scaling", "mix_ln": "Mix-LN",
    "rezero": "ReZero", "t_fixup": "T-Fixup",
}  # fmt: skip
"""What placements are called in print; others go by the name that they are asked for."""


@dataclass(frozen=True)
class Measurement:
    """One file of `lnexp probe`: the gradient norms of one network with one seed."""

    path: Path
    record: Mapping[str, Any]

    @property
    def seed(self) -> int:
        """The seed of the initial weights, the batches and dropout."""
        return int(self.record["config"]["seed"])

    @property
    def n_layers(self) -> int:
        """Layers of each stack."""
        return int(self.record["config"]["model"]["n_layers"])

    def norm(self, stack: str, layer: int, matrix: str, metric: str = "grad_norm") -> float:
        """Gradient norm of one matrix, ``layer`` from 1; NaN where it was not finite."""
        name = f"{metric}/{stack}_blocks.{layer - 1}.ffn.{matrix}.weight"
        readings = self.record["readings"]
        if name not in readings:
            raise InputError(
                f"{self.path} holds no {name}; leave the probes of the figure as they are"
            )
        value = readings[name]
        return math.nan if value is None else float(value)


def load_measurement(path: Path) -> Measurement:
    """Read a measurement back; raises `InputError` where it is damaged."""
    record = read_measurement(path)
    whole = all(isinstance(record.get(key), dict) for key in ("config", "identity"))
    if not whole or not is_reading(record.get("readings")):
        raise InputError(f"{path} is no measurement of lnexp probe; delete it and measure again")
    return Measurement(path, record)


@dataclass
class Curve:
    """What is drawn in one colour: a placement, at initialisation or trained."""

    name: str
    """The placement, as ``placement=`` has it."""
    label: str
    layers: list[Measurement]
    """Of one size, one for each seed: gradients of every feed-forward matrix."""
    depth: dict[int, list[Measurement]] = field(default_factory=dict)
    """By number of layers, one for each seed: gradients of the last matrix."""
    trained: bool = False

    @property
    def n_layers(self) -> int:
        """Layers of each stack in `layers`."""
        return self.layers[0].n_layers

    def sublayers(self) -> list[tuple[str, int]]:
        """The feed-forward sublayers of `layers`: encoder, then decoder, each from 1."""
        return [(stack, layer) for stack in STACKS for layer in range(1, self.n_layers + 1)]

    def profile(self, matrix: str, metric: str = "grad_norm") -> list[Interval]:
        """Mean norm of a matrix in each of `sublayers`, over seeds."""
        return [
            t_interval([m.norm(stack, layer, matrix, metric) for m in self.layers])
            for stack, layer in self.sublayers()
        ]

    def last(self) -> dict[int, Interval]:
        """Mean norm of the last feed-forward network's W2 by number of layers, over seeds."""
        return {
            n: t_interval([m.norm("decoder", n, "w2") for m in measurements])
            for n, measurements in self.depth.items()
        }

    def depth_exponent(self) -> Interval:
        """The ``a`` of ``norm ~ L^a``, fitted for each seed: the mean over seeds."""
        by_seed: dict[int, list[tuple[int, float]]] = {}
        for n, measurements in sorted(self.depth.items()):
            for m in measurements:
                by_seed.setdefault(m.seed, []).append((n, m.norm("decoder", n, "w2")))
        return t_interval([fitted_exponent(points) for points in by_seed.values()])

    def growth(self, stack: str, matrix: str, parts: int = 1) -> Interval:
        """Mean over seeds of the slope of the log norm in the layer; 0 where it is flat."""
        return t_interval(
            [
                fitted_slope([(n, m.norm(stack, n, matrix)) for n in range(1, self.n_layers + 1)])
                for m in self.layers
            ],
            parts=parts,
        )


def fitted_exponent(points: Sequence[tuple[float, float]]) -> float:
    """The ``a`` of ``y ~ x^a``; NaN for fewer than two points, a zero or what is not finite."""
    if len(points) < 2 or not all(y > 0 for _, y in points):
        return math.nan
    return exponent([x for x, _ in points], [y for _, y in points])


def fitted_slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of ``log y`` in ``x``; NaN for fewer than two points, a zero, or a NaN."""
    if len(points) < 2 or not all(y > 0 for _, y in points):
        return math.nan
    return slope([x for x, _ in points], [math.log(y) for _, y in points])


def shrinkage(trained: Curve, fresh: Curve) -> Interval:
    """Mean log ratio of trained to initial norms, of all sublayers and both matrices.

    Runs and initial networks are compared seed by seed; ``n`` says how many pairs there were.
    """
    initial = {m.seed: m for m in fresh.layers}
    ratios = []
    for m in trained.layers:
        if m.seed not in initial:
            continue
        logs = [
            _log_ratio(m.norm(*at, matrix), initial[m.seed].norm(*at, matrix))
            for at in trained.sublayers()
            for matrix in MATRICES
        ]
        ratios.append(math.fsum(logs) / len(logs))
    return t_interval(ratios) if ratios else Interval(math.nan, -math.inf, math.inf, 0)


def _log_ratio(a: float, b: float) -> float:
    return math.log(a / b) if a > 0 and b > 0 else math.nan


def trend(interval: Interval, margin: float) -> str:
    """Name what an interval says of a slope: ``flat``, ``falls``, ``grows`` or ``inconclusive``.

    Flat: wholly within the margin of 0. Falling or growing: wholly outside, on one side.
    """
    if not math.isfinite(interval.mean):
        return "inconclusive"
    if -margin <= interval.low and interval.high <= margin:
        return "flat"
    if interval.high < -margin:
        return "falls"
    return "grows" if interval.low > margin else "inconclusive"


def half_width(interval: Interval) -> float:
    """Half the length of an interval; infinite or NaN where one seed was all."""
    return (interval.high - interval.low) / 2
