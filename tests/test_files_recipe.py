"""`recipe=files`: other languages and layouts, and five ways in which data can be broken."""

import gzip
import json
import re
from pathlib import Path

import pytest
from num2words import num2words

SPLITS = {"train": range(0, 400), "dev": range(400, 420), "test": range(420, 440)}
SIZES = [
    "data.vocab_size=80", "model.d_model=16", "model.d_ff=32", "model.n_heads=2",
    "model.n_layers=1", "train.tokens_per_batch=512", "train.updates=3", "decode.beam=1", "threads=1",
]  # fmt: skip


def words(language, numbers):
    return [num2words(n, lang=language) for n in numbers]


def write_tsv(root, src, tgt):
    for split, numbers in SPLITS.items():
        rows = "".join(f"{a}\t{b}\n" for a, b in zip(words(src, numbers), words(tgt, numbers)))
        (root / f"{split}.tsv").write_text(rows, encoding="utf-8")
    return []


def write_nested_jsonl_gz(root, src, tgt):
    files = []
    for split, numbers in SPLITS.items():
        pairs = zip(words(src, numbers), words(tgt, numbers))
        rows = [{"id": n, "translation": {tgt: b, src: a}} for n, (a, b) in enumerate(pairs)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path = root / f"numbers-{split}.jsonl.gz"
        path.write_bytes(gzip.compress(text.encode()))
        files.append(path)
    return [f"data.{k}={p}" for k, p in zip(("train", "valid", "test"), files)]


def write_flat_parquet_shards(root, src, tgt):
    import pyarrow as pa
    import pyarrow.parquet as pq

    (root / "data").mkdir()
    for split, numbers in SPLITS.items():
        for shard in range(2):
            part = list(numbers)[shard::2]
            table = pa.table({"extra": part, tgt: words(tgt, part), src: words(src, part)})
            pq.write_table(table, root / "data" / f"{split}-{shard:05}-of-00002.parquet")
    return []


def write_plain_with_crlf(root, src, tgt):
    for split, numbers in SPLITS.items():
        for language in (src, tgt):
            text = "".join(f"{line}\r\n" for line in words(language, numbers))
            (root / f"corpus.{split}.tok.{language}").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return []


@pytest.mark.parametrize(
    ("write", "src", "tgt"),
    [
        (write_tsv, "fr", "it"),
        (write_nested_jsonl_gz, "fi", "sv"),
        (write_flat_parquet_shards, "ja", "es"),
        (write_plain_with_crlf, "ru", "ar"),
    ],
)
def test_any_language_pair_and_layout_trains(lnexp, tmp_path, write, src, tgt):
    root = tmp_path / "data"
    root.mkdir()
    files = write(root, src, tgt) or [f"data.path={root}"]
    sizes = [
        "data.vocab_size=300" if o.startswith("data.vocab") and src == "ja" else o for o in SIZES
    ]
    done = lnexp(
        "train", "+exp=preln_nowarmup", "recipe=files", f"data.src={src}", f"data.tgt={tgt}",
        *files, *sizes, f"runs_dir={tmp_path / 'runs'}", f"data.cache_dir={tmp_path / 'cache'}",
        check=0,
    )  # fmt: skip
    assert "pairs: 400 train, 20 valid, 20 test" in done.stdout
    run = Path(done.stdout.splitlines()[-1])
    sample = next((run / "samples").glob("test-*.txt")).read_text(encoding="utf-8")
    assert sample.startswith(f"src  {num2words(420, lang=src)}\nref  {num2words(420, lang=tgt)}\n")


def cut(root):
    path = root / "train.de"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    return "train.de has 299 lines, but .*train.en has 300"


def break_utf8(root):
    path = root / "valid.en"
    lines = path.read_bytes().split(b"\n")
    lines[6] = b"\xff\xfe oops"
    path.write_bytes(b"\n".join(lines))
    return r"valid\.en.*line 7.*UTF-8"


def drop_column(root):
    for side in ("de", "en"):
        (root / f"test.{side}").unlink()
    (root / "test.jsonl").write_text('{"de": "eins", "fr": "un"}\n')
    return r"test\.jsonl.*\ben\b.*de, fr"


def empty_split(root):
    for side in ("de", "en"):
        (root / f"valid.{side}").write_text("")
    return "the valid split is empty"


def forget_split(root):
    for side in ("de", "en"):
        (root / f"test.{side}").unlink()
    return "has no test split for de-en: looked for test"


def damage_gzip(root):
    path = root / "train.de"
    (root / "train.de.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])
    path.unlink()
    return r"train\.de\.gz"


@pytest.mark.parametrize(
    "damage", [cut, break_utf8, drop_column, empty_split, forget_split, damage_gzip]
)
def test_broken_data_get_one_line_and_exit_code_2(lnexp, tiny, corpus_dir, tmp_path, damage):
    import shutil

    root = tmp_path / "data"
    shutil.copytree(corpus_dir, root)
    message = damage(root)
    done = lnexp("train", *[o for o in tiny if "data.path" not in o], f"data.path={root}")
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("lnexp: ")
    assert re.search(message, lines[0])
    assert done.returncode == 2
    assert not (tmp_path / "runs").exists()


def test_a_table_without_a_header_is_source_then_target(lnexp, real_data, tmp_path):
    done = lnexp(
        "train", "recipe=files", "data.src=de", "data.tgt=en",
        f"data.path={real_data / 'tatoeba_de_en'}", "dry_run=true", "data.vocab_size=500",
        f"data.cache_dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert re.search(r"pairs +\d\d,\d{3} train", done.stdout)
