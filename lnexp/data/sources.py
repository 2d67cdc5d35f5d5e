"""Parallel text, wherever it comes from, as one `Corpus`.

Whatever the source, its text goes through a text store in the cache, and is read from there the
next time: then neither the source's text nor a library that would read it is touched.  Unless a
preparation is asked for, no pair is dropped, reordered or normalised: what is wrong with the data
is an `InputError` that names the file and the line.  The one liberty taken is that a line feed
*inside* a field (tables can hold one) becomes a blank, and is counted in ``origin``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnexp.data.corpus import SCHEMA, SPLITS, Corpus, Pairs, is_store, open_store, read_record
from lnexp.data.intake import fill
from lnexp.data.layout import SplitFiles, find_files, given_files, look_for, stamp
from lnexp.data.preparation import Preparation
from lnexp.data.store import make_store, sound
from lnexp.errors import InputError

KINDS = ("verbalized", "hub", "files", "archive")
Given = str | Sequence[str] | None
Raw = tuple[Mapping[str, Iterable[Pairs]], dict[str, Any]]
"""Each split in parts, and the text's origin."""


@dataclass(frozen=True)
class Source:
    """Where text is; ``path``, a local copy of whatever kind, wins over ``kind``."""

    name: str
    kind: str
    """One of `KINDS`."""
    src: str
    tgt: str
    split_names: Mapping[str, Sequence[str]]
    """What a split may be called on the hub or in a directory, best first."""
    hub: str | None = None
    hub_config: str | None = None
    revision: str | None = None
    path: str | None = None
    """A directory, an archive or a text store."""
    archive: str | None = None
    """Address of the official archive."""
    train: Given = None
    """Files, or globs, below ``path`` if that is set; likewise `valid` and `test`."""
    valid: Given = None
    test: Given = None

    def __post_init__(self) -> None:
        if self.path == "":  # a variable that is not set, say; "" would be the current directory
            raise InputError("data.path is empty; set it to a directory, or leave it out")

    @property
    def root(self) -> Path | None:
        """``path`` as a path."""
        return None if self.path is None else Path(self.path).expanduser()

    @property
    def given(self) -> dict[str, str | Sequence[str]]:
        """The splits whose files are named."""
        named = {"train": self.train, "valid": self.valid, "test": self.test}
        return {split: files for split, files in named.items() if files}


@dataclass(frozen=True)
class _Found:
    """Text that was found and has not been read: ``identity`` changes when it may have changed."""

    identity: list[Any]
    read: Callable[[], Raw]


def load_corpus(
    source: Source,
    preparation: Preparation,
    *,
    cache_dir: Path,
    workers: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> Corpus:
    """The text of ``source`` after ``preparation``, from the cache if it was made before.

    ``workers`` is how many processes may prepare it; the text does not depend on it.
    """
    src, tgt, root = source.src, source.tgt, source.root
    if src == tgt:
        raise InputError(f"data.src={src} and data.tgt={tgt} must be two languages")
    if source.kind not in KINDS:
        raise InputError(
            f"data.source={source.kind} must be {', '.join(KINDS[:-1])} or {KINDS[-1]}"
        )
    if root is not None and is_store(root) and not source.given:
        corpus = open_store(root, name=source.name, src=src, tgt=tgt)
        _require_same(root, preparation)
        return corpus
    found = _find(source, preparation, cache_dir, say)
    what = [SCHEMA, src, tgt, found.identity, preparation.identity()]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]
    entry = cache_dir / "text" / key

    def build(folder: Path) -> None:
        splits, origin = found.read()
        say(f"reading the text of {source.name} ({origin['source']})")
        fill(folder, splits, origin, (src, tgt), preparation, workers=workers, say=say)

    try:
        if not sound(entry):
            make_store(entry, build, say)
    except OSError as error:
        raise InputError(
            f"data.cache_dir={cache_dir} cannot be written ({error.strerror or error}); "
            "set data.cache_dir to a directory of yours with room"
        ) from None
    return open_store(entry, name=source.name, src=src, tgt=tgt)


def _require_same(store: Path, wanted: Preparation) -> None:
    """Refuse a store that was prepared otherwise, unless either was said to be prepared."""
    made = read_record(store)["preparation"]
    if wanted.prepared or made["prepared"]:
        return
    for key, value in made.items():
        if (now := getattr(wanted, key, value)) != value:
            raise InputError(
                f"data.path={store} was prepared with data.{key}={_yaml(value)}, not "
                f"{_yaml(now)}; set data.{key}={_yaml(value)}, or make it again"
            )


def _yaml(value: Any) -> str:
    return json.dumps(value).strip('"')


def _find(
    source: Source, preparation: Preparation, cache_dir: Path, say: Callable[[str], None]
) -> _Found:
    """Look for the text, at no more cost than listing directories."""
    # Held out pairs of the training text take the place of a missing split.
    optional = ("valid",) if preparation.held_out else ()
    root = source.root
    if root is not None and not source.given and not preparation.prepared:
        from lnexp.data.archive import archive_files

        if files := archive_files(root, source.src, source.tgt):
            return _archive(source, optional, lambda: root, stamp(files))
    if root is not None or source.kind == "files":
        return _files(source, optional)
    if source.given:
        named = next(iter(source.given))
        raise InputError(
            f"data.{named} is set, but data.source={source.kind}; set data.source=files"
        )
    match source.kind:
        case "hub":
            return _hub(source, optional)
        case "archive":
            return _downloaded(source, optional, cache_dir, say)
        case _:
            return _verbalized(source, cache_dir)


def _files(source: Source, optional: Sequence[str]) -> _Found:
    src, tgt, root, given = source.src, source.tgt, source.root, source.given
    found: dict[str, SplitFiles] = {}
    for split in SPLITS:
        names = source.split_names[split]
        if split in given:
            found[split] = given_files(f"data.{split}", given[split], root, src, tgt)
        elif split in optional:
            if root and (there := look_for(root, source.hub_config, names, src, tgt)):
                found[split] = there
        elif root is not None:
            found[split] = find_files(root, source.hub_config, split, names, src, tgt)
        else:
            raise InputError(
                f"data.{split} is not set; with data.source=files set data.train, data.valid and "
                "data.test to files, or data.path to a directory that holds them"
            )
    stamps = {split: stamp(files.paths) for split, files in found.items()}
    listed = {
        split: [{"name": Path(path).name, "bytes": size} for path, size, _ in files]
        for split, files in stamps.items()
    }

    def read() -> Raw:
        splits = {split: files.read(split, src, tgt) for split, files in found.items()}
        return splits, {"source": "files", "files": listed}

    return _Found(["files", stamps], read)


def _hub(source: Source, optional: Sequence[str]) -> _Found:
    from lnexp.data.hub import read_hub

    asked = source.hub, source.hub_config, source.revision
    names, src, tgt = source.split_names, source.src, source.tgt
    return _Found(
        ["hub", *asked, {split: list(names[split]) for split in SPLITS}, list(optional)],
        lambda: read_hub(*asked, names, src, tgt, optional=optional),
    )


def _archive(
    source: Source, optional: Sequence[str], fetch: Callable[[], Path], identity: Any
) -> _Found:
    from lnexp.data.archive import read_archive

    def read() -> Raw:
        splits, origin = read_archive(fetch(), source.src, source.tgt)
        address = {"url": identity} if isinstance(identity, str) else {}
        return {split: [pairs] for split, pairs in splits.items()}, origin | address

    if not optional:
        raise InputError(
            "data: the official archive has no validation split and its text is not prepared; "
            "set data.valid_every=23 and data.prepared=false"
        )
    return _Found(["archive", identity], read)


def _downloaded(
    source: Source, optional: Sequence[str], cache_dir: Path, say: Callable[[str], None]
) -> _Found:
    from lnexp.data.download import download

    url = source.archive
    if not url:
        raise InputError("data.archive is not set; set it to the address of the official archive")
    return _archive(source, optional, lambda: download(url, cache_dir / "archives", say), url)


def _verbalized(source: Source, cache_dir: Path) -> _Found:
    src, tgt = source.src, source.tgt
    if {src, tgt} != {"de", "en"}:
        raise InputError(
            f"data.src={src} data.tgt={tgt}: the embedded corpus is German (de) and English (en); "
            "set data.source=files for other languages"
        )
    from lnexp.data.verbalized import NAME, verbalized

    def read() -> Raw:
        text = verbalized(cache_dir)
        splits = {
            split: [(german, english) if src == "de" else (english, german)]
            for split, (german, english) in text.items()
        }
        return splits, {"source": "verbalized", "text": NAME}

    return _Found(["verbalized", NAME], read)
