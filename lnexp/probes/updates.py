"""How far an update moves the weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from lnexp.probes.gradients import check_probe, matching
from lnexp.probes.protocol import Reading, Until, Update


@dataclass(frozen=True)
class UpdateSize:
    """``||W_t - W_{t-1}||_F / ||W_{t-1}||_F`` of each matching parameter, weight decay included.

    Holds a copy of those parameters while an update is watched. A parameter that is all zeros has
    no finite reading.
    """

    params: str
    every: int
    until: Until = field(default="step", init=False)

    def __post_init__(self) -> None:
        check_probe("update_size", self.every, self.params)

    @contextmanager
    def watch(self, update: Update) -> Iterator[Reading]:
        """Yield ``update_size/<parameter>`` for each matching parameter."""
        reading: Reading = {}
        named = {n: p.detach() for n, p in matching(update.model, self.params).items()}
        before = {name: p.clone() for name, p in named.items()}
        yield reading
        if named:
            old, new = list(before.values()), list(named.values())
            moved = torch.stack(torch._foreach_norm(torch._foreach_sub(new, old)))
            sizes = (moved / torch.stack(torch._foreach_norm(old))).tolist()
            reading.update({f"update_size/{name}": s for name, s in zip(named, sizes)})
