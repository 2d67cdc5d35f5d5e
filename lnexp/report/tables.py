"""Runs beside each other: a table, the signatures of its numbers, and what they say in words.

A sentence is a function of the record and of a margin fixed here, before any run: it is true for
every outcome, runs that diverged or did not end included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lnexp.report.load import Run

MARGIN = 0.5
"""Nats per target token of validation loss that count as a difference."""

Verdict = Literal["higher", "lower", "alike", "diverged", "open"]
"""Of the first of two arms: its loss is higher, lower, alike; both diverged; not decided."""

PARTING: Mapping[Verdict, str] = {
    "higher": "The curves part",
    "lower": "The curves part, but the other way round than in the paper",
    "alike": "The curves do not part here",
    "diverged": "There are no curves to tell apart",
    "open": "No verdict on whether the curves part",
}

WARMUP: Mapping[Verdict, str] = {
    "higher": "Warm-up helps Post-LN",
    "lower": "Warm-up harms Post-LN here",
    "alike": "Warm-up makes no clear difference to Post-LN here",
    "diverged": "Warm-up does not keep Post-LN from diverging here",
    "open": "No verdict on what warm-up does for Post-LN",
}


class Arm(NamedTuple):
    """A run and what it is called in a comparison."""

    label: str
    run: Run


@dataclass(frozen=True)
class TableRow:
    """One arm of a comparison; None where the run has no such number."""

    label: str
    valid_loss: float | None
    """Nats per target token, unsmoothed, of the last weights."""
    valid_bleu: float | None
    test_bleu: float | None
    learned: bool | None
    outcome: str
    updates: int
    seconds: float | None
    """Spent in updates, over all sessions; evaluations not counted."""

    @property
    def perplexity(self) -> float | None:
        """``exp`` of the validation loss."""
        return None if self.valid_loss is None else math.exp(min(self.valid_loss, 700))


def table_row(arm: Arm) -> TableRow:
    """Gather the numbers of one arm."""
    result, ended = arm.run.result, arm.run.outcome in ("finished", "diverged")
    test = result.get("test") or {}
    outcome = arm.run.outcome
    if outcome == "diverged":
        outcome += f" at {arm.run.diverged_at}"
    return TableRow(
        arm.label,
        result.get("valid_loss"),
        result.get("valid_bleu"),
        test.get("bleu"),
        result.get("learned") if ended else None,
        outcome,
        arm.run.updates,
        result.get("seconds"),
    )


def comparison_table(arms: Sequence[Arm]) -> str:
    """Write the arms as an aligned table, a line each."""
    head = (
        "arm", "valid loss", "perplexity", "valid BLEU", "test BLEU", "learned", "outcome",
        "updates", "seconds",
    )  # fmt: skip
    cells = [head]
    for row in map(table_row, arms):
        learned = "-" if row.learned is None else ("yes" if row.learned else "no")
        cells.append((
            row.label, _number(row.valid_loss, ".3f"), _number(row.perplexity, ".2f"),
            _number(row.valid_bleu, ".2f"), _number(row.test_bleu, ".2f"), learned, row.outcome,
            str(row.updates), _number(row.seconds, ".0f"),
        ))  # fmt: skip
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    words = {head.index(name) for name in ("arm", "learned", "outcome")}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    )


def notes(arms: Sequence[Arm]) -> list[str]:
    """Say how the numbers of `comparison_table` were computed, one line each."""
    lines = ["valid loss: nats per target token, without label smoothing, of the last weights"]
    entropies: dict[str, None] = {}
    for arm in arms:
        if (entropy := arm.run.result.get("unigram_entropy")) is not None:
            entropies[f"{entropy:.3f}"] = None
    if entropies:
        lines.append(
            "learned: valid loss below the unigram entropy of the training targets, "
            f"{' / '.join(entropies)} nats"
        )
    for name in ("valid", "test"):
        by_signature: dict[str, list[str]] = {}
        for arm in arms:
            rows = arm.run.curves.get("valid", [])
            last = rows[-1] if rows else {}
            scores = last if name == "valid" else arm.run.result.get("test") or {}
            if "bleu_signature" in scores:
                text = f"beam {scores['beam']}, {scores['bleu_signature']}"
                by_signature.setdefault(text, []).append(arm.label)
        for text, labels in by_signature.items():
            of = f" ({'; '.join(labels)})" if len(by_signature) > 1 else ""
            lines.append(f"{name} BLEU{of}: {text}")
    return lines


def compare(first: Arm, second: Arm) -> tuple[Verdict, str]:
    """Where the loss of ``first`` ended, against that of ``second``, and the facts in words.

    A run that diverged ended higher than one that finished. What is printed is what decides: both
    losses are rounded to three decimals first.
    """
    arms = (first, second)
    still = [arm for arm in arms if _loss(arm) is None and arm.run.outcome != "diverged"]
    if still:
        return "open", " and ".join(_unscored(arm) for arm in still)
    said = [_ending(arm) for arm in arms]
    a, b = _loss(first), _loss(second)
    if a is None or b is None:
        verdict: Verdict = "higher" if b is not None else "lower" if a is not None else "diverged"
        return verdict, " and ".join(said)
    if first.run.updates != second.run.updates:
        return "open", f"{said[0]} and {said[1]}; they are of different length"
    difference = round(a - b, 3)
    facts = (
        f"after {first.run.updates} updates {first.label} has a validation loss of {a:.3f} nats per "
        f"token and {second.label} of {b:.3f}, a difference of {abs(difference):.3f} "
        f"(it counts from {MARGIN} on)"
    )
    if abs(difference) < MARGIN:
        return "alike", facts
    return "higher" if difference > 0 else "lower", facts


def sentence(openings: Mapping[Verdict, str], first: Arm, second: Arm) -> str:
    """Say the verdict of `compare` and the facts that it rests on."""
    verdict, facts = compare(first, second)
    return f"{openings[verdict]}: {facts}."


def _loss(arm: Arm) -> float | None:
    value = arm.run.result.get("valid_loss")
    return None if value is None else round(float(value), 3)


def _ending(arm: Arm) -> str:
    if arm.run.outcome == "diverged":
        return f"{arm.label} diverged at update {arm.run.diverged_at}"
    return (
        f"{arm.label} ends at a validation loss of {_loss(arm):.3f} after {arm.run.updates} updates"
    )


def _unscored(arm: Arm) -> str:
    if arm.run.outcome == "finished":
        return f"{arm.label} finished without a finite validation loss"
    return f"{arm.label} has not ended ({arm.run.outcome}, {arm.run.updates} updates so far)"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
