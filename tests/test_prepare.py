"""`lnexp prepare`: text by the community's rules, resumable, movable, and the same run from it."""

import json
import shlex
import shutil
import tarfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

TESTS = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]
NOUNS = {"Hund": "dog", "Baum": "tree", "Haus": "house", "Tisch": "table", "Ball": "ball"}
ADJECTIVES = {"rote": "red", "alte": "old", "große": "big", "kleine": "little"}
SIZES = [
    "model.d_model=16", "model.d_ff=16", "model.n_heads=2", "model.n_layers=1",
    "train.tokens_per_batch=256", "train.updates=4", "data.vocab_size=20", "threads=1",
]  # fmt: skip


def sentences(count):
    """German and English, with a comma, an apostrophe and capitals for Moses to work on."""
    for i in range(count):
        noun, adjective = list(NOUNS)[i % 5], list(ADJECTIVES)[i % 4]
        yield (
            f"Der {adjective} {noun}, sagt er, ist hier.",
            f"The {ADJECTIVES[adjective]} {NOUNS[noun]}, he says, isn't here.",
        )


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The official layout: 100 training pairs, 3 of them against the rules, and 10 of test."""
    folder = tmp_path_factory.mktemp("archive")
    inside = folder / "de-en"
    inside.mkdir()
    pairs = [
        *sentences(97),
        ("", "Nothing."),
        ("Nein.", "No, " * 9 + "no."),
        ("a " * 176, "a " * 170),
    ]
    for side, language in enumerate(("de", "en")):
        lines = ["<url>http://x</url>", "<title>Ein Titel</title>", "<keywords>a, b</keywords>"]
        lines += [pair[side] for pair in pairs]
        text = "".join(f"{line}\r\n" for line in lines)
        (inside / f"train.tags.de-en.{language}").write_bytes(b"\xef\xbb\xbf" + text.encode())
        for i, name in enumerate(TESTS):
            segments = [
                f'<seg id="{n}"> {p[side]} </seg>'
                for n, p in enumerate(list(sentences(9))[i : i + 2])
            ]
            xml = "\n".join(["<doc>", "<title>no text</title>", *segments, "</doc>", ""])
            (inside / f"IWSLT14.{name}.de-en.{language}.xml").write_text(xml)
    with tarfile.open(folder / "de-en.tgz", "w:gz") as tar:
        tar.add(inside, "de-en")
    shutil.rmtree(inside)
    return folder / "de-en.tgz"


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def test_an_archive_is_prepared_moved_and_trained_on_elsewhere(lnexp, archive, tmp_path):
    out = tmp_path / "out"
    where = [f"data.cache_dir={tmp_path / 'cache'}", f"data.path={archive}"]
    done = lnexp("prepare", f"--out={out}", "recipe=iwslt14", *SIZES, *where, check=0)
    # 98 pairs are kept, the title one of them; every 23rd is held out.
    assert "train: 94 pairs" in done.stdout
    assert "valid: 4 pairs" in done.stdout
    assert "test: 10 pairs" in done.stdout
    assert done.stdout.splitlines()[-1] == str(out)
    hint = f"lnexp train +exp=preln_nowarmup recipe=iwslt14 {' '.join(SIZES[:-1])} data.path={out}"
    assert f"on any machine: {hint}\n" in done.stdout
    assert lines(out / "train.de")[0] == "ein titel"
    assert lines(out / "train.en")[1] == "the red dog , he says , isn &apos;t here ."
    held_out = [n - 2 for n in (23, 46, 69, 92)]  # pair 1 is the title
    assert lines(out / "valid.de") == [
        f"der {list(ADJECTIVES)[i % 4]} {list(NOUNS)[i % 5].lower()} , sagt er , ist hier ."
        for i in held_out
    ]
    record = json.loads((out / "corpus.json").read_text())
    assert record["origin"]["left_out_of_train"] == {"empty": 1, "ratio": 1, "too_long": 1}

    trained = lnexp(
        "train", "+exp=preln_nowarmup", "recipe=iwslt14", *SIZES, *where,
        f"runs_dir={tmp_path / 'runs'}", check=0,
    )  # fmt: skip
    # Elsewhere: another place, another cache, no archive. It is the same run.
    moved = tmp_path / "moved"
    out.rename(moved)
    again = lnexp(
        "train", "+exp=preln_nowarmup", "recipe=iwslt14", *SIZES, f"data.path={moved}",
        f"data.cache_dir={tmp_path / 'other'}", f"runs_dir={tmp_path / 'runs'}", check=0,
    )  # fmt: skip
    assert "already finished" in again.stdout
    assert again.stdout.splitlines()[-1] == trained.stdout.splitlines()[-1]
    assert "learning" not in again.stdout  # the pieces moved along
    result = json.loads((tmp_path / "runs").glob("*/*/*/result.json").__next__().read_text())
    assert "|case:lc|" in result["test"]["bleu_tokenised_signature"]
    assert "|tok:none|" in result["test"]["bleu_tokenised_signature"]
    assert "|tok:13a|" in result["test"]["bleu_signature"]


def test_merges_that_were_given_move_along(lnexp, archive, tmp_path):
    codes = tmp_path / "merges"
    codes.write_text(
        "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in zip("thedrisan", "heerbanto"))
    )
    out = tmp_path / "out"
    keys = [*SIZES, "data.vocab_size=9", f"data.cache_dir={tmp_path / 'cache'}"]
    args = [*keys, f"data.path={archive}", f"data.codes={codes}"]
    done = lnexp("prepare", "--out", out, "recipe=iwslt14", *args, check=0)
    assert f"data.codes={out / 'codes'}" in done.stdout
    assert (out / "codes").read_bytes() == codes.read_bytes()
    # The same again changes nothing; another text is refused.
    lnexp("prepare", "--out", out, "recipe=iwslt14", *args, check=0)
    other = lnexp("prepare", "--out", out, "recipe=iwslt14", *args, "data.valid_every=9", check=2)
    assert f"--out {out} holds another text" in other.stderr


def test_the_archive_is_downloaded_once(lnexp, archive, tmp_path):
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=archive.parent)

        def log_message(self, _, *args):
            asked.append(args)

    keys = ["recipe=iwslt14", *SIZES, f"data.cache_dir={tmp_path / 'cache'}"]
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        keys.append(f"data.archive=http://127.0.0.1:{server.server_port}/de-en.tgz")
        try:
            first = lnexp("prepare", *keys, check=0)
        finally:
            server.shutdown()
    assert "train: 94 pairs" in first.stdout
    assert len(asked) == 1
    again = lnexp("prepare", *keys, check=0)  # nobody answers any more
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    other = lnexp("prepare", *keys, "data.archive=http://127.0.0.1:9/de-en.tgz", check=2)
    assert "data.archive=http://127.0.0.1:9/de-en.tgz" in other.stderr
    assert "data.path=" in other.stderr
    assert other.stderr.count("\n") == 1


def test_a_copy_that_was_cut_off_is_made_again_and_one_in_use_is_left_alone(lnexp, tiny, tmp_path):
    out = tmp_path / "out"
    (tmp_path / ".out.building").mkdir()  # as a killed process leaves it
    (tmp_path / ".out.building" / "train.de").write_text("half a li")
    lnexp("prepare", "--out", out, *tiny, check=0)
    assert not (tmp_path / ".out.building").exists()
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.is_file()}
    lnexp("prepare", "--out", out, *tiny, check=0)
    lnexp("prepare", "--out", out, *tiny, f"data.path={out}", "data.vocab_size=50", check=0)
    after = {path.name: path.stat().st_mtime_ns for path in out.iterdir() if path.is_file()}
    assert after == before
    assert len(list((out / "tokenised").iterdir())) == 2  # the pieces of both sizes
    empty = tmp_path / "empty"
    empty.mkdir()
    inode = empty.stat().st_ino
    lnexp("prepare", "--out", empty, *tiny, check=0)
    assert empty.stat().st_ino == inode  # somebody may be in it
    assert (empty / "train.de").read_bytes() == (out / "train.de").read_bytes()


def test_the_hint_repeats_what_the_text_and_the_pieces_depend_on(lnexp, tiny, tmp_path):
    keys = [*tiny, "data.lowercase=true", "data.max_words=9", "data.vocab_size=40"]
    done = lnexp("prepare", "--out", tmp_path / "with blank", *keys, check=0)
    [hint] = [line for line in done.stdout.splitlines() if line.startswith("on any machine")]
    words = shlex.split(hint.removeprefix("on any machine: lnexp "))
    where = [f"runs_dir={tmp_path / 'runs'}", f"data.cache_dir={tmp_path / 'other'}"]
    trained = lnexp(*words, *where, "train.updates=1", check=0)
    assert "learning" not in trained.stdout
    assert "already" in lnexp("train", "+exp=preln_nowarmup", *keys, "train.updates=1").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out"], "--out: name a directory, --out DIR"),
        (["--out", "recipe=iwslt14"], "--out recipe=iwslt14: name a directory"),
        (["--out", "{full}", "recipe=demo"], "holds other files; name a new or an empty directory"),
        (["--out", "{full}/file", "recipe=demo"], "is a file; name a directory"),
        (["dry_run=true"], "dry_run=true is for lnexp train; leave it out"),
        (["recipe=iwslt41"], "recipe=iwslt41: there is no such recipe; did you mean iwslt14?"),
        (["data.max_word=5"], "did you mean data.max_words?"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(lnexp, tmp_path, arguments, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = lnexp("prepare", *(a.format(full=tmp_path / "full") for a in arguments), check=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_says_how(lnexp):
    assert "--out DIR" in lnexp("prepare", "--help", check=0).stdout
