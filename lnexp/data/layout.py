"""Which files make a split: named by the user, or found in a directory by their names.

Every choice is either forced or an error: two sets of files that would do are never chosen among.
In a directory the split's names are tried in order, each in the directory itself, then in the
sub-directories that hub layouts use.  ``NAME`` matches, in this order of preference,

- ``NAME.de`` beside ``NAME.en`` (also ``.de.txt``), ``NAME.tsv``, ``NAME.parquet``, shards such as
  ``NAME-00000-of-00002.parquet``, and whatever table files lie in ``NAME/``;
- files with ``NAME`` between dots: ``corpus.NAME.tok.de``, ``NAME.de-en.en``.
"""

from __future__ import annotations

import glob
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from lnexp.data.corpus import Pairs
from lnexp.data.formats import TABLES, read_both, read_table, table_format
from lnexp.errors import InputError

SHARD = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<total>\d{5})")


@dataclass(frozen=True)
class SplitFiles:
    """The files of a split: tables that hold both sides, or as many files of either side."""

    tables: list[Path]
    src: list[Path]
    tgt: list[Path]

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [*self.tables, *self.src, *self.tgt]

    def read(self, split: str, src: str, tgt: str) -> Iterator[Pairs]:
        """Their pairs in parts, one file after another; ``split`` is its name for messages."""
        n = 0
        tables = (read_table(path, src, tgt) for path in self.tables)
        twins = (read_both(*paths) for paths in zip(self.src, self.tgt, strict=True))
        for parts in chain(tables, twins):
            for part in parts:
                n += len(part[0])
                yield part
        if not n:
            raise InputError(
                f"{self.paths[0]}: the {split} split is empty; it needs a pair or more"
            )


def stamp(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Where files are, their bytes, and when they were written (ns): what changes with them."""
    found = [(path.absolute(), path.stat()) for path in paths if path.is_file()]
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found]


def given_files(
    key: str, patterns: str | Sequence[str], base: Path | None, src: str, tgt: str
) -> SplitFiles:
    """The files that ``key`` (``data.train``, say) names, by paths or globs below ``base``."""
    paths: list[Path] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        path = Path(base or "", Path(pattern).expanduser())
        # A name may hold brackets and be no glob.
        found = [path] if path.exists() else [Path(p) for p in glob.glob(str(path), recursive=True)]
        if not found:
            raise InputError(f"{key}={pattern}: no such file ({path}); name files that exist")
        paths += sorted(found)
    if not paths:
        raise InputError(f"{key} is empty; name its files")
    for path in paths:
        if path.is_dir():
            raise InputError(f"{key}: {path} is a directory; name files, or set data.path={path}")
        if paths.count(path) > 1:
            raise InputError(f"{key}: {path} is named twice; name it once")
    if tables := [path for path in paths if table_format(path.name)]:
        if len(tables) < len(paths):
            other = next(path for path in paths if not table_format(path.name))
            raise InputError(
                f"{key}: {tables[0]} holds both languages, {other} one; name either kind"
            )
        return SplitFiles(tables, [], [])
    return _pair(key, paths, src, tgt)


def _pair(key: str, paths: list[Path], src: str, tgt: str) -> SplitFiles:
    """Pair files of one language each by what is left of their names without it."""
    sides: dict[str, dict[str, Path]] = {src: {}, tgt: {}}
    for path in paths:
        stem, language = split_language(path.name, src, tgt)
        if language is None:
            raise InputError(
                f"{key}: {path} names neither {src} nor {tgt}; end its name in .{src} or .{tgt} "
                f"(.gz after it), or use {', '.join(TABLES)}"
            )
        if twin := sides[language].get(stem):
            raise InputError(f"{key}: {twin} and {path} are the same part twice; name one of them")
        sides[language][stem] = path
    left, right = sides[src], sides[tgt]
    if len(left) == len(right) == 1:
        return SplitFiles([], list(left.values()), list(right.values()))
    if lonely := sorted(left.keys() ^ right.keys()):
        path = left.get(lonely[0]) or right[lonely[0]]
        other = tgt if lonely[0] in left else src
        raise InputError(f"{key}: {path} has no {lonely[0]}.{other} to go with it; name both")
    return SplitFiles([], list(left.values()), [right[stem] for stem in left])


def split_language(name: str, src: str, tgt: str) -> tuple[str, str | None]:
    """A file name without language and ``.gz``, and its language: ``("train", "de")``."""
    stem, _, language = name.removesuffix(".gz").removesuffix(".txt").rpartition(".")
    return (stem, language) if stem and language in (src, tgt) else (name, None)


def find_files(
    root: Path, config: str | None, split: str, names: Iterable[str], src: str, tgt: str
) -> SplitFiles:
    """The files of a split in ``root``, by the ``names`` that the split may have (see above)."""
    names = list(names)
    if found := look_for(root, config, names, src, tgt):
        return found
    present = sorted(p.name + "/" * p.is_dir() for p in root.iterdir())
    shown = ", ".join(present[:8]) + (f" and {len(present) - 8} more" if len(present) > 8 else "")
    raise InputError(
        f"data.path={root} has no {split} split for {src}-{tgt}: looked for {' or '.join(names)} "
        f"as NAME.{src} with NAME.{tgt}, {', '.join('NAME' + t for t in TABLES)}; "
        f"found {shown or 'nothing'}; rename the files, or set data.{split}"
    )


def look_for(
    root: Path, config: str | None, names: Iterable[str], src: str, tgt: str
) -> SplitFiles | None:
    """As `find_files`, but None if there are none."""
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise InputError(
            f"data.path={root} {what}; set it to a directory (or archive) that holds the corpus"
        )
    below = [config, f"{src}-{tgt}", f"{tgt}-{src}", "data"]
    folders = [root, *(root / name for name in dict.fromkeys(below) if name)]
    for name in names:
        for folder in folders:
            if folder.is_dir() and (found := _find_named(folder, name, src, tgt)):
                return found
    return None


def _find_named(folder: Path, name: str, src: str, tgt: str) -> SplitFiles | None:
    """The one set of files called ``name`` in ``folder``, None if there is none."""
    # Two file sets are told apart by their names without language and shard number.
    exact: dict[str, list[Path]] = defaultdict(list)
    between_dots: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.iterdir()):
        if not path.is_file():
            continue
        if table := table_format(path.name):
            base = path.name[: path.name.rindex(table)]
            stem = shard["name"] if (shard := SHARD.fullmatch(base)) else base
            label = stem + path.name[len(base) :]
        else:
            stem, language = split_language(path.name, src, tgt)
            label = f"{stem}.{{{src},{tgt}}}"
            if language is None:
                continue
        if stem == name:
            exact[label].append(path)
        elif name in stem.split("."):
            between_dots[label].append(path)
    if (folder / name).is_dir():
        for path in sorted((folder / name).iterdir()):
            if table := table_format(path.name):
                exact[f"{name}/*{table}"].append(path)
    found = exact or between_dots
    if len(found) > 1:
        sets = " and ".join(f"{folder}/{label}" for label in found)
        raise InputError(f"data.path: {sets} are both called {name}; keep one")
    for label, paths in found.items():
        key = f"data.path: {folder}/{label}"
        if not table_format(paths[0].name):
            return _pair(key, _both(key, paths, src, tgt), src, tgt)
        _require_every_shard(key, paths)
        return SplitFiles(paths, [], [])
    return None


def _both(key: str, paths: list[Path], src: str, tgt: str) -> list[Path]:
    """``paths``, if both languages are among them."""
    languages = {split_language(path.name, src, tgt)[1] for path in paths}
    for lacking in {src, tgt} - languages:
        raise InputError(f"{key}: {paths[0].name} has no file in {lacking} beside it; add it")
    return paths


def _require_every_shard(key: str, paths: list[Path]) -> None:
    for path in paths:
        shard = SHARD.match(path.name)
        if shard and int(shard["total"]) != len(paths):
            raise InputError(
                f"{key}: {len(paths)} of {int(shard['total'])} shards are there; copy all of them"
            )
