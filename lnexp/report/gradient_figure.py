"""Figure 3, drawn: gradient norms by feed-forward sublayer, and of the last one against depth."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lnexp.report.figures import COLOURS, LINES, STYLE, save
from lnexp.report.gradient_claims import number
from lnexp.report.gradients import MATRICES, Curve, half_width
from lnexp.theory.intervals import Interval

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h", "d", "8")
"""One for each placement: there are more of them than colours."""

GAP = 1.0
"""Between encoder and decoder, in sublayers."""

SPAN = 15.0
"""Largest over smallest mean from which a panel's axis is logarithmic."""

SMALL = {"font.size": 8.5, "axes.titlesize": 9.5, "legend.fontsize": 8.5, "lines.linewidth": 1.4,
         "lines.markersize": 4.5}  # fmt: skip


def save_figure_3(
    curves: Sequence[Curve], title: Sequence[str], missing: str | None, stem: Path
) -> list[Path]:
    """Draw the three panels and their legend as ``stem``.png, .svg and .pdf.

    ``title`` is a line in bold and lines below it; ``missing`` is what to run for the curve that
    is not there.
    """
    import matplotlib as mpl  # two seconds, paid only by who draws
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context({**STYLE, **SMALL}):
        # The legend needs a line for each curve, and the missing command its own.
        command = [] if missing is None else textwrap.wrap(missing, 52, break_on_hyphens=False)
        lower = max(2.7, 0.7 + 0.19 * len(curves) + (0.3 + 0.12 * len(command)) * bool(command))
        figure = Figure(figsize=(7.4, 3.3 + lower), layout="constrained")
        FigureCanvasAgg(figure)
        (w1, w2), (depth, legend) = figure.subplots(2, 2, height_ratios=(2.7, lower))
        styles = [_style(curves, curve) for curve in curves]
        for axes, matrix, letter in zip((w1, w2), MATRICES, "ab", strict=True):
            _by_sublayer(axes, curves, styles, matrix)
            axes.set_title(f"({letter}) {matrix.upper()}, every feed-forward sublayer", loc="left")
        _by_depth(depth, curves, styles)
        depth.set_title("(c) W2, last feed-forward sublayer", loc="left")
        _legend(legend, curves, styles, command)
        figure.suptitle("\n".join(title), fontsize=8.5, x=0.01, ha="left", linespacing=1.3)
        return save(figure, stem, ("png", "svg", "pdf"))


def _style(curves: Sequence[Curve], curve: Curve) -> dict[str, Any]:
    """Colour, line and marker; a trained curve has the colour of its placement."""
    names = list(dict.fromkeys(c.name for c in curves))
    i = names.index(curve.name)
    style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)],
             "linestyle": LINES[(i + i // len(COLOURS)) % len(LINES)], "capsize": 2.5,
             "elinewidth": 1.0}  # fmt: skip
    if curve.trained:
        style |= {"linestyle": ":", "marker": "x", "markeredgewidth": 1.4}
    return style


def _draw(axes: Any, xs: Sequence[float], ys: Sequence[Interval], style: dict[str, Any]) -> None:
    """Draw means with their intervals; a mean that is zero or no number has no place."""
    shown = [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(y.mean)]
    reach = [half_width(y) if math.isfinite(half_width(y)) else 0.0 for _, y in shown]
    axes.errorbar([x for x, _ in shown], [y.mean for _, y in shown], yerr=reach, **style)


def _by_sublayer(
    axes: Any, curves: Sequence[Curve], styles: Sequence[dict[str, Any]], matrix: str
) -> None:
    n = curves[0].n_layers
    means = []
    for curve, style in zip(curves, styles, strict=True):
        profile = curve.profile(matrix)
        means += [interval.mean for interval in profile]
        aside = (curves.index(curve) - (len(curves) - 1) / 2) * min(0.14, 0.5 / len(curves))
        for start, half in ((1, profile[:n]), (n + 1 + GAP, profile[n:])):
            _draw(axes, [start + k + aside for k in range(n)], half, style)
    if _spread(means) > SPAN:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.axvline(n + 0.5 + GAP / 2, color="#999999", linewidth=0.8)
    ticks = [*range(1, n + 1), *(k + n + GAP for k in range(1, n + 1))]
    axes.set_xticks(ticks, [str(k) for k in (*range(1, n + 1), *range(1, n + 1))])
    axes.grid(visible=False, axis="x")
    centres = ((n + 1) / 2, (n + 1) / 2 + n + GAP)
    axes.set_xticks(centres, ["\nencoder layer", "\ndecoder layer"], minor=True)
    axes.tick_params(axis="x", which="minor", length=0, pad=5)
    axes.set_ylabel("gradient norm")


def _spread(means: Sequence[float]) -> float:
    """Largest over smallest of the means above 0."""
    positive = [mean for mean in means if mean > 0]
    return max(positive) / min(positive) if positive else 1.0


def _by_depth(axes: Any, curves: Sequence[Curve], styles: Sequence[dict[str, Any]]) -> None:
    deep = [(c, s) for c, s in zip(curves, styles, strict=True) if c.depth]
    for curve, style in deep:
        last = curve.last()
        _draw(axes, list(last), list(last.values()), style)
    sizes = sorted({n for curve, _ in deep for n in curve.depth})
    axes.set_xscale("log")
    if _spread([i.mean for c, _ in deep for i in c.last().values()]) > 1:
        axes.set_yscale("log")
    _guide(axes, [curve for curve, _ in deep], sizes)
    axes.set_xticks(sizes, [f"{n}-{n}" for n in sizes])
    axes.minorticks_off()
    _plain_ticks(axes)
    axes.set_xlabel("layers (encoder-decoder)")
    axes.set_ylabel("gradient norm")


def _guide(axes: Any, curves: Sequence[Curve], sizes: Sequence[int]) -> None:
    """Draw ``L^(-1/2)`` from where Pre-LN begins, else from the first curve."""
    if not curves or len(sizes) < 2:
        return
    curve = next((c for c in curves if c.name == "pre_ln"), curves[0])
    start = curve.last()[sizes[0]].mean
    if not start > 0:
        return
    ys = [start * (n / sizes[0]) ** -0.5 for n in sizes]
    axes.plot(sizes, ys, color="#777777", linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    axes.annotate("$L^{-1/2}$", (sizes[-1], ys[-1]), xytext=(3, 0), textcoords="offset points",
                  va="center", color="#555555")  # fmt: skip


def _plain_ticks(axes: Any) -> None:
    """Write plain numbers, and enough of them, on a logarithmic axis of about a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axes.get_ylim()
    if axes.get_yscale() == "log" and high / low < 40:
        subs = (1, 1.2, 1.5, 2, 3, 4, 5, 7) if high / low < 4 else (1, 2, 3, 5)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=30))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:.3g}"))


def _legend(
    axes: Any, curves: Sequence[Curve], styles: Sequence[dict[str, Any]], command: Sequence[str]
) -> None:
    """Fill the fourth cell: what each curve is, its exponent, and what is not there."""
    axes.set_axis_off()
    handles = []
    for curve, style in zip(curves, styles, strict=True):
        label = curve.label
        if curve.depth:
            exponent = number(curve.depth_exponent()).replace("-", "\N{MINUS SIGN}")
            label += f": $L^a$, a = {exponent}" if exponent[-1].isdigit() else f": a {exponent}"
        if curve.trained:
            label = f"{label},\nn = {len(curve.layers)}"
        handles.append(axes.errorbar([], [], [], label=label, **style))
    legend = axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(-0.02, 1.02), frameon=False,
        handlelength=3.2, borderpad=0, labelspacing=0.45,
        title="Curves, and exponents fitted in (c)", alignment="left",
    )  # fmt: skip
    legend.get_title().set_fontsize(9)
    if command:
        axes.text(0, 0, "Post-LN after warm-up needs a run:", fontsize=8, va="bottom",
                  transform=_lifted(axes, len(command)))  # fmt: skip
        axes.text(0, 0, "\n".join(command), fontsize=6.5, family="monospace", va="bottom",
                  transform=axes.transAxes)  # fmt: skip


def _lifted(axes: Any, lines: int) -> Any:
    """Axes coordinates, higher by so many lines of the command."""
    from matplotlib.transforms import ScaledTranslation

    height = (lines * 6.5 * 1.22 + 2) / 72
    return axes.transAxes + ScaledTranslation(0, height, axes.figure.dpi_scale_trans)
