"""Making a text store: by one process at a time, and part by part, so that a killed one goes on.

A store is built in ``<entry>.building`` and renamed into place, so that it is complete or absent.
What was appended to it is on disk, and counted in ``progress.json``, before the next part is begun;
what a killed process left beyond that is cut off.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from lnexp.atomic import atomic_write, sync
from lnexp.data.corpus import RECORD, SCHEMA, SPLITS, Pairs, fingerprint_of_files, read_record
from lnexp.data.lock import alone
from lnexp.errors import InputError

PROGRESS = "progress.json"
Say = Callable[[str], None]


class StoreWriter:
    """A text store under construction in ``folder``.

    ``state`` is what the maker wants to know when it goes on: it is kept with every part.  A folder
    that was left with another ``identity`` is begun anew.
    """

    def __init__(self, folder: Path, languages: tuple[str, str], identity: Any) -> None:
        self.folder = folder
        self.languages = languages
        self.identity = json.loads(json.dumps(identity))
        self.pairs = dict.fromkeys(SPLITS, 0)
        self.state: dict[str, Any] = {}
        if not self._resume():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for name in self._names():
                (folder / name).touch()

    def append(self, parts: Mapping[str, Pairs], state: dict[str, Any]) -> None:
        """Write pairs to their splits; they and ``state`` stay even if the process dies then."""
        for split, sides in parts.items():
            for language, lines in zip(self.languages, sides, strict=True):
                with open(self.folder / f"{split}.{language}", "ab") as file:
                    file.write("".join(f"{line}\n" for line in lines).encode())
                    sync(file)
            self.pairs[split] += len(sides[0])
        self.state = state
        progress = {"identity": self.identity, "pairs": self.pairs, "state": state}
        _replace(self.folder / PROGRESS, {**progress, "files": self._sizes()})

    def finish(self, **record: Any) -> None:
        """Write the store's record: what the text says of itself, and ``record``."""
        src, tgt = self.languages
        ways = ((src, tgt), (tgt, src))
        _replace(
            self.folder / RECORD,
            {
                "schema": SCHEMA,
                "languages": list(self.languages),
                "pairs": self.pairs,
                "files": self._sizes(),
                "fingerprints": {
                    f"{a}-{b}": fingerprint_of_files(self.folder, self.pairs, a, b) for a, b in ways
                },
                **record,
            },
        )
        (self.folder / PROGRESS).unlink(missing_ok=True)

    def _names(self) -> list[str]:
        return [f"{split}.{language}" for split in SPLITS for language in self.languages]

    def _sizes(self) -> dict[str, int]:
        return {name: (self.folder / name).stat().st_size for name in self._names()}

    def _resume(self) -> bool:
        """Take up what ``folder`` holds, if it is of this text."""
        try:
            progress = json.loads((self.folder / PROGRESS).read_bytes())
            files, sizes = progress["files"], self._sizes()
            same = progress["identity"] == self.identity
            if not same or any(sizes[name] < files[name] for name in sizes):
                return False
            for name, size in files.items():
                os.truncate(self.folder / name, size)
            self.pairs, self.state = progress["pairs"], progress["state"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True


def sound(entry: Path) -> bool:
    """Whether a whole store is there."""
    try:
        read_record(entry)
    except InputError:
        return False
    return True


def make_store(entry: Path, fill: Callable[[Path], None], say: Say) -> None:
    """Have ``fill`` build the store ``entry``, unless another process has done so by then.

    What ``fill`` built stays for the next try if it is interrupted, and goes if the user's input
    turns out to be wrong.
    """
    building = entry.with_name(f"{entry.name}.building")
    entry.parent.mkdir(parents=True, exist_ok=True)

    def waiting() -> None:
        say("another process is preparing this text; waiting for it")

    with alone(entry.with_name(f"{entry.name}.lock"), waiting=waiting):
        if sound(entry):
            return
        if entry.exists():
            say(f"text store {entry.name} is damaged; making it again")
        if not sound(building):
            try:
                fill(building)
            except InputError as error:
                # A killed worker is reported likewise, but what was done before is good.
                if not isinstance(error.__context__, BrokenProcessPool):
                    shutil.rmtree(building, ignore_errors=True)
                raise
        shutil.rmtree(entry, ignore_errors=True)
        (building / PROGRESS).unlink(missing_ok=True)  # of a maker killed right before its end
        building.rename(entry)


def _replace(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False)
    atomic_write(path, text, part=f".{path.name}.tmp")
