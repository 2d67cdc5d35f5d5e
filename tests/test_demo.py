"""`make demo`: three runs watched from outside, whatever becomes of them."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "demo.py"
TINY = [
    "train.updates=3", "train.eval_every=2", "train.log_every=1", "model.d_model=16",
    "model.d_ff=32", "model.n_heads=2", "model.n_layers=1", "decode.beam=1",
    "decode.max_len_a=0.5", "decode.max_len_b=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def demo():
    """The script as a module, and the one beside it."""
    sys.path.insert(0, str(SCRIPT.parent))
    try:
        spec = importlib.util.spec_from_file_location("demo", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        sys.modules["demo"] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return module


@pytest.fixture
def child(demo):
    """Make an arm of any Python code."""

    def make(label, code):
        out, err = [stack.enter_context(file()) for file in [tempfile.TemporaryFile] * 2]
        return demo.Child(label, [sys.executable, "-c", code], out, err)

    with ExitStack() as stack:
        yield make


def script(*arguments, timeout=200):
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def test_the_demo_trains_compares_and_draws(tmp_path):
    done = script(*TINY, f"runs_dir={tmp_path / 'runs'}", f"data.cache_dir={tmp_path / 'cache'}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for label in ("Post-LN without warm-up", "Pre-LN without warm-up", "Post-LN with warm-up"):
        (row,) = [line for line in lines if line.startswith(f"{label}  ")]
        assert "finished" in row
        assert row.split()[-2] == "3"
    assert any(line.startswith("test BLEU: beam 1, nrefs:1|case:mixed|") for line in lines)
    # Three updates of a tiny model tell nothing apart, and the demo says so.
    assert any(line.startswith("The curves do not part here: ") for line in lines)
    paths = [Path(line.split(maxsplit=1)[1]) for line in lines if line[:6] in ("figure", "run   ")]
    assert [path.name for path in paths] == ["demo.png", "demo.svg", "v1", "v1", "v1"]
    assert all(path.exists() for path in paths)


CONFIG = """
recipe: {name: demo}
optimizer: {_target_: torch.optim.Adam, lr: 0.001}
model: {d_model: 128, n_layers: 4}
seed: 1
"""


def test_runs_that_ended_before_are_compared_whatever_their_outcome(demo, child, tmp_path, capfd):
    children = []
    for name, outcome, loss in (
        ("a", "diverged", None),
        ("b", "finished", 0.7),
        ("c", "finished", 2.1),
    ):
        path = tmp_path / "runs" / "demo" / name / "v1"
        path.mkdir(parents=True)
        (path / "config.yaml").write_text(CONFIG)
        result = {"outcome": outcome, "updates": 40, "valid_loss": loss, "diverged_at": 41}
        (path / "result.json").write_text(json.dumps({"schema": 1, **result}))
        status = {"schema": 1, "state": outcome, "t": 40, "updates": 40}
        (path / "status.json").write_text(json.dumps(status))
        said = f"already {outcome}, 40 updates; repeat=true trains it again"
        children.append(child(name.upper(), f"print({said!r}); print({str(path)!r})"))
    assert demo.train_all(children, 1) == 0
    assert capfd.readouterr().out.splitlines()[-1] == (
        "A: 40/40  already diverged | B: 40/40  already finished | C: 40/40  already finished"
    )
    assert demo.conclude([(arm.label, arm.run_dir()) for arm in children]) == 0
    lines = capfd.readouterr().out.splitlines()
    b = "ends at a validation loss of 0.700 after 40 updates."
    c = "ends at a validation loss of 2.100 after 40 updates."
    assert f"The curves part: A diverged at update 41 and B {b}" in lines
    assert f"Warm-up helps Post-LN: A diverged at update 41 and C {c}" in lines
    assert f"figure  {tmp_path / 'runs' / 'figures' / 'demo.png'}" in lines


def test_a_misspelt_override_ends_with_the_line_of_the_run(tmp_path):
    done = script("train.updaets=3", f"runs_dir={tmp_path}")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "lnexp: train.updaets is no key of this config; did you mean train.updates?"
    ]


@pytest.mark.parametrize("wrong", [["--jobs", "0"], ["dry_run=true"], ["-m"]])
def test_what_the_demo_cannot_do_is_refused(wrong):
    done = script(*wrong)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("demo.py: error: ")


def test_a_failed_run_stops_the_others_and_is_explained(demo, child, capfd):
    good = child("good", "import time; time.sleep(60)")
    bad = child("bad", "import sys; sys.exit('first\\nlast line')")
    never = child("never", "")
    assert demo.train_all([good, bad, never], 2) == 1
    assert capfd.readouterr().err == "demo: bad failed: last line\n"
    assert good.process.returncode == -signal.SIGTERM
    assert never.process is None


def test_a_run_that_was_killed_is_explained(demo, child, capfd):
    killed = child("killed", "import os; os.kill(os.getpid(), 9)")
    assert demo.train_all([killed], 1) == 1
    assert capfd.readouterr().err == "demo: killed failed: it was killed by signal 9\n"


SAVES = """
import signal, sys, time
def end(number, _):
    print("saved after", number, flush=True)
    sys.exit(128 + number)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1], "w").close()
time.sleep(60)
"""

INTERRUPTED = """
import sys, tempfile
scripts, code, *markers = sys.argv[1:]
sys.path.insert(0, scripts)
import demo
children = []
for marker in markers:
    command = [sys.executable, "-c", code, marker]
    children.append(
        demo.Child(marker, command, tempfile.TemporaryFile(), tempfile.TemporaryFile())
    )
code = demo.train_all(children, 2)
for child in children:
    print(child.lines(child.out), flush=True)
sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_passed_on_once_and_nothing_more_is_started(tmp_path, number):
    markers = [tmp_path / name for name in "abc"]
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(SCRIPT.parent), SAVES, *map(str, markers)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not (markers[0].exists() and markers[1].exists()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert err == "demo: interrupted; the same command continues\n"
    saved = str([f"saved after {int(number)}"])
    assert out.splitlines() == [saved, saved, "[]"]
    assert not markers[2].exists()


def test_time_left_counts_the_runs_that_wait(demo, child):
    from children import View, seconds_left

    arms = [child(str(i), "") for i in range(3)]
    views = [
        View(1, 9, "eta", 10.0),
        View(1, 9, "eta", 20.0),
        View(0, None, "", None),
    ]
    for arm in arms[:2]:
        arm.start()
        arm.started = time.monotonic()
    # The third takes 15 s, the mean, and starts in 10 s; on three cores it starts now.
    assert seconds_left(arms, views, 2) == pytest.approx(25, abs=1)
    assert seconds_left(arms, views, 3) == pytest.approx(20, abs=1)
    views[0] = views[0]._replace(seconds_left=None)
    assert seconds_left(arms, views, 2) is None
    for arm in arms[:2]:
        arm.process.wait()


@pytest.mark.parametrize(
    ("printed", "path"),
    [
        ("vocabulary ready\nrun runs/a b/v1, from update 30\n", "runs/a b/v1"),
        ("run runs/a, b/v2\nupdate 1\n", "runs/a, b/v2"),
        ("already finished, 3 updates; repeat=true trains it again\nruns/c/v1\n", "runs/c/v1"),
    ],
)
def test_the_run_directory_is_read_from_what_is_printed(child, printed, path):
    arm = child("a", f"print({printed!r}, end='')")
    arm.start()
    arm.process.wait()
    assert arm.run_dir() == Path(path)
