"""`lnexp runs`: how runs stand, which one a name means, what differs. Files made by hand."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lnexp.identity import identity_hash
from lnexp.report.find import find
from lnexp.report.inventory import SILENCE, number, read_entry, whole
from lnexp.report.listing import age, clock, elide
from lnexp.run_dir import open_run, write_status

ROOT = Path(__file__).parents[1]
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
TOKENISED = "nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:2.6.0"
NAME = "pre_ln-adam-inverse_sqrt-warmup1-lr0.001-seed1"


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


def identity(recipe="demo", seed=1, lr=0.001, **more):
    return {
        "recipe": {"name": recipe}, "seed": seed, "optimizer": {"lr": lr},
        "model": {"d_model": 64}, "data_fingerprint": "f" * 64, **more,
    }  # fmt: skip


def result(outcome="finished", loss=2.5, bleu=20.25, updates=400, **more):
    test = {
        "loss": loss, "beam": 5, "bleu": bleu, "bleu_signature": SIGNATURE,
        "bleu_tokenised": bleu + 1, "bleu_tokenised_signature": TOKENISED, "chrf": 40.5,
        "chrf_signature": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    }  # fmt: skip
    return {
        "outcome": outcome, "updates": updates, "valid_loss": loss, "valid_bleu": 19.0,
        "valid_loss_smoothed_bits": 4.5, "unigram_entropy": 5.5, "learned": True, "test": test,
        "best": {"t": 300, "valid_loss": 2.25, "test": {**test, "bleu": 21.75}},
        "seconds": 141.6, "tokens": 371016, **more,
    }  # fmt: skip


def session(**more):
    code = {"version": "0.1.0", "commit": "c" * 40, "diff": None}
    return {
        "started": "2026-12-01T13:11:47+0000", "command": ["lnexp train", "+exp=a"],
        "directory": "/home/x", "experiments": ["a"], "code": code, "python": "3.11.7",
        "platform": "Linux", "host": "node7", "cpu": "EPYC", "cpus": 2, "threads": 1, "gpus": [],
        "packages": {"torch": "2.9.0", "numpy": "2.1"}, **more,
    }  # fmt: skip


def make(
    root,
    state="finished",
    *,
    who=None,
    name=NAME,
    release=True,
    sessions=None,
    repeat=False,
    **more,
):
    """A run directory, by the functions that make them in training."""
    who = who or identity()
    run, _ = open_run(root, who["recipe"]["name"], name, who, 400, repeat)
    run.write_json("env", {"data": {"source": "files"}, "sessions": sessions or [session()]})
    if state in ("finished", "diverged"):
        run.write_json("result", {**result(state), **more})
        run.last_checkpoint.write_bytes(b"x" * 1_500_000)
    if state != "new":
        write_status(run, state, 400 if state == "finished" else 120, 400, eta_seconds=90.0,
                     **({"error": "ValueError('no')"} if state == "failed" else {}))  # fmt: skip
    if release:
        run.release()
    return run


def listed(lnexp, *arguments):
    done = lnexp("runs", *arguments, "--json", check=0)
    return json.loads(done.stdout, parse_constant=pytest.fail)


def states(lnexp, *arguments):
    return [run["state"] for run in listed(lnexp, *arguments)]


# How a run stands


@pytest.mark.parametrize("state", ["finished", "diverged", "stopped", "failed", "new"])
def test_a_run_that_no_process_trains_is_what_it_said_last(tmp_path, lnexp, state):
    make(tmp_path, state)
    assert states(lnexp, tmp_path) == [state]


@pytest.mark.parametrize("said", ["running", "stopped", "failed", "new"])
def test_a_locked_run_is_running_whatever_its_last_session_said(tmp_path, lnexp, said):
    run = make(tmp_path, said, release=False)
    try:
        assert states(lnexp, tmp_path) == ["running"]
        with pytest.raises(BlockingIOError):  # looking has not taken the lock away
            open_run(tmp_path, "demo", NAME, identity(), 400, False)
    finally:
        run.release()


def test_a_killed_run_is_dead_even_if_its_number_belongs_to_a_living_process(tmp_path, lnexp):
    run = make(tmp_path, "running")
    assert run.read_json("status")["pid"] == os.getpid()
    assert states(lnexp, tmp_path) == ["dead"]


def test_a_run_killed_between_result_and_status_is_finished(tmp_path, lnexp):
    run = make(tmp_path, "running")
    run.write_json("result", result())
    assert states(lnexp, tmp_path) == ["finished"]


def test_a_run_of_another_machine_is_dead_after_a_silence(tmp_path):
    run = make(tmp_path, "running")
    run.write_json("status", {**run.read_json("status"), "host": "elsewhere", "time": 1000.0})
    assert read_entry(run.path, 1000 + SILENCE - 1).state == "running"
    assert read_entry(run.path, 1000 + SILENCE + 1).state == "dead"


def test_without_a_lock_file_the_process_decides(tmp_path, lnexp):
    run = make(tmp_path, "running")
    (run.path / "lock").unlink()
    assert states(lnexp, tmp_path) == ["running"]
    gone = subprocess.Popen(["true"])
    gone.wait()
    run.write_json("status", {**run.read_json("status"), "pid": gone.pid})
    assert states(lnexp, tmp_path) == ["dead"]
    assert run.read_json("status")["host"] == socket.gethostname()


def test_a_run_that_grows_has_no_result_yet_and_shows_the_earlier_one(tmp_path, lnexp):
    run = make(tmp_path, "finished")
    run.keep_result()
    write_status(run, "stopped", 500, 800)
    [known] = listed(lnexp, tmp_path)
    assert (known["state"], known["t"], known["updates"]) == ("stopped", 500, 800)
    assert known["valid_loss"] is None
    shown = lnexp("runs", "show", run.path, check=0).stdout
    assert re.search(r"test, as it was at 400 updates: .*BLEU 20\.25", shown)


def test_the_remaining_time_shrinks_as_time_passes_and_is_none_for_a_dead_run(tmp_path):
    run = make(tmp_path, "running", release=False)
    seen = run.read_json("status")["time"]
    entry = read_entry(run.path, seen)
    assert entry.eta(seen) == 90
    assert entry.eta(seen + 30) == 60
    assert entry.eta(seen + 100) == 0
    assert entry.eta(seen - 30) == 90  # a clock that is behind
    run.release()
    assert read_entry(run.path, seen).eta(seen) is None


# The list


def test_the_numbers_of_a_run_are_in_its_line(tmp_path, lnexp):
    make(tmp_path, "finished")
    lines = lnexp("runs", tmp_path, check=0).stdout.splitlines()
    short = identity_hash(identity())[:8]
    assert lines[0].split() == [
        "run", "state", "updates", "valid", "loss", "BLEU", "tok.", "time", "age", "name",
    ]  # fmt: skip
    assert lines[1].endswith("demo")
    assert re.fullmatch(
        rf"{short}/v1 +finished +400/400 +2\.500 +20\.25 +21\.25 +2:21 +\d+s +{re.escape(NAME)}",
        lines[2],
    )
    assert f"BLEU on test: beam 5, {SIGNATURE}" in lines
    assert f"tok. BLEU on test: beam 5, {TOKENISED}" in lines
    assert "1 run: 1 finished" in lines


def test_a_run_that_learned_nothing_is_marked(tmp_path, lnexp):
    make(tmp_path, "finished", learned=False)
    out = lnexp("runs", tmp_path, check=0).stdout
    assert " finished* " in out
    assert "*: no better than the unigram entropy" in out


def test_json_has_the_names_of_result_and_status(tmp_path, lnexp):
    run = make(tmp_path, "diverged", updates=119, valid_loss=None, test=None, best=None)
    [known] = listed(lnexp, tmp_path)
    assert known["path"] == str(run.path)
    assert (known["recipe"], known["version"]) == ("demo", 1)
    assert known["name"] == run.path.parent.name
    assert known["hash"] == identity_hash(identity())
    assert (known["state"], known["outcome"]) == ("diverged", "diverged")
    assert (known["t"], known["updates"]) == (119, 400)
    assert (known["valid_loss"], known["test"], known["best"]) == (None, None, None)
    assert (known["learned"], known["seconds"], known["tokens"]) == (True, 141.6, 371016)
    assert known["experiments"] == ["a"]


def test_what_all_runs_of_a_recipe_share_is_said_once(tmp_path, lnexp):
    for seed in (1, 2):
        make(tmp_path, who=identity(seed=seed), name=f"pre_ln-adam-lr1e-05-seed{seed}")
    lines = lnexp("runs", tmp_path, check=0).stdout.splitlines()
    assert lines[1].endswith("demo  (all: pre_ln-adam-lr1e-05)")
    assert [line.split()[-1] for line in lines[2:4]] == ["seed1", "seed2"]


def test_numbers_in_names_sort_as_numbers(tmp_path, lnexp):
    names = [
        "pre_ln-warmup500-lr1e-05-seed2", "pre_ln-warmup500-lr1e-05-seed10",
        "pre_ln-warmup500-lr0.001-seed1", "pre_ln-warmup4000-lr0.001-seed1",
    ]  # fmt: skip
    for i, name in enumerate(reversed(names)):
        make(tmp_path, who=identity(seed=i), name=name)
    found = [run["name"].rsplit("-", 1)[0] for run in listed(lnexp, tmp_path)]
    assert found == names


def test_every_version_is_listed_in_order(tmp_path, lnexp):
    for repeat in [False] + 10 * [True]:
        make(tmp_path, repeat=repeat)
    assert [run["version"] for run in listed(lnexp, tmp_path)] == list(range(1, 12))


def test_sorted_by_loss_the_best_comes_first_and_unscored_runs_last(tmp_path, lnexp):
    for seed, loss in enumerate([3.0, None, 1.0, 2.0]):
        make(tmp_path, who=identity(seed=seed), valid_loss=loss, test={"bleu": seed})
    order = [run["valid_loss"] for run in listed(lnexp, tmp_path, "--sort", "loss")]
    assert order == [1.0, 2.0, 3.0, None]
    order = [run["test"]["bleu"] for run in listed(lnexp, tmp_path, "--sort", "bleu")]
    assert order == [3, 2, 1, 0]


def test_filters_choose_by_experiment_recipe_and_state(tmp_path, lnexp):
    make(tmp_path, who=identity("one"), sessions=[session(), session(experiments=["b", "c"])])
    make(tmp_path, "stopped", who=identity("two"))
    make(tmp_path, "failed", who=identity("three"), sessions=[session(experiments=[])])

    def recipes(*arguments):
        return {run["recipe"] for run in listed(lnexp, tmp_path, *arguments)}

    assert recipes("--exp", "a") == {"one", "two"}
    assert recipes("--exp", "c") == {"one"}
    assert recipes("--state", "stopped", "--state", "failed") == {"two", "three"}
    assert recipes("--recipe", "two", "--recipe", "one", "--state", "finished") == {"one"}
    done = lnexp("runs", tmp_path, "--exp", "z", "--json", check=0)
    assert json.loads(done.stdout) == []
    assert "none of the 3 runs is like that" in done.stderr


def test_a_run_under_way_shows_its_training_loss(tmp_path, lnexp):
    run = make(tmp_path, "stopped")
    write_status(run, "stopped", 120, 400, loss=3.25)
    text = lnexp("runs", tmp_path, check=0).stdout
    assert "~3.250" in text
    assert "~: training loss so far" in text
    make(tmp_path, who=identity(seed=2), loss=2.5)
    assert "~2.5" not in lnexp("runs", tmp_path, check=0).stdout


def test_the_only_run_may_not_be_meant(tmp_path, lnexp):
    make(tmp_path)
    done = lnexp("runs", tmp_path, "--exp", "z", check=0)
    assert done.stderr == "lnexp: the only run is not like that\n"


@pytest.mark.parametrize("width", [80, 100, 132])
def test_no_line_of_runs_is_wider_than_the_terminal(tmp_path, lnexp, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    make(Path("runs"), who=identity(seed=1))
    make(Path("runs"), who=identity(seed=2), name="x" * 40 + "-" + "y" * 200)
    run = make(Path("runs"), "running", who=identity(seed=3), release=False)
    make(Path("runs"), who=identity("iwslt14"), name="post_ln-" * 9 + "seed4")
    lines = lnexp("runs", check=0).stdout.splitlines()
    run.release()
    assert max(map(len, lines[: lines.index("")])) <= width
    assert sum("/v1 " in line for line in lines) == 4


def test_runs_are_found_from_every_level_each_once_and_through_links(tmp_path, lnexp):
    run = make(tmp_path / "runs")
    (run.path.parent / "loop").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(run.path)
    (tmp_path / ".hidden").mkdir()
    make(tmp_path / ".hidden", who=identity(seed=9))
    levels = [run.path, run.path.parent, tmp_path / "runs" / "demo", tmp_path / "runs", tmp_path]
    for level in levels:
        assert len(listed(lnexp, level)) == 1
    assert len(listed(lnexp, *levels, tmp_path / "link")) == 1


def test_a_copied_directory_is_a_run_by_any_name(tmp_path, lnexp):
    run = make(tmp_path / "runs")
    copy = tmp_path / "elsewhere" / "best one"
    copy.parent.mkdir()
    run.path.rename(copy)
    [known] = listed(lnexp, tmp_path / "elsewhere")
    assert (known["name"], known["version"], known["recipe"]) == ("best one", None, "demo")
    assert "finished" in lnexp("runs", "show", copy, check=0).stdout


# Damage


@pytest.mark.parametrize("name", ["identity", "status", "result"])
@pytest.mark.parametrize("text", ["", "{", '{"schema": 1, "t', "[]", "\0", '"x"', "[" * 99999])
def test_a_damaged_file_is_named_and_hides_no_other_run(tmp_path, lnexp, name, text):
    make(tmp_path, who=identity(seed=2))
    run = make(tmp_path)
    (run.path / f"{name}.json").write_text(text)
    assert sorted(states(lnexp, tmp_path)) == ["damaged", "finished"]
    out = lnexp("runs", tmp_path, check=0).stdout
    assert f"{name}.json is not JSON" in out
    assert f"{name}.json is not JSON" in lnexp("runs", "show", run.path, check=0).stdout


def test_other_kinds_of_damage_are_named(tmp_path, lnexp):
    run = make(tmp_path)
    status = run.read_json("status")
    for wrong, said in (
        ({**status, "schema": 7}, "status.json has schema=7, this lnexp reads 1"),
        ({"schema": None}, "status.json has schema=None"),
    ):
        (run.path / "status.json").write_text(json.dumps(wrong))
        assert said in lnexp("runs", tmp_path, check=0).stdout
    run.write_json("status", status)
    run.write_json("result", {"updates": 3})
    assert "result.json has no outcome" in lnexp("runs", tmp_path, check=0).stdout
    (run.path / "identity.json").unlink()
    assert "identity.json is missing" in lnexp("runs", tmp_path, check=0).stdout
    (run.path / "metrics.jsonl").write_text("{}\nnot json\n{}\n")
    shown = lnexp("runs", "show", run.path, check=0).stdout
    assert "metrics.jsonl line 2 is not JSON" in " ".join(shown.split())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    "hash", "result_schema", "identity", "recipe", "name", "state", "t", "updates", "pid", "host",
    "time", "eta_seconds", "error", "outcome", "valid_loss", "learned", "test", "best", "bleu",
    "bleu_signature", "beam", "seconds", "data", "sessions", "experiments", "code", "diff",
    "packages", "command", "gpus", "unigram_entropy", "diverged_at", "data_fingerprint",
]  # fmt: skip
objects = st.dictionaries(
    st.sampled_from(KEYS),
    values | st.dictionaries(st.sampled_from(KEYS), values, max_size=3)
    | st.lists(st.dictionaries(st.sampled_from(KEYS), values, max_size=3), max_size=2),
    max_size=8,
)  # fmt: skip


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(files=st.fixed_dictionaries({n: objects for n in ("identity", "status", "result", "env")}),
       outcome=st.sampled_from(["finished", "diverged", None, 3]),
       state=st.sampled_from(["running", "failed", 7]))  # fmt: skip
def test_whatever_the_files_hold_the_run_is_described(tmp_path, lnexp, files, outcome, state):
    run = tmp_path / "runs" / "demo" / "x-00000000" / "v1"
    run.mkdir(parents=True, exist_ok=True)
    other = tmp_path / "other"
    if not other.exists():
        make(other)
    files = {
        **files,
        "result": {**files["result"], **({"outcome": outcome} if outcome else {})},
        "status": {"state": state, **files["status"]},
    }
    for name, value in files.items():
        (run / f"{name}.json").write_text(json.dumps({**value, "schema": 1}))
    (run / "config.yaml").write_text(json.dumps({"a": files["env"]}))
    assert len(listed(lnexp, tmp_path / "runs")) == 1
    for arguments in (["show", run], ["diff", other, run]):
        json.loads(lnexp("runs", *arguments, "--json", check=0).stdout, parse_constant=pytest.fail)
        assert printable(lnexp("runs", *arguments, check=0).stdout)
    for sort in ("age", "bleu", "loss"):
        assert printable(lnexp("runs", "--sort", sort, tmp_path / "runs", check=0).stdout)


def printable(text):
    return all(line.isprintable() for line in text.split("\n"))


def test_foreign_texts_cannot_move_the_cursor(tmp_path, lnexp):
    run = make(tmp_path, "failed", sessions=[session(cpu="\x1b[2J\r\nx")])
    status = run.read_json("status")
    run.write_json("status", {**status, "error": "\x1b[31mred\x07\nline"})
    shown = lnexp("runs", "show", run.path, check=0).stdout
    assert printable(shown)
    assert "last error: ?[31mred? line" in shown


# Which run a name means


@pytest.fixture
def several(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [
        make(Path("runs"), who=identity(seed=seed), name=f"pre_ln-seed{seed}")
        for seed in range(1, 8)
    ]
    for _ in range(9):
        make(Path("runs"), who=identity(seed=1), name="pre_ln-seed1", repeat=True)
    return runs


@pytest.mark.parametrize(
    "name",
    ["{hash}", "{short}", "{short}/v1", "pre_ln-seed2", "seed2", "demo/pre_ln-seed2-{short}",
     "runs/demo/pre_ln-seed2-{short}/v1", "./runs/demo/pre_ln-seed2-{short}", "seed2-{short}/v1/"],
)  # fmt: skip
def test_a_run_is_found_by_path_or_by_any_part_that_is_its_own(several, lnexp, name):
    full = identity_hash(identity(seed=2))
    done = lnexp("runs", "show", name.format(hash=full, short=full[:8]), "--json", check=0)
    assert json.loads(done.stdout)["hash"] == full


def test_a_whole_version_is_not_a_part_of_another(several, lnexp):
    short = identity_hash(identity(seed=1))[:8]
    done = lnexp("runs", "show", f"{short}/v1", "--json", check=0)
    assert json.loads(done.stdout)["version"] == 1
    done = lnexp("runs", "show", f"pre_ln-seed1-{short}/v10", "--json", check=0)
    assert json.loads(done.stdout)["version"] == 10


def test_a_name_that_could_be_several_runs_lists_five_of_them(several, lnexp):
    done = lnexp("runs", "show", "seed1", check=2)
    assert "seed1 could be 10 runs; name one of: runs/demo/pre_ln-seed1-" in done.stderr
    assert done.stderr.count("runs/demo/pre_ln-seed1-") == 5
    assert done.stderr.endswith("/v5, and 5 more\n")
    assert lnexp("runs", "diff", "seed2", "pre_ln", check=2).stderr.count("\n") == 1


MISTAKES = [
    (["nowhere"], r"nowhere is no directory; name one that runs were trained in"),
    (["empty"], r"empty holds no runs; name a directory that runs were trained in"),
    ([], r"runs is no directory"),
    (["show", "x"], r"x is no run, and runs, where it could be, is no directory; .*--runs-dir DIR"),
    (["show", "x", "--runs-dir", "some"], r"x is no run, and none in some is called so; `lnexp runs some` lists them"),
    (["diff", "x"], r"diff x: one run has no difference; name two or more"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, lnexp, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    make(Path("some"))
    done = lnexp("runs", *arguments, check=2)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert re.search(f"^lnexp: {message}", done.stderr)


# Show and diff


def test_show_has_scores_with_signatures_and_where_they_came_from(tmp_path, lnexp):
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n-old\n+new\n+more\n"
    dirty = {"version": "0.1.0", "commit": "d" * 40, "diff": diff}
    run = make(tmp_path, sessions=[session(), session(code=dirty, host="node8")])
    out = lnexp("runs", "show", run.path, check=0).stdout
    for expected in (
        "finished, 400 of 400 updates, 2:21 of training",
        f"hash {identity_hash(identity())}, asked for by a",
        "learned: the unigram entropy of the targets is 5.500 nats",
        # exp(2.5) = 12.18
        "valid, last weights: loss 2.5000 nats (perplexity 12.18), 4.5000 bits smoothed, BLEU 19.00",
        "BLEU 20.25 (beam 5), tokenised BLEU 21.25, chrF 40.50",
        "test, best weights (update 300): loss",
        "BLEU 21.75 (beam 5)",
        f"BLEU: {SIGNATURE}",
        f"tokenised BLEU: {TOKENISED}",
        "model: d_model 64",
        f"fingerprint {'f' * 64}, source files",
        f"lnexp 0.1.0, commit {'c' * 40}, no uncommitted changes",
        f"commit {'d' * 40}, uncommitted changes: +2 -1 lines, sha256 ",
        "node7: EPYC, CPUs 2, threads 1, no GPU; Python 3.11.7, torch 2.9.0",
        "sessions (2)",
        "2026-12-01T13:11:47+0000: lnexp train +exp=a",
        "last.pt 1.5 MB",
    ):
        assert expected in out
    known = json.loads(lnexp("runs", "show", run.path, "--json", check=0).stdout)
    assert known["result"] == {"schema": 1, **result()}
    assert known["config"]["model"] == {"d_model": 64}
    assert known["checkpoints"] == [{"file": "last.pt", "bytes": 1_500_000}]
    assert [s["host"] for s in known["sessions"]] == ["node7", "node8"]


def test_show_has_the_last_error_and_the_last_evaluation_of_an_unfinished_run(tmp_path, lnexp):
    run = make(tmp_path, "failed")
    run.append("valid", 100, {"loss": 3.0, "bleu": 7.5, "beam": 1})
    run.append("train", 110, {"loss": 1.0})
    run.release()
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "valid", "t": 1')
    run.log_file.write_text("first\n" + "y" * 9000 + "\nValueError: no\n\n")
    out = lnexp("runs", "show", run.path, check=0).stdout
    assert "failed, 120 of 400 updates" in out
    assert "last error: ValueError('no')" in out
    assert "last line of the log: ValueError: no" in out
    assert "valid, update 100: loss 3.0000 nats (perplexity 20.09), BLEU 7.50 (beam 1)" in out
    known = json.loads(lnexp("runs", "show", run.path, "--json", check=0).stdout)
    assert known["error"] == "ValueError('no')"
    assert known["last_valid"]["t"] == 100


def config(run, **more):
    text = json.dumps({"model": {"d_model": 64}, "seed": 1, "threads": 1, **more})
    run.config_file.write_text(f"# schema: 1\n{text}\n")  # JSON is yaml


@pytest.fixture
def two(tmp_path):
    a = make(tmp_path, name="a")
    other = session(
        code={"version": "0.2.0", "commit": None, "diff": None},
        packages={"torch": "2.10.0", "numpy": "2.1", "new": "1"}, gpus=["H200"],
    )  # fmt: skip
    who = identity(lr=0.0005, model={"d_model": 64.0}, extra=True) | {"data_fingerprint": "0" * 64}
    b = make(tmp_path, name="b", who=who, sessions=[other, session()], valid_loss=2.0, tokens=371000,
             updates=401)  # fmt: skip
    config(a, optimizer={"lr": 0.001})
    config(b, optimizer={"lr": 0.0005}, threads=4)
    return a.path, b.path


def test_diff_keeps_what_differs_and_nothing_else(two, lnexp):
    done = json.loads(lnexp("runs", "diff", *two, "--json", check=0).stdout)
    assert done == {
        "runs": [str(path) for path in two],
        "config": {"optimizer.lr": [0.001, 0.0005], "extra": [None, True]},
        "execution config": {"threads": [1, 4]},
        "code": {
            "version": ["0.1.0", "0.2.0, then 0.1.0"],
            "commit": ["c" * 40, f"none, then {'c' * 40}"],
            "packages.torch": ["2.9.0", "2.10.0, then 2.9.0"],
            "packages.new": [None, "1"],
        },
        "machine": {"gpus": ["none", "H200, then none"]},
        "data": {"fingerprint": ["f" * 64, "0" * 64]},
        "result": {"updates": [400, 401], "valid_loss": [2.5, 2.0], "tokens": [371016, 371000]},
    }


@pytest.mark.parametrize("width", [None, 60])
def test_diff_says_how_far_results_are_apart_and_how_they_were_scored(
    two, lnexp, monkeypatch, width
):
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    out = lnexp("runs", "diff", *two, check=0).stdout
    assert re.search(r"valid_loss\s+(A  )?2\.5000\s+(B  )?2\.0000 \(-0\.5000\)", out)
    assert re.search(r"tokens\s+(A  )?371,016\s+(B  )?371,000 \(-16\)", out)
    assert re.search(r"optimizer\.lr\s+(A  )?0\.001\s+(B  )?0\.0005\n", out)
    assert re.search(r"extra\s+(A  )?none\s+(B  )?true\n", out)
    assert f"BLEU on test: beam 5, {SIGNATURE}" in out


def test_other_uncommitted_changes_are_a_difference(tmp_path, lnexp):
    codes = [{"version": "1", "commit": "c", "diff": f"+{line}\n"} for line in "xxy"]
    runs = [
        make(tmp_path, who=identity(seed=i), sessions=[session(code=code)]).path
        for i, code in enumerate(codes)
    ]
    done = json.loads(lnexp("runs", "diff", *runs, "--json", check=0).stdout)
    assert list(done["code"]) == ["uncommitted"]
    first, second, third = done["code"]["uncommitted"]
    assert first == second != third
    assert done["config"] == {"seed": [0, 1, 2]}


def test_a_run_and_its_repetition_differ_in_nothing_but_the_result(tmp_path, lnexp):
    a = make(tmp_path)
    b = make(tmp_path, repeat=True, seconds=150.6)
    done = json.loads(lnexp("runs", "diff", a.path, b.path, "--json", check=0).stdout)
    assert {name for name, rows in done.items() if rows} == {"runs", "result"}
    assert done["result"] == {"seconds": [141.6, 150.6]}
    out = lnexp("runs", "diff", a.path, b.path, check=0).stdout
    assert "config: the same\n" in out
    assert "seconds  141.6000  150.6000 (+9.0000)" in out


# Care


def test_nothing_is_written_below_the_directory(tmp_path, lnexp):
    for state in ("finished", "running", "failed", "new"):
        make(tmp_path, state, who=identity(state))
    snapshot = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}
    lnexp("runs", tmp_path, check=0)
    paths = [entry.path for entry in find([str(tmp_path)], time.time(), pytest.fail)]
    lnexp("runs", "show", paths[0], check=0)
    lnexp("runs", "diff", *paths, check=0)
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")} == snapshot


def test_the_command_needs_no_torch_and_any_locale_can_print(tmp_path):
    run = make(tmp_path / "läufe", sessions=[session(cpu="ü")])
    code = (
        "import sys; from lnexp.cli import dispatch; _, root, run = sys.argv; "
        "dispatch(['runs', root]); dispatch(['runs', 'show', run]); "
        "dispatch(['runs', 'diff', run, run]); "
        "print([m for m in ('torch', 'hydra', 'omegaconf', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path, run.path], capture_output=True, text=True, cwd=ROOT, check=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_directory_that_vanishes_or_cannot_be_read_is_passed_over(tmp_path, lnexp, monkeypatch):
    make(tmp_path)
    (tmp_path / "secret").mkdir()
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    done = lnexp("runs", tmp_path, check=0)
    assert "1 finished" in done.stdout
    assert f"passed over: {tmp_path / 'secret'} cannot be read (Permission denied)" in done.stderr


def test_a_real_run_is_listed_shown_and_compared(tiny, lnexp):
    overrides = [*tiny, "train.updates=4"]
    paths = [
        Path(lnexp("train", *overrides, f"seed={seed}", check=0).stdout.splitlines()[-1])
        for seed in (1, 2)
    ]
    known = listed(lnexp, paths[0].parents[1])
    assert [run["path"] for run in known] == [str(path) for path in paths]
    for run, path in zip(known, paths, strict=True):
        saved = json.loads((path / "result.json").read_text())
        assert run["state"] == "finished"
        assert (run["valid_loss"], run["test"]) == (saved["valid_loss"], saved["test"])
    assert saved["test"]["bleu_signature"] in lnexp("runs", "show", paths[1], check=0).stdout
    done = json.loads(lnexp("runs", "diff", *paths, "--json", check=0).stdout)
    assert done["config"] == {"seed": [1, 2]}
    assert done["execution config"] == done["code"] == done["machine"] == done["data"] == {}
    assert done["result"]["valid_loss"] == [run["valid_loss"] for run in known]


# Small parts


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (86400 * 3, "3d"),
     (-5, "0s"), (None, "-"), (1e300, "-")],
)  # fmt: skip
def test_ages(seconds, text):
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (61.9, "1:01"), (3600, "1:00:00"), (36061, "10:01:01"), (-1, "-"), (None, "-")],
)
def test_clocks(seconds, text):
    assert clock(seconds) == text


def test_only_finite_numbers_are_numbers():
    assert [number(v) for v in (1, 2.5, True, "3", float("nan"), 10**400, None)] == [
        1, 2.5, None, None, None, None, None,
    ]  # fmt: skip
    assert [whole(v) for v in (3, 3.0, 3.5)] == [3, 3, None]


@given(st.text(max_size=40), st.integers(10, 30))
def test_an_elided_text_keeps_its_ends_and_fits(text, width):
    short = elide(text, width)
    assert len(short) == min(len(text), width)
    assert text.startswith(short[:3])
    assert text.endswith(short[-3:])
