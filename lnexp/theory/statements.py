"""What Xiong et al. (2020) claim of a freshly initialised network: predictions, nothing measured.

One function for each lemma and for the theorem.  Margins and resolutions were set before the
measurement.  Where a statement is exact the margin is 1 %: among some fifty intervals of 95 % a few
miss the truth by a hair.  Squared norms are in units of d; ``l`` is the number of layers passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lnexp.theory.intervals import Prediction, exactly, exponent

EPSILON, DELTA = 0.1, 0.125
"""The concentration that the paper reports for both placements (section 3.4)."""

INF = math.inf


def lemma_1() -> Prediction:
    """``E ||ReLU(X)||^2 / (s^2 d) = 1/2`` for X ~ N(0, s^2 I_d) (Lemma 1)."""
    return exactly(0.5, resolution=0.01, margin=0.005)


def lemma_2_post_ln() -> Prediction:
    """``E ||x^{post,5}_{l,i}||^2 / d = 3/2`` at every layer l and position i (Lemma 2).

    x^{post,5} is what the second normaliser of a layer is given.
    """
    return exactly(1.5, resolution=0.05, margin=0.015)


def lemma_2_pre_ln(layers_passed: int, attentions: int = 1) -> Prediction:
    """``1 + l/2 <= E ||x^pre||^2 / d <= 1 + 3l/2`` after l layers (Lemma 2).

    The feed-forward branch adds d/2; the attention branch between 0 and d, and exactly d where
    there is one position, which therefore lies on the upper bound.  The lemma speaks of layers
    with one attention; with two, as in a decoder, the same argument gives ``1 + 5l/2``.
    """
    low, high = 1 + layers_passed / 2, 1 + layers_passed / 2 + attentions * layers_passed
    return Prediction(low, high, margin=0.01 * high, resolution=0.05 * high)


def lemma_3(x: Tensor) -> Tensor:
    """Jacobian (d, d) of the normaliser at ``x`` (d,), gain 1, bias 0 (Lemma 3, appendix D).

    ``J = sqrt(d)/||y|| (I - y^T y/||y||^2) (I - 1^T 1/d)`` with ``y = x (I - 1^T 1/d)``; the
    appendix prints ``||y||_2^{3/2}`` once where the derivation needs ``||y||_2^3``.
    """
    d = len(x)
    identity = torch.eye(d, dtype=x.dtype)
    centring = identity - 1 / d
    y = x @ centring
    return d**0.5 / y.norm() * (identity - torch.outer(y, y) / y.dot(y)) @ centring


def lemma_3_norm(x: Tensor) -> float:
    """``||J_LN(x)||_2 = sqrt(d)/||y||_2 = O(sqrt(d)/||x||_2)`` (Lemma 3)."""
    return float(len(x) ** 0.5 / (x - x.mean()).norm())


def lemma_3_agreement(rounding: float) -> Prediction:
    """The measured norm or Jacobian over the formula's is 1, up to ``rounding``."""
    return exactly(1.0, resolution=rounding, margin=rounding)


def appendix_g(d: int, epsilon: float) -> Prediction:
    """``P(Z >= (1 + eps) d) <= exp(-d eps^2 / 8)``, Z = ||Y||^2, Y ~ N(0, I_d), 0 < eps < 1."""
    return Prediction(0.0, math.exp(-d * epsilon**2 / 8), margin=0.0, resolution=0.02)


def bounded() -> Prediction:
    """``P((Z - EZ)/EZ > 0.1) <= 0.125`` for Z = ||x^{post,5}_L||^2 and ||x^{pre}_{L+1}||^2.

    Definition 1 with the (eps, delta) of section 3.4.
    """
    return Prediction(0.0, DELTA, margin=0.0, resolution=0.02)


def theorem_1_post_ln() -> Prediction:
    """Exponent in L of ``||dL/dW^{2,L}||_F = O(d sqrt(ln d))``: 0 (Theorem 1, Post-LN)."""
    return exactly(0.0, resolution=0.05, margin=0.05)


def theorem_1_pre_ln_bound() -> Prediction:
    """Exponent in L of ``O(d sqrt(ln d / L))``: at most -1/2 (Theorem 1, Pre-LN)."""
    return Prediction(-INF, -0.5, margin=0.0, resolution=0.05)


def theorem_1_pre_ln_rate() -> Prediction:
    """The same exponent, were the bound's rate tight: -1/2, within 0.05."""
    return exactly(-0.5, resolution=0.05, margin=0.05)


def theorem_1_norm() -> Prediction:
    """Exponent in ``||x^{pre}_{L+1}||^2`` as measured: -1/2, since ``||J_LN(x)|| ~ 1/||x||``.

    The step of the proof in which the depth comes in (Lemma 3); what the norm does in L is
    Lemma 2.
    """
    return exactly(-0.5, resolution=0.03, margin=0.03)


def theorem_1_width(widths: Sequence[int]) -> float:
    """Exponent in d of the bound ``d sqrt(ln d)``, fitted at the widths that are measured."""
    return exponent(widths, [d * math.sqrt(math.log(d)) for d in widths])


def theorem_1_width_bound(widths: Sequence[int]) -> Prediction:
    """The gradient grows no faster in d than the bound."""
    return Prediction(-INF, theorem_1_width(widths), margin=0.0, resolution=0.1)


def theorem_1_width_rate(widths: Sequence[int]) -> Prediction:
    """It grows as fast as the bound, within 0.05 in the exponent: the bound is tight."""
    return exactly(theorem_1_width(widths), resolution=0.1, margin=0.05)


def appendix_f_jacobian() -> Prediction:
    """``sqrt(E ||J_LN(x^{post,5})||_2^2) = sqrt(2/3)``, the factor of a layer (appendix F)."""
    return exactly(math.sqrt(2 / 3), resolution=0.02, margin=0.02)


def appendix_f_post_ln() -> Prediction:
    """``||dL/dW^{2,l}|| ~ (2/3)^{(L-l)/2}``: each layer up multiplies it by sqrt(3/2) (Post-LN)."""
    return exactly(math.sqrt(3 / 2), resolution=0.05, margin=0.05)


def appendix_f_pre_ln() -> Prediction:
    """``||dL/dW^{2,l}||`` is independent of l for large l: exponent 0 in l (Pre-LN, appendix F)."""
    return exactly(0.0, resolution=0.05, margin=0.05)
