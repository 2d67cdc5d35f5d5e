"""Text tokenised once and memory-mapped, in a directory named after its content.

An entry is complete or absent.  It is built by one process at a time, in a directory of a fixed
name that is renamed into place at the end: whoever starts meanwhile waits and uses the result, and
what a killed process leaves, the next one takes over, finished files and all.  An entry whose files
have not the recorded sizes is built again.

::

    <cache_dir>/<key>/meta.json            schema, counts, and the size of every file below
                      tokenizer.model
                      <split>.<side>.ids   see `lnexp.data.ragged`
                      <split>.<side>.at

A text store may hold the same in ``tokenised/<key>``, which is then used instead.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lnexp.atomic import sync
from lnexp.data.corpus import Corpus
from lnexp.data.encode import encode_side
from lnexp.data.lock import alone
from lnexp.data.ragged import Ragged, dtype_for, map_side, write_file
from lnexp.data.tokenizer import UNK, Tokenizer
from lnexp.data.vocabulary import Vocabulary, load_tokenizer
from lnexp.errors import InputError

SCHEMA = 2
SIDES = ("src", "tgt")
IN_STORE = "tokenised"
MODEL, META = "tokenizer.model", "meta.json"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)

Say = Callable[[str], None]


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
    entry: Path
    """The directory that it is in."""


def tokenised(
    corpus: Corpus,
    vocabulary: Vocabulary,
    *,
    cache_dir: Path,
    workers: int = 1,
    say: Say = lambda line: None,
) -> TokenisedCorpus:
    """Map the cached pieces of ``corpus``, making them first where they are missing or damaged.

    ``workers`` processes encode what is large; the result is the same.  ``say`` gets a line for
    every step of the making.  Lines of nothing but blanks become empty.  Raises `InputError` if
    ``cache_dir`` cannot be written, or the vocabulary cannot be had.
    """
    key = _key(corpus, vocabulary)
    places = [corpus.home / IN_STORE / key] if corpus.home else []
    for entry in (*places, cache_dir / key):
        if found := _open(entry, key):
            return found
    for place in places:
        if place.exists():
            say(f"{place} is damaged (copy it again); using data.cache_dir={cache_dir}")
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _building(cache_dir / key, f"{corpus.name} is being tokenised", say) as building:
            if found := _open(cache_dir / key, key):  # made while this process waited
                return found
            if (cache_dir / key).exists():
                say(f"cache entry {key} is damaged; making it again")
            corpus.verify()  # what is kept under its fingerprint must be of it
            _build(corpus, vocabulary, building, workers, say)
            # Mapped before it is published: what happens to the entry cannot reach this map.
            made = _open(building, key)
            if not made:
                raise InputError(
                    f"data.cache_dir={cache_dir} does not read as written; set another one"
                )
            _publish(building, cache_dir / key)
    except OSError as error:
        raise InputError(
            f"data.cache_dir={cache_dir} cannot be written ({error.strerror or error}); "
            "set data.cache_dir to a directory of yours with room"
        ) from None
    return replace(made, entry=cache_dir / key)


def export(text: TokenisedCorpus, home: Path, *, say: Say = lambda line: None) -> Path:
    """Copy ``text`` into the text store ``home``, where `tokenised` will find it; return the copy.

    Raises `InputError` if ``home`` cannot be written.
    """
    target = home / IN_STORE / text.key
    if _open(target, text.key):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _building(target, f"{text.entry} is being copied", say) as building:
            if _open(target, text.key):
                return target
            building.mkdir(exist_ok=True)
            meta = json.loads((text.entry / META).read_bytes())
            for name in (*meta["files"], META):
                shutil.copyfile(text.entry / name, building / name)
                with open(building / name, "rb+") as file:
                    sync(file)
            if not _open(building, text.key):
                raise InputError(f"{building} does not read as written; choose another directory")
            _publish(building, target)
    except OSError as error:
        raise InputError(
            f"{text.entry} cannot be copied to {target} ({error.strerror or error}); "
            "choose a directory of yours with room"
        ) from None
    return target


def _key(corpus: Corpus, vocabulary: Vocabulary) -> str:
    identity = [SCHEMA, corpus.fingerprint, *vocabulary.identity()]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


@contextmanager
def _building(entry: Path, other: str, say: Say) -> Iterator[Path]:
    """The one place where ``entry`` is built, for this process alone; may hold finished files."""
    building = entry.with_name(f".{entry.name}.building")

    def waiting() -> None:
        say(f"{other} by another process; waiting for it")

    with alone(entry.with_name(f".{entry.name}.lock"), waiting=waiting):
        try:
            yield building
        except OSError:
            shutil.rmtree(building, ignore_errors=True)  # a full disk needs the room
            raise
        finally:
            with suppress(OSError):
                building.rmdir()  # if nothing came of it


def _publish(building: Path, entry: Path) -> None:
    if entry.exists():
        shutil.rmtree(entry)
    building.rename(entry)


def _build(corpus: Corpus, vocabulary: Vocabulary, into: Path, workers: int, say: Say) -> None:
    tokenizer = _tokenizer(corpus, vocabulary, into, say)
    splits: dict[str, dict[str, int]] = {}
    for split, (src, tgt) in corpus.splits.items():
        sides = []
        for side, lines in zip(SIDES, (src, tgt), strict=True):
            name = f"{split}.{getattr(corpus, side)}"
            sides.append(
                encode_side(into / f"{split}.{side}", name, lines, tokenizer, workers, say)
            )
        counts = splits[split] = _counts(TokenisedSplit(*sides))
        note = f", {n:,} of them with an empty side" if (n := counts["empty"]) else ""
        say(f"tokenised {split}: {counts['pairs']:,} pairs{note}")
        if n := counts["src_unknown"] + counts["tgt_unknown"]:
            say(f"{n:,} unknown pieces in {split}")
    meta = {
        "schema": SCHEMA,
        "key": _key(corpus, vocabulary),
        "corpus": {"name": corpus.name, "src": corpus.src, "tgt": corpus.tgt},
        "fingerprint": corpus.fingerprint,
        "vocabulary": vocabulary.identity(),
        "vocab_size": tokenizer.vocab_size,
        "splits": splits,
        "files": {path.name: path.stat().st_size for path in sorted(into.iterdir())},
    }
    write_file(into / META, json.dumps(meta, indent=1, ensure_ascii=False).encode())


def _tokenizer(corpus: Corpus, vocabulary: Vocabulary, into: Path, say: Say) -> Tokenizer:
    """The tokenizer that an earlier process left in ``into``, or a new one in an empty ``into``."""
    with suppress(*UNREADABLE):
        tokenizer = load_tokenizer((into / MODEL).read_bytes())
        for unfinished in (*into.glob("*.part"), into / META):
            unfinished.unlink(missing_ok=True)
        say(f"going on with the tokenising of {corpus.name} where an earlier process ended")
        return tokenizer
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    tokenizer = vocabulary.learn(corpus.splits["train"], say)
    write_file(into / MODEL, tokenizer.model)
    return tokenizer


def _counts(split: TokenisedSplit) -> dict[str, int]:
    empty = (split.src.lengths == 0) | (split.tgt.lengths == 0)
    counts = {"pairs": len(split.src), "empty": int(empty.sum())}
    for side in SIDES:
        ragged: Ragged = getattr(split, side)
        counts |= {f"{side}_tokens": len(ragged.ids), f"{side}_unknown": ragged.count(UNK)}
    return counts


def _open(entry: Path, key: str) -> TokenisedCorpus | None:
    """The entry, or None if it is missing or not what its own record says."""
    try:
        meta = json.loads((entry / META).read_bytes())
        if any((entry / name).stat().st_size != size for name, size in meta["files"].items()):
            return None
        tokenizer = load_tokenizer((entry / MODEL).read_bytes())
        if (meta["schema"], meta["key"], meta["vocab_size"]) != (
            SCHEMA,
            key,
            tokenizer.vocab_size,
        ):
            return None
        dtype = dtype_for(tokenizer.vocab_size)
        splits = {
            split: TokenisedSplit(*(map_side(entry / f"{split}.{side}", dtype) for side in SIDES))
            for split in meta["splits"]
        }
    except UNREADABLE:
        return None
    consistent = all(
        len(split.src) == len(split.tgt) == meta["splits"][name]["pairs"]
        for name, split in splits.items()
    )
    return TokenisedCorpus(tokenizer, splits, key, entry) if consistent else None
