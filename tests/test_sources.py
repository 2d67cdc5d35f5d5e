"""Raw text in every layout gives the same corpus; what is wrong with it is named in one line."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data.corpus import Corpus
from lnexp.data.formats import read_lines
from lnexp.data.preparation import Preparation
from lnexp.data.sources import Source, load_corpus
from lnexp.errors import InputError

TEXT = {
    "train": (["ein Hund", "", "zwei\u2028Katzen\u0085"], ["a dog", "nothing", " two  cats"]),
    "valid": (["drei"], ["three"]),
    "test": (["vier", "fünf"], ["four", "five"]),
}
NAMES = {"train": ["train"], "valid": ["val", "valid", "validation"], "test": ["test_2016", "test"]}


@pytest.fixture
def load(tmp_path_factory):
    cache_dir = tmp_path_factory.mktemp("cache")

    def load(preparation=None, *, workers=1, said=None, **keys):
        defaults = {"name": "toy", "kind": "files", "src": "de", "tgt": "en", "split_names": NAMES}
        return load_corpus(
            Source(**{**defaults, **keys}),
            preparation or Preparation(),
            cache_dir=cache_dir,
            workers=workers,
            say=(lambda line: None) if said is None else said.append,
        )

    return load


def text(corpus):
    return {split: tuple(map(list, sides)) for split, sides in corpus.splits.items()}


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
def test_every_layout_gives_the_same_corpus(load, tmp_path, layout):
    corpus = load(path=str(layout(tmp_path)), hub_config="cfg")
    assert text(corpus) == TEXT
    assert corpus.fingerprint == Corpus("other", "de", "en", TEXT, {}).fingerprint


def test_a_local_copy_wins_over_the_source_and_is_recorded_without_its_directory(load, tmp_path):
    corpus = load(path=str(put_text(tmp_path)), kind="hub", hub="some/thing")
    assert text(corpus) == TEXT
    assert corpus.origin["files"]["valid"] == [
        {"name": "valid.de", "bytes": 5},
        {"name": "valid.en", "bytes": 6},
    ]
    assert str(tmp_path) not in json.dumps(corpus.origin)


def test_the_languages_may_be_taken_either_way_round(load, tmp_path):
    corpus = load(path=str(put_tsv(tmp_path, header=("id", "en", "de"))), src="en", tgt="de")
    assert text(corpus)["test"] == (["four", "five"], ["vier", "fünf"])


def test_split_names_are_tried_in_order(load, tmp_path):
    put_text(tmp_path)
    put(tmp_path / "test_2016.de", "besser\n")
    put(tmp_path / "test_2016.en", "better\n")
    assert text(load(path=str(tmp_path)))["test"] == (["besser"], ["better"])


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
    assert list(read_lines(path)) == wanted


def test_a_byte_order_mark_and_carriage_returns_go(tmp_path):
    path = put(tmp_path / "x.de", b"\xef\xbb\xbfeins\r\nzw\rei\r\n\xef\xbb\xbfdrei")
    assert list(read_lines(path)) == ["eins", "zw\rei", "\ufeffdrei"]


def test_line_feeds_within_a_field_become_blanks_and_are_counted(load, tmp_path):
    put_jsonl(tmp_path)
    put(tmp_path / "valid.jsonl", '{"de": "ein\\nWort", "en": "word"}')
    corpus = load(path=str(tmp_path))
    assert text(corpus)["valid"] == (["ein Wort"], ["word"])
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
def test_a_bad_file_is_named_with_its_line(load, tmp_path, name, content, message):
    put_text(tmp_path)
    if name != "train.de":
        (tmp_path / "train.de").unlink()
        (tmp_path / "train.en").unlink()
    put(tmp_path / name, content)
    with pytest.raises(InputError, match=message) as error:
        load(path=str(tmp_path))
    assert "\n" not in str(error.value)


def test_a_truncated_gzip_file_is_named(load, tmp_path):
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
def test_a_parquet_table_without_the_text_is_named(load, tmp_path, table, message):
    put_tsv(tmp_path)
    (tmp_path / "train.tsv").unlink()
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    with pytest.raises(InputError, match=message):
        load(path=str(tmp_path))


def test_parquet_dictionaries_and_large_strings_are_text(load, tmp_path):
    put_text(tmp_path)
    for side in ("train.de", "train.en"):
        (tmp_path / side).unlink()
    de = pa.array(["a", "b", "a"]).dictionary_encode()
    table = pa.table({"de": de, "en": pa.array(["x", "y", "x"], pa.large_string())})
    pq.write_table(table, tmp_path / "train.parquet")
    assert text(load(path=str(tmp_path)))["train"] == (["a", "b", "a"], ["x", "y", "x"])


# A directory


def test_two_sets_of_files_for_a_split_are_an_error(load, tmp_path):
    put_tsv(put_text(tmp_path))
    with pytest.raises(
        InputError, match=r"train\.\{de,en\} and .*train\.tsv are both called train"
    ):
        load(path=str(tmp_path))


def test_a_file_beside_its_gzipped_copy_is_an_error(load, tmp_path):
    put_text(put_text(tmp_path), suffix=".gz")
    with pytest.raises(InputError, match=r"train\.de\.gz are the same part twice"):
        load(path=str(tmp_path))


def test_a_side_without_the_other_is_an_error(load, tmp_path):
    put_text(tmp_path)
    (tmp_path / "valid.en").unlink()
    with pytest.raises(InputError, match=r"valid\.de has no file in en beside it"):
        load(path=str(tmp_path))


def test_a_missing_shard_is_an_error(load, tmp_path):
    put_parquet(tmp_path, "data/{name}-{k:05}-of-{n:05}.parquet", shards=2)
    (tmp_path / "data" / "test-00001-of-00002.parquet").unlink()
    with pytest.raises(InputError, match=r"1 of 2 shards are there"):
        load(path=str(tmp_path))


def test_a_missing_split_says_what_was_looked_for_and_what_is_there(load, tmp_path):
    put_text(tmp_path)
    for side in ("de", "en"):
        (tmp_path / f"valid.{side}").unlink()
    with pytest.raises(
        InputError,
        match=r"has no valid split for de-en: looked for val or valid or validation as NAME\.de .*"
        r"found test\.de, test\.en, train\.de, train\.en; .* data\.valid",
    ):
        load(path=str(tmp_path))


def test_a_path_that_is_no_directory_is_an_error(load, tmp_path):
    with pytest.raises(InputError, match=r"data\.path=.*nowhere does not exist"):
        load(path=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"data\.path=.*x\.de is a file"):
        load(path=str(put(tmp_path / "x.de", "x")))


# Files that the user names


def test_named_files_and_globs_are_joined_part_by_part(load, tmp_path):
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
    assert text(corpus)["train"] == (["d1", "d2", "d2"], ["e1", "e2", "e2"])
    assert text(corpus)["valid"] == text(corpus)["train"]
    assert text(corpus)["test"] == TEXT["test"]
    turned = load(path=here, train=["b.*", "a.*"])
    assert text(turned)["train"][0] == ["d2", "d2", "d1"]
    assert text(load(path=here, train=["a.*", "b.*"]))["train"][0] == ["d1", "d2", "d2"]
    within = load(path=here, train="a.*")
    assert text(within) == {**TEXT, "train": (["d1"], ["e1"])}


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
def test_wrongly_named_files_are_an_error(load, tmp_path, monkeypatch, train, message):
    put(put_text(tmp_path) / "x.tsv", "a\tb")
    put(tmp_path / "notes", "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        load(train=train, valid="valid.*", test="test.*")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "web"}, r"data\.source=web must be verbalized, hub, files or archive"),
        ({"src": "en"}, r"data\.src=en and data\.tgt=en must be two languages"),
        ({"kind": "hub", "train": "x"}, r"data\.train is set, but data\.source=hub"),
        ({"kind": "hub", "hub": "glue"}, r"data\.hub=glue must be namespace/name"),
        ({"kind": "verbalized", "src": "fr"}, r"data\.src=fr data\.tgt=en: the embedded corpus"),
    ],
)
def test_wrong_keys_are_an_error(load, keys, message):
    with pytest.raises(InputError, match=message):
        load(**keys)


def test_the_embedded_corpus_may_be_turned_round(load):
    corpus = load(kind="verbalized", src="en", tgt="de")
    english, german = corpus.splits["train"]
    assert sum(" the " in line for line in english) > 100 > sum(" the " in line for line in german)
    assert corpus.origin == {
        "source": "verbalized", "text": "verbalized-v1", "line_feeds_joined": 0,
    }  # fmt: skip


# The official archive; all that its own tests ask is asked there

TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")


def put_archive(folder):
    for language, word in (("de", "Hund"), ("en", "dog")):
        lines = ["<url>http://x</url>", *(f"{word} (Z) {i}." for i in range(1, 47))]
        put(folder / f"train.tags.de-en.{language}", "\n".join(lines))
        for test in TESTS:
            segment = f'<doc>\n<seg id="1"> {word} {test}\u2019s </seg>\n</doc>\n'
            put(folder / f"IWSLT14.{test}.de-en.{language}.xml", segment)
    return folder


def packed(folder):
    with tarfile.open(folder.parent / "de-en.tgz", "w:gz") as tar:
        tar.add(folder, "de-en")
    shutil.rmtree(folder)
    return folder.parent / "de-en.tgz"


@pytest.mark.parametrize(
    "layout",
    [lambda x: x, lambda x: x.parent, packed, lambda x: packed(x).parent],
    ids=["unpacked", "in a directory", "packed", "packed in a directory"],
)
def test_the_archive_is_prepared_whatever_it_lies_in(load, tmp_path, layout):
    path = layout(put_archive(tmp_path / "a" / "de-en"))
    corpus = load(Preparation("moses", True, 1, 175, 1.5, 23), path=str(path), kind="archive")
    numbers = [i for i in range(1, 47) if i not in (23, 46)]
    assert text(corpus) == {
        "train": ([f"hund ( z ) {i} ." for i in numbers], [f"dog ( z ) {i} ." for i in numbers]),
        "valid": ([f"hund ( z ) {i} ." for i in (23, 46)], [f"dog ( z ) {i} ." for i in (23, 46)]),
        "test": (
            [f"hund {test.lower()} &apos; s" for test in TESTS],
            [f"dog {test.lower()} &apos;s" for test in TESTS],
        ),
    }
    assert corpus.origin["source"] == "archive"


def test_an_archive_that_is_not_to_be_split_is_an_error(load, tmp_path):
    path = put_archive(tmp_path / "de-en")
    with pytest.raises(InputError, match=r"no validation split .* set data\.valid_every=23"):
        load(Preparation("moses"), path=str(path))
    with pytest.raises(InputError, match=r"data\.archive is not set"):
        load(Preparation("moses", valid_every=23), kind="archive")


# The hub; all that its own tests ask is asked there

HUB = """
import json, sys
from pathlib import Path
from lnexp.data import hub
from lnexp.data.preparation import Preparation
from lnexp.data.sources import Source, load_corpus
hub.read_hub = hub.read_dataset  # which takes a directory for the repository
here, names = sys.argv[1], json.loads(sys.argv[2])
source = Source("toy", "hub", "de", "en", names, hub=f"{here}/repository")
for _ in range(2):
    corpus = load_corpus(source, Preparation(valid_every=2), cache_dir=Path(here, "cache"))
    splits = {split: [list(side) for side in sides] for split, sides in corpus.splits.items()}
    print(json.dumps([splits, corpus.origin]))
    hub.read_dataset = hub.read_hub = None
"""


def test_the_hub_is_read_once_and_validation_held_out_if_it_has_none(tmp_path):
    put_parquet(tmp_path / "repository", "data/{name}-{k:05}-of-{n:05}.parquet", nested=True)
    (tmp_path / "repository" / "data" / "validation-00000-of-00001.parquet").unlink()
    done = subprocess.run(
        [sys.executable, "-c", HUB, str(tmp_path), json.dumps(NAMES)],
        env=os.environ
        | {"HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == second
    assert first[0]["train"] == [[side[0], side[2]] for side in TEXT["train"]]
    assert first[0]["valid"] == [[side[1]] for side in TEXT["train"]]
    assert first[1]["source"] == "hub"
    assert first[1]["preparation"] == {"valid_every": 2}


# Real corpora


@pytest.fixture
def corpora():
    if "LNEXP_TEST_DATA" not in os.environ:
        pytest.skip("LNEXP_TEST_DATA is not set to a directory of real corpora")
    return Path(os.environ["LNEXP_TEST_DATA"])


def test_multi30k_has_its_published_sizes(load, corpora):
    names = {"train": ["train"], "valid": ["val"], "test": ["test_2016_flickr"]}
    corpus = load(path=str(corpora / "multi30k_de_en"), split_names=names)
    assert [len(src) for src, _ in corpus.splits.values()] == [29_000, 1_014, 1_000]
    assert corpus.splits["train"][0][0].startswith("Zwei junge weiße Männer sind im Freien")
    assert corpus.splits["train"][1][0].startswith("Two young, White males are outside")


def test_tatoeba_is_read_from_tables(load, corpora):
    names = {"train": ["train"], "valid": ["dev"], "test": ["test"]}
    corpus = load(path=str(corpora / "tatoeba_de_en"), split_names=names)
    assert sum(len(src) for src, _ in corpus.splits.values()) == 66_135
    assert corpus.splits["test"][1][0] == "You're all cowards."


def test_newstest_is_found_between_dots(load, corpora):
    names = {"train": ["europarl_v7_first20k"], "valid": ["newstest2013"], "test": ["newstest2014"]}
    corpus = load(path=str(corpora / "wmt_de_en"), split_names=names)
    assert [len(src) for src, _ in corpus.splits.values()] == [20_000, 3_000, 3_003]
