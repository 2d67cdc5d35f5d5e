"""`lnexp eval` as a user meets it: weights kept and averaged, scores, translations, mistakes."""

import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import TINY
from hypothesis import given
from hypothesis import strategies as st

from lnexp.checkpoint import load_model, save_model
from lnexp.cli import dispatch
from lnexp.data.preparation import Moses
from lnexp.errors import InputError
from lnexp.evaluation.translate import incoming
from lnexp.kept_weights import find, needed
from lnexp.run_dir import RunDir

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
    import signal

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
    import shutil

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
    import shutil

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
        ([run, "--checkpoint", "last:8"], f"--checkpoint=last:8: {run} has 7 evaluations; "
         "use last:7 or less"),
        ([run, "--beam", "0"], "argument --beam: 0 must be a whole number of at least 1"),
        ([run, "--length-penalty", "nan"], "argument --length-penalty: nan must be a number"),
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
        ([run, "--output", short], f"--output={short} is there and not empty"),
        ([run, "--translate", "--split", "test"], "--translate reads standard input and takes no "
         "--split; drop it"),
        ([run, other, "--translate"], "--translate takes one run, not 2"),
        ([run, run / ".." / "v1"], f"{run} is named twice; a run is not compared with itself"),
        ([run, "--translate", "--beam", "1,2"], "--translate takes one --beam, not 2"),
        ([run, "--device", "gpu"], "device=gpu cannot be used"),
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
    import shutil

    copy = tmp_path / "v1"
    shutil.copytree(run, copy)
    (copy / "tokenizer.model").write_bytes(b"other")
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
    assert find(run, "13").paths == [run.last_checkpoint]
    assert find(run, "last:1").paths == [run.weights(10)]


def test_an_average_needs_all_its_weights(tmp_path):
    run = record(tmp_path, {10: 3.0, 20: 2.0, 30: 2.5}, [20, 30])
    with pytest.raises(InputError, match=r"updates? 10; it keeps those of: 20, 30 \(train.keep_w"):
        find(run, "last:3")


def test_a_run_that_was_never_evaluated_has_no_best(tmp_path):
    with pytest.raises(InputError, match=r"--checkpoint=best: .* has no evaluation with a finite"):
        find(RunDir(tmp_path), "best")
