"""`lnexp eval` as a user meets it: weights kept and averaged, scores, translations, mistakes."""

import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from conftest import TINY
from hypothesis import given
from hypothesis import strategies as st

from lnexp.checkpoint import load_model, load_state, save_model
from lnexp.cli import dispatch, main
from lnexp.config import conf_dir
from lnexp.data.preparation import Moses
from lnexp.errors import InputError
from lnexp.evaluation.output import check_output, written_whole
from lnexp.evaluation.trained import load_config
from lnexp.evaluation.translate import incoming
from lnexp.evaluation.trust import is_known
from lnexp.kept_weights import find, needed
from lnexp.run_dir import RunDir
from lnexp.train import TrainState

UPDATES, EVERY, KEEP = 32, 5, 2


def train(*arguments, code=0):
    assert dispatch(["train", *map(str, arguments)]) == code


def only_run(runs):
    (config,) = runs.rglob("config.yaml")
    return config.parent


@pytest.fixture(scope="module")
def arguments(corpus_dir, tmp_path_factory):
    return [
        *TINY, f"data.path={corpus_dir}", f"data.cache_dir={tmp_path_factory.mktemp('cache')}",
        "threads=1", "optimizer.lr=1e-2", f"train.updates={UPDATES}",
        f"train.eval_every={EVERY}", "train.checkpoint_every=7", "decode.max_len_b=3",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def run(arguments, tmp_path_factory):
    """Raw text and sentencepiece; every evaluation's weights are kept."""
    runs = tmp_path_factory.mktemp("runs")
    train(*arguments, f"runs_dir={runs}", "train.keep_weights=9")
    return only_run(runs)


@pytest.fixture(scope="module")
def other(arguments, tmp_path_factory):
    """The same with another seed, and few weights kept."""
    runs = tmp_path_factory.mktemp("other")
    train(*arguments, f"runs_dir={runs}", f"train.keep_weights={KEEP}", "seed=2")
    return only_run(runs)


@pytest.fixture(scope="module")
def moses_data(tmp_path_factory):
    """Text with cases, punctuation and apostrophes."""
    directory = tmp_path_factory.mktemp("moses_data")
    nouns = [("Hund", "dog"), ("Baum", "tree"), ("Peter", "Peter's"), ("Haus", "house")]
    for split, count in (("train", 120), ("valid", 8), ("test", 12)):
        pairs = [(nouns[i % 4], nouns[(i * 3 + i // 4 + 1) % 4]) for i in range(count)]
        src = [f"Der {a[0]}, sagt er, ist kein {b[0]}." for a, b in pairs]
        tgt = [f"The {a[1]}, he says, isn't a {b[1]}." for a, b in pairs]
        (directory / f"{split}.de").write_text("\n".join(src) + "\n")
        (directory / f"{split}.en").write_text("\n".join(tgt) + "\n")
    return directory


@pytest.fixture(scope="module")
def moses_run(arguments, moses_data, tmp_path_factory):
    """Moses tokens, lower-cased, subword-nmt BPE, as IWSLT14 papers have it."""
    runs = tmp_path_factory.mktemp("moses")
    train(*arguments, f"runs_dir={runs}", f"data.path={moses_data}", "data.tokenize=moses",
          "data.lowercase=true", "data.subword=bpe", "data.vocab_size=20")  # fmt: skip
    return only_run(runs)


def scores_of(lnexp, *given):
    done = lnexp("eval", *given, "--json", check=0)
    return json.loads(done.stdout)["scores"]


def test_a_run_may_be_named_by_a_part_of_its_hash(lnexp, run):
    here = run.parents[2]
    name = re.search(r"-([0-9a-f]{8})$", run.parent.name)[1]
    options = "--runs-dir", here, "--bootstrap", "0"
    assert scores_of(lnexp, name, *options) == scores_of(lnexp, run, "--bootstrap", "0")
    done = lnexp("eval", "nothing", *options)
    assert done.returncode == 2
    assert done.stderr.startswith(f"lnexp: nothing is no run, and none in {here} is called so")


def test_a_run_is_scored_from_any_directory(lnexp, arguments, corpus_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(corpus_dir.parent)
    near = [f"data.path={corpus_dir.name}" if "data.path" in a else a for a in arguments]
    train(*near, f"runs_dir={tmp_path / 'runs'}", "train.updates=2")
    monkeypatch.chdir(tmp_path)
    assert scores_of(lnexp, only_run(tmp_path / "runs"), "--bootstrap", "0")


# Kept weights


def updates_kept(run):
    return sorted(int(p.stem.removeprefix("weights-")) for p in run.glob("checkpoints/weights-*"))


def losses_of(run):
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {row["t"]: row["loss"] for row in rows if row["kind"] == "valid"}


def test_the_best_the_last_and_those_around_the_best_are_kept(run, other):
    assert updates_kept(run) == list(range(EVERY, UPDATES + 1, EVERY))
    losses = {t: x for t, x in losses_of(other).items() if t % EVERY == 0}
    best = min(losses, key=losses.get)
    around = sorted(losses, key=lambda t: (abs(t - best), t))[:KEEP]
    assert updates_kept(other) == sorted({best, *around, *sorted(losses)[-KEEP:]})


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=25, unique=True),
    st.integers(0, 5),
    st.data(),
)
def test_what_is_kept_does_not_depend_on_when_it_was_pruned(evaluations, k, data):
    """Prune at any times on the way: the last pruning leaves what pruning once would."""
    evaluations.sort()
    losses = [data.draw(st.integers(0, 9)) for _ in evaluations]
    files = set()
    for i, t in enumerate(evaluations):
        files.add(t)
        best = evaluations[losses.index(min(losses[: i + 1]))]
        if data.draw(st.booleans()):
            files = needed(files, best, k)
    assert needed(files, best, k) == needed(evaluations, best, k)
    assert best in needed(files, best, k)
    assert len(needed(files, best, k)) <= 2 * k + 1


def test_a_resumed_run_ends_with_the_same_weights(arguments, other, tmp_path, monkeypatch):
    from lnexp.tasks.translation import Translation

    torn = [*arguments, f"runs_dir={tmp_path}", f"train.keep_weights={KEEP}", "seed=2"]
    score_loss, calls = Translation.score_loss, []

    def interrupted(self, *given):
        calls.append(1)
        if len(calls) in (3, 5):
            signal.raise_signal(signal.SIGTERM)
        return score_loss(self, *given)

    monkeypatch.setattr(Translation, "score_loss", interrupted)
    for _ in range(2):
        with pytest.raises(SystemExit):
            dispatch(["train", *torn])
    # Weights of an evaluation after the checkpoint, as kill -9 may leave them.
    (only_run(tmp_path) / "checkpoints" / "weights-00000031.pt").write_bytes(b"of the future")
    train(*torn)
    again = only_run(tmp_path)
    assert updates_kept(again) == updates_kept(other)
    for path in (again / "checkpoints").glob("weights-*"):
        a, b = (
            torch.load(r / "checkpoints" / path.name, weights_only=True) for r in (again, other)
        )
        assert all(torch.equal(a["model"][name], b["model"][name]) for name in b["model"])


def test_names_of_checkpoints(run, other):
    here = RunDir(run)
    losses = losses_of(run)
    assert sorted(losses) == [5, 10, 15, 20, 25, 30, 32]  # the last one off the cadence
    files = {t: here.weights(t) for t in losses} | {32: here.last_checkpoint}
    assert find(here, "last").paths == [here.last_checkpoint]
    assert find(here, "15").paths == [files[15]]
    assert find(here, "32").paths == [here.last_checkpoint]
    assert find(here, "last:3").paths == [files[25], files[30], files[32]]
    best = min(losses, key=losses.get)
    assert find(here, "best").paths == [files[best]]
    nearest = sorted(sorted(losses, key=lambda t: (abs(t - best), t))[:3])
    assert find(here, "best:3").paths == [files[t] for t in nearest]


# Averages


def test_an_average_is_the_elementwise_mean(tmp_path):
    """By hand: weight (1 + 4) / 2 and bias (0.5 - 1.5) / 2, in the type of the parameters."""
    a, b, mean = (torch.nn.Linear(1, 1) for _ in range(3))
    with torch.no_grad():
        for model, weight, bias in ((a, 1.0, 0.5), (b, 4.0, -1.5)):
            model.weight.fill_(weight)
            model.bias.fill_(bias)
    save_model(a, 10, tmp_path / "a.pt")
    save_model(b, 20, tmp_path / "b.pt")
    updates = load_model(mean, [tmp_path / "a.pt", tmp_path / "b.pt"], torch.device("cpu"))
    assert updates == [10, 20]
    assert (mean.weight.item(), mean.bias.item()) == (2.5, -0.5)
    assert mean.weight.dtype == torch.float32


def test_a_mean_is_taken_in_float64(tmp_path):
    values = [1.0, 2.0**-24, 2.0**-24, 2.0**-24]  # added one by one in float32, these vanish
    paths = []
    for i, value in enumerate(values):
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(model.weight, value)
        paths.append(tmp_path / f"{i}.pt")
        save_model(model, i, paths[-1])
    load_model(model, paths, torch.device("cpu"))
    assert model.weight.item() == torch.tensor(math.fsum(values) / 4, dtype=torch.float32).item()


def test_eval_scores_the_mean_of_two_checkpoints(lnexp, run, tmp_path):
    one, two = (
        torch.load(run / "checkpoints" / f"weights-{t:08d}.pt", weights_only=True) for t in (15, 20)
    )
    by_hand = {name: (x + two["model"][name]) / 2 for name, x in one["model"].items()}
    copy = tmp_path / "v1"
    shutil.copytree(run, copy)
    torch.save({**one, "t": 15, "model": by_hand}, copy / "checkpoints" / "weights-00000015.pt")
    for t in (25, 30):
        (copy / "checkpoints" / f"weights-{t:08d}.pt").unlink()
    (expected,) = scores_of(lnexp, copy, "--checkpoint", "15", "--bootstrap", "0")
    other = tmp_path / "other" / "v1"
    shutil.copytree(run, other)
    rows = [r for r in (run / "metrics.jsonl").read_text().splitlines() if '"valid"' in r]
    (other / "metrics.jsonl").write_text("\n".join(rows[:4]) + "\n")  # as if 20 were the last
    (averaged,) = scores_of(lnexp, other, "--checkpoint", "last:2", "--bootstrap", "0")
    assert averaged["updates"] == [15, 20]
    assert averaged["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert averaged["bleu"] == pytest.approx(expected["bleu"])


# Scores


def test_eval_gives_the_scores_of_training(lnexp, run, moses_run):
    for path in (run, moses_run):
        result = json.loads((path / "result.json").read_text())
        (test,) = scores_of(lnexp, path, "--bootstrap", "0")
        assert {k: test[k] for k in result["test"]} == result["test"]
        (valid,) = scores_of(lnexp, path, "--split", "valid", "--bootstrap", "0")
        assert (valid["loss"], valid["bleu"]) == (result["valid_loss"], result["valid_bleu"])
        assert valid["loss_smoothed_bits"] == result["valid_loss_smoothed_bits"]


def test_a_grid_scores_each_combination_once_in_the_order_given(lnexp, run):
    rows = scores_of(
        lnexp, run, "--beam", "3,1,3", "--length-penalty", "1.0,0.6", "--checkpoint", "best,5",
        "--bootstrap", "0",
    )  # fmt: skip
    settings = [(r["checkpoint"], r["beam"], r["length_penalty"]) for r in rows]
    assert settings == [
        (c, b, p) for c in ("best", "5") for b in (3, 1) for p in (1.0, 0.6)
    ]  # fmt: skip


def test_the_table_holds_the_scores_and_their_signatures_once(lnexp, run, moses_run):
    done = lnexp("eval", moses_run, "--beam", "1,2", check=0)
    rows = scores_of(lnexp, moses_run, "--beam", "1,2")
    lines = done.stdout.splitlines()
    table = [line for line in lines if line.startswith("last")]
    for line, row in zip(table, rows, strict=True):
        for name in ("bleu", "bleu_tokenised", "chrf"):
            assert f"{row[name]:.2f} \u00b1 {row[f'{name}_half_width']:.2f}" in line
        assert f"{row['loss']:.4f}" in line
        assert f"{row['loss_smoothed_bits']:.4f}" in line
    assert sum("tok:none" in line and "case:lc" in line for line in lines) == 1
    assert sum("tok:13a" in line and "case:lc" in line for line in lines) == 1
    assert "case:mixed" in lnexp("eval", run, check=0).stdout


def sacrebleu(directory, *given):
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *given, "--format", "json", "-w", "12"],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_what_is_written_gives_the_same_scores_by_sacrebleus_command(lnexp, moses_run, tmp_path):
    out = tmp_path / "out"
    (row,) = scores_of(lnexp, moses_run, "--output", out, "--bootstrap", "200")
    assert json.loads((out / "scores.json").read_text()) == row
    ours = [("bleu", ["ref.txt", "-i", "hyp.txt", "-m", "bleu", "-lc"]),
            ("chrf", ["ref.txt", "-i", "hyp.txt", "-m", "chrf", "--chrf-lowercase"]),
            ("bleu_tokenised", ["ref.tok.txt", "-i", "hyp.tok.txt", "-m", "bleu", "-lc",
                                "--tokenize", "none"])]  # fmt: skip
    for name, options in ours:
        theirs = sacrebleu(out, *options, "--confidence", "--confidence-n", "200")
        assert row[name] == pytest.approx(theirs["score"], abs=1e-9)
        assert row[f"{name}_mean"] == pytest.approx(theirs["confidence_mean"], rel=1e-5)
        assert row[f"{name}_half_width"] == pytest.approx(theirs["confidence_var"], rel=1e-5)
        assert row[f"{name}_bootstrap_signature"] == theirs["signature"]


def test_runs_are_tested_against_the_first_as_by_sacrebleus_command(lnexp, run, other, tmp_path):
    out = tmp_path / "out"
    rows = scores_of(lnexp, run, other, "--output", out, "--bootstrap", "100")
    first, second = sorted(out.iterdir())
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", first / "ref.txt", "-i", first / "hyp.txt",
         second / "hyp.txt", "-m", "bleu", "chrf", "--paired-bs", "--paired-bs-n", "100",
         "--format", "text"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = [float(p) for p in re.findall(r"\(p = ([\d.]+)\)", done.stdout)]
    assert [rows[1]["bleu_p"], rows[1]["chrf_p"]] == pytest.approx(theirs, abs=5e-5)
    assert not {"bleu_p", "chrf_p"} & rows[0].keys()
    table = lnexp("eval", run, other, "--bootstrap", "100", check=0).stdout
    assert f"run 2: {other}" in table
    assert "p: paired bootstrap test against run 1" in table
    last = next(line for line in table.splitlines() if line.startswith("  2  last"))
    assert last.split()[-2:] == [f"{p:.4f}" for p in theirs]


def test_runs_of_other_text_are_not_compared(lnexp, run, moses_run):
    done = lnexp("eval", run, moses_run)
    assert done.returncode == 2
    assert "has other references" in done.stderr


# Translations


def test_each_sentence_is_written_with_its_pieces_and_their_log_probabilities(
    lnexp, moses_run, moses_data, tmp_path
):
    out = tmp_path / "out"
    lnexp("eval", moses_run, "--output", out, "--bootstrap", "0", check=0)
    text = {p.name: p.read_text().splitlines() for p in out.glob("*.txt")}
    rows = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    raw = (moses_data / "test.en").read_text().splitlines()
    assert text["ref.txt"] == [line.lower() for line in raw]
    assert text["src.txt"] == [
        line.lower() for line in (moses_data / "test.de").read_text().splitlines()
    ]
    assert text["ref.tok.txt"] == [Moses("en").tokenise(line).lower() for line in raw]
    assert text["ref.tok.txt"][0].count("&apos;") >= 1
    assert text["hyp.txt"] == [Moses("en").detokenise(line) for line in text["hyp.tok.txt"]]
    assert [row["n"] for row in rows] == list(range(1, len(raw) + 1))
    for i, row in enumerate(rows):
        assert row["source"] == text["src.txt"][i]
        assert row["reference"] == text["ref.txt"][i]
        assert row["hypothesis"] == text["hyp.txt"][i]
        pieces = " ".join(row["pieces"][:-1]).replace("@@ ", "")
        assert pieces == text["hyp.tok.txt"][i]
        assert row["pieces"][-1] == "</s>"
        assert len(row["pieces"]) == len(row["log_probs"])
        assert sum(row["log_probs"]) == pytest.approx(row["log_prob"], abs=1e-4)
        assert row["score"] == pytest.approx(row["log_prob"] / len(row["pieces"]))


def test_sentence_scores_are_sacrebleus(lnexp, run, tmp_path):
    out = tmp_path / "out"
    lnexp("eval", run, "--output", out, "--bootstrap", "0", check=0)
    rows = [json.loads(line) for line in (out / "scores.jsonl").read_text().splitlines()]
    for name in ("bleu", "chrf"):
        done = subprocess.run(
            [sys.executable, "-m", "sacrebleu", "ref.txt", "-i", "hyp.txt", "-m", name,
             "--sentence-level", "-b", "-w", "9"],
            cwd=out, capture_output=True, text=True, check=True,
        )  # fmt: skip
        theirs = [float(x) for x in done.stdout.split()]
        assert [row[name] for row in rows] == pytest.approx(theirs, abs=1e-8)


def test_a_file_is_prepared_as_the_corpus_was(lnexp, moses_run, moses_data, tmp_path):
    (split,) = scores_of(lnexp, moses_run, "--output", tmp_path / "a")
    files = ["--input", moses_data / "test.de", "--reference", moses_data / "test.en"]
    (raw,) = scores_of(lnexp, moses_run, *files, "--output", tmp_path / "b")
    for name, value in split.items():
        if isinstance(value, float):
            assert raw[name] == pytest.approx(value, rel=1e-5), name
    for name in ("hyp.txt", "hyp.tok.txt", "ref.txt", "ref.tok.txt", "src.txt"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    prepared = tmp_path / "prepared.de"
    lines = (moses_data / "test.de").read_text().splitlines()
    prepared.write_text("".join(f"{Moses('de').tokenise(line).lower()}\n" for line in lines))
    lnexp("eval", moses_run, "--input", prepared, "--prepared", "--output", tmp_path / "c", check=0)
    assert (tmp_path / "c" / "hyp.txt").read_bytes() == (tmp_path / "a" / "hyp.txt").read_bytes()
    assert not (tmp_path / "c" / "ref.txt").exists()


def test_several_systems_get_a_directory_each_and_a_failure_leaves_none(
    lnexp, run, other, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    lnexp("eval", run, other, "--checkpoint", "last,last:2", "--beam", "1,2", "--output", out,
          "--bootstrap", "0", check=0)  # fmt: skip
    found = sorted(str(p.parent.relative_to(out)) for p in out.rglob("hyp.txt"))
    names = [f"{i}-{r.parent.name}-v1" for i, r in ((1, run), (2, other))]
    assert found == sorted(
        f"{name}/{checkpoint}/beam{beam}-lenpen1"
        for name in names for checkpoint in ("last", "last-2") for beam in (1, 2)
    )  # fmt: skip

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lnexp.evaluation.score.write_translations", full)
    done = lnexp("eval", run, "--output", tmp_path / "full")
    assert done.returncode == 2
    assert "No space left on device" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


# Standard input


def translate(lnexp, monkeypatch, text, *given, check=0):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    return lnexp("eval", *given, "--translate", check=check)


@pytest.mark.parametrize("which", ["run", "moses_run"])
def test_translate_gives_the_hypotheses_of_the_test_set(
    lnexp, monkeypatch, request, corpus_dir, moses_data, tmp_path, which
):
    path = request.getfixturevalue(which)
    lnexp("eval", path, "--output", tmp_path / "out", "--bootstrap", "0", check=0)
    expected = (tmp_path / "out" / "hyp.txt").read_text()
    source = {"run": corpus_dir, "moses_run": moses_data}[which] / "test.de"
    assert translate(lnexp, monkeypatch, source.read_bytes(), path).stdout == expected


def test_translate_needs_the_run_directory_alone(run, corpus_dir, tmp_path):
    """In a process of its own, on a copy whose config names data that are gone."""
    copy = tmp_path / "v1"
    shutil.copytree(run, copy)
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace(str(corpus_dir), "/gone"))
    done = subprocess.run(
        [sys.executable, "-m", "lnexp", "eval", str(copy), "--translate", "--beam", "1"],
        input="eins zwei\n\nhaus\r\nbaum", capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[1],
    )  # fmt: skip
    lines = done.stdout.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[4] == ""
    assert all(lines[i] for i in (0, 2, 3))
    assert done.stderr == ""


def test_lines_are_handed_on_as_they_come():
    """Nobody waits for the end of the input, or for a batch to be full."""
    read, write = os.pipe()
    with open(read, "rb") as stream, open(write, "wb", buffering=0) as sender:
        lines = incoming(stream)
        for sent, received in (
            (b"eins\n", ["eins"]),
            (b"zwei\r\n\nd", ["zwei", ""]),
            (b"rei", []),
            (b"!\nende", ["drei!"]),
        ):
            sender.write(sent)
            assert next(lines) == received
        sender.close()
        assert list(lines) == [["ende"]]


@given(st.lists(st.text("a\u00e9\r\u2028 ", max_size=4)), st.integers(1, 5), st.booleans())
def test_lines_are_cut_at_line_feeds_alone(lines, size, ends):
    class Slow(io.BytesIO):
        def read1(self, _):
            return super().read1(size)

    text = "".join(f"{line}\n" for line in lines) + ("" if ends else "x")
    found = [line for some in incoming(Slow(text.encode())) for line in some]
    assert found == [line.removesuffix("\r") for line in lines] + ([] if ends else ["x"])


# Mistakes


def last_kept(run):
    """How many of the last evaluations in a row have their weights on disk."""
    kept = {*updates_kept(run), UPDATES}
    gap = next(i for i, t in enumerate(sorted(losses_of(run), reverse=True)) if t not in kept)
    assert gap < len(losses_of(run))
    return gap


def mistakes(run, other, tmp_path):
    short = tmp_path / "short"
    short.write_text("eins\n")
    long = tmp_path / "long"
    long.write_text("eins\nzwei\n")
    (tmp_path / "empty").write_text("")
    kept = ", ".join(map(str, [*updates_kept(other), UPDATES]))
    return [
        (["/nowhere"], "/nowhere holds no config.yaml; name a run directory, .../v1"),
        ([], "the following arguments are required: run"),
        ([run, "--split", "tset"], "argument --split: invalid choice: 'tset'"),
        ([run, "--chekpoint", "best"], "unrecognized arguments: --chekpoint best"),
        ([run, "--checkpoint", "bset"], "--checkpoint=bset must be last, best, an update, last:N"),
        ([run, "--checkpoint", "best:0"], "--checkpoint=best:0 must be last, best, an update"),
        ([other, "--checkpoint", "3"], f"--checkpoint=3: {other} does not keep the weights of "
         f"update 3; it keeps those of: {kept} (train.keep_weights says how many)"),
        ([run, "--checkpoint", "last:8"], f"--checkpoint=last:8: {run} has 7 evaluations, and "
         "the weights of 7; use last:7 or less"),
        ([other, "--checkpoint", "last:8"], f"--checkpoint=last:8: {other} has 7 evaluations, and "
         f"the weights of {len(kept.split(','))}; use last:{last_kept(other)} or less"),
        ([run, "--beam", "0"], "argument --beam: 0 must be a whole number from 1 to 1000"),
        ([run, "--beam", "1001"], "argument --beam: 1001 must be a whole number from 1 to 1000"),
        ([run, "--length-penalty", "nan"], "argument --length-penalty: nan must be a number"),
        ([run, "--length-penalty=-400"], "argument --length-penalty: -400 must be a number from "
         "-10 to 10"),
        ([run, "--bootstrap", "1"], "argument --bootstrap: 1 must be a whole number of at least 2"),
        ([run, "--bootstrap", "10000000"], "--bootstrap=10000000 of 20 sentences needs too much"),
        ([run, "--split", "test", "--input", short], "--split and --input name two texts"),
        ([run, "--reference", short], "--reference goes with --input; add --input FILE"),
        ([run, "--prepared"], "--prepared goes with --input; add --input FILE"),
        ([run, "--input", short], "--input without --reference gives no scores; add --output DIR"),
        ([run, "--input", short, "--reference", long], f"--reference={long} has 2 lines, "
         f"--input={short} has 1; line n of both must be sentence n"),
        ([run, "--input", tmp_path / "empty", "--reference", short], "--input="),
        ([run, "--input", tmp_path / "no", "--reference", short], f"{tmp_path / 'no'}: cannot be"),
        ([run, "--output", tmp_path], f"--output={tmp_path} is there and not empty; name a new"),
        ([run, "--output", short], f"--output={short} is a file; name a new directory"),
        ([run, "--translate", "--split", "test"], "--translate reads standard input and takes no "
         "--split; drop it"),
        ([run, "--translate", "--data-path", "x"], "--translate reads standard input and takes no "
         "--data-path; drop it"),
        ([run, "--translate", "--codes", "x"], "--translate reads standard input and takes no "
         "--codes; drop it"),
        ([run, "--translate", "--cache-dir", "x"], "--translate reads standard input and takes no "
         "--cache-dir; drop it"),
        ([run, "--data-path", tmp_path / "gone"], f"data.path={tmp_path / 'gone'} does not exist"),
        ([run, other, "--translate"], "--translate takes one run, not 2"),
        ([run, run / ".." / "v1"], f"{run} is named twice; a run is not compared with itself"),
        ([run, "--translate", "--beam", "1,2"], "--translate takes one --beam, not 2"),
        ([run, "--device", "gpu"], "device=gpu cannot be used"),
        ([run, "--device", "meta"], "device=meta cannot be used (it holds no numbers); use auto"),
    ]  # fmt: skip


def test_a_mistake_gets_one_line_and_exit_code_2(lnexp, run, other, tmp_path):
    for given_, message in mistakes(run, other, tmp_path):
        done = lnexp("eval", *given_)
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        assert len(lines) == 1, done.stderr
        assert lines[0].startswith(f"lnexp: {message}")
        assert done.returncode == 2
        assert done.stdout == ""


def test_damaged_files_are_named(lnexp, monkeypatch, run, tmp_path):
    copy = tmp_path / "v1"
    shutil.copytree(run, copy)
    for content in (b"other", b""):
        (copy / "tokenizer.model").write_bytes(content)
        assert "tokenizer.model cannot be read" in translate(
            lnexp, monkeypatch, b"", copy, check=2
        ).stderr  # fmt: skip
    (copy / "tokenizer.model").unlink()
    assert "tokenizer.model is missing" in translate(lnexp, monkeypatch, b"", copy, check=2).stderr
    shutil.copy(run / "tokenizer.model", copy)
    (copy / "identity.json").unlink()
    assert "does not say how the text was prepared" in translate(
        lnexp, monkeypatch, b"", copy, check=2
    ).stderr  # fmt: skip
    shutil.copy(run / "identity.json", copy)
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace("d_ff: 32", "d_ff: 40"))
    assert "last.pt does not fit the model of config.yaml" in translate(
        lnexp, monkeypatch, b"", copy, check=2
    ).stderr  # fmt: skip
    done = translate(lnexp, monkeypatch, b"eins\n\xff\n", run, check=2)
    assert "standard input, line 2: not UTF-8" in done.stderr


def record(path, losses, kept, **files):
    """A run directory with these validation losses and weights of these updates."""
    run = RunDir(path)
    run.checkpoints.mkdir(parents=True)
    for t, loss in losses.items():
        run.append("valid", t, {"loss": loss})
    run.release()
    for t in kept:
        run.weights(t).touch()
    for name, value in files.items():
        run.write_json(name, value)
    return run


def test_the_best_of_a_run_that_has_not_ended_has_the_lowest_finite_loss(tmp_path):
    losses = {10: 3.0, 20: 2.0, 30: math.nan, 40: 2.0}
    run = record(tmp_path, losses, losses, status={"state": "running", "t": 47})
    assert find(run, "best").paths == [run.weights(20)]
    assert find(run, "best:3").paths == [run.weights(t) for t in (10, 20, 30)]
    with pytest.raises(InputError, match=r"does not keep the weights of update 47; .* 10, 20, 30"):
        find(run, "47")  # the last checkpoint may be older than what the run says of itself


def test_the_last_checkpoint_of_a_diverged_run_is_not_where_it_ended(tmp_path):
    result = {"outcome": "diverged", "updates": 25}
    run = record(tmp_path, {10: 3.0, 20: 2.0}, [10, 20], result=result)
    assert find(run, "best").paths == [run.weights(20)]
    with pytest.raises(InputError, match="does not keep the weights of update 25"):
        find(run, "25")


def test_a_stopped_run_has_the_weights_it_stopped_at(tmp_path):
    run = record(tmp_path, {10: 3.0}, [10], status={"state": "stopped", "t": 13})
    with pytest.raises(InputError, match=r"does not keep the weights of update 13; .* 10 \("):
        find(run, "13")
    with pytest.raises(InputError, match=r"--checkpoint=last: .*last.pt does not exist; the run"):
        find(run, "last")
    run.last_checkpoint.touch()
    assert find(run, "13").paths == [run.last_checkpoint]
    assert find(run, "last:1").paths == [run.weights(10)]


def test_an_average_needs_all_its_weights(tmp_path):
    run = record(tmp_path, {10: 3.0, 20: 2.0, 30: 2.5}, [20, 30])
    with pytest.raises(InputError, match=r"updates? 10; it keeps those of: 20, 30 \(train.keep_w"):
        find(run, "last:3")
    for name, most in (("last:3", "last:2"), ("last:9", "last:2"), ("best:3", "best:1"),
                       ("best:2", "best:1")):  # fmt: skip
        with pytest.raises(InputError, match=f"; use {most} or less$"):
            find(run, name)
        find(run, most)
    run.weights(20).unlink()
    with pytest.raises(InputError, match=r"; use --checkpoint last$"):
        find(run, "best:2")


def test_a_run_that_was_never_evaluated_has_no_best(tmp_path):
    with pytest.raises(InputError, match=r"--checkpoint=best: .* has no evaluation with a finite"):
        find(RunDir(tmp_path), "best")


# Directories of others


def changed(run, directory, **changes):
    """A copy of the run whose config has other values."""
    copy = directory / "v1"
    shutil.copytree(run, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text())
    (copy / "config.yaml").write_text(yaml.safe_dump(config | changes))
    return copy


def one_line(done):
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert (done.returncode, len(lines)) == (2, 1), done.stderr
    return lines[0]


WICKED = {
    "task": ["os.system", "lnexp.data.store.StoreWriter", "lnexp.train.TrainState",
             "lnexp.tasks.translation.ordered_batches", "lnexp.tasks.translation.Transformer"],
    "placement": ["lnexp.model.placement.StackShape", "lnexp.model.transformer.Transformer",
                  "lnexp.model.placement.nn.Module", "lnexp.data.store.StoreWriter"],
    "norm": ["torch.nn.Parameter", "torch.nn.functional.relu", "torch.load", "torch.hub.load",
             "lnexp.model.transformer.ModelShape", "lnexp.run_dir.RunDir", "torch.nn.init.os.system",
             "torch.nn.modules.module.OrderedDict", "lnexp.__main__.main"],
    "optimizer": ["torch.optim.lr_scheduler.LambdaLR", "torch.optim.swa_utils.AveragedModel",
                  "lnexp.optim.schedule.Constant", "lnexp.run_dir.RunDir", "torch.nn.LayerNorm"],
    "schedule": ["lnexp.data.store.StoreWriter", "lnexp.optim.schedule.InputError",
                 "lnexp.optim.radam.RAdam", "lnexp.optim.schedule.math.exp", "torch.optim.Adam"],
    "probes": ["lnexp.probes.torch.nn.Linear", "lnexp.probes.InputError", "lnexp.run_dir.RunDir",
               "lnexp.data.store.StoreWriter", "lnexp.record.TensorBoard"],
}  # fmt: skip


@pytest.mark.parametrize("group", WICKED)
def test_a_group_takes_classes_of_its_kind_alone(group):
    assert [target for target in WICKED[group] if is_known(group, target)] == []
    shipped = [
        yaml.safe_load(path.read_text())["_target_"]
        for path in (conf_dir() / group).glob("*.yaml")
        if "_target_:" in path.read_text().split("\n  ")[0]
    ]
    shipped += ["lnexp.probes.GradNorm"] if group == "probes" else []
    shipped += ["lnexp.tasks.translation.Translation"] if group == "task" else []
    assert shipped
    assert all(is_known(group, target) for target in shipped)


@pytest.mark.parametrize("key", ["schedule", "probe", "behind a probe of its name"])
def test_a_foreign_directory_cannot_have_a_directory_deleted(lnexp, run, tmp_path, key):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "thesis.tex").write_text("years of work")
    wicked = {"_target_": "lnexp.data.store.StoreWriter", "folder": str(victim)}
    probe = {"_target_": "lnexp.probes.GradNorm", "params": "x", "every": 1}
    changes = {
        "schedule": {"schedule": wicked},
        "probe": {"probes": {"a": wicked}},
        "behind a probe of its name": {"schedule": wicked, "probes": {"schedule": probe}},
    }[key]
    line = one_line(lnexp("eval", changed(run, tmp_path, **changes)))
    assert "_target_=lnexp.data.store.StoreWriter is no " in line
    assert line.endswith(" of lnexp or torch; add --trust if you trust this directory")
    assert (victim / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probes": ["a"]}, r"probes=\['a'\] is no mapping"),
        ({"probes": "a"}, "probes=a is no mapping"),
        ({"probes": {"a": "b"}}, "probes.a=b must name a class with _target_"),
        ({"schedule": "x"}, "schedule=x must name a class with _target_"),
        ({"schedule": [1]}, r"schedule=\[1\] must name a class with _target_"),
        ({"norm": {"_target_": 3}}, r"norm=.* must name a class with _target_"),
        ({"threads": 10**9}, "threads=1000000000 must be 1 to 1024, or null"),
        ({"threads": 0}, "threads=0 must be 1 to 1024, or null"),
    ],
)
@pytest.mark.parametrize("trust", [False, True])
def test_an_odd_config_is_refused(run, tmp_path, changes, message, trust):
    with pytest.raises(InputError, match=message):
        load_config(RunDir(changed(run, tmp_path, **changes)), trust=trust)


def test_a_config_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"config.yaml cannot be read \("):
        load_config(RunDir(tmp_path), trust=False)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [("length_penalty", 10.5, r"must be in \[-10, 10\]"), ("length_penalty", -400.0, "must be in"),
     ("beam", 1001, "must be at most 1000"), ("valid_beam", 10**9, "must be at most 1000")],
)  # fmt: skip
def test_decoding_stays_within_what_can_be_computed(run, tmp_path, key, value, rule):
    decode = yaml.safe_load((run / "config.yaml").read_text())["decode"] | {key: value}
    with pytest.raises(InputError, match=rf"decode\.{key}={value} {rule}"):
        load_config(RunDir(changed(run, tmp_path, decode=decode)), trust=False)


@pytest.mark.parametrize(
    "row", ['{"kind": "valid"}', "[1]", "3", '{"kind": "valid", "t": 5, "loss": "low"}',
            '{"kind": "valid", "t": "5", "loss": 1.0}', '{"kind": "valid", "t": 5}'],
)  # fmt: skip
def test_an_odd_row_of_metrics_is_named(tmp_path, row):
    run = record(tmp_path, {10: 3.0}, [10])
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(f"{row}\n")
    for name in ("best", "last:1"):
        with pytest.raises(InputError, match=r"metrics.jsonl row 2 is no row of a run"):
            find(run, name)


@pytest.mark.parametrize("value", [{}, {"updates": "many"}, {"updates": [1]}, {"updates": None}])
def test_a_result_without_its_updates_is_named(tmp_path, value):
    run = record(tmp_path, {10: 3.0}, [10], result={"outcome": "finished", **value})
    run.last_checkpoint.touch()
    with pytest.raises(InputError, match=r"result.json: updates=.* must be a number of updates"):
        find(run, "10")
    run.write_json("result", {})
    run.write_json("status", {"state": "stopped", "t": value.get("updates")})
    with pytest.raises(InputError, match=r"status.json: t=.* must be a number of updates"):
        find(run, "10")


WEIGHT = {"weight": torch.zeros(1, 1), "bias": torch.zeros(1)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02(X", "is damaged or foreign"),
        (b"", "is damaged or foreign"),
        ([1], "is no checkpoint of schema 1"),
        ({"schema": torch.ones(2)}, "is no checkpoint of schema 1"),
        ({"schema": 1, "t": 3}, "holds no update t or no weights"),
        ({"schema": 1, "model": WEIGHT}, "holds no update t or no weights"),
        ({"schema": 1, "t": "3", "model": WEIGHT}, "holds no update t or no weights"),
        ({"schema": 1, "t": 3, "model": [1]}, "holds no update t or no weights"),
        ({"schema": 1, "t": 3, "model": {"weight": 1}}, "holds no update t or no weights"),
        ({"schema": 1, "t": 3, "model": {1: torch.ones(1)}}, "holds no update t or no weights"),
        ({"schema": 1, "t": 3, "model": {"weight": torch.ones(2)}}, "does not fit the model"),
    ],
)
def test_an_odd_checkpoint_is_named(tmp_path, content, message):
    path = tmp_path / "last.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(InputError, match=rf"^[^\n]*last.pt {message}[^\n]*$"):
        load_model(torch.nn.Linear(1, 1), [path], torch.device("cpu"))
    if isinstance(content, bytes) or "model" not in content:
        optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters())
        state = TrainState(torch.nn.Linear(1, 1), optimizer)
        with pytest.raises(InputError, match=r"^[^\n]*last.pt (is|does not hold)[^\n]*$"):
            load_state(state, path, torch.device("cpu"))


@pytest.mark.parametrize("other", [torch.nn.Linear(2, 1), torch.nn.Linear(1, 1, bias=False)])
def test_weights_of_different_models_have_no_mean(tmp_path, other):
    one = torch.nn.Linear(1, 1)
    save_model(one, 1, tmp_path / "a.pt")
    save_model(other, 2, tmp_path / "b.pt")
    for names in (("a", "b"), ("b", "a")):
        paths = [tmp_path / f"{name}.pt" for name in names]
        with pytest.raises(InputError, match=r"b?\.pt holds other weights than .*\.pt beside it"):
            load_model(one, paths, torch.device("cpu"))


@pytest.mark.parametrize(
    "content", [{"merges": "#version: 0.2\na b c\n", "pieces": ["a"]}, {"merges": 3, "pieces": []},
                {"merges": "a b\n", "pieces": [1]}, {"merges": "a b\n", "pieces": ["\ud800"]}, {}],
)  # fmt: skip
def test_a_vocabulary_with_bad_merges_is_named(lnexp, monkeypatch, moses_run, tmp_path, content):
    copy = changed(moses_run, tmp_path)
    (copy / "tokenizer.model").write_text(json.dumps({"kind": "bpe", **content}))
    done = translate(lnexp, monkeypatch, b"", copy, check=2)
    assert "tokenizer.model cannot be read; copy the whole run directory" in one_line(done)


def test_weights_that_a_run_deletes_meanwhile_are_named(lnexp, run, tmp_path, monkeypatch):
    copy = changed(run, tmp_path)
    found = find

    def found_and_lost(here, name):
        checkpoint = found(here, name)
        if name == "5":
            checkpoint.paths[0].unlink()
        return checkpoint

    monkeypatch.setattr("lnexp.evaluation.score.find", found_and_lost)
    line = one_line(lnexp("eval", copy, "--checkpoint", "last,5", "--bootstrap", "0"))
    assert "--checkpoint=5: " in line
    assert "weights-00000005.pt was deleted after it was found, as a run under way does" in line


# Data that moved


def test_files_are_found_below_the_new_path(lnexp, arguments, corpus_dir, tmp_path):
    old, new, store = tmp_path / "old", tmp_path / "new", tmp_path / "store"
    for split in ("train", "valid", "test"):
        (old / split).mkdir(parents=True)
        for language in ("de", "en"):
            shutil.copy(corpus_dir / f"{split}.{language}", old / split / f"text.{language}")
    named = [f"data.{s}=[{s}/text.de,{s}/text.en]" for s in ("train", "valid", "test")]
    text = [*arguments, f"data.path={old}", *named, "train.updates=2"]
    train(*text, f"runs_dir={tmp_path / 'runs'}")
    path = only_run(tmp_path / "runs")
    lnexp("prepare", *text, "--out", store, check=0)
    old.rename(new)
    expected = json.loads((path / "result.json").read_text())["test"]
    for place in (new, store):
        (row,) = scores_of(lnexp, path, "--data-path", place, "--bootstrap", "0")
        assert {k: row[k] for k in expected} == expected
    line = one_line(lnexp("eval", path))
    assert line.startswith("lnexp: data.train=train/text.de: no such file")
    assert line.endswith("(lnexp eval: --data-path DIR, --cache-dir DIR, --codes FILE)")


def test_a_mistake_about_the_data_names_the_options(lnexp, run, tmp_path):
    options = "(lnexp eval: --data-path DIR, --cache-dir DIR, --codes FILE)"
    done = lnexp("eval", run, "--data-path", tmp_path / "gone")
    assert one_line(done).endswith(options)
    (tmp_path / "file").touch()
    assert one_line(lnexp("eval", run, "--cache-dir", tmp_path / "file")).endswith(options)


# Files and streams


def test_blank_lines_of_a_file_stay_blank(lnexp, monkeypatch, run, tmp_path):
    text = "eins zwei\n\n \nhaus\n"
    (tmp_path / "in").write_text(text)
    out = tmp_path / "out"
    lnexp("eval", run, "--input", tmp_path / "in", "--output", out, check=0)
    lines = (out / "hyp.txt").read_text().split("\n")
    assert lines[1:3] == ["", ""]
    assert lines[0]
    assert lines[3]
    assert translate(lnexp, monkeypatch, text.encode(), run).stdout == "\n".join(lines)
    for row in map(json.loads, (out / "scores.jsonl").read_text().splitlines()):
        assert sum(row["log_probs"]) == pytest.approx(row["log_prob"], abs=1e-4)
        assert len(row["pieces"]) == len(row["log_probs"])


def test_standard_input_is_read_as_files_are(lnexp, monkeypatch, run):
    with_mark = list(incoming(io.BytesIO(b"\xef\xbb\xbfeins\n\xef\xbb\xbfzwei\n")))
    assert with_mark == [["eins", "\ufeffzwei"]]
    assert list(incoming(io.BytesIO(b"\xef\xbb\xbfeins")))[-1] == ["eins"]
    done = translate(lnexp, monkeypatch, b"eins\nzw\0ei\n", run, check=2)
    assert "standard input, line 2: holds a NUL byte" in one_line(done)


def test_an_empty_output_directory_stays_the_same_directory(tmp_path, monkeypatch):
    """A shell that stands in it sees what was written; its parent need not be writable."""
    here = tmp_path / "here"
    here.mkdir()
    before = here.stat().st_ino
    monkeypatch.chdir(here)
    with written_whole(Path(".")) as into:
        assert into.parent == here
        (into / "scores.json").touch()
        (into / "sub").mkdir()
        (into / "sub" / "x").touch()
    assert sorted(os.listdir(".")) == ["scores.json", "sub"]
    assert (here / "sub" / "x").exists()
    assert here.stat().st_ino == before
    with pytest.raises(InputError, match=r"--output=\. is there and not empty"):
        check_output(Path("."))


def test_scores_appear_last_and_a_failure_on_the_way_leaves_nothing(tmp_path, monkeypatch):
    renamed, rename = [], os.rename

    def failing(source, target):
        renamed.append(Path(source).name)
        if renamed[-1] == "scores.json":
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)

    def write():
        with written_whole(tmp_path) as into:
            for name in ("scores.json", "z.txt", "a.txt"):
                (into / name).touch()

    with pytest.raises(InputError, match="cannot be written"):
        write()
    assert renamed == ["a.txt", "z.txt", "scores.json"]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_in_an_output_directory_does_not_count(tmp_path):
    (tmp_path / ".out.123.tmp").mkdir()
    check_output(tmp_path)
    (tmp_path / ".hidden").touch()
    with pytest.raises(InputError, match="not empty"):
        check_output(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("there", [False, True])
def test_a_signal_leaves_nothing_behind(lnexp, run, tmp_path, monkeypatch, number, code, there):
    out = tmp_path / "out"
    if there:
        out.mkdir()

    def interrupted(*_, **__):
        assert list(tmp_path.rglob(".out.*.tmp"))
        signal.raise_signal(number)
        raise AssertionError("went on")

    monkeypatch.setattr("lnexp.evaluation.score.write_translations", interrupted)
    monkeypatch.setattr(sys, "argv", ["lnexp", "eval", str(run), "--output", str(out)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert list(tmp_path.rglob("*")) == [out] * there
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_penalties_that_are_almost_alike_get_a_directory_each(lnexp, run, tmp_path):
    out = tmp_path / "out"
    lnexp("eval", run, "--length-penalty", "1,1.0000001", "--output", out, "--bootstrap", "0",
          check=0)  # fmt: skip
    assert sorted(p.name for p in out.iterdir()) == ["beam2-lenpen1", "beam2-lenpen1.0000001"]
