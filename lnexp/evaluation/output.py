"""Translations written out: one directory a system, complete or absent.

hyp.txt ref.txt src.txt   detokenised, line n of each a sentence
hyp.tok.txt ref.tok.txt   Moses tokens, where the corpus has those
scores.jsonl              a row a sentence: pieces, log-probabilities, sentence scores
scores.json               the corpus scores and their signatures
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lnexp.data.tokenizer import EOS
from lnexp.decode.beam import Hypothesis
from lnexp.decode.bleu import sentence_scores
from lnexp.decode.forced import Forced
from lnexp.errors import InputError
from lnexp.evaluation.trained import Trained
from lnexp.run_dir import finite


@dataclass(frozen=True)
class Text:
    """What is translated, and what it is compared to."""

    split: str | None
    """None: a file."""
    sources: list[str]
    """Lines as in the corpus; likewise `references`."""
    references: list[str] | None
    src_ids: Sequence[Any]
    """Piece numbers without EOS."""


def check_output(output: Path) -> None:
    """Refuse a directory that has something in it, before anything is decoded."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"--output={output} is there and not empty; name a new directory")


@contextmanager
def written_whole(output: Path) -> Iterator[Path]:
    """A directory to write into, which becomes ``output`` at the end; nothing if that fails."""
    output = output.resolve()
    staging = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        staging.mkdir(parents=True)
        yield staging
        check_output(output)  # somebody may have come first
        os.rename(staging, output)
    except OSError as error:
        raise InputError(
            f"--output={output} cannot be written ({error.strerror or error}); name another"
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_translations(
    into: Path, trained: Trained, text: Text, found: Sequence[Hypothesis], forced: Sequence[Forced]
) -> None:
    """Write everything but ``scores.json``."""
    languages = trained.cfg.data.src, trained.cfg.data.tgt
    tokens = [trained.tokenizer.decode(h.ids) for h in found]
    columns = {
        "src": trained.plain(text.sources, languages[0]),
        "hyp": trained.plain(tokens, languages[1]),
    }
    if text.references is not None:
        columns["ref"] = trained.plain(text.references, languages[1])
    into.mkdir(parents=True, exist_ok=True)
    for name, lines in columns.items():
        write_lines(into / f"{name}.txt", lines)
    if trained.tokenised:
        write_lines(into / "hyp.tok.txt", tokens)
        if text.references is not None:
            write_lines(into / "ref.tok.txt", text.references)
    rows = _sentences(trained, columns, found, forced)
    write_lines(into / "scores.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows))


def _sentences(
    trained: Trained,
    columns: dict[str, list[str]],
    found: Sequence[Hypothesis],
    forced: Sequence[Forced],
) -> Iterator[dict[str, Any]]:
    for i, (hypothesis, scored) in enumerate(zip(found, forced, strict=True)):
        reference = columns["ref"][i] if "ref" in columns else None
        scores: dict[str, Any] = {"bleu": None, "chrf": None}
        if reference is not None:
            scores = sentence_scores(columns["hyp"][i], reference, lowercased=trained.lowercased)
        yield {
            "n": i + 1,
            "source": columns["src"][i],
            "reference": reference,
            "hypothesis": columns["hyp"][i],
            "pieces": trained.tokenizer.pieces([*hypothesis.ids, EOS]),
            "log_probs": finite(scored.target.tolist()),
            "log_prob": finite(hypothesis.log_prob),
            "score": finite(hypothesis.score),
            **scores,
        }


def write_lines(path: Path, lines: Sequence[str] | Iterator[str]) -> None:
    """Write lines in UTF-8, each with a line feed."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
