"""The findings for people and for programs: text for the terminal, Markdown, JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from lnexp.run_dir import finite
from lnexp.theory.departures import Scaling
from lnexp.theory.findings import REAL, THEOREM, Finding
from lnexp.theory.intervals import (
    CONTRADICTED,
    INCONCLUSIVE,
    SUPPORTED,
    Interval,
    Prediction,
)
from lnexp.theory.lab import label
from lnexp.theory.study import ASSUMPTIONS, TITLES, Study

COLOURS = {SUPPORTED: "green", CONTRADICTED: "red"}
HEAD = ("place", "setting", "predicted", "measured", "95 % interval", "verdict", "statement")

RULE = (
    "Contradicted: the interval lies wholly outside the prediction and its margin. Supported: the "
    "mean lies within the margin, and the interval is no wider than the resolution. Inconclusive: "
    "neither."
)


def number(x: float) -> str:
    """Four significant digits; rounding errors as such."""
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    if x and abs(x) < 1e-3:
        return f"{x:.0e}"
    return f"{x:.4g}" if abs(x) < 1000 else f"{x:,.0f}"


def predicted(p: Prediction) -> str:
    """The prediction with its margin."""
    if p.low == p.high:
        text = number(p.low)
    elif math.isinf(p.low):
        text = f"≤ {number(p.high)}"
    else:
        text = f"{number(p.low)} to {number(p.high)}"
    return f"{text} ± {number(p.margin)}" if p.margin else text


def interval(i: Interval) -> str:
    """From low to high, in digits that tell them apart; as distances from 1 where none do."""
    spread = i.high - i.low
    if not math.isfinite(spread):
        return "-" if math.isnan(i.mean) else f"{number(i.low)} to {number(i.high)}"
    if spread < 1e-4 and abs(i.mean - 1) < 1e-3:
        return f"1 {i.low - 1:+.0e} to 1 {i.high - 1:+.0e}"
    digits = 3 if spread <= 0 else min(6, max(2, 1 - math.floor(math.log10(spread))))
    return f"{i.low:.{digits}f} to {i.high:.{digits}f}"


def with_reach(i: Interval | None) -> str:
    """An exponent with half its interval; a dash where a gradient is zero."""
    if i is None or not math.isfinite(i.mean):
        return "-"
    return f"{i.mean:+.3f} ± {i.high - i.mean:.3f}"


def cells(f: Finding) -> list[str]:
    """One row of the table, under `HEAD`."""
    statement = f"{f.claim}: {f.quantity}" + (f" ({f.note})" if f.note else "")
    return [
        f.place, f.setting, predicted(f.prediction), number(f.measured.mean), interval(f.measured),
        f.verdict, statement,
    ]  # fmt: skip


def scaling_table(name: str, scalings: Sequence[Scaling]) -> list[list[str]]:
    """Exponents side by side, head first: of Post-LN and Pre-LN, or in the two settings."""
    by = {(s.what, s.placement, s.setting): s for s in scalings}
    names = list(dict.fromkeys(s.what for s in scalings))
    if name == ASSUMPTIONS:
        rows = [["assumption switched", "Post-LN, in L", "Pre-LN, in L", "Pre-LN, in ‖x‖²",
                 "Pre-LN, ‖x‖² in L"]]  # fmt: skip
        for what in names:
            post, pre = by[what, "post_ln", THEOREM], by[what, "pre_ln", THEOREM]
            shown = (post.in_depth, pre.in_depth, pre.in_norm, pre.norm_in_depth)
            rows.append([what, *map(with_reach, shown)])
        return rows
    rows = [["placement", "theorem, in L", "theorem, ‖x‖² in L", "real, in L", "real, ‖x‖² in L"]]
    for placement in dict.fromkeys(s.placement for s in scalings):
        what = label(placement)
        pair = (by[what, placement, THEOREM], by[what, placement, REAL])
        shown_pair = [i for s in pair for i in (s.in_depth, s.norm_in_depth)]
        rows.append([what, *map(with_reach, shown_pair)])
    return rows


def show(console: Console, study: Study) -> None:
    """Print the findings, two lines each, and the tables of exponents."""
    if study.findings:
        rows = [cells(f) for f in study.findings]
        widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
        console.print(_aligned(HEAD[:-1], widths), style="bold", soft_wrap=True)
        for finding, (*row, statement) in zip(study.findings, rows, strict=True):
            line = Text(_aligned(row, widths))
            line.highlight_words([finding.verdict], COLOURS.get(finding.verdict, "yellow"))
            console.print(line, soft_wrap=True)
            console.print(Text(f"    {statement}", style="dim"), soft_wrap=True)
        console.print(RULE, style="dim", soft_wrap=True)
        verdicts = [finding.verdict for finding in study.findings]
        counts = (f"{verdicts.count(v)} {v}" for v in (SUPPORTED, CONTRADICTED, INCONCLUSIVE))
        console.print(", ".join(counts), style="bold", soft_wrap=True)
    for name, scalings in study.scalings.items():
        table = scaling_table(name, scalings)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        console.print(f"\n{TITLES[name]}", style="bold", soft_wrap=True)
        for shown in table:
            console.print(Text(_aligned(shown, widths)), soft_wrap=True)


def _aligned(row: Iterable[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


def markdown(title: str, study: Study) -> str:
    """The same as a Markdown file, which names its figures."""
    lines = [f"# {title}", ""]
    if study.findings:
        lines += [*_table([list(HEAD), *map(cells, study.findings)]), "", RULE, ""]
    for name, scalings in study.scalings.items():
        lines += [f"## {TITLES[name]}", "", *_table(scaling_table(name, scalings)), ""]
    lines += [f"![{name}]({name}.png)" for name in (*study.results, *study.scalings)]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return [f"| {head} |", "|" + "---|" * len(rows[0]), *(f"| {row} |" for row in body)]


def as_json(about: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """The same for programs; what JSON has no number for is null."""
    plain = {
        **about,
        "rule": RULE,
        "findings": [dataclasses.asdict(f) for f in study.findings],
        "scalings": {
            name: [dataclasses.asdict(s) for s in rows] for name, rows in study.scalings.items()
        },
    }
    return dict(finite(plain))
