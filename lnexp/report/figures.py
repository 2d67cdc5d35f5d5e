"""Figures from run directories, the same bytes for the same records.

Colours are those of Okabe and Ito (2008), told apart by colour-blind readers; line styles and
markers differ as well, so that a figure survives a black-and-white print.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lnexp.atomic import atomic_write
from lnexp.report.load import Run
from lnexp.report.tables import Arm

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (7, 2)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")

SMOOTHING = 5
"""Rows of training loss in one running mean."""

STYLE = {
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.hashsalt": "lnexp",  # else the ids in an SVG are random
}


def setting(run: Run) -> str:
    """Say in a line what the arms of a comparison share: recipe, model size, rate and seed."""
    c = run.config
    model, optimizer = c["model"], c["optimizer"]
    name = str(optimizer["_target_"]).rsplit(".", 1)[-1]
    layers = model["n_layers"]
    return (
        f"{c['recipe']['name']}: {layers}+{layers} layers, d_model {model['d_model']}, "
        f"{name}, peak lr {float(optimizer['lr']):g}, seed {c['seed']}"
    )


def save_curves(arms: Sequence[Arm], title: str, stem: Path) -> list[Path]:
    """Draw validation loss and BLEU of the arms against the update, as ``stem``.png and .svg."""
    import matplotlib as mpl  # two seconds, paid only by who draws
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.9), layout="constrained")
        FigureCanvasAgg(figure)
        loss, bleu = figure.subplots(1, 2)
        for i, arm in enumerate(arms):
            _draw_arm(loss, bleu, arm, i)
        _finish_loss(loss, arms)
        bleu.set(xlabel="update", ylabel="BLEU", title="Validation BLEU")
        bleu.set_xlim(left=0)
        bleu.set_ylim(0, max(1.0, bleu.get_ylim()[1]))
        figure.suptitle(title)
        figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=2,
                      frameon=False, handlelength=3.5)  # fmt: skip

        return save(figure, stem, ("png", "svg"))


def save(figure: Any, stem: Path, kinds: Sequence[str]) -> list[Path]:
    """Write a figure as ``stem``.png, .svg or .pdf, without a date in it; return the files."""
    dated = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in kinds:
        file = io.BytesIO()
        figure.savefig(file, format=kind, dpi=150, metadata={dated[kind]: None})
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        atomic_write(paths[-1], file.getvalue())
    return paths


def _draw_arm(loss: Any, bleu: Any, arm: Arm, i: int) -> None:
    colour = COLOURS[i % len(COLOURS)]
    style = {"color": colour, "linestyle": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)],
             "markersize": 6, "linewidth": 2}  # fmt: skip
    ts, values = arm.run.curve("train", "loss")
    loss.plot(ts, running_mean(values, SMOOTHING), color=colour, linewidth=0.9, alpha=0.55)
    outcome = arm.run.outcome
    if outcome == "diverged":
        outcome = f"diverged at {arm.run.diverged_at}"
        loss.plot(
            ts[-1:], values[-1:], marker="x", markersize=11, markeredgewidth=2.5, color=colour
        )
    ended = "" if outcome == "finished" else f" ({outcome})"
    loss.plot(*arm.run.curve("valid", "loss"), label=f"{arm.label}{ended}", **style)
    # Not clipped at 0, where a bad run lies; an empty line would then have no place in the layout.
    (line,) = bleu.plot(*arm.run.curve("valid", "bleu"), clip_on=False, **style)
    line.set_in_layout(False)


def _finish_loss(loss: Any, arms: Sequence[Arm]) -> None:
    loss.set(xlabel="update", ylabel="nats per target token")
    loss.set_title("Validation loss (thin: training, smoothed)")
    loss.set_xlim(left=0)
    found = [arm.run.result.get("unigram_entropy") for arm in arms]
    entropies = {entropy for entropy in found if entropy is not None}
    if len(entropies) == 1:
        entropy = entropies.pop()
        loss.axhline(
            entropy, color="#444444", linestyle=":", label="unigram entropy of the targets"
        )
        if loss.get_ylim()[1] > 4 * entropy:  # an arm that blew up must not flatten the others
            loss.set_yscale("log")
            return
    loss.set_ylim(bottom=0)


def running_mean(values: Sequence[float], width: int) -> list[float]:
    """Mean of each value and its neighbours, ``width`` in all, fewer at the ends (still centred)."""
    means = []
    for i in range(len(values)):
        reach = min(width // 2, i, len(values) - 1 - i)
        window = values[i - reach : i + reach + 1]
        means.append(sum(window) / len(window))
    return means
