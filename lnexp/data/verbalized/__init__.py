"""The embedded corpus: German-English sentence pairs written out from structured facts.

Numbers come from num2words, names from the CLDR by way of Babel, sentences from our own
templates.  The text has a name and a checked hash, since those libraries change their wording.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from importlib.metadata import version
from pathlib import Path

from lnexp.data.verbalized.embedded import EMBEDDED
from lnexp.data.verbalized.facts import Draw, Fact
from lnexp.data.verbalized.plain import PLAIN
from lnexp.data.verbalized.relations import RELATIONS
from lnexp.data.verbalized.subordinate import SUBORDINATE
from lnexp.data.verbalized.whereabouts import WHEREABOUTS
from lnexp.errors import InputError

NAME = "verbalized-v1"
SHA256 = "6f383a87c9d4999cc194540e1167537b09e2f5e149d2a9874c6877ea2d8d515c"
MADE_WITH = {"num2words": "0.5.14", "babel": "2.19.0"}
SIZES = {"test": 1_000, "valid": 1_000, "train": 40_000}
TEMPLATES = (*PLAIN, *RELATIONS, *WHEREABOUTS, *SUBORDINATE, *EMBEDDED)
_WORDS = range(3, 26)
_SEEDS = {"test": 3, "valid": 2, "train": 1}

Corpus = dict[str, tuple[list[str], list[str]]]
Sentence = tuple[str, str, tuple[Fact, ...]]


def finish(text: str) -> str:
    """Capitalise a sentence and close it with a full stop, unless it is a question."""
    text = text[0].upper() + text[1:]
    return text if text.endswith("?") else text + "."


def sentences() -> dict[str, list[Sentence]]:
    """Every split's sentences in order: German, English, and the facts they were made from.

    No German and no English sentence occurs twice, within a split or across splits.
    """
    seen_de: set[str] = set()
    seen_en: set[str] = set()
    corpus: dict[str, list[Sentence]] = {}
    for split, size in SIZES.items():
        draw, found = Draw(split, _SEEDS[split]), corpus.setdefault(split, [])
        while len(found) < size:
            draw.start()
            de, en = map(finish, draw.pick(TEMPLATES)(draw))
            lengths_fit = len(de.split()) in _WORDS and len(en.split()) in _WORDS
            if lengths_fit and de not in seen_de and en not in seen_en:
                seen_de.add(de)
                seen_en.add(en)
                found.append((de, en, tuple(draw.facts)))
    return corpus


def _as_text(corpus: Corpus) -> bytes:
    rows = (
        f"{split}\t{de}\t{en}\n"
        for split in sorted(corpus)
        for de, en in zip(*corpus[split], strict=True)
    )
    return "".join(rows).encode()


def digest(corpus: Corpus) -> str:
    """SHA-256 of the text, in hex."""
    return hashlib.sha256(_as_text(corpus)).hexdigest()


def verbalized(cache_dir: Path | None = None) -> Corpus:
    """The corpus: split -> (German lines, English lines), for train, valid and test.

    Writing it out takes seconds; a copy in ``cache_dir`` saves them next time. The SHA-256 of that
    file is the corpus' own, so that a damaged or outdated copy is never read. Raises `InputError`
    where the installed libraries word the text differently.
    """
    copy = cache_dir and cache_dir / f"{NAME}.tsv"
    if copy and (corpus := _read_copy(copy)):
        return corpus
    corpus = _checked(sentences())
    if copy:
        temporary = copy.with_name(f".{copy.name}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):  # the tokenised text will say what is wrong there
            copy.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_as_text(corpus))
            temporary.replace(copy)
    return corpus


def _read_copy(copy: Path) -> Corpus | None:
    try:
        text = copy.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(text).hexdigest() != SHA256:
        return None
    corpus: Corpus = {split: ([], []) for split in ("train", "valid", "test")}
    for line in text.decode().split("\n")[:-1]:
        split, de, en = line.split("\t")
        corpus[split][0].append(de)
        corpus[split][1].append(en)
    return corpus


def _checked(made: dict[str, list[Sentence]]) -> Corpus:
    corpus = {
        split: ([de for de, _, _ in made[split]], [en for _, en, _ in made[split]])
        for split in ("train", "valid", "test")
    }
    if (found := digest(corpus)) != SHA256:
        have = ", ".join(f"{name} {version(name)}" for name in MADE_WITH)
        want = " ".join(f"{name}=={number}" for name, number in MADE_WITH.items())
        raise InputError(
            f"the text of {NAME} has hash {found[:12]} with {have}, but must have {SHA256[:12]}; "
            f"these libraries word it differently: pip install {want}"
        )
    return corpus
