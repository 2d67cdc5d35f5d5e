"""From raw text to a text store: lines made whole, prepared, held out for validation, appended.

A small part of the text is in memory at a time, and what was appended is not prepared again when a
killed process is started anew.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from lnexp.data.corpus import Pairs
from lnexp.data.preparation import Preparation, hold_out, lower, prepared_pairs
from lnexp.data.store import StoreWriter
from lnexp.data.workers import in_order
from lnexp.errors import InputError

CHUNK = 2_500
"""Pairs that a worker is given at once."""
LARGE = 20_000
"""Fewer pairs than these are not worth starting processes for."""
COMMIT = 50_000
"""Pairs after which what is done is made safe."""
REPORT = 100_000
"""Pairs after which progress is told."""
LOOKED_AT = 10_000
ESCAPE = re.compile(r"&(?:amp|apos|quot|lt|gt|bar|#91|#93|#124);")
SUBWORD_MARK = re.compile(r"@@(?: |$)")

Languages = tuple[str, str]
Say = Callable[[str], None]


def fill(
    folder: Path,
    splits: Mapping[str, Iterable[Pairs]],
    origin: Mapping[str, Any],
    languages: Languages,
    preparation: Preparation,
    *,
    workers: int,
    say: Say,
) -> None:
    """Make, or go on making, the text store ``folder`` of ``splits``, given in parts of any size.

    ``valid`` may be missing if ``preparation`` holds out pairs of ``train``.  The text of an archive
    is known to be raw, and may hold what elsewhere would be a sign of Moses.
    """
    intake = _Intake(StoreWriter(folder, languages, origin), languages, preparation, say)
    check = origin.get("source") != "archive"
    # The short ones first: what is wrong with them is known soon.
    for split in ("test", "valid", "train"):
        if split in splits:
            holds_out = split == "train" and "valid" not in splits
            parts = (
                _checked(splits[split], split, languages, preparation) if check else splits[split]
            )
            intake.take(split, parts, workers=workers, holds_out=holds_out)
    intake.finish(origin)


@dataclass
class _Done:
    """What has become of some raw pairs."""

    pairs: Pairs
    read: int
    joined: int
    left_out: Counter[str]


class _Intake:
    """Fills one text store; what it has counted is kept beside the text."""

    def __init__(
        self, writer: StoreWriter, languages: Languages, preparation: Preparation, say: Say
    ) -> None:
        self.writer, self.languages = writer, languages
        self.preparation, self.say = preparation, say
        start = {"read": {}, "kept": 0, "joined": 0, "left_out": {}}
        self.state: dict[str, Any] = writer.state or start

    def take(self, split: str, parts: Iterable[Pairs], *, workers: int, holds_out: bool) -> None:
        """Prepare and append those pairs of a split that are not there yet."""
        p = self.preparation
        if done := self.state["read"].get(split, 0):
            self.say(f"{split}: going on after {done:,} pairs")
        chunks = _chunks(parts, split, skip=done)
        first = list(islice(chunks, LARGE // CHUNK))
        idle = p.prepared or not (p.tokenize or p.lowercase)
        few = len(first) < LARGE // CHUNK
        prepare = partial(_preparer, self.languages, p, split == "train")
        results = in_order(prepare, chain(first, chunks), workers=1 if idle or few else workers)
        while batch := _batch(results):
            self._append(split, batch, holds_out)
        if not self.state["read"].get(split):
            raise InputError(f"data: the {split} split is empty; it needs a pair or more")

    def _append(self, split: str, batch: list[_Done], holds_out: bool) -> None:
        state = self.state
        pairs = (
            [line for done in batch for line in done.pairs[0]],
            [line for done in batch for line in done.pairs[1]],
        )
        parts: dict[str, Pairs] = {split: pairs}
        if holds_out and self.preparation.held_out:
            train, valid = hold_out(pairs, self.preparation.held_out, state["kept"])
            parts = {"train": train, "valid": valid}
        if split == "train":
            state["kept"] += len(pairs[0])
        before = state["read"].get(split, 0)
        state["read"][split] = after = before + sum(done.read for done in batch)
        state["joined"] += sum(done.joined for done in batch)
        left_out = sum((done.left_out for done in batch), Counter(state["left_out"]))
        state["left_out"] = dict(left_out)
        self.writer.append(parts, state)
        if before // REPORT < after // REPORT:
            self.say(f"{split}: {after:,} pairs prepared")

    def finish(self, origin: Mapping[str, Any]) -> None:
        """Write the record of the store, with what was done to the text."""
        p, state, pairs = self.preparation, self.state, self.writer.pairs
        if not pairs["train"]:
            raise InputError(
                f"data: none of {state['read']['train']:,} training pairs is left "
                f"({state['left_out']}); widen data.min_words, data.max_words or data.max_ratio"
            )
        if not pairs["valid"]:
            raise InputError(
                f"data.valid_every={p.valid_every} leaves no validation pair of "
                f"{state['kept']:,}; set data.valid_every={state['kept']} or less"
            )
        changed = {f.name: v for f in fields(p) if (v := getattr(p, f.name)) != f.default}
        changed = {"prepared": True} if p.prepared else changed
        done: dict[str, Any] = {"line_feeds_joined": state["joined"]}
        done |= {"preparation": changed} if changed else {}
        done |= {"left_out_of_train": state["left_out"]} if p.cleans else {}
        self.writer.finish(
            origin={**origin, **done},
            preparation=asdict(p),
            tokenised=p.tokenised,
            lowercased=p.lowercased,
        )
        self.say("text: " + ", ".join(f"{split} {n:,}" for split, n in pairs.items()) + " pairs")


def _preparer(
    languages: Languages, preparation: Preparation, training: bool
) -> Callable[[Pairs], _Done]:
    """What a worker does to a chunk of raw pairs."""

    def prepare(raw: Pairs) -> _Done:
        joined = sum("\n" in line for lines in raw for line in lines)
        left, right = ([line.replace("\n", " ") for line in lines] for lines in raw)
        pairs, left_out = prepared_pairs((left, right), languages, preparation, training=training)
        return _Done(pairs, len(left), joined, left_out)

    return prepare


def _batch(results: Iterator[_Done]) -> list[_Done]:
    """The next results, of `COMMIT` raw pairs if there are so many."""
    return list(islice(results, COMMIT // CHUNK))


def _checked(
    parts: Iterable[Pairs], split: str, languages: Languages, preparation: Preparation
) -> Iterator[Pairs]:
    """The parts, once the first was looked at for signs of another state than expected."""
    for number, part in enumerate(parts):
        if not number:
            refuse_marks(split, part, languages, preparation)
        yield part


def _chunks(parts: Iterable[Pairs], split: str, *, skip: int) -> Iterator[Pairs]:
    """Raw pairs from number ``skip`` on, `CHUNK` at most at once, looked at for what is wrong."""
    n = 0
    for part in parts:
        for start in range(max(0, skip - n), len(part[0]), CHUNK):
            left, right = (side[start : start + CHUNK] for side in part)
            for i, pair in enumerate(zip(left, right, strict=True), n + start + 1):
                if "\0" in pair[0] or "\0" in pair[1]:
                    raise InputError(
                        f"data: pair {i} of {split} holds a NUL character; mend or drop it"
                    )
            yield left, right
        n += len(part[0])


def refuse_marks(split: str, part: Pairs, languages: Languages, preparation: Preparation) -> None:
    """Refuse text that is not in the state that ``preparation`` takes it to be in.

    That is: more than one in a hundred of its first lines shows what should not be there.
    """
    p = preparation
    for language, lines in zip(languages, part, strict=True):
        where = f"data: {split} in {language}"
        if p.prepared:
            remedy = "join them (sed 's/@@ //g; s/@@$//'): lnexp makes its own"
            _refuse(f"{where} holds sub-words, not words", lines, _marked(SUBWORD_MARK), remedy)
        if p.prepared and p.lowercase:
            remedy = "set data.lowercase=false, or put it in lower case"
            _refuse(f"{where} is not in lower case", lines, _cased, remedy)
        if p.tokenize and not p.prepared:
            remedy = "set data.prepared=true"
            _refuse(f"{where} looks tokenised already", lines, _marked(ESCAPE), remedy)


def _refuse(what: str, lines: Sequence[str], sign: Callable[[str], str], remedy: str) -> None:
    found = [(n, s) for n, line in enumerate(lines[:LOOKED_AT], 1) if (s := sign(line))]
    # One line in a short text may be chance.
    if len(found) > max(1, min(len(lines), LOOKED_AT) // 100):
        number, shown = found[0]
        raise InputError(
            f"{what} ({shown} in line {number}, and in {len(found) - 1:,} more); {remedy}"
        )


def _marked(mark: re.Pattern[str]) -> Callable[[str], str]:
    return lambda line: match[0].strip() if (match := mark.search(line)) else ""


def _cased(line: str) -> str:
    """The first word that has a letter in upper case."""
    return next((word for word in line.split() if lower(word) != word), "")
