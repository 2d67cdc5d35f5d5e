"""Parallel text of three splits as a `Corpus`, and the text store that it is read from.

A text store is a directory that may be moved anywhere::

    corpus.json             languages, origin, preparation, counts, sizes, fingerprints
    <split>.<language>      UTF-8, one line per line feed, lines n of both languages a pair

Opening one costs the same whatever its size: a `Lines` maps its file when it is first asked.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lnexp.errors import InputError

SCHEMA = 1
RECORD = "corpus.json"
SPLITS = ("train", "valid", "test")
Pairs = tuple[Sequence[str], Sequence[str]]
BLOCK_LINES = 10_000
BLOCK_BYTES = 2**24


class Lines(Sequence[str]):
    """The lines of a UTF-8 file as a sequence, decoded when asked for.

    ``count``, where given, is how many lines the file has; else they are counted.  A slice is a
    list.  Raises `InputError` if the file is not UTF-8, or has not so many lines.
    """

    def __init__(self, path: Path, count: int | None = None) -> None:
        self.path = path
        self._count = count

    def __len__(self) -> int:
        if self._count is None:
            return len(self._starts) - 1
        return self._count

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, int):
            line = range(len(self))[at]  # IndexError, and negative numbers
            return self._read(line, line + 1)[0]
        start, stop, step = at.indices(len(self))
        if step == 1:
            return self._read(start, max(start, stop))
        return [self[line] for line in range(start, stop, step)]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), BLOCK_LINES):
            yield from self[start : start + BLOCK_LINES]

    def __repr__(self) -> str:
        return f"Lines({str(self.path)!r})"

    def __reduce__(self) -> tuple[type[Lines], tuple[Path, int | None]]:
        return Lines, (self.path, self._count)

    def _read(self, start: int, stop: int) -> list[str]:
        if start == stop:
            return []
        # The last line feed is left out, or it would begin another line.
        raw = self._map[self._starts[start] : self._starts[stop] - 1]
        try:
            return raw.decode().split("\n")
        except UnicodeDecodeError:
            raise self._damaged("not UTF-8") from None

    @cached_property
    def _map(self) -> mmap.mmap | bytes:
        with open(self.path, "rb") as file:
            if not self.path.stat().st_size:
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where each line begins, and where the next one after the last would."""
        size = len(self._map)
        found = [np.zeros(1, np.int64)]
        for start in range(0, size, BLOCK_BYTES):
            block = np.frombuffer(self._map[start : start + BLOCK_BYTES], np.uint8)
            found.append(np.flatnonzero(block == ord("\n")).astype(np.int64) + (start + 1))
        starts = np.concatenate(found)
        if starts[-1] != size or self._count not in (None, len(starts) - 1):
            raise self._damaged(f"{len(starts) - 1:,} lines, {self._count} expected")
        return starts

    def _damaged(self, how: str) -> InputError:
        return damaged(self.path, how)


def damaged(path: Path, how: str) -> InputError:
    """What to do about a file of a text store that is not as it was made."""
    return InputError(
        f"{path} is damaged ({how}); delete {path.parent} if it lies in the cache, where it is made "
        "again, else copy the whole directory again"
    )


@dataclass(frozen=True)
class Corpus:
    """Aligned lines of each split, and where they came from."""

    name: str
    src: str
    tgt: str
    splits: Mapping[str, Pairs]
    """``train``, ``valid`` and ``test``: source lines and target lines, without line feeds."""
    origin: dict[str, Any]
    """For the record of a run; names files, but not the directories they were in."""
    tokenised: bool = False
    """Lines are Moses tokens, with its escapes (``&apos;``)."""
    lowercased: bool = False
    home: Path | None = None
    """The text store it was opened from."""
    fingerprint: str = ""
    """SHA-256 over the languages and every line: the same text has the same one anywhere.

    Computed where it is not given.
    """

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", _fingerprint(self))

    def verify(self) -> None:
        """Raise `InputError` if the text is not the one that the fingerprint is of."""
        if _fingerprint(self) != self.fingerprint:
            raise damaged((self.home or Path()) / RECORD, "the text beside it was changed")


def _fingerprint(corpus: Corpus) -> str:
    digest = hashlib.sha256(f"{corpus.src}\n{corpus.tgt}\n".encode())
    for split, sides in sorted(corpus.splits.items()):
        for lines in sides:
            digest.update(f"{split} {len(lines)}\n".encode())
            for start in range(0, len(lines), BLOCK_LINES):
                block = lines[start : start + BLOCK_LINES]
                digest.update("".join(f"{line}\n" for line in block).encode())
    return digest.hexdigest()


def fingerprint_of_files(folder: Path, counts: Mapping[str, int], src: str, tgt: str) -> str:
    """The fingerprint of the text in ``folder``, ``counts`` pairs in each split."""
    digest = hashlib.sha256(f"{src}\n{tgt}\n".encode())
    for split in sorted(counts):
        for language in (src, tgt):
            digest.update(f"{split} {counts[split]}\n".encode())
            with open(folder / f"{split}.{language}", "rb") as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
    return digest.hexdigest()


def is_store(folder: Path) -> bool:
    """Whether ``folder`` is a text store, be it damaged; others may have files of that name."""
    try:
        record = json.loads((folder / RECORD).read_bytes())
    except OSError:
        return False
    except ValueError:
        return True
    return not record or bool({"schema", "fingerprints"} & set(record))


def open_store(folder: Path, *, name: str, src: str, tgt: str) -> Corpus:
    """Open a text store, in the direction in which it was made or the other.

    Reads nothing but its record.  Raises `InputError` if it is damaged, or of other languages.
    """
    record = read_record(folder)
    if {src, tgt} != set(record["languages"]):
        have = " and ".join(record["languages"])
        raise InputError(
            f"data.path={folder} is in {have}, not data.src={src} and data.tgt={tgt}; "
            "set them to these"
        )
    counts = record["pairs"]
    return Corpus(
        name,
        src,
        tgt,
        {
            split: (Lines(folder / f"{split}.{src}", n), Lines(folder / f"{split}.{tgt}", n))
            for split, n in counts.items()
        },
        record["origin"],
        tokenised=record["tokenised"],
        lowercased=record["lowercased"],
        home=folder,
        fingerprint=record["fingerprints"][f"{src}-{tgt}"],
    )


def read_record(folder: Path) -> dict[str, Any]:
    """What ``corpus.json`` says; `InputError` if it cannot be read, or a file is not as recorded."""

    def broken(how: str) -> InputError:
        return InputError(f"data.path={folder} is damaged ({how}); copy it again, as a whole")

    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_bytes())
        version = record["schema"]
    except (OSError, ValueError, KeyError, TypeError):
        raise broken(f"{RECORD} cannot be read") from None
    if version != SCHEMA:
        raise InputError(
            f"data.path={folder} is a text store of version {version}, this lnexp reads {SCHEMA}; "
            "make it again with lnexp prepare"
        )
    if wrong := next((k for k, ok in SHAPE.items() if k not in record or not ok(record[k])), None):
        raise broken(f"{RECORD} has no sound {wrong}")
    for name, size in record["files"].items():
        try:
            found = (folder / name).stat().st_size
        except OSError:
            raise broken(f"{name} is missing") from None
        if found != size:
            raise broken(f"{name} has {found:,} bytes, not {size:,}")
    return record


def _numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(type(n) is int and n >= 0 for n in value.values())


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


SHAPE: dict[str, Callable[[Any], bool]] = {
    "languages": lambda v: isinstance(v, list) and [type(x) for x in v] == [str, str],
    "pairs": lambda v: _numbers(v) and set(v) == set(SPLITS),
    "files": _numbers,
    "fingerprints": lambda v: _texts(v) and len(v) == 2,
    "origin": lambda v: isinstance(v, dict),
    "preparation": lambda v: isinstance(v, dict) and "prepared" in v,
    "tokenised": lambda v: isinstance(v, bool),
    "lowercased": lambda v: isinstance(v, bool),
}
"""What `open_store` and others take for granted of a record."""
