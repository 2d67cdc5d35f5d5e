"""Experiments on the lemmas: hidden-state norms and the normaliser.

Each function measures what the function of the same name in `lnexp.theory.statements` predicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

import torch
from torch import nn

from lnexp.theory import statements
from lnexp.theory.findings import (
    REAL,
    THEOREM,
    Curve,
    Panel,
    Results,
    series,
    single,
)
from lnexp.theory.intervals import Prediction, exactly, t_interval
from lnexp.theory.lab import BOTH, STACKS, Lab, label
from lnexp.theory.observe import ALL, NONE, Observation
from lnexp.theory.setting import Size, seed_everything

UNITS = "E ||x||^2 / d"


def lemma_1(lab: Lab) -> Results:
    """ReLU halves the expected squared norm: of Gaussian vectors, and of hidden layers."""
    widths, scale = lab.sizes.widths, 2.0

    def measure(seed: int) -> list[float]:
        seed_everything(seed, 1)
        drawn = (torch.randn(lab.sizes.samples, d) * scale for d in widths)
        return [(x.relu().square().mean() / scale**2).item() for x in drawn]

    finding, curve = series(
        "lemma_1", "Lemma 1", THEOREM, f"E ||ReLU(X)||^2 = s^2 d/2, X ~ N(0, s^2 I), s={scale:g}",
        "E ||ReLU(X)||^2 / (s^2 d)", "d", widths, lab.numbers("lemma_1", measure),
        lambda _: statements.lemma_1(), "X ~ N(0, s^2 I)",
    )  # fmt: skip
    panels = [Panel("Gaussian vectors", "d", "E ||ReLU(X)||^2 / (s^2 d)", [curve], log=False)]
    results, curves = Results([finding], panels), []
    quantity = "E ||ReLU(h)||^2 / E ||h||^2"
    for name in BOTH:
        rows = [seen[0].relu for seen in lab.model(name, lab.sizes.factor_depth, layers=ALL)]
        finding, curve = series(
            "lemma_1", "Lemma 1", REAL,
            f"{label(name)}: ReLU halves the squared norm of h = W1 x (decoder)", quantity,
            "layer", _upto(len(rows[0])), rows, lambda _: statements.lemma_1(), label(name),
        )  # fmt: skip
        claim = f"{label(name)}: the same, mean over layers"
        pooled = single("lemma_1", "Lemma 1", REAL, claim, quantity, statements.lemma_1(),
                        list(map(fmean, rows)))  # fmt: skip
        results.findings += [finding, pooled]
        curves.append(curve)
    results.panels.append(Panel("Real model, decoder", "layer", quantity, curves, log=False))
    return results


def lemma_2(lab: Lab) -> Results:
    """Squared norms of what the normalisers are given, at each depth."""
    s, results = lab.sizes, Results()
    many, alone = Size(s.d, s.norms_depth), Size(s.d, s.single_depth, n_positions=1)
    for size in (many, alone):
        observed = {
            name: [
                _mean([_norms(name, o) for o in networks])
                for networks in lab.theorem(name, size, layers=NONE, networks=s.networks)
            ]
            for name in BOTH
        }
        where = f"n={size.n_positions}"
        _norms_at_each_depth(results, THEOREM, where, f"Theorem's setting, {where}", observed)
    for i, stack in enumerate(STACKS):
        observed = {
            name: [_norms(name, seen[i]) for seen in lab.model(name, s.factor_depth, layers=ALL)]
            for name in BOTH
        }
        _norms_at_each_depth(results, REAL, stack, f"Real model, {stack}", observed)
    return results


def _norms_at_each_depth(
    results: Results, setting: str, where: str, title: str, observed: dict[str, list[list[float]]]
) -> None:
    claims = {
        "post_ln": "Post-LN: E ||x^{post,5}_l||^2 = 3d/2 at every depth",
        "pre_ln": "Pre-LN: (1 + l/2) d <= E ||x^pre||^2 <= (1 + 3l/2) d after l layers",
    }
    if where == "decoder":
        claims["pre_ln"] = claims["pre_ln"].replace("3l/2", "5l/2")
    curves = []
    for name, rows in observed.items():
        finding, curve = series(
            "lemma_2", "Lemma 2", setting, f"{claims[name]} ({where})", UNITS, "depth",
            _upto(len(rows[0])), rows, _predicted(name, where), label(name),
        )  # fmt: skip
        results.findings.append(finding)
        curves.append(curve)
        if name == "post_ln":  # the same value everywhere: all depths together say it sharper
            results.findings.append(
                single("lemma_2", "Lemma 2", setting,
                       f"Post-LN: the same, mean over depths ({where})", UNITS,
                       statements.lemma_2_post_ln(), list(map(fmean, rows)))
            )  # fmt: skip
    results.panels.append(Panel(title, "layers passed", UNITS, curves, log=False))


def _predicted(name: str, where: str) -> Callable[[int], Prediction]:
    if name == "post_ln":
        return lambda _: statements.lemma_2_post_ln()
    return partial(statements.lemma_2_pre_ln, attentions=2 if where == "decoder" else 1)


def _norms(name: str, seen: Observation) -> list[float]:
    """Which norms of an observation Lemma 2 is about."""
    return seen.sublayer_sums if name == "post_ln" else seen.streams


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(column) for column in zip(*rows, strict=True)]


def _upto(n: int) -> list[int]:
    return list(range(1, n + 1))


def lemma_3(lab: Lab) -> Results:
    """The normaliser's Jacobian by autograd against the formula, and its spectral norm."""
    widths = [d for d in lab.sizes.widths if d <= 512]

    def measure(seed: int) -> list[float]:
        """Per width: largest deviation of an entry, relative to the norm; ratio of the norms."""
        seed_everything(seed, 3)
        found = []
        for d in widths:
            x = torch.randn(d, dtype=torch.float64) * 3 + 1
            norm = nn.LayerNorm(d, eps=0.0, dtype=torch.float64)
            jacobian = torch.func.jacrev(norm)(x).detach()
            spectral = torch.linalg.matrix_norm(jacobian, ord=2)
            found.append(((jacobian - statements.lemma_3(x)).abs().max() / spectral).item())
            found.append(spectral.item() / statements.lemma_3_norm(x))
        return found

    samples = lab.numbers("lemma_3", measure)
    entries = [[1 + e for e in row[0::2]] for row in samples]
    ratios = [row[1::2] for row in samples]
    results, rounding = Results(), 1e-9
    for claim, quantity, rows in (
        ("autograd's Jacobian of LN is the lemma's", "1 + largest deviation / norm", entries),
        ("||J_LN(x)||_2 = sqrt(d)/||y||", "||J||_2 ||y|| / sqrt(d)", ratios),
    ):
        finding, _ = series(
            "lemma_3", "Lemma 3", THEOREM, claim, quantity, "d", widths, rows,
            lambda _: statements.lemma_3_agreement(rounding), quantity,
        )  # fmt: skip
        results.findings.append(finding)
    errors = [t_interval([row[i] - 1 for row in ratios]) for i in range(len(widths))]
    nothing = [exactly(0.0, resolution=rounding) for _ in widths]
    curve = Curve("float64", widths, errors, nothing)
    title = "Spectral norm by autograd over the lemma's"
    results.panels.append(Panel(title, "d", f"{quantity} - 1", [curve], log=False))
    for name in BOTH:
        seen = lab.model(name, lab.sizes.factor_depth, layers=ALL)
        results.findings.append(
            single("lemma_3", "Lemma 3", REAL,
                   f"{label(name)}: ||J_LN(x)||_2 = sqrt(d)/||y|| at the top of the decoder",
                   quantity, statements.lemma_3_agreement(1e-4),
                   [row[0].spectral_ratio or math.nan for row in seen],
                   "nn.LayerNorm adds 1e-5 to the variance")
        )  # fmt: skip
    _jacobian_decides(lab, results)
    return results


def _jacobian_decides(lab: Lab, results: Results) -> None:
    """What the lemma is for: the normaliser of a deep Pre-LN stream has a small Jacobian."""
    curves = []
    for name in BOTH:
        seen = lab.theorem(name, Size(lab.sizes.d, lab.sizes.factor_depth), layers=ALL)
        rows = [[j**0.5 for j in row[0].jacobians] for row in seen]
        measured = [t_interval(column) for column in zip(*rows, strict=True)]
        curves.append(Curve(label(name), _upto(len(measured)), measured))
    results.panels.append(
        Panel("In the network: last normaliser of each layer", "layer", "sqrt(E ||J||_2^2)", curves)
    )
