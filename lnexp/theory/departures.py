"""Beyond the theorem: its assumptions switched one at a time, and other placements.

Nothing is predicted here, so nothing is judged: these are the exponents as they come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lnexp.theory.findings import REAL, THEOREM
from lnexp.theory.intervals import Interval, t_interval
from lnexp.theory.lab import BOTH, Lab, label
from lnexp.theory.observe import Observation
from lnexp.theory.setting import Assumptions, Size
from lnexp.theory.theorem import at_each_depth, exponents

SWITCHES: Mapping[str, Assumptions] = {
    "none: the theorem's setting": Assumptions(),
    "learned query and key weights": Assumptions(learned_qk=True),
    "4 heads, learned query and key weights": Assumptions(learned_qk=True, heads=4),
    "output matrix W_O": Assumptions(output_matrix=True),
    "feed-forward width 2d": Assumptions(ffn_width=2),
    "gain 1/sqrt(2) of the value matrix": Assumptions(value_gain=2**-0.5),
    "Xavier uniform for normal": Assumptions(uniform=True),
    "causal mask": Assumptions(causal=True),
    "dropout 0.1": Assumptions(dropout=0.1),
    "real sentences, scaled embeddings, positions": Assumptions(real_input=True),
    "the same, tied W_emb and real next pieces": Assumptions(real_input=True, tied=True),
    "decoder with cross-attention": Assumptions(cross_attention=True),
    "all of these": Assumptions(
        learned_qk=True, heads=4, output_matrix=True, ffn_width=2, value_gain=2**-0.5, uniform=True,
        causal=True, dropout=0.1, real_input=True, tied=True, cross_attention=True,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Scaling:
    """How one kind of network scales with its depth."""

    what: str
    placement: str
    setting: str
    in_depth: Interval
    """Exponent of ``||dL/dW^{2,L}||_F`` in L."""
    in_norm: Interval
    """The same in the measured ``||x||^2`` that the last normaliser is given."""
    norm_in_depth: Interval
    """Exponent of that ``||x||^2`` in L."""


def assumptions(lab: Lab) -> list[Scaling]:
    """The theorem's setting with one assumption after the other replaced by the real model's."""
    s, found, stage = lab.sizes, [], lab.stage
    for what, switched in SWITCHES.items():
        lab.stage = f"{stage}{what}: "
        for name in BOTH:
            columns = [
                lab.theorem(name, Size(s.switch_d, depth), assumptions=switched)
                for depth in s.switch_depths
            ]
            rows = [[seen[0] for seen in row] for row in zip(*columns, strict=True)]
            found.append(_scaling(what, name, THEOREM, s.switch_depths, rows))
    return found


def placements(lab: Lab, names: Sequence[str]) -> list[Scaling]:
    """Exponents of each placement, in both settings."""
    s, found = lab.sizes, []
    for name in names:
        for setting, depths in ((THEOREM, s.depths), (REAL, s.placement_depths)):
            rows = at_each_depth(lab, name, setting, depths)
            found.append(_scaling(label(name), name, setting, depths, rows))
    return found


def _scaling(
    what: str, name: str, setting: str, depths: Sequence[int], rows: list[list[Observation]]
) -> Scaling:
    found = exponents(depths, rows)
    return Scaling(
        what, name, setting, t_interval(found["gradient in L"]),
        t_interval(found["gradient in norm"]), t_interval(found["norm in L"]),
    )  # fmt: skip
