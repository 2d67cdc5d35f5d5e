"""Parallel text from the Hugging Face hub, in parts, and what to do where that does not work.

A split is read from the library's own memory-mapped copy, so that memory does not grow with the
text.  Every dead end is one line: what was asked for, why it failed, and two ways on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from lnexp.data.corpus import Pairs
from lnexp.data.formats import PART, pairs_of_arrow
from lnexp.data.hub_errors import ANOTHER, CONVERTED, COPY, LEAVE, explained
from lnexp.errors import InputError


def read_hub(
    hub: str | None,
    config: str | None,
    revision: str | None,
    split_names: Mapping[str, Sequence[str]],
    src: str,
    tgt: str,
    *,
    optional: Sequence[str] = (),
) -> tuple[dict[str, Iterator[Pairs]], dict[str, Any]]:
    """The splits of a data set on the hub, each in parts of at most `PART` pairs, and its origin.

    ``split_names`` says what a split may be called, best first; one of ``optional`` that is not
    there is left out.  ``config`` is a configuration, or else a directory of the repository.
    """
    if hub is None or not re.fullmatch(r"[\w.-]+/[\w.-]+", hub):
        raise InputError(
            f"data.hub={hub} must be namespace/name, such as bentrevett/multi30k or wmt/wmt14: "
            "names without a namespace have moved"
        )
    if Path(hub).exists():
        # The library would take the directory for the data set, whatever data.revision says.
        raise InputError(
            f"data.hub={hub}: here is a file or directory of that name, which would be read in its "
            f"place; set data.path={hub} to read it, or start lnexp from another directory"
        )
    return read_dataset(hub, config, revision, split_names, src, tgt, optional=optional)


def read_dataset(
    hub: str,
    config: str | None,
    revision: str | None,
    split_names: Mapping[str, Sequence[str]],
    src: str,
    tgt: str,
    *,
    optional: Sequence[str] = (),
) -> tuple[dict[str, Iterator[Pairs]], dict[str, Any]]:
    """`read_hub`, which may also be given a directory laid out like a repository of the hub."""
    asked = {"data.hub": hub, "data.hub_config": config, "data.revision": revision}
    where = " ".join(f"{key}={value}" for key, value in asked.items() if value)
    builder = _download(hub, config, revision, where)
    splits: dict[str, Iterator[Pairs]] = {}
    for split, names in split_names.items():
        there = list(builder.info.splits)
        chosen = next((name for name in names if name in there), None)
        if chosen is None and split in optional:
            continue
        if chosen is None:
            raise InputError(
                f"{where}: no {split} split: looked for {' or '.join(names)}, it has "
                f"{', '.join(there) or 'none'}; set data.split_names.{split}, {ANOTHER}, {COPY}"
            )
        table = _opened(builder, chosen, where)
        if not len(table):
            raise InputError(f"{where}: split {chosen} is empty; {LEAVE}, {COPY}")
        splits[split] = _parts(table, src, tgt, f"{where}, split {chosen}")
    known = str(builder.hash)
    commit = known if re.fullmatch(r"[0-9a-f]{40}", known) else None
    return splits, {
        "source": "hub", "hub": hub, "config": config, "revision": revision, "commit": commit,
    }  # fmt: skip


def _opened(builder: Any, split: str, where: str) -> Any:
    try:
        return builder.as_dataset(split=split)
    except Exception as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{where}: the hub's copy on this machine is damaged ({reason}); delete "
            f"{builder.cache_dir} to fetch it again, {COPY}"
        ) from None


def _parts(table: Any, src: str, tgt: str, where: str) -> Iterator[Pairs]:
    """The pairs of a split; what can be seen without reading it is checked at once."""
    columns = table.column_names
    wanted = [name for name in ("translation", src, tgt) if name in columns]
    arrow = table.select_columns(wanted).with_format("arrow")

    def pairs(table: Any, before: int) -> Pairs:
        try:
            return pairs_of_arrow(table, src, tgt, where, columns, before=before)
        except InputError as error:
            raise InputError(f"{error}; {ANOTHER}, {COPY}") from None

    pairs(arrow.features.arrow_schema.empty_table(), 0)
    return (pairs(arrow[n : n + PART], n) for n in range(0, len(arrow), PART))


def _download(hub: str, config: str | None, revision: str | None, where: str) -> Any:
    """The library's builder of the data set, once its tables lie on this machine."""
    try:
        import datasets  # takes seconds

        builder = _builder(datasets.load_dataset_builder, hub, config, revision)
        dead_end = _not_to_be_trusted(builder, config, revision)
        if dead_end is None:
            builder.download_and_prepare()
    except Exception as error:
        # Whatever the libraries, the network or the disk have to say, there are two ways on.
        dead_end = explained(error, hub, config, revision)
    if dead_end is not None:
        raise InputError(f"{where}: {dead_end}, {COPY}")
    return builder


def _builder(load: Callable[..., Any], hub: str, config: str | None, revision: str | None) -> Any:
    try:
        return load(hub, config, revision=revision)
    except ValueError as error:
        if not re.search("BuilderConfig|find cache", str(error)):
            raise
        first = error
    # Repositories without a list of configurations, all conversions among them, still have a
    # directory for each.
    if config is not None:
        with suppress(Exception):
            return load(hub, data_dir=config, revision=revision)
    if "find cache" in str(first):
        # Whatever the hub's answer was, the library went to its cache and complains about that.
        with TemporaryDirectory() as empty:
            load(hub, config, revision=revision, cache_dir=empty)
    elif config is not None and (folders := _folders(load(hub, revision=revision))):
        raise ValueError(f"Available: {folders}")
    raise first


def _folders(builder: Any) -> list[str]:
    """The directories that each hold the same split, if there are several."""
    for files in (builder.config.data_files or {}).values():
        parents = {PurePosixPath(str(file)).parent for file in files}
        if len(parents) > 1:
            root = PurePosixPath(os.path.commonpath(parents))
            return sorted({parent.relative_to(root).parts[0] for parent in parents - {root}})
    return []


def _not_to_be_trusted(builder: Any, config: str | None, revision: str | None) -> str | None:
    """What the library would pass over in silence, and what to do."""
    known = str(builder.hash)
    if type(builder).__name__ == "Cache" and revision not in (None, known):
        return (
            "the hub does not give it, and the hub's cache on this machine holds another revision; "
            f"set data.revision={known} to use that"
        )
    if revision == CONVERTED and "/partial-" in str(builder.config.data_files):
        return f"the hub has converted only a part of it; {ANOTHER}"
    if config is None and (folders := _folders(builder)):
        return (
            "a split lies in several directories; set data.hub_config to one of "
            f"{', '.join(folders)} (or to default, which joins them)"
        )
    return None
