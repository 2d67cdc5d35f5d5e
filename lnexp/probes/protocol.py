"""Probes look at an update while it happens and cannot change it.

A probe is a context manager around the code that trains. Inside, it may hook the model; when the
context ends it has taken its hooks away, and weights, gradients and random streams are as they
would have been without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

Reading = dict[str, float]

Until = Literal["gradients", "step"]


@dataclass
class Update:
    """One update while it happens."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    t: int
    objectives: Callable[[], Iterator[Tensor]]
    """Compute each batch's summed objective again, with a graph and the same dropout.

    To be called once the gradients are there, so that the hooks of other probes can tell.
    """
    n_targets: int = 0
    """Of all the update's batches; 0 until the gradients are there."""


class Probe(Protocol):
    """Something to measure every ``every`` updates (and at update 1)."""

    @property
    def every(self) -> int:
        """Cadence in updates."""

    @property
    def until(self) -> Until:
        """When the context ends.

        ``gradients``: when each ``p.grad`` holds the gradient of the mean objective per target,
        before clipping. ``step``: when the weights have moved.
        """

    def watch(self, update: Update) -> AbstractContextManager[Reading]:
        """Yield a reading that is filled when the context ends."""
