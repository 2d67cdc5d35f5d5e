"""One process at a time, across the machines that share a directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def alone(lock: Path, *, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the file ``lock`` locked; it is made, and gone afterwards.

    ``waiting`` is called once if another process has it.  A killed holder holds nothing.  Raises
    OSError if the file cannot be made, or its file system has no locks.
    """
    waited = False
    while True:
        with open(lock, "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not waited:
                    waiting()
                waited = True
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, lock):
                continue  # the holder before took it away; who comes now locks another file
            try:
                yield
            finally:
                with suppress(OSError):
                    lock.unlink()
            return


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
