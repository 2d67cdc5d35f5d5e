"""How large the residual stream and the branches are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from lnexp.probes.gradients import check_probe
from lnexp.probes.hearing import Average, Hear, Place, branches, full_precision, hearing, placements
from lnexp.probes.protocol import Reading, Until, Update


@dataclass(frozen=True)
class StreamNorm:
    """Mean over real positions of ``||x||^2 / d_model``: of the stream, and of what branches add.

    The unit is that of the paper's Lemma 2, where x is the stream after a layer: 3/2 before
    Post-LN's last norm, 1 after it, and from 1 + l/2 to 1 + 3l/2 for Pre-LN. Branches are read
    before dropout and before what their placement does to them.
    """

    every: int
    until: Until = field(default="gradients", init=False)

    def __post_init__(self) -> None:
        check_probe("stream", self.every)

    @contextmanager
    def watch(self, update: Update) -> Iterator[Reading]:
        """Yield ``stream/<stack>.<layer>``, and ``in`` and ``out`` for what a stack takes and gives.

        And ``branch/<stack>.<layer>.<branch>``. Layers count from 0. A stream of several tensors is
        ``stream/<stack>.<layer>.1``, ``.2`` and so on.
        """
        reading: Reading = {}
        squares: dict[str, Average] = {}

        def note(key: str) -> Hear:
            def hear(_: Tensor, output: Tensor | tuple[Tensor, ...], real: Tensor | None) -> None:
                if isinstance(output, tuple):
                    for i, x in enumerate(output, 1):
                        add(f"{key}.{i}", x, real)
                else:
                    add(key, output, real)

            return hear

        def add(key: str, x: Tensor, real: Tensor | None) -> None:
            squares.setdefault(key, Average()).add(full_precision(x).square().mean(-1), real)

        def note_ends(stack: str) -> Hear:
            def hear(x: Tensor, output: Tensor, real: Tensor | None) -> None:
                add(f"stream/{stack}.in", x, real)
                add(f"stream/{stack}.out", output, real)

            return hear

        places = []
        for stack, placement in placements(update.model).items():
            squares[f"stream/{stack}.in"] = Average()  # the first line of a table
            places.append(Place(placement, stack, note_ends(stack)))
            for layer, tap in enumerate(placement.layer_out):
                places.append(Place(tap, stack, note(f"stream/{stack}.{layer}")))
            for name, branch in branches(update.model, stack).items():
                places.append(Place(branch, stack, note(f"branch/{stack}.{name}")))
        with hearing(update, places):
            yield reading
        for key, square in squares.items():
            if square.used:
                reading[key] = square.value().item()
