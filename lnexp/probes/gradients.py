"""Norms of gradients: of their mean over the update's batches, and the mean of their norms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lnexp.errors import InputError
from lnexp.probes.protocol import Reading, Until, Update


def check_probe(name: str, every: int, params: str | None = None) -> None:
    """Raise `InputError` for a cadence or a regular expression that cannot be used."""
    if every < 1:
        raise InputError(f"probes.{name}.every={every} must be at least 1 update")
    try:
        re.compile(params or "")
    except re.error as error:
        raise InputError(
            f"probes.{name}.params={params!r} is no regular expression: {error}"
        ) from None


def matching(model: nn.Module, params: str) -> dict[str, nn.Parameter]:
    """The parameters whose names match the regular expression ``params``, by name."""
    return {n: p for n, p in model.named_parameters() if re.search(params, n)}


@dataclass(frozen=True)
class GradNorm:
    """Frobenius norm of the expected gradient of each matching parameter (the paper's Figure 3).

    The gradient is that of the mean objective per target over all batches of the update: gradients
    are averaged element by element, weighted by targets, before the norm. Before clipping.
    """

    params: str
    every: int
    until: Until = field(default="gradients", init=False)

    def __post_init__(self) -> None:
        check_probe("grad_norm", self.every, self.params)

    @contextmanager
    def watch(self, update: Update) -> Iterator[Reading]:
        """Yield ``grad_norm/<parameter>`` for each matching parameter."""
        reading: Reading = {}
        yield reading
        named = matching(update.model, self.params)
        grads = {name: p.grad for name, p in named.items() if p.grad is not None}
        if grads:
            norms = torch.stack(torch._foreach_norm(list(grads.values()))).tolist()
            reading.update({f"grad_norm/{name}": n for name, n in zip(grads, norms)})


@dataclass(frozen=True)
class MeanGradNorm:
    """Mean over the update's batches, weighted by targets, of each gradient's Frobenius norm.

    Beside the norm of the mean, which is never larger, it says how far the batches agree.
    """

    params: str
    every: int
    until: Until = field(default="gradients", init=False)

    def __post_init__(self) -> None:
        check_probe("mean_grad_norm", self.every, self.params)

    @contextmanager
    def watch(self, update: Update) -> Iterator[Reading]:
        """Yield ``mean_grad_norm/<parameter>`` for each matching parameter."""
        reading: Reading = {}
        named = matching(update.model, self.params)
        # Each batch adds its summed gradient to p.grad: what it added is what it is.
        sums: dict[str, Tensor] = {}
        norms: dict[str, Tensor] = {}

        def note(name: str, p: Tensor) -> None:
            assert p.grad is not None
            own = p.grad - sums[name] if name in sums else p.grad
            norms[name] = norms.get(name, 0) + own.norm()
            sums[name] = p.grad.clone()

        hooks = [
            p.register_post_accumulate_grad_hook(lambda p, name=name: note(name, p))
            for name, p in named.items()
        ]
        try:
            yield reading
        finally:
            for hook in hooks:
                hook.remove()
        for name in named:  # not in the order of the backward pass
            if name in norms:
                reading[f"mean_grad_norm/{name}"] = norms[name].item() / update.n_targets
