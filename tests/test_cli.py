"""The command line as a user meets it: help, mistakes, runs, resuming, scoring again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_help_imports_neither_torch_nor_hydra():
    code = (
        "import sys; from lnexp.cli import dispatch; dispatch(['--help']); "
        "print([m for m in ('torch', 'hydra', 'omegaconf', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("train", "prepare", "eval", "runs"):
        assert command in done.stdout


def test_hydra_features_stay(process):
    lnexp = process
    shown = lnexp("train", "--cfg", "job", "+exp=postln_warmup", "recipe=multi30k", check=0).stdout
    assert "_target_: lnexp.model.placement.PostLN" in shown
    assert "lnexp train -m" in lnexp("train", "--help", check=0).stdout
    completed = lnexp(
        "-sc", "query=bash", check=0, COMP_LINE="lnexp train +exp=preln", COMP_POINT="22"
    )
    assert set(completed.stdout.split()) == {"+exp=preln_nowarmup", "+exp=preln_warmup"}
    assert lnexp("-sc", "query=bash", check=0, COMP_LINE="lnexp tr").stdout.split() == ["train"]


MISTAKES = [
    (["trian"], r"trian is no command; did you mean train?"),
    (["train", "schedule.warmpu=1"], "schedule.warmpu is no key of this config; did you mean schedule.warmup?"),
    (["train", "+schedule.warmpu=1"], "schedule.warmpu is no key of this config; did you mean schedule.warmup?"),
    (["train", "+exp=preln_nowarmpu"], "exp=preln_nowarmpu: there is no such exp; did you mean preln_nowarmup? there are: fig3_depth"),
    (["train", "exp=preln_nowarmup"], "exp is appended, not overridden; write +exp=preln_nowarmup"),
    (["train", "placement=postln"], "placement=postln: there is no such placement; did you mean post_ln?"),
    (["probe", "+exp=fig3_layers", "placement=postln", "seed=1,2"], "placement=postln: there is no such placement; did you mean post_ln?"),
    (["probe", "placement=t_fixup", "+placement.branch_gain=0"], "placement.branch_gain=0 must be above 0"),
    (["probe", "probes=[grad_nrom]"], "probes=grad_nrom: there is no such probe; did you mean grad_norm?"),
    (["probe", "init_from=nowhere"], "init_from=nowhere: nowhere is no run directory; name one, .../v1"),
    (["train", "train.updates=many"], "train.updates=many: a whole number is needed"),
    (["train", "model.n_heads=3"], "model.d_model=128 must be even and a multiple of model.n_heads=3"),
    (["train", "recipe=files", "data.tgt=en"], "data.src has no value; set data.src=VALUE"),
    (["train", "optimizer.lr=-1"], "optimizer.lr=-1 must be above 0"),
    (["train", "data.path=/nowhere/at/all"], "data.path=/nowhere/at/all"),
    (["train", "schedule=linear", "schedule.warmup=9999"], "schedule.warmup=9999 must not exceed schedule.total=400"),
    (["train", "placement._target_=lnexp.model.placement.PostLM"], "placement._target_=lnexp.model.placement.PostLM cannot be loaded"),
    (["train", "device=gpu"], "device=gpu cannot be used"),
    (["train", "data.vocab_size=200000"], "data.vocab_size=200000 is too large for this text"),
    (["train", "optimizer.lr=inf"], "optimizer.lr=inf must be a finite number"),
    (["train", "decode.length_penalty=nan"], "decode.length_penalty=nan must be in [-10, 10]"),
    (["train", "schedule.warmup=abc"], "schedule.warmup=abc: a whole number is needed"),
    (["train", "task.label_smoothing=null"], "task.label_smoothing=null: a number is needed"),
    (["train", "probes.grad_norm.params=null"], "probes.grad_norm.params=null: a word is needed"),
    (["train", "norm._target_=null"], "norm._target_=None cannot be loaded"),
    (["train", "optimizer=radam", "optimizer.betas=[0.9,1.0]"], "lnexp.optim.radam.RAdam does not take"),
    (["train", "train.tokens_per_batch=5"], "train.tokens_per_batch=5 is smaller than the longest training pair"),
    (["train", "data.train=5"], "data.train=5 must be a file, or a list of files"),
    (["train", "data.path=~/x"], "data.path=~/x: ~ is not expanded here"),
    (["train", "+exp=preln_warmup", "schedule=linear"], "schedule.anchor is no key of this config; did you mean schedule.warmup? (+exp=preln_warmup sets it; drop it with ~schedule.anchor)"),
    (["train", "++foo.bar=1"], "foo is no key of this config; lnexp train --cfg job"),
    (["train", "seed=99999999999999999999"], "seed"),
    (["train", "seed=1,2"], "seed=1,2: several values make a sweep; add -m"),
    (["train", "train.updates"], "train.updates: an override is KEY=VALUE"),
    (["eval", "/nowhere"], "/nowhere holds no config.yaml; name a run directory"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_a_mistake_gets_one_line_and_exit_code_2(lnexp, tmp_path, arguments, message):
    more = [f"runs_dir={tmp_path / 'runs'}"] if arguments[0] in ("train", "probe") else []
    done = lnexp(*arguments, *more)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"lnexp: {message}")
    assert done.returncode == 2
    assert not (tmp_path / "runs").exists()  # nothing half-written


def files_of(directory):
    return {p.relative_to(directory): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def run_dir_of(done):
    return Path(done.stdout.splitlines()[-1])


def comparable_rows(run):
    """Rows but for timing."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("tokens_per_second", None)
    return rows


def test_a_run_is_trained_scored_and_recorded(lnexp, tiny):
    done = lnexp("train", "+exp=preln_nowarmup", *tiny, "train.updates=12", check=0)
    run = run_dir_of(done)
    assert run.name == "v1"
    assert run.parent.name.startswith("pre_ln-adam-inverse_sqrt-warmup1-lr0.001-seed1-")
    assert {p.name for p in run.iterdir()} >= {
        "config.yaml", "env.json", "metrics.jsonl", "result.json", "status.json", "train.log",
        "checkpoints", "samples", "tensorboard",
    }  # fmt: skip
    result = json.loads((run / "result.json").read_text())
    assert result["outcome"] == "finished"
    assert result["updates"] == 12
    assert result["learned"] == (result["valid_loss"] < result["unigram_entropy"])
    assert {"bleu", "bleu_signature", "chrf", "chrf_signature"} <= result["test"].keys()
    assert {
        "seconds",
        "tokens",
        "config_hash",
        "git",
        "schema",
        "valid_loss_smoothed_bits",
    } <= result.keys()
    env = json.loads((run / "env.json").read_text())
    assert env["sessions"][0]["experiments"] == ["preln_nowarmup"]
    assert "PATH" not in json.dumps(env)
    rows = comparable_rows(run)
    assert rows[0]["kind"] == "probe"
    # q, k, v, out of three attentions and W1, W2 of two feed-forward networks
    assert sum(key.startswith("grad_norm/") for key in rows[0]) == 3 * 4 + 2 * 2
    train = [row for row in rows if row["kind"] == "train"]
    assert {"loss", "lr", "grad_norm"} <= train[0].keys()
    assert json.loads((run / "status.json").read_text())["state"] == "finished"
    sample = next((run / "samples").glob("test-*.txt")).read_text()
    assert sample.startswith("src  ")

    again = lnexp("train", "+exp=preln_nowarmup", *tiny, "train.updates=12", check=0)
    assert "already finished, 12 updates" in again.stdout
    assert run_dir_of(again) == run

    scored = json.loads(lnexp("eval", run, "--json", check=0).stdout)["scores"][0]
    assert {k: scored[k] for k in result["test"]} == result["test"]
    valid = json.loads(lnexp("eval", run, "--split", "valid", "--json", check=0).stdout)["scores"][
        0
    ]
    assert valid["loss"] == result["valid_loss"]
    assert valid["bleu"] == result["valid_bleu"]


def test_tensorboard_shows_the_record(lnexp, tiny):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = run_dir_of(lnexp("train", *tiny, "train.updates=20", check=0))
    for updates in (25, 30):  # resumed twice
        lnexp("train", *tiny, f"train.updates={updates}", check=0)
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    rows = [row for row in comparable_rows(run) if row["kind"] == "train"]
    shown = events.Scalars("train/loss")
    assert [e.step for e in shown] == [row["t"] for row in rows]
    assert [e.value for e in shown] == pytest.approx([row["loss"] for row in rows], rel=1e-6)
    assert any(
        tag.startswith("grad_norm/encoder_blocks.0.ffn.w2") for tag in events.Tags()["scalars"]
    )


def test_more_updates_continue_a_finished_run_as_if_it_had_never_ended(lnexp, tiny, tmp_path):
    long = run_dir_of(lnexp("train", *tiny, "train.updates=17", "train.eval_every=5", check=0))
    other = [*tiny, f"runs_dir={tmp_path / 'other'}", "train.eval_every=5"]
    lnexp("train", *other, "train.updates=8", check=0)
    short = run_dir_of(lnexp("train", *other, "train.updates=17", check=0))
    assert comparable_rows(short) == comparable_rows(long)
    assert result_of(short) == result_of(long)
    assert_same_weights(long, short)


def result_of(run):
    result = json.loads((run / "result.json").read_text())
    return {k: v for k, v in result.items() if k not in ("seconds", "git")}


def files_in(directory):
    return sorted(path.name for path in directory.iterdir())


def assert_same_weights(a, b):
    import torch

    assert files_in(a / "checkpoints") == files_in(b / "checkpoints")
    for name in ("last.pt", *(p.name for p in (a / "checkpoints").glob("weights-*.pt"))):
        x, y = (torch.load(run / "checkpoints" / name, weights_only=True) for run in (a, b))
        assert x["t"] == y["t"]
        for key, value in x["model"].items():
            assert torch.equal(value, y["model"][key]), key
        if "optimizer" in x:
            for i, moments in x["optimizer"]["state"].items():
                for key, value in moments.items():
                    assert torch.equal(value, y["optimizer"]["state"][i][key])


def launch(arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "lnexp", "train", *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_a_run_killed_five_times_equals_an_uninterrupted_one_bit_for_bit(lnexp, tiny, tmp_path):
    more = [
        "train.updates=150",
        "train.checkpoint_every=7",
        "train.eval_every=20",
        "train.log_every=3",
    ]
    whole = run_dir_of(lnexp("train", *tiny, *more, check=0))
    torn = [*tiny, f"runs_dir={tmp_path / 'torn'}", *more]
    chance = random.Random(5)
    kills = 0
    while kills < 5:
        process = launch(torn)
        status = next_status(tmp_path / "torn", process)
        if status is None:
            break
        time.sleep(chance.uniform(0.0, 0.8))
        process.kill()
        process.communicate()
        kills += 1
    assert kills == 5, "the run ended before it could be killed five times"
    done = lnexp("train", *torn, check=0)
    run = run_dir_of(done)
    assert comparable_rows(run) == comparable_rows(whole)
    assert result_of(run) == result_of(whole)
    assert_same_weights(whole, run)
    assert {p.name for p in (run / "samples").iterdir()} == {
        p.name for p in (whole / "samples").iterdir()
    }


def next_status(runs, process):
    """Wait until the process has said that it trains; None if it ended."""
    while process.poll() is None:
        line = process.stdout.readline()
        if line.startswith("update "):
            return line
    return None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_same_command_continues(lnexp, tiny, number, code):
    more = ["train.updates=400", "train.eval_every=1000", "train.log_every=5"]
    process = launch([*tiny, *more])
    assert next_status(None, process)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code
    assert "; the same command continues" in out
    stopped_at = int(out.split("stopped after update ")[1].split(";")[0])
    assert 0 < stopped_at < 400
    again = lnexp("train", *tiny, *more[1:], f"train.updates={stopped_at + 3}", check=0)
    assert f", from update {stopped_at}" in again.stdout


def test_the_exit_code_leaves_the_process(process):
    done = process("train", "model.n_heads=3")
    assert done.returncode == 2
    assert done.stderr.startswith("lnexp: model.d_model=128")


def test_divergence_is_an_outcome_and_the_sweep_goes_on(lnexp, tiny, tmp_path):
    sgd = ["optimizer=sgd", "optimizer.lr=1e30,0.01", "placement=pre_ln", "train.updates=6"]
    done = lnexp("train", "-m", *tiny, *sgd, check=0)
    results = [json.loads(p.read_text()) for p in (tmp_path / "runs").rglob("result.json")]
    assert sorted(r["outcome"] for r in results) == ["diverged", "finished"]
    diverged = next(r for r in results if r["outcome"] == "diverged")
    assert diverged["learned"] is False
    assert diverged["valid_loss"] is None
    assert "diverged at update" in done.stdout


def test_a_run_goes_by_content_not_by_place(lnexp, tiny, corpus_dir, tmp_path):
    import gzip
    import shutil

    first = run_dir_of(lnexp("train", *tiny, "train.updates=2", check=0))
    copy = tmp_path / "copy"
    shutil.copytree(corpus_dir, copy)
    for path in copy.iterdir():
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    moved = [o for o in tiny if not o.startswith("data.path")] + [f"data.path={copy}"]
    again = lnexp("train", *moved, "train.updates=2", check=0)
    assert "already finished" in again.stdout
    assert run_dir_of(again) == first
    (copy / "test.de.gz").write_bytes(gzip.compress(("rot\n" * 20).encode()))
    assert run_dir_of(lnexp("train", *moved, "train.updates=2", check=0)) != first


def test_dry_run_tells_and_leaves_nothing(lnexp, tiny, tmp_path):
    done = lnexp("train", "+exp=preln_warmup", *tiny, "dry_run=true", check=0)
    for word in ("parameters", "FLOPs", "memory", "learning rate", "tokens an epoch", "warmup: 10"):
        assert word in done.stdout
    assert not (tmp_path / "runs").exists()
    path = run_dir_of(done)
    trained = lnexp("train", "+exp=preln_warmup", *tiny, "train.updates=2", check=0)
    assert run_dir_of(trained) == path


def test_classes_of_a_foreign_run_directory_are_not_loaded(lnexp, tiny):
    run = run_dir_of(lnexp("train", *tiny, "train.updates=2", check=0))
    config = run / "config.yaml"
    text = config.read_text()
    for target in ("os.system", "lnexp.run_dir.os.system", "torch.nn.functional.relu"):
        config.write_text(text.replace("torch.nn.LayerNorm", target))
        done = lnexp("eval", run)
        assert done.returncode == 2
        assert f"norm._target_={target} is no norm of lnexp or torch; add --trust" in done.stderr


def test_an_overfull_vocabulary_and_other_data_are_told_apart_by_eval(
    lnexp, tiny, corpus_dir, tmp_path
):
    run = run_dir_of(lnexp("train", *tiny, "train.updates=2", check=0))
    other = tmp_path / "other"
    other.mkdir()
    for path in corpus_dir.iterdir():
        (other / path.name).write_text(path.read_text().replace("rot", "rosa"))
    done = lnexp("eval", run, "--data-path", other)
    assert done.returncode == 2
    assert "the data or the config differ from those the run was trained on" in done.stderr


def test_bf16_trains_close_to_fp32(lnexp, tiny):
    rows = {}
    for precision in ("fp32", "bf16"):
        run = run_dir_of(
            lnexp("train", *tiny, f"train.precision={precision}", "train.updates=5", check=0)
        )
        rows[precision] = [r["loss"] for r in comparable_rows(run) if r["kind"] == "train"]
    assert rows["bf16"] == pytest.approx(rows["fp32"], rel=0.02)
    assert rows["bf16"] != rows["fp32"]


def test_flags_may_stand_anywhere(lnexp):
    shown = lnexp("train", "seed=7", "--cfg", "job", "optimizer=sgd", check=0).stdout
    assert "seed: 7" in shown
    assert "torch.optim.SGD" in shown


OFF_CADENCE = [
    "train.updates=14",
    "train.eval_every=5",
    "train.checkpoint_every=5",
    "optimizer.lr=1e-2",
]


def test_the_best_may_be_the_last_off_the_cadence(lnexp, tiny):
    run = run_dir_of(lnexp("train", *tiny, *OFF_CADENCE, check=0))
    result = json.loads((run / "result.json").read_text())
    losses = {row["t"]: row["loss"] for row in comparable_rows(run) if row["kind"] == "valid"}
    assert set(losses) == {5, 10, 14}
    assert result["best"]["valid_loss"] == min(losses.values())
    assert losses[result["best"]["t"]] == min(losses.values())
    scored = json.loads(lnexp("eval", run, "--checkpoint", "best", "--json", check=0).stdout)[
        "scores"
    ][0]
    assert scored["t"] == result["best"]["t"]
    assert scored["loss"] == result["best"]["test"]["loss"]


@pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
def test_an_end_during_evaluation_or_scoring_changes_nothing(
    lnexp, tiny, tmp_path, monkeypatch, call
):
    from lnexp.tasks.translation import Translation

    # A rate at which the loss rises again, so that the best weights are not the last.
    more = [*OFF_CADENCE, "optimizer.lr=0.2"]
    whole = run_dir_of(lnexp("train", *tiny, *more, check=0))
    best = json.loads((whole / "result.json").read_text())["best"]["t"]
    assert best != 14
    other = [*tiny, *more, f"runs_dir={tmp_path / 'other'}"]
    decode, calls = Translation.decode, []

    def interrupted(self, *arguments, **options):
        calls.append(1)
        if len(calls) == call:  # 1 and 2: in training; 3: off the cadence; 4 and 5: the test set
            signal.raise_signal(signal.SIGTERM)
        return decode(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Translation, "decode", interrupted)
        assert lnexp("train", *other).returncode == 143
    run = run_dir_of(lnexp("train", *other, check=0))
    assert comparable_rows(run) == comparable_rows(whole)
    assert result_of(run) == result_of(whole)
    assert_same_weights(whole, run)
    for path in (whole / "samples").iterdir():
        assert (run / "samples" / path.name).read_text() == path.read_text()


def test_a_grown_run_still_answers_the_shorter_command(lnexp, tiny):
    run = run_dir_of(lnexp("train", *tiny, "train.updates=4", check=0))
    short = result_of(run)
    lnexp("train", *tiny, "train.updates=8", check=0)
    again = lnexp("train", *tiny, "train.updates=4", check=0)
    assert "already finished, 4 updates" in again.stdout
    assert run_dir_of(again) == run
    kept = json.loads((run / "result-00000004.json").read_text())
    assert {k: v for k, v in kept.items() if k not in ("seconds", "git")} == short
    done = lnexp("train", *tiny, "train.updates=5")
    assert "train.updates=5 is below the 8 updates already trained" in done.stderr
    repeated = lnexp("train", *tiny, "train.updates=5", "repeat=true", check=0)
    assert run_dir_of(repeated) == run.parent / "v2"


def test_damage_is_named_and_nothing_else_is_lost(lnexp, tiny):
    run = run_dir_of(lnexp("train", *tiny, "train.updates=20", check=0))
    metrics, last = run / "metrics.jsonl", run / "checkpoints" / "last.pt"
    rows, weights = metrics.read_bytes(), last.read_bytes()
    for damage, message in (
        (
            lambda: metrics.write_bytes(rows[:100]),
            "metrics.jsonl has 100 bytes, its checkpoint counts",
        ),
        (lambda: last.write_bytes(weights[:5000]), "last.pt is damaged or foreign"),
        (lambda: last.write_bytes(b""), "last.pt is damaged or foreign"),
        (
            lambda: (run / "tokenizer.model").write_bytes(b"other"),
            "is not the vocabulary that this",
        ),
    ):
        damage()
        before = files_of(run)
        done = lnexp("train", *tiny, "train.updates=30")
        assert done.returncode == 2
        assert message in done.stderr
        assert files_of(run) == before
        metrics.write_bytes(rows)
        last.write_bytes(weights)
    (run / "config.yaml").write_text("- a\n")
    assert "is not the config of a run" in lnexp("eval", run).stderr


def test_eval_finds_data_that_moved(lnexp, tiny, corpus_dir, tmp_path):
    import shutil

    old = tmp_path / "old"
    shutil.copytree(corpus_dir, old)
    files = [f"data.{s}=[{old}/{s}.de,{old}/{s}.en]" for s in ("train", "valid", "test")]
    base = [o for o in tiny if not o.startswith("data.path")]
    run = run_dir_of(lnexp("train", *base, *files, "train.updates=2", check=0))
    old.rename(tmp_path / "new")
    assert lnexp("eval", run).returncode == 2
    lnexp("eval", run, "--data-path", tmp_path / "new", "--cache-dir", tmp_path / "c2", check=0)


def test_the_same_number_written_otherwise_is_the_same_run(lnexp, tiny):
    paths = {
        run_dir_of(lnexp("train", *tiny, "dry_run=true", f"schedule.warmup={n}", check=0))
        for n in ("100", "100.0", "1e2")
    }
    assert len(paths) == 1
