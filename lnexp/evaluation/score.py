"""Decode and score checkpoints of runs: every run, checkpoint, beam and length penalty once.

All that can be refused is refused before the first sentence is decoded.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from lnexp.decode.beam import Hypothesis
from lnexp.decode.bleu import bootstrap, check_resamples, translation_scores
from lnexp.decode.forced import force
from lnexp.errors import InputError
from lnexp.evaluation.output import check_output, write_translations, written_whole
from lnexp.evaluation.table import exact
from lnexp.evaluation.text import Text, text_of_file, text_of_split
from lnexp.evaluation.trained import Trained, open_trained
from lnexp.kept_weights import Checkpoint, find
from lnexp.run_dir import RunDir, finite
from lnexp.tasks.translation import DecodeOptions, decode

Row = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What is to be scored, and how."""

    runs: Sequence[Path]
    checkpoints: Sequence[str]
    beams: Sequence[int | None]
    """None: as the run does."""
    length_penalties: Sequence[float | None]
    split: str | None
    """None: ``input``."""
    input: Path | None
    reference: Path | None
    prepared: bool
    resamples: int
    output: Path | None
    opening: dict[str, Any]
    """Further arguments of `open_trained`."""


@dataclass
class Job:
    """One run of a request."""

    trained: Trained
    text: Text
    checkpoints: list[Checkpoint]


def score_runs(request: Request, poll: Callable[[str], None]) -> list[Row]:
    """Score what is asked for; ``poll`` hears what is being done, every now and then.

    A row for each run, checkpoint, beam and length penalty, in this order. Raises `InputError`.
    """
    if request.output:
        check_output(request.output)
    jobs = [_open(request, path) for path in request.runs]
    references = _common_references(jobs)
    if references is not None and request.resamples:
        check_resamples(len(references), request.resamples)
    rows: list[Row] = []
    hypotheses: list[list[str]] = []
    with ExitStack() as stack:
        top = stack.enter_context(written_whole(request.output)) if request.output else None
        for number, job in enumerate(jobs, 1):
            for checkpoint in job.checkpoints:
                for row, found in _score(request, job, checkpoint, poll):
                    rows.append({"run": str(job.trained.run.path), **row})
                    hypotheses.append([job.trained.tokenizer.decode(h.ids) for h in found])
                    if top:
                        poll("writing translations")
                        into = top / _folder(request, number, job, row)
                        _write(into, job, found, poll)
        if references is not None and request.resamples:
            poll("resampling")
            _bootstrap(request, jobs, rows, hypotheses, references)
        if top:
            per_run = len(rows) // len(jobs)
            for i, row in enumerate(rows):
                number, job = i // per_run + 1, jobs[i // per_run]
                path = top / _folder(request, number, job, row) / "scores.json"
                text = json.dumps(finite(row), indent=1, ensure_ascii=False)
                path.write_text(f"{text}\n", encoding="utf-8")
    return rows


def _open(request: Request, path: Path) -> Job:
    run = RunDir(path)
    trained = open_trained(run, data=request.split is not None, **request.opening)
    checkpoints = [find(run, name) for name in request.checkpoints]
    if request.split is not None:
        return Job(trained, text_of_split(trained, request.split), checkpoints)
    assert request.input is not None
    text = text_of_file(trained, request.input, request.reference, request.prepared)
    return Job(trained, text, checkpoints)


def _common_references(jobs: list[Job]) -> list[str] | None:
    """The references of all jobs; `InputError` if they are not the same."""
    digests = []
    for job in jobs:
        kind = [job.trained.tokenised, job.trained.lowercased, job.trained.cfg.data.tgt]
        content = json.dumps([kind, job.text.references])
        digests.append(hashlib.sha256(content.encode()).hexdigest())
        if digests[-1] != digests[0]:
            first, other = (str(j.trained.run.path) for j in (jobs[0], job))
            raise InputError(
                f"{other} has other references ({digests[-1][:8]}) than {first} "
                f"({digests[0][:8]}), so they cannot be compared; score them one by one"
            )
    return jobs[0].text.references


def _score(
    request: Request, job: Job, checkpoint: Checkpoint, poll: Callable[[str], None]
) -> list[tuple[Row, list[Hypothesis]]]:
    """Rows and translations of one checkpoint, for each beam and length penalty."""
    trained, text = job.trained, job.text
    updates = trained.load(checkpoint)
    row: Row = {"checkpoint": checkpoint.name, "t": updates[-1], "updates": updates}
    row |= {"split": text.split} if text.split else {"input": str(request.input)}
    row |= {"sentences": len(text.sources)} | _loss(job, lambda: poll("measuring the loss"))
    result = []
    for beam in request.beams:
        for penalty in request.length_penalties:
            options = trained.decode_options(text.split, beam, penalty)
            what = (
                f"decoding with beam {options.beam}, length penalty {exact(options.length_penalty)}"
            )
            found = _decode(job, partial(poll, what), options)
            result.append((row | _scores(job, found, options), found))
    return result


def _decode(job: Job, poll: Callable[[], None], options: DecodeOptions) -> list[Hypothesis]:
    """Translations of all lines; in a file, those of blank lines are empty (no run saw any)."""
    model, ids = job.trained.model, job.text.src_ids
    found = decode(model, ids, poll, options)
    blank = [i for i, line in enumerate(ids) if job.text.split is None and not len(line)]
    nothing = replace(options, beam=1, max_len_a=0, max_len_b=0)  # an end of sentence alone
    for i, empty in zip(blank, decode(model, [ids[i] for i in blank], poll, nothing), strict=True):
        found[i] = empty
    return found


def _loss(job: Job, poll: Callable[[], None]) -> Row:
    """Loss of the references: ``loss`` in nats, ``loss_smoothed_bits`` as figures plot it."""
    trained, text = job.trained, job.text
    if trained.task is not None and text.split is not None:
        with torch.no_grad():
            return trained.task.score_loss(trained.model, text.split, poll)
    if text.references is None:
        return {}
    forced = force(
        trained.model, text.src_ids, trained.encode(text.references), poll,
        device=trained.device, batch_tokens=trained.cfg.train.tokens_per_batch,
    )  # fmt: skip
    n = sum(len(f.target) for f in forced)
    nll = -sum(float(f.target.sum()) for f in forced) / n
    e = float(trained.cfg.task.get("label_smoothing", 0.0))
    smooth = -sum(float(f.mean.sum()) for f in forced) / n
    bits = ((1 - e) * nll + e * smooth) / math.log(2)
    return {"loss": nll, "loss_smoothed_bits": bits, "n_targets": n}


def _scores(job: Job, found: list[Hypothesis], options: DecodeOptions) -> Row:
    trained, references = job.trained, job.text.references
    row: Row = {"beam": options.beam, "length_penalty": options.length_penalty}
    if references is None:
        return row
    return row | translation_scores(
        [trained.tokenizer.decode(h.ids) for h in found], references, **_scoring(trained)
    )


def _scoring(trained: Trained) -> dict[str, Any]:
    return {
        "tokenised": trained.tokenised,
        "lowercased": trained.lowercased,
        "language": trained.cfg.data.tgt,
    }


def _bootstrap(
    request: Request,
    jobs: list[Job],
    rows: list[Row],
    hypotheses: list[list[str]],
    references: list[str],
) -> None:
    """Add intervals to ``rows``, and tests of each run against the first in the same setting."""
    per_run = len(rows) // len(jobs)
    for setting in range(per_run):
        here = range(setting, len(rows), per_run)
        found = bootstrap(
            [hypotheses[i] for i in here], references,
            resamples=request.resamples, **_scoring(jobs[0].trained),
        )  # fmt: skip
        for i, more in zip(here, found, strict=True):
            rows[i] |= more


def _folder(request: Request, number: int, job: Job, row: Row) -> str:
    """Directory of one system below the output: named after what varies."""
    parts = []
    if len(request.runs) > 1:
        path = job.trained.run.path.resolve()
        parts.append(f"{number}-{path.parent.name}-{path.name}")
    if len(request.checkpoints) > 1:
        parts.append(str(row["checkpoint"]).replace(":", "-"))
    if len(request.beams) * len(request.length_penalties) > 1:
        parts.append(f"beam{row['beam']}-lenpen{exact(row['length_penalty'])}")
    return "/".join(parts)


def _write(into: Path, job: Job, found: list[Hypothesis], poll: Callable[[str], None]) -> None:
    trained = job.trained
    forced = force(
        trained.model, job.text.src_ids, [h.ids for h in found],
        lambda: poll("scoring each piece"),
        device=trained.device, batch_tokens=trained.cfg.train.tokens_per_batch,
    )  # fmt: skip
    write_translations(into, trained, job.text, found, forced)
