"""Which evaluations' weights a run keeps, and which of them a checkpoint's name means.

The invariant: what is kept after update t depends on the evaluations up to t alone, so a run that
was interrupted ends with the same files as one that was not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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
    return sorted(sorted(updates, key=lambda t: (abs(t - centre), t))[:n])


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
    if kind == "last" and number is None:
        return Checkpoint(name, [run.last_checkpoint])
    files = kept(run)
    if (end := _end(run)) is not None:  # which need not be an evaluation of the cadence
        files.setdefault(end, run.last_checkpoint)
    return Checkpoint(name, _files(run, name, files, _wanted(run, kind, number, update)))


def _end(run: RunDir) -> int | None:
    """The update that the last checkpoint is of, as far as the record can vouch for it."""
    result, status = run.read_json("result"), run.read_json("status")
    if result.get("outcome") == "finished":
        return int(result["updates"])
    return int(status["t"]) if status.get("state") == "stopped" and status["t"] else None


def _wanted(run: RunDir, kind: str | None, number: str | None, update: str | None) -> list[int]:
    if kind is None:
        return [int(update or 0)]
    losses = {row["t"]: row["loss"] for row in run.metrics() if row["kind"] == "valid"}
    finite = {t: x for t, x in losses.items() if x is not None and math.isfinite(x)}
    if not losses or (kind == "best" and not finite):
        raise InputError(
            f"--checkpoint={kind}{f':{number}' if number else ''}: {run.path} has no evaluation "
            "with a finite loss; use --checkpoint last"
        )
    n = int(number or 1)
    if n > len(losses):
        raise InputError(
            f"--checkpoint={kind}:{n}: {run.path} has {len(losses)} evaluations; "
            f"use {kind}:{len(losses)} or less"
        )
    if kind == "last":
        return sorted(losses)[-n:]
    return nearest(losses, min(finite, key=lambda t: (finite[t], t)), n)


def _files(run: RunDir, name: str, files: dict[int, Path], wanted: list[int]) -> list[Path]:
    missing = [t for t in wanted if t not in files]
    if missing:
        have = ", ".join(map(str, files)) or "none"
        raise InputError(
            f"--checkpoint={name}: {run.path} does not keep the weights of "
            f"update{'s'[: len(missing) > 1]} {', '.join(map(str, missing))}; it keeps those of: "
            f"{have} (train.keep_weights says how many)"
        )
    return [files[t] for t in wanted]
