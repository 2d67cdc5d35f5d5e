"""One side of a split from lines to files of piece numbers, the same with any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lnexp.data.ragged import Ragged, dtype_for, map_side, write_side
from lnexp.data.tokenizer import Tokenizer
from lnexp.data.vocabulary import load_tokenizer
from lnexp.data.workers import in_order

LINES_AT_ONCE = 10_000
LARGE = 50_000
"""More lines than these are worth starting processes for."""
REPORTED = 200_000
"""Of more lines than these, progress is told."""

Part = tuple[NDArray[np.int32], NDArray[Any]]
"""The lengths of some lines, and their ids."""


def encode_side(
    stem: Path,
    name: str,
    lines: Sequence[str],
    tokenizer: Tokenizer,
    workers: int,
    say: Callable[[str], None],
) -> Ragged:
    """One side from its files, which are written unless an earlier process has."""
    dtype = dtype_for(tokenizer.vocab_size)
    with suppress(OSError, ValueError):
        if len(side := map_side(stem, dtype)) == len(lines):
            return side
    parts = (lines[i : i + LINES_AT_ONCE] for i in range(0, len(lines), LINES_AT_ONCE))
    workers = workers if len(lines) > LARGE else 1
    encoded = in_order(partial(_encoder, tokenizer.model), parts, workers=workers)
    write_side(stem, _told(encoded, name, len(lines), say))
    return map_side(stem, dtype)


def _encoder(
    model: bytes,
) -> Callable[[Sequence[str]], Part]:
    tokenizer = load_tokenizer(model)
    dtype = dtype_for(tokenizer.vocab_size)

    def encode(lines: Sequence[str]) -> Part:
        ids = tokenizer.encode([line if line.strip() else "" for line in lines])
        lengths = np.fromiter(map(len, ids), np.int32, len(ids))
        flat = (i for line in ids for i in line)
        return lengths, np.fromiter(flat, dtype, int(lengths.sum()))

    return encode


def _told(
    parts: Iterable[Part], name: str, total: int, say: Callable[[str], None]
) -> Iterator[Part]:
    """The same ``parts``, a line said about every tenth of many lines."""
    done = 0
    for lengths, ids in parts:
        before, done = done, done + len(lengths)
        if total > REPORTED and 10 * before // total < (tenths := 10 * done // total):
            say(f"tokenising {name}: {10 * tenths} % of {total:,} lines")
        yield lengths, ids
