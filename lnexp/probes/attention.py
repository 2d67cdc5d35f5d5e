"""How widely attention looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lnexp.model.attention import Attention
from lnexp.probes.gradients import check_probe
from lnexp.probes.hearing import Average, Hear, Place, branches, full_precision, hearing, placements
from lnexp.probes.protocol import Reading, Until, Update


@dataclass(frozen=True)
class AttentionEntropy:
    """Entropy (nats) of the attention weights, before dropout; mean over real queries and heads.

    Attention that is uniform over n keys has log n, attention to one key 0.
    """

    every: int
    until: Until = field(default="gradients", init=False)

    def __post_init__(self) -> None:
        check_probe("attention_entropy", self.every)

    @contextmanager
    def watch(self, update: Update) -> Iterator[Reading]:
        """Yield ``attention_entropy/<stack>.<layer>.<attention>``, layers from 0.

        And the same of the head whose mean over queries is lowest, with ``.lowest_head``.
        """
        reading: Reading = {}
        entropies: dict[str, Average] = {}

        def note(key: str) -> Hear:
            entropies[key] = Average()

            def hear(_: Tensor, weights: Tensor, real: Tensor | None) -> None:
                by_head = torch.special.entr(full_precision(weights)).sum(-1).transpose(0, 1)
                entropies[key].add(by_head, real)

            return hear

        places = [
            Place(branch.softmax, stack, note(f"attention_entropy/{stack}.{name}"))
            for stack in placements(update.model)
            for name, branch in branches(update.model, stack).items()
            if isinstance(branch, Attention)
        ]
        with hearing(update, places):
            yield reading
        for key, entropy in entropies.items():
            if entropy.used:
                heads = entropy.value()
                reading[key] = heads.mean().item()
                reading[f"{key}.lowest_head"] = heads.min().item()
