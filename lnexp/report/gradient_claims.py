"""What Figure 3 says of the paper's claims, in sentences that are true for every outcome.

C4 and C5 number the two claims that rest on the figure (Xiong et al., 2020, section 3.3): how the
last feed-forward network's gradient depends on depth, and how gradients depend on the layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lnexp.report.gradients import (
    DEPTH_MARGIN,
    LAYER_MARGIN,
    MATRICES,
    STACKS,
    Curve,
    half_width,
    shrinkage,
    trend,
)
from lnexp.theory.intervals import CONTRADICTED, INCONCLUSIVE, SUPPORTED, Interval, jointly

DEPTH_CLAIMS = {
    "post_ln": ("does not depend on depth", "flat"),
    "pre_ln": ("falls with depth", "falls"),
}
LAYER_CLAIMS = {
    "post_ln": ("grow with the layer", "grows"),
    "pre_ln": ("are the same in every layer", "flat"),
}
PAPER_LAST = 1.6
"""What the paper reads off for Post-LN's last W2, at every size."""


def claims(curves: Sequence[Curve]) -> list[str]:
    """Judge what the paper claims of Post-LN and Pre-LN, a sentence each."""
    fresh = [curve for curve in curves if not curve.trained]
    lines = [depth_claim(curve) for curve in fresh if curve.name in DEPTH_CLAIMS and curve.depth]
    lines += [layer_claim(curve) for curve in fresh if curve.name in LAYER_CLAIMS]
    for curve in curves:
        peers = [f for f in fresh if f.name == curve.name] if curve.trained else []
        lines += [trained_claim(curve, peer) for peer in peers]
    return lines


def others(curves: Sequence[Curve]) -> list[str]:
    """Say the same of placements that the paper does not speak of, a sentence each."""
    rest = [curve for curve in curves if not curve.trained and curve.name not in DEPTH_CLAIMS]
    return [text for c in rest for text in ([depth_claim(c)] if c.depth else []) + [layer_claim(c)]]


def judge(found: str, claimed: str) -> str:
    """Verdict on a claimed trend."""
    if found == "inconclusive":
        return INCONCLUSIVE
    return SUPPORTED if found == claimed else CONTRADICTED


def depth_claim(curve: Curve) -> str:
    """C4: the gradient of the last W2 against the number of layers."""
    a = curve.depth_exponent()
    found = trend(a, DEPTH_MARGIN)
    last = curve.last()
    shown = ", ".join(f"{number(last[n])} at {n}-{n}" for n in sorted({min(last), max(last)}))
    facts = f"It goes as L^a, a = {number(a)}; {shown}"
    if len(last) < 2:
        facts = f"One size says nothing of depth; {shown}"
    elif not math.isfinite(a.mean):
        facts = f"It has no exponent, being zero or not finite somewhere; {shown}"
    if curve.name == "post_ln":
        facts += f" (the paper: about {PAPER_LAST} at every size, from batches of 4,096 tokens)"
    subject = f"C4, {curve.label}: the gradient of the last feed-forward W2"
    if curve.name not in DEPTH_CLAIMS:
        return f"{subject}, against depth: {found}. {facts}."
    words, claimed = DEPTH_CLAIMS[curve.name]
    return f"{subject} {words}: {judge(found, claimed)}. {facts}."


def layer_claim(curve: Curve) -> str:
    """C5: gradients at initialisation against the layer, in each stack and for each matrix."""
    places = [(stack, matrix) for stack in STACKS for matrix in MATRICES]
    growths = [curve.growth(*place, parts=len(places)) for place in places]
    found = [trend(growth, LAYER_MARGIN) for growth in growths]
    facts = "; ".join(
        f"{stack} {matrix.upper()} {said}, {percent(growth)}"
        for (stack, matrix), said, growth in zip(places, found, growths, strict=True)
    )
    if curve.name not in LAYER_CLAIMS:
        return f"C5, {curve.label}: gradients from layer to layer. {facts}."
    words, claimed = LAYER_CLAIMS[curve.name]
    verdicts = [judge(said, claimed) for said in found]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    split = f" ({counts})" if len(set(verdicts)) > 1 else ""
    return (
        f"C5, {curve.label}: gradients {words}: {jointly(verdicts)}{split}. "
        f"From layer to layer: {facts}."
    )


def trained_claim(trained: Curve, fresh: Curve) -> str:
    """C5: gradients after warm-up against those at initialisation, seed by seed."""
    ratio = shrinkage(trained, fresh)
    subject = f"C5, {trained.label}: gradients are smaller than at initialisation"
    if not ratio.n:
        return f"{subject}: {INCONCLUSIVE}. No run has a seed that was measured at initialisation."
    verdict = judge(trend(ratio, 0.0), "falls")
    if not math.isfinite(ratio.mean):
        return f"{subject}: {verdict}. Some are zero or not finite."
    times = f"{math.exp(ratio.mean):.2g}"
    if ratio.n > 1:
        times += f" [{math.exp(ratio.low):.2g}, {_exp(ratio.high):.2g}]"
    return (
        f"{subject}: {verdict}. They are {times} times as large: geometric mean over sublayers and "
        f"matrices, {ratio.n} {'run, hence no interval' if ratio.n == 1 else 'runs'}."
    )


def _exp(x: float) -> float:
    return math.exp(x) if x < 700 else math.inf


def number(interval: Interval) -> str:
    """Mean and half-width, the latter with two digits that count, say ``-0.512 ± 0.031``."""
    if not math.isfinite(interval.mean):
        return "not defined"
    half = half_width(interval)
    if not (math.isfinite(half) and half > 0):
        return f"{interval.mean:.3g}"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{interval.mean:.{decimals}f} ± {half:.{decimals}f}"


def percent(growth: Interval) -> str:
    """The interval of a log slope as change a layer, say ``+3.0 % [+1.1, +5.2]``."""
    if not math.isfinite(growth.mean):
        return "not defined"
    mean = f"{100 * math.expm1(growth.mean):+.1f} %"
    if not math.isfinite(growth.low) or growth.high > 10:
        return mean
    return f"{mean} [{100 * math.expm1(growth.low):+.1f}, {100 * math.expm1(growth.high):+.1f}]"
