"""One figure for each statement: what was measured, with intervals, over what is predicted."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lnexp.atomic import atomic_write
from lnexp.report.figures import COLOURS, LINES, MARKERS, STYLE
from lnexp.theory.departures import Scaling
from lnexp.theory.findings import Curve, Panel
from lnexp.theory.intervals import Interval
from lnexp.theory.lab import BOTH, label

NAMES = tuple(map(label, BOTH))


def draw_panels(panels: Sequence[Panel], title: str, stem: Path) -> list[Path]:
    """Draw the panels of a statement as ``stem``.png and .svg; dashed is the prediction."""
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    rows = math.ceil(len(panels) / columns)

    def draw(figure: Any) -> None:
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, panel in zip(grid, panels):
            _panel(axes, panel)
        for axes in grid[len(panels) :]:
            axes.remove()

    return _save(draw, (5.0 * columns, 4.1 * rows + 0.4), title, stem)


def draw_scalings(scalings: Sequence[Scaling], title: str, stem: Path) -> list[Path]:
    """Draw exponents in L as a dot with its interval, one line for each network."""
    names = list(dict.fromkeys(s.what for s in scalings))
    groups = list(dict.fromkeys((_kind(s, scalings), s.setting) for s in scalings))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for i, (kind, setting) in enumerate(groups):
            shown = [s for s in scalings if (_kind(s, scalings), s.setting) == (kind, setting)]
            shown = [s for s in shown if math.isfinite(s.in_depth.mean)]
            heights = [-names.index(s.what) - 0.12 * (i - (len(groups) - 1) / 2) for s in shown]
            axes.errorbar(
                [s.in_depth.mean for s in shown], heights,
                xerr=_reach([s.in_depth for s in shown]), fmt=MARKERS[i % len(MARKERS)],
                color=COLOURS[i % len(COLOURS)], capsize=3, label=f"{kind}{setting}",
            )  # fmt: skip
        for bound in (0.0, -0.5):
            axes.axvline(bound, color="#444444", linestyle=":", linewidth=1.2)
        axes.set_yticks([-i for i in range(len(names))], names)
        axes.set(xlabel="exponent of ||dL/dW$^{2,L}$|| in L (dotted: 0 and -1/2, the theorem)")
        figure.legend(loc="outside lower center", ncols=len(groups), frameon=False)

    return _save(draw, (9.0, 1.6 + 0.42 * len(names)), title, stem)


def _kind(scaling: Scaling, among: Sequence[Scaling]) -> str:
    """Say which placement, unless the line itself does."""
    named = all(s.what == label(s.placement) for s in among)
    return "" if named else f"{label(scaling.placement)}, "


def _panel(axes: Any, panel: Panel) -> None:
    for i, curve in enumerate(panel.curves):
        # Post-LN and Pre-LN look the same in every panel, also where one is alone.
        _curve(axes, curve, NAMES.index(curve.label) if curve.label in NAMES else i)
    axes.set(title=panel.title, xlabel=panel.x, ylabel=panel.y)
    if panel.log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:.4g}")
    else:
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.legend(frameon=False)


def _curve(axes: Any, curve: Curve, i: int) -> None:
    colour = COLOURS[i % len(COLOURS)]
    means = [m.mean for m in curve.measured]
    axes.errorbar(
        curve.xs, means, yerr=_reach(curve.measured), color=colour,
        marker=MARKERS[i % len(MARKERS)], markersize=4, linewidth=1.4, capsize=2, label=curve.label,
    )  # fmt: skip
    if curve.predicted is None:
        return
    lows, highs = ([getattr(p, end) for p in curve.predicted] for end in ("low", "high"))
    if lows == highs:
        axes.plot(curve.xs, lows, color=colour, linestyle=LINES[1], linewidth=1.1, alpha=0.8)
    else:
        axes.fill_between(curve.xs, lows, highs, color=colour, alpha=0.15, linewidth=0)


def _reach(measured: Sequence[Interval]) -> list[list[float]]:
    """How far an interval reaches down and up; nowhere if it is not finite."""
    down = [m.mean - m.low if math.isfinite(m.low) else 0.0 for m in measured]
    up = [m.high - m.mean if math.isfinite(m.high) else 0.0 for m in measured]
    return [down, up]


def _save(draw: Any, size: tuple[float, float], title: str, stem: Path) -> list[Path]:
    import matplotlib as mpl  # two seconds, paid only by who draws
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        figure.suptitle(title)
        paths = []
        for kind in ("png", "svg"):
            file = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(file, format=kind, dpi=150, metadata=metadata)
            paths.append(stem.with_name(f"{stem.name}.{kind}"))
            atomic_write(paths[-1], file.getvalue())
    return paths
