"""Which vocabulary a corpus is to have, learned from it or given; tokenisers made again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from lnexp.data.tokenizer import (
    SentencePiece,
    SubwordNMT,
    Tokenizer,
    check_merges,
    count_words,
    learn_merges,
    learn_sentencepiece,
    subword_nmt,
)
from lnexp.errors import InputError


@dataclass(frozen=True)
class Vocabulary:
    """Which vocabulary a corpus is to have."""

    kind: str
    """``sentencepiece`` or ``bpe``."""
    size: int
    """Pieces with ``sentencepiece``, merges with ``bpe``."""
    codes: bytes | None = None
    """Merges in subword-nmt's format, of which the first ``size`` are used; None: learned."""
    lines: int | None = None
    """Learn on at most so many pairs, evenly spaced; None: on all."""

    def __post_init__(self) -> None:
        if self.kind not in ("sentencepiece", "bpe"):
            raise InputError(f"data.subword={self.kind} must be sentencepiece or bpe")
        if self.size < 1:
            raise InputError(f"data.vocab_size={self.size} must be at least 1")
        if self.codes is not None and self.kind != "bpe":
            raise InputError(
                f"data.codes is set, but data.subword={self.kind}; set data.subword=bpe"
            )

    def identity(self) -> list[Any]:
        """All that the pieces depend on, apart from the text."""
        given = None if self.codes is None else hashlib.sha256(self.codes).hexdigest()
        library = "sentencepiece" if self.kind == "sentencepiece" else "subword-nmt"
        return [self.kind, self.size, given, self.lines, version(library)]

    def learn(
        self, sides: Sequence[Sequence[str]], say: Callable[[str], None] = lambda line: None
    ) -> Tokenizer:
        """Learn it from both ``sides`` of the training text; ``say`` hears what is done."""
        n = len(sides[0])
        sample = n if self.lines is None else min(n, self.lines)
        chosen = [i * n // max(sample, 1) for i in range(sample)]
        some = [s if sample == n else [s[i] for i in chosen] for s in sides]
        if self.kind == "sentencepiece":
            say(f"learning {self.size:,} pieces from {sample:,} pairs")
            return learn_sentencepiece((line for side in some for line in side), self.size)
        if self.codes is None:
            say(f"learning {self.size:,} merges from {sample:,} pairs")
            codes = learn_merges(count_words(line for side in some for line in side), self.size)
        else:
            codes = check_merges(self.codes, self.size)
        return subword_nmt(codes, count_words(line for side in sides for line in side))


def load_tokenizer(model: bytes) -> Tokenizer:
    """The tokeniser that ``model`` is of; ValueError or RuntimeError where it is of none."""
    return SubwordNMT(model) if model.startswith(b"{") else SentencePiece(model)
