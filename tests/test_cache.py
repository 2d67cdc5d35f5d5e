"""A cache entry is complete or absent, is what its key says, and survives company and accidents."""

import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data import encode
from lnexp.data.cache import export, tokenised
from lnexp.data.corpus import Corpus, Lines
from lnexp.data.ragged import Ragged, map_side, write_side
from lnexp.data.tokenizer import UNK
from lnexp.data.vocabulary import Vocabulary
from lnexp.errors import InputError

TRAIN = [f"der Hund {i} läuft" for i in range(40)], [f"dog {i} runs" for i in range(40)]
SPLITS = {
    "train": TRAIN,
    "valid": (["der Hund", "", " \t "], ["dog", "runs", "runs"]),
    "test": ([""], [""]),
}


def corpus(home=None, **splits):
    return Corpus("toy", "de", "en", {**SPLITS, **splits}, {}, home=home)


def get(cache_dir, text=None, size=60, said=None, workers=1, **vocabulary):
    say = said.append if said is not None else lambda line: None
    wanted = Vocabulary(**{"kind": "sentencepiece", "size": size, **vocabulary})
    return tokenised(text or corpus(), wanted, cache_dir=cache_dir, workers=workers, say=say)


def content(result):
    return {
        name: [[side[i].tolist() for i in range(len(side))] for side in (split.src, split.tgt)]
        for name, split in result.splits.items()
    }


def files(cache_dir):
    return sorted(path.name for path in cache_dir.iterdir())


def test_the_cache_holds_what_the_tokenizer_gives(tmp_path):
    result = get(tmp_path)
    encode = result.tokenizer.encode
    assert content(result) == {
        "train": [encode(TRAIN[0]), encode(TRAIN[1])],
        "valid": [[*encode(["der Hund"]), [], []], encode(["dog", "runs", "runs"])],
        "test": [[[]], [[]]],
    }
    side = result.splits["train"].src
    assert side.lengths.tolist() == [len(side[i]) for i in range(len(side))]
    assert result.tokenizer.decode(side[7]) == TRAIN[0][7]


def test_pieces_are_mapped_read_only(tmp_path):
    ids = get(tmp_path).splits["train"].src[0]
    assert ids.dtype == np.uint16
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_a_line_that_is_not_there_is_an_error(tmp_path):
    side = get(tmp_path).splits["valid"].src
    for line in (3, -1):
        with pytest.raises(IndexError):
            side[line]


def test_the_second_time_nothing_is_made(tmp_path):
    said = []
    first = get(tmp_path, said=said)
    assert "learning 60 pieces from 40 pairs" in said
    assert "tokenised valid: 3 pairs, 2 of them with an empty side" in said
    entry = tmp_path / first.key
    before = {path.name: path.stat().st_mtime_ns for path in entry.iterdir()}
    said.clear()
    assert content(get(tmp_path, said=said)) == content(first)
    assert said == []
    assert {path.name: path.stat().st_mtime_ns for path in entry.iterdir()} == before
    assert files(tmp_path) == [first.key]


def test_the_record_counts_pairs_and_tokens(tmp_path):
    result = get(tmp_path)
    meta = json.loads((tmp_path / result.key / "meta.json").read_text())
    assert meta["fingerprint"] == corpus().fingerprint
    assert meta["splits"]["valid"]["pairs"] == 3
    assert meta["splits"]["valid"]["empty"] == 2
    n_tokens = int(result.splits["train"].tgt.lengths.sum())
    assert meta["splits"]["train"]["tgt_tokens"] == n_tokens


def test_another_text_or_vocabulary_is_another_entry(tmp_path):
    other = corpus(test=(["Hund"], ["dog"]))
    keys = {get(tmp_path).key, get(tmp_path, size=61).key, get(tmp_path, other).key}
    assert len(keys) == 3
    same_text_elsewhere = Corpus("renamed", "de", "en", SPLITS, {"source": "hub"})
    assert get(tmp_path, same_text_elsewhere).key in keys


def test_the_vocabulary_is_learned_on_the_training_split_alone(tmp_path):
    result = get(tmp_path, corpus(test=(["犬"], ["Z"])))
    known = "".join(result.tokenizer.pieces(range(result.tokenizer.vocab_size)))
    assert "犬" not in known
    assert "Z" not in known


def truncate(path):
    path.write_bytes(path.read_bytes()[:-2])


def edit(**keys):
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


DAMAGE = {
    "truncated ids": ("train.src.ids", truncate),
    "missing offsets": ("valid.tgt.at", os.remove),
    "missing tokenizer": ("tokenizer.model", os.remove),
    "missing record": ("meta.json", os.remove),
    "torn record": ("meta.json", truncate),
    "another schema": ("meta.json", edit(schema=0)),
    "another vocabulary": ("meta.json", edit(vocab_size=61)),
    "another text": ("meta.json", edit(key="0" * 32)),
    "record of something else": ("meta.json", lambda path: path.write_text("[]")),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_entry_is_made_again(tmp_path, name, damage):
    first = get(tmp_path)
    expected = content(first)
    damage(tmp_path / first.key / name)
    said = []
    assert content(get(tmp_path, said=said)) == expected
    assert said[0] == f"cache entry {first.key} is damaged; making it again"
    assert files(tmp_path) == [first.key]


def test_mapped_lines_give_the_entry_of_the_same_lines_in_memory(tmp_path):
    mapped = {}
    for split, sides in SPLITS.items():
        for name, lines in zip("ab", sides, strict=True):
            (tmp_path / f"{split}.{name}").write_text("".join(f"{x}\n" for x in lines), "utf-8")
        mapped[split] = tuple(Lines(tmp_path / f"{split}.{name}") for name in "ab")
    from_files = get(tmp_path / "1", corpus(**mapped))
    in_memory = get(tmp_path / "2")
    assert from_files.key == in_memory.key
    assert content(from_files) == content(in_memory)


class Fatal(list):
    """Lines, the second part of which kills the process that asks for it."""

    def __getitem__(self, at):
        if isinstance(at, slice) and at.start:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(at)


def _die(cache_dir, where):
    encode.LINES_AT_ONCE = 8
    text = corpus(valid=(Fatal(TRAIN[0]), TRAIN[1])) if where == "in valid.src" else corpus()

    class Said:
        def append(self, line):
            if line.startswith(where):
                os.kill(os.getpid(), signal.SIGKILL)

    get(cache_dir, text, said=Said())


@pytest.mark.parametrize("where", ["learning", "in valid.src", "tokenised test"])
def test_after_kill_9_what_was_finished_is_kept_and_the_rest_is_made(tmp_path, where):
    text = corpus(valid=TRAIN) if where == "in valid.src" else corpus()
    expected = get(tmp_path / "uninterrupted", text)
    cache = tmp_path / "cache"
    job = multiprocessing.get_context("spawn").Process(target=_die, args=(cache, where))
    job.start()
    job.join()
    assert job.exitcode == -signal.SIGKILL
    building = cache / f".{expected.key}.building"
    left = {path.name: path.stat().st_ino for path in building.iterdir() if path.suffix != ".part"}
    said = []
    resumed = get(cache, text, said=said)
    assert content(resumed) == content(expected)
    learned = where != "learning"
    assert ("learning 60 pieces from 40 pairs" in said) == (not learned)
    assert any("going on" in line for line in said) == learned
    n_sides = {"learning": 0, "in valid.src": 2, "tokenised test": 6}[where]
    assert len(left) == 2 * n_sides + learned
    now = {name: (cache / expected.key / name).stat().st_ino for name in left}
    assert now == left
    assert files(cache) == [expected.key]
    assert files(cache / expected.key) == files(tmp_path / "uninterrupted" / expected.key)


def test_ctrl_c_keeps_what_was_finished(tmp_path):
    class Said(list):
        def append(self, line):
            if line.startswith("tokenised train"):
                raise KeyboardInterrupt
            super().append(line)

    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, said=Said())
    (building,) = files(tmp_path)
    assert building.endswith(".building")
    said = []
    get(tmp_path, said=said)
    assert said[0] == "going on with the tokenising of toy where an earlier process ended"


def test_a_damaged_half_built_entry_is_begun_anew(tmp_path):
    expected = get(tmp_path / "sound")
    building = tmp_path / f".{expected.key}.building"
    building.mkdir()
    (building / "tokenizer.model").write_bytes(b"torn")
    (building / "train.src.at").write_bytes(b"")
    assert content(get(tmp_path)) == content(expected)


def test_whoever_comes_second_says_once_that_it_waits(tmp_path):
    key = get(tmp_path / "other").key
    lock, said = tmp_path / f".{key}.lock", []
    with open(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        job = threading.Thread(target=get, args=(tmp_path,), kwargs={"said": said})
        job.start()
        while not said:
            time.sleep(0.01)
        shutil.copytree(tmp_path / "other" / key, tmp_path / key)
        lock.unlink()
    job.join()
    assert said == ["toy is being tokenised by another process; waiting for it"]
    assert files(tmp_path) == [key, "other"]


@pytest.mark.parametrize("kind", ["sentencepiece", "bpe"])
def test_the_number_of_workers_changes_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(encode, "LARGE", 39)
    monkeypatch.setattr(encode, "LINES_AT_ONCE", 3)
    made = [
        get(tmp_path / str(workers), workers=workers, kind=kind, size=30).entry
        for workers in (1, 2)
    ]
    one, two = ({path.name: path.read_bytes() for path in entry.iterdir()} for entry in made)
    assert one == two
    assert len(one) == 14


class Recorded(Sequence):
    """Lines that are made when asked for, and the largest number asked for at once."""

    def __init__(self, lines):
        self.lines, self.largest = lines, 0

    def __len__(self):
        return len(self.lines)

    def __iter__(self):
        return iter(self.lines)

    def __getitem__(self, at):
        found = self.lines[at]
        self.largest = max(self.largest, len(found) if isinstance(at, slice) else 1)
        return found


def test_no_more_than_a_part_of_the_text_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "LINES_AT_ONCE", 7)
    monkeypatch.setattr("lnexp.data.corpus.BLOCK_LINES", 5)  # for the fingerprint
    src, tgt = Recorded(TRAIN[0]), Recorded(TRAIN[1])
    text = corpus(train=(src, tgt))
    result = get(tmp_path, text)
    assert content(result)["train"] == [result.tokenizer.encode(side) for side in TRAIN]
    assert (src.largest, tgt.largest) == (7, 7)


def test_progress_on_many_lines_is_told_in_tenths(tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "REPORTED", 39)
    monkeypatch.setattr(encode, "LINES_AT_ONCE", 3)
    said = []
    get(tmp_path, said=said)
    told = [line for line in said if "tokenising" in line]
    sides = [f"tokenising train.{side}: {n} % of 40 lines" for side in ("de", "en")
             for n in range(10, 101, 10)]  # fmt: skip
    assert told == sides


def test_unknown_pieces_are_counted_and_told(tmp_path):
    said = []
    result = get(tmp_path, corpus(test=(["Hund 犬", "der"], ["dog Z", "Z 犬"])), said=said)
    sides = [result.splits["test"].src, result.splits["test"].tgt]
    assert [side.ids.tolist().count(UNK) for side in sides] == [1, 3]
    meta = json.loads((result.entry / "meta.json").read_text())["splits"]
    assert (meta["test"]["src_unknown"], meta["test"]["tgt_unknown"]) == (1, 3)
    assert (meta["train"]["src_unknown"], meta["valid"]["tgt_unknown"]) == (0, 0)
    assert [line for line in said if "unknown" in line] == ["4 unknown pieces in test"]


def test_more_pieces_than_16_bits_hold_are_kept(tmp_path):
    lines = [" ".join(chr(0x20000 + 256 * n + i) for i in range(256)) for n in range(256)]
    text = corpus(train=(lines, ["x"] * 256))
    result = get(tmp_path, text, kind="bpe", size=1, codes=b"x y\n")
    assert result.tokenizer.vocab_size == 2**16 + 1 + 4
    side = result.splits["train"].src
    assert side.ids.dtype == np.int32
    assert side.ids.max() == 2**16 + 4
    assert len(set(side.ids.tolist())) == 2**16
    assert [result.tokenizer.decode(side[n]) for n in (0, 255)] == [lines[0], lines[255]]


def test_an_entry_in_the_text_store_is_used_without_the_cache(tmp_path):
    made = get(tmp_path / "cache")
    (tmp_path / "store").mkdir()
    copy = export(made, tmp_path / "store")
    assert copy == tmp_path / "store" / "tokenised" / made.key
    shutil.rmtree(tmp_path / "cache")
    os.rename(tmp_path / "store", tmp_path / "moved")
    said = []
    found = get(tmp_path / "cache", corpus(home=tmp_path / "moved"), said=said)
    assert content(found) == content(made)
    assert found.entry == tmp_path / "moved" / "tokenised" / made.key
    assert said == []
    assert files(tmp_path) == ["moved"]
    assert files(tmp_path / "moved" / "tokenised") == [made.key]


def test_a_damaged_entry_in_the_text_store_is_named_and_the_cache_used(tmp_path):
    copy = export(get(tmp_path / "cache"), tmp_path)
    expected = get(tmp_path / "cache")
    truncate(copy / "train.src.ids")
    said = []
    found = get(tmp_path / "new", corpus(home=tmp_path), said=said)
    assert said[0] == (
        f"{copy} is damaged (copy it again); using data.cache_dir={tmp_path / 'new'}"
    )
    assert content(found) == content(expected)


def test_exporting_again_mends_the_copy_and_keeps_a_sound_one(tmp_path):
    made = get(tmp_path / "cache")
    copy = export(made, tmp_path)
    before = copy.stat().st_ino
    assert export(made, tmp_path) == copy
    assert copy.stat().st_ino == before
    os.remove(copy / "valid.tgt.at")
    (copy.parent / f".{made.key}.building").mkdir()  # of a killed one
    export(made, tmp_path)
    assert files(copy) == files(made.entry)
    assert files(copy.parent) == [made.key]
    assert export(get(tmp_path / "cache", corpus(home=tmp_path)), tmp_path) == copy


def test_a_store_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be copied to .*file/tokenised.*; choose a dir"):
        export(get(tmp_path / "cache"), tmp_path / "file")


@given(st.lists(st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=5), max_size=4), max_size=5))
def test_a_side_is_the_lines_of_its_parts(tmp_path_factory, parts):
    stem = tmp_path_factory.mktemp("side") / "train.src"
    lines = [line for part in parts for line in part]
    write_side(
        stem,
        (
            (
                np.array([len(x) for x in part], np.int32),
                np.array([i for x in part for i in x], "u2"),
            )
            for part in parts
        ),
    )
    side = map_side(stem, np.uint16)
    assert [side[i].tolist() for i in range(len(side))] == lines
    assert side.lengths.tolist() == [len(line) for line in lines]
    assert side.count(7) == sum(line.count(7) for line in lines)


def test_counting_reaches_past_one_part(monkeypatch):
    monkeypatch.setattr("lnexp.data.ragged.IDS_AT_ONCE", 4)
    ids = np.array([1, 2, 3, 1, 1, 2, 1, 3, 1])
    assert Ragged(ids, np.array([0, 9]), np.array([9])).count(1) == 5


def test_a_job_keeps_its_map_when_the_entry_goes(tmp_path):
    result = get(tmp_path)
    before = content(result)
    shutil.rmtree(tmp_path / result.key)
    assert content(result) == before


def _build(cache_dir, start, results):
    start.wait()
    said = []
    results.put((content(get(cache_dir, said=said)), said))


@pytest.mark.parametrize(
    ("n_jobs", "damaged"), [(4, False), (2, True)], ids=["no entry yet", "a damaged entry"]
)
def test_jobs_that_start_together_agree_on_one_entry(tmp_path, n_jobs, damaged):
    if damaged:
        truncate(tmp_path / get(tmp_path).key / "train.src.ids")
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    jobs = [context.Process(target=_build, args=(tmp_path, start, results)) for _ in range(n_jobs)]
    for job in jobs:
        job.start()
    start.set()
    found = [results.get(timeout=120) for _ in jobs]
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * n_jobs
    assert all(each == content(get(tmp_path)) for each, _ in found)
    assert sum("learning 60 pieces from 40 pairs" in said for _, said in found) == 1
    assert len(files(tmp_path)) == 1


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"data\.cache_dir=.*file cannot be written \(.*\); set data\.cache_dir"
    ):
        get(tmp_path / "file")


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    # A limit on file sizes stands in for the full disk: the write itself fails, half way.
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from test_cache import get\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)); get(Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, os.path.dirname(__file__), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (
        f"InputError: data.cache_dir={tmp_path} cannot be written (File too large)" in done.stderr
    )
    assert files(tmp_path) == []


def test_an_impossible_vocabulary_leaves_nothing_behind(tmp_path):
    with pytest.raises(InputError, match=r"data\.vocab_size=9999 is too large"):
        get(tmp_path, size=9999)
    assert files(tmp_path) == []


def test_text_that_was_changed_is_not_tokenised_under_its_old_fingerprint(tmp_path):
    text = corpus()
    changed = replace(text, splits={**text.splits, "test": (["anders"], ["other"])})
    with pytest.raises(InputError, match=r"is damaged \(the text beside it was changed\); delete"):
        get(tmp_path, changed)
