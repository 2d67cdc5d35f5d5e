"""Which runs lie below a directory, and which of them a name means."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lnexp.errors import InputError
from lnexp.report.inventory import Entry, read_entry

CANDIDATES = 5
"""How many of the runs that a name could mean are listed."""

Skipped = Callable[[str], None]
"""Hears of directories that cannot be read."""


def run_dirs(root: Path, skipped: Skipped) -> Iterator[Path]:
    """Yield every run directory at or below ``root``, each once; links are followed."""
    seen: set[tuple[int, int]] = set()
    waiting = [os.fspath(root)]
    while waiting:
        directory = waiting.pop()
        try:
            stat = os.stat(directory)
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            with os.scandir(directory) as found:
                entries = [(e.name, e.path, _is_directory(e)) for e in found]
        except OSError as error:
            skipped(f"{directory} cannot be read ({error.strerror})")
            continue
        if _is_run(directory, {name for name, _, _ in entries}):
            yield Path(directory)
        else:
            waiting += [path for name, path, is_dir in entries if is_dir and name[0] != "."]


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_run(directory: str, names: set[str]) -> bool:
    if "identity.json" in names:
        return True
    versioned = re.fullmatch(r"v\d+", os.path.basename(os.path.abspath(directory)))
    return bool(versioned and names & {"lock", "status.json", "result.json", "config.yaml"})


def find(directories: Sequence[str], now: float, skipped: Skipped) -> list[Entry]:
    """Describe every run in or below ``directories``; each of them must hold one."""
    paths: dict[str, Path] = {}
    for directory in directories:
        if not os.path.isdir(directory):
            raise InputError(
                f"{directory} is no directory; name one that runs were trained in (runs_dir)"
            )
        below = list(run_dirs(Path(directory), skipped))
        if not below:
            raise InputError(
                f"{directory} holds no runs; name a directory that runs were trained in"
            )
        paths |= {os.path.realpath(path): path for path in below}
    return [read_entry(path, now) for path in paths.values()]


def resolve(
    names: Sequence[str], directories: Sequence[str], now: float, skipped: Skipped
) -> list[Entry]:
    """Find the one run that each name means: a path, or a part of a name or hash.

    Raises `InputError` where it means none, or several.
    """
    everything: list[Entry] | None = None
    chosen = []
    for name in names:
        below = list(run_dirs(Path(name), skipped)) if os.path.isdir(name) else []
        matching = [read_entry(path, now) for path in below]
        if not matching:
            if everything is None:
                everything = _all(name, directories, now, skipped)
            matching = _matching(name, everything)
        if not matching:
            where = ", ".join(map(str, directories))
            raise InputError(
                f"{name} is no run, and none in {where} is called so; `lnexp runs {where}` lists them"
            )
        if len(matching) > 1:
            shown = ", ".join(str(entry.path) for entry in matching[:CANDIDATES])
            more = len(matching) - CANDIDATES
            raise InputError(
                f"{name} could be {len(matching)} runs; name one of: {shown}"
                + (f", and {more} more" if more > 0 else "")
            )
        chosen += matching
    return chosen


def _all(name: str, directories: Sequence[str], now: float, skipped: Skipped) -> list[Entry]:
    for directory in directories:
        if not os.path.isdir(directory):
            raise InputError(
                f"{name} is no run, and {directory}, where it could be, is no directory; "
                "name a run directory, or set --runs-dir DIR"
            )
    return find(directories, now, skipped)


def _matching(name: str, entries: Sequence[Entry]) -> list[Entry]:
    """The runs that ``name`` is a whole name of, else those that it is a part of."""
    name = name.strip("/")
    if not name:
        return []
    whole = [
        e
        for e in entries
        if name in (e.name, e.handle, e.hash) or f"/{e.path}".endswith(f"/{name}")
    ]
    part = [e for e in entries if name in _tail(e) or e.hash.startswith(name)]
    return sorted(whole or part, key=lambda e: (str(e.path.parent), e.version or 0))


def _tail(entry: Entry) -> str:
    """The part of the path that says which run it is: ``recipe/name-hash/v1``."""
    path = Path(os.path.abspath(entry.path))
    return "/".join(path.parts[-2:] if entry.version is None else path.parts[-3:])
