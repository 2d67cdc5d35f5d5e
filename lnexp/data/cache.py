"""Text tokenised once and memory-mapped, in a directory named after its content.

An entry is complete or absent: it is built under a name of its own and renamed into place, so a
killed job leaves at most a directory ``.<key>-*.tmp`` that nobody reads (and that may be deleted),
and of several jobs that start together each builds, the first publishes and all use that.  An entry
whose files have not the recorded sizes is built again.

::

    <cache_dir>/<key>/meta.json            schema, counts, and the size of every file below
                      tokenizer.model
                      <split>.<side>.ids   uint16 (int32 for more than 65,536 pieces), no EOS
                      <split>.<side>.at    int64, where each line begins; one more than lines
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import DTypeLike, NDArray

from lnexp.data.sources import Corpus
from lnexp.data.tokenizer import Tokenizer, learn
from lnexp.errors import InputError

SCHEMA = 1
SIDES = ("src", "tgt")
LINES_AT_ONCE = 20_000


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


@dataclass(frozen=True)
class TokenisedSplit:
    """Both sides of a split; every pair of the text is there, empty ones included."""

    src: Ragged
    tgt: Ragged


@dataclass(frozen=True)
class TokenisedCorpus:
    """A corpus as piece numbers, and the tokenizer that made them."""

    tokenizer: Tokenizer
    splits: dict[str, TokenisedSplit]
    key: str


def tokenised(
    corpus: Corpus, *, vocab_size: int, cache_dir: Path, say: Callable[[str], None]
) -> TokenisedCorpus:
    """Map the cached pieces of ``corpus``, making them first where they are missing or damaged.

    ``say`` gets a line for every step of the making.  Lines of nothing but blanks become empty.
    Raises `InputError` if ``cache_dir`` cannot be written, or the vocabulary cannot be had.
    """
    identity = [SCHEMA, corpus.fingerprint, vocab_size, sentencepiece.__version__]
    key = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]
    entry = cache_dir / key
    if found := _open(entry):
        return found
    building = cache_dir / f".{key}-{uuid.uuid4().hex}.tmp"
    try:
        if entry.exists():
            say(f"cache entry {key} is damaged; making it again")
        building.mkdir(parents=True)
        _build(corpus, vocab_size, building, say)
        # Mapped before it is published: what another job does to the entry cannot reach this map.
        made = _open(building)
        _publish(building, entry)
    except OSError as error:
        raise InputError(
            f"data.cache_dir={cache_dir} cannot be written ({error.strerror or error}); "
            "set data.cache_dir to a directory of yours with room"
        ) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if not made:
        raise InputError(f"data.cache_dir={cache_dir} does not read as written; set another one")
    return _open(entry) or replace(made, key=key)


def _publish(building: Path, entry: Path) -> None:
    """Rename ``building`` to ``entry``, unless a sound one is there by now."""
    if entry.exists() and not _open(entry):
        aside = building.with_suffix(".old.tmp")
        with suppress(FileNotFoundError):  # another job moved it
            os.rename(entry, aside)
        shutil.rmtree(aside, ignore_errors=True)
    try:
        os.rename(building, entry)
    except OSError as error:
        # Another job was first?  What it made is the same.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _build(corpus: Corpus, vocab_size: int, into: Path, say: Callable[[str], None]) -> None:
    src, tgt = corpus.splits["train"]
    say(f"learning {vocab_size:,} pieces from {len(src):,} pairs of {corpus.name}")
    tokenizer = learn((line for side in (src, tgt) for line in side), vocab_size)
    _write(into / "tokenizer.model", tokenizer.model)
    dtype = np.uint16 if vocab_size <= 2**16 else np.int32
    counts: dict[str, dict[str, int]] = {}
    for split, sides in corpus.splits.items():
        lengths = [
            _write_side(into / f"{split}.{side}", lines, tokenizer, dtype)
            for side, lines in zip(SIDES, sides, strict=True)
        ]
        n_empty = int(((lengths[0] == 0) | (lengths[1] == 0)).sum())
        counts[split] = {
            "pairs": len(lengths[0]),
            "empty": n_empty,
            **{f"{side}_tokens": int(n.sum()) for side, n in zip(SIDES, lengths, strict=True)},
        }
        note = f", {n_empty:,} of them with an empty side" if n_empty else ""
        say(f"tokenised {split}: {len(lengths[0]):,} pairs{note}")
    meta = {
        "schema": SCHEMA,
        "corpus": {"name": corpus.name, "src": corpus.src, "tgt": corpus.tgt},
        "fingerprint": corpus.fingerprint,
        "vocab_size": vocab_size,
        "sentencepiece": sentencepiece.__version__,
        "splits": counts,
        "files": {path.name: path.stat().st_size for path in sorted(into.iterdir())},
    }
    _write(into / "meta.json", json.dumps(meta, indent=1, ensure_ascii=False).encode())


def _write_side(
    stem: Path, lines: Sequence[str], tokenizer: Tokenizer, dtype: DTypeLike
) -> NDArray[np.int64]:
    """Write the ids and offsets of one side, some lines at a time; return the lines' lengths."""
    lengths = np.zeros(len(lines), np.int64)
    with open(f"{stem}.ids", "wb") as file:
        for start in range(0, len(lines), LINES_AT_ONCE):
            chunk = [x if x.strip() else "" for x in lines[start : start + LINES_AT_ONCE]]
            encoded = tokenizer.encode(chunk)
            lengths[start : start + len(chunk)] = [len(ids) for ids in encoded]
            file.write(np.array([i for ids in encoded for i in ids], dtype).tobytes())
        _sync(file)
    _write(Path(f"{stem}.at"), np.append(0, lengths.cumsum()).astype(np.int64).tobytes())
    return lengths


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        _sync(file)


def _sync(file: Any) -> None:
    # Else a machine that loses power may keep the rename and lose the bytes, at the right size.
    file.flush()
    os.fsync(file.fileno())


def _open(entry: Path) -> TokenisedCorpus | None:
    """The entry, or None if it is missing or not what its own record says."""
    try:
        meta = json.loads((entry / "meta.json").read_bytes())
        if any((entry / name).stat().st_size != size for name, size in meta["files"].items()):
            return None
        tokenizer = Tokenizer((entry / "tokenizer.model").read_bytes())
        if meta["schema"] != SCHEMA or tokenizer.vocab_size != meta["vocab_size"]:
            return None
        dtype = np.uint16 if meta["vocab_size"] <= 2**16 else np.int32
        splits = {
            split: TokenisedSplit(*(_map(entry / f"{split}.{side}", dtype) for side in SIDES))
            for split in meta["splits"]
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return None
    consistent = all(
        len(split.src) == len(split.tgt) == meta["splits"][name]["pairs"]
        for name, split in splits.items()
    )
    return TokenisedCorpus(tokenizer, splits, entry.name) if consistent else None


def _map(stem: Path, dtype: DTypeLike) -> Ragged:
    offsets = _memmap(Path(f"{stem}.at"), np.int64)
    ids = _memmap(Path(f"{stem}.ids"), dtype)
    if offsets[-1] != len(ids):
        raise ValueError(f"{stem}: {len(ids)} ids, {offsets[-1]} expected")
    return Ragged(ids, offsets, np.diff(offsets).astype(np.int32))


def _memmap(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    # A plain view of the map: slicing a np.memmap itself is several times slower.
    return np.asarray(np.memmap(path, dtype, "r")) if path.stat().st_size else np.empty(0, dtype)
