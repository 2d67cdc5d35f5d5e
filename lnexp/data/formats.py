"""One file of text, in any of the formats in use, as lines; nothing is dropped or repaired.

Files are read in parts of `PART` pairs at most, so that their size does not matter.

A line ends at a line feed and nowhere else: U+2028 and U+0085 are text.  A byte order mark at the
beginning and a carriage return before a line feed are not.

==================== =============================================================================
plain text           one sentence a line
``.tsv``             two or more columns, no quoting; if the first line names both languages, it
                     says which columns they are, else source and target come first, in that order
``.jsonl .json``     one object a line, ``{"de": ..., "en": ...}`` or under a key ``translation``
``.parquet``         columns likewise
==================== =============================================================================

All but parquet may be gzipped (``.gz``).
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from lnexp.data.corpus import Pairs
from lnexp.errors import InputError

PART = 50_000
TABLES = (".tsv", ".jsonl", ".json", ".parquet")


def table_format(name: str) -> str | None:
    """The member of `TABLES` that a file name ends in, ``.gz`` aside; None for plain text."""
    plain = name.removesuffix(".gz")
    return next((suffix for suffix in TABLES if plain.endswith(suffix)), None)


def read_both(src: Path, tgt: Path) -> Iterator[Pairs]:
    """Parts of two files, line n of one the translation of line n of the other."""
    left, right = read_lines(src), read_lines(tgt)
    n = 0
    while True:
        pairs = list(islice(left, PART)), list(islice(right, PART))
        n += len(pairs[0])
        if len(pairs[0]) != len(pairs[1]):
            n_left, n_right = n + _count(left), n - len(pairs[0]) + len(pairs[1]) + _count(right)
            raise InputError(
                f"{src} has {n_left:,} lines, but {tgt} has {n_right:,}; line n of one must "
                "translate line n of the other"
            )
        if not pairs[0]:
            return
        yield pairs


def read_table(path: Path, src: str, tgt: str) -> Iterator[Pairs]:
    """Parts of a file that holds both languages (see `TABLES`)."""
    match table_format(path.name):
        case ".tsv":
            return _in_parts(_read_tsv(path, src, tgt))
        case ".parquet":
            return _read_parquet(path, src, tgt)
        case _:
            return _in_parts(_read_jsonl(path, src, tgt))


def _count(lines: Iterable[str]) -> int:
    return sum(1 for _ in lines)


def _in_parts(pairs: Iterator[tuple[str, str]]) -> Iterator[Pairs]:
    while part := list(islice(pairs, PART)):
        yield [one for one, _ in part], [other for _, other in part]


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a plain or gzipped UTF-8 file, one after another, without their ends."""
    number = 1
    try:
        # gzip decompresses by small blocks when asked for lines; the buffer asks for large ones.
        opened: Any = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rb") as raw, io.BufferedReader(raw, 2**20) as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if b"\0" in line:
                    raise InputError(
                        f"{path}, line {number}: holds a NUL byte, so it is not UTF-8 text; "
                        "convert the file to UTF-8"
                    )
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(
            f"{path}, line {number}: not UTF-8 (byte 0x{byte:02x}); convert the file to UTF-8"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: not a whole gzip file ({error}); copy it again") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _read_tsv(path: Path, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    columns = (0, 1)
    for number, line in enumerate(read_lines(path), 1):
        row = line.split("\t")
        if number == 1 and src in row and tgt in row:
            columns = (row.index(src), row.index(tgt))
            continue
        if len(row) <= max(columns):
            raise InputError(
                f"{path}, line {number}: {len(row)} column{'s'[: len(row) > 1]}, where {src} and "
                f"{tgt} are columns {columns[0] + 1} and {columns[1] + 1}; separate them by one TAB"
            )
        yield row[columns[0]], row[columns[1]]


def _read_jsonl(path: Path, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error}); write one object a line") from None
        if not isinstance(row, dict):
            raise InputError(f"{where}: {type(row).__name__}, not an object; write one a line")
        nested = row.get("translation")
        fields = nested if isinstance(nested, dict) else row
        for language in (src, tgt):
            if language not in fields:
                raise InputError(_no_column(where, language, fields))
        yield _text(fields[src], where, src), _text(fields[tgt], where, tgt)


def _text(value: object, where: str, language: str) -> str:
    if not isinstance(value, str):
        raise InputError(
            f"{where}: {language} is {json.dumps(value)[:40]}, not text; mend or drop it"
        )
    try:
        value.encode()  # JSON can spell half of a surrogate pair, UTF-8 cannot
    except UnicodeEncodeError:
        raise InputError(f"{where}: {language} holds half a surrogate pair; mend it") from None
    return value


def _read_parquet(path: Path, src: str, tgt: str) -> Iterator[Pairs]:
    import pyarrow
    import pyarrow.parquet

    n = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            wanted = [name for name in ("translation", src, tgt) if name in names]
            columns = file.schema_arrow.empty_table().select(wanted)
            pairs_of_arrow(columns, src, tgt, str(path), names)  # if the file has no row at all
            for batch in file.iter_batches(PART, columns=wanted):
                table = pyarrow.Table.from_batches([batch])
                yield pairs_of_arrow(table, src, tgt, str(path), names, before=n)
                n += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as parquet ({reason}); copy it again") from None


def pairs_of_arrow(
    table: Any, src: str, tgt: str, where: str, names: list[str], *, before: int = 0
) -> tuple[list[str], list[str]]:
    """Both sides of an arrow table with columns per language, flat or under ``translation``.

    ``names`` are all the columns there are, for the message if the right ones are not among them;
    ``before`` is how many rows came in earlier tables.
    """
    import pyarrow
    import pyarrow.compute

    columns = {name: table[name] for name in table.column_names}
    nested = columns.get("translation")
    if nested is not None and pyarrow.types.is_struct(nested.type):
        inner = [nested.type.field(i).name for i in range(nested.type.num_fields)]
        columns = {name: pyarrow.compute.struct_field(nested, name) for name in inner}
        names = [f"translation.{name}" for name in inner]
    sides = []
    for language in (src, tgt):
        if language not in columns:
            raise InputError(_no_column(where, language, names))
        column = columns[language]
        kind = column.type
        kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        # An empty shard may have columns of no type at all.
        if str(kind) not in ("string", "large_string", "string_view", "null"):
            raise InputError(f"{where}: column {language} holds {column.type}, not text")
        values = column.to_pylist()
        if column.null_count:
            row = before + values.index(None) + 1
            raise InputError(f"{where}, row {row}: {language} is null, not text; mend or drop it")
        sides.append(values)
    return sides[0], sides[1]


def _no_column(where: str, language: str, columns: Any) -> str:
    found = ", ".join(map(str, columns)) or "none"
    return f"{where}: no column {language} (columns: {found}); set data.src and data.tgt to two"
