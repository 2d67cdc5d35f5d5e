"""Weights on disk: everything that makes a resumed run equal to an uninterrupted one.

Random streams are not in it: dropout and batch order are functions of (seed, update).
Files are replaced as a whole and loaded without executing anything (``weights_only``).
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lnexp.atomic import atomic_write
from lnexp.errors import InputError
from lnexp.train import Best, TrainState

SCHEMA = 1


def _dump(value: dict[str, Any], path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"schema": SCHEMA, **value}, buffer)
    atomic_write(path, buffer.getbuffer())


def _load(path: Path, device: torch.device) -> dict[str, Any]:
    try:
        saved: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; the run has no such checkpoint") from None
    except Exception as error:  # of damaged bytes, unpickling makes almost any
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise InputError(
            f"{path} is damaged or foreign ({reason}); copy it again, or delete the run directory"
        ) from None
    schema = saved.get("schema") if isinstance(saved, dict) else None
    if not isinstance(schema, int) or schema != SCHEMA:
        raise InputError(
            f"{path} is no checkpoint of schema {SCHEMA}, which this lnexp reads; use the version "
            "that wrote it"
        )
    return saved


def save_state(state: TrainState, metrics_size: int, path: Path) -> None:
    """Write the whole state, and how long ``metrics.jsonl`` was at that moment (bytes)."""
    best = None if state.best is None else (state.best.t, state.best.loss)
    _dump(
        {
            "t": state.t,
            "model": state.model.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "tokens": state.tokens,
            "seconds": state.seconds,
            "evaluated_at": state.evaluated_at,
            "best": best,
            "metrics_size": metrics_size,
        },
        path,
    )


def load_state(state: TrainState, path: Path, device: torch.device) -> int:
    """Fill ``state`` from ``path``; return the length of ``metrics.jsonl`` that belongs to it."""
    saved = _load(path, device)
    try:
        return _fill(state, saved)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{path} does not hold the state of this run ({reason}); copy the whole run directory "
            "again, or delete it and train anew"
        ) from None


def _fill(state: TrainState, saved: dict[str, Any]) -> int:
    state.model.load_state_dict(saved["model"])
    state.optimizer.load_state_dict(saved["optimizer"])
    state.t, state.tokens, state.seconds = saved["t"], saved["tokens"], saved["seconds"]
    state.evaluated_at = saved["evaluated_at"]
    state.best = None if saved["best"] is None else Best(*saved["best"])
    size: int = saved["metrics_size"]
    return size


def save_model(model: nn.Module, t: int, path: Path) -> None:
    """Write the weights after update ``t``."""
    _dump({"t": t, "model": model.state_dict()}, path)


def load_model(model: nn.Module, paths: Sequence[Path], device: torch.device) -> list[int]:
    """Load the weights of a checkpoint of either kind, or the mean of several; return the updates.

    Each parameter's mean is taken in float64 and stored in the parameter's own type; what is not
    a floating-point number is taken from the last of ``paths``.
    """
    updates: list[int] = []
    mean: dict[str, Any] = {}
    where = device if len(paths) == 1 else torch.device("cpu")  # not every device has float64
    for path in paths:
        t, weights = _weights(path, where)
        updates.append(t)
        if mean and {k: v.shape for k, v in weights.items()} != {
            k: v.shape for k, v in mean.items()
        }:
            raise InputError(
                f"{path} holds other weights than {paths[0]} beside it, so they have no mean; "
                "copy the whole run directory again"
            )
        for name, value in weights.items():
            if len(paths) > 1 and value.is_floating_point():
                value = value.double() / len(paths) + mean.get(name, 0)
            mean[name] = value
    try:
        model.load_state_dict(mean)  # copies into the parameters, and so back to their type
    except (RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{paths[-1]} does not fit the model of config.yaml beside it ({reason}); "
            "copy the whole run directory again"
        ) from None
    return updates


def _weights(path: Path, device: torch.device) -> tuple[int, dict[str, Tensor]]:
    saved = _load(path, device)
    t, weights = saved.get("t"), saved.get("model")
    named = isinstance(weights, dict) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in weights.items()
    )
    if type(t) is not int or not isinstance(weights, dict) or not named:
        raise InputError(
            f"{path} holds no update t or no weights; it is damaged or foreign, copy the whole run "
            "directory again"
        )
    return t, weights
