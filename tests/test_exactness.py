"""Whatever ends a run early, the same command makes of it what an uninterrupted run would be.

Runs are killed at every file operation, told to end at every one of them, and given disks that
are too small. Each is a process of its own, forked by a server (this file, run as a script) that
has imported everything once. ``LNEXP_TORTURE=1`` sweeps every place instead of a selection.
"""

import ctypes
import errno
import functools
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TORTURE = bool(os.environ.get("LNEXP_TORTURE"))

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    pytest.mark.timeout(7200 if TORTURE else 300),
]

# The best weights are not the last (the rate is too high), and the last update is off the cadence.
RUN = [
    "recipe=files", "data.src=de", "data.tgt=en", "data.vocab_size=60", "model.d_model=8",
    "model.d_ff=16", "model.n_heads=2", "model.n_layers=1", "train.tokens_per_batch=256",
    "decode.beam=2", "decode.max_len_b=2", "threads=1", "device=cpu", "optimizer.lr=1",
    "recipe.warmup=1", "train.eval_every=2", "train.checkpoint_every=3", "train.log_every=2",
    "train.keep_weights=1",
]  # fmt: skip
SHORT, LONG = 5, 8
HANGS = 120
"""Seconds after which a child ends as killed by SIGALRM; one needs less than one."""


# ---- the server: everything below runs in processes of its own


def serve(overrides):
    """Answer orders, a line of JSON each, with what a child that carried them out came to."""
    from lnexp import provenance

    provenance.distributions = list  # what is installed takes as long to read as a run
    provenance._git = lambda *arguments: None
    os.fsync = lambda file: None  # no machine loses power here
    config = composed(overrides)
    train(config, ["train.updates=2"])  # all imports
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(in_child(config, json.loads(line))), flush=True)


def in_child(config, order):
    """Carry out ``order`` in a forked process: its exit code (below 0: signal), output, errors."""
    pipes = os.pipe(), os.pipe()
    pid = os.fork()
    if pid:
        said = []
        for _, writing in pipes:
            os.close(writing)
        for reading, _ in pipes:
            with open(reading) as file:  # a pipe holds what a run of a few lines says
                said.append(file.read())
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), *said
    try:
        signal.alarm(HANGS)
        for number, (_, writing) in enumerate(pipes, 1):
            os.dup2(writing, number)
        code = (small_disk if "disk" in order else trouble)(config, order)
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def composed(overrides):
    """The config of ``lnexp train``, composed once: it takes Hydra as long as a run."""
    from hydra import compose, initialize_config_dir
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from lnexp.config import conf_dir

    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        config = compose("config", overrides, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    plain = OmegaConf.to_container(config)
    return OmegaConf.create({key: value for key, value in plain.items() if key != "hydra"})


def train(config, changes):
    """Do as ``lnexp train`` does; return the exit code."""
    from omegaconf import OmegaConf

    from lnexp import app

    return app.job(OmegaConf.merge(config, OmegaConf.from_dotlist(changes)), app.train)


def trouble(config, order):
    """Train, with the trouble that is ordered."""
    place = order["place"]
    if "largest" in order:  # bytes of a file
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest"], resource.RLIM_INFINITY))
    if "torn" in order:
        tear(order["torn"], place)
    if "events" in order:
        number = 0

        def on_event(event, arguments):
            nonlocal number
            if event not in order["events"] or isinstance(arguments[0], int):
                return
            path = os.fsdecode(arguments[0])
            if not path.startswith(place):
                return
            if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
                return
            number += 1
            if order["do"] == "full" and number >= order["nth"]:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            if number == order["nth"] and order["do"] in ("SIGKILL", "SIGTERM"):
                signal.raise_signal(signal.Signals[order["do"]])

        sys.addaudithook(on_event)
    code = train(config, order["changes"])
    if "events" in order:
        print(f"{number} events")
    return code


def tear(nth, place):
    """Kill this process when half of the nth file that is made safe is written."""
    fsync, number = os.fsync, 0

    def torn(file):
        nonlocal number
        path = os.readlink(f"/proc/self/fd/{file}")
        if path.startswith(place) and not path.endswith("metrics.jsonl"):
            number += 1
            if number == nth:
                os.ftruncate(file, os.fstat(file).st_size // 2)
                signal.raise_signal(signal.SIGKILL)
        fsync(file)

    os.fsync = torn


CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
NO_NAMESPACE = 77


def small_disk(config, order):
    """Train on a disk of so many KiB, then enlarge it and train again; keep what is then there."""
    who = os.getuid(), os.getgid()
    try:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        for kind, number in zip(("uid", "gid"), who):
            Path(f"/proc/self/{kind}_map").write_text(f"0 {number} 1")
        mount = ["mount", "-t", "tmpfs", "-o"]
        subprocess.run([*mount, f"size={order['disk']}k", "none", order["place"]], check=True)
    except (OSError, AttributeError, subprocess.SubprocessError) as error:
        print(error)
        return NO_NAMESPACE
    order = {k: v for k, v in order.items() if k != "disk"}
    first = in_child(config, order)
    shutil.copytree(order["place"], f"{order['place']}.full")
    subprocess.run([*mount, "remount,size=64m", "none", order["place"]], check=True)
    second = in_child(config, order)
    shutil.copytree(order["place"], f"{order['place']}.after")
    print(json.dumps([first, second]))
    return 0


# ---- the tests' side of it


@dataclass
class Place:
    """A directory for the runs and the cache of one scenario."""

    server: subprocess.Popen
    path: Path
    copies: int = 0

    def train(self, updates, *more, within=".", **order):
        """Return exit code, output and errors of a command that trains up to ``updates``.

        ``order`` is trouble with the files ``within`` a directory.
        """
        (self.path / "disk").mkdir(parents=True, exist_ok=True)
        place = self.path / "disk"
        where = [f"runs_dir={place}/runs", f"data.cache_dir={place}/cache"]
        changes = [*where, f"train.updates={updates}", *more]
        order |= {"changes": changes, "place": str(place / within)}
        print(json.dumps(order), file=self.server.stdin, flush=True)
        return json.loads(self.server.stdout.readline())

    @property
    def runs(self):
        """All runs, by the part of their path that matters."""
        found = (self.path / "disk" / "runs").glob("*/*/v*")
        return {str(p.relative_to(self.path / "disk")): contents(p) for p in sorted(found)}

    def runs_so_far(self):
        """The files of every run, of one that was left in whatever state."""
        for run in (self.path / "disk" / "runs").glob("*/*/v*"):
            yield {p.name for p in run.iterdir()}

    def cache(self):
        """All of the cache, byte by byte, but for locks (a killed process leaves its empty file)."""
        cache = self.path / "disk" / "cache"
        found = (p for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock")
        return {str(p.relative_to(cache)): p.read_bytes() for p in found}

    def files(self):
        """Every file that counts, byte by byte."""
        found = (p for p in (self.path / "disk").rglob("*") if p.is_file() and p.suffix != ".tmp")
        return {p: p.read_bytes() for p in found}

    @property
    def run(self):
        """What the only run holds."""
        (only,) = self.runs.values()
        return only

    def copy(self):
        """The same in another directory."""
        self.copies += 1
        new = Place(self.server, Path(f"{self.path}-{self.copies}"))
        shutil.copytree(self.path / "disk", new.path / "disk")
        return new


@pytest.fixture(scope="module")
def little_text(corpus_dir, tmp_path_factory):
    """The first lines of the tiny corpus."""
    there = tmp_path_factory.mktemp("text")
    for split, lines in (("train", 100), ("valid", 3), ("test", 3)):
        for language in ("de", "en"):
            text = (corpus_dir / f"{split}.{language}").read_text().splitlines(keepends=True)
            (there / f"{split}.{language}").write_text("".join(text[:lines]))
    return there


@pytest.fixture(scope="module")
def server(little_text, tmp_path_factory):
    there = tmp_path_factory.mktemp("warm")
    overrides = [
        *RUN, f"data.path={little_text}", f"runs_dir={there}", f"data.cache_dir={there}",
    ]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, __file__, *overrides], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:  # fmt: skip
        while (line := process.stdout.readline()) and line != "ready\n":
            pass
        assert line, "the server did not start"
        yield process
        process.stdin.close()


@pytest.fixture(scope="module")
def new_place(server, tmp_path_factory):
    """Make an empty `Place`."""
    return lambda: Place(server, tmp_path_factory.mktemp("place"))


@pytest.fixture(scope="module")
def ready(whole_place):
    """Make a `Place` that has the text and its pieces in the cache, and no run."""

    def make():
        place = whole_place(SHORT).copy()
        shutil.rmtree(place.path / "disk" / "runs")
        return place

    return make


@pytest.fixture(scope="module")
def whole_place(new_place):
    """A place with an uninterrupted run of so many updates."""
    done = {}

    def run(updates):
        if updates not in done:
            done[updates] = new_place()
            code, _, err = done[updates].train(updates)
            assert code == 0, err
        return done[updates]

    return run


@pytest.fixture(scope="module")
def whole(whole_place):
    """The contents of an uninterrupted run of so many updates."""
    return functools.cache(lambda updates: whole_place(updates).run)


def contents(run):
    """Everything in a run directory that an uninterrupted run would also have, but for time."""
    disk = str(run.parents[3])
    found = {}
    for path in sorted(p for p in run.rglob("*") if p.is_file()):
        name = str(path.relative_to(run))
        if name.startswith("tensorboard/"):
            found["tensorboard"] = [*found.get("tensorboard", []), *curves(path)]
        elif name == "metrics.jsonl":
            found[name] = [without(json.loads(x), "tokens_per_second") for x in open_lines(path)]
        elif name.endswith(".pt"):
            found[name] = weights(path, run / "metrics.jsonl")
        elif name == "env.json":
            found[name] = json.loads(path.read_text())["data"]
        elif name == "status.json":
            status = json.loads(path.read_text())
            found[name] = {key: status[key] for key in ("state", "t", "updates")}
        elif name.endswith(".json"):
            found[name] = without(json.loads(path.read_text()), "seconds")
        elif name not in ("lock", "train.log") and not name.startswith(".status.json."):
            found[name] = path.read_bytes().replace(disk.encode(), b"DISK")
    return found


def without(value, *keys):
    return {k: v for k, v in value.items() if k not in keys}


def open_lines(path):
    text = path.read_text()
    assert text.endswith("\n")
    return text.splitlines()


def weights(path, metrics):
    """Everything in a checkpoint, tensors as type, shape and bytes."""
    import torch

    saved = torch.load(path, weights_only=True)
    if "metrics_size" in saved:  # timing has no fixed length, but a checkpoint ends with a row
        size = saved.pop("metrics_size")
        assert size == 0 or metrics.read_bytes()[size - 1 : size] == b"\n"

    def plain(value):
        if isinstance(value, torch.Tensor):
            return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    return plain(without(saved, "seconds"))


def curves(path):
    """The points of an event file."""
    from tensorboard.compat.proto.event_pb2 import Event

    data, at, points = path.read_bytes(), 0, []
    while at < len(data):  # a record: length (8 bytes), its checksum (4), the event, its checksum
        size = int.from_bytes(data[at : at + 8], "little")
        event = Event.FromString(data[at + 12 : at + 12 + size])
        at += size + 16
        points += [
            (event.step, value.tag, value.simple_value)
            for value in event.summary.value
            if "tokens_per_second" not in value.tag
        ]
    return points


def difference(found, expected):
    """What differs, in names; equal records give {}."""
    names = {n for n in {*found, *expected} if found.get(n) != expected.get(n)}
    return {
        n: "missing" if n not in found else "left over" if n not in expected else "differs"
        for n in sorted(names)
    }


def assert_sound(disk):
    """Every file is whole, but for temporary ones and a last row of metrics."""
    import torch

    for path in disk.rglob("*"):
        if ".tmp" in str(path.relative_to(disk)) or not path.is_file():
            continue
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".pt":
            torch.load(path, weights_only=True)
        elif path.name == "metrics.jsonl":
            for line in path.read_text().split("\n")[:-1]:
                json.loads(line)


# Audit events of the interpreter.
RENAMES = ["os.rename"]
FILES = ["open", "os.rename", "os.remove", "os.mkdir", "os.rmdir"]


def events(place, updates, which, within="."):
    """How many file operations a command has in all."""
    code, out, err = place.train(updates, events=which, do="count", nth=0, within=within)
    assert code == 0, err
    return int(out.splitlines()[-1].split()[0])


def swept(number, step):
    """Places from 1 to ``number``: all of them, or every so-manieth."""
    return range(1, number + 1, 1 if TORTURE else step)


def assert_becomes(place, updates, whole, *scenario, extra=frozenset()):
    """The command without trouble makes the record of an uninterrupted run."""
    code, _, err = place.train(updates)
    assert code == 0, (*scenario, err)
    differs = difference(place.run, whole(updates))
    over = {name for name, how in differs.items() if how == "left over"}
    assert {n: how for n, how in differs.items() if n not in over & extra} == {}, scenario


def assert_explained(place, code, err, *scenario):
    """Exit code 1 or 2 and one line that names a file or directory; nothing damaged."""
    assert code in (1, 2), (*scenario, code, err)
    assert err.startswith("lnexp: "), (*scenario, err)
    assert err.count("\n") == 1, (*scenario, err)
    assert str(place.path / "disk") in err, (*scenario, err)
    assert_sound(place.path / "disk")


def test_two_runs_are_equal_and_the_scenario_is_the_hard_one(new_place, whole):
    other = new_place()
    assert_becomes(other, SHORT, whole)
    assert whole(SHORT)["result.json"]["best"]["t"] < SHORT
    times = [row["t"] for row in whole(SHORT)["metrics.jsonl"] if row["kind"] == "valid"]
    assert times == [2, 4, SHORT]
    assert {row["t"] for row in whole(SHORT)["metrics.jsonl"]} == {1, 2, 4, SHORT}
    assert whole(SHORT)["tensorboard"]


# ---- killed, and told to end


def test_a_run_killed_at_any_rename_becomes_the_uninterrupted_one(ready, whole):
    which = FILES if TORTURE else RENAMES
    number = events(ready(), SHORT, which)
    assert number >= 14
    for nth in range(1, number + 1):
        place = ready()
        assert place.train(SHORT, events=which, do="SIGKILL", nth=nth)[0] == -signal.SIGKILL
        assert_sound(place.path / "disk")
        assert_becomes(place, SHORT, whole, nth)


def test_a_run_killed_within_any_file_becomes_the_uninterrupted_one(ready, whole):
    for nth in swept(99, 5):
        place = ready()
        code = place.train(SHORT, torn=nth)[0]
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert_sound(place.path / "disk")
        assert_becomes(place, SHORT, whole, nth)
    assert nth > 14


def test_a_run_told_to_end_at_any_time_becomes_the_uninterrupted_one(ready, whole):
    codes = []
    for nth in swept(events(ready(), SHORT, RENAMES), 5):
        place = ready()
        code, _, err = place.train(SHORT, events=RENAMES, do="SIGTERM", nth=nth)
        codes.append(code)
        assert "Traceback" not in err
        assert_sound(place.path / "disk")
        assert_becomes(place, SHORT, whole, nth)
    # Before there is something to save a signal simply ends the process.
    early = codes.count(-signal.SIGTERM)
    assert codes == [-signal.SIGTERM] * early + [128 + signal.SIGTERM] * (len(codes) - early)
    assert early < len(codes) / 2


@pytest.mark.parametrize("trouble", ["killed", "torn", "full"])
def test_nothing_half_written_is_used_of_the_caches(new_place, whole_place, whole, trouble):
    which = {"killed": FILES if TORTURE else RENAMES, "torn": [], "full": ["open"]}[trouble]
    number = events(new_place(), SHORT, which, "cache") if which else 20
    assert number > 12
    expected = whole_place(SHORT).cache()
    for nth in swept(number, 9):
        place = new_place()
        order = {"torn": nth} if trouble == "torn" else {"events": which, "nth": nth}
        order["do"] = "full" if trouble == "full" else "SIGKILL"
        code, _, err = place.train(SHORT, within="cache", **order)
        if trouble == "full":
            assert_explained(place, code, err, nth)
        else:
            assert code == -signal.SIGKILL
        assert_becomes(place, SHORT, whole, nth)
        assert difference(place.cache(), expected) == {}, nth


# ---- a disk that is full


def test_a_disk_that_takes_no_new_file_is_named_and_nothing_is_lost(ready, whole):
    number = events(ready(), SHORT, ["open"])
    for nth in swept(number, 18):
        place = ready()
        code, _, err = place.train(SHORT, events=["open"], do="full", nth=nth)
        assert_explained(place, code, err, nth)
        assert_becomes(place, SHORT, whole, nth)


def test_a_file_that_cannot_grow_is_named_and_nothing_is_lost(ready, whole):
    place = ready()
    place.train(SHORT)
    files = [p for p in (place.path / "disk").rglob("*") if p.is_file()]
    sizes = sorted({p.stat().st_size for p in files} - {0})
    assert len(sizes) > 10
    for largest in sizes[:: 1 if TORTURE else 6]:
        place = ready()
        code, _, err = place.train(SHORT, largest=largest - 1)
        assert_explained(place, code, err, largest - 1)
        assert_becomes(place, SHORT, whole, largest - 1)


def test_a_small_disk_is_named_and_once_enlarged_nothing_is_lost(new_place, whole):
    complete = False
    for kib in (*range(40, 140, 8 if TORTURE else 45), 4000):
        place = new_place()
        code, out, _ = place.train(SHORT, disk=kib)
        if code == NO_NAMESPACE:
            pytest.skip(f"no disk can be mounted here: {out}")
        assert code == 0
        (before, _, err), (after, *_) = json.loads(out)
        if before:
            assert_explained(place, before, err, kib)
            assert_sound(place.path / "disk.full")
        complete |= before == 0
        assert after == 0
        shutil.rmtree(place.path / "disk")
        (place.path / "disk.after").rename(place.path / "disk")
        assert difference(place.run, whole(SHORT)) == {}, kib
    assert complete


# ---- more updates


# The result of the shorter run stays, and what it was read from.
KEPT = {
    f"result-{SHORT:08d}.json", f"samples/valid-{SHORT:08d}.txt", f"samples/test-{SHORT:08d}.txt",
    "samples/test-00000002.txt",
}  # fmt: skip


def test_a_finished_run_that_grows_twice_becomes_the_longer_ones(ready, whole):
    place = ready()
    assert place.train(2)[0] == 0
    shorter = {"result-00000002.json", "samples/test-00000002.txt"}
    assert_becomes(place, SHORT, whole, extra=shorter)
    assert_becomes(place, LONG, whole, extra=shorter | KEPT)
    for updates in (2, SHORT):
        kept = place.run[f"result-{updates:08d}.json"]
        assert kept == whole(updates)["result.json"]
        code, out, _ = place.train(updates)
        assert code == 0
        assert f"already finished, {updates} updates" in out
    code, _, err = place.train(SHORT + 1)
    assert code == 2
    assert f"train.updates={SHORT + 1} is below the {LONG} updates already trained" in err


@pytest.mark.parametrize("do", ["SIGKILL", "SIGTERM", "full"])
def test_an_interrupted_run_may_be_asked_for_more(ready, whole, do):
    which = ["open"] if do == "full" else RENAMES
    number = events(ready(), SHORT, which)
    for nth in sorted({*swept(number, 18 if do == "full" else 9), number}):
        place = ready()
        assert place.train(SHORT, events=which, do=do, nth=nth)[0] != 0
        finished = any("result.json" in run for run in place.runs_so_far())
        assert_becomes(place, LONG, whole, nth, extra=KEPT)
        assert ("result-00000005.json" in place.run) == finished
        if finished:
            assert place.run["result-00000005.json"] == whole(SHORT)["result.json"]


@pytest.mark.parametrize("do", ["SIGKILL", "SIGTERM"])
def test_an_interruption_while_a_run_grows_changes_nothing(ready, whole, do):
    short = ready()
    assert short.train(SHORT)[0] == 0
    number = events(short.copy(), LONG, RENAMES)
    for nth in swept(number, 5 if do == "SIGKILL" else 9):
        place = short.copy()
        code = place.train(LONG, events=RENAMES, do=do, nth=nth)[0]
        assert code != 0
        again = place.copy()
        assert_becomes(place, LONG, whole, nth, extra=KEPT)
        assert place.run["result-00000005.json"] == whole(SHORT)["result.json"]
        # The shorter command has its answer at any time.
        code, out, err = again.train(SHORT)
        assert code == 0, err
        assert f"already finished, {SHORT} updates" in out


def test_a_run_stopped_in_the_middle_is_not_cut_short(ready):
    place = ready()
    number = events(ready(), LONG, RENAMES)
    assert place.train(LONG, events=RENAMES, do="SIGKILL", nth=number - 3)[0] != 0
    before = place.files()
    code, _, err = place.train(2)
    assert code == 2
    assert "train.updates=2 is below the" in err
    assert place.files() == before


def test_another_cadence_of_evaluations_is_another_run(ready, whole):
    place = ready()
    assert place.train(SHORT)[0] == 0
    assert place.train(SHORT, "train.eval_every=3")[0] == 0
    assert len(place.runs) == 2
    assert [difference(run, whole(SHORT)) for run in place.runs.values()].count({}) == 1


if __name__ == "__main__":
    serve(sys.argv[1:])
