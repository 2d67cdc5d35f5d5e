"""Translations written out: one directory a system, complete or absent.

hyp.txt ref.txt src.txt   detokenised, line n of each a sentence
hyp.tok.txt ref.tok.txt   Moses tokens, where the corpus has those
scores.jsonl              a row a sentence: pieces, log-probabilities, sentence scores
scores.json               the corpus scores and their signatures
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lnexp.data.tokenizer import EOS
from lnexp.decode.beam import Hypothesis
from lnexp.decode.bleu import sentence_scores
from lnexp.decode.forced import Forced
from lnexp.errors import InputError
from lnexp.evaluation.text import Text
from lnexp.evaluation.trained import Trained
from lnexp.run_dir import finite

STAGING = re.compile(r"\..*\.\d+\.tmp")


def check_output(output: Path) -> None:
    """Refuse what is no new or empty directory, before anything is decoded."""
    try:
        if output.exists() and not output.is_dir():
            raise InputError(f"--output={output} is a file; name a new directory")
        # What a killed eval was about to write counts as nothing.
        taken = output.exists() and any(not STAGING.fullmatch(p.name) for p in output.iterdir())
    except OSError as error:
        raise _unwritable(output, error) from None
    if taken:
        raise InputError(f"--output={output} is there and not empty; name a new directory")


@contextmanager
def written_whole(output: Path) -> Iterator[Path]:
    """A directory to write into, whose content is in ``output`` at the end; nothing if that fails.

    An empty ``output`` stays the directory it is: a shell may stand in it, or a disk begin there.
    """
    output = output.resolve()
    there = output.is_dir()
    name = f".{output.name}.{os.getpid()}.tmp"
    staging = output / name if there else output.with_name(name)
    try:
        staging.mkdir(parents=not there)
        yield staging
        check_output(output)  # somebody may have come first
        if there:
            _move_content(staging, output)
        else:
            os.rename(staging, output)
    except OSError as error:
        raise _unwritable(output, error) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _move_content(staging: Path, output: Path) -> None:
    moved: list[Path] = []
    try:
        # Whoever waits for the scores finds the rest.
        for path in sorted(staging.iterdir(), key=lambda p: (p.name == "scores.json", p.name)):
            moved.append(output / path.name)
            os.rename(path, moved[-1])
    except BaseException:
        for path in moved:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        raise


def _unwritable(output: Path, error: OSError) -> InputError:
    return InputError(
        f"--output={output} cannot be written ({error.strerror or error}); name another"
    )


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
