"""The record: versions, resuming, locks, torn lines, whole files."""

import fcntl
import json
import math
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lnexp.atomic import atomic_write
from lnexp.errors import InputError
from lnexp.identity import identity_hash
from lnexp.run_dir import open_run, planned_path

WHO = {"model": {"d_model": 8}, "seed": 1}


def opened(tmp_path, updates=10, repeat=False, who=WHO, name="pre_ln-seed1"):
    run, state = open_run(tmp_path, "demo", name, who, updates, repeat)
    run.release()
    return run, state


def finish(run, updates, outcome="finished"):
    run.last_checkpoint.touch()
    run.write_json("result", {"outcome": outcome, "updates": updates})


def test_a_run_directory_is_named_after_its_identity(tmp_path):
    run, state = opened(tmp_path)
    assert state == "new"
    assert run.path == tmp_path / "demo" / f"pre_ln-seed1-{identity_hash(WHO)[:8]}" / "v1"
    assert planned_path(tmp_path, "demo", "pre_ln-seed1", WHO) == run.path


def test_the_same_run_is_resumed_then_left_alone_then_grown(tmp_path):
    run, _ = opened(tmp_path)
    assert opened(tmp_path) == (run, "new")
    run.last_checkpoint.touch()
    assert opened(tmp_path) == (run, "unfinished")
    finish(run, 10)
    assert opened(tmp_path) == (run, "finished")
    assert opened(tmp_path, updates=20) == (run, "unfinished")
    with pytest.raises(
        InputError, match=r"train\.updates=5 is below the 10 updates .* repeat=true"
    ):
        opened(tmp_path, updates=5)


def test_repeat_starts_a_new_version_of_a_finished_run_only(tmp_path):
    run, _ = opened(tmp_path)
    assert opened(tmp_path, repeat=True)[0].path.name == "v1"
    finish(run, 10)
    assert opened(tmp_path, repeat=True)[0].path.name == "v2"
    assert opened(tmp_path)[0].path.name == "v2"
    assert planned_path(tmp_path, "demo", "pre_ln-seed1", WHO).name == "v2"


def test_a_diverged_run_is_finished_whatever_is_asked(tmp_path):
    run, _ = opened(tmp_path)
    finish(run, 3, "diverged")
    assert opened(tmp_path, updates=50) == (run, "finished")
    assert opened(tmp_path, updates=2) == (run, "finished")


def test_results_of_other_code_start_a_new_version(tmp_path, monkeypatch):
    run, _ = opened(tmp_path)
    finish(run, 10)
    monkeypatch.setattr("lnexp.run_dir.RESULT_SCHEMA", 99)
    assert opened(tmp_path)[0].path.name == "v2"


def test_identities_with_the_same_short_hash_do_not_share_a_version(tmp_path):
    run, _ = opened(tmp_path)
    saved = run.read_json("identity")
    run.write_json("identity", {**saved, "hash": saved["hash"][:8] + "0" * 56})
    assert opened(tmp_path)[0].path.name == "v2"


def test_versions_count_as_numbers(tmp_path):
    run, _ = opened(tmp_path)
    for n in (2, 9, 10):
        (run.path.parent / f"v{n}").mkdir()
    (run.path.parent / "v11.old").mkdir()
    assert opened(tmp_path)[0].path.name == "v10"


def test_long_names_keep_their_hash(tmp_path):
    run, _ = opened(tmp_path, name="x" * 300)
    name = run.path.parent.name
    assert len(name) == 120
    assert name.endswith(f"-{identity_hash(WHO)[:8]}")


def hold(tmp_path, ready, done):
    run = open_run(tmp_path, "demo", "pre_ln-seed1", WHO, 10, False)
    ready.set()
    done.wait(30)
    del run


def test_two_processes_never_train_one_run(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path, ready, done))
    other.start()
    assert ready.wait(30)
    with pytest.raises(BlockingIOError, match=r"v1 is being trained by process"):
        opened(tmp_path)
    other.kill()  # a dead owner holds no lock
    other.join()
    assert opened(tmp_path)[1] == "new"


def test_rows_survive_a_torn_last_line(tmp_path):
    run, _ = opened(tmp_path)
    run.append("train", 1, {"loss": 2.5, "grad_norm": math.inf})
    size = run.metrics_size()
    run.append("valid", 2, {"loss": math.nan, "note": "ü"})
    run.release()
    path = run.path / "metrics.jsonl"
    whole = path.read_bytes()
    for cut in range(size + 1, len(whole)):
        path.write_bytes(whole[:cut])
        rows = list(run.metrics())
        assert rows[0] == {"kind": "train", "t": 1, "loss": 2.5, "grad_norm": None}
        assert len(rows) == (2 if cut == len(whole) - 1 else 1)
    run.truncate_metrics(size)
    assert [row["t"] for row in run.metrics()] == [1]
    path.write_bytes(b"{broken\n" + whole)
    with pytest.raises(InputError, match=r"metrics\.jsonl line 1 is not JSON"):
        list(run.metrics())


def test_json_files_state_their_schema_and_stay_valid(tmp_path):
    run, _ = opened(tmp_path)
    run.write_json("result", {"valid_loss": math.nan, "test": {"bleu": [math.inf]}})
    text = (run.path / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "schema": 1, "valid_loss": None, "test": {"bleu": [None]},
    }  # fmt: skip
    (run.path / "result.json").write_text(text[:20])
    assert run.read_json("result") == {}
    assert run.read_json("nothing") == {}


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    atomic_write(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomic_write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "demo").write_text("a file in the way")
    with pytest.raises(InputError, match=r"runs_dir: cannot write .*set runs_dir=DIR"):
        opened(tmp_path)


def test_json_files_are_utf_8_whatever_the_locale(tmp_path, process_env_c):
    run, _ = opened(tmp_path)
    run.write_json("env", {"directory": "/läufe/ünï"})
    assert process_env_c(
        f"print(ascii(RunDir(Path({str(run.path)!r})).read_json('env')))"
    ) == ascii({"schema": 1, "directory": "/läufe/ünï"})


@pytest.fixture
def process_env_c():
    """Run code in a process whose locale is C and where Python does not switch to UTF-8."""

    def run(code):
        done = subprocess.run(
            [sys.executable, "-c", f"from pathlib import Path; from lnexp.run_dir import RunDir; {code}"],
            capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1],
            env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        )  # fmt: skip
        return done.stdout.strip()

    return run


def test_who_looks_whether_a_run_is_locked_does_not_keep_it_from_starting(tmp_path):
    run, _ = opened(tmp_path)
    with open(run.path / "lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.2, fcntl.flock, (file, fcntl.LOCK_UN)).start()
        again, state = opened(tmp_path)
        assert (again, state) == (run, "new")
