"""`lnexp probe`: the first update of a run, measured and not made; starting from given weights."""

import json
import shutil
from itertools import islice
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from lnexp.build import build
from lnexp.config import conf_dir
from lnexp.report.readings import readings_table
from lnexp.run_dir import RunDir
from lnexp.train import accumulate_gradients, seed_dropout
from lnexp.validate import validate

EXP = "+exp=postln_nowarmup"


def measured(done):
    return Path(done.stdout.splitlines()[-1])


def parts_of(*overrides):
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        cfg = validate(compose("config", list(overrides)))
    from lnexp.build import build_plan

    return build(cfg, lambda line: None), build_plan(cfg)


def test_a_probe_reads_what_the_first_update_of_training_reads(lnexp, tiny):
    path = measured(lnexp("probe", EXP, *tiny, "train.updates=2", check=0))
    run = measured(lnexp("train", EXP, *tiny, "train.updates=2", check=0))
    rows = [row for row in RunDir(run).metrics() if row["kind"] == "probe" and row["t"] == 1]
    first = {k: v for k, v in rows[0].items() if k.startswith("grad_norm/")}
    record = json.loads(path.read_text())
    assert record["readings"] == first
    assert record["identity"]["recipe"] == {"name": "files"}
    train_row = next(row for row in RunDir(run).metrics() if row["kind"] == "train")
    assert record["loss"] == train_row["loss"]


def test_expected_and_mean_gradient_norms_by_hand(lnexp, tiny):
    keys = [*tiny, "train.batches_per_update=3", "probes=[grad_norm,mean_grad_norm]"]
    readings = json.loads(measured(lnexp("probe", EXP, *keys, check=0)).read_text())["readings"]
    parts, plan = parts_of(EXP, *keys)
    model, task = parts.state.model, parts.task
    name = "encoder_blocks.0.ffn.w1.weight"
    sums, n = [], 0
    for i, batch in enumerate(islice(task.batches(start=0), 3)):
        seed_dropout(plan.seed, 1, i)
        model.zero_grad()
        loss = task.loss(model.train(), batch)
        loss.objective.backward()
        sums.append(model.get_parameter(name).grad.clone())
        n += loss.n_targets
    expected = (sums[0] + sums[1] + sums[2]).norm().item() / n
    mean = sum(g.norm().item() for g in sums) / n
    assert expected < mean
    assert readings[f"grad_norm/{name}"] == pytest.approx(expected, rel=1e-5)
    assert readings[f"mean_grad_norm/{name}"] == pytest.approx(mean, rel=1e-5)


def test_a_measurement_is_made_once(lnexp, tiny):
    path = measured(lnexp("probe", EXP, *tiny, check=0))
    before = path.stat().st_mtime_ns
    again = lnexp(
        "probe", EXP, *tiny, "probes.grad_norm.every=7", check=0
    )  # a cadence is no matter
    assert measured(again) == path
    assert path.stat().st_mtime_ns == before
    lnexp("probe", EXP, *tiny, "repeat=true", check=0)
    assert path.stat().st_mtime_ns > before
    other = measured(lnexp("probe", EXP, *tiny, "seed=2", check=0))
    assert other.parent == path.parent
    assert other != path
    record = json.loads(path.read_text())
    for damaged in ("{", "[]", json.dumps(record | {"readings": [1]}),
                    json.dumps(record | {"readings": {"grad_norm/x": "large"}})):  # fmt: skip
        path.write_text(damaged)
        lnexp("probe", EXP, *tiny, check=0)
        assert json.loads(path.read_text())["readings"] == record["readings"]


def test_what_clipping_makes_of_the_step_is_measured_too(lnexp, tiny):
    keys = [*tiny, "probes=[update_size]", "optimizer=sgd", "train.clip_norm=0.01"]
    path = measured(lnexp("probe", EXP, *keys, check=0))
    run = measured(lnexp("train", EXP, *keys, "train.updates=1", check=0))
    row = next(row for row in RunDir(run).metrics() if row["kind"] == "probe")
    readings = json.loads(path.read_text())["readings"]
    assert readings
    assert readings == {key: row[key] for key in readings}


def test_gradients_that_no_probe_looks_at_are_spared_and_change_nothing(lnexp, tiny):
    everything = json.loads(measured(lnexp("probe", EXP, *tiny, check=0)).read_text())["readings"]
    one = "decoder_blocks.0.ffn.w2.weight"
    some = lnexp("probe", EXP, *tiny, "probes.grad_norm.params='decoder.*ffn.w2.weight'", check=0)
    readings = json.loads(measured(some).read_text())["readings"]
    assert readings == {f"grad_norm/{one}": pytest.approx(everything[f"grad_norm/{one}"])}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("~probes.grad_norm", "no probe is left to measure; name some"),
        ("init_from=@last", "init_from=@last: name a run, RUN or RUN@CHECKPOINT"),
        ("probes.grad_norm.params=nothing", "probes: params='nothing' matches no parameter"),
        ("dry_run=true", "dry_run=true is for lnexp train"),
        ("init_from=/nowhere/v1", "init_from=/nowhere/v1: /nowhere/v1 is no run directory"),
    ],
)
def test_a_mistake_gets_one_line_and_nothing_is_written(lnexp, tiny, tmp_path, override, message):
    done = lnexp("probe", EXP, *tiny, override)
    assert done.returncode == 2
    assert done.stderr.startswith(f"lnexp: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_init_from_starts_from_the_weights_of_a_run(lnexp, tiny):
    run = measured(lnexp("train", EXP, *tiny, "train.updates=3", check=0))
    saved = torch.load(run / "checkpoints" / "last.pt", weights_only=True)["model"]
    odd = run.parents[3] / "with @t"
    shutil.copytree(run, odd / "v1")
    for name in (run, run.parent, odd / "v1", f"{odd}/v1@last"):  # a version, or the latest
        parts, plan = parts_of(EXP, *tiny, f"init_from={name}")
        for key, value in parts.state.model.state_dict().items():
            assert torch.equal(value, saved[key]), key
    fresh, _ = parts_of(EXP, *tiny)
    assert "init_from" not in fresh.identity
    assert len(parts.identity["init_from"]) == 64
    # The measurement is that of the trained weights; the run may be named by its hash.
    name = run.parent.name.rpartition("-")[2]
    done = lnexp("probe", EXP, *tiny, f"init_from={name}@3", check=0)
    readings = json.loads(measured(done).read_text())["readings"]
    batches = list(islice(parts.task.batches(start=0), 1))
    accumulate_gradients(parts.state.model, parts.task, batches, 1, plan)
    name = "decoder_blocks.0.ffn.w1.weight"
    norm = parts.state.model.get_parameter(name).grad.norm().item()
    assert readings[f"grad_norm/{name}"] == pytest.approx(norm, rel=1e-5)


def test_init_from_refuses_what_does_not_fit(lnexp, tiny):
    run = measured(lnexp("train", EXP, *tiny, "train.updates=3", check=0))
    for override, message in (
        ("data.vocab_size=50", "that run has another vocabulary; take its recipe and data"),
        ("model.d_model=32", "its weights do not fit this model; take model and placement from"),
    ):
        done = lnexp("probe", EXP, *tiny, f"init_from={run}", override)
        assert done.returncode == 2
        assert message in done.stderr
    done = lnexp("probe", EXP, *tiny, f"init_from={run}@2")
    assert done.returncode == 2
    assert done.stderr.startswith("lnexp: init_from=RUN@2: ")
    assert "does not keep the weights of update 2" in done.stderr


def test_a_run_that_starts_from_other_weights_is_another_run(lnexp, tiny):
    first = measured(lnexp("train", EXP, *tiny, "train.updates=3", check=0))
    second = measured(lnexp("train", EXP, *tiny, "train.updates=3", f"init_from={first}", check=0))
    assert first.parent != second.parent
    losses = [next(r["loss"] for r in RunDir(p).metrics() if r["kind"] == "train")
              for p in (first, second)]  # fmt: skip
    assert losses[0] != losses[1]


def test_readings_are_tables_by_layer():
    readings = {"grad_norm/encoder_blocks.0.ffn.w1.weight": 0.5,
                "grad_norm/encoder_blocks.0.ffn.w2.weight": 0.25,
                "grad_norm/encoder_blocks.1.ffn.w1.weight": None,
                "stream/decoder.in": 2.0, "stream/decoder.0": 3.0,
                "sharpness": 7.0}  # fmt: skip
    assert readings_table(readings).splitlines() == [
        "grad_norm, encoder",
        "layer      ffn.w1  ffn.w2",
        "    1         0.5    0.25",
        "    2  not finite",
        "",
        "stream, decoder",
        "layer  stream",
        "   in       2",
        "    1       3",
        "",
        "sharpness  7",
    ]
