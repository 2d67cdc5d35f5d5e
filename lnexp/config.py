"""The schema of a run's config, and what is checked before anything is built.

Values are stated once, in ``conf/``; these dataclasses give them types and rules, never defaults.
A field marked as an execution key cannot change a result and is no part of a run's identity.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lnexp.errors import InputError

PROVIDED: dict[str, set[str]] = {
    "task": {
        "corpus", "tokenised", "tokens_per_batch", "max_length",
        "seed", "device", "decode", "valid_beam",
    },
    "placement": {"shape", "norm"},
    "norm": {"normalized_shape"},
    "optimizer": {"params"},
    "schedule": set(),
}  # fmt: skip
"""Groups that name a class (``_target_``), and the arguments that lnexp itself passes to it."""


def execution() -> Any:
    """Mark a field that cannot change a result, such as where files lie."""
    return field(default=MISSING, metadata={"execution": True})


def _check(key: str, value: Any, ok: bool, rule: str) -> None:
    if not ok:
        raise InputError(f"{key}={value} {rule}")


@dataclass
class RecipeConfig:
    """What the experiments point at: the numbers that depend on data and model."""

    name: str = MISSING
    lr: float = MISSING
    warmup: int = MISSING
    """Updates of warm-up where there is one, and the anchor of the decay where there is none."""


@dataclass
class DataConfig:
    """Parallel text: where it comes from, and how it is cut into pieces."""

    source: str = execution()
    hub: str | None = execution()
    hub_config: str | None = execution()
    revision: str | None = execution()
    path: str | None = execution()
    train: Any = execution()
    valid: Any = execution()
    test: Any = execution()
    split_names: dict[str, list[str]] = execution()
    cache_dir: str | None = execution()
    src: str = MISSING
    tgt: str = MISSING
    vocab_size: int = MISSING
    max_length: int = MISSING

    def check(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        _check("data.vocab_size", self.vocab_size, self.vocab_size >= 8, "must be at least 8")
        _check("data.max_length", self.max_length, self.max_length >= 2, "must be at least 2")
        _check(
            "data.source",
            self.source,
            self.source in ("verbalized", "hub", "files"),
            "must be verbalized, hub or files",
        )
        _check("data.tgt", self.tgt, self.src != self.tgt, "must differ from data.src")


@dataclass
class ModelConfig:
    """Sizes and dropout rates; ``n_layers`` in each stack."""

    d_model: int = MISSING
    d_ff: int = MISSING
    n_heads: int = MISSING
    n_layers: int = MISSING
    dropout: float = MISSING
    attention_dropout: float = MISSING
    activation_dropout: float = MISSING

    def check(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        for name in ("d_model", "d_ff", "n_heads", "n_layers"):
            value = getattr(self, name)
            _check(f"model.{name}", value, value >= 1, "must be at least 1")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            value = getattr(self, name)
            _check(f"model.{name}", value, 0 <= value < 1, "must be in [0, 1)")
        if self.d_model % self.n_heads or self.d_model % 2:
            raise InputError(
                f"model.d_model={self.d_model} must be even and a multiple of "
                f"model.n_heads={self.n_heads}; change one of them"
            )


@dataclass
class TrainConfig:
    """How long, how much at once, and how often to look."""

    # Not part of the identity: a run may grow. A schedule that needs the end names it itself.
    updates: int = execution()
    batches_per_update: int = MISSING
    tokens_per_batch: int = MISSING
    clip_norm: float | None = MISSING
    precision: str = MISSING
    eval_every: int = MISSING
    log_every: int = execution()
    checkpoint_every: int = execution()

    def check(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        for name in (
            "updates", "batches_per_update", "tokens_per_batch", "log_every", "checkpoint_every",
        ):  # fmt: skip
            value = getattr(self, name)
            _check(f"train.{name}", value, value >= 1, "must be at least 1")
        _check(
            "train.eval_every",
            self.eval_every,
            self.eval_every >= 0,
            "must be a number of updates, or 0 for once an epoch",
        )
        _check("train.precision", self.precision, self.precision in ("fp32", "bf16"),
               "must be fp32 or bf16")  # fmt: skip
        if self.clip_norm is not None and self.clip_norm <= 0:
            raise InputError(
                f"train.clip_norm={self.clip_norm} must be above 0; null measures but never clips"
            )


@dataclass
class DecodeConfig:
    """Beam search; ``max_len_a * source + max_len_b`` is the longest translation."""

    beam: int = MISSING
    length_penalty: float = MISSING
    max_len_a: float = MISSING
    max_len_b: float = MISSING
    valid_beam: int = MISSING
    batch_tokens: int = execution()

    def check(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        for name in ("beam", "valid_beam", "batch_tokens"):
            value = getattr(self, name)
            _check(f"decode.{name}", value, value >= 1, "must be at least 1")
        _check("decode.max_len_a", self.max_len_a, self.max_len_a >= 0, "must not be negative")
        _check("decode.max_len_b", self.max_len_b, self.max_len_b >= 1, "must be at least 1")


@dataclass
class RunConfig:
    """One run: a task, model, placement, optimiser and schedule, and a seed."""

    recipe: RecipeConfig = field(default_factory=RecipeConfig)
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    task: dict[str, Any] = MISSING
    placement: dict[str, Any] = MISSING
    norm: dict[str, Any] = MISSING
    optimizer: dict[str, Any] = MISSING
    schedule: dict[str, Any] = MISSING
    probes: dict[str, Any] = execution()
    seed: int = MISSING
    runs_dir: str = execution()
    repeat: bool = execution()
    dry_run: bool = execution()
    device: str = execution()
    threads: int | None = execution()

    def check(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        _check("seed", self.seed, self.seed >= 0, "must not be negative")
        if self.threads is not None:
            _check("threads", self.threads, self.threads >= 1, "must be at least 1, or null")


def conf_dir() -> Path:
    """The shipped configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / "conf"
    return checkout if (package.parent / "pyproject.toml").exists() else package / "conf"


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
        part.check()
    for group, provided in PROVIDED.items():
        check_target(group, getattr(run, group), provided)
    lr = run.optimizer.get("lr", 1.0)
    _check("optimizer.lr", lr, isinstance(lr, (int, float)) and lr > 0, "must be above 0")
    for name, probe in run.probes.items():
        check_target(f"probes.{name}", probe, set())
    return run


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
    try:
        signature = inspect.signature(get_object(spec["_target_"]))
    except (ImportError, ValueError, TypeError) as error:
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
    unknown = set(_typed_keys(plain, RunConfig))
    yield from _schema_keys(RunConfig)
    yield from (key for key in _dotted(plain) if key not in unknown)


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


def scientific(config: Any) -> Any:
    """The part of a config that can change the result: everything but the execution keys."""
    if dataclasses.is_dataclass(config):
        return {
            f.name: scientific(getattr(config, f.name))
            for f in dataclasses.fields(config)
            if not f.metadata.get("execution")
        }
    return config


def readable_name(run: RunConfig) -> str:
    """Name the run for people, say ``pre_ln-adam-inverse_sqrt-warmup1-lr0.001-seed1``."""
    parts = [_snake(run.placement), _snake(run.optimizer), _snake(run.schedule)]
    if "warmup" in run.schedule:
        parts.append(f"warmup{run.schedule['warmup']}")
    if "lr" in run.optimizer:
        parts.append(f"lr{float(run.optimizer['lr']):g}")
    return re.sub(r"[^\w.+-]", "_", "-".join([*parts, f"seed{run.seed}"]))


def _snake(spec: Mapping[str, Any]) -> str:
    name = str(spec["_target_"]).rsplit(".", 1)[-1]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
