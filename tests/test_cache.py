"""A cache entry is complete or absent, is what its key says, and survives company and accidents."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lnexp.data.cache import tokenised
from lnexp.data.sources import Corpus
from lnexp.errors import InputError

TRAIN = [f"der Hund {i} läuft" for i in range(40)], [f"dog {i} runs" for i in range(40)]
SPLITS = {
    "train": TRAIN,
    "valid": (["der Hund", "", " \t "], ["dog", "runs", "runs"]),
    "test": ([""], [""]),
}


def corpus(**splits):
    return Corpus("toy", "de", "en", {**SPLITS, **splits}, {})


def get(cache_dir, text=None, vocab_size=60, said=None):
    say = said.append if said is not None else lambda line: None
    return tokenised(text or corpus(), vocab_size=vocab_size, cache_dir=cache_dir, say=say)


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
    assert any("learning 60 pieces from 40 pairs of toy" in line for line in said)
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
    keys = {get(tmp_path).key, get(tmp_path, vocab_size=61).key, get(tmp_path, other).key}
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


def test_what_a_killed_job_leaves_is_harmless(tmp_path):
    first = get(tmp_path)
    left = tmp_path / f".{first.key}-0123.tmp"
    shutil.move(tmp_path / first.key, left)
    os.remove(left / "meta.json")
    assert content(get(tmp_path)) == content(first)


def test_a_job_keeps_its_map_when_the_entry_goes(tmp_path):
    result = get(tmp_path)
    before = content(result)
    shutil.rmtree(tmp_path / result.key)
    assert content(result) == before


def _build(cache_dir, start, results):
    start.wait()
    results.put(content(get(cache_dir)))


@pytest.mark.parametrize("damaged", [False, True], ids=["no entry yet", "a damaged entry"])
def test_four_jobs_that_start_together_agree_on_one_entry(tmp_path, damaged):
    if damaged:
        truncate(tmp_path / get(tmp_path).key / "train.src.ids")
    context = multiprocessing.get_context("spawn")
    start, results = context.Event(), context.Queue()
    jobs = [context.Process(target=_build, args=(tmp_path, start, results)) for _ in range(4)]
    for job in jobs:
        job.start()
    start.set()
    found = [results.get(timeout=120) for _ in jobs]
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 4
    assert all(each == content(get(tmp_path)) for each in found)
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
        get(tmp_path, vocab_size=9999)
    assert files(tmp_path) == []
