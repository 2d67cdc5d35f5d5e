"""Raw text in every layout gives the same corpus; what is wrong with it is named in one line."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data.formats import read_lines
from lnexp.data.sources import Corpus, load_corpus
from lnexp.errors import InputError

TEXT = {
    "train": (["ein Hund", "", "zwei\u2028Katzen\u0085"], ["a dog", "nothing", " two  cats"]),
    "valid": (["drei"], ["three"]),
    "test": (["vier", "fünf"], ["four", "five"]),
}
NAMES = {"train": ["train"], "valid": ["val", "valid", "validation"], "test": ["test_2016", "test"]}
NOTHING = {"hub": None, "hub_config": None, "revision": None, "path": None}
NOTHING |= {"train": None, "valid": None, "test": None}


def load(**keys):
    defaults = {"name": "toy", "source": "files", "src": "de", "tgt": "en", "split_names": NAMES}
    return load_corpus(**{**NOTHING, **defaults, **keys})


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def put_text(root: Path, *, suffix="", stems=None):
    for split, sides in TEXT.items():
        stem = (stems or {}).get(split, split)
        for language, lines in zip(("de", "en"), sides, strict=True):
            put(root / f"{stem}.{language}{suffix}", "".join(f"{line}\n" for line in lines))
    return root


def put_tsv(root: Path, *, header=None, gz=""):
    for split, sides in TEXT.items():
        rows = list(zip(*sides, strict=True))
        if header:
            rows = [header, *((i, en, de) for i, (de, en) in enumerate(rows))]
        put(root / f"{split}.tsv{gz}", "\n".join("\t".join(map(str, row)) for row in rows))
    return root


def put_jsonl(root: Path, *, nested=False, suffix=".jsonl"):
    for split, sides in TEXT.items():
        rows = [{"en": en, "de": de} for de, en in zip(*sides, strict=True)]
        rows = [{"id": i, "translation": row} for i, row in enumerate(rows)] if nested else rows
        put(root / f"{split}{suffix}", "\n".join(json.dumps(row) for row in rows))
    return root


def put_parquet(root: Path, file_name: str, *, nested=False, shards=1):
    both = pa.struct([("de", pa.string()), ("en", pa.string())])
    for split, sides in TEXT.items():
        rows = [{"de": de, "en": en} for de, en in zip(*sides, strict=True)]
        for k, part in enumerate([rows] if shards == 1 else [rows[:1], rows[1:]]):
            table = pa.Table.from_pylist(part, pa.schema(both))
            if nested:
                table = pa.table({"translation": pa.array(part, both)})
            name = {"valid": "validation"}.get(split, split)
            path = root / file_name.format(name=name, k=k, n=shards)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path)
    return root


LAYOUTS = {
    "plain": put_text,
    "gzipped": lambda root: put_text(root, suffix=".gz"),
    "txt": lambda root: put_text(root, suffix=".txt"),
    "between dots": lambda root: put_text(
        root, suffix=".gz", stems={s: f"corpus.{s}.tok" for s in TEXT}
    ),
    "language pair": lambda root: put_text(root, stems={s: f"{s}.de-en" for s in TEXT}),
    "sub-directory": lambda root: put_text(root / "de-en").parent,
    "tsv": put_tsv,
    "tsv.gz": lambda root: put_tsv(root, gz=".gz"),
    "tsv with a header": lambda root: put_tsv(root, header=("id", "en", "de")),
    "jsonl": put_jsonl,
    "nested jsonl": lambda root: put_jsonl(root, nested=True),
    "json.gz": lambda root: put_jsonl(root, suffix=".json.gz"),
    "parquet": lambda root: put_parquet(root, "{name}.parquet"),
    "hub shards": lambda root: put_parquet(
        root, "data/{name}-{k:05}-of-{n:05}.parquet", nested=True, shards=2
    ),
    "hub conversion": lambda root: put_parquet(root, "de-en/{name}/{k:04}.parquet", nested=True),
    "hub config": lambda root: put_parquet(root, "cfg/{name}-{k:05}-of-{n:05}.parquet"),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_layout_gives_the_same_corpus(tmp_path, layout):
    corpus = load(path=str(layout(tmp_path)), hub_config="cfg")
    assert corpus.splits == TEXT
    assert corpus.fingerprint == Corpus("other", "de", "en", TEXT, {}).fingerprint


def test_a_local_copy_wins_over_the_source_and_is_recorded_without_its_directory(tmp_path):
    corpus = load(path=str(put_text(tmp_path)), source="hub", hub="some/thing")
    assert corpus.splits == TEXT
    assert corpus.origin["files"]["valid"] == [
        {"name": "valid.de", "bytes": 5},
        {"name": "valid.en", "bytes": 6},
    ]
    assert str(tmp_path) not in json.dumps(corpus.origin)


def test_the_languages_may_be_taken_either_way_round(tmp_path):
    corpus = load(path=str(put_tsv(tmp_path, header=("id", "en", "de"))), src="en", tgt="de")
    assert corpus.splits["test"] == (["four", "five"], ["vier", "fünf"])


def test_split_names_are_tried_in_order(tmp_path):
    put_text(tmp_path)
    put(tmp_path / "test_2016.de", "besser\n")
    put(tmp_path / "test_2016.en", "better\n")
    assert load(path=str(tmp_path)).splits["test"] == (["besser"], ["better"])


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda s: s, False),
        (lambda s: {**s, "test": (["vier", "fünf "], s["test"][1])}, True),
        (lambda s: {**s, "train": s["train"][::-1]}, True),
        (lambda s: {**s, "test": s["valid"], "valid": s["test"]}, True),
        (lambda s: {**s, "train": ([*s["train"][0], ""], s["train"][1])}, True),
    ],
    ids=["same", "a blank", "sides swapped", "splits swapped", "an empty line"],
)
def test_the_fingerprint_changes_with_the_text(change, differs):
    one, other = Corpus("a", "de", "en", TEXT, {}), Corpus("b", "de", "en", change(TEXT), {"x": 1})
    assert (one.fingerprint != other.fingerprint) == differs


def test_the_fingerprint_changes_with_the_languages():
    pairs = {Corpus("a", "de", tgt, TEXT, {}).fingerprint for tgt in ("en", "fr")}
    assert len(pairs) == 2


# One file


@given(st.lists(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))))
def test_lines_end_at_line_feeds_only(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines", numbered=True) / "x.de"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    wanted = [line.removesuffix("\r") for line in lines]
    if lines:
        wanted[0] = lines[0].removeprefix("\ufeff").removesuffix("\r")
    assert read_lines(path) == wanted


def test_a_byte_order_mark_and_carriage_returns_go(tmp_path):
    path = put(tmp_path / "x.de", b"\xef\xbb\xbfeins\r\nzw\rei\r\n\xef\xbb\xbfdrei")
    assert read_lines(path) == ["eins", "zw\rei", "\ufeffdrei"]


def test_line_feeds_within_a_field_become_blanks_and_are_counted(tmp_path):
    put_jsonl(tmp_path)
    put(tmp_path / "valid.jsonl", '{"de": "ein\\nWort", "en": "word"}')
    corpus = load(path=str(tmp_path))
    assert corpus.splits["valid"] == (["ein Wort"], ["word"])
    assert corpus.origin["line_feeds_joined"] == 1


BAD_FILES = {
    "train.de": {
        "not UTF-8": (b"gut\n\xfc\n", r"train\.de, line 2: not UTF-8 \(byte 0xfc\)"),
        "UTF-16": ("gut\n".encode("utf-16"), r"train\.de, line 1: holds a NUL byte"),
        "short": (b"eins\n", r"train\.de has 1 lines, but .*train\.en has 3;"),
    },
    "train.tsv": {
        "one column": (b"a\tb\nc\n", r"train\.tsv, line 2: 1 column, where de and en"),
        "header only": (b"de\ten\n", r"train\.tsv: the train split is empty"),
    },
    "train.jsonl": {
        "not JSON": (b'{"de": "a", "en": "b"}\n{', r"train\.jsonl, line 2: not JSON"),
        "a list": (b"[1]", r"train\.jsonl, line 1: list, not an object"),
        "no column": (b'{"de": "a", "fr": "b"}', r"line 1: no column en \(columns: de, fr\)"),
        "null": (b'{"de": "a", "en": null}', r"line 1: en is null, not text"),
        "surrogate": (b'{"de": "\\ud800", "en": "b"}', r"line 1: de holds half a surrogate"),
        "NUL": (b'{"de": "\\u0000", "en": "b"}', r"data: pair 1 of train holds a NUL"),
    },
    "train.parquet": {"not parquet": (b"PAR1", r"train\.parquet: cannot be read as parquet")},
}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param(name, *case, id=f"{name} {label}")
        for name, cases in BAD_FILES.items()
        for label, case in cases.items()
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, name, content, message):
    put_text(tmp_path)
    if name != "train.de":
        (tmp_path / "train.de").unlink()
        (tmp_path / "train.en").unlink()
    put(tmp_path / name, content)
    with pytest.raises(InputError, match=message) as error:
        load(path=str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_truncated_gzip_file_is_named(tmp_path):
    put_text(tmp_path, suffix=".gz")
    path = tmp_path / "train.de.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"train\.de\.gz: not a whole gzip file"):
        load(path=str(tmp_path))
    path.write_bytes(b"ein Hund\n")
    with pytest.raises(InputError, match=r"train\.de\.gz: not a whole gzip file"):
        load(path=str(tmp_path))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"de": ["a"], "fr": ["b"]}, r"no column en \(columns: de, fr\); set data\.src"),
        ({"translation": [{"de": "a"}]}, r"no column en \(columns: translation\.de\)"),
        ({"de": ["a", "b"], "en": ["c", None]}, r"train\.parquet, row 2: en is null"),
        ({"de": ["a"], "en": [1]}, r"column en holds int64, not text"),
        ({"de": ["a"], "en": [None]}, r"train\.parquet, row 1: en is null"),
        ({"translation": [{"de": "a", "en": "b"}, None]}, r"row 2: de is null"),
        ({"text": ["a"]}, r"no column de \(columns: text\)"),
    ],
)
def test_a_parquet_table_without_the_text_is_named(tmp_path, table, message):
    put_tsv(tmp_path)
    (tmp_path / "train.tsv").unlink()
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    with pytest.raises(InputError, match=message):
        load(path=str(tmp_path))


def test_parquet_dictionaries_and_large_strings_are_text(tmp_path):
    put_text(tmp_path)
    for side in ("train.de", "train.en"):
        (tmp_path / side).unlink()
    de = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.table({"de": de, "en": pa.array(["x", "y", "x"], pa.large_string())})
    pq.write_table(table, tmp_path / "train.parquet")
    assert load(path=str(tmp_path)).splits["train"] == (["a", "b", "a"], ["x", "y", "x"])


# A directory


def test_two_sets_of_files_for_a_split_are_an_error(tmp_path):
    put_tsv(put_text(tmp_path))
    with pytest.raises(
        InputError, match=r"train\.\{de,en\} and .*train\.tsv are both called train"
    ):
        load(path=str(tmp_path))


def test_a_file_beside_its_gzipped_copy_is_an_error(tmp_path):
    put_text(put_text(tmp_path), suffix=".gz")
    with pytest.raises(InputError, match=r"train\.de\.gz are the same part twice"):
        load(path=str(tmp_path))


def test_a_side_without_the_other_is_an_error(tmp_path):
    put_text(tmp_path)
    (tmp_path / "valid.en").unlink()
    with pytest.raises(InputError, match=r"valid\.de has no file in en beside it"):
        load(path=str(tmp_path))


def test_a_missing_shard_is_an_error(tmp_path):
    put_parquet(tmp_path, "data/{name}-{k:05}-of-{n:05}.parquet", shards=2)
    (tmp_path / "data" / "test-00001-of-00002.parquet").unlink()
    with pytest.raises(InputError, match=r"1 of 2 shards are there"):
        load(path=str(tmp_path))


def test_a_missing_split_says_what_was_looked_for_and_what_is_there(tmp_path):
    put_text(tmp_path)
    for side in ("de", "en"):
        (tmp_path / f"valid.{side}").unlink()
    with pytest.raises(
        InputError,
        match=r"has no valid split for de-en: looked for val or valid or validation as NAME\.de .*"
        r"found test\.de, test\.en, train\.de, train\.en; .* data\.valid",
    ):
        load(path=str(tmp_path))


def test_a_path_that_is_no_directory_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"data\.path=.*nowhere does not exist"):
        load(path=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"data\.path=.*x\.de is a file"):
        load(path=str(put(tmp_path / "x.de", "x")))


# Files that the user names


def test_named_files_and_globs_are_joined_part_by_part(tmp_path):
    put_text(tmp_path)
    for part, k in (("a", 1), ("b", 2)):
        put(tmp_path / f"{part}.de.gz", f"d{k}\n" * k)
        put(tmp_path / f"{part}.en", f"e{k}\n" * k)
    here = str(tmp_path)
    corpus = load(
        train=[f"{here}/[ab].*"],
        valid=[f"{here}/b.en", f"{here}/a.en", f"{here}/a.de.gz", f"{here}/b.de.gz"],
        test=f"{here}/test.*",
    )
    assert corpus.splits["train"] == (["d1", "d2", "d2"], ["e1", "e2", "e2"])
    assert corpus.splits["valid"] == corpus.splits["train"]
    assert corpus.splits["test"] == TEXT["test"]
    within = load(path=here, train="a.*")
    assert within.splits == {**TEXT, "train": (["d1"], ["e1"])}


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("no*.de", r"data\.train=no\*\.de: no such file"),
        ([], r"data\.train is not set; .*data\.path"),
        ("train.de", r"data\.train: .*train\.de has no train\.en to go with it"),
        (["train.de", "train.de"], r"data\.train: .*train\.de is named twice"),
        (["train.de", "x.tsv"], r"x\.tsv holds both languages, train\.de one"),
        (["train.de", "notes"], r"notes names neither de nor en"),
        (["train.*", "valid.de"], r"valid\.de has no valid\.en to go with it"),
        (".", r"data\.train: \. is a directory; name files, or set data\.path"),
    ],
)
def test_wrongly_named_files_are_an_error(tmp_path, monkeypatch, train, message):
    put(put_text(tmp_path) / "x.tsv", "a\tb")
    put(tmp_path / "notes", "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        load(train=train, valid="valid.*", test="test.*")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"source": "web"}, r"data\.source=web must be verbalized, hub or files"),
        ({"src": "en"}, r"data\.src=en and data\.tgt=en must be two languages"),
        ({"source": "hub", "train": "x"}, r"data\.train is set, but data\.source=hub"),
        ({"source": "hub", "hub": "glue"}, r"data\.hub=glue must be namespace/name"),
        ({"source": "verbalized", "src": "fr"}, r"data\.src=fr data\.tgt=en: the embedded corpus"),
    ],
)
def test_wrong_keys_are_an_error(keys, message):
    with pytest.raises(InputError, match=message):
        load(**keys)


def test_the_embedded_corpus_may_be_turned_round():
    corpus = load(source="verbalized", src="en", tgt="de")
    english, german = corpus.splits["train"]
    assert sum(" the " in line for line in english) > 100 > sum(" the " in line for line in german)
    assert corpus.origin == {
        "source": "verbalized", "text": "verbalized-v1", "line_feeds_joined": 0,
    }  # fmt: skip


# The hub: its library reads a local directory by the same code, so no network is needed

HUB = """
import json, sys
from lnexp.data.sources import load_corpus
from lnexp.errors import InputError
for keys in json.loads(sys.argv[1]):
    try:
        corpus = load_corpus(**keys)
        print(json.dumps([corpus.splits, corpus.origin]))
    except InputError as error:
        print(json.dumps(str(error)))
"""


def test_the_hub_library_gives_the_same_corpus_and_its_dead_ends_name_the_ways_on(tmp_path):
    put_jsonl(tmp_path / "some" / "flat")
    put_parquet(tmp_path / "some" / "nested", "data/{name}-{k:05}-of-{n:05}.parquet", nested=True)
    put(tmp_path / "some" / "scripted" / "scripted.py", "")
    common = {**NOTHING, "name": "toy", "source": "hub", "split_names": NAMES}
    common |= {"src": "de", "tgt": "en"}
    cases = [
        {"hub": "some/flat"},
        {"hub": "some/nested"},
        {"hub": "some/scripted"},
        {"hub": "some/flat", "hub_config": "fr-en"},
        {"hub": "some/flat", "tgt": "fr"},
        {"hub": "some/flat", "split_names": {**NAMES, "test": ["exam"]}},
        {"hub": "some/missing", "revision": "v1"},
    ]
    done = subprocess.run(
        [sys.executable, "-c", HUB, json.dumps([common | case for case in cases])],
        cwd=tmp_path,
        env=os.environ
        | {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
        | {"PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    flat, nested, *messages = map(json.loads, done.stdout.splitlines())
    expected = {split: list(sides) for split, sides in TEXT.items()}
    assert flat[0] == nested[0] == expected
    assert flat[1] == {
        "source": "hub", "hub": "some/flat", "config": None, "revision": None, "commit": None,
        "line_feeds_joined": 0,
    }  # fmt: skip
    for message, start in zip(
        messages,
        [
            "data.hub=some/scripted: cannot be loaded (Dataset scripts are no longer supported",
            "data.hub=some/flat (config=fr-en): cannot be loaded (BuilderConfig 'fr-en' not found",
            "data.hub=some/flat, train: no column fr (columns: ",
            "data.hub=some/flat has no test split: looked for exam, it has train, validation, test",
            "data.hub=some/missing (revision=v1): cannot be loaded (",
        ],
        strict=True,
    ):
        assert message.startswith(start)
        assert "\n" not in message
        if "no column" not in message:
            assert "data.revision=refs/convert/parquet" in message
            assert message.endswith("or data.path=DIR with a local copy")


# Real corpora


@pytest.fixture
def corpora():
    if "LNEXP_TEST_DATA" not in os.environ:
        pytest.skip("LNEXP_TEST_DATA is not set to a directory of real corpora")
    return Path(os.environ["LNEXP_TEST_DATA"])


def test_multi30k_has_its_published_sizes(corpora):
    names = {"train": ["train"], "valid": ["val"], "test": ["test_2016_flickr"]}
    corpus = load(path=str(corpora / "multi30k_de_en"), split_names=names)
    assert [len(src) for src, _ in corpus.splits.values()] == [29_000, 1_014, 1_000]
    assert corpus.splits["train"][0][0].startswith("Zwei junge weiße Männer sind im Freien")
    assert corpus.splits["train"][1][0].startswith("Two young, White males are outside")


def test_tatoeba_is_read_from_tables(corpora):
    names = {"train": ["train"], "valid": ["dev"], "test": ["test"]}
    corpus = load(path=str(corpora / "tatoeba_de_en"), split_names=names)
    assert sum(len(src) for src, _ in corpus.splits.values()) == 66_135
    assert corpus.splits["test"][1][0] == "You're all cowards."


def test_newstest_is_found_between_dots(corpora):
    names = {"train": ["europarl_v7_first20k"], "valid": ["newstest2013"], "test": ["newstest2014"]}
    corpus = load(path=str(corpora / "wmt_de_en"), split_names=names)
    assert [len(src) for src, _ in corpus.splits.values()] == [20_000, 3_000, 3_003]
