"""What is translated: a split of the corpus, or a file of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnexp.data.formats import read_lines
from lnexp.errors import InputError
from lnexp.evaluation.trained import Trained


@dataclass(frozen=True)
class Text:
    """What is translated, and what it is compared to."""

    split: str | None
    """None: a file."""
    sources: list[str]
    """Lines as in the corpus; likewise `references`."""
    references: list[str] | None
    src_ids: Sequence[Any]
    """Piece numbers without EOS."""


def text_of_split(trained: Trained, split: str) -> Text:
    """A split of the corpus."""
    assert trained.task is not None
    sources, references = trained.task.corpus.splits[split]
    ids = trained.task.tokenised.splits[split].src
    return Text(split, list(sources), list(references), [ids[i] for i in range(len(ids))])


def text_of_file(trained: Trained, source: Path, reference: Path | None, prepared: bool) -> Text:
    """A file of the user's; `InputError` if it cannot be used, or does not go with its reference.

    ``prepared`` says that the lines are tokenised and lower-cased as the run's text is.
    """
    data = trained.cfg.data
    texts = []
    for path, language in ((source, data.src), (reference, data.tgt)):
        lines = list(read_lines(path)) if path else None
        if lines is not None and not prepared:
            lines = trained.prepare(lines, language)
        texts.append(lines)
    sources, references = texts
    assert sources is not None
    if not sources:
        raise InputError(f"--input={source} is empty; name a file with a sentence a line")
    if references is not None and len(references) != len(sources):
        raise InputError(
            f"--reference={reference} has {len(references)} lines, "
            f"--input={source} has {len(sources)}; line n of both must be sentence n"
        )
    return Text(None, sources, references, trained.encode(sources))
