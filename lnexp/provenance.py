"""Where a number came from: code, packages, machine and command. No environment variables."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from lnexp import __version__


def _git(*arguments: str) -> str | None:
    here = Path(__file__).resolve().parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


def code_state() -> dict[str, Any]:
    """Version, git commit and uncommitted changes of the code that runs; None outside git."""
    tracked = _git("ls-files", "--error-unmatch", "__init__.py")
    commit = (_git("rev-parse", "HEAD") or "").strip() if tracked else ""
    diff = _git("diff", "HEAD", "--", ":/lnexp", ":/conf") if commit else None
    return {"version": __version__, "commit": commit or None, "diff": diff or None}


def git_label(code: dict[str, Any]) -> str | None:
    """The commit, marked where the code differed from it."""
    commit = code["commit"]
    return f"{commit}-dirty" if commit and code["diff"] else commit


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def session(experiments: list[str], code: dict[str, Any]) -> dict[str, Any]:
    """Describe this process, for ``env.json``."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "directory": os.getcwd(),
        "experiments": experiments,
        "code": code,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
        "packages": dict(sorted((d.metadata["Name"], d.version) for d in distributions())),
    }
