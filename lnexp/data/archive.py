"""The official archive of IWSLT14, read as the community's script reads it.

``de-en.tgz`` holds ``de-en/train.tags.de-en.{de,en}``, talks with their metadata in tag lines, and
``de-en/IWSLT14.*.de-en.{de,en}.xml``, test sets of which five make up the test text.  What comes out
is line for line what prepare-iwslt14.sh pipes into tokenizer.perl, blanks at the ends aside: tags
other than those named here stay, and so do XML entities (``&amp;``).  A byte order mark, which the
script would leave in the first line, is dropped; a carriage return is a blank at the end.
"""

from __future__ import annotations

import codecs
import gzip
import re
import tarfile
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from lnexp.data.download import download as download
from lnexp.errors import InputError

Sides = tuple[list[str], list[str]]

TESTS = (
    "IWSLT14.TED.dev2010",
    "IWSLT14.TEDX.dev2012",
    "IWSLT14.TED.tst2010",
    "IWSLT14.TED.tst2011",
    "IWSLT14.TED.tst2012",
)
"""The test text is these in this order: 6,750 pairs for German and English."""
SUFFIXES = (".tgz", ".tar.gz", ".tar")
DROPPED = ("<url>", "<talkid>", "<keywords>")
STRIPPED = ("<title>", "</title>", "<description>", "</description>")


def archive_files(path: Path, src: str, tgt: str) -> list[Path]:
    """The files that `read_archive` would read, none if ``path`` is no archive.

    It is one if it is a tar file by its name, or a directory with that or with what is in it.
    """
    if not path.is_dir():
        return [path] if path.is_file() and path.name.endswith(SUFFIXES) else []
    if _is_unpacked(path, src, tgt):
        names = [n for pair in _pairs(src, tgt) for side in (src, tgt) for n in _names(pair, side)]
        there = (folder / name for folder in _folders(path, src, tgt) for name in names)
        return [file for file in there if file.is_file()]
    packed = _packed(path, src, tgt)
    return [packed] if packed else []


def read_archive(path: Path, src: str, tgt: str) -> tuple[dict[str, Sides], dict[str, Any]]:
    """The raw ``train`` and ``test`` pairs, and their origin, of an archive, packed or unpacked.

    Either language may be the source.  Nothing is written: a tar file's members are read in place.
    """
    if path.is_dir() and not _is_unpacked(path, src, tgt):
        path = _packed(path, src, tgt) or path
    names = [n for pair in _pairs(src, tgt) for side in (src, tgt) for n in _names(pair, side)]
    content = _read_folder(path, src, tgt, names) if path.is_dir() else _read_tar(path, names)
    pair = max(_pairs(src, tgt), key=lambda pair: sum(f".{pair}." in name for name in content))
    sides = _names(pair, src), _names(pair, tgt)
    if missing := [name for side in sides for name in side if name not in content]:
        raise InputError(
            f"{path}: not the IWSLT14 archive of {src} and {tgt}, {missing[0]} is not there "
            f"({len(missing)} of {2 * len(sides[0])} files missing); get {pair}.tgz again"
        )
    splits: dict[str, Sides] = {"train": ([], []), "test": ([], [])}
    for both in zip(*sides, strict=True):
        tagged = both[0].startswith("train.tags")
        split, read = ("train", text_of_tagged) if tagged else ("test", text_of_segments)
        texts = [read(_decode(content[name], f"{path}, {name}")) for name in both]
        if len(texts[0]) != len(texts[1]):
            raise InputError(
                f"{path}: {both[0]} holds {len(texts[0]):,} lines of text, but {both[1]} "
                f"{len(texts[1]):,}; get the archive again"
            )
        if not texts[0]:
            raise InputError(f"{path}: {both[0]} holds no line of text; get the archive again")
        for side, text in zip(splits[split], texts, strict=True):
            side += text
    files = [{"name": name, "bytes": len(content[name])} for side in sides for name in side]
    return splits, {"source": "archive", "archive": path.name, "files": files}


def text_of_tagged(lines: Sequence[str]) -> list[str]:
    """The text of a ``train.tags`` file: lines of metadata left out, title and description kept."""
    text = [line for line in lines if not any(tag in line for tag in DROPPED)]
    for tag in STRIPPED:
        text = [line.replace(tag, "") for line in text]
    return [line.strip() for line in text]


def text_of_segments(lines: Sequence[str]) -> list[str]:
    """The segments of an XML file, one a line, with typewriter apostrophes.

    Training text keeps its typographic ones: so it is in the script, and in the data in use.
    """
    segments = [line for line in lines if "<seg id" in line]
    segments = [re.sub(r'<seg id="[0-9]*">\s*', "", line) for line in segments]
    segments = [re.sub(r"\s*</seg>\s*", "", line) for line in segments]
    return [line.replace("\u2019", "'").strip() for line in segments]


def _pairs(src: str, tgt: str) -> tuple[str, str]:
    return f"{src}-{tgt}", f"{tgt}-{src}"


def _names(pair: str, language: str) -> list[str]:
    tests = [f"{test}.{pair}.{language}.xml" for test in TESTS]
    return [f"train.tags.{pair}.{language}", *tests]


def _packed(folder: Path, src: str, tgt: str) -> Path | None:
    """The archive as a tar file in a directory."""
    files = (folder / f"{pair}{suffix}" for pair in _pairs(src, tgt) for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _folders(path: Path, src: str, tgt: str) -> list[Path]:
    return [path, *(path / pair for pair in _pairs(src, tgt))]


def _is_unpacked(path: Path, src: str, tgt: str) -> bool:
    trains = [f"train.tags.{pair}.{side}" for pair in _pairs(src, tgt) for side in (src, tgt)]
    return any((f / name).is_file() for f in _folders(path, src, tgt) for name in trains)


def _read_folder(path: Path, src: str, tgt: str, names: Collection[str]) -> dict[str, bytes]:
    content: dict[str, bytes] = {}
    for file in (f / name for f in _folders(path, src, tgt) for name in names):
        if file.is_file() and file.name not in content:
            try:
                content[file.name] = file.read_bytes()
            except OSError as error:
                raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
    return content


def _read_tar(path: Path, names: Collection[str]) -> dict[str, bytes]:
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                # What lies twice is read as tar would unpack it: the last stays.
                if name in names and member.isfile() and (file := tar.extractfile(member)):
                    content[name] = file.read()
            # gzip compares its check sum where the file ends, which is after the last member.
            while tar.fileobj and tar.fileobj.read(2**20):
                pass
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = str(error).partition("\n")[0].removesuffix(":")
        raise InputError(
            f"{path}: not a whole tar archive ({reason}); delete it and get it again"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    return content


def _decode(raw: bytes, where: str) -> list[str]:
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise InputError(
            f"{where}, line {number}: not UTF-8 (byte 0x{error.object[error.start]:02x}); "
            "get the archive again"
        ) from None
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]
