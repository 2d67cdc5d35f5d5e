"""Lines of piece numbers in two files, written in parts and memory-mapped.

::

    <stem>.ids   uint16 (int32 for more than 65,536 pieces), one line after another, no EOS
    <stem>.at    int64, where each line begins; one more than there are lines

A file is there whole or not at all, and ``.at`` comes last: where it is, the side is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from lnexp.atomic import atomic_write, sync

IDS_AT_ONCE = 2**20


@dataclass(frozen=True)
class Ragged:
    """Lines of piece numbers, one after another; line i is ``ids[offsets[i]:offsets[i + 1]]``."""

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, line: int) -> NDArray[Any]:
        """The read-only piece numbers of one line, without EOS."""
        if not 0 <= line < len(self.lengths):
            raise IndexError(line)
        return self.ids[self.offsets[line] : self.offsets[line + 1]]

    def count(self, piece: int) -> int:
        """How often a piece occurs."""
        parts = range(0, len(self.ids), IDS_AT_ONCE)
        return sum(int((self.ids[i : i + IDS_AT_ONCE] == piece).sum()) for i in parts)


def dtype_for(vocab_size: int) -> DTypeLike:
    """The smallest type of the two that holds ``vocab_size`` piece numbers."""
    return np.uint16 if vocab_size <= 2**16 else np.int32


def write_side(stem: Path, parts: Iterable[tuple[NDArray[np.int32], NDArray[Any]]]) -> None:
    """Write a side of which ``parts`` give the lengths of some lines, and all their ids."""
    lengths = [np.zeros(0, np.int32)]
    part = Path(f"{stem}.ids.part")
    with open(part, "wb") as file:
        for some, ids in parts:
            lengths.append(some)
            file.write(ids.tobytes())
        sync(file)
    part.rename(f"{stem}.ids")
    offsets = np.append(0, np.concatenate(lengths).cumsum(dtype=np.int64)).astype(np.int64)
    write_file(Path(f"{stem}.at"), offsets.tobytes())


def map_side(stem: Path, dtype: DTypeLike) -> Ragged:
    """Map a side; OSError or ValueError if it is not there, or damaged."""
    offsets = _memmap(Path(f"{stem}.at"), np.int64)
    ids = _memmap(Path(f"{stem}.ids"), dtype)
    if not len(offsets) or offsets[-1] != len(ids):
        raise ValueError(f"{stem}: {len(ids)} ids do not end where its last line does")
    return Ragged(ids, offsets, np.diff(offsets).astype(np.int32))


def write_file(path: Path, content: bytes) -> None:
    """Put a whole file at ``path``; a killed maker's ``.part`` is overwritten by the next."""
    atomic_write(path, content, part=f"{path.name}.part")


def _memmap(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    # A plain view of the map: slicing a np.memmap itself is several times slower.
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.empty(0, dtype)
