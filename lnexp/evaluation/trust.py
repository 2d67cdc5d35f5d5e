"""Which classes a run directory may name, that may be somebody else's.

The invariant: nothing is imported for its sake but modules of torch and of lnexp that hold classes
of that kind, and nothing is called but a class that is of the kind its key asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object
from torch import nn

from lnexp.errors import InputError
from lnexp.model.placement import Placement
from lnexp.validate import PROVIDED

KINDS: dict[str, tuple[tuple[str, ...], type]] = {
    "task": (("lnexp.tasks",), object),
    "placement": (("lnexp.model.placement", "lnexp.model.placement_residual"), Placement),
    "norm": (("torch.nn", "lnexp.model"), nn.Module),
    "optimizer": (("torch.optim", "lnexp.optim"), torch.optim.Optimizer),
    "schedule": (("lnexp.optim.schedule",), object),
    "probes": (("lnexp.probes",), object),
}
"""Where the classes of each group are defined, and what they derive from."""


def check_classes(file: Path, config: Mapping[str, Any], *, trust: bool) -> None:
    """Refuse a config, read from ``file``, that names other classes, unless ``trust``.

    Raises `InputError`, also where a class should be named and is not.
    """
    probes = config.get("probes") or {}
    if not isinstance(probes, Mapping):
        raise InputError(f"{file}: probes={probes} is no mapping; it was changed or is foreign")
    # A list: a probe may be called like a group, and must not hide it.
    specs = [(group, group, config.get(group)) for group in PROVIDED]
    specs += [("probes", f"probes.{name}", spec) for name, spec in probes.items()]
    for group, key, spec in specs:
        if not isinstance(spec, Mapping) or not isinstance(spec.get("_target_"), str):
            raise InputError(
                f"{file}: {key}={spec} must name a class with _target_; "
                "the file was changed or is foreign"
            )
        if not trust and not is_known(group, spec["_target_"]):
            what = "probe" if group == "probes" else group
            raise InputError(
                f"{file}: {key}._target_={spec['_target_']} is no {what} of lnexp or torch; "
                "add --trust if you trust this directory"
            )


def is_known(group: str, target: str) -> bool:
    """Whether ``target`` is a class for ``group``, and defined there, not merely reachable."""
    modules, base = KINDS[group]
    prefixes = tuple(f"{module}." for module in modules)
    if not target.startswith(prefixes):
        return False
    try:
        found = get_object(target)
    except Exception:  # a name out of somebody's file: whatever goes wrong, it is none of ours
        return False
    return (
        isinstance(found, type)
        and issubclass(found, base)
        and f"{found.__module__}.".startswith(prefixes)
    )
