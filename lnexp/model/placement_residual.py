"""Placements that change the residual connection itself, not only where the norms are.

They scale the shortcut (`DeepNorm`, `Admin`), add one (`B2T`) or a second stream (`ResiDual`), or
do without norms (`ReZero`, `TFixup`). What depends on depth follows from `StackShape` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lnexp.errors import InputError
from lnexp.model.placement import NormFactory, Placement, StackShape, Sublayer


class DeepNorm(Placement):
    """Wang et al. (2022), arXiv 2203.00555: Post-LN with a larger shortcut and smaller branches.

    ``x <- LN(residual_scale * x + f(x))``; query and key have gain 1, the other matrices
    ``branch_gain``. null means the paper's numbers for N encoder and M decoder layers: encoder
    0.81 (N^4 M)^(1/16) and 0.87 (N^4 M)^(-1/16); decoder (3M)^(1/4) and (12M)^(-1/4); a stack of
    L layers alone (2L)^(1/4) and (8L)^(-1/4). Drawn uniformly, of the variance of the paper's
    normal draws. torchscale multiplies its own initial weights by the gain instead, which leaves
    the value matrices smaller by sqrt(2).
    """

    def __init__(
        self,
        shape: StackShape,
        norm: NormFactory,
        residual_scale: float | None = None,
        branch_gain: float | None = None,
    ) -> None:
        n, m = shape.n_layers, shape.peer_layers
        if shape.n_sublayers == 3:
            scale, gain = (3 * n) ** 0.25, (12 * n) ** -0.25
        elif m:
            scale, gain = 0.81 * (n**4 * m) ** 0.0625, 0.87 * (n**4 * m) ** -0.0625
        else:
            scale, gain = (2 * n) ** 0.25, (8 * n) ** -0.25
        super().__init__(shape, norm, gain if branch_gain is None else branch_gain)
        if residual_scale is not None and not residual_scale > 0:
            raise InputError(
                f"placement.residual_scale={residual_scale} must be above 0; "
                "null takes the paper's number"
            )
        self.residual_scale = scale if residual_scale is None else residual_scale

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- LN(residual_scale * x + f(x))`` for each sublayer ``f``."""
        x = stream
        for f, norm in zip(sublayers, self.norms_of(layer), strict=True):
            x = norm(self.residual_scale * x + f(x))
        return x

    def default_gain(self, matrix: str) -> float:
        """1: that of query and key; `branch_gain` is that of the others."""
        return 1.0


class Admin(Placement):
    """Liu et al. (2020), arXiv 2004.08249: Post-LN with a trained vector on each shortcut.

    ``x <- LN(omega_k * x + f_k(x))`` with a vector omega_k for each of a stack's K branches. Its
    entries start equal, usual initial weights:

    - ``profile``: omega_1 = 1 and ``omega_{k+1}^2 = Var(omega_k x) + Var(f_k(x))``, over all
      numbers of one forward pass in which the omegas already found are in use. So the authors'
      code has it; their text sums the variances of a pass with omega = 1. That pass has dropout
      there and none here; padding counts in both. Until it was made, omega is 1: Post-LN.
    - ``closed_form``: ``omega^2 = (K + 1) / ln(K + 1) - 1``, of the authors' later admin-torch.
    """

    def __init__(
        self, shape: StackShape, norm: NormFactory, init: str, branch_gain: float | None = None
    ) -> None:
        super().__init__(shape, norm, branch_gain)
        if init not in ("profile", "closed_form"):
            raise InputError(f"placement.init={init} must be profile or closed_form")
        self.needs_profile = init == "profile"
        k = shape.n_layers * shape.n_sublayers
        omega = 1.0 if self.needs_profile else ((k + 1) / math.log(k + 1) - 1) ** 0.5
        self.residual_scales = nn.ModuleList(
            nn.ParameterList(torch.full((shape.d_model,), omega) for _ in range(shape.n_sublayers))
            for _ in range(shape.n_layers)
        )
        self.found: Tensor | None = None  # while profiling: the next branch's omega

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- LN(omega_k * x + f_k(x))`` for each sublayer ``f_k``."""
        x = stream
        omegas = self.residual_scales[layer].parameters()
        for f, norm, omega in zip(sublayers, self.norms_of(layer), omegas, strict=True):
            branch = f(x)
            if self.found is not None:
                omega.fill_(self.found)
                self.found = ((omega * x).var(correction=0) + branch.var(correction=0)).sqrt()
            x = norm(omega * x + branch)
        return x

    @contextmanager
    def profiling(self) -> Iterator[None]:
        """Set each omega while one forward pass goes through."""
        self.found = torch.ones(())
        try:
            with torch.no_grad():
                yield
        finally:
            self.found = None


class B2T(Placement):
    """Takase et al. (2023), arXiv 2206.00330: Post-LN whose layer input skips to the last norm.

    ``x <- LN(x + f(x))``, but ``LN(x_layer + x + f(x))`` for the last branch of a layer; also in a
    decoder, as in the authors' code. That code multiplies every initial weight of a layer by
    ``n_layers ** -0.5``, and so does this.
    """

    def __init__(
        self, shape: StackShape, norm: NormFactory, branch_gain: float | None = None
    ) -> None:
        super().__init__(shape, norm, branch_gain)
        self.depth_gain = shape.n_layers**-0.5

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """The last branch gets the layer's input added once more."""
        x = stream
        for i, (f, norm) in enumerate(zip(sublayers, self.norms_of(layer), strict=True), 1):
            shortcut = stream + x if i == len(sublayers) else x
            x = norm(shortcut + f(x))
        return x

    def default_gain(self, matrix: str) -> float:
        """The usual gain times ``n_layers ** -0.5``."""
        return self.depth_gain * super().default_gain(matrix)


class ResiDual(Placement):
    """Xie et al. (2023), arXiv 2304.14802: a Post-LN stream, and one that nothing normalises.

    ``a <- LN(a + f(a))`` and ``s <- s + f(a)``, the branch computed once; both start as the input,
    and the output is ``a + LN(s)``. Usual initial weights. The authors' code has eps 1e-7 in the
    last norm alone; here it is that of ``norm=``.
    """

    def __init__(
        self, shape: StackShape, norm: NormFactory, branch_gain: float | None = None
    ) -> None:
        super().__init__(shape, norm, branch_gain)
        self.final_norm = norm(shape.d_model)

    def open(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both streams start as the embedding."""
        return x, x

    def block(
        self, stream: tuple[Tensor, Tensor], sublayers: Sequence[Sublayer], layer: int
    ) -> tuple[Tensor, Tensor]:
        """Add each branch to both streams, and normalise the first."""
        a, s = stream
        for f, norm in zip(sublayers, self.norms_of(layer), strict=True):
            branch = f(a)
            a, s = norm(a + branch), s + branch
        return a, s

    def close(self, stream: tuple[Tensor, Tensor]) -> Tensor:
        """``a + LN(s)``."""
        a, s = stream
        return a + self.final_norm(s)


class ReZero(Placement):
    """Bachlechner et al. (2020), arXiv 2003.04887: no norms, and branches that start closed.

    ``x <- x + a_l f(x)`` with one trained number a_l for each layer ``l``, shared by its branches
    as in the authors' code, and 0 at first; nor is there a norm at the end. Usual initial weights.
    """

    normalises = False

    def __init__(
        self, shape: StackShape, norm: NormFactory, branch_gain: float | None = None
    ) -> None:
        super().__init__(shape, norm, branch_gain)
        self.branch_scale = nn.ParameterList(torch.zeros(()) for _ in range(shape.n_layers))

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- x + a_l f(x)`` for each sublayer ``f``."""
        x = stream
        for f in sublayers:
            x = x + self.branch_scale[layer] * f(x)
        return x


class TFixup(Placement):
    """Huang et al. (2020, ICML, T-Fixup): no norms; initial weights small enough to do without.

    ``x <- x + f(x)``. For N encoder and M decoder layers, null as ``branch_gain`` means
    0.67 N^(-1/4) in the encoder and (9M)^(-1/4) in the decoder; query and key have the usual gain,
    and the embedding, which the stacks share, is multiplied by (9N)^(-1/4). A stack alone, of
    which the paper does not speak, takes the encoder's rule, in which no decoder occurs.
    """

    normalises = False

    def __init__(
        self, shape: StackShape, norm: NormFactory, branch_gain: float | None = None
    ) -> None:
        n = shape.n_layers
        gain = (9 * n) ** -0.25 if shape.n_sublayers == 3 else 0.67 * n**-0.25
        super().__init__(shape, norm, gain if branch_gain is None else branch_gain)
        self.embedding_gain = (9 * n) ** -0.25

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- x + f(x)`` for each sublayer ``f``."""
        x = stream
        for f in sublayers:
            x = x + f(x)
        return x
