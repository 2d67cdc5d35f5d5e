"""The whole study: every statement in the order of the paper, kept as soon as it is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lnexp.theory import concentration, departures, lemmas, theorem
from lnexp.theory.departures import Scaling
from lnexp.theory.findings import Finding, Results
from lnexp.theory.lab import Lab

EXPERIMENTS: tuple[Callable[[Lab], Results], ...] = (
    lemmas.lemma_1,
    lemmas.lemma_2,
    lemmas.lemma_3,
    concentration.appendix_g,
    concentration.bounded,
    theorem.theorem_1,
    theorem.appendix_f,
)
ASSUMPTIONS, PLACEMENTS = "assumptions", "placements"
NAMES = (*(f.__name__ for f in EXPERIMENTS), ASSUMPTIONS, PLACEMENTS)

TITLES = {
    "lemma_1": "Lemma 1: ReLU halves the squared norm",
    "lemma_2": "Lemma 2: what the normalisers are given (shaded, dashed: predicted)",
    "lemma_3": "Lemma 3: the Jacobian of the normaliser",
    "appendix_g": "Appendix G: the tail bound (shaded)",
    "bounded": "Section 3.4: concentration (shaded: claimed)",
    "theorem_1": "Theorem 1: gradient of the last feed-forward matrix (dashed: predicted slope)",
    "appendix_f": "Appendix F: gradient of each layer's feed-forward matrix (dashed: predicted)",
    ASSUMPTIONS: "Assumption switched, and exponents of the last feed-forward gradient",
    PLACEMENTS: "Placements, and exponents of the last feed-forward gradient",
}


@dataclass
class Study:
    """What has been found so far."""

    results: dict[str, Results] = field(default_factory=dict)
    scalings: dict[str, list[Scaling]] = field(default_factory=dict)

    @property
    def findings(self) -> list[Finding]:
        """All rows of the table."""
        return [f for results in self.results.values() for f in results.findings]


def run(
    lab: Lab, names: Sequence[str], placements: Sequence[str], done: Callable[[Study, str], None]
) -> Study:
    """Do the experiments that ``names`` names; call ``done`` after each."""
    study, wanted = Study(), [name for name in NAMES if name in names]
    by_name = {experiment.__name__: experiment for experiment in EXPERIMENTS}
    for i, name in enumerate(wanted, 1):
        lab.stage = f"{i}/{len(wanted)} {name}: "
        if name == ASSUMPTIONS:
            study.scalings[name] = departures.assumptions(lab)
        elif name == PLACEMENTS:
            study.scalings[name] = departures.placements(lab, placements)
        else:
            study.results[name] = by_name[name](lab)
        done(study, name)
    return study
