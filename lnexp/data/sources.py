"""Raw parallel text, wherever it comes from, as one `Corpus`.

Whatever the source, a pair is never dropped, reordered or normalised here: what is wrong with the
data is an `InputError` that names the file and the line.  The one liberty taken is that a line feed
*inside* a field (tables can hold one) becomes a blank, and is counted in ``origin``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lnexp.data.formats import Pairs, pairs_of_arrow, read_lines, read_table
from lnexp.data.layout import SplitFiles, find_files, given_files
from lnexp.errors import InputError

SPLITS = ("train", "valid", "test")
Given = str | Sequence[str] | None


@dataclass(frozen=True)
class Corpus:
    """Aligned raw lines of each split, and where they came from."""

    name: str
    src: str
    tgt: str
    splits: dict[str, Pairs]
    """``train``, ``valid`` and ``test``: source lines and target lines, without line feeds."""
    origin: dict[str, Any]
    """For the record of a run; names files, but not the directories they were in."""

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the languages and every line: the same text has the same one anywhere."""
        digest = hashlib.sha256(f"{self.src}\n{self.tgt}\n".encode())
        for split, sides in sorted(self.splits.items()):
            for lines in sides:
                digest.update(f"{split} {len(lines)}\n".encode())
                for start in range(0, len(lines), 10_000):
                    chunk = lines[start : start + 10_000]
                    digest.update("".join(f"{line}\n" for line in chunk).encode())
        return digest.hexdigest()


def load_corpus(
    *,
    name: str,
    source: str,
    hub: str | None,
    hub_config: str | None,
    revision: str | None,
    path: str | None,
    train: Given,
    valid: Given,
    test: Given,
    src: str,
    tgt: str,
    split_names: Mapping[str, Sequence[str]],
    cache_dir: Path | None = None,
) -> Corpus:
    """Read a corpus from ``source`` (``verbalized``, ``hub`` or ``files``), or from ``path``.

    ``path``, a directory with a local copy, wins over ``source``.  ``train``, ``valid`` and
    ``test`` name files (or globs, below ``path`` if that is set); ``split_names`` says what a split
    may be called on the hub or in a directory, best first; ``cache_dir`` may keep generated text.
    """
    if src == tgt:
        raise InputError(f"data.src={src} and data.tgt={tgt} must be two languages")
    given = {"train": train, "valid": valid, "test": test}
    if path is not None or source == "files":
        splits, origin = _from_files(path, given, hub_config, split_names, src, tgt)
    elif named := [f"data.{split}" for split in SPLITS if given[split]]:
        raise InputError(f"{named[0]} is set, but data.source={source}; set data.source=files")
    elif source == "hub":
        splits, origin = _from_hub(hub, hub_config, revision, split_names, src, tgt)
    elif source == "verbalized":
        splits, origin = _verbalized(src, tgt, cache_dir)
    else:
        raise InputError(f"data.source={source} must be verbalized, hub or files")
    joined = sum(_join_lines(split, lines) for split, sides in splits.items() for lines in sides)
    return Corpus(name, src, tgt, splits, origin | {"line_feeds_joined": joined})


def _join_lines(split: str, lines: list[str]) -> int:
    """Make every element one line, in place; return how many were not."""
    changed = 0
    for i, line in enumerate(lines):
        if "\n" in line:
            lines[i] = line.replace("\n", " ")
            changed += 1
        if "\0" in line:
            raise InputError(
                f"data: pair {i + 1} of {split} holds a NUL character; mend or drop it"
            )
    return changed


def _from_files(
    path: str | None,
    given: Mapping[str, Given],
    config: str | None,
    split_names: Mapping[str, Sequence[str]],
    src: str,
    tgt: str,
) -> tuple[dict[str, Pairs], dict[str, Any]]:
    root = None if path is None else Path(path).expanduser()
    splits: dict[str, Pairs] = {}
    origin: dict[str, Any] = {"source": "files", "files": {}}
    for split in SPLITS:
        if patterns := given[split]:
            files = given_files(f"data.{split}", patterns, root, src, tgt)
        elif root is not None:
            files = find_files(root, config, split, split_names[split], src, tgt)
        else:
            raise InputError(
                f"data.{split} is not set; with data.source=files set data.train, data.valid and "
                "data.test to files, or data.path to a directory that holds them"
            )
        splits[split] = _read(files, src, tgt)
        if not splits[split][0]:
            raise InputError(
                f"{files.paths[0]}: the {split} split is empty; it needs a pair or more"
            )
        origin["files"][split] = [{"name": p.name, "bytes": p.stat().st_size} for p in files.paths]
    return splits, origin


def _read(files: SplitFiles, src: str, tgt: str) -> Pairs:
    left: list[str] = []
    right: list[str] = []
    for table in files.tables:
        a, b = read_table(table, src, tgt)
        left += a
        right += b
    for one, other in zip(files.src, files.tgt, strict=True):
        a, b = read_lines(one), read_lines(other)
        if len(a) != len(b):
            raise InputError(
                f"{one} has {len(a):,} lines, but {other} has {len(b):,}; line n of one must "
                "translate line n of the other"
            )
        left += a
        right += b
    return left, right


def _from_hub(
    hub: str | None,
    config: str | None,
    revision: str | None,
    split_names: Mapping[str, Sequence[str]],
    src: str,
    tgt: str,
) -> tuple[dict[str, Pairs], dict[str, Any]]:
    if hub is None or not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
        raise InputError(f"data.hub={hub} must be namespace/name, such as bentrevett/multi30k")
    asked = ", ".join(f"{k}={v}" for k, v in {"config": config, "revision": revision}.items() if v)
    where = f"data.hub={hub}" + (f" ({asked})" if asked else "")
    ways_on = (
        "set data.revision=refs/convert/parquet or another data.hub, "
        "or data.path=DIR with a local copy"
    )
    commit, data = _download(hub, config, revision, lambda reason: f"{where}: {reason}; {ways_on}")
    splits: dict[str, Pairs] = {}
    for split in SPLITS:
        names = split_names[split]
        chosen = next((name for name in names if name in data), None)
        if chosen is None:
            raise InputError(
                f"{where} has no {split} split: looked for {' or '.join(names)}, it has "
                f"{', '.join(data)}; {ways_on}"
            )
        part = data[chosen]
        wanted = [name for name in ("translation", src, tgt) if name in part.column_names]
        table = part.select_columns(wanted).with_format("arrow")[:]
        splits[split] = pairs_of_arrow(table, src, tgt, f"{where}, {chosen}", part.column_names)
        if not splits[split][0]:
            raise InputError(f"{where}: split {chosen} is empty; {ways_on}")
    origin = {"source": "hub", "hub": hub, "config": config, "revision": revision, "commit": commit}
    return splits, origin


def _download(
    hub: str, config: str | None, revision: str | None, dead_end: Callable[[str], str]
) -> tuple[str | None, Mapping[str, Any]]:
    """The commit that ``revision`` is now (None if unknown), and the splits at that commit."""
    try:
        import datasets  # takes seconds

        builder = datasets.load_dataset_builder(hub, config, revision=revision)
        builder.download_and_prepare()
        splits: Mapping[str, Any] = builder.as_dataset()
    except Exception as error:
        # Whatever the library, the network or the disk has to say, the ways on are the same.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(dead_end(f"cannot be loaded ({reason[:200]})")) from None
    commit = str(builder.hash)
    return commit if re.fullmatch(r"[0-9a-f]{40}", commit) else None, splits


def _verbalized(
    src: str, tgt: str, cache_dir: Path | None
) -> tuple[dict[str, Pairs], dict[str, Any]]:
    if {src, tgt} != {"de", "en"}:
        raise InputError(
            f"data.src={src} data.tgt={tgt}: the embedded corpus is German (de) and English (en); "
            "set data.source=files for other languages"
        )
    from lnexp.data.verbalized import NAME, verbalized

    pairs = verbalized(cache_dir)
    sides = slice(None) if src == "de" else slice(None, None, -1)
    splits: dict[str, Pairs] = {}
    for split in SPLITS:
        left, right = pairs[split][sides]
        splits[split] = list(left), list(right)
    return splits, {"source": "verbalized", "text": NAME}
