"""One file from the web, whole or not at all, in as many sittings as it takes.

What has come lies in ``NAME.part``, and in ``NAME.part.tag`` what the server calls that version of
the file; bytes of two versions never come together, and only a whole tar file gets its name.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from lnexp.data.lock import alone
from lnexp.errors import InputError

BLOCK = 2**17
TIMEOUT = 30.0
"""Seconds in which a server has to say something."""

ATTEMPTS = 100

Say = Callable[[str], None]


class _BrokenOffError(Exception):
    """The network's or the server's part in a failure."""


def download(url: str, into: Path, say: Say) -> Path:
    """The tar file at ``url``, which stays below ``into``; gone on with where it was broken off."""
    if not re.match(r"https?://[\w.-]", url):
        raise InputError(
            f"data.archive={url} must begin with http:// or https://; for a local copy set "
            "data.path=FILE.tgz"
        )
    folder = into / hashlib.sha256(url.encode()).hexdigest()[:8]
    name = re.sub(r"[^\w.-]", "_", url.partition("?")[0].rpartition("/")[2]).lstrip(".")
    target = folder / (name or "archive.tgz")
    part = _Part(
        target.with_name(f"{target.name}.part"), target.with_name(f"{target.name}.part.tag")
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(
            folder / ".lock",
            waiting=lambda: say(f"{target.name}: another process is downloading it; waiting"),
        ):
            if not target.is_file():
                _fetch(url, part, say)
                part.path.replace(target)
                part.tag.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"data.cache_dir={into.parent} cannot be written ({error.strerror or error}); "
            "set data.cache_dir to a directory of yours with room"
        ) from None
    return target


@dataclass(frozen=True)
class _Part:
    """What there is of a file so far."""

    path: Path
    tag: Path

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def start(self, tag: str) -> None:
        """Begin again, with the version of the file that the server calls ``tag``."""
        self.path.unlink(missing_ok=True)
        self.tag.write_text(tag, encoding="utf-8")

    def resumable(self) -> str:
        """The tag of the version that is there in part; empty if there is nothing to go on with."""
        return self.tag.read_text(encoding="utf-8") if self.size and self.tag.exists() else ""


def _fetch(url: str, part: _Part, say: Say) -> None:
    """Complete ``part``, in attempts of which each brings something or throws away what was there."""
    reason = ""
    for _ in range(ATTEMPTS):
        before, reason = part.size, ""
        try:
            _attempt(url, part, say)
        except _BrokenOffError as error:
            reason = " ".join(str(error).split())
        if not reason or part.size == before:
            break
    if reason:
        kept = f"; {part.size:,} bytes are kept and gone on from" if part.size else ""
        raise InputError(
            f"data.archive={url}: cannot be downloaded ({reason}{kept}); set data.archive to "
            "another address, or data.path=FILE.tgz to a local copy"
        )
    if not tarfile.is_tarfile(part.path):
        size = part.size
        part.start("")
        part.tag.unlink()
        raise InputError(
            f"data.archive={url}: what came is not a tar archive ({size:,} bytes); set "
            "data.archive to another address, or data.path=FILE.tgz to a local copy"
        )


def _attempt(url: str, part: _Part, say: Say) -> None:
    """Append to ``part`` what it lacks; raises `_BrokenOffError` where it cannot."""
    tag, have = part.resumable(), part.size
    headers = {"Range": f"bytes={have}-", "If-Range": tag} if tag else {}
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        with error:
            if error.code == 416:  # nothing lies behind what there is
                if _total(error.headers) == have:
                    return
                part.start("")
            raise _BrokenOffError(f"HTTP {error.code} {error.reason}") from None
    except (URLError, HTTPException, OSError, ValueError) as error:
        reason = str(getattr(error, "reason", error))
        raise _BrokenOffError(reason or type(error).__name__) from None
    with response:
        total, version = _total(response.headers), _version(response.headers)
        if response.status != 206:
            part.start(version)
        elif version != tag or not _continues(response.headers, have):
            part.start("")
            raise _BrokenOffError("the server sent another part than it was asked for")
        size = "" if total is None else f", {total / 1e6:.1f} MB"
        say(f"downloading {url}{size}" + (f", from {part.size / 1e6:.1f} on" if part.size else ""))
        _receive(response, part, total, say)


def _receive(response: Any, part: _Part, total: int | None, say: Say) -> None:
    have = part.size
    with open(part.path, "ab") as file:
        while True:
            try:
                block = response.read(BLOCK)
            except (HTTPException, OSError) as error:
                raise _BrokenOffError(str(error) or type(error).__name__) from None
            if not block:
                break
            file.write(block)
            before, have = have, have + len(block)
            if total and have * 10 // total > before * 10 // total and have < total:
                say(f"{have / 1e6:.1f} of {total / 1e6:.1f} MB")
    if total is not None and have != total:
        raise _BrokenOffError(f"{have:,} of {total:,} bytes came")


def _version(headers: Any) -> str:
    """What a server calls this version of a file, fit for If-Range; empty if it does not say."""
    etag = headers.get("ETag", "")
    return headers.get("Last-Modified", "") if etag.startswith("W/") or not etag else etag


def _continues(headers: Any, have: int) -> bool:
    return headers.get("Content-Range", "").startswith(f"bytes {have}-")


def _total(headers: Any) -> int | None:
    """Size in bytes of the whole file, if the server says."""
    said = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
    return int(said) if said.isdecimal() else None
