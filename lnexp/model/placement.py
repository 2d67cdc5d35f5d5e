"""Where layer normalisation goes: one class for each placement, shared by every stack.

A placement owns every norm of a stack and the algebra of its residual stream; the blocks own the
sublayers (attention, feed-forward) and know nothing of either. The same class therefore serves
encoder, decoder and BERT, in training and in cached decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

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
    """Base class: ``open``, then ``block`` once per layer, then ``close``."""

    def __init__(self, shape: StackShape, norm: NormFactory) -> None:
        super().__init__()
        self.norms = nn.ModuleList(
            nn.ModuleList(norm(shape.d_model) for _ in range(shape.n_sublayers))
            for _ in range(shape.n_layers)
        )
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

    def norms_of(self, layer: int) -> Sequence[nn.Module]:
        """Return the norms of one layer, one for each sublayer."""
        return list(self.norms[layer].children())


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

    def __init__(self, shape: StackShape, norm: NormFactory) -> None:
        super().__init__(shape, norm)
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
