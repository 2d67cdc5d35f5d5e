"""What is checked of a composed config before anything is built: keys, types, rules, classes."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import logging
import math
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lnexp.config import RunConfig, check, scientific
from lnexp.errors import InputError

PROVIDED: dict[str, set[str]] = {
    "task": {
        "corpus", "tokenised", "tokens_per_batch", "max_length",
        "seed", "device", "decode_options", "valid_beam",
    },
    "placement": {"shape", "norm"},
    "norm": {"normalized_shape"},
    "optimizer": {"params"},
    "schedule": set(),
}  # fmt: skip
"""Groups that name a class (``_target_``), and the arguments that lnexp itself passes to it."""


def validate(config: DictConfig) -> RunConfig:
    """Check a composed config against the schema; raise `InputError` with one line."""
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    unknown = sorted(set(_typed_keys(plain, RunConfig)))
    if unknown:
        raise InputError(unknown_key(unknown[0], set(known_keys(plain))))
    try:
        merged = OmegaConf.merge(OmegaConf.structured(RunConfig), config)
        missing = sorted(OmegaConf.missing_keys(merged))
        if missing:
            raise InputError(f"{missing[0]} has no value; set {missing[0]}=VALUE")
        run = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise InputError(_wrong_value(error)) from None
    assert isinstance(run, RunConfig)
    for part in (run, run.data, run.model, run.train, run.decode):
        part.validate()
    for key, value in _leaves(scientific(run)):
        finite = not isinstance(value, float) or math.isfinite(value)
        check(key, value, finite, "must be a finite number")
    for group, provided in PROVIDED.items():
        check_target(group, getattr(run, group), provided)
    lr = run.optimizer.get("lr", 1.0)
    check("optimizer.lr", lr, isinstance(lr, (int, float)) and lr > 0, "must be above 0")
    probes = run.probes if isinstance(run.probes, Mapping) else {"": run.probes}
    for name, probe in probes.items():
        check_target(f"probes.{name}", probe, set())
    return run


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _leaves(inner, key)
    else:
        yield key, value


def _wrong_value(error: OmegaConfBaseException) -> str:
    text = str(error).splitlines()[0]
    needed = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
    match = re.match(r"Value '(.*)' of type '.*' could not be converted to (\w+)", text)
    if match and match[2] in needed:
        return f"{error.full_key}={match[1]}: {needed[match[2]]} is needed"
    return f"{error.full_key or 'config'}: {text}"


def check_target(group: str, spec: Any, provided: set[str]) -> None:
    """Check the arguments of a ``_target_`` against the signature of the class it names."""
    from hydra.utils import get_object

    if not isinstance(spec, Mapping) or "_target_" not in spec:
        raise InputError(f"{group} must name a class with _target_, got {spec}")
    logging.getLogger("hydra.utils").disabled = True  # it would say the same in three lines
    try:
        target = get_object(spec["_target_"])
        signature = inspect.signature(target)
    except Exception as error:  # importing somebody's module may raise anything
        reason = " ".join(str(error).split())
        raise InputError(
            f"{group}._target_={spec['_target_']} cannot be loaded ({reason}); "
            "name an importable class"
        ) from None
    given = set(spec) - {"_target_"}
    keyword = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    free = set(signature.parameters) - provided
    for key in sorted(given - free):
        if key in provided or not keyword:
            raise InputError(unknown_key(f"{group}.{key}", {f"{group}.{k}" for k in free}))
    for key in sorted(given & free):
        _check_type(f"{group}.{key}", spec[key], _hints(target).get(key))
    for name, parameter in signature.parameters.items():
        required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if required and name not in given | provided:
            raise InputError(
                f"{group}.{name} has no value and {spec['_target_']} needs one; "
                f"set +{group}.{name}=VALUE"
            )


def _hints(target: Any) -> dict[str, Any]:
    try:
        return get_type_hints(target if inspect.isfunction(target) else target.__init__)
    except (NameError, TypeError):  # annotations that cannot be resolved say nothing
        return {}


def _check_type(key: str, value: Any, hint: Any) -> None:
    """Refuse what is plainly not a ``hint``; other hints than numbers, words and None pass."""
    needed = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    allowed = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if not all(a in needed or a is types.NoneType for a in allowed):
        return
    whole = isinstance(value, float) and value.is_integer()
    for a in allowed:
        if (
            (a is types.NoneType and value is None)
            or (a is float and isinstance(value, (int, float)) and not isinstance(value, bool))
            or (a is int and (whole or isinstance(value, int)) and not isinstance(value, bool))
            or (a in (bool, str) and isinstance(value, a))
        ):
            return
    words = " or ".join(needed.get(a, "null") for a in allowed)
    raise InputError(f"{key}={'null' if value is None else value}: {words} is needed")


def unknown_key(key: str, known: set[str]) -> str:
    """One line for a key that does not exist, with the nearest that does."""
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if not near:  # a right name in the wrong group
        leaf = key.rsplit(".", 1)[-1]
        near = [k for k in sorted(known) if k.rsplit(".", 1)[-1] == leaf][:1]
    hint = f"did you mean {near[0]}?" if near else "lnexp train --cfg job prints the keys there are"
    return f"{key} is no key of this config; {hint}"


def known_keys(plain: Mapping[Any, Any]) -> Iterator[str]:
    """Yield every dotted key that the schema has, or ``plain`` where the schema leaves it open."""
    unknown = tuple(_typed_keys(plain, RunConfig))
    yield from _schema_keys(RunConfig)
    for key in _dotted(plain):
        if not any(key == u or key.startswith(f"{u}.") for u in unknown):
            yield key


def _dotted(plain: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in plain.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{key}.")


def _schema_keys(schema: type, prefix: str = "") -> Iterator[str]:
    for f in dataclasses.fields(schema):
        yield f"{prefix}{f.name}"
        if dataclasses.is_dataclass(f.default_factory):
            yield from _schema_keys(f.default_factory, f"{prefix}{f.name}.")  # type: ignore[arg-type]


def _typed_keys(plain: Mapping[Any, Any], schema: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of ``plain`` that are not fields of ``schema``."""
    fields = {f.name: f for f in dataclasses.fields(schema)}
    for key, value in plain.items():
        if key not in fields:
            yield f"{prefix}{key}"
        elif dataclasses.is_dataclass(inner := fields[key].default_factory) and isinstance(
            value, Mapping
        ):
            yield from _typed_keys(value, inner, f"{prefix}{key}.")  # type: ignore[arg-type]
