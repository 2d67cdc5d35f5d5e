"""Which evaluations' weights a run keeps, and which of them a checkpoint's name means.

The invariant: what is kept after update t depends on the evaluations up to t alone, so a run that
was interrupted ends with the same files as one that was not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from lnexp.errors import InputError
from lnexp.run_dir import RunDir


@dataclass(frozen=True)
class Checkpoint:
    """Weights to score: one file, or several to be averaged."""

    name: str
    """As asked for: ``last``, ``best``, an update, ``last:3`` or ``best:3``."""
    paths: list[Path]


def nearest(updates: Iterable[int], centre: int, n: int) -> list[int]:
    """The ``n`` of ``updates`` nearest to ``centre``, ascending; of two as near, the earlier."""
    return sorted(sorted(updates, key=lambda t: _distance(t, centre))[:n])


def _distance(t: int, centre: int) -> tuple[int, int]:
    return abs(t - centre), t


def needed(updates: Iterable[int], best: int | None, k: int) -> set[int]:
    """Those of the evaluated ``updates`` whose weights are to be kept.

    The best, the last ``k``, and the ``k`` nearest to the best (itself among them). What later
    evaluations will need is in the last ``k`` or is one of theirs.
    """
    ordered = sorted(set(updates))
    kept = set(ordered[-k:] if k else [])
    if best is not None:
        kept |= {best, *nearest(ordered, best, k)}
    return kept & set(ordered)


def kept(run: RunDir) -> dict[int, Path]:
    """Weights files by their update, ascending."""
    found = ((re.fullmatch(r"weights-(\d+)\.pt", p.name), p) for p in run.checkpoints.glob("w*.pt"))
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def prune(run: RunDir, best: int | None, k: int) -> None:
    """Delete weights that no one will ask for."""
    files = kept(run)
    for t in files.keys() - needed(files, best, k):
        files[t].unlink()


def forget_after(run: RunDir, t: int) -> None:
    """Delete the weights of evaluations after update ``t``, which is to be trained on from."""
    for update, path in kept(run).items():
        if update > t:
            path.unlink()


def find(run: RunDir, name: str) -> Checkpoint:
    """The files that a checkpoint's name means in ``run``; `InputError` if it has them not."""
    match = re.fullmatch(r"(last|best)(?::([1-9]\d*))?|(\d+)", name)
    if not match:
        raise InputError(
            f"--checkpoint={name} must be last, best, an update, last:N or best:N (N at least 1)"
        )
    kind, number, update = match.groups()
    there = run.last_checkpoint.exists()
    if kind == "last" and number is None:
        if not there:
            raise InputError(
                f"--checkpoint=last: {run.last_checkpoint} does not exist; the run saved none yet, "
                "or was copied without"
            )
        return Checkpoint(name, [run.last_checkpoint])
    files = kept(run)
    if there and (end := _end(run)) is not None:  # which need not be an evaluation of the cadence
        files.setdefault(end, run.last_checkpoint)
    if kind is None:
        return Checkpoint(name, _files(run, name, files, [int(update or 0)], ""))
    order = _order(run, kind, name)
    n, most = int(number or 1), sum(1 for _ in takewhile(files.__contains__, order))
    remedy = f"use {kind}:{most} or less" if most else "use --checkpoint last"
    if n > len(order):
        raise InputError(
            f"--checkpoint={name}: {run.path} has {len(order)} evaluations, and the weights of "
            f"{len(files)}; {remedy}"
        )
    return Checkpoint(name, _files(run, name, files, sorted(order[:n]), f"; {remedy}"))


def _end(run: RunDir) -> int | None:
    """The update that the last checkpoint is of, as far as the record can vouch for it."""
    result, status = run.read_json("result"), run.read_json("status")
    if result.get("outcome") == "finished":
        return _update(run, "result", "updates", result)
    return _update(run, "status", "t", status) or None if status.get("state") == "stopped" else None


def _update(run: RunDir, name: str, key: str, record: dict[str, Any]) -> int:
    if type(record.get(key)) is not int:
        raise InputError(
            f"{run.path / name}.json: {key}={record.get(key)} must be a number of updates; it is "
            "damaged or foreign, copy the whole run directory again"
        )
    return int(record[key])


def _order(run: RunDir, kind: str, name: str) -> list[int]:
    """Evaluated updates, the one that counts most first: the last, or the best."""
    losses = _losses(run)
    finite = {t: x for t, x in losses.items() if x is not None and math.isfinite(x)}
    if not losses or (kind == "best" and not finite):
        raise InputError(
            f"--checkpoint={name}: {run.path} has no evaluation "
            "with a finite loss; use --checkpoint last"
        )
    if kind == "last":
        return sorted(losses, reverse=True)
    best = min(finite, key=lambda t: (finite[t], t))
    return sorted(losses, key=lambda t: _distance(t, best))


def _losses(run: RunDir) -> dict[int, float | None]:
    """Validation loss of each evaluation."""
    path, losses = run.path / "metrics.jsonl", {}
    try:
        for number, row in enumerate(run.metrics(), 1):
            if not isinstance(row, dict) or (
                row.get("kind") == "valid" and not _is_evaluation(row)
            ):
                raise InputError(
                    f"{path} row {number} is no row of a run ({str(row)[:60]}); it is damaged or "
                    "foreign, copy the whole run directory again"
                )
            if row.get("kind") == "valid":
                losses[row["t"]] = row["loss"]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})") from None
    return losses


def _is_evaluation(row: dict[str, Any]) -> bool:
    loss = row.get("loss", "")
    return type(row.get("t")) is int and (loss is None or type(loss) in (int, float))


def _files(
    run: RunDir, name: str, files: dict[int, Path], wanted: list[int], remedy: str
) -> list[Path]:
    missing = [t for t in wanted if t not in files]
    if missing:
        have = ", ".join(map(str, files)) or "none"
        raise InputError(
            f"--checkpoint={name}: {run.path} does not keep the weights of "
            f"update{'s'[: len(missing) > 1]} {', '.join(map(str, missing))}; it keeps those of: "
            f"{have} (train.keep_weights says how many){remedy}"
        )
    return [files[t] for t in wanted]
