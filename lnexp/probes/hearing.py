"""Forward hooks that end with the update, and means over positions that are not padding.

A hook here hears the forward passes that train, and no others: another probe may run the model
again (`Update.objectives`) once the update's gradients, and so its targets, are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lnexp.model.attention import Attention, FeedForward
from lnexp.model.placement import Placement
from lnexp.probes.protocol import Update

Hear = Callable[[Any, Any, Tensor | None], None]
"""Told a module's first argument, what it returned, and which positions are real (None: all)."""


class Place(NamedTuple):
    """A module to listen to, and the stack whose positions its rows are."""

    module: nn.Module
    stack: str
    hear: Hear


def placements(model: nn.Module) -> dict[str, Placement]:
    """The placement of each stack, by the stack's name: ``encoder``, ``decoder``."""
    found = {n: m for n, m in model.named_modules() if isinstance(m, Placement)}
    return {name.removesuffix("_placement"): module for name, module in found.items()}


def branches(model: nn.Module, stack: str) -> dict[str, Attention | FeedForward]:
    """The branches of a stack, by names such as ``0.attn``: layer from 0, and branch."""
    blocks = getattr(model, f"{stack}_blocks", None)
    named = blocks.named_modules() if isinstance(blocks, nn.Module) else ()
    return {n: m for n, m in named if isinstance(m, (Attention, FeedForward))}


@contextmanager
def hearing(update: Update, places: Sequence[Place]) -> Iterator[None]:
    """Tell each place of every forward pass of the update; no hooks are left afterwards."""
    masks: dict[str, Tensor] = {}

    def before(model: nn.Module, args: Any, kwargs: Any) -> None:
        real_positions: Any = getattr(model, "real_positions", None)
        if real_positions is not None:
            masks.update(real_positions(*args, **kwargs))

    def after(place: Place) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, inputs: Any, output: Any) -> None:
            if not update.n_targets:
                with torch.no_grad():
                    place.hear(inputs[0], output, masks.get(place.stack))

        return hook

    handles = [update.model.register_forward_pre_hook(before, with_kwargs=True)]
    try:
        handles += [place.module.register_forward_hook(after(place)) for place in places]
        yield
    finally:
        for handle in handles:
            handle.remove()


def full_precision(x: Tensor) -> Tensor:
    """``x`` in float32 at least, without its graph."""
    return x.detach().to(torch.promote_types(x.dtype, torch.float32))


class Average:
    """Mean over the real positions of every batch; nothing leaves the device before `value`."""

    def __init__(self) -> None:
        self.used = False
        self.total: Tensor | float = 0.0
        self.count: Tensor | int = 0

    def add(self, values: Tensor, real: Tensor | None) -> None:
        """Take in ``values`` (..., rows, positions); ``real`` (rows, positions) or None for all."""
        if real is None:
            real = torch.ones(values.shape[-2:], dtype=torch.bool, device=values.device)
        self.used = True
        # Not values * real: padding may hold what is not finite.
        self.total = self.total + torch.where(real, values, 0).sum((-2, -1))
        self.count = self.count + real.sum()

    def value(self) -> Tensor:
        """The mean, (...)."""
        return torch.as_tensor(self.total / self.count)
