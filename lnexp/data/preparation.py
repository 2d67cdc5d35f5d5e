"""From raw text to the text a model is trained on: the community's preparation of IWSLT14.

Moses tokenisation, lower-casing, cleaning of the training pairs, and every so-manieth of what is
left held out for validation.  The invariant: every rule gives what the Moses scripts give that
papers used (tokenizer.perl, lowercase.perl, clean-corpus-n.perl), on any text in German or English.

==================================== ===========================================================
160,239 / 7,283 / 6,750 pairs        ``tokenize=moses lowercase=true min_words=1 max_words=175
                                     max_ratio=1.5 valid_every=23``: fairseq's prepare-iwslt14.sh
about 153,000 / 7,000 / 6,750        the same with ``max_words=50``: the older script, of MIXER
==================================== ===========================================================

Text passes through in parts: `prepared_pairs` is what a worker process does to one, and `hold_out`
is told how many pairs came before.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from lnexp.data.corpus import Pairs
from lnexp.errors import InputError

LONGEST_WORD = 1000
"""Characters; clean-corpus-n.perl leaves out a pair with a longer word."""
_LONGER_WORD = re.compile(rf"[^\s|]{{{LONGEST_WORD + 1}}}")
_LEAST = {"min_words": 1, "max_words": 1, "max_ratio": 1, "valid_every": 2}
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f]")
_RULES = 1
"""To be raised when the same keys come to give other text, so that caches notice."""


@dataclass(frozen=True)
class Preparation:
    """What is done to raw text; None and False leave a step out."""

    tokenize: str | None = None
    """``moses``, or None."""
    lowercase: bool = False
    min_words: int | None = None
    """Of either side of a training pair, after tokenisation; likewise `max_words`."""
    max_words: int | None = None
    max_ratio: float | None = None
    """How many times as many words as the other a side may have."""
    valid_every: int | None = None
    """Where there is no validation text: pairs n, 2n, 3n... of the cleaned training text."""
    prepared: bool = False
    """The text has been through all this already: leave it alone."""

    def __post_init__(self) -> None:
        if self.tokenize not in (None, "moses"):
            raise InputError(
                f"data.tokenize={self.tokenize} must be moses, or null to leave words as they are"
            )
        for key, least in _LEAST.items():
            value = getattr(self, key)
            if value is not None and not value >= least:  # nan is refused, too
                raise InputError(
                    f"data.{key}={value} must be {least} or more, or null to leave the rule out"
                )
        if self.min_words and self.max_words and self.min_words > self.max_words:
            raise InputError(
                f"data.min_words={self.min_words} is more than data.max_words={self.max_words}, "
                "which leaves no pair; lower the one or raise the other"
            )

    @property
    def tokenised(self) -> bool:
        """Whether what comes out is Moses tokens, with Moses' escapes (``&apos;``)."""
        return self.prepared or self.tokenize is not None

    @property
    def lowercased(self) -> bool:
        """Whether what comes out is in lower case (of prepared text: is said to be)."""
        return self.lowercase

    @property
    def cleans(self) -> bool:
        """Whether training pairs may be left out."""
        limits = (self.min_words, self.max_words, self.max_ratio)
        return not self.prepared and any(limit is not None for limit in limits)

    @property
    def held_out(self) -> int | None:
        """`valid_every`, but None for prepared text."""
        return None if self.prepared else self.valid_every

    def identity(self) -> list[Any]:
        """For the key of a cache: what decides the text that comes out, library included."""
        if self.prepared:
            return [_RULES, "prepared", self.lowercase]
        library = importlib.metadata.version("sacremoses") if self.tokenize else None
        limits = [self.min_words, self.max_words, self.max_ratio]
        return [_RULES, self.tokenize, library, self.lowercase, *limits, self.valid_every]


class Moses:
    """Moses' tokenizer and detokenizer of a language, by sacremoses.

    `tokenise` is tokenizer.perl of 2018 or later with default options: special characters escaped,
    hyphens left in their words.  Faithful for de, en, fr, it and all languages without rules of
    their own; sacremoses lacks those of ca, fi, ga, so, sv and tdt.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer

        self._tokenizer = _tokenizer_class()(language)
        self._detokenizer = MosesDetokenizer(language)

    def tokenise(self, line: str) -> str:
        """Tokens with a blank between, ``& | < > ' " [ ]`` written as ``&amp;`` and so on."""
        # Perl deletes these; four of them are blanks to Python.
        return self._tokenizer.tokenize(_CONTROLS.sub("", line), return_str=True)

    def detokenise(self, line: str) -> str:
        """Text as one would write it, from what `tokenise` gives or a model's imitation of it."""
        return self._detokenizer.detokenize(line.split(" "), return_str=True)


@cache
def _tokenizer_class() -> Any:
    """A class that is made late, since importing sacremoses takes a third of a second."""
    import regex
    from sacremoses import MosesTokenizer

    class Tokenizer(MosesTokenizer):  # type: ignore[misc]
        """sacremoses, with the two rules of tokenizer.perl that sacremoses 0.2.0 has otherwise.

        Moses takes the full stop off the last word whatever the word (since November 2018), so that
        a sentence ends in ``u.s .``, as the text in use shows; sacremoses leaves it on.  And to
        Moses every script's letters make words; sacremoses sets Chinese ones apart.
        """

        PAD_NOT_ISALNUM = (regex.compile(r"([^\p{Alnum}\s.'`,\-])"), r" \1 ")
        _alpha = frozenset(MosesTokenizer.IsAlpha)
        _lower = frozenset(MosesTokenizer.IsLower)

        def __init__(self, language: str) -> None:
            super().__init__(language)
            self._numeric = frozenset(self.NUMERIC_ONLY_PREFIXES)
            self._prefixes = frozenset(self.NONBREAKING_PREFIXES) - self._numeric

        def handles_nonbreaking_prefixes(self, text: str) -> str:
            """Set a word's final full stop apart, unless the word is an abbreviation."""
            words = text.split()
            for i, word in enumerate(words):
                if len(word) > 1 and word.endswith("."):
                    following = words[i + 1] if i + 1 < len(words) else None
                    if following is None or self._ends_sentence(word[:-1], following):
                        words[i] = f"{word[:-1]} ."
            return " ".join(words)

        def _ends_sentence(self, word: str, following: str) -> bool:
            if "." in word and not self._alpha.isdisjoint(word):
                return False
            if word in self._prefixes or following[0] in self._lower:
                return False
            return not (word in self._numeric and following[0] in "0123456789")

    return Tokenizer


@cache
def _moses(language: str) -> Moses:
    return Moses(language)


def lower(line: str) -> str:
    """Lower case as Perl has it: every sigma the same, where Python knows a final one."""
    return line.replace("\u03a3", "\u03c3").lower()


def prepare_lines(lines: Iterable[str], language: str, preparation: Preparation) -> list[str]:
    """Tokenise and lower-case lines of a language, as ``preparation`` says."""
    if preparation.prepared:
        return list(lines)
    if preparation.tokenize:
        lines = map(_moses(language).tokenise, lines)
    if preparation.lowercase:
        lines = map(lower, lines)
    return list(lines)


def prepared_pairs(
    pairs: Pairs, languages: tuple[str, str], preparation: Preparation, *, training: bool
) -> tuple[Pairs, Counter[str]]:
    """One part of a text, prepared, and how many pairs were left out for which reason.

    Only of ``training`` text are pairs left out.  For worker processes: all of it can be pickled.
    """
    left, right = (
        prepare_lines(lines, language, preparation)
        for lines, language in zip(pairs, languages, strict=True)
    )
    if not (training and preparation.cleans):
        return (left, right), Counter()
    return clean((left, right), preparation)


def clean(pairs: Pairs, preparation: Preparation) -> tuple[Pairs, Counter[str]]:
    """The pairs that clean-corpus-n.perl keeps, and how many it leaves out for which reason."""
    faults = [fault(left, right, preparation) for left, right in zip(*pairs, strict=True)]
    left, right = (
        [line for line, reason in zip(lines, faults, strict=True) if not reason] for lines in pairs
    )
    return (left, right), Counter(reason for reason in faults if reason)


def fault(left: str, right: str, preparation: Preparation) -> str | None:
    """Why clean-corpus-n.perl leaves a pair out, or None if it keeps it.

    ``empty``, ``too_long``, ``too_short``, ``ratio`` or ``long_word``, the first that holds.  Words
    are what blanks separate, escapes and punctuation included; all limits are inclusive.
    """
    # The script also deletes every | of plain text. It means factors by them, we do not; in
    # tokenised text there are none.
    a, b = len(left.split()), len(right.split())
    fewer, more = min(a, b), max(a, b)
    if not fewer:
        return "empty"
    if preparation.max_words is not None and more > preparation.max_words:
        return "too_long"
    if preparation.min_words is not None and fewer < preparation.min_words:
        return "too_short"
    if preparation.max_ratio is not None and more / fewer > preparation.max_ratio:
        return "ratio"
    if any(len(side) > LONGEST_WORD and _LONGER_WORD.search(side) for side in (left, right)):
        return "long_word"
    return None


def hold_out(pairs: Pairs, every: int, before: int = 0) -> tuple[Pairs, Pairs]:
    """Training and validation pairs of one part, in their order: validation is each ``every``-th.

    Counted from 1 over the whole text, of which ``before`` pairs (held out ones too) came in
    earlier parts.
    """
    first = (-before - 1) % every
    valid = [list(lines[first::every]) for lines in pairs]
    train = [[x for i, x in enumerate(lines, before + 1) if i % every] for lines in pairs]
    return (train[0], train[1]), (valid[0], valid[1])
