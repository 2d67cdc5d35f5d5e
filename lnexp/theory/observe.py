"""What is read off one freshly drawn network: norms, normalisers, gradients.

The same reading for the theorem's network and for the real model; hooks are gone when it ends.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from lnexp.model.attention import FeedForward
from lnexp.model.init import profile
from lnexp.model.placement import Placement
from lnexp.theory.setting import Assumptions, Network, PlacementFactory, Size, Text
from lnexp.theory.statements import EPSILON, lemma_3_norm

LAST, ALL, NONE = "last", "all", "none"
"""Layers whose gradient is wanted."""


@dataclass
class Observation:
    """One network; squared norms are means over positions, in units of d.

    Lists go up the layers of the stack that ends in the loss.
    """

    top_norm: float = 0.0
    """What the last normaliser is given; the stream where there is none."""
    sublayer_sums: list[float] = field(default_factory=list)
    """What the last normaliser of each layer is given."""
    streams: list[float] = field(default_factory=list)
    """The stream after each layer."""
    jacobians: list[float] = field(default_factory=list)
    """``E ||J||_2^2 = E d / ||y||^2`` of the last normaliser of each layer."""
    relu: list[float] = field(default_factory=list)
    """``E ||ReLU(h)||^2 / E ||h||^2`` in each feed-forward network."""
    above: float = 0.0
    """Share of positions whose ``Z = ||top||^2`` is above ``(1 + EPSILON) E Z``."""
    away: float = 0.0
    """The same on both sides."""
    spectral_ratio: float | None = None
    """Of a `LayerNorm` at the top, see `spectral_ratio`, at one position."""
    gradients: list[float] = field(default_factory=list)
    """``||dL/dW^{2,l}||_F`` of each layer, or of the last one."""


class Watch:
    """Collects an `Observation` of one stack while a forward pass runs inside it."""

    def __init__(
        self,
        placement: Placement,
        ffns: Sequence[FeedForward],
        real: Tensor | None = None,
        *,
        jacobian: bool = False,
    ) -> None:
        self.placement, self.ffns = placement, ffns
        self.real = real  # (B, T) bool: positions that are not padding
        self.jacobian = jacobian  # whether to take one by autograd, which costs d backward passes
        self.seen = Observation()
        self.norms = list(normalisers(placement))
        self._top: Tensor | None = None
        self._top_norm: nn.Module | None = None

    @contextmanager
    def watching(self) -> Iterator[Observation]:
        """Hook the stack; the observation has no gradients yet when the context ends."""
        last_norms = {id(self.placement.norms_of(i)[-1]) for i in range(len(self.ffns))
                      if self.placement.norms_of(i)}  # fmt: skip
        handles = [
            norm.register_forward_pre_hook(self._norm_hook(id(norm) in last_norms))
            for norm in self.norms
        ]
        handles += [tap.register_forward_hook(self._stream) for tap in self.placement.layer_out]
        handles += [ffn.w1.register_forward_hook(self._hidden) for ffn in self.ffns]
        try:
            yield self.seen
        finally:
            for handle in handles:
                handle.remove()
        self._finish()

    def _finish(self) -> None:
        if self.jacobian and self._top is not None and isinstance(self._top_norm, nn.LayerNorm):
            self.seen.spectral_ratio = spectral_ratio(self._top_norm, self._top.flatten(0, -2)[0])
        if self._top is not None:
            z = self._top.square().sum(-1).double()
            self.seen.top_norm = z.mean().item() / self._top.shape[-1]
            share = z / z.mean() - 1
            self.seen.above = (share > EPSILON).double().mean().item()
            self.seen.away = (share.abs() > EPSILON).double().mean().item()

    def _positions(self, x: Tensor) -> Tensor:
        return (x if self.real is None else x[self.real]).detach()

    def _norm_hook(self, is_last: bool) -> Callable[[nn.Module, Any], None]:
        def hook(norm: nn.Module, inputs: Any) -> None:
            self._top, self._top_norm = self._positions(inputs[0]), norm
            x = self._top
            if is_last:
                y = x - x.mean(-1, keepdim=True)
                self.seen.sublayer_sums.append(_squared_norm(x))
                self.seen.jacobians.append((x.shape[-1] / y.square().sum(-1)).mean().item())

        return hook

    def _stream(self, _: nn.Module, __: Any, stream: Any) -> None:
        x = self._positions(stream[-1] if isinstance(stream, tuple) else stream)
        self.seen.streams.append(_squared_norm(x))
        if self._top_norm is None:  # so far; at the end there is none
            self._top = x

    def _hidden(self, _: nn.Module, __: Any, h: Tensor) -> None:
        h = self._positions(h)
        self.seen.relu.append((h.relu().square().sum() / h.square().sum()).item())


def normalisers(placement: Placement) -> Iterable[nn.Module]:
    """Every normaliser of a stack: its modules that are neither containers nor taps."""
    for module in placement.modules():
        if not list(module.children()) and not isinstance(
            module, (nn.Identity, nn.ModuleList, Placement)
        ):
            yield module


def spectral_ratio(norm: nn.LayerNorm, x: Tensor) -> float:
    """Spectral norm of the Jacobian of ``norm`` at ``x`` (d,) by autograd, over Lemma 3's value."""
    x = x.double()
    with torch.enable_grad():
        jacobian = torch.func.jacrev(copy.deepcopy(norm).double())(x).detach()
    return torch.linalg.matrix_norm(jacobian, ord=2).item() / lemma_3_norm(x)


def _squared_norm(x: Tensor) -> float:
    return x.square().sum(-1).mean().item() / x.shape[-1]


def read(
    watches: Sequence[Watch], model: nn.Module, loss: Callable[[], Tensor], layers: str
) -> list[Observation]:
    """Run ``loss`` and, but for ``layers=NONE``, its backward pass, under the eyes of ``watches``.

    Gradients are of the second matrix of the feed-forward networks of each watch; of the last
    layer alone no more than the top of the network has to be differentiated.
    """
    model.requires_grad_(False)
    wanted = [[f.w2.weight for f in w.ffns][-1 if layers == LAST else 0 :] for w in watches]
    for weight in (weight for weights in wanted for weight in weights):
        weight.requires_grad_(layers != NONE)
    with ExitStack() as stack:
        seen = [stack.enter_context(watch.watching()) for watch in watches]
        with torch.set_grad_enabled(layers != NONE):
            value = loss()
        if layers != NONE:
            value.backward()
    if layers != NONE:
        for observation, weights in zip(seen, wanted, strict=True):
            observation.gradients = [
                0.0 if w.grad is None else w.grad.norm().item() for w in weights
            ]
    return seen


def observe(
    placement: PlacementFactory,
    size: Size,
    seed: int,
    *,
    assumptions: Assumptions | None = None,
    layers: str = LAST,
    text: Text | None = None,
) -> Observation:
    """Draw one network of the theorem's setting and read it."""
    network = Network(placement, size, assumptions or Assumptions(), seed, text)
    profile(network, network.forward)
    network.train()
    watch = Watch(network.stack.placement, [block.ffn for block in network.stack.blocks])
    (seen,) = read([watch], network, network.loss, layers)
    return seen
