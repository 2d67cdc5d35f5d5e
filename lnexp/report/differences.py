"""What tells runs apart: config, code, machine, data, result. Only what differs is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lnexp.identity import canonical
from lnexp.report.inventory import Entry, Json, mapping, number
from lnexp.report.listing import clean, elide, short
from lnexp.run_dir import RunDir

Rows = dict[str, list[Any]]
"""A value for each run by key; None where a run has none."""

SECTIONS = ("config", "execution config", "code", "machine", "data", "result")


def differences(entries: Sequence[Entry]) -> dict[str, Rows]:
    """Compare runs: of each of `SECTIONS` the keys whose values are not the same in all."""
    tables = [sections(entry) for entry in entries]
    return {name: _differing([table[name] for table in tables]) for name in SECTIONS}


def sections(entry: Entry) -> dict[str, Json]:
    """Everything known of a run, flat: ``model.d_model``, ``packages.torch``, ..."""
    identity = mapping(entry.identity.get("identity"))
    scientific = flat({k: v for k, v in identity.items() if k != "data_fingerprint"})
    result = {k: v for k, v in entry.result.items() if k not in ("schema", "config_hash", "git")}
    result = {"outcome": entry.state, "updates": entry.t} | result
    return {
        "config": scientific,
        "execution config": {
            key: value for key, value in flat(config(entry)).items() if key not in scientific
        },
        "code": code(entry),
        "machine": machine(entry),
        "data": {"fingerprint": identity.get("data_fingerprint")}
        | flat(mapping(entry.env.get("data"))),
        "result": flat(result),
    }


def config(entry: Entry) -> Json:
    """``config.yaml``; {} where it is missing or damaged."""
    import yaml  # half of the time that listing a few runs takes

    try:
        text = RunDir(entry.path).config_file.read_text(encoding="utf-8")
        # Through JSON: a foreign file may hold dates, keys that are numbers, or itself.
        return mapping(json.loads(json.dumps(yaml.safe_load(text), skipkeys=True, default=str)))
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return {}


def code(entry: Entry) -> Json:
    """Version, commit, uncommitted changes, Python and packages over all sessions of a run."""
    found: dict[str, list[str]] = {}
    for session in entry.sessions:
        state = mapping(session.get("code"))
        values = {
            "version": state.get("version"),
            "commit": state.get("commit"),
            "uncommitted": changes(state.get("diff")),
            "python": session.get("python"),
            **{f"packages.{k}": v for k, v in mapping(session.get("packages")).items()},
        }
        for key, value in values.items():
            found.setdefault(key, []).append("none" if value is None else str(value))
    schema = entry.identity.get("result_schema")
    return {"result_schema": schema} | {k: _in_turn(values) for k, values in found.items()}


def machine(entry: Entry) -> Json:
    """Where the run was trained, over all its sessions."""
    found: dict[str, list[str]] = {}
    for session in entry.sessions:
        gpus = session.get("gpus")
        session = session | {"gpus": ", ".join(map(str, gpus)) if isinstance(gpus, list) else None}
        for key in ("host", "platform", "cpu", "cpus", "threads", "gpus"):
            found.setdefault(key, []).append(str(session.get(key) or "none"))
    return {key: _in_turn(values) for key, values in found.items()}


def changes(diff: Any) -> str | None:
    """Say how large a git diff is, and which: lines added, removed, and its SHA-256."""
    if not isinstance(diff, str) or not diff:
        return None
    lines = diff.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    digest = hashlib.sha256(diff.encode("utf-8", "surrogatepass")).hexdigest()
    return f"+{added} -{removed} lines, sha256 {digest[:12]}"


def flat(value: Mapping[str, Any], prefix: str = "") -> Json:
    """Nested mappings as one with dotted keys; an empty one is a value."""
    result: Json = {}
    for key, inner in value.items():
        name = f"{prefix}{key}"
        result |= flat(inner, f"{name}.") if isinstance(inner, dict) and inner else {name: inner}
    return result


def _in_turn(values: Sequence[str]) -> str:
    return ", then ".join(v for i, v in enumerate(values) if i == 0 or v != values[i - 1])


def _differing(tables: Sequence[Json]) -> Rows:
    keys = dict.fromkeys(key for table in tables for key in table)
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {key: row for key, row in rows.items() if any(not _same(row[0], v) for v in row[1:])}


def _same(a: Any, b: Any) -> bool:
    a, b = canonical(a), canonical(b)
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)  # True == 1 in Python


def differences_text(entries: Sequence[Entry], width: int | None) -> str:
    """Write `differences` for people; a number of a result also as its distance to the first."""
    letters = [chr(ord("A") + i) if i < 26 else f"#{i + 1}" for i in range(len(entries))]
    lines = [f"{a}  {short(e.path)}  ({e.state})" for a, e in zip(letters, entries, strict=True)]
    for entry in entries:
        lines += [f"damaged: {short(entry.path)}: {clean(fault)}" for fault in entry.damage]
    for name, rows in differences(entries).items():
        if not rows:
            lines += ["", f"{name}: the same"]
            continue
        cells = [[clean(key), *_shown(name, row)] for key, row in rows.items()]
        lines += ["", *_table([name, *letters], cells, width)]
    signatures = {
        clean(f"beam {test['beam']}, {test['bleu_signature']}")
        for test in (mapping(e.result.get("test")) for e in entries)
        if "bleu_signature" in test and "beam" in test
    }
    if len(signatures) == 1:
        lines += ["", f"BLEU on test: {signatures.pop()}"]
    return "\n".join(lines)


def _shown(section: str, row: Sequence[Any]) -> list[str]:
    first = number(row[0])
    texts = []
    for i, value in enumerate(row):
        known = number(value)
        if section == "result" and known is not None:
            text = f"{known:,.4f}" if isinstance(value, float) else f"{known:,.0f}"
            if i and first is not None and known != first:
                step = known - first
                text += f" ({step:+,.4f})" if isinstance(value, float) else f" ({step:+,.0f})"
        else:
            text = words(value)
        texts.append(text)
    return texts


def words(value: Any) -> str:
    """Write a value of a config or a result as yaml would, in one line."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return clean(str(value))


def _table(head: Sequence[str], cells: Sequence[list[str]], width: int | None) -> list[str]:
    """Write rows as columns, or where that is too wide as a block a key."""
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    if width is None or sum(widths) + 2 * len(widths) <= width:
        return [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in (head, *cells)
        ]
    lines = [head[0]]
    for key, *values in cells:
        lines.append(f"  {key}")
        lines += [elide(f"    {a}  {v}", width) for a, v in zip(head[1:], values, strict=True)]
    return lines
