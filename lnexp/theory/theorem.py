"""Experiments on Theorem 1 and appendix F: how the gradient of W^{2,l} grows with L, d and l.

Each function measures what the function of the same name in `lnexp.theory.statements` predicts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lnexp.theory import statements
from lnexp.theory.findings import REAL, THEOREM, Curve, Panel, Results, single
from lnexp.theory.intervals import exactly, exponent, slope, t_interval
from lnexp.theory.lab import BOTH, Lab, label
from lnexp.theory.observe import ALL, LAST, Observation
from lnexp.theory.setting import Size

GRADIENT = "||dL/dW^{2,L}||_F"


def theorem_1(lab: Lab) -> Results:
    """The gradient of the last layer against depth, against the measured norm, against width."""
    s, results = lab.sizes, Results()
    for setting in (THEOREM, REAL):
        tops = {name: at_each_depth(lab, name, setting, s.depths) for name in BOTH}
        _against_depth(results, setting, s.depths, tops)
        _against_norm(results, setting, tops)
    _against_width(lab, results)
    return results


def at_each_depth(
    lab: Lab, name: str, setting: str, depths: Sequence[int]
) -> list[list[Observation]]:
    """The top of the network, [seed][depth]: of the theorem's, or of the real model's decoder."""
    s = lab.sizes
    if setting == THEOREM:
        wanted = {s.factor_depth: ALL, max(s.depths): ALL}  # those that appendix F looks at
        columns = [
            lab.theorem(name, Size(s.d, depth), layers=wanted.get(depth, LAST)) for depth in depths
        ]
    else:
        wanted = {s.factor_depth: ALL}
        columns = [lab.model(name, n, layers=wanted.get(n, LAST)) for n in depths]
    return [[seen[0] for seen in row] for row in zip(*columns, strict=True)]


def exponents(
    depths: Sequence[int], rows: Sequence[Sequence[Observation]]
) -> dict[str, list[float]]:
    """For each seed: exponent of the gradient in L and in ||x||^2, and of ||x||^2 in L."""
    found: dict[str, list[float]] = {"gradient in L": [], "gradient in norm": [], "norm in L": []}
    for row in rows:
        gradients, norms = [o.gradients[-1] for o in row], [o.top_norm for o in row]
        found["gradient in L"].append(exponent(depths, gradients))
        found["gradient in norm"].append(exponent(norms, gradients))
        found["norm in L"].append(exponent(depths, norms))
    return found


def _against_depth(
    results: Results, setting: str, depths: Sequence[int], tops: dict[str, list[list[Observation]]]
) -> None:
    curves = []
    for name, rows in tops.items():
        found, who = exponents(depths, rows), label(name)
        claims = [
            (f"{who}: {GRADIENT} does not depend on L", statements.theorem_1_post_ln()),
        ] if name == "post_ln" else [
            (f"{who}: {GRADIENT} falls at least as 1/sqrt(L) (the bound)",
             statements.theorem_1_pre_ln_bound()),
            (f"{who}: it falls as 1/sqrt(L) (the rate is tight)",
             statements.theorem_1_pre_ln_rate()),
        ]  # fmt: skip
        results.findings += [
            single("theorem_1", "Theorem 1", setting, claim, "exponent in L", prediction,
                   found["gradient in L"])
            for claim, prediction in claims
        ]  # fmt: skip
        columns = zip(*rows, strict=True)
        measured = [t_interval([o.gradients[-1] for o in column]) for column in columns]
        power = 0.0 if name == "post_ln" else -0.5
        # Through the first depth, to be compared by its slope.
        predicted = [
            exactly(measured[0].mean * (depth / depths[0]) ** power, resolution=math.inf)
            for depth in depths
        ]
        curves.append(Curve(who, depths, measured, predicted))
    results.panels.append(Panel(f"Depth, {setting}", "layers L", GRADIENT, curves))


def _against_norm(results: Results, setting: str, tops: dict[str, list[list[Observation]]]) -> None:
    rows = tops["pre_ln"]
    depths = list(range(1, len(rows[0]) + 1))
    results.findings.append(
        single("theorem_1", "Theorem 1, Lemma 3", setting,
               f"Pre-LN: {GRADIENT} is inversely proportional to ||x_{{L+1}}||",
               "exponent in ||x_{L+1}||^2", statements.theorem_1_norm(),
               exponents(depths, rows)["gradient in norm"])
    )  # fmt: skip
    columns = list(zip(*rows, strict=True))
    norms = [sum(o.top_norm for o in column) / len(column) for column in columns]
    measured = [t_interval([o.gradients[-1] for o in column]) for column in columns]
    predicted = [
        exactly(measured[0].mean * (norm / norms[0]) ** -0.5, resolution=math.inf) for norm in norms
    ]
    curve = Curve("Pre-LN", norms, measured, predicted)
    title = f"What the final normaliser is given, {setting}"
    results.panels.append(Panel(title, "||x_{L+1}||^2 / d", GRADIENT, [curve]))


def _against_width(lab: Lab, results: Results) -> None:
    s, curves = lab.sizes, []
    bound = [d * math.sqrt(math.log(d)) for d in s.widths]
    for name in BOTH:
        columns = [lab.theorem(name, Size(d, s.width_depth)) for d in s.widths]
        rows = [[seen[0].gradients[-1] for seen in row] for row in zip(*columns, strict=True)]
        found, who = [exponent(s.widths, row) for row in rows], label(name)
        for claim, prediction in (
            ("grows in d no faster than d sqrt(ln d) (the bound)",
             statements.theorem_1_width_bound(s.widths)),
            ("grows in d as d sqrt(ln d) (the rate is tight)",
             statements.theorem_1_width_rate(s.widths)),
        ):  # fmt: skip
            results.findings.append(
                single("theorem_1", "Theorem 1", THEOREM, f"{who}: {GRADIENT} {claim}",
                       "exponent in d", prediction, found)
            )  # fmt: skip
        measured = [t_interval(column) for column in zip(*rows, strict=True)]
        predicted = [exactly(measured[0].mean * b / bound[0], resolution=math.inf) for b in bound]
        curves.append(Curve(who, s.widths, measured, predicted))
    title = f"Width, theorem, L={s.width_depth}"
    results.panels.append(Panel(title, "width d", GRADIENT, curves))


def appendix_f(lab: Lab) -> Results:
    """The gradient of each layer in one network, and the factor that should explain it."""
    s, results = lab.sizes, Results()
    curves = []
    for name in BOTH:
        seen = [row[0] for row in lab.theorem(name, Size(s.d, s.factor_depth), layers=ALL)]
        if name == "post_ln":
            results.findings.append(
                single("appendix_f", "Appendix F", THEOREM,
                       "Post-LN: the normaliser's Jacobian has norm sqrt(2/3)",
                       "sqrt(E ||J_LN||_2^2)", statements.appendix_f_jacobian(),
                       [math.sqrt(sum(o.jacobians) / len(o.jacobians)) for o in seen])
            )  # fmt: skip
        rows = [o.gradients for o in seen]
        curves.append(_layers(results, THEOREM, name, f", L={s.factor_depth}", rows))
    title = f"Theorem's setting, L={s.factor_depth}"
    results.panels.append(Panel(title, "layer l", "||dL/dW^{2,l}||_F", curves))
    deepest, curves = max(s.depths), []
    rows = [o[0].gradients for o in lab.theorem("pre_ln", Size(s.d, deepest), layers=ALL)]
    curves.append(_layers(results, THEOREM, "pre_ln", f", L={deepest}", rows))
    title = f"Theorem's setting, L={deepest}"
    results.panels.append(Panel(title, "layer l", "||dL/dW^{2,l}||_F", curves))
    observed = {name: lab.model(name, s.factor_depth, layers=ALL) for name in BOTH}
    for i, stack in enumerate(("decoder", "encoder")):
        curves = [
            _layers(
                results, REAL, name, f", {stack}", [seen[i].gradients for seen in observed[name]]
            )
            for name in BOTH
        ]
        title = f"Real model, {stack}, {s.factor_depth} layers"
        results.panels.append(Panel(title, "layer l", "||dL/dW^{2,l}||_F", curves))
    return results


def _layers(
    results: Results, setting: str, name: str, where: str, rows: Sequence[Sequence[float]]
) -> Curve:
    """Judge one network's gradients by layer: Post-LN by its factor, Pre-LN by its exponent."""
    n = len(rows[0])
    layers = list(range(1, n + 1))
    measured = [t_interval(column) for column in zip(*rows, strict=True)]
    if name == "post_ln":
        prediction = statements.appendix_f_post_ln()
        claim, quantity = "each layer up multiplies the gradient by sqrt(3/2)", "factor of a layer"
        found = [math.exp(slope(layers, [math.log(g) for g in row])) for row in rows]
        shape = [prediction.low ** (layer - n) for layer in layers]
    else:
        prediction = statements.appendix_f_pre_ln()
        claim, quantity = "for large l the gradient does not depend on l", "exponent in l, l > L/2"
        found = [exponent(layers[n // 2 :], row[n // 2 :]) for row in rows]
        shape = [1.0] * n
    claim = f"{label(name)}: {claim}{where}"
    results.findings.append(
        single("appendix_f", "Appendix F", setting, claim, quantity, prediction, found)
    )
    predicted = [exactly(measured[-1].mean * f, resolution=math.inf) for f in shape]
    return Curve(label(name), layers, measured, predicted)
