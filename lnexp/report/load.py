"""A run, read back from its directory: config, result and curves. Nothing is written.

An unfinished run is a run like any other, with an empty result; a directory that is no run, or a
damaged one, is refused in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lnexp.errors import InputError
from lnexp.run_dir import SCHEMA, RunDir

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What the record says of one run."""

    path: Path
    config: dict[str, Any]
    result: dict[str, Any]
    """``result.json``; empty until the run has ended."""
    status: dict[str, Any]
    """``status.json``: what the run was last seen doing."""
    curves: dict[str, list[Row]]
    """Rows of ``metrics.jsonl`` by kind, in the order of their updates."""

    @property
    def outcome(self) -> str:
        """``finished`` or ``diverged``; else ``stopped``, ``failed`` or ``unfinished``."""
        if "outcome" in self.result:
            return str(self.result["outcome"])
        state = self.status.get("state")
        # "running" is what a killed process leaves behind, too.
        return str(state) if state in ("stopped", "failed") else "unfinished"

    @property
    def updates(self) -> int:
        """Number of updates done, as far as the record knows."""
        return int(self.result.get("updates", self.status.get("t", 0)))

    @property
    def diverged_at(self) -> int:
        """The update whose loss or gradient was not finite; it was not done."""
        return int(self.result.get("diverged_at", self.updates + 1))

    def curve(self, kind: str, name: str) -> tuple[list[int], list[float]]:
        """Updates and values of ``name`` in the rows of ``kind``; non-finite ones left out."""
        rows = [row for row in self.curves.get(kind, []) if row.get(name) is not None]
        return [row["t"] for row in rows], [row[name] for row in rows]


def load_run(path: Path) -> Run:
    """Read a run directory (``.../v1``), finished or not.

    Raises `InputError` where it is no run directory, or one of its files is damaged.
    """
    run = RunDir(Path(path))
    config = _config(run)
    curves: dict[str, list[Row]] = {}
    for number, row in enumerate(run.metrics(), 1):
        if not _is_row(row):
            raise InputError(
                f"{run.path}: row {number} of the metrics is no row of lnexp ({str(row)[:60]}); "
                "delete the directory and train the run again"
            )
        curves.setdefault(row["kind"], []).append(row)
    return Run(run.path, config, _json(run, "result"), _json(run, "status"), curves)


def _config(run: RunDir) -> dict[str, Any]:
    if not run.path.is_dir():
        raise InputError(f"{run.path} is no directory; name a run directory, .../v1")
    if not run.config_file.exists():
        raise InputError(f"{run.path} holds no config.yaml; name a run directory, .../v1")
    try:
        config = yaml.safe_load(run.config_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{run.config_file} cannot be read ({reason}); train the run again"
        ) from None
    if not isinstance(config, dict) or "recipe" not in config:
        raise InputError(
            f"{run.config_file} is not the config of a run of lnexp; name a run directory, .../v1"
        )
    return config


def _json(run: RunDir, name: str) -> dict[str, Any]:
    """Read ``name``.json; {} where it does not exist yet, refused where it is damaged."""
    value = run.read_json(name)
    file = run.path / f"{name}.json"
    if not value and file.exists():
        raise InputError(f"{file} is not JSON; delete it, and the run's command makes it anew")
    if value and value.get("schema") != SCHEMA:
        raise InputError(
            f"{file} has schema={value.get('schema')}, this lnexp reads {SCHEMA}; "
            "use the version that wrote it"
        )
    return value


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("kind"), str) and type(row.get("t")) is int
