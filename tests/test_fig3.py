"""`make fig3`: gradient norms at initialisation, from measurements to curves, claims and files."""

import csv
import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from lnexp.errors import InputError
from lnexp.report.figures import STYLE, save
from lnexp.report.gradient_claims import claims, number, others, percent
from lnexp.report.gradient_figure import save_figure_3
from lnexp.report.gradients import (
    MATRICES,
    STACKS,
    Curve,
    Measurement,
    fitted_exponent,
    fitted_slope,
    load_measurement,
    shrinkage,
    trend,
)
from lnexp.report.warmup_runs import warmup_runs
from lnexp.theory.intervals import Interval, t_interval

SCRIPTS = Path(__file__).parents[1] / "scripts"
INF = math.inf
FORMATS = ("png", "svg", "pdf")


@pytest.fixture(scope="module")
def fig3():
    """The script as a module."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module("fig3")
    finally:
        sys.path.remove(str(SCRIPTS))


def script(*arguments):
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "fig3.py"), *map(str, arguments)],
        capture_output=True, text=True, timeout=250,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": str(SCRIPTS.parent)},
    )  # fmt: skip


WHO = {
    "model": {"d_model": 8, "d_ff": 16, "n_heads": 2, "n_layers": 2, "dropout": 0.1},
    "data": {"src": "de", "tgt": "en"}, "data_fingerprint": "f", "text": {"codes": None},
    "placement": {"_target_": "lnexp.model.placement.PostLN"}, "norm": {"eps": 1e-5},
}  # fmt: skip


def measured(norm, seed=1, n_layers=2):
    """A measurement whose norms are ``norm(stack, layer, matrix)``."""
    readings = {
        f"{metric}/{stack}_blocks.{layer - 1}.ffn.{matrix}.weight": norm(stack, layer, matrix)
        for metric in ("grad_norm", "mean_grad_norm")
        for stack in STACKS
        for layer in range(1, n_layers + 1)
        for matrix in MATRICES
    }
    config = {"seed": seed, "model": {**WHO["model"], "n_layers": n_layers}}
    return Measurement(Path("m.json"), {"config": config, "readings": readings, "identity": WHO})


def curve(name, by_layer, by_depth=None, n_layers=4, seeds=(1, 2, 3)):
    """A curve of exact laws, times 1 % more with each seed."""
    made = Curve(name, name.upper(), [])
    for seed in seeds:
        made.layers.append(measured(
            lambda stack, layer, matrix, f=1.01**seed: f * by_layer(stack, layer), seed, n_layers
        ))  # fmt: skip
        for n in (2, 4, 8) if by_depth else ():
            m = measured(lambda *_, f=1.01**seed, n=n: f * by_depth(n), seed, n)
            made.depth.setdefault(n, []).append(m)
    return made


# -- from numbers to curves


@pytest.mark.parametrize("a", [-1.5, -0.5, 0.0, 0.7])
def test_the_exponent_of_an_exact_power_law_is_found(a):
    assert fitted_exponent([(n, 3 * n**a) for n in (6, 8, 10, 12, 14)]) == pytest.approx(a)
    interval = curve("x", lambda *_: 1.0, lambda n: 3 * n**a).depth_exponent()
    assert interval.n == 3
    assert [interval.mean, interval.low, interval.high] == pytest.approx([a, a, a])


def test_growth_is_the_slope_of_the_log_norm_in_each_stack():
    made = curve("x", lambda stack, layer: 1.25**layer if stack == "decoder" else 0.9**layer)
    for matrix in MATRICES:
        assert made.growth("decoder", matrix).mean == pytest.approx(math.log(1.25))
        assert made.growth("encoder", matrix).mean == pytest.approx(math.log(0.9))


@pytest.mark.parametrize("bad", [0.0, math.nan, -1.0])
def test_no_law_is_fitted_through_what_has_no_logarithm(bad):
    assert math.isnan(fitted_exponent([(1, 1.0), (2, bad)]))
    assert math.isnan(fitted_slope([(1, bad), (2, 2.0)]))
    assert math.isnan(fitted_exponent([(1, 1.0)]))


def test_the_interval_over_seeds_is_students():
    made = Curve("x", "X", [measured(lambda *_, v=v: v, seed) for seed, v in ((1, 1.0), (2, 3.0))])
    first = made.profile("w1")[0]
    # Two values: mean 2, standard error 1, and t = 12.706 for one degree of freedom.
    assert (first.mean, first.n) == (2.0, 2)
    assert first.high == pytest.approx(2 + 12.7062, abs=1e-3)
    assert made.sublayers() == [("encoder", 1), ("encoder", 2), ("decoder", 1), ("decoder", 2)]


def test_a_norm_that_was_not_finite_is_no_number_and_a_missing_one_is_refused():
    m = measured(lambda *_: None)
    assert math.isnan(m.norm("encoder", 1, "w1"))
    with pytest.raises(InputError, match=r"m.json holds no grad_norm/encoder_blocks.6.ffn.w1.we"):
        m.norm("encoder", 7, "w1")


# -- what is said of them


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.04, 0.05, "flat"), (-0.2, -0.06, "falls"), (0.06, 0.2, "grows"),
        (-0.06, 0.01, "inconclusive"), (0.04, 0.06, "inconclusive"), (-INF, INF, "inconclusive"),
    ],
)  # fmt: skip
def test_a_trend_is_named_where_the_interval_decides(low, high, said):
    assert trend(Interval((low + high) / 2 if high < INF else 0.0, low, high, 3), 0.05) == said


def test_the_claims_are_supported_by_curves_as_in_the_paper():
    post = curve("post_ln", lambda stack, layer: 1.3**layer, lambda n: 1.6)
    pre = curve("pre_ln", lambda stack, layer: 1.0, lambda n: n**-0.5)
    after = curve("post_ln", lambda stack, layer: 0.13 * 1.3**layer)
    after.trained = True
    said = claims([post, pre, after])
    assert [line.split(". ")[0] for line in said] == [
        "C4, POST_LN: the gradient of the last feed-forward W2 does not depend on depth: supported",
        "C4, PRE_LN: the gradient of the last feed-forward W2 falls with depth: supported",
        "C5, POST_LN: gradients grow with the layer: supported",
        "C5, PRE_LN: gradients are the same in every layer: supported",
        "C5, POST_LN: gradients are smaller than at initialisation: supported",
    ]
    assert "(the paper: about 1.6 at every size, from batches of 4,096 tokens)" in said[0]
    assert "They are 0.13 [0.13, 0.13] times as large" in said[4]
    assert others([post, pre, after]) == []


def test_the_claims_are_contradicted_by_curves_of_the_other_kind():
    post = curve("post_ln", lambda stack, layer: 1.3**layer if stack == "decoder" else 1.0,
                 lambda n: n**0.2)  # fmt: skip
    pre = curve("pre_ln", lambda stack, layer: 0.9**layer, lambda n: 1.0)
    said = claims([post, pre])
    assert "does not depend on depth: contradicted. It goes as L^a, a = 0.2" in said[0]
    assert "falls with depth: contradicted" in said[1]
    assert "grow with the layer: contradicted (2 contradicted, 2 supported)" in said[2]
    assert "encoder W1 flat, +0.0 %" in said[2]
    assert "are the same in every layer: contradicted. From layer to layer" in said[3]


@pytest.mark.parametrize(("a", "verdict"), [(0.04, "supported"), (0.06, "contradicted")])
def test_an_exponent_of_a_twentieth_is_forgiven(a, verdict):
    post = curve("post_ln", lambda *_: 1.0, lambda n: n**a)
    assert f"does not depend on depth: {verdict}." in claims([post])[0]


def test_the_four_intervals_over_layers_hold_together():
    made = Curve("pre_ln", "P", [measured(lambda s, n, *_, g=g: g**n, seed)
                                 for seed, g in ((1, 1.0), (2, 1.1))])  # fmt: skip
    jointly = t_interval([0.0, math.log(1.1)], parts=4)
    assert percent(jointly) in claims([made])[0]


def test_one_seed_decides_nothing_and_zero_gradients_have_no_exponent():
    post = curve("post_ln", lambda *_: 1.0, lambda n: 1.6, seeds=(1,))
    assert all(": inconclusive. " in line for line in claims([post]))
    line = others([curve("rezero", lambda *_: 0.0, lambda n: 0.0)])[0]
    assert line == (
        "C4, REZERO: the gradient of the last feed-forward W2, against depth: inconclusive. It has "
        "no exponent, being zero or not finite somewhere; 0 at 2-2, 0 at 8-8."
    )


def test_trained_and_initial_gradients_are_compared_seed_by_seed():
    fresh = curve("post_ln", lambda *_: 1.0, seeds=(1, 2))
    after = curve("post_ln", lambda *_: 0.25, seeds=(2, 9))
    ratio = shrinkage(after, fresh)
    assert (ratio.n, math.exp(ratio.mean)) == (1, pytest.approx(0.25))
    assert shrinkage(curve("post_ln", lambda *_: 1.0, seeds=(9,)), fresh).n == 0


def test_half_widths_are_rounded_to_two_digits_that_count():
    assert number(Interval(1.59034, 1.5554, 1.62528, 10)) == "1.590 ± 0.035"
    assert number(Interval(123.4, 100.0, 146.8, 10)) == "123 ± 23"
    assert number(Interval(0.5, -INF, INF, 1)) == "0.5"


def test_any_number_of_placements_is_drawn_zero_and_infinite_gradients_included(tmp_path):
    curves = [
        curve(f"p{i}", lambda *_, i=i: i, lambda n, i=i: i / n, 2, seeds=(1, 2)[: 1 + i % 2])
        for i in range(8)
    ]
    curves.append(curve("nan", lambda *_: math.nan, lambda n: math.nan, 2))
    command = "lnexp train " + "a/very/long/path" * 40
    files = save_figure_3(curves, ["title"], command, tmp_path / "f")
    assert [path.name for path in files] == [f"f.{kind}" for kind in FORMATS]
    assert "needs a run" in files[1].read_text()


def test_a_figure_is_the_same_bytes_each_time_in_each_format(tmp_path):
    written = []
    for name in "ab":
        figure = Figure()
        figure.subplots().plot([1, 2])
        with mpl.rc_context(STYLE):
            written.append([p.read_bytes() for p in save(figure, tmp_path / name, FORMATS)])
    assert written[0] == written[1]


# -- which runs stand for the curve after warm-up


def a_run(root, name, version=1, outcome="finished", experiments=("fig3_warmup",), t=10, **who):
    path = root / name / f"v{version}"
    (path / "checkpoints").mkdir(parents=True)
    (path / "checkpoints" / "last.pt").write_bytes(b"")
    identity = {**WHO, "seed": 1, "schedule": {"warmup": 10}, "optimizer": {"lr": 1e-3}, **who}
    for file, value in (
        ("identity", {"hash": name, "identity": identity}),
        ("result", {"outcome": outcome, "updates": t}),
        ("env", {"sessions": [{"experiments": list(experiments)}]}),
    ):
        (path / f"{file}.json").write_text(json.dumps({"schema": 1, **value}))
    return path


def test_runs_that_differ_from_the_figure_are_not_taken(tmp_path):
    peer = measured(lambda *_: 1.0)
    a_run(tmp_path, "diverged", outcome="diverged")
    a_run(tmp_path, "other-experiment", experiments=("postln_warmup",))
    a_run(tmp_path, "went-on", t=20)
    a_run(tmp_path, "larger", model={**WHO["model"], "d_ff": 32})
    a_run(tmp_path, "other-text", data_fingerprint="g")
    a_run(tmp_path, "other-placement", placement={"_target_": "lnexp.model.placement.PreLN"})
    gone = a_run(tmp_path, "no-weights")
    (gone / "checkpoints" / "last.pt").unlink()
    assert warmup_runs(tmp_path, peer) == ([], [])


def test_runs_of_one_setting_are_taken_one_for_each_seed(tmp_path):
    peer = measured(lambda *_: 1.0)
    dropout = {**WHO["model"], "dropout": 0.3}  # is no size
    two = a_run(tmp_path, "two", seed=2, model=dropout)
    a_run(tmp_path, "one", seed=1, model=dropout)
    one = a_run(tmp_path, "one", version=2, seed=1, model=dropout)
    other = a_run(tmp_path, "other", seed=3)
    runs, remarks = warmup_runs(tmp_path, peer)
    assert [run.path for run in runs] == [one, two]
    assert remarks == [f"left out: run of +exp=fig3_warmup with other settings: {other}"]
    result = {"schema": 1, "outcome": "finished", "updates": 10, "learned": False}
    (two / "result.json").write_text(json.dumps(result))
    runs, remarks = warmup_runs(tmp_path, peer)
    assert [run.path for run in runs] == [one, two]
    assert remarks[1].startswith("the run of seed 2 learned nothing (its loss is no better than")


# -- the script


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "0"], "fig3: --seeds=0 must be at least 1"),
        (["--jobs", "0"], "fig3: --jobs=0 must be at least 1"),
        (["--sizes", "6,x"], "fig3: --sizes=6,x must be numbers from 1, such as 6,8,10,12,14"),
        (["--placements", ", "], "fig3: --placements names none; write --placements post_ln,pre_ln"),
        (["seed=3"], "fig3: seed=3: here seed is set with --seeds"),
        (["model.n_layers=3"], "fig3: model.n_layers=3: here model.n_layers is set with --layers"),
        (["+exp=postln_warmup"], "fig3: +exp=postln_warmup: here exp is set with the script"),
    ],
)  # fmt: skip
def test_what_the_figure_cannot_do_is_refused_in_one_line(fig3, capsys, arguments, message):
    assert fig3.main(arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith(message)
    assert (said.err.count("\n"), said.out) == (1, "")


def test_a_placement_that_is_not_there_ends_with_the_line_of_lnexp_probe(tmp_path):
    done = script("--quick", "--placements", "pst_ln", "--jobs", 1, f"runs_dir={tmp_path}")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("lnexp: placement=pst_ln: there is no such placement; did you mean post")


def test_the_command_for_the_missing_run_is_complete(fig3):
    options = fig3._parser().parse_intermixed_args(
        [
            "--quick",
            "--recipe",
            "files",
            "data.path=a b",
            "train.tokens_per_batch=64",
            "data.src=de",
        ]
    )
    assert fig3.missing_command(fig3._wanted(options)) == (
        "lnexp train +exp=fig3_warmup recipe=files model.n_layers=4 model.d_model=128 "
        "model.d_ff=256 'data.path=a b' data.src=de"
    )


@pytest.mark.parametrize("jobs", [1, 2, 64])
@pytest.mark.parametrize("seeds", [1, 2, 10])
def test_every_measurement_is_planned_once_whatever_the_number_of_processes(fig3, jobs, seeds):
    options = fig3._parser().parse_intermixed_args(["--seeds", str(seeds)])
    plans = fig3.initial(fig3._wanted(options), jobs)
    planned = []
    for plan in plans:
        words = dict(word.partition("=")[::2] for word in plan.command)
        planned += [
            (plan.experiment, words["placement"], n, seed)
            for n in words["model.n_layers"].split(",")
            for seed in words["seed"].split(",")
        ]
    assert len(planned) == len(set(planned)) == 2 * 6 * seeds
    assert sum(len(plan.costs) for plan in plans) == len(planned)


def test_measurements_are_gathered_by_placement_and_size(fig3):
    options = fig3._parser().parse_intermixed_args(["--seeds", "2", "--sizes", "2,3"])
    wanted = fig3._wanted(options)
    plans = fig3.initial(wanted, 1)
    found = []
    for plan in plans:
        words = dict(word.partition("=")[::2] for word in plan.command)
        size = 1.0 if plan.placement == "pre_ln" else 2.0
        found.append([
            measured(lambda *_, size=size: size, int(seed), int(n))
            for n in words["model.n_layers"].split(",") for seed in words["seed"].split(",")
        ])  # fmt: skip
    post, pre = fig3.gather(wanted, plans, found)
    assert (post.label, pre.label) == ("Post-LN", "Pre-LN")
    for made, size in ((post, 2.0), (pre, 1.0)):
        assert [m.seed for m in made.layers] == [1, 2]
        assert made.n_layers == 6
        assert [(n, len(ms)) for n, ms in made.depth.items()] == [(2, 2), (3, 2)]
        assert made.last()[3].mean == size


def test_measurements_that_are_too_few_or_damaged_are_refused(fig3, tmp_path, capsys):
    path = tmp_path / "probes" / "m.json"
    path.parent.mkdir()
    path.write_text("{}")
    command = [sys.executable, "-c", f"print({str(path)!r})"]
    plan = fig3.Plan("some", command, [1.0, 1.0], "post_ln", "fig3_layers")
    with pytest.raises(InputError, match="some: 1 measurements instead of 2; give each key one"):
        fig3.measure("fig3", [plan], 1, "all")
    with pytest.raises(InputError, match=r"m.json is no measurement of lnexp probe; delete it"):
        fig3.measure("fig3", [plan._replace(costs=[1.0])], 1, "all")
    with pytest.raises(InputError, match="is no measurement"):
        load_measurement(tmp_path / "nowhere.json")


def test_the_figure_from_text_to_files_and_again_after_a_warm_up(
    fig3, lnexp, tiny, tmp_path, capfd
):
    keys = [key for key in tiny if not key.startswith(("recipe=", "threads=", "model.n_layers="))]
    arguments = ["--recipe", "files", "--seeds", "2", "--layers", "1", "--sizes", "1,2",
                 "--placements", "post_ln", "--jobs", "2", *keys]  # fmt: skip
    wanted = fig3._wanted(fig3._parser().parse_intermixed_args(arguments))
    plans = fig3.initial(wanted, 2)
    said = [lnexp(*plan.command[3:], check=0).stdout.splitlines() for plan in plans]
    paths = [[Path(line) for line in lines if line.endswith(".json")] for lines in said]
    found = [[load_measurement(path) for path in of_plan] for of_plan in paths]
    assert fig3.conclude(wanted, fig3.gather(wanted, plans, found), []) == 0
    (command,) = [line.split("): ")[1] for line in capfd.readouterr().out.splitlines()
                  if line.startswith("the curve after warm-up needs a run")]  # fmt: skip
    stem = tmp_path / "runs" / "figures" / "fig3-files-post_ln"  # not the two that are the default
    assert "needs a run" in stem.with_suffix(".svg").read_text()  # where each text is a comment
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs" / "files" / "probes").iterdir()}
    assert len(made) == 2 + 2 * 2

    # The command that it prints makes the curve; nothing that was measured is measured again.
    lnexp(*command.split()[1:], "threads=1", check=0)
    assert fig3.main(arguments) == 0
    out = capfd.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in made} == made
    assert "needs a run" not in out
    assert "C5, Post-LN after warm-up (10 updates): gradients are" in out
    files = [Path(line.split(maxsplit=1)[1]) for line in out.splitlines()
             if line.startswith("figure  ")]  # fmt: skip
    assert files == [stem.with_suffix(f".{kind}") for kind in (*FORMATS, "csv", "md")]
    check_numbers(files, made)


def check_numbers(files, made):
    """The CSV holds what the measurements hold, the page its means."""
    with files[3].open() as file:
        rows = list(csv.DictReader(file))
    fresh = [row for row in rows if row["trained"] == "false"]
    # Seeds x stacks x matrices x metrics + sizes x seeds.
    assert len(fresh) == 2 * 2 * 2 * 2 + 2 * 2
    assert len(rows) - len(fresh) == 2 * 2 * 2
    assert {Path(row["file"]) for row in fresh} == set(made)
    for row in fresh:
        readings = json.loads(Path(row["file"]).read_text())["readings"]
        name = f"{row['metric']}/{row['stack']}_blocks.{int(row['layer']) - 1}.ffn"
        assert float(row["norm"]) == readings[f"{name}.{row['matrix']}.weight"]
    deep = [float(row["norm"]) for row in fresh
            if (row["experiment"], row["n_layers"]) == ("depth", "2")]  # fmt: skip
    (line,) = [line for line in files[4].read_text().splitlines() if line.startswith("| 2-2 |")]
    shown, half = line.split("|")[2].split(" ± ")
    # Of two values the t-interval reaches 12.706 times half their distance.
    assert float(half) == pytest.approx(12.7062 * abs(deep[0] - deep[1]) / 2, rel=0.05)
    assert float(shown) == pytest.approx(sum(deep) / 2, abs=float(half) / 10 + 1e-3)
