"""`make fig3`: Figure 3 of the paper, gradient norms at initialisation by layer and by depth.

Every number is a measurement of `lnexp probe`, in a file of its own below runs_dir: this script can
be stopped anywhere, and the same command makes those that are missing.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from children import cores
from sweeps import Plan, measure

from lnexp.atomic import atomic_write
from lnexp.errors import InputError
from lnexp.report.gradient_claims import claims, others
from lnexp.report.gradient_figure import save_figure_3
from lnexp.report.gradient_tables import model_words, page, points_csv, provenance, summary
from lnexp.report.gradients import LABELS, Curve, Measurement
from lnexp.report.inventory import Entry
from lnexp.report.warmup_runs import EXPERIMENT, warmup_runs

SIZES = (6, 8, 10, 12, 14)
QUICK = ("model.d_model=128", "model.d_ff=256")
QUICK_SIZES = (2, 4)
QUICK_SEEDS = 2

OWN = {
    "recipe": "--recipe", "seed": "--seeds", "placement": "--placements",
    "model.n_layers": "--layers and --sizes", "exp": "the script itself",
    "init_from": "the script itself", "dry_run": "lnexp train",
}  # fmt: skip
"""Keys that are not for overrides here, and what they are set with."""

OF_MEASURING = ("train.", "probes.", "probes=", "threads=", "repeat=")
"""Overrides that say how is measured; the run of the warm-up goes without them."""


@dataclass(frozen=True)
class Wanted:
    """What the figure is to show."""

    recipe: str
    seeds: tuple[int, ...]
    placements: tuple[str, ...]
    layers: int
    sizes: tuple[int, ...]
    overrides: tuple[str, ...]
    stem: str

    def command(self, experiment: str, *sweep: str) -> list[str]:
        """A process of `lnexp probe`."""
        return [sys.executable, "-m", "lnexp", "probe", "-m", f"+exp={experiment}",
                f"recipe={self.recipe}", "threads=1", *self.overrides, *sweep]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Measure what is missing and draw the figure; return the exit code."""
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    try:
        wanted = _wanted(options)
    except InputError as error:
        print(f"fig3: {error}", file=sys.stderr)
        return 2
    try:
        plans = initial(wanted, options.jobs)
        code, found = measure("fig3", plans, options.jobs, "all")
        if code:
            return code
        curves = gather(wanted, plans, found)
        post = [curve.layers[0] for curve in curves if curve.name == "post_ln"]
        root = runs_dir(curves) / wanted.recipe
        runs, notes = warmup_runs(root, post[0]) if post else ([], [])
        if runs:
            plans = [after_warmup(wanted, run) for run in runs]
            code, found = measure("fig3", plans, options.jobs, "all")
            if code:
                return code
            label = f"{LABELS['post_ln']} after warm-up ({runs[0].t} updates)"
            curves.append(Curve("post_ln", label, [m for ms in found for m in ms], trained=True))
        return conclude(wanted, curves, notes)
    except InputError as error:
        print(f"fig3: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fig3.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", default="demo", help="data and training recipe (default: demo)")
    parser.add_argument("--seeds", type=int, help="how many, from 1 (default: 10)")
    parser.add_argument("--placements", default="post_ln,pre_ln", help="A,B,... in one picture")
    parser.add_argument("--layers", type=int, help="of each stack in (a) and (b) (default: 6)")
    parser.add_argument("--sizes", help="layers in (c) (default: 6,8,10,12,14)")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (default: cores)")
    parser.add_argument("--quick", action="store_true", help="a small model, in under a minute")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE for all, as in lnexp probe")
    return parser


def _wanted(options: argparse.Namespace) -> Wanted:
    """What the command line asks for; raises `InputError` where that makes no sense."""
    quick = options.quick
    seeds = options.seeds if options.seeds is not None else QUICK_SEEDS if quick else 10
    sizes = _numbers("--sizes", options.sizes) or (QUICK_SIZES if quick else SIZES)
    layers = (
        options.layers if options.layers is not None else QUICK_SIZES[-1] if quick else SIZES[0]
    )
    for name, value in (("--seeds", seeds), ("--layers", layers), ("--jobs", options.jobs)):
        if value < 1:
            raise InputError(f"{name}={value} must be at least 1")
    placements = tuple(dict.fromkeys(re.split(r"[,\s]+", options.placements.strip(" ,"))))
    if not all(placements):
        raise InputError("--placements names none; write --placements post_ln,pre_ln")
    for override in options.overrides:
        key = override.partition("=")[0].lstrip("+~")
        if key in OWN:
            raise InputError(f"{override}: here {key} is set with {OWN[key]}")
    overrides = (*(QUICK if quick else ()), *options.overrides)
    others = () if placements == ("post_ln", "pre_ln") else placements
    stem = "-".join(["fig3", options.recipe, *others, *(["quick"] if quick else [])])
    return Wanted(options.recipe, tuple(range(1, seeds + 1)), placements, layers, sizes,
                  overrides, stem)  # fmt: skip


def _numbers(name: str, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", text):
        raise InputError(f"{name}={text} must be numbers from 1, such as 6,8,10,12,14")
    return tuple(sorted(set(map(int, text.split(",")))))


def initial(wanted: Wanted, jobs: int) -> list[Plan]:
    """Plan the measurements at initialisation, those of the deep networks first.

    They are cut so that each of ``jobs`` processes has several turns, but no turn is much shorter
    than the start of a process.
    """
    n, sizes = len(wanted.seeds), wanted.sizes
    share = max(10.0, n * len(wanted.placements) * (1 + len(sizes)) / (3 * jobs))
    plans = []
    for experiment, what in (("fig3_depth", sizes), ("fig3_layers", (wanted.layers,))):
        pieces = min(n, max(1, round(n * len(what) / share)))
        for placement in wanted.placements:
            for seeds in _cut(wanted.seeds, pieces):
                command = wanted.command(
                    experiment, f"placement={placement}", f"seed={','.join(map(str, seeds))}",
                    f"model.n_layers={','.join(map(str, what))}",
                )  # fmt: skip
                label = f"{LABELS.get(placement, placement)} {experiment[5:]}"
                if len(seeds) < n:
                    label += f", seeds {seeds[0]}-{seeds[-1]}"
                costs = [float(k) for k in what for _ in seeds]  # in proportion to the layers
                plans.append(Plan(label, command, costs, placement, experiment))
    return plans


def _cut(seeds: Sequence[int], pieces: int) -> list[Sequence[int]]:
    """Cut into pieces of nearly one length."""
    bounds = [round(i * len(seeds) / pieces) for i in range(pieces + 1)]
    return [seeds[a:b] for a, b in pairwise(bounds)]


def gather(
    wanted: Wanted, plans: Sequence[Plan], found: Sequence[list[Measurement]]
) -> list[Curve]:
    """Put the measurements together, a curve for each placement."""
    curves = []
    for placement in wanted.placements:
        curve = Curve(placement, LABELS.get(placement, placement), [])
        for plan, measurements in zip(plans, found, strict=True):
            for m in measurements if plan.placement == placement else ():
                if plan.experiment == "fig3_layers":
                    curve.layers.append(m)
                else:
                    curve.depth.setdefault(m.n_layers, []).append(m)
        curves.append(curve)
    return curves


def after_warmup(wanted: Wanted, run: Entry) -> Plan:
    """Plan a measurement of the weights that a run ended with, with the run's seed."""
    seed = run.identity["identity"]["seed"]
    start = str(run.path).replace("\\", "\\\\").replace("'", "\\'")
    command = wanted.command(
        "fig3_layers", "placement=post_ln", f"seed={seed}", f"model.n_layers={wanted.layers}",
        f"init_from='{start}@last'",
    )  # fmt: skip
    return Plan(f"after warm-up, seed {seed}", command, [1.0], "post_ln", "fig3_layers")


def missing_command(wanted: Wanted) -> str:
    """Write the command that trains what the curve after warm-up needs."""
    words = ["lnexp", "train", f"+exp={EXPERIMENT}", f"recipe={wanted.recipe}"]
    if wanted.layers != SIZES[0]:
        words.append(f"model.n_layers={wanted.layers}")
    words += [word for word in wanted.overrides if not word.startswith(OF_MEASURING)]
    return shlex.join(words)


def conclude(wanted: Wanted, curves: Sequence[Curve], remarks: Sequence[str]) -> int:
    """Draw, write the tables, and say what they say."""
    config = curves[0].layers[0].record["config"]
    needs = "post_ln" in wanted.placements and not any(curve.trained for curve in curves)
    missing = missing_command(wanted) if needs else None
    stem = runs_dir(curves) / "figures" / wanted.stem
    name = f"Gradient norms at initialisation, recipe {wanted.recipe}"
    title = [
        f"{name}: {model_words(config['model'])}.",
        f"A point is the Frobenius norm of a gradient averaged over "
        f"{config['train']['batches_per_update']} batches of about "
        f"{config['train']['tokens_per_batch']} tokens:",
        "one seed." if len(wanted.seeds) == 1 else
        f"mean and 95 % t-interval over n = {len(wanted.seeds)} seeds.",
    ]  # fmt: skip
    files = save_figure_3(curves, title, missing, stem)
    said, notes = claims(curves), list(remarks)
    if missing is not None:
        notes.append(f"the curve after warm-up needs a run (-m seed=1,2,3: several): {missing}")
    for kind, text in (
        ("csv", points_csv(curves)),
        ("md", page(name, curves, [*said, *others(curves)], notes)),
    ):
        files.append(stem.with_name(f"{stem.name}.{kind}"))
        atomic_write(files[-1], text)
    lines = [
        "", *provenance(curves)[1:3], "", summary(curves), "", *said, *notes, "",
        *(f"figure  {path}" for path in files),
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    return 0


def runs_dir(curves: Sequence[Curve]) -> Path:
    """Where measurements and runs lie: <runs_dir>/<recipe>/probes/<name>.json."""
    return curves[0].layers[0].path.parents[2]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # before the first measurement was begun, or after the last one
        sys.exit(130)
