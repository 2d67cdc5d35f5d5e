"""Experiments on concentration: how far squared norms stray from their means.

Each function measures what the function of the same name in `lnexp.theory.statements` predicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from lnexp.theory import statements
from lnexp.theory.findings import REAL, THEOREM, Curve, Finding, Panel, Results, series, single
from lnexp.theory.intervals import Prediction, t_interval
from lnexp.theory.lab import BOTH, STACKS, Lab, label
from lnexp.theory.observe import NONE, Observation
from lnexp.theory.setting import Size


def appendix_g(lab: Lab) -> Results:
    """Tails of chi-square against the bound, and the bound at the real model's width."""
    widths, epsilon = lab.sizes.widths, statements.EPSILON

    def measure(seed: int) -> list[float]:
        rng = np.random.default_rng([seed, 7])
        return [
            float((rng.chisquare(d, 10 * lab.sizes.samples) >= (1 + epsilon) * d).mean())
            for d in widths
        ]

    predict = partial(statements.appendix_g, epsilon=epsilon)
    finding, curve = series(
        "appendix_g", "Appendix G", THEOREM,
        "P(||Y||^2 >= (1 + eps) d) <= exp(-d eps^2/8), Y ~ N(0, I)", f"probability, eps={epsilon}",
        "d", widths, lab.numbers("appendix_g", measure), predict, f"eps = {epsilon}",
    )  # fmt: skip
    title = "Tail of a Gaussian vector's squared norm"
    return Results([finding], [Panel(title, "d", "P(||Y||^2 >= (1 + eps) d)", [curve])])


def bounded(lab: Lab) -> Results:
    """How often a squared norm is more than a tenth away from its mean, over all positions."""
    s, results, prediction = lab.sizes, Results(), statements.bounded()
    theorem, real = [], []
    for name in BOTH:
        above = []
        for depth in s.bounded_depths:
            size = Size(s.bounded_d, depth, n_sequences=s.sequences)
            seen = [o[0] for o in lab.theorem(name, size, layers=NONE)]
            where = f"L={depth}, d={size.d}"
            results.findings += _sides(THEOREM, name, where, prediction, seen)
            above.append(t_interval([o.above for o in seen]))
        theorem.append(Curve(label(name), s.bounded_depths, above, [prediction] * len(above)))
        rows, above = lab.model(name, min(s.depths)), []
        for i, stack in enumerate(STACKS):
            seen = [row[i] for row in rows]
            where = f"{stack}, L={min(s.depths)}, d={lab.real.d}"
            results.findings += _sides(REAL, name, where, prediction, seen)
            above.append(t_interval([o.above for o in seen]))
        real.append(Curve(label(name), [1, 2], above, [prediction] * 2))
    y = "P((Z - EZ)/EZ > 0.1)"
    title = f"Real model, L={min(s.depths)}"
    results.panels = [
        Panel("Theorem's setting", "layers L", y, theorem, log=False),
        Panel(title, "1: decoder, 2: encoder", y, real, log=False),
    ]
    return results


def _sides(
    setting: str, name: str, where: str, prediction: Prediction, seen: Sequence[Observation]
) -> list[Finding]:
    """The definition looks at one side; the proof of Theorem 1 uses both."""
    what = "x^{post,5}_L" if name == "post_ln" else "x^pre_{L+1}"
    claim = f"{label(name)}: Z = ||{what}||^2 is (0.1, 0.125)-bounded"
    return [
        single("bounded", "Section 3.4", setting, f"{claim} ({where})", "P((Z - EZ)/EZ > 0.1)",
               prediction, [o.above for o in seen]),
        single("bounded", "Section 3.4", setting, f"{claim} on both sides, as the proof uses it "
               f"({where})", "P(|Z - EZ|/EZ > 0.1)", prediction, [o.away for o in seen]),
    ]  # fmt: skip
