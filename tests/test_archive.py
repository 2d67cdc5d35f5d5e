"""An archive in the official layout, made here, gives the text the community's script gives."""

import gzip
import io
import re
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data import download as download_module
from lnexp.data.archive import (
    TESTS,
    archive_files,
    download,
    read_archive,
    text_of_segments,
    text_of_tagged,
)
from lnexp.data.preparation import Preparation, hold_out, prepared_pairs
from lnexp.errors import InputError

IWSLT = Preparation("moses", True, 1, 175, 1.5, 23)

TRAIN = {
    "de": [
        "<url>http://www.ted.com/talks/lang/de/x.html</url>",
        "<keywords>talks, Kunst</keywords>",
        "<speaker>Al Gore</speaker>",
        "<talkid>1</talkid>",
        "<title>Al Gore: Die Krise abwenden</title>",
        "<description>Mit  Humor &amp; Geist.</description>",
        " Vielen Dank, Chris. ",
        "Er sagt \u2019ja\u2019 zu R&amp;D.",
        "",
        "Nur hier steht etwas.",
        "Siehe <a>dort</a> und <url>das</url>",
    ],
    "en": [
        "<url>http://www.ted.com/talks/x.html</url>",
        "<keywords>talks, art</keywords>",
        "<speaker>Al Gore</speaker>",
        "<talkid>1</talkid>",
        "<title>Al Gore: Averting the crisis</title>",
        "<description>With  humour &amp; wit.</description>",
        " Thank you so, Chris.",
        "He says \u2019yes\u2019 to R&amp;D.",
        "",
        "",
        "See <a>there</a> and <url>that</url>",
    ],
}
TRAIN_TEXT = {
    "de": [
        "<speaker>Al Gore</speaker>",
        "Al Gore: Die Krise abwenden",
        "Mit  Humor &amp; Geist.",
        "Vielen Dank, Chris.",
        "Er sagt \u2019ja\u2019 zu R&amp;D.",
        "",
        "Nur hier steht etwas.",
    ],
    "en": [
        "<speaker>Al Gore</speaker>",
        "Al Gore: Averting the crisis",
        "With  humour &amp; wit.",
        "Thank you so, Chris.",
        "He says \u2019yes\u2019 to R&amp;D.",
        "",
        "",
    ],
}
PREPARED = {
    "de": [
        "&lt; speaker &gt; al gore &lt; / speaker &gt;",
        "al gore : die krise abwenden",
        "mit humor &amp; amp ; geist .",
        "vielen dank , chris .",
        "er sagt \u2019 ja \u2019 zu r &amp; amp ; d .",
    ],
    "en": [
        "&lt; speaker &gt; al gore &lt; / speaker &gt;",
        "al gore : averting the crisis",
        "with humour &amp; amp ; wit .",
        "thank you so , chris .",
        "he says \u2019 yes \u2019 to r &amp; amp ; d .",
    ],
}


def xml(test, language):
    return [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<mteval>",
        f'<refset setid="iwslt14" srclang="de" trglang="{language}" refid="ref">',
        '<doc docid="1" genre="lectures">',
        f"<title>{test}</title>",
        f'<seg id="1"> {test} in {language}: it\u2019s \u201cso\u201d </seg>',
        '  <seg id="22">R&amp;D &lt;b&gt;  ends</seg>  ',
        '<seg id="3"> </seg>',
        "</doc>",
        "</refset>",
        "</mteval>",
    ]


def test_text(language):
    lines = []
    for test in TESTS:
        lines += [f"{test} in {language}: it's \u201cso\u201d", "R&amp;D &lt;b&gt;  ends", ""]
    return lines


test_text.__test__ = False


def layout(*, end="\n", bom=b"", pair="de-en"):
    """The files of an archive, by name: bytes."""
    files = {"README": b"TED", f"{pair}/train.en": b"not this one\n"}
    for language in ("de", "en"):
        texts = {f"train.tags.{pair}.{language}": TRAIN[language]}
        more = ("IWSLT14.TED.tst2013", "IWSLT14.TEDX.tst2014")
        texts |= {f"{t}.{pair}.{language}.xml": xml(t, language) for t in (*more, *TESTS)}
        for name, lines in texts.items():
            files[f"{pair}/{name}"] = bom + "".join(line + end for line in lines).encode()
    return files


def pack(path: Path, files):
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def unpack(folder: Path, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


# ---------------------------------------------------------------------------------------- reading


def test_a_packed_archive_gives_the_text_of_both_splits(tmp_path):
    path = pack(tmp_path / "de-en.tgz", layout())
    splits, origin = read_archive(path, "de", "en")
    assert splits["train"] == (TRAIN_TEXT["de"], TRAIN_TEXT["en"])
    assert splits["test"] == (test_text("de"), test_text("en"))
    assert origin["source"] == "archive"
    assert origin["archive"] == "de-en.tgz"
    assert origin["files"][0]["name"] == "train.tags.de-en.de"
    assert len(origin["files"]) == 12


def test_the_test_text_is_five_sets_in_the_order_of_the_script():
    assert [t.rpartition(".")[2] for t in TESTS] == ["dev2010", "dev2012", "tst2010", "tst2011", "tst2012"]  # fmt: skip


@pytest.mark.parametrize("variant", ["inside", "holding", "packed inside", "tar", "deep tar"])
def test_the_archive_is_read_wherever_it_lies(tmp_path, variant):
    expected = read_archive(pack(tmp_path / "de-en.tgz", layout()), "de", "en")[0]
    there = tmp_path / "there"
    there.mkdir()
    match variant:
        case "inside":
            path = unpack(there, layout()) / "de-en"
        case "holding":
            path = unpack(there, layout())
        case "packed inside":
            pack(there / "de-en.tgz", layout())
            path = there
        case "tar":
            path = pack(there / "any.tar", layout())
        case _:
            path = pack(there / "x.tar", {f"./a/b/{k}": v for k, v in layout().items()})
    assert archive_files(path, "de", "en")
    assert archive_files(path, "en", "de")
    assert read_archive(path, "de", "en")[0] == expected


def test_either_language_is_the_source_and_either_order_in_the_names(tmp_path):
    path = pack(tmp_path / "de-en.tgz", layout())
    there, back = (read_archive(path, *pair)[0] for pair in (("de", "en"), ("en", "de")))
    for split in ("train", "test"):
        assert back[split] == there[split][::-1]
    other = pack(tmp_path / "en-de.tgz", layout(pair="en-de"))
    assert read_archive(other, "de", "en")[0] == there


def test_carriage_returns_and_byte_order_marks_are_not_text(tmp_path):
    plain = pack(tmp_path / "a.tgz", layout())
    odd = pack(tmp_path / "b.tgz", layout(end="\r\n", bom=b"\xef\xbb\xbf"))
    assert read_archive(plain, "de", "en")[0] == read_archive(odd, "de", "en")[0]


def test_a_missing_line_feed_at_the_end_loses_no_line(tmp_path):
    files = layout()
    files = {name: content.removesuffix(b"\n") for name, content in files.items()}
    path = pack(tmp_path / "a.tgz", files)
    assert read_archive(path, "de", "en")[0]["train"][0][-1] == "Nur hier steht etwas."


def test_the_prepared_text_is_that_of_the_script(tmp_path):
    splits, _ = read_archive(pack(tmp_path / "de-en.tgz", layout()), "de", "en")
    train, left_out = prepared_pairs(splits["train"], ("de", "en"), IWSLT, training=True)
    assert train == (PREPARED["de"], PREPARED["en"])
    assert left_out == {"empty": 2}
    test, left_out = prepared_pairs(splits["test"], ("de", "en"), IWSLT, training=False)
    assert len(test[0]) == 15
    assert test[1][:3] == [
        "iwslt14.ted.dev2010 in en : it &apos;s \u201c so \u201d",
        "r &amp; amp ; d &amp; lt ; b &amp; gt ; ends",
        "",
    ]
    assert not left_out


def test_every_23rd_of_the_cleaned_pairs_of_an_archive_is_held_out(tmp_path):
    files = layout()
    for language in ("de", "en"):
        # Line 10 falls out, so that line 24 is the 23rd that stays.
        lines = [f"Satz {n} ." if n != 10 else "" for n in range(1, 50)]
        files[f"de-en/train.tags.de-en.{language}"] = "\n".join(lines).encode()
    splits, _ = read_archive(pack(tmp_path / "de-en.tgz", files), "de", "en")
    kept, _ = prepared_pairs(splits["train"], ("de", "en"), IWSLT, training=True)
    train, valid = hold_out(kept, 23)
    assert valid[0] == ["satz 24 .", "satz 47 ."]
    assert len(train[0]) == 46


PIECES = ["<url>", "</url>", "<talkid>", "<keywords>", "<title>", "</title>", "<description>",
          "</description>", '<seg id="', '12">', "</seg>", " ", "\u2019", "a", "b.", "<seg id>"]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), max_size=8))
def test_lines_are_chosen_and_stripped_as_grep_and_sed_do(lines):
    grep = [x for x in lines if not re.search("<url>", x)]
    grep = [x for x in grep if not re.search("<talkid>", x)]
    grep = [x for x in grep if not re.search("<keywords>", x)]
    for tag in ("<title>", "</title>", "<description>", "</description>"):
        grep = [re.sub(tag, "", x) for x in grep]
    assert text_of_tagged(lines) == [x.strip() for x in grep]
    segments = [x for x in lines if re.search("<seg id", x)]
    for pattern in (r'<seg id="[0-9]*">\s*', r"\s*</seg>\s*"):
        segments = [re.sub(pattern, "", x) for x in segments]
    assert text_of_segments(lines) == [re.sub("\u2019", "'", x).strip() for x in segments]


# ----------------------------------------------------------------------------- what is not right


def changed(tmp_path, **changes):
    files = layout()
    for name, content in changes.items():
        name = {"train": "de-en/train.tags.de-en.en", "test": f"de-en/{TESTS[2]}.de-en.en.xml"}[
            name
        ]
        files[name] = content
    return pack(tmp_path / "de-en.tgz", {k: v for k, v in files.items() if v is not None})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": b"one\ntwo\n"}, r"train\.tags\.de-en\.de holds 7 lines of text, but train\.tags\.de-en\.en 2; "),
        ({"test": b'<seg id="1">x</seg>'}, r"tst2010\.de-en\.de\.xml holds 3 lines of text, but .*\.en\.xml 1; "),
        ({"train": None}, r"train\.tags\.de-en\.en is not there \(1 of 12 files missing\); get de-en\.tgz"),
        ({"train": b"ok\nfine \xfc\n"}, r"train\.tags\.de-en\.en, line 2: not UTF-8 \(byte 0xfc\)"),
    ],
)  # fmt: skip
def test_an_archive_that_is_not_what_it_should_be_is_named(tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        read_archive(changed(tmp_path, **changes), "de", "en")
    assert "\n" not in str(caught.value)


def test_an_empty_set_is_refused(tmp_path):
    files = layout()
    for language in ("de", "en"):
        files[f"de-en/{TESTS[0]}.de-en.{language}.xml"] = b"<mteval>\n</mteval>\n"
    with pytest.raises(InputError, match=r"dev2010\.de-en\.de\.xml holds no line of text"):
        read_archive(pack(tmp_path / "de-en.tgz", files), "de", "en")


def test_other_languages_than_the_archive_s_are_refused(tmp_path):
    path = pack(tmp_path / "de-en.tgz", layout())
    with pytest.raises(InputError, match=r"not the IWSLT14 archive of fr and en, .*12 of 12 files"):
        read_archive(path, "fr", "en")


def test_a_cut_or_spoilt_file_is_not_a_whole_archive(tmp_path):
    path = pack(tmp_path / "de-en.tgz", layout())
    whole = path.read_bytes()
    spoilt = bytearray(whole)
    spoilt[-8] ^= 1  # the check sum
    for content in (
        whole[: len(whole) // 2],
        whole[:-4],
        bytes(spoilt),
        b"<html>sorry</html>",
        b"",
    ):
        path.write_bytes(content)
        with pytest.raises(
            InputError, match=r"de-en\.tgz: not a whole tar archive \(.+\); delete"
        ) as caught:
            read_archive(path, "de", "en")
        assert "\n" not in str(caught.value)
    plain = pack(tmp_path / "de-en.tar", layout())
    plain.write_bytes(plain.read_bytes()[:9_000])
    with pytest.raises(InputError, match=r"not a whole tar archive|is not there"):
        read_archive(plain, "de", "en")
    with pytest.raises(InputError, match=r"none\.tgz: cannot be read \(No such file"):
        read_archive(tmp_path / "none.tgz", "de", "en")


def test_links_in_a_tar_file_are_not_followed_and_nothing_is_written(tmp_path):
    files = layout()
    files.pop("de-en/train.tags.de-en.en")
    path = pack(tmp_path / "de-en.tar", files)
    (tmp_path / "secret").write_text("secret\n" * 7)
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("de-en/train.tags.de-en.en")
        link.type, link.linkname = tarfile.SYMTYPE, "../secret"
        tar.addfile(link)
    with pytest.raises(InputError, match=r"train\.tags\.de-en\.en is not there"):
        read_archive(path, "de", "en")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["de-en.tar", "secret"]


def test_other_files_and_directories_are_no_archive(tmp_path):
    (tmp_path / "train.de").write_text("x\n")
    (tmp_path / "corpus.txt").write_text("x\n")
    assert not archive_files(tmp_path, "de", "en")
    assert not archive_files(tmp_path / "corpus.txt", "de", "en")
    assert not archive_files(tmp_path / "none.tgz", "de", "en")
    assert not archive_files(unpack(tmp_path / "u", layout()), "fr", "en")


# ------------------------------------------------------------------------------------ downloading


class Server:
    """Serves one file, with ranges, and misbehaves as it is told."""

    def __init__(self, content: bytes):
        self.content, self.etag = content, '"one"'
        self.cuts: list[int] = []  # bytes after which a reply breaks off, reply by reply
        self.status, self.ranges, self.if_range, self.lengths = 200, True, True, True
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.reply(self)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/data/de-en.tgz"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def reply(self, handler):
        asked = handler.headers.get("Range")
        self.asked.append(asked)
        if self.status != 200:
            return handler.send_error(self.status)
        start = 0
        same = handler.headers.get("If-Range") == self.etag or not self.if_range
        if asked and self.ranges and same:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        size = len(self.content)
        if start >= size:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{size}")
            handler.send_header("Content-Length", "0")
            return handler.end_headers()
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        if self.etag:
            handler.send_header("ETag", self.etag)
        if self.lengths:
            handler.send_header("Content-Length", str(size - start))
        handler.end_headers()
        cut = self.cuts.pop(0) if self.cuts else size
        handler.wfile.write(self.content[start : start + cut])
        handler.close_connection = True
        return None

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    path = pack(tmp_path_factory.mktemp("served") / "de-en.tgz", layout())
    return path.read_bytes()


@pytest.fixture
def server(packed):
    server = Server(packed)
    yield server
    server.stop()


def test_a_file_is_downloaded_once(server, packed, tmp_path):
    said = []
    path = download(server.url, tmp_path / "archives", said.append)
    assert path.read_bytes() == packed
    assert path.name == "de-en.tgz"
    assert "downloading http://127.0.0.1" in said[0]
    assert download(server.url, tmp_path / "archives", said.append) == path
    assert server.asked == [None]
    assert [p.name for p in path.parent.iterdir()] == ["de-en.tgz"]
    assert read_archive(path, "de", "en")[0]["train"][0] == TRAIN_TEXT["de"]


def test_a_broken_connection_is_gone_on_from_where_it_broke(server, packed, tmp_path):
    server.cuts = [100, 50, 200]
    path = download(server.url, tmp_path, lambda line: None)
    assert path.read_bytes() == packed
    assert server.asked == [None, "bytes=100-", "bytes=150-", "bytes=350-"]


def test_another_start_goes_on_from_what_was_kept(server, packed, tmp_path):
    server.cuts = [100, 0]
    with pytest.raises(InputError, match=r"bytes came; 100 bytes are kept and gone on from\); set"):
        download(server.url, tmp_path, lambda line: None)
    assert not list(tmp_path.rglob("*.tgz"))
    said = []
    assert download(server.url, tmp_path, said.append).read_bytes() == packed
    assert server.asked[-1] == "bytes=100-"
    assert "from 0.0 on" in said[0]


@pytest.mark.parametrize("if_range", [True, False])
@pytest.mark.parametrize("etag", ['"two"', 'W/"weak"', None])
def test_bytes_of_two_versions_of_a_file_never_come_together(
    server, packed, tmp_path, etag, if_range
):
    server.if_range = if_range
    server.cuts = [100, 0]
    with pytest.raises(InputError, match="100 bytes are kept"):
        download(server.url, tmp_path, lambda line: None)
    server.content = gzip.compress(gzip.decompress(packed), compresslevel=1)
    server.etag = etag
    assert download(server.url, tmp_path, lambda line: None).read_bytes() == server.content


def test_a_server_without_ranges_sends_everything_again(server, packed, tmp_path):
    server.ranges, server.cuts = False, [100]
    assert download(server.url, tmp_path, lambda line: None).read_bytes() == packed


def test_a_server_that_does_not_tell_the_length_is_taken_at_its_word(server, packed, tmp_path):
    server.lengths = False
    assert download(server.url, tmp_path, lambda line: None).read_bytes() == packed


def test_what_was_complete_when_the_process_was_killed_is_kept(server, packed, tmp_path):
    path = download(server.url, tmp_path, lambda line: None)
    path.rename(path.with_name("de-en.tgz.part"))
    path.with_name("de-en.tgz.part.tag").write_text(server.etag)
    assert download(server.url, tmp_path, lambda line: None).read_bytes() == packed
    path.rename(path.with_name("de-en.tgz.part"))
    with open(path.with_name("de-en.tgz.part"), "ab") as file:
        file.write(b"more than there is")
    path.with_name("de-en.tgz.part.tag").write_text(server.etag)
    assert download(server.url, tmp_path, lambda line: None).read_bytes() == packed


@pytest.mark.parametrize("tail", ["", "..", "a b%2F%00.tgz", "x.tgz?id=1&b=/c", ".hidden.tgz"])
def test_whatever_the_address_the_file_lies_in_its_folder(server, packed, tmp_path, tail):
    address = server.url.removesuffix("de-en.tgz") + tail.replace(" ", "+")
    path = download(address, tmp_path / "archives", lambda line: None)
    assert path.parent.parent == tmp_path / "archives"
    assert path.read_bytes() == packed


def test_two_addresses_never_share_a_file(server, packed, tmp_path):
    one = download(server.url, tmp_path, lambda line: None)
    other = download(server.url.replace("data", "elsewhere"), tmp_path, lambda line: None)
    assert one != other
    assert one.name == other.name


@pytest.mark.parametrize(
    ("status", "content", "message"),
    [
        (404, b"", r"cannot be downloaded \(HTTP 404 Not Found\); set data\.archive to another"),
        (503, b"", r"cannot be downloaded \(HTTP 503 .*data\.path=FILE\.tgz to a local copy"),
        (200, b"<html>log in here</html>", r"what came is not a tar archive \(24 bytes\); set"),
    ],
)
def test_a_dead_end_names_the_ways_on(server, tmp_path, status, content, message):
    server.status, server.content = status, content
    with pytest.raises(InputError, match=message) as caught:
        download(server.url, tmp_path, lambda line: None)
    assert "\n" not in str(caught.value)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_no_network_is_one_line(server, tmp_path):
    server.stop()
    server.http.shutdown = lambda: None
    with pytest.raises(InputError, match=r"cannot be downloaded \(.*refused\); set data\.archive"):
        download(server.url, tmp_path, lambda line: None)


def test_a_silent_server_is_given_up(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(download_module, "TIMEOUT", 0.1)
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/de-en.tgz"
        with pytest.raises(InputError, match=r"cannot be downloaded \(timed out\)"):
            download(url, tmp_path, lambda line: None)


@pytest.mark.parametrize(
    "url", ["de-en.tgz", "file:///etc/passwd", "ftp://host/x.tgz", "http:///x"]
)
def test_only_the_web_is_downloaded_from(url, tmp_path):
    with pytest.raises(InputError, match=r"data\.archive=.* must begin with http:// or https://"):
        download(url, tmp_path, lambda line: None)


def test_a_folder_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InputError, match=r"data\.cache_dir=.*cache cannot be written \("):
        download(server.url, tmp_path / "cache" / "archives", lambda line: None)
