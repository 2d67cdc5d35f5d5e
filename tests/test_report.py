"""Reading runs back, comparing them in a table and in words, and drawing their curves."""

import json
import math
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.errors import InputError
from lnexp.report.figures import running_mean, save_curves, setting
from lnexp.report.load import Run, load_run
from lnexp.report.tables import (
    MARGIN,
    PARTING,
    WARMUP,
    Arm,
    compare,
    comparison_table,
    notes,
    sentence,
    table_row,
)

CONFIG = """# schema: 1
recipe: {name: demo, lr: 0.001, warmup: 100}
optimizer: {_target_: torch.optim.Adam, lr: 0.001}
model: {d_model: 128, n_layers: 4}
seed: 1
"""
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def rows(loss):
    return [
        {"kind": "train", "t": 1, "loss": 7.0, "lr": 0.001},
        {"kind": "probe", "t": 1, "grad_norm/w": 0.5},
        {"kind": "train", "t": 10, "loss": 5.0, "lr": 0.001},
        {
            "kind": "valid",
            "t": 10,
            "loss": 4.0,
            "bleu": 1.5,
            "beam": 1,
            "bleu_signature": SIGNATURE,
        },
        {
            "kind": "valid",
            "t": 20,
            "loss": loss,
            "bleu": 30.25,
            "beam": 1,
            "bleu_signature": SIGNATURE,
        },
    ]


def finished(loss):
    return {
        "schema": 1, "outcome": "finished", "updates": 20, "valid_loss": loss, "valid_bleu": 30.25,
        "test": {"loss": loss, "bleu": 28.5, "beam": 5, "bleu_signature": SIGNATURE},
        "unigram_entropy": 5.25, "learned": loss < 5.25, "seconds": 61.7,
    }  # fmt: skip


DIVERGED = {
    "schema": 1, "outcome": "diverged", "updates": 6, "valid_loss": None, "test": None,
    "unigram_entropy": 5.25, "learned": False, "seconds": 3.2, "diverged_at": 7,
}  # fmt: skip


def write(path, *, config=CONFIG, result=None, status=None, metrics=()):
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config)
    for name, value in (("result", result), ("status", status)):
        if value is not None:
            (path / f"{name}.json").write_text(json.dumps(value))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
    return path


def arm(label, result, status=None, curves=None):
    return Arm(
        label, Run(path=None, config={}, result=result, status=status or {}, curves=curves or {})
    )


@pytest.fixture
def arms(tmp_path):
    """A finished run, one that diverged at update 7, and one that was stopped before any row."""
    return [
        Arm("good", load_run(write(tmp_path / "a/v1", result=finished(0.7), metrics=rows(0.7)))),
        Arm("bad", load_run(write(tmp_path / "b/v1", result=DIVERGED, metrics=rows(0.7)[:1]))),
        Arm("cut", load_run(write(tmp_path / "c/v1", status={"schema": 1, "state": "stopped", "t": 3}))),
    ]  # fmt: skip


# Loading


def test_a_finished_run_is_read_back(arms):
    run = arms[0].run
    assert run.outcome == "finished"
    assert run.updates == 20
    assert run.config["model"]["d_model"] == 128
    assert sorted(run.curves) == ["probe", "train", "valid"]
    assert run.curve("train", "loss") == ([1, 10], [7.0, 5.0])
    assert run.curve("valid", "bleu") == ([10, 20], [1.5, 30.25])
    assert run.curve("valid", "nothing") == ([], [])


def test_runs_that_did_not_finish_say_how_they_ended(arms, tmp_path):
    killed = load_run(write(tmp_path / "k", status={"schema": 1, "state": "running", "t": 12}))
    assert [arms[1].run.outcome, arms[2].run.outcome] == ["diverged", "stopped"]
    assert arms[1].run.diverged_at == 7
    assert (killed.outcome, killed.updates) == ("unfinished", 12)


def test_values_that_are_not_finite_are_no_points_of_a_curve(tmp_path):
    metrics = [{"kind": "train", "t": 1, "loss": 2.0}, {"kind": "train", "t": 2, "loss": None}]
    assert load_run(write(tmp_path / "r", metrics=metrics)).curve("train", "loss") == ([1], [2.0])


def test_a_torn_last_row_is_passed_over(tmp_path):
    path = write(tmp_path / "r", metrics=rows(1.0))
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "t": 3')
    assert len(load_run(path).curves["train"]) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.yaml", "a: [1", r"config\.yaml cannot be read .*train the run again"),
        ("config.yaml", "\x00", r"config\.yaml cannot be read"),
        ("config.yaml", "- 1\n", r"config\.yaml is not the config of a run"),
        ("config.yaml", "a: 1\n", r"config\.yaml is not the config of a run"),
        ("result.json", "{", r"result\.json is not JSON; delete it"),
        ("result.json", '{"schema": 2}', r"schema=2, this lnexp reads 1"),
        ("status.json", "[]", r"status\.json is not JSON"),
        ("metrics.jsonl", '{"kind"\n{}\n', r"metrics\.jsonl line 1 is not JSON"),
        ("metrics.jsonl", '{"t": 1}\n', r"row 1 of the metrics is no row of lnexp"),
        ("metrics.jsonl", "3\n", r"row 1 of the metrics is no row of lnexp"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, name, text, message):
    path = write(tmp_path / "r", result=finished(1.0), status={"schema": 1}, metrics=rows(1.0))
    (path / name).write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_run(path)
    assert "\n" not in str(error.value)


def test_what_is_no_run_directory_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"nowhere is no directory; name a run directory"):
        load_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"holds no config\.yaml; name a run directory"):
        load_run(tmp_path)


# The table


def test_a_row_holds_the_numbers_of_the_record(arms):
    row = table_row(arms[0])
    assert (row.valid_loss, row.valid_bleu, row.test_bleu, row.learned) == (0.7, 30.25, 28.5, True)
    assert row.perplexity == pytest.approx(math.e**0.7)


def test_the_table_shows_every_outcome(arms):
    head, good, bad, cut = comparison_table(arms).splitlines()
    assert head.split() == (
        [
            "arm",
            "valid",
            "loss",
            "perplexity",
            "valid",
            "BLEU",
            "test",
            "BLEU",
            "learned",
            "outcome",
            "updates",
            "seconds",
        ]
    )
    assert good.split() == [
        "good",
        "0.700",
        "2.01",
        "30.25",
        "28.50",
        "yes",
        "finished",
        "20",
        "62",
    ]
    assert bad.split() == ["bad", "-", "-", "-", "-", "no", "diverged", "at", "7", "6", "3"]
    assert cut.split() == ["cut", "-", "-", "-", "-", "-", "stopped", "3", "-"]


def test_columns_line_up(arms):
    lines = comparison_table(arms).splitlines()
    for name in ("learned", "outcome"):
        start = lines[0].index(name)
        assert all(line[start - 2 : start] == "  " and line[start] != " " for line in lines)
    for name in ("valid loss", "test BLEU", "updates"):
        end = lines[0].index(name) + len(name)
        assert all(line[end - 1] != " " and line[end : end + 2] in ("", "  ") for line in lines)


def test_every_score_has_its_signature(arms):
    assert notes(arms)[1:] == [
        "learned: valid loss below the unigram entropy of the training targets, 5.250 nats",
        f"valid BLEU: beam 1, {SIGNATURE}",
        f"test BLEU: beam 5, {SIGNATURE}",
    ]


def test_scores_computed_differently_are_told_apart(arms):
    other = finished(0.9)
    other["test"] = {**other["test"], "bleu_signature": "nrefs:1|tok:none"}
    text = "\n".join(notes([arms[0], arm("other", other)]))
    assert f"test BLEU (good): beam 5, {SIGNATURE}" in text
    assert "test BLEU (other): beam 5, nrefs:1|tok:none" in text


# What it says in words


def test_curves_part_from_the_margin_on():
    assert compare(arm("a", finished(4.0)), arm("b", finished(3.5)))[0] == "higher"
    assert compare(arm("a", finished(3.5)), arm("b", finished(4.0)))[0] == "lower"
    assert compare(arm("a", finished(4.0)), arm("b", finished(3.501)))[0] == "alike"


@given(st.floats(0, 20), st.floats(0, 20))
def test_the_sentence_agrees_with_the_numbers_in_it(a, b):
    text = sentence(PARTING, arm("A", finished(a)), arm("B", finished(b)))
    said = [float(number) for number in re.findall(r"\d+\.\d{3}", text)]
    assert said[2] == pytest.approx(abs(said[0] - said[1]))
    parts = text.startswith("The curves part")
    assert parts == (said[2] >= MARGIN)
    assert ("other way round" in text) == (parts and said[0] < said[1])


@given(st.floats(0, 20), st.floats(0, 20))
def test_swapping_the_arms_swaps_the_verdict(a, b):
    first, second = arm("a", finished(a)), arm("b", finished(b))
    swapped = {"higher": "lower", "lower": "higher", "alike": "alike"}
    assert compare(second, first)[0] == swapped[compare(first, second)[0]]


GOOD, BAD = arm("G", finished(1.0)), arm("D", DIVERGED)
CUT = arm("C", {}, {"state": "stopped", "t": 3})


@pytest.mark.parametrize(
    ("first", "second", "parting", "warmup"),
    [
        (BAD, GOOD, "The curves part: D diverged at update 7 and G ends", "Warm-up helps Post-LN:"),
        (GOOD, BAD, "The curves part, but the other way round", "Warm-up harms Post-LN here:"),
        (BAD, BAD, "There are no curves to tell apart: D div", "Warm-up does not keep Post-LN from div"),
        (CUT, GOOD, "No verdict on whether .*: C has not ended .stopped, 3", "No verdict on what warm-up"),
        (BAD, CUT, "No verdict on whether .*: C has not ended", "No verdict on what warm-up"),
        (CUT, CUT, "No verdict on whether .*: C has .* and C has", "No verdict on what warm-up"),
    ],
)  # fmt: skip
def test_arms_without_a_loss_have_true_sentences(first, second, parting, warmup):
    assert re.match(parting, sentence(PARTING, first, second))
    assert re.match(warmup, sentence(WARMUP, first, second))


def test_runs_of_different_length_are_not_compared():
    longer = arm("L", {**finished(0.1), "updates": 40})
    assert compare(longer, arm("S", finished(4.0))) == (
        "open",
        "L ends at a validation loss of 0.100 after 40 updates and "
        "S ends at a validation loss of 4.000 after 20 updates; they are of different length",
    )


def test_a_loss_that_is_not_finite_is_not_compared():
    assert compare(arm("N", {**finished(1.0), "valid_loss": None}), GOOD) == (
        "open", "N finished without a finite validation loss",
    )  # fmt: skip


# The figure


def test_the_figure_says_what_it_shows(arms, tmp_path):
    png, svg = save_curves(arms, setting(arms[0].run), tmp_path / "figures" / "demo")
    assert png.read_bytes().startswith(b"\x89PNG\r\n")
    width = int.from_bytes(png.read_bytes()[16:20], "big")
    assert width >= 1000
    text = svg.read_text()
    for words in (
        "demo: 4+4 layers, d_model 128, Adam, peak lr 0.001, seed 1", "good", "bad (diverged at 7)",
        "cut (stopped)", "unigram entropy of the targets",
        "nats per target token", "update", "BLEU",
    ):  # fmt: skip
        assert f"<!-- {words} -->" in text


def test_the_same_records_draw_the_same_bytes(arms, tmp_path):
    once = save_curves(arms, "t", tmp_path / "one")
    again = save_curves(arms, "t", tmp_path / "two")
    assert [p.read_bytes() for p in once] == [p.read_bytes() for p in again]


@given(st.floats(-5, 5), st.floats(-5, 5), st.integers(0, 30))
def test_smoothing_leaves_a_straight_line_alone(slope, start, n):
    line = [start + slope * i for i in range(n)]
    assert running_mean(line, 5) == pytest.approx(line, abs=1e-9)


def test_smoothing_averages_five_neighbours():
    assert running_mean([0, 0, 10, 0, 0, 0], 5)[2] == 2


def test_reports_import_no_torch():
    code = (
        "import sys, lnexp.report.load, lnexp.report.tables, lnexp.report.figures;"
        "print(sorted({'torch', 'hydra', 'omegaconf', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
