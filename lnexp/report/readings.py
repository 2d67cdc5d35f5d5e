"""Measurements of `lnexp probe` read back, and as tables: a row a layer, a column a matrix."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLACE = re.compile(r"^(encoder|decoder)(?:_blocks)?\.(\w+)(?:\.(.+?))?(?:\.weight)?$")
"""Stack, layer (from 0, or a word) and what of the layer, in the name behind a reading's ``/``."""


def read_measurement(path: Path) -> dict[str, Any]:
    """The content of a measurement's file, {} where it is missing or damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def is_reading(value: Any) -> bool:
    """Whether ``value`` is numbers by name, None for what was not finite."""
    return isinstance(value, dict) and all(
        v is None or (isinstance(v, (int, float)) and not isinstance(v, bool))
        for v in value.values()
    )


def readings_table(readings: Mapping[str, float | None]) -> str:
    """Write readings, named ``metric/place``, as one table a metric and stack.

    Layers count from 1, as in the paper; what has no place in a layer comes last, a line each.
    """
    tables: dict[tuple[str, str], dict[str, dict[str, float | None]]] = {}
    rest: list[str] = []
    for name, value in readings.items():
        metric, _, place = name.partition("/")
        match = PLACE.match(place)
        if match is None:
            rest.append(f"{name}  {_cell(value)}")
            continue
        stack, layer, what = match.groups()
        label = str(int(layer) + 1) if layer.isdigit() else layer
        tables.setdefault((metric, stack), {}).setdefault(label, {})[what or metric] = value
    blocks = [_table(f"{m}, {stack}", rows) for (m, stack), rows in tables.items()]
    return "\n\n".join([*blocks, *(["\n".join(rest)] if rest else [])])


def _table(title: str, rows: Mapping[str, Mapping[str, float | None]]) -> str:
    columns = list(dict.fromkeys(what for row in rows.values() for what in row))
    cells = [["layer", *columns]]
    cells += [
        [layer, *(_cell(row[c]) if c in row else "" for c in columns)]
        for layer, row in rows.items()
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def _cell(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4g}"
