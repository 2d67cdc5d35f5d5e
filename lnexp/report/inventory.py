"""How a run stands, from its small JSON files.

Nothing is written and no run is disturbed: it may be training, half copied, damaged or on a
read-only disk. Whatever a file holds, a run is described; what cannot be read is named.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import socket
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lnexp.run_dir import SCHEMA, RunDir

STATES = ("running", "finished", "diverged", "stopped", "failed", "dead", "new", "damaged")
"""``dead``: it says that it is running, but its process is gone. ``new``: no update was done yet."""

SILENCE = 600.0
"""Seconds without a sign of life after which a run of another machine counts as dead."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One version of one run, as its files describe it."""

    path: Path
    state: str
    """One of `STATES`."""
    identity: Json
    status: Json
    result: Json
    damage: tuple[str, ...] = ()
    """What is wrong with its files, a phrase each."""

    @cached_property
    def env(self) -> Json:
        """``env.json``: where the data came from, and the sessions; read when asked for."""
        return RunDir(self.path).read_json("env")

    @property
    def sessions(self) -> list[Json]:
        """The processes that trained the run, first to last."""
        found = self.env.get("sessions")
        return [mapping(s) for s in found] if isinstance(found, list) else []

    @property
    def experiments(self) -> list[str]:
        """The experiments that asked for the run."""
        lists = [s["experiments"] for s in self.sessions if isinstance(s.get("experiments"), list)]
        return list(dict.fromkeys(str(name) for names in lists for name in names))

    @cached_property
    def version(self) -> int | None:
        """N of ``v<N>``; None for a directory with a name of its own."""
        match = re.fullmatch(r"v(\d{1,9})", os.path.basename(os.path.abspath(self.path)))
        return int(match[1]) if match else None

    @cached_property
    def name(self) -> str:
        """The readable name and its eight digits, or what a copied directory is called."""
        path = os.path.abspath(self.path)
        return os.path.basename(path if self.version is None else os.path.dirname(path))

    @property
    def group(self) -> Path:
        """The directory that this run and others of its recipe lie in."""
        return self.path.parent if self.version is None else self.path.parent.parent

    @property
    def hash(self) -> str:
        """SHA-256 of the identity; empty where that is not known."""
        return str(self.identity.get("hash") or "")

    @property
    def handle(self) -> str:
        """A short name that the commands understand, say ``00b9efe3/v1``."""
        match = re.search(r"-([0-9a-f]{8})$", self.name)
        short = match[1] if match else self.name
        return short if self.version is None else f"{short}/v{self.version}"

    @property
    def recipe(self) -> str:
        """Name of the recipe; of the directory above where the identity is damaged."""
        known = mapping(mapping(self.identity.get("identity")).get("recipe")).get("name")
        return str(known) if known else os.path.basename(os.path.abspath(self.group))

    @property
    def t(self) -> int | None:
        """Updates done, as far as the record knows."""
        return whole(self.result.get("updates", self.status.get("t")))

    @property
    def updates(self) -> int | None:
        """Updates asked for."""
        return whole(self.status.get("updates", self.result.get("updates")))

    @property
    def seen(self) -> float | None:
        """Time of the last sign of life, in seconds since 1970."""
        return number(self.status.get("time"))

    def eta(self, now: float) -> float | None:
        """Seconds until the last update of a running run, by its own estimate."""
        left, seen = number(self.status.get("eta_seconds")), self.seen
        if self.state != "running" or left is None or seen is None:
            return None
        return max(0.0, left - max(0.0, now - seen))

    def score(self, name: str, of: str = "test") -> float | None:
        """A number of the last weights on the test split, or another part of the result."""
        return number(mapping(self.result.get(of)).get(name))


def number(value: Any) -> float | None:
    """Take a finite number as it is, anything else as None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(value: Any) -> int | None:
    """Take a whole number as it is, anything else as None."""
    known = number(value)
    return int(known) if known is not None and known.is_integer() else None


def mapping(value: Any) -> Json:
    """Take a JSON object as it is, anything else as an empty one."""
    return value if isinstance(value, dict) else {}


def read_entry(path: Path, now: float) -> Entry:
    """Describe the run directory ``path``."""
    run = RunDir(path)
    identity, result, status = (_read(run, name) for name in ("identity", "result", "status"))
    damage = [fault for _, fault in (identity, result, status) if fault]
    if not (damage or identity[0]) and (result[0] or status[0] or run.config_file.exists()):
        damage.append("identity.json is missing")
    if not damage and result[0] and result[0].get("outcome") not in ("finished", "diverged"):
        damage.append("result.json has no outcome")
    state = "damaged" if damage else _state(run, result[0], status[0], now)
    if state == "dead":  # or it has ended while we looked
        later = _read(run, "result"), _read(run, "status")
        if (later[0][0], later[1][0]) != (result[0], status[0]):
            result, status = later
            state = _state(run, result[0], status[0], now)
    return Entry(path, state, identity[0], status[0], result[0], tuple(damage))


def _read(run: RunDir, name: str) -> tuple[Json, str | None]:
    """``name``.json and what is wrong with it."""
    for _ in range(2):  # it may have been written between the two looks
        try:
            value = run.read_json(name)
        except RecursionError:
            value = {}
        if value or not (run.path / f"{name}.json").exists():
            break
    else:
        return {}, f"{name}.json is not JSON"
    if value and value.get("schema") != SCHEMA:
        schema = str(value.get("schema"))[:20]
        return {}, f"{name}.json has schema={schema}, this lnexp reads {SCHEMA}"
    return value, None


def _state(run: RunDir, result: Json, status: Json, now: float) -> str:
    # A run that grows puts its result aside first: where there is one, it stands.
    if result:
        return str(result["outcome"])
    said = status.get("state")
    held = _locked(run)
    if held is None and said == "running":
        held = _alive(status, now)
    elif held is False and said == "running" and status.get("host") != socket.gethostname():
        held = _alive(status, now)  # not every network file system tells of another's lock
    if held:
        return "running"
    if said in ("stopped", "failed"):
        return str(said)
    return "dead" if status else "new"


def _locked(run: RunDir) -> bool | None:
    """Whether a process trains the run; None where that cannot be found out."""
    try:
        file = os.open(run.path / "lock", os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(file)
    return False


def _alive(status: Json, now: float) -> bool:
    if status.get("host") == socket.gethostname():
        try:
            os.kill(whole(status.get("pid")) or 2**22 + 1, 0)
        except PermissionError:
            return True
        except (OSError, OverflowError):
            return False
        return True
    seen = number(status.get("time"))
    return seen is not None and now - seen < SILENCE
