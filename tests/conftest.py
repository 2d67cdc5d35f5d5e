"""Data for the tests: a tiny parallel corpus, composed configs, and the command line."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two cores: spinning threads only slow each other
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's background job; tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "rot": "red",
         "blau": "blue", "haus": "house", "baum": "tree", "hund": "dog", "und": "and"}  # fmt: skip


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory):
    """300 / 20 / 20 sentences that translate word by word."""
    directory = tmp_path_factory.mktemp("corpus")
    names = list(WORDS)
    number = 0
    for split, count in (("train", 300), ("valid", 20), ("test", 20)):
        src, tgt = [], []
        for _ in range(count):
            number += 1
            words = [
                names[(number * 7 + number // k + k) % len(names)] for k in range(1, 3 + number % 5)
            ]
            src.append(" ".join(words))
            tgt.append(" ".join(WORDS[w] for w in words))
        (directory / f"{split}.de").write_text("\n".join(src) + "\n")
        (directory / f"{split}.en").write_text("\n".join(tgt) + "\n")
    return directory


TINY = [
    "recipe=files", "data.src=de", "data.tgt=en", "data.vocab_size=60", "model.d_model=16",
    "model.d_ff=32", "model.n_heads=2", "model.n_layers=1", "train.tokens_per_batch=256",
    "recipe.warmup=10", "decode.beam=2",
]  # fmt: skip


@pytest.fixture
def tiny(corpus_dir, tmp_path):
    """Overrides of a run that trains in a second."""
    return [
        *TINY,
        f"data.path={corpus_dir}",
        f"runs_dir={tmp_path / 'runs'}",
        f"data.cache_dir={tmp_path / 'cache'}",
        "threads=1",
    ]


@dataclass
class Done:
    """What a command printed and how it ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def lnexp(capfd):
    """Run the command line in this process: importing torch once is enough."""

    def run(*arguments, check=None):
        from lnexp.cli import dispatch

        capfd.readouterr()
        try:
            code = dispatch([str(a) for a in arguments])
        except SystemExit as error:
            code = error.code
        done = Done(code, *capfd.readouterr())
        if check is not None:
            assert done.returncode == check, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def process():
    """Run the command line in a process of its own."""

    def run(*arguments, check=None, **env):
        done = subprocess.run(
            [sys.executable, "-m", "lnexp", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **env},
        )
        if check is not None:
            assert done.returncode == check, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def real_data():
    """Directory with the real corpora."""
    where = os.environ.get("LNEXP_TEST_DATA")
    if not where:
        pytest.skip("LNEXP_TEST_DATA is not set to a directory with real corpora")
    return Path(where)
