import json

import pytest

from lnexp.errors import InputError
from lnexp.theory.options import parse, specs
from lnexp.theory.study import NAMES

SMALL = ["model.d_model=16", "model.d_ff=32", "model.n_heads=2"]


@pytest.fixture
def text(corpus_dir, tmp_path):
    """Overrides that name the tiny corpus."""
    return [
        "recipe=files", "data.src=de", "data.tgt=en", "data.vocab_size=60", f"data.path={corpus_dir}",
        f"data.cache_dir={tmp_path / 'cache'}", "train.tokens_per_batch=256", *SMALL,
    ]  # fmt: skip


def test_a_study_writes_its_table_figures_and_json(lnexp, tmp_path, text):
    out = tmp_path / "theory"
    done = lnexp("theory", "lemma_3", "--quick", "--seeds", "2", "--json", "-o", out,
                 *text, check=0)  # fmt: skip
    found = json.loads(done.stdout)
    assert found["seeds"] == 2
    assert found["recipe"] == "files"
    assert {f["statement"] for f in found["findings"]} == {"lemma_3"}
    assert {f["verdict"] for f in found["findings"]} <= {
        "supported",
        "contradicted",
        "inconclusive",
    }
    assert json.loads((out / "theory-lemma_3.json").read_text()) == found
    assert "Lemma 3" in (out / "theory-lemma_3.md").read_text()
    assert not (out / "theory.md").exists()  # that of the whole study stays as it is
    assert (out / "lemma_3.png").exists()
    assert (out / "lemma_3.svg").exists()
    assert "real model" in done.stderr


def test_the_terminal_shows_the_table_and_the_directory(lnexp, tmp_path):
    done = lnexp("theory", "appendix_g", "--quick", "--out", tmp_path / "t", check=0)
    assert "Appendix G" in done.stdout
    assert "supported" in done.stdout
    assert "1 supported, 0 contradicted, 0 inconclusive" in done.stdout
    assert done.stdout.rstrip().endswith(str(tmp_path / "t"))


def test_the_same_command_measures_nothing_again(lnexp, tmp_path):
    arguments = ["theory", "appendix_g", "--quick", "-o", tmp_path / "t"]
    lnexp(*arguments, check=0)
    before = (tmp_path / "t" / "measurements.jsonl").read_bytes()
    lnexp(*arguments, check=0)
    assert (tmp_path / "t" / "measurements.jsonl").read_bytes() == before


def test_a_placement_has_a_line(lnexp, tmp_path, text):
    done = lnexp("theory", "placements", "--placements", "pre_ln", "--quick", "--seeds=2",
                 "-o", tmp_path / "t", *text, check=0)  # fmt: skip
    assert "Pre-LN" in done.stdout


def test_without_names_everything_but_the_placements_is_measured():
    assert parse([]).names == [n for n in NAMES if n != "placements"]
    assert parse(["--placements", "all"]).names == list(NAMES)
    assert parse(["--placements", "all"]).placements == sorted(specs())
    assert parse([]).whole
    assert not parse(["theorem_1"]).whole
    assert parse(["theorem_1", "recipe=multi30k"]).overrides == ["recipe=multi30k"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lemma_9"], "'lemma_9' is no statement; there are: lemma_1, "),
        ([""], "'' is no statement; there are: lemma_1, "),
        (["--seeds", "²"], "--seeds ² must be at least 2"),
        (["++model.n_layers=3"], "++model.n_layers=3 is not for this study"),
        (["+placement.branch_gain=0.1"], "+placement.branch_gain=0.1 is not for this study"),
        (["init_from=x"], "init_from=x is not for this study; use instead: lnexp probe"),
        (["norm=rms"], "norm=rms is not for this study; use instead: lnexp probe norm=NAME"),
        (["--config-dir", "x"], "--config-dir is not for this study; put your yaml into conf"),
        (["--fast"], "--fast is no option of lnexp theory; see lnexp theory --help"),
        (["--seeds", "1"], "--seeds 1 must be at least 2, for an interval"),
        (["--seeds", "many"], "--seeds many must be at least 2"),
        (["--seeds"], "--seeds needs a value"),
        (["-o", "--quick"], "-o needs a value"),
        (
            ["--placements", "mid_ln"],
            "--placements mid_ln: there is no such placement; there are: ",
        ),
        (["placement=pre_ln"], "placement=pre_ln is not for this study; use instead: --placements"),
        (["seed=3"], "seed=3 is not for this study; use instead: --seeds N"),
        (["model.n_layers=3"], "model.n_layers=3 is not for this study"),
    ],
)
def test_mistakes_are_said_in_one_line(arguments, message):
    with pytest.raises(InputError) as error:
        parse(arguments)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_wrong_key_ends_with_2(lnexp, tmp_path):
    done = lnexp(
        "theory", "appendix_g", "--quick", "-o", tmp_path / "t", "data.nonsense=1", check=2
    )
    assert "data.nonsense is no key of this config" in done.stderr


def test_help_names_the_statements(lnexp):
    done = lnexp("theory", "--help", check=0)
    assert all(name in done.stdout for name in NAMES)


def test_a_file_is_no_directory(lnexp, tmp_path):
    (tmp_path / "t").write_text("mine")
    done = lnexp("theory", "appendix_g", "--quick", "-o", tmp_path / "t", check=2)
    assert "is no directory to write to" in done.stderr
