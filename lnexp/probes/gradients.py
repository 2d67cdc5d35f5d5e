"""Probes look at an update while it happens and cannot change it.

A probe is a context manager around the forward and backward passes of one update. Inside, it may
hook the model; when it ends, gradients are there and the weights have not moved yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from lnexp.errors import InputError

Reading = dict[str, float]


class Probe(Protocol):
    """Something to measure every ``every`` updates (and at update 1)."""

    @property
    def every(self) -> int:
        """Cadence in updates."""

    def watch(self, model: nn.Module) -> AbstractContextManager[Reading]:
        """Yield a reading that is filled when the context ends."""


@dataclass(frozen=True)
class GradNorm:
    """Frobenius norm of the gradient of each matching parameter (the paper's Figure 3).

    Gradients are of the mean loss per target token of the whole update, before clipping.
    """

    params: str
    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"probes.grad_norm.every={self.every} must be at least 1 update")
        try:
            re.compile(self.params)
        except re.error as error:
            raise InputError(
                f"probes.grad_norm.params={self.params!r} is no regular expression: {error}"
            ) from None

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[Reading]:
        """Yield ``grad_norm/<parameter>`` for each matching parameter."""
        reading: Reading = {}
        yield reading
        named = [
            (name, p.grad)
            for name, p in model.named_parameters()
            if p.grad is not None and re.search(self.params, name)
        ]
        if named:
            norms = torch.stack(torch._foreach_norm([grad for _, grad in named])).tolist()
            reading.update({f"grad_norm/{name}": n for (name, _), n in zip(named, norms)})
