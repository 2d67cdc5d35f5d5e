"""Files replaced as a whole, and errors that say which file they are about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an `OSError` say which file it is about: one of a write, a full disk, does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def atomic_write(path: Path, data: bytes | memoryview | str, *, part: str | None = None) -> None:
    """Replace ``path`` by ``data``; after a crash it holds the old or the new content, whole.

    What is not finished lies in a file of this process; in ``part`` beside it where the caller
    alone writes in the directory, and would overwrite what a killed one left.
    """
    temporary = path.with_name(part or f".{path.name}.{os.getpid()}.tmp")
    with naming(path):
        try:
            with open(temporary, "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                sync(file)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def sync(file: IO[bytes]) -> None:
    """Have what was written on disk.

    Else a machine that loses power may keep a rename and lose the bytes, at the right size.
    """
    file.flush()
    os.fsync(file.fileno())
