"""Where layer normalisation goes: one class for each placement, shared by every stack.

A placement owns every norm of a stack and the algebra of its residual stream; the blocks own the
sublayers (attention, feed-forward) and know nothing of either. The same class therefore serves
encoder, decoder and BERT, in training and in cached decoding.

In the equations ``f`` is a branch and ``LN`` whatever ``norm=`` names. Where a paper speaks of one
stack alone, cross-attention is one more branch, and each stack counts its own layers. Placements
that change the shortcut, or do without norms, are in `lnexp.model.placement_residual`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lnexp.errors import InputError

Sublayer = Callable[[Tensor], Tensor]
"""A branch, dropout included: (rows, positions, d_model) to the same shape."""

NormFactory = Callable[[int], nn.Module]
"""Makes the normaliser of a given width."""

Stream = Any
"""What flows from block to block: a tensor (rows, positions, d_model), or several."""


@dataclass(frozen=True)
class StackShape:
    """What a placement may depend on: the sizes of its own stack, and of the other one."""

    d_model: int
    n_layers: int
    n_sublayers: int
    """Sublayers a layer: 2 in an encoder or BERT, 3 in a decoder with cross-attention."""
    peer_layers: int = 0
    """Layers of the other stack of an encoder-decoder; 0 if there is none."""


class Placement(nn.Module):
    """Base class: ``open``, then ``block`` once per layer, then ``close``.

    ``branch_gain`` replaces the initial Xavier gain of the value, output and feed-forward matrices
    of the stack; None keeps the usual ones.
    """

    embedding_gain = 1.0
    """Multiplies the initial embedding; the encoder's placement is asked."""
    needs_profile = False
    """Whether one forward pass, inside `profiling`, must come before the first update."""
    normalises = True
    """Whether each sublayer has a norm."""

    def __init__(
        self, shape: StackShape, norm: NormFactory, branch_gain: float | None = None
    ) -> None:
        super().__init__()
        if branch_gain is not None and not branch_gain > 0:
            raise InputError(
                f"placement.branch_gain={branch_gain} must be above 0; null keeps the usual gain"
            )
        self.branch_gain = branch_gain
        self.norms = sublayer_norms(shape, norm if self.normalises else None)
        # Identity modules, so that a probe can hook the stream after each layer.
        self.layer_out = nn.ModuleList(nn.Identity() for _ in range(shape.n_layers))

    def forward(self, x: Tensor, blocks: Iterable[Sequence[Sublayer]]) -> Tensor:
        """Run the stack: ``x`` (rows, positions, d_model) through the sublayers of each block."""
        stream = self.open(x)
        for layer, (sublayers, tap) in enumerate(zip(blocks, self.layer_out, strict=True)):
            stream = tap(self.block(stream, sublayers, layer))
        return self.close(stream)

    def open(self, x: Tensor) -> Stream:
        """Turn the embedded input into the stream."""
        return x

    def block(self, stream: Stream, sublayers: Sequence[Sublayer], layer: int) -> Stream:
        """Apply one layer's sublayers to the stream; ``layer`` counts from 0."""
        raise TypeError(f"{type(self).__name__} must define block()")

    def close(self, stream: Stream) -> Tensor:
        """Turn the stream into the stack's output."""
        return stream

    def gain(self, matrix: str) -> float:
        """Xavier gain at initialisation of ``q``, ``k``, ``v``, ``out``, ``w1`` or ``w2``."""
        if self.branch_gain is not None and matrix in ("v", "out", "w1", "w2"):
            return self.branch_gain
        return self.default_gain(matrix)

    def default_gain(self, matrix: str) -> float:
        """The gain that ``branch_gain`` does not replace.

        1/sqrt(2) makes query, key and value equal to one fused 3d x d matrix under Xavier's rule.
        """
        return 2**-0.5 if matrix in ("q", "k", "v") else 1.0

    def profiling(self) -> AbstractContextManager[None]:
        """Around the forward pass that `needs_profile` asks for."""
        return nullcontext()

    def norms_of(self, layer: int) -> Sequence[nn.Module]:
        """Return the norms of one layer, one for each sublayer; none where nothing `normalises`."""
        return list(self.norms[layer].children())


def sublayer_norms(shape: StackShape, norm: NormFactory | None) -> nn.ModuleList:
    """A norm for each sublayer, ``[layer][sublayer]``; empty layers if ``norm`` is None."""
    return nn.ModuleList(
        nn.ModuleList(norm(shape.d_model) for _ in range(shape.n_sublayers) if norm)
        for _ in range(shape.n_layers)
    )


class PostLN(Placement):
    """Vaswani et al. (2017); Xiong et al. (2020), Table 1, left: normalise after each addition."""

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- LN(x + f(x))`` for each sublayer ``f``."""
        x = stream
        for f, norm in zip(sublayers, self.norms_of(layer), strict=True):
            x = norm(x + f(x))
        return x


class PreLN(Placement):
    """Xiong et al. (2020), Table 1, right: normalise each branch's input, and the output once."""

    def __init__(
        self, shape: StackShape, norm: NormFactory, branch_gain: float | None = None
    ) -> None:
        super().__init__(shape, norm, branch_gain)
        self.final_norm = norm(shape.d_model)

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- x + f(LN(x))`` for each sublayer ``f``."""
        x = stream
        for f, norm in zip(sublayers, self.norms_of(layer), strict=True):
            x = x + f(norm(x))
        return x

    def close(self, stream: Tensor) -> Tensor:
        """``x_Final = LN(x_{L+1})``, right before the prediction."""
        return self.final_norm(stream)


class Sandwich(PreLN):
    """Ding et al. (2021), arXiv 2105.13290, Sandwich-LN: normalise both ends of each branch.

    ``x <- x + LN(f(LN(x)))``, and a final norm. With ``embedding_norm`` also the stack's input,
    which is Peri-LN (Kim et al., 2025, arXiv 2502.02732). Usual initial weights; the papers' own
    differ in scale, which the outer norm takes out of a branch again.
    """

    def __init__(
        self,
        shape: StackShape,
        norm: NormFactory,
        embedding_norm: bool,
        branch_gain: float | None = None,
    ) -> None:
        super().__init__(shape, norm, branch_gain)
        self.out_norms = sublayer_norms(shape, norm)
        self.embedding_norm = norm(shape.d_model) if embedding_norm else nn.Identity()

    def open(self, x: Tensor) -> Tensor:
        """Normalise the embedding, or leave it."""
        return self.embedding_norm(x)

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- x + LN(f(LN(x)))`` for each sublayer ``f``."""
        x = stream
        out_norms = self.out_norms[layer].children()
        for f, norm, out_norm in zip(sublayers, self.norms_of(layer), out_norms, strict=True):
            x = x + out_norm(f(norm(x)))
        return x


class Reordered(PreLN):
    """OLMo 2 (Walsh et al., 2024, arXiv 2501.00656): normalise each branch's output.

    ``x <- x + LN(f(x))``, and a final norm. Usual initial weights (the paper draws all of them
    from N(0, 0.02^2)); the branches see a stream that nothing normalises.
    """

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- x + LN(f(x))`` for each sublayer ``f``."""
        x = stream
        for f, norm in zip(sublayers, self.norms_of(layer), strict=True):
            x = x + norm(f(x))
        return x


class LNS(PreLN):
    """Sun et al. (2025), arXiv 2502.05795, LayerNorm Scaling: Pre-LN with norms that shrink.

    ``x <- x + f(LN(x) / sqrt(l))`` with the layer ``l`` from 1, the same for its branches, and an
    unscaled final norm. Usual initial weights: the authors advise against scaling those, too.
    """

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- x + f(LN(x) / sqrt(l))`` for each sublayer ``f``."""
        x = stream
        for f, norm in zip(sublayers, self.norms_of(layer), strict=True):
            x = x + f(norm(x) * (layer + 1) ** -0.5)
        return x


class MixLN(PreLN):
    """Li et al. (2024), arXiv 2412.13795, Mix-LN: Post-LN layers first, Pre-LN layers after them.

    The first ``floor(post_fraction * n_layers)`` layers are `PostLN`'s, the others and the final
    norm `PreLN`'s. The authors' code takes the number of layers instead (3 of 12, 6 of 24: a
    quarter). Usual initial weights.
    """

    def __init__(
        self,
        shape: StackShape,
        norm: NormFactory,
        post_fraction: float,
        branch_gain: float | None = None,
    ) -> None:
        super().__init__(shape, norm, branch_gain)
        if not 0 <= post_fraction <= 1:
            raise InputError(f"placement.post_fraction={post_fraction} must be in [0, 1]")
        self.n_post = int(post_fraction * shape.n_layers + 1e-9)  # 0.29 * 100 is below 29

    def block(self, stream: Tensor, sublayers: Sequence[Sublayer], layer: int) -> Tensor:
        """``x <- LN(x + f(x))`` in the first layers, ``x <- x + f(LN(x))`` in the others."""
        if layer >= self.n_post:
            return super().block(stream, sublayers, layer)
        x = stream
        for f, norm in zip(sublayers, self.norms_of(layer), strict=True):
            x = norm(x + f(x))
        return x
