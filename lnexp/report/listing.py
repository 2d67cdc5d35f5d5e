"""Many runs in a table, for a terminal of any width; in one that is too narrow, two lines a run.

What all runs of a directory have in common is said once, above them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from lnexp.report.inventory import Entry, mapping, number

HEAD = ("run", "state", "updates", "eta", "valid loss", "BLEU", "tok.", "time", "age")
"""The name comes last, or in a line of its own."""
OPTIONAL = ("eta", "tok.")
"""Columns left out where no run has a value."""


def listing(entries: Sequence[Entry], width: int | None, now: float) -> str:
    """Write the runs as a table, by directory and recipe, and how to read the numbers.

    ``width`` in columns; None is as wide as it takes.
    """
    rows = [_cells(entry, now) for entry in entries]
    columns = [
        i for i, head in enumerate(HEAD) if head not in OPTIONAL or any(r[i] != "-" for r in rows)
    ]
    head, *shown = [[row[i] for i in columns] for row in (HEAD, *rows)]
    widths = [max(map(len, column)) for column in zip(head, *shown, strict=True)]
    table = iter(_aligned(cells, widths) for cells in shown)
    groups = [list(found) for _, found in groupby(entries, _group)]
    names = [_names(found) for found in groups]
    lines = [f"{_aligned(head, widths)}  name"]
    for found, some in zip(groups, names, strict=True):
        lines.append(elide(_heading(found), width))
        for name in some:
            row = next(table)
            beside = width is None or len(row) + 2 + len(name) <= width
            lines += [f"{row}  {name}"] if beside else [row, elide(f"    {name}", width)]
    return "\n".join([*(line.rstrip() for line in lines), "", *_notes(entries)])


def sort_entries(entries: Iterable[Entry], by: str) -> list[Entry]:
    """Sort by directory and recipe, then ``by`` name, age (youngest first), loss or bleu."""

    def key(entry: Entry) -> Any:
        value = {
            "name": None,
            "age": entry.seen,
            "loss": number(entry.result.get("valid_loss")),
            "bleu": entry.score("bleu"),
        }[by]
        up = value if by == "loss" or value is None else -value
        return _natural(str(entry.group)), entry.recipe, up is None, up or 0.0, _by_name(entry)

    return sorted(entries, key=key)


def clean(text: str) -> str:
    """Keep a foreign text from moving the cursor: one line, printable."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def short(path: Path) -> str:
    """The path from here where that is shorter."""
    absolute, relative = os.path.abspath(path), os.path.relpath(path)
    return clean(min(str(path), relative, absolute, key=len))


def clock(seconds: float | None) -> str:
    """Seconds as ``h:mm:ss``."""
    if seconds is None or not 0 <= seconds < 1e9:
        return "-"
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes}:{s:02}"


def age(seconds: float | None) -> str:
    """Seconds in the largest unit that they fill: 59s, 3m, 2h, 10d."""
    if seconds is None or seconds >= 1e10:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def number_cell(value: float | None, form: str) -> str:
    """Write a number, or ``-`` where there is none; very long ones in powers of ten."""
    if value is None:
        return "-"
    return format(value, form) if abs(value) < 1e6 else f"{value:.3e}"


def _group(entry: Entry) -> tuple[Path, str]:
    return entry.group, entry.recipe


def _heading(found: list[Entry]) -> str:
    directory, recipe = _group(found[0])
    where = short(directory)
    text = where if os.path.basename(where) == recipe else f"{where}  recipe {clean(recipe)}"
    common = _common(found)
    return f"{text}  (all: {clean('-'.join(common))})" if common else text


def _segments(entry: Entry) -> list[str]:
    # A segment starts with a letter: the minus in lr1e-05 ends none.
    return re.split(r"-(?=[A-Za-z])", re.sub(r"-[0-9a-f]{8}$", "", entry.name))


def _common(found: list[Entry]) -> list[str]:
    """The segments that every run of several has in its name."""
    names = [_segments(entry) for entry in found]
    if all(name == names[0] for name in names):
        return []
    return [s for s in names[0] if all(s in name for name in names)]


def _names(found: list[Entry]) -> list[str]:
    common = set(_common(found))
    return [clean("-".join(s for s in _segments(e) if s not in common)) for e in found]


def _cells(e: Entry, now: float) -> list[str]:
    unlearned = e.state == "finished" and e.result.get("learned") is False
    return [
        clean(e.handle),
        e.state + ("*" if unlearned else ""),
        f"{_count(e.t)}/{_count(e.updates)}",
        clock(e.eta(now)),
        _loss(e),
        number_cell(e.score("bleu"), ".2f"),
        number_cell(e.score("bleu_tokenised"), ".2f"),
        clock(number(e.result.get("seconds"))),
        age(None if e.seen is None else now - e.seen),
    ]


def _loss(e: Entry) -> str:
    """The validation loss at the end; until there is one, the last training loss, marked."""
    found = number(e.result.get("valid_loss"))
    so_far = None if e.result else number(e.status.get("loss"))
    return f"~{number_cell(so_far, '.3f')}" if so_far is not None else number_cell(found, ".3f")


def _count(value: int | None) -> str:
    return "-" if value is None else str(value) if abs(value) < 10**9 else f"{value:.1e}"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    words = 2  # the first columns are words, the others numbers
    return "  ".join(
        cell.ljust(width) if i < words else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )


def elide(text: str, width: int | None) -> str:
    """Cut the middle out of a text that is longer than ``width``."""
    if width is None or len(text) <= width:
        return text
    width = max(width, 10)
    half = (width - 2) // 2
    return f"{text[: width - 2 - half]}..{text[len(text) - half :]}"


def _natural(text: str) -> list[Any]:
    """Sort key in which 500 comes before 4000 and 1e-05 before 0.001."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d{1,3})?)", text)
    return [float(part) if i % 2 else part for i, part in enumerate(parts)]


def _by_name(entry: Entry) -> Any:
    return _natural(re.sub(r"-[0-9a-f]{8}$", "", entry.name)), entry.name, entry.version or 0


def _notes(entries: Sequence[Entry]) -> list[str]:
    states = [entry.state for entry in entries]
    counts = ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states))
    lines = [f"{len(entries)} run{'s' if len(entries) != 1 else ''}: {counts}"]
    if any(number(e.result.get("valid_loss")) is not None for e in entries):
        lines.append("valid loss: nats per target token, unsmoothed, of the last weights")
    for key, label in (("bleu", "BLEU"), ("bleu_tokenised", "tok. BLEU")):
        signed: dict[str, int] = {}
        for test in (mapping(e.result.get("test")) for e in entries):
            if number(test.get(key)) is not None:
                said = clean(f"beam {test.get('beam')}, {test.get(f'{key}_signature')}")
                signed[said] = signed.get(said, 0) + 1
        for said, n in signed.items():
            of = f" ({n} run{'s' if n != 1 else ''})" if len(signed) > 1 else ""
            lines.append(f"{label} on test{of}: {said}")
    if any(_loss(e).startswith("~") for e in entries):
        lines.append("~: training loss so far")
    if any(e.state == "finished" and e.result.get("learned") is False for e in entries):
        lines.append("*: no better than the unigram entropy of the targets; nothing was learned")
    for entry in entries:
        if entry.damage:
            lines.append(f"damaged: {short(entry.path)}: {clean('; '.join(entry.damage))}")
    return lines
