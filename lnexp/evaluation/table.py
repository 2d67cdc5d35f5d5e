"""Scores as a table for people; `lnexp eval --json` has every digit."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

Row = dict[str, Any]

SCORES = {"bleu": "BLEU", "bleu_tokenised": "tokenised BLEU", "chrf": "chrF"}


def print_scores(rows: list[Row]) -> None:
    """Print a table of the rows, and below it once how the scores were computed."""
    runs = list(dict.fromkeys(row["run"] for row in rows))
    text = rows[0].get("split") or rows[0]["input"]
    print(f"{text}, {rows[0]['sentences']:,} sentences")
    for number, run in enumerate(runs, 1):
        print(f"run {number}: {run}" if len(runs) > 1 else f"run: {run}")
    names = [name for name in SCORES if name in rows[0]]
    tested = [name for name in names if any(f"{name}_p" in row for row in rows)]
    # Wider than any terminal: a long line that wraps is better than a score that is cut.
    Console(width=400, highlight=False, markup=False).print(_table(rows, runs, names, tested))
    for name in names:
        key = f"{name}_bootstrap_signature"
        for signature in dict.fromkeys(r.get(key, r[f"{name}_signature"]) for r in rows):
            print(f"{SCORES[name]}  {signature}")
    if any(f"{name}_half_width" in rows[0] for name in names):
        print("\u00b1: half of the 95 % interval by bootstrap resampling")
    if tested:
        print("p: paired bootstrap test against run 1")


def _table(rows: list[Row], runs: list[str], names: list[str], tested: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    columns = ["run"] if len(runs) > 1 else []
    columns += ["checkpoint", "update", "beam", "lenpen", "loss (nats)", "smoothed (bits)"]
    for column in (*columns, *(SCORES[name] for name in names)):
        table.add_column(column, justify="left" if column == "checkpoint" else "right")
    for name in tested:
        table.add_column(f"p ({SCORES[name]})", justify="right")
    for row in rows:
        first = [str(runs.index(row["run"]) + 1)] if len(runs) > 1 else []
        cells = [
            row["checkpoint"], ",".join(map(str, row["updates"])), str(row["beam"]),
            exact(row["length_penalty"]), _number(row.get("loss"), 4),
            _number(row.get("loss_smoothed_bits"), 4),
            *(_interval(row, name) for name in names),
            *(_number(row.get(f"{name}_p"), 4) for name in tested),
        ]  # fmt: skip
        table.add_row(*first, *cells)
    return table


def exact(value: float) -> str:
    """The shortest text that gives ``value`` back, without a needless ``.0``."""
    return repr(float(value)).removesuffix(".0")


def _number(value: Any, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _interval(row: Row, name: str) -> str:
    text = _number(row[name], 2)
    half = row.get(f"{name}_half_width")
    return text if half is None else f"{text} \u00b1 {half:.2f}"
