"""Draw facts of one split.

A fact is a tuple of strings; its split is a hash of it, so that no fact ever serves two splits.
Wording (tense, article, adjective, order) is free.  Integers only, from sorted lists.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
Fact = tuple[str, ...]

_PARTS = 40  # of which one is valid and one is test


def split_of(fact: Fact) -> str:
    """The one split that may use ``fact``: about 95 % train, 2.5 % valid, 2.5 % test."""
    digest = hashlib.sha256("|".join(fact).encode()).digest()
    return {0: "valid", 1: "test"}.get(int.from_bytes(digest[:8], "big") % _PARTS, "train")


class Draw:
    """A source of facts of one split; ``facts`` lists those drawn since ``start``."""

    def __init__(self, split: str, seed: int) -> None:
        self.split = split
        self.facts: list[Fact] = []
        self._bits = random.Random(seed).getrandbits

    def start(self) -> None:
        """Begin a new sentence."""
        self.facts = []

    def below(self, n: int) -> int:
        """A uniform integer in [0, n)."""
        width = n.bit_length()
        while (x := self._bits(width)) >= n:
            pass
        return x

    def pick(self, options: Sequence[T]) -> T:
        """One of ``options``: wording, not a fact."""
        return options[self.below(len(options))]

    def chance(self, in_four: int) -> bool:
        """True ``in_four`` times out of four."""
        return self.below(4) < in_four

    def fact(self, kind: str, *columns: Sequence[str]) -> Fact:
        """One value from each column, which together with ``kind`` are a fact of this split."""
        for _ in range(100_000):
            values = tuple(self.pick(column) for column in columns)
            if split_of((kind, *values)) == self.split:
                self.facts.append((kind, *values))
                return values
        raise LookupError(f"no fact of kind {kind} falls into {self.split}")
