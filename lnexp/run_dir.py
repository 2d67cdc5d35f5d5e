"""The record of a run: the only code that knows the names of its files. Imports no torch.

    <runs_dir>/<recipe>/<readable name>-<hash>/v<N>/
        config.yaml  identity.json  env.json  status.json  result.json  train.log
        metrics.jsonl  tensorboard/  checkpoints/  samples/

A run is its identity: the keys that can change its result, and the content of its data. Every file
but the two logs is replaced as a whole, so that a reader never sees half of one.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from lnexp.atomic import atomic_write, naming
from lnexp.errors import InputError
from lnexp.identity import canonical, identity_hash

SCHEMA = 1
"""Version of the files' layout, stated in each."""

RESULT_SCHEMA = 1
"""Raised when the code gives other results for the same identity: such a run is a new version."""

State = Literal["new", "unfinished", "finished", "longer"]


def finite(value: Any) -> Any:
    """Replace what JSON cannot say (inf, nan) by None, all the way down."""
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass
class RunDir:
    """One version of one run."""

    path: Path
    lock: IO[bytes] | None = None
    metrics_file: IO[bytes] | None = None

    @property
    def checkpoints(self) -> Path:
        """Directory of the weights."""
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> Path:
        """Everything a run needs to go on."""
        return self.checkpoints / "last.pt"

    def weights(self, t: int) -> Path:
        """The model as it was evaluated after update ``t``; see `lnexp.kept_weights`."""
        return self.checkpoints / f"weights-{t:08d}.pt"

    @property
    def tensorboard(self) -> Path:
        """Directory of the event files, a view of ``metrics.jsonl``."""
        return self.path / "tensorboard"

    @property
    def config_file(self) -> Path:
        """The resolved config, as yaml."""
        return self.path / "config.yaml"

    @property
    def log_file(self) -> Path:
        """What the run said, line by line."""
        return self.path / "train.log"

    @property
    def tokenizer_file(self) -> Path:
        """The sentencepiece model, so that the directory alone can translate."""
        return self.path / "tokenizer.model"

    def read_json(self, name: str) -> dict[str, Any]:
        """Read ``name``.json, {} where it is missing or damaged."""
        try:
            value = json.loads((self.path / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return value if isinstance(value, dict) else {}

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace ``name``.json."""
        text = json.dumps({"schema": SCHEMA, **finite(value)}, indent=1, ensure_ascii=False)
        atomic_write(self.path / f"{name}.json", text + "\n")

    def append(self, kind: str, t: int, values: Mapping[str, Any]) -> None:
        """Append one row to ``metrics.jsonl``."""
        path = self.path / "metrics.jsonl"
        row = json.dumps({"kind": kind, "t": t, **finite(values)}, ensure_ascii=False)
        line = row.encode() + b"\n"
        with naming(path):
            if self.metrics_file is None:
                self.metrics_file = open(path, "ab", buffering=0)  # noqa: SIM115
            if self.metrics_file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Yield the rows; a torn last line, left by a crash, is passed over."""
        try:
            lines = (self.path / "metrics.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line) if line else None
            except ValueError:
                if number == len(lines):
                    return
                raise InputError(
                    f"{self.path / 'metrics.jsonl'} line {number} is not JSON; the file was damaged"
                ) from None
            if row is not None:
                yield row

    def sync_metrics(self) -> None:
        """Have the rows on disk before a checkpoint counts on them."""
        if self.metrics_file is not None:
            os.fsync(self.metrics_file.fileno())

    def metrics_size(self) -> int:
        """Length of ``metrics.jsonl`` in bytes."""
        path = self.path / "metrics.jsonl"
        return path.stat().st_size if path.exists() else 0

    def truncate_metrics(self, size: int) -> None:
        """Forget every row after the first ``size`` bytes."""
        path = self.path / "metrics.jsonl"
        if self.metrics_size() < size:
            raise InputError(
                f"{path} has {self.metrics_size()} bytes, its checkpoint counts on {size}; copy the "
                "whole run directory again, or delete it and train anew"
            )
        if self.metrics_size() > size:
            with open(path, "rb") as file:
                atomic_write(path, file.read(size))

    def sample_file(self, split: str, t: int) -> Path:
        """Where the sample translations of update ``t`` go."""
        return self.path / "samples" / f"{split}-{t:08d}.txt"

    def result_for(self, updates: int) -> dict[str, Any]:
        """The result of a run of ``updates`` updates, {} if there is none.

        A diverged run is the result for any number.
        """
        latest = self.read_json("result")
        if latest.get("outcome") == "diverged" or latest.get("updates") == updates:
            return latest
        return self.read_json(f"result-{updates:08d}")

    def keep_result(self) -> None:
        """Put the result of a run that is about to grow aside; it stays the answer to its command."""
        latest = self.read_json("result")
        if latest:
            path = self.path / "result.json"
            os.replace(path, self.path / f"result-{latest['updates']:08d}.json")

    def release(self) -> None:
        """Close the files and let another process have the run."""
        for file in (self.metrics_file, self.lock):
            if file is not None:
                file.close()
        self.metrics_file = self.lock = None


def open_run(
    runs_dir: Path, recipe: str, name: str, identity: Mapping[str, Any], updates: int, repeat: bool
) -> tuple[RunDir, State]:
    """Find or make the version of a run that is to be trained, and lock it.

    An unfinished version is resumed. A finished one is returned as it is, unless more updates are
    asked for (it is then unfinished) or ``repeat`` (a new version starts). A new version also
    starts where the latest was written by code that gives other results.
    """
    full = identity_hash(identity)
    base = runs_dir / recipe / f"{name[:111]}-{full[:8]}"
    number = latest_version(base)
    if number:
        run = RunDir(base / f"v{number}")
        saved = run.read_json("identity")
        state = _state(run, updates)
        stale = bool(saved) and (saved.get("hash"), saved.get("result_schema")) != (
            full,
            RESULT_SCHEMA,
        )
        if not stale and not (repeat and state in ("finished", "longer")):
            if state == "finished":
                return run, state
            return _locked(run, full, identity, updates)
    return _locked(RunDir(base / f"v{number + 1}"), full, identity, updates)


def planned_path(runs_dir: Path, recipe: str, name: str, identity: Mapping[str, Any]) -> Path:
    """Directory of the latest version of a run, or of its first; nothing is made."""
    base = runs_dir / recipe / f"{name[:111]}-{identity_hash(identity)[:8]}"
    return base / f"v{latest_version(base) or 1}"


def latest_version(base: Path) -> int:
    """Highest N of the directories v<N> in ``base``, 0 if there is none."""
    found = (re.fullmatch(r"v(\d+)", p.name) for p in base.glob("v*"))
    return max((int(match[1]) for match in found if match), default=0)


def _state(run: RunDir, updates: int) -> State:
    if run.result_for(updates):
        return "finished"
    if not run.last_checkpoint.exists():
        return "new"
    return "longer" if run.read_json("result").get("updates", 0) > updates else "unfinished"


def _locked(
    run: RunDir, full: str, identity: Mapping[str, Any], updates: int
) -> tuple[RunDir, State]:
    try:
        for directory in (run.checkpoints, run.path / "samples"):
            directory.mkdir(parents=True, exist_ok=True)
        run.lock = open(run.path / "lock", "a+b")  # noqa: SIM115
    except OSError as error:
        raise InputError(
            f"runs_dir: cannot write {run.path} ({error.strerror}); set runs_dir=DIR to another"
        ) from None
    try:
        _flock(run.lock)
    except BlockingIOError:
        run.release()
        owner = run.read_json("status")
        raise BlockingIOError(
            f"{run.path} is being trained by process {owner.get('pid')} on {owner.get('host')}"
        ) from None
    if not run.read_json("identity"):
        run.write_json(
            "identity",
            {"hash": full, "result_schema": RESULT_SCHEMA, "identity": canonical(identity)},
        )
    for leftover in run.path.rglob(".*.tmp"):  # of processes that were killed while writing
        leftover.unlink(missing_ok=True)
    state = _state(run, updates)  # again: another process may just have finished it
    if state == "longer":
        run.release()
        raise InputError(
            f"train.updates={updates} is below the {run.read_json('result')['updates']} updates "
            f"already trained in {run.path}; set repeat=true to train a shorter one beside it"
        )
    return run, state


def _flock(file: IO[bytes], tries: int = 20, pause: float = 0.05) -> None:
    """Lock ``file``, or raise `BlockingIOError`; who looks whether it is locked holds it a moment."""
    for left in reversed(range(tries)):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not left:
                raise
            time.sleep(pause)


def write_status(run: RunDir, state: str, t: int, updates: int, **more: Any) -> None:
    """Replace ``status.json``: what the run is doing, for whoever looks at it from outside."""
    run.write_json(
        "status",
        {
            "state": state,
            "t": t,
            "updates": updates,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "time": time.time(),
            **more,
        },
    )
