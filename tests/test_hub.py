"""The hub, played by a server on this machine: any layout gives the same text, any no its line."""

import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lnexp.data.hub import read_hub
from lnexp.data.hub_errors import explained
from lnexp.errors import InputError

TEXT = {
    "train": [["ein Hund", "", "zwei\u2028Katzen\u0085"], ["a dog", "nothing", " two  cats"]],
    "valid": [["drei"], ["three"]],
    "test": [["vier", "fünf"], ["four", "five"]],
}
WORDS = {"train": "train", "valid": "validation", "test": "test"}
NAMES = {"train": ["train"], "valid": ["validation"], "test": ["test_2016", "test"]}
CONVERTED = "refs/convert/parquet"
COPY = ", or set data.path=DIR to a local copy"
ONE = "{}-00000-of-00001.parquet"

# Repositories


def rows_of(split):
    return [{"de": de, "en": en} for de, en in zip(*TEXT[split], strict=True)]


def nested(rows):
    return [{"id": str(i), "translation": row} for i, row in enumerate(rows)]


def parquet(rows, schema=None):
    out = BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema), out)
    return out.getvalue()


def jsonl(rows):
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def repo(name, write=parquet, shape=list):
    """A file for each split, at ``name`` with the hub's word for the split in it."""
    return {name.format(WORDS[split]): write(shape(rows_of(split))) for split in TEXT}


def shards():
    """The hub's usual layout, the training data in two files."""
    _, *others = repo(f"data/{ONE}", shape=nested).items()
    rows = nested(rows_of("train"))
    parts = {f"data/train-0000{k}-of-00002.parquet": parquet(rows[k : 2 * k + 1]) for k in (0, 1)}
    return parts | dict(others)


def card(*configs):
    """A README that lists configurations, each in a directory of its own."""
    lines = ["---", "configs:"]
    for config in configs:
        lines += [f"- config_name: {config}", "  data_files:"]
        for word in WORDS.values():
            lines += [f"  - split: {word}", f"    path: {config}/{word}-*"]
    return {"README.md": "\n".join([*lines, "---", ""]).encode()}


FLAT = repo("{}.jsonl", jsonl)
REPOS = {
    ("toy/jsonl", "main"): FLAT,
    ("toy/jsonl", "old"): FLAT | {"train.jsonl": jsonl([{"de": "x", "en": "y"}])},
    ("toy/nested-jsonl", "main"): repo("{}.jsonl", jsonl, nested),
    ("toy/json", "main"): repo("data/{}.json", lambda rows: json.dumps(rows).encode(), nested),
    ("toy/shards", "main"): shards(),
    ("toy/configs", "main"): card("de-en", "de-fr")
    | repo(f"de-en/{ONE}", shape=nested)
    | repo(f"de-fr/{ONE}", shape=lambda rows: [{"de": "x", "fr": "y"}]),
    ("toy/directories", "main"): repo(f"de-en/{ONE}") | repo(f"de-fr/{ONE}"),
    ("toy/scripted", "main"): {"scripted.py": b"", "data/de-en.zip": b"PK"},
    ("toy/scripted", CONVERTED): repo("de-en/{}/0000.parquet", shape=nested)
    | repo("en-de/{}/0000.parquet", shape=nested),
    ("toy/partial", CONVERTED): repo("de-en/partial-{}/0000.parquet"),
    ("toy/two", "main"): {name: text for name, text in FLAT.items() if "valid" not in name},
    ("toy/french", "main"): repo("{}.parquet", shape=lambda _: [{"de": "x", "fr": "y"}]),
    ("toy/numbers", "main"): repo("{}.parquet", shape=lambda _: [{"de": "x", "en": 1}]),
    ("toy/null", "main"): repo("{}.parquet", shape=lambda rows: [*rows, {"de": "x", "en": None}]),
    ("toy/empty", "main"): repo("{}.parquet")
    | {"test.parquet": parquet([], pa.schema({"de": pa.string(), "en": pa.string()}))},
    ("toy/large", "main"): repo("{}.jsonl", jsonl, lambda rows: rows[:1] * 2_000),
    ("toy/damaged", "main"): FLAT,
    ("toy/notes", "main"): {"README.md": b"# To come\n"},
    ("toy/broken", "main"): FLAT | {"train.jsonl": b'{"de": "x", '},
    ("toy/mixed", "main"): FLAT | {"test.jsonl": jsonl([{"german": "x", "english": "y"}])},
}
NOES = {
    "toy/gated": (401, {"X-Error-Code": "GatedRepo"}),
    "toy/refused": (403, {"X-Error-Code": "GatedRepo"}),
    "toy/gone": (404, {"X-Error-Code": "RepoNotFound"}),
    "toy/private": (401, {"X-Error-Message": "Invalid username or password."}),
    "toy/forbidden": (403, {"X-Error-Message": "Your token lacks a permission"}),
    "toy/token": (401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
    "toy/closed": (403, {"X-Error-Message": "Access to this resource is disabled."}),
}


def commit(name, revision):
    return hashlib.sha1(f"{name} {revision}".encode()).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's interface as reading a data set needs."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet

    def log_message(self, *args):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(key.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_any(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(self.path.partition("?")[0])
        api, name, verb, rest = re.fullmatch(
            r"(/api)?/datasets/(\w+/[\w-]+)(?:/(revision|tree|paths-info|resolve)/(.*))?", path
        ).groups()
        if name == "toy/silent":
            self.close_connection = True
            return
        if name in NOES:
            status, headers = NOES[name]
            self.reply(status, **{key.replace("-", "_"): v for key, v in headers.items()})
            return
        revisions = [revision for known, revision in REPOS if known == name]
        heads = revisions + [commit(name, revision) for revision in revisions]
        rest = rest or "main"
        head = next((head for head in heads if f"{rest}/".startswith(f"{head}/")), None)
        if head is None:
            code = "RevisionNotFound" if revisions else "RepoNotFound"
            self.reply(404, X_Error_Code=code)
            return
        revision = revisions[heads.index(head) % len(revisions)]
        self.answer(api, verb, name, revision, rest[len(head) + 1 :], sent.decode())

    do_GET = do_HEAD = do_POST = handle_any  # noqa: N815

    def answer(self, api, verb, name, revision, path, sent):
        files, sha = REPOS[name, revision], commit(name, revision)
        if verb == "resolve":
            if path not in files:
                self.reply(404, X_Error_Code="EntryNotFound", X_Repo_Commit=sha)
                return
            etag = f'"{hashlib.sha1(files[path]).hexdigest()}"'
            self.reply(200, files[path], X_Repo_Commit=sha, ETag=etag)
            return
        folders = {str(parent) for file in files for parent in Path(file).parents} - {"."}
        entries = [{"type": "directory", "path": folder, "oid": sha} for folder in folders]
        entries += [
            {"type": "file", "path": file, "size": len(text), "oid": hashlib.sha1(text).hexdigest()}
            for file, text in files.items()
        ]
        if verb == "tree":
            found = [
                entry for entry in entries if entry["path"].startswith(f"{path}/" if path else "")
            ]
            if path and not found:
                self.reply(404, X_Error_Code="EntryNotFound")
                return
        elif verb == "paths-info":
            wanted = parse_qs(sent).get("paths", [])
            found = [entry for entry in entries if entry["path"] in wanted]
        else:
            found = {"id": name, "sha": sha, "siblings": [{"rfilename": file} for file in files]}
        self.reply(200, json.dumps(found).encode(), Content_Type="application/json")


# A process that reads from it, since the libraries look at the environment when imported

READER = """
import json, resource, sys, time
from lnexp.data import hub
from lnexp.errors import InputError

time.sleep = lambda seconds: None  # the libraries wait between tries
PART, NO_LIMIT = hub.PART, resource.getrlimit(resource.RLIMIT_FSIZE)
for line in sys.stdin:
    call, keys = json.loads(line)
    hub.PART = keys.pop("part", PART)
    limit = keys.pop("limit", NO_LIMIT[0])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, NO_LIMIT[1]))
    try:
        splits, origin = getattr(hub, call)(**keys)
        answer = {split: list(parts) for split, parts in splits.items()}, origin
    except InputError as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
"""


class Reader:
    def __init__(self, home, **environment):
        env = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
        env |= {
            "HF_HOME": str(home),
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "NO_PROXY": "127.0.0.1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER],
            env=env | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=home.parent,
        )

    def ask(self, hub, call="read_hub", **keys):
        defaults = {
            "config": None,
            "revision": None,
            "split_names": NAMES,
            "src": "de",
            "tgt": "en",
        }
        self.process.stdin.write(json.dumps([call, {"hub": str(hub), **defaults, **keys}]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()  # its interpreter would take seconds to leave
        self.process.communicate()


@pytest.fixture(scope="module")
def endpoint():
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("hub") / "home"


@pytest.fixture(scope="module")
def reader(endpoint, home):
    with Reader(home, HF_ENDPOINT=endpoint) as reader:
        yield reader


def whole(splits):
    """The lines of each side, part after part."""
    return {
        split: [[line for part in parts for line in part[side]] for side in (0, 1)]
        for split, parts in splits.items()
    }


# Layouts

LAYOUTS = {
    "json lines": ("toy/jsonl", {}),
    "nested json lines": ("toy/nested-jsonl", {}),
    "a list in json": ("toy/json", {}),
    "shards": ("toy/shards", {}),
    "a listed configuration": ("toy/configs", {"config": "de-en"}),
    "a directory": ("toy/directories", {"config": "de-en"}),
    "a conversion": ("toy/scripted", {"config": "de-en", "revision": CONVERTED}),
}


@pytest.mark.parametrize(("name", "keys"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_layout_on_the_hub_gives_the_same_text_and_its_commit(reader, name, keys):
    splits, origin = reader.ask(name, **keys)
    assert whole(splits) == TEXT
    revision = keys.get("revision")
    assert origin == {
        "source": "hub",
        "hub": name,
        "config": keys.get("config"),
        "revision": revision,
        "commit": commit(name, revision or "main"),
    }


@pytest.mark.parametrize(("name", "keys"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_local_copy_of_every_layout_is_read_by_the_same_code(reader, tmp_path, name, keys):
    for file, text in REPOS[name, keys.get("revision", "main")].items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(text)
    splits, origin = reader.ask(tmp_path, call="read_dataset", **keys)
    assert whole(splits) == TEXT
    assert origin["commit"] is None


def test_a_split_comes_in_parts(reader):
    splits, _ = reader.ask("toy/shards", part=2)
    assert [len(part[0]) for part in splits["train"]] == [2, 1]
    assert whole(splits) == TEXT


def test_a_revision_is_another_text(reader):
    splits, origin = reader.ask("toy/jsonl", revision="old")
    assert whole(splits)["train"] == [["x"], ["y"]]
    assert origin["commit"] == commit("toy/jsonl", "old")
    assert reader.ask("toy/jsonl", revision=origin["commit"])[0] == splits


def test_the_languages_may_be_taken_either_way_round(reader):
    splits, _ = reader.ask("toy/nested-jsonl", src="en", tgt="de")
    assert whole(splits) == {split: sides[::-1] for split, sides in TEXT.items()}


def test_a_missing_split_is_left_out_if_it_may_be(reader):
    splits, _ = reader.ask("toy/two", optional=["valid"])
    assert set(splits) == {"train", "test"}
    assert reader.ask("toy/two", optional=["test"]) == (
        "data.hub=toy/two: no valid split: looked for validation, it has train, test; "
        f"set data.split_names.valid, name another data.hub{COPY}"
    )


# Dead ends

SET = "set data.hub_config to"
PAGE = "https://huggingface.co/datasets"
DEAD_ENDS = {
    "gated, nobody logged in": ("toy/gated", {}, f": is gated; accept its terms on {PAGE}/toy/gated "),
    "gated, not accepted": ("toy/refused", {}, f": is gated; accept its terms on {PAGE}/toy/refused "),
    "gone": ("toy/gone", {}, ": is not on the hub, moved, or private; look for it on "),
    "private": ("toy/private", {}, ": is not on the hub, moved, or private; look for it on "),
    "forbidden": ("toy/forbidden", {}, ": is not on the hub, moved, or private; look for it on "),
    "a bad token": ("toy/token", {}, ": the hub does not know the token it was sent; run `hf auth"),
    "closed": ("toy/closed", {}, ": has been closed by the hub; name another data.hub"),
    "no answer": ("toy/silent", {}, ": no answer from http://127.0.0.1"),
    "a script": ("toy/scripted", {}, f": holds a script .* set data.revision={CONVERTED} for the "),
    "no conversion": ("toy/jsonl", {"revision": CONVERTED}, ": the hub holds no conversion of it; "),
    "half a conversion": (
        "toy/partial",
        {"revision": CONVERTED, "config": "de-en"},
        ": the hub has converted only a part of it; name another data.hub",
    ),
    "no revision": ("toy/jsonl", {"revision": "new"}, ": has no revision new; set data.revision to "),
    "configurations": ("toy/configs", {}, f": needs data.hub_config; {SET} one of de-en, de-fr"),
    "no configuration": (
        "toy/configs", {"config": "x"}, f": has no configuration x; {SET} one of de-en, de-fr"
    ),
    "no configurations": ("toy/jsonl", {"config": "x"}, f": has no configuration x; {SET} null"),
    "no directory": (
        "toy/scripted",
        {"config": "x", "revision": CONVERTED},
        f": has no configuration x; {SET} one of de-en, en-de",
    ),
    "directories": (
        "toy/directories", {}, f": a split lies in several directories; {SET} one of de-en, de-fr "
    ),
    "no data": ("toy/notes", {}, ": holds no data files that can be read; name another data.hub"),
    "no column": (
        "toy/french", {}, r", split train: no column en \(columns: de, fr\); set data.src and data.tgt"
    ),
    "no text": ("toy/numbers", {}, ", split train: column en holds int64, not text; "),
    "null": ("toy/null", {}, ", split train, row 4: en is null, not text; mend or drop it; "),
    "null in a later part": ("toy/null", {"part": 2}, ", split train, row 4: en is null, "),
    "no row": ("toy/empty", {}, ": one of its files holds no row; "),
    "not JSON": ("toy/broken", {}, r": cannot be loaded \(JSON parse error: "),
    "columns that change": ("toy/mixed", {}, r": cannot be loaded \(Couldn't cast german"),
    "no name": ("toy/a--b", {}, r": cannot be loaded \(Cannot have -- or \.\. in repo_id"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "message"), DEAD_ENDS.values(), ids=DEAD_ENDS.keys())
def test_a_dead_end_says_what_was_tried_why_it_failed_and_two_ways_on(reader, name, keys, message):
    found = reader.ask(name, **keys)
    asked = {"data.hub_config": keys.get("config"), "data.revision": keys.get("revision")}
    tried = "".join(f" {key}={value}" for key, value in asked.items() if value)
    assert re.match(re.escape(f"data.hub={name}{tried}") + message, found)
    assert re.search("; .*" + re.escape(COPY) + "$", found)
    assert "\n" not in found


def test_directories_are_joined_where_that_is_asked_for(reader):
    splits, _ = reader.ask("toy/directories", config="default")
    assert whole(splits) == {split: [side * 2 for side in sides] for split, sides in TEXT.items()}


def test_offline_the_cache_is_read_and_what_is_not_in_it_is_named(reader, home, endpoint):
    reader.ask("toy/jsonl")
    reader.ask("toy/configs", config="de-en")
    with Reader(home, HF_ENDPOINT=endpoint, HF_HUB_OFFLINE="1") as offline:
        splits, origin = offline.ask("toy/configs", config="de-en")
        assert whole(splits) == TEXT
        assert origin["commit"] == commit("toy/configs", "main")
        forbidden = (
            "is not in the hub's cache on this machine, and HF_HUB_OFFLINE=1 forbids to fetch it; "
            f"unset HF_HUB_OFFLINE where there is a network{COPY}"
        )
        assert offline.ask("toy/unseen") == f"data.hub=toy/unseen: {forbidden}"
        assert offline.ask("toy/configs", config="de-fr") == (
            f"data.hub=toy/configs data.hub_config=de-fr: {forbidden}"
        )
        known = commit("toy/configs", "main")
        found = offline.ask("toy/configs", config="de-en", revision="v2")
        assert found == (
            "data.hub=toy/configs data.hub_config=de-en data.revision=v2: the hub does not give it, "
            "and the hub's cache on this machine holds another revision; set "
            f"data.revision={known} to use that{COPY}"
        )
        assert offline.ask("toy/configs", config="de-en", revision=known)[0] == splits


def test_without_a_network_the_address_is_named(home):
    with Reader(home.parent / "other", HF_ENDPOINT="http://127.0.0.1:9") as reader:
        found = reader.ask("toy/jsonl")
    assert found.startswith("data.hub=toy/jsonl: no answer from http://127.0.0.1:9 (")
    assert found.endswith(f"; try again where there is a network{COPY}")


def test_a_cache_that_cannot_be_written_is_named(reader):
    found = reader.ask("toy/large", limit=9_000)
    assert found.startswith("data.hub=toy/large: cannot be written to the hub's cache (")
    assert "set HF_HOME to a directory with room that" in found
    assert found.endswith(COPY)
    splits, _ = reader.ask("toy/large")
    assert len(whole(splits)["test"][0]) == 2_000


def test_a_damaged_copy_on_this_machine_is_named(reader, home):
    assert whole(reader.ask("toy/damaged")[0]) == TEXT
    (table,) = home.rglob("damaged-train.arrow")
    table.write_bytes(table.read_bytes()[:100])
    found = reader.ask("toy/damaged")
    assert found.startswith("data.hub=toy/damaged: the hub's copy on this machine is damaged (")
    assert found.endswith(f"; delete {table.parent} to fetch it again{COPY}")


@pytest.mark.parametrize("hub", [None, "glue", "a/b/c", "https://huggingface.co/datasets/a/b"])
def test_a_name_without_its_namespace_is_an_error(hub):
    with pytest.raises(InputError, match=rf"data\.hub={hub} must be namespace/name, such as "):
        read_hub(hub, None, None, NAMES, "de", "en")


def test_a_directory_is_not_taken_for_the_hub(tmp_path, monkeypatch):
    (tmp_path / "some" / "thing").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"here is a .* of that name.*set data\.path=some/thing"):
        read_hub("some/thing", None, "main", NAMES, "de", "en")


def refusal(status):
    from huggingface_hub.errors import HfHubHTTPError

    response = SimpleNamespace(headers={}, request=None, status_code=status)
    return HfHubHTTPError(f"{status} Error", response=response)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (refusal(503), "the hub answered 503; try again later, name another data.hub"),
        (refusal(429), "the hub answered 429; try again later, name another data.hub"),
        (OSError(errno.ENOSPC, "No space left"), "cannot be written to the hub's cache"),
        (PermissionError(errno.EACCES, "Permission denied"), "cannot be written to the hub's"),
        (RuntimeError("xet: No space left on device"), "cannot be written to the hub's cache"),
        (TimeoutError("timed out"), "no answer from https://huggingface.co (timed out)"),
        (KeyError("x\ny"), r"cannot be loaded ('x\ny'); name another data.hub or data.revision"),
    ],
)
def test_a_reason_is_found_however_deep_it_is_wrapped(monkeypatch, inner, message):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    outer = RuntimeError("wrapped")
    outer.__cause__ = inner
    for error in (inner, outer):
        assert explained(error, "toy/x", None, None).startswith(message)
