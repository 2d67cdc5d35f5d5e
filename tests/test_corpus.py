"""A text store gives back its text, wherever it lies, and is whole or not there."""

import hashlib
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lnexp.data.corpus import Corpus, Lines, is_store, open_store
from lnexp.data.intake import LARGE, fill
from lnexp.data.preparation import Preparation, clean, hold_out, prepare_lines
from lnexp.data.sources import Source, load_corpus
from lnexp.data.store import StoreWriter, make_store
from lnexp.errors import InputError

SPAWN = multiprocessing.get_context("spawn")
LANGUAGES = ("de", "en")
TEXT = {
    "train": (["ein Hund", "", "zwei\u2028Katzen\u0085"], ["a dog", "nothing", " two  cats"]),
    "valid": (["drei"], ["three"]),
    "test": (["vier", "fünf"], ["four", "five"]),
}
NAMES = {split: [split] for split in TEXT}
IWSLT = Preparation("moses", True, 1, 175, 1.5, 23)

line = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))
pairs = st.lists(st.tuples(line, line), min_size=1)


def quiet(_):
    pass


def put(folder, text, preparation=None, *, workers=1, say=quiet):
    splits = {split: [sides] for split, sides in text.items()}
    origin = {"source": "made"}
    preparation = preparation or Preparation()
    fill(folder, splits, origin, LANGUAGES, preparation, workers=workers, say=say)
    return folder


def put_files(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    for split, sides in text.items():
        for language, lines in zip(LANGUAGES, sides, strict=True):
            (folder / f"{split}.{language}").write_bytes("".join(f"{x}\n" for x in lines).encode())
    return folder


def load(path, cache_dir, preparation=None, *, workers=1, said=None, **keys):
    source = Source(**{
        "name": "toy", "kind": "files", "src": "de", "tgt": "en", "split_names": NAMES,
        "path": str(path), **keys,
    })  # fmt: skip
    say = quiet if said is None else said.append
    preparation = preparation or Preparation()
    return load_corpus(source, preparation, cache_dir=cache_dir, workers=workers, say=say)


def opened(folder, src="de", tgt="en"):
    return open_store(folder, name="toy", src=src, tgt=tgt)


def content(corpus):
    return {split: tuple(map(list, sides)) for split, sides in corpus.splits.items()}


def files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


# Lines


@settings(deadline=None)
@given(st.lists(line), st.slices(12), st.integers(-12, 11))
@example(["", "\u2028", "a\r", "\x85", "\U0001f600", "\x1c\x0b\x0c"], slice(None), 0)
def test_lines_are_a_sequence_like_a_list(tmp_path_factory, lines, part, at):
    path = tmp_path_factory.mktemp("lines", numbered=True) / "x"
    path.write_bytes("".join(f"{x}\n" for x in lines).encode())
    for mapped in (Lines(path), Lines(path, len(lines)), pickle.loads(pickle.dumps(Lines(path)))):
        assert len(mapped) == len(lines)
        assert list(mapped) == mapped[:] == lines
        assert mapped[part] == lines[part]
        if -len(lines) <= at < len(lines):
            assert mapped[at] == lines[at]
        else:
            with pytest.raises(IndexError):
                mapped[at]


@pytest.mark.parametrize(
    ("content", "count"), [(b"a\nb", None), (b"a\nb\n", 3), (b"\xff\n", 1), (b"", 1)]
)
def test_lines_that_are_not_as_recorded_are_an_error(tmp_path, content, count):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=r"x is damaged \(.*\); delete .* if it lies in the cache"):
        Lines(tmp_path / "x", count)[0]


# The store


@settings(deadline=None, max_examples=25)  # a disk is waited for
@given(pairs, pairs, pairs)
def test_a_store_gives_back_its_text_and_the_fingerprint_by_definition(
    tmp_path_factory, train, valid, test
):
    text = {
        split: tuple(map(list, zip(*rows, strict=True)))
        for split, rows in zip(TEXT, (train, valid, test), strict=True)
    }
    folder = put(tmp_path_factory.mktemp("store", numbered=True) / "s", text)
    for src, tgt, way in (("de", "en", slice(None)), ("en", "de", slice(None, None, -1))):
        corpus = opened(folder, src, tgt)
        turned = {split: sides[way] for split, sides in text.items()}
        assert content(corpus) == turned
        whole = f"{src}\n{tgt}\n" + "".join(
            f"{split} {len(side)}\n" + "".join(f"{x}\n" for x in side)
            for split in ("test", "train", "valid")
            for side in turned[split]
        )
        assert corpus.fingerprint == hashlib.sha256(whole.encode()).hexdigest()
        assert Corpus("other", src, tgt, turned, {}).fingerprint == corpus.fingerprint


def test_the_text_lies_in_plain_files_named_by_language(tmp_path):
    put(tmp_path / "s", TEXT)
    assert (tmp_path / "s" / "test.de").read_bytes() == "vier\nfünf\n".encode()
    assert (tmp_path / "s" / "test.en").read_bytes() == b"four\nfive\n"


def test_a_store_may_be_moved_and_read_either_way_round(tmp_path):
    made = load(put_files(tmp_path / "raw", TEXT), tmp_path / "cache")
    shutil.move(made.home, tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "raw")
    there = load(tmp_path / "elsewhere", tmp_path / "other cache")
    back = load(tmp_path / "elsewhere", tmp_path / "other cache", src="en", tgt="de")
    assert content(there) == TEXT
    assert content(back) == {split: sides[::-1] for split, sides in TEXT.items()}
    assert there.fingerprint == made.fingerprint != back.fingerprint
    assert there.origin == made.origin
    assert there.home == tmp_path / "elsewhere"
    assert not (tmp_path / "other cache").exists()


def test_a_store_of_other_languages_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"is in de and en, not data\.src=fr and data\.tgt=en"):
        load(put(tmp_path / "s", TEXT), tmp_path / "cache", src="fr")


def truncate(folder):
    os.truncate(folder / "train.en", 5)


def spoil(folder):
    (folder / "corpus.json").write_text("{")


def empty(folder):
    (folder / "corpus.json").write_text("{}")


def lose(folder):
    (folder / "valid.de").unlink()


@pytest.mark.parametrize("damage", [truncate, spoil, empty, lose])
def test_a_damaged_store_is_an_error_where_it_was_named_and_made_again_in_the_cache(
    tmp_path, damage
):
    raw, cache = put_files(tmp_path / "raw", TEXT), tmp_path / "cache"
    home = load(raw, cache).home
    shutil.copytree(home, tmp_path / "copy")
    damage(tmp_path / "copy")
    with pytest.raises(InputError, match=r"data\.path=.*copy is damaged \(.*\); copy it again"):
        load(tmp_path / "copy", cache)
    damage(home)
    said = []
    assert content(load(raw, cache, said=said)) == TEXT
    assert "is damaged; making it again" in said[0]


def test_a_store_of_another_version_is_an_error(tmp_path):
    store = put(tmp_path / "s", TEXT)
    record = json.loads((store / "corpus.json").read_text())
    (store / "corpus.json").write_text(json.dumps({**record, "schema": 99}))
    with pytest.raises(InputError, match=r"a text store of version 99, .* lnexp prepare"):
        load(store, tmp_path / "cache")


def test_a_store_that_was_prepared_otherwise_is_an_error_unless_taken_as_prepared(tmp_path):
    store = put(tmp_path / "s", TEXT, Preparation("moses", max_words=50))
    with pytest.raises(InputError, match=r"data\.max_words=50, not null; set data\.max_words=50"):
        load(store, tmp_path, Preparation("moses"))
    assert load(store, tmp_path, Preparation("moses", max_words=50)).tokenised
    assert load(store, tmp_path, Preparation(prepared=True)).home == store
    store = put(tmp_path / "t", TEXT, Preparation(prepared=True))
    # Nothing more is known of it than what it is, so that a copy needs no key.
    assert load(store, tmp_path, Preparation("moses", max_words=50)).home == store


# A warm start


WARM = """
import builtins, io, json, sys
from pathlib import Path
from lnexp.data.preparation import Preparation
from lnexp.data.sources import Source, load_corpus
opened, before = [], builtins.open
def watch(file, *args, **kwargs):
    opened.append(Path(str(file)).name)
    return before(file, *args, **kwargs)
builtins.open = io.open = watch
keys, cache_dir = json.loads(sys.argv[1])
corpus = load_corpus(Source(**keys), Preparation(), cache_dir=Path(cache_dir))
heavy = {"datasets", "pyarrow", "sacremoses", "torch"} & set(sys.modules)
print(json.dumps([opened, sorted(heavy), corpus.fingerprint, len(corpus.splits["train"][0])]))
"""


def test_a_warm_start_opens_the_record_and_nothing_else(tmp_path):
    raw, cache = put_files(tmp_path / "raw", TEXT), tmp_path / "cache"
    fingerprint = load(raw, cache).fingerprint
    keys = {"name": "toy", "kind": "files", "src": "de", "tgt": "en", "split_names": NAMES}
    done = subprocess.run(
        [sys.executable, "-c", WARM, json.dumps([{**keys, "path": str(raw)}, str(cache)])],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    read, heavy, again, n = json.loads(done.stdout)
    assert set(read) <= {"corpus.json"}
    assert (heavy, again, n) == ([], fingerprint, 3)


def test_changed_files_and_another_preparation_are_another_text(tmp_path):
    raw, cache = put_files(tmp_path / "raw", TEXT), tmp_path / "cache"
    first = load(raw, cache)
    assert load(raw, cache, Preparation(lowercase=True)).splits["train"][0][0] == "ein hund"
    (raw / "test.de").write_text("vier\nacht\n")
    assert load(raw, cache).splits["test"][0][1] == "acht"
    assert first.splits["test"][0][1] == "fünf"


# Preparation


def raw_text(n):
    words = "Der", "Hund", "läuft", "z.B.", "Peter's", "(schnell)", "und", "U.S."
    left = [" ".join(words[i % k] for k in range(1, 3 + i % 6)) + "." for i in range(n)]
    return left, [f"{x} {'So' * (i % 3 == 0)} {'what ' * (i % 7)}" for i, x in enumerate(left)]


def by_definition(raw):
    sides = (
        prepare_lines(raw["train"][0], "de", IWSLT),
        prepare_lines(raw["train"][1], "en", IWSLT),
    )
    kept, left_out = clean(sides, IWSLT)
    train, valid = hold_out(kept, 23)
    test = tuple(prepare_lines(x, language, IWSLT) for x, language in zip(raw["test"], LANGUAGES))
    return {"train": train, "valid": valid, "test": test}, left_out


@pytest.mark.parametrize("sizes", [[900], [1, 22, 23, 240, 614]])
def test_what_is_prepared_in_parts_is_what_is_prepared_at_once(tmp_path, sizes, monkeypatch):
    monkeypatch.setattr("lnexp.data.intake.CHUNK", 50)
    monkeypatch.setattr("lnexp.data.intake.COMMIT", 100)
    raw = {"train": raw_text(sum(sizes)), "test": raw_text(5)}
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [
        tuple(side[end - size : end] for side in raw["train"])
        for size, end in zip(sizes, ends, strict=True)
    ]
    splits = {"train": parts, "test": [raw["test"]]}
    fill(tmp_path / "s", splits, {}, LANGUAGES, IWSLT, workers=1, say=quiet)
    corpus = opened(tmp_path / "s")
    expected, left_out = by_definition(raw)
    assert content(corpus) == {split: tuple(map(list, expected[split])) for split in TEXT}
    assert corpus.origin["left_out_of_train"] == left_out != Counter()
    assert len(corpus.splits["valid"][0]) == (900 - left_out.total()) // 23
    assert corpus.tokenised
    assert corpus.lowercased


def test_a_validation_split_that_is_there_is_used_and_nothing_held_out(tmp_path):
    put_files(tmp_path / "raw", {**TEXT, "train": (["eins"] * 46, ["one"] * 46)})
    corpus = load(tmp_path / "raw", tmp_path / "cache", Preparation(valid_every=23))
    assert [len(src) for src, _ in corpus.splits.values()] == [46, 1, 2]
    for path in (tmp_path / "raw").glob("valid.*"):
        path.unlink()
    corpus = load(tmp_path / "raw", tmp_path / "cache", Preparation(valid_every=23))
    assert [len(src) for src, _ in corpus.splits.values()] == [44, 2, 2]
    with pytest.raises(InputError, match=r"valid_every=99 leaves no validation pair of 46; set"):
        load(tmp_path / "raw", tmp_path / "cache", Preparation(valid_every=99))


def test_a_cleaning_that_leaves_nothing_is_an_error_and_leaves_no_directory(tmp_path):
    put_files(tmp_path / "raw", TEXT)
    with pytest.raises(InputError, match=r"none of 3 training pairs is left \(.*too_short"):
        load(tmp_path / "raw", tmp_path / "cache", Preparation(min_words=9))
    assert list((tmp_path / "cache" / "text").iterdir()) == []


ESCAPED, MARKED = ["ich hab &apos;s", "du"] * 60, ["Don@@ au", "Schiff"] * 60


@pytest.mark.parametrize(
    ("lines", "preparation", "message"),
    [
        (["a", *ESCAPED], Preparation("moses"), r"train in en looks tokenised already \(&apos; in "
         r"line 2, and in 59 more\); set data\.prepared=true"),
        (MARKED, Preparation(prepared=True), r"holds sub-words, not words \(@@ in line 1, and in "
         r"59 more\); join them \(sed"),
    ],
)  # fmt: skip
def test_text_in_another_state_than_said_is_refused(tmp_path, lines, preparation, message):
    put_files(tmp_path / "raw", {**TEXT, "train": (["a"] * len(lines), lines)})
    with pytest.raises(InputError, match=message):
        load(tmp_path / "raw", tmp_path / "cache", preparation)
    # One line in a hundred may be chance.
    rare = [*lines[:2], *["x y"] * 199]
    put_files(tmp_path / "raw", {**TEXT, "train": (["a"] * len(rare), rare)})
    assert load(tmp_path / "raw", tmp_path / "cache", preparation).tokenised


def test_the_text_does_not_depend_on_the_number_of_processes(tmp_path):
    raw = {**TEXT, "train": raw_text(LARGE)}
    lower = Preparation(lowercase=True, max_ratio=1.5)
    one = put(tmp_path / "one", raw, lower)
    two = put(tmp_path / "two", raw, lower, workers=2)
    assert files(one) == files(two)


# Accidents and company


def train_text(n):
    return [f"der Hund {i}" for i in range(n)], [f"the dog {i}" for i in range(n)]


def killed_while_filling(folder, text):
    """Die as by kill -9 when half of the text has been prepared, the next write torn."""

    def parts():
        yield tuple(side[:100_000] for side in text["train"])
        yield tuple(side[100_000:] for side in text["train"])

    writer = StoreWriter.append

    def append(self, pairs, state):
        if self.pairs["train"] >= 100_000:
            with open(self.folder / "train.de", "ab") as file:
                file.write(b"torn")
            os.kill(os.getpid(), signal.SIGKILL)
        writer(self, pairs, state)

    StoreWriter.append = append
    splits = {"train": parts(), "valid": [text["valid"]], "test": [text["test"]]}
    origin = {"source": "made"}
    fill(folder, splits, origin, LANGUAGES, Preparation(), workers=1, say=quiet)


def test_a_killed_job_is_gone_on_with(tmp_path, monkeypatch):
    text = {**TEXT, "train": train_text(120_000)}
    process = SPAWN.Process(target=killed_while_filling, args=(tmp_path / "s", text))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not is_store(tmp_path / "s")
    prepared = []

    def count(pairs, *args, **kwargs):
        prepared.append(len(pairs[0]))
        return pairs, Counter()

    monkeypatch.setattr("lnexp.data.intake.prepared_pairs", count)
    said = []
    put(tmp_path / "s", text, say=said.append)
    assert sum(prepared) == 20_000
    assert "train: going on after 100,000 pairs" in said
    put(tmp_path / "whole", text)
    assert files(tmp_path / "s") == files(tmp_path / "whole")


def test_what_was_begun_of_another_text_is_begun_anew(tmp_path):
    StoreWriter(tmp_path / "s", LANGUAGES, {"commit": "a"}).append({"test": (["x"], ["y"])}, {})
    assert StoreWriter(tmp_path / "s", LANGUAGES, {"commit": "a"}).pairs["test"] == 1
    assert StoreWriter(tmp_path / "s", LANGUAGES, {"commit": "b"}).pairs["test"] == 0
    assert (tmp_path / "s" / "test.de").read_bytes() == b""


def make_slowly(entry, log, said):
    def build(folder):
        with open(log, "a") as file:
            file.write("built\n")
        while said.read_text().count("\n") < 2:  # until the others wait
            time.sleep(0.01)
        put(folder, TEXT)

    def say(line):
        with open(said, "a") as file:
            file.write(f"{line}\n")

    make_store(entry, build, say)


def test_of_several_processes_one_builds_and_the_others_wait(tmp_path):
    entry, log, said = tmp_path / "text" / "key", tmp_path / "log", tmp_path / "said"
    said.touch()
    jobs = [SPAWN.Process(target=make_slowly, args=(entry, log, said)) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0, 0, 0]
    assert log.read_text() == "built\n"
    assert said.read_text() == "another process is preparing this text; waiting for it\n" * 2
    assert os.listdir(tmp_path / "text") == ["key"]
    assert content(opened(entry)) == TEXT


@pytest.mark.parametrize(("cause", "stays"), [(BrokenProcessPool, True), (KeyError, False)])
def test_what_was_prepared_stays_if_a_worker_is_killed_and_goes_if_the_input_is_wrong(
    tmp_path, cause, stays
):
    def build(folder):
        StoreWriter(folder, LANGUAGES, {}).append({"test": (["x"], ["y"])}, {})
        try:
            raise cause
        except cause:
            raise InputError("no") from None

    with pytest.raises(InputError, match="no"):
        make_store(tmp_path / "key", build, quiet)
    assert os.listdir(tmp_path) == ["key.building"] * stays


def test_a_store_that_was_finished_but_not_published_is_published(tmp_path):
    put(tmp_path / "key.building", TEXT)
    make_store(tmp_path / "key", lambda folder: pytest.fail("built again"), quiet)
    assert content(opened(tmp_path / "key")) == TEXT


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written_is_an_error(tmp_path):
    raw = put_files(tmp_path / "raw", TEXT)
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(InputError, match=r"data\.cache_dir=.*cache cannot be written \(Permission"):
        load(raw, tmp_path / "cache")


def test_a_cache_below_a_file_is_an_error(tmp_path):
    raw = put_files(tmp_path / "raw", TEXT)
    with pytest.raises(InputError, match=r"data\.cache_dir=.*test\.de cannot be written \(Not a"):
        load(raw, raw / "test.de")


def test_an_archives_text_is_raw_whatever_signs_of_moses_it_holds(tmp_path):
    lines = ["Er &amp; sie &quot;sind&quot; hier."] * 30
    splits = {"train": [(lines, lines)], "test": [(lines, lines)]}
    fill(tmp_path / "s", splits, {"source": "archive"}, LANGUAGES, IWSLT, workers=1, say=quiet)
    store = open_store(tmp_path / "s", name="t", src="de", tgt="en")
    # Moses escapes the ampersand of what the archive's own escapes are.
    assert store.splits["test"][0][0] == "er &amp; amp ; sie &amp; quot ; sind &amp; quot ; hier ."
    with pytest.raises(InputError, match="looks tokenised already"):
        fill(tmp_path / "t", splits, {"source": "files"}, LANGUAGES, IWSLT, workers=1, say=quiet)


@pytest.mark.parametrize(
    "change",
    [
        {"languages": ["de"]}, {"pairs": {"train": 1}}, {"pairs": {"train": "1"}}, {"files": []},
        {"fingerprints": {}}, {"origin": []}, {"preparation": {}}, {"tokenised": 1},
    ],
)  # fmt: skip
def test_a_record_of_another_shape_is_damaged(tmp_path, change):
    store = put(tmp_path / "s", TEXT)
    record = json.loads((store / "corpus.json").read_text())
    [key] = change
    for spoilt in ({**record, **change}, {k: v for k, v in record.items() if k != key}):
        (store / "corpus.json").write_text(json.dumps(spoilt))
        with pytest.raises(InputError, match=rf"is damaged \(corpus\.json has no sound {key}\)"):
            load(store, tmp_path / "cache")


def test_a_file_of_the_same_name_that_is_somebody_elses_is_none_of_ours(tmp_path):
    raw = put_files(tmp_path / "raw", TEXT)
    (raw / "corpus.json").write_text('{"name": "mine"}')
    assert content(load(raw, tmp_path / "cache")) == TEXT


def test_text_that_is_said_to_be_in_lower_case_and_is_not_is_refused(tmp_path):
    raw = put_files(tmp_path / "raw", {s: (["Der Hund ."] * 9, ["a dog ."] * 9) for s in TEXT})
    said = Preparation("moses", lowercase=True, prepared=True)
    message = r"test in de is not in lower case \(Der in line 1, .*set data\.lowercase=false"
    with pytest.raises(InputError, match=message):
        load(raw, tmp_path / "cache", said)
    assert load(raw, tmp_path / "cache", Preparation("moses", prepared=True)).tokenised


def test_an_empty_path_is_not_the_current_directory():
    with pytest.raises(InputError, match=r"data\.path is empty; set it to a directory"):
        Source("t", "files", "de", "en", {}, path="")
