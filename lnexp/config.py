"""The schema of a run's config, and what of it makes a run that run.

Values are stated once, in ``conf/``; these dataclasses give them types and rules, never defaults.
A field marked as an execution key cannot change a result and is no part of a run's identity.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from lnexp.errors import InputError
from lnexp.identity import canonical


def execution() -> Any:
    """Mark a field that cannot change a result, such as where files lie."""
    return field(default=MISSING, metadata={"execution": True})


def check(key: str, value: Any, ok: bool, rule: str) -> None:
    """Raise `InputError` saying ``key=value rule`` unless ``ok``."""
    if not ok:
        raise InputError(f"{key}={value} {rule}")


@dataclass
class RecipeConfig:
    """What the experiments point at: the numbers that depend on data and model."""

    name: str = MISSING
    # What a run gets of these two stands in its optimizer and its schedule, and counts there.
    lr: float = execution()
    warmup: int = execution()
    """Updates of warm-up where there is one, and the anchor of the decay where there is none."""


@dataclass
class DataConfig:
    """Parallel text: where it comes from, how it is prepared, and how it is cut into pieces.

    Where it comes from and what is done to it do not count: the text that comes out does.  Their
    rules are those of `Source`, `Preparation` and `Vocabulary` in `lnexp.data`.
    """

    source: str = execution()
    hub: str | None = execution()
    hub_config: str | None = execution()
    revision: str | None = execution()
    archive: str | None = execution()
    path: str | None = execution()
    train: Any = execution()
    valid: Any = execution()
    test: Any = execution()
    split_names: dict[str, list[str]] = execution()
    cache_dir: str | None = execution()
    prepared: bool = execution()
    tokenize: str | None = execution()
    lowercase: bool = execution()
    min_words: int | None = execution()
    max_words: int | None = execution()
    max_ratio: float | None = execution()
    valid_every: int | None = execution()
    codes: str | None = execution()
    src: str = MISSING
    tgt: str = MISSING
    subword: str = MISSING
    vocab_size: int = MISSING
    vocab_lines: int | None = MISSING
    max_length: int = MISSING

    def validate(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        check("data.vocab_size", self.vocab_size, self.vocab_size >= 8, "must be at least 8")
        check("data.max_length", self.max_length, self.max_length >= 2, "must be at least 2")
        if self.vocab_lines is not None:
            check("data.vocab_lines", self.vocab_lines, self.vocab_lines >= 1,
                  "must be at least 1, or null")  # fmt: skip
        for name in ("train", "valid", "test"):
            value = getattr(self, name)
            files = [value] if isinstance(value, str) else value
            ok = files is None or (
                isinstance(files, list) and bool(files) and all(isinstance(f, str) for f in files)
            )
            check(f"data.{name}", value, ok, "must be a file, or a list of files: [a,b]")
            names = self.split_names.get(name)
            check(f"data.split_names.{name}", names, bool(names), "must be a list of names: [a,b]")
        check("data.tgt", self.tgt, self.src != self.tgt, "must differ from data.src")


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

    def validate(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        for name in ("d_model", "d_ff", "n_heads", "n_layers"):
            value = getattr(self, name)
            check(f"model.{name}", value, value >= 1, "must be at least 1")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            value = getattr(self, name)
            check(f"model.{name}", value, 0 <= value < 1, "must be in [0, 1)")
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
    keep_weights: int = execution()

    def validate(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        for name in (
            "updates", "batches_per_update", "tokens_per_batch", "log_every", "checkpoint_every",
        ):  # fmt: skip
            value = getattr(self, name)
            check(f"train.{name}", value, value >= 1, "must be at least 1")
        check(
            "train.eval_every",
            self.eval_every,
            self.eval_every >= 0,
            "must be a number of updates, or 0 for once an epoch",
        )
        check(
            "train.keep_weights",
            self.keep_weights,
            self.keep_weights >= 0,
            "must be a number of evaluations, or 0 to keep the best weights alone",
        )
        check("train.precision", self.precision, self.precision in ("fp32", "bf16"),
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

    def validate(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        for name in ("beam", "valid_beam", "batch_tokens"):
            value = getattr(self, name)
            check(f"decode.{name}", value, value >= 1, "must be at least 1")
            fits = value <= 1000 or name == "batch_tokens"
            check(f"decode.{name}", value, fits, "must be at most 1000")
        penalty = self.length_penalty
        check("decode.length_penalty", penalty, -10 <= penalty <= 10, "must be in [-10, 10]")
        check("decode.max_len_a", self.max_len_a, self.max_len_a >= 0, "must not be negative")
        check("decode.max_len_b", self.max_len_b, 1 <= self.max_len_b <= 1e5, "must be in [1, 1e5]")
        check("decode.max_len_a", self.max_len_a, self.max_len_a <= 1e3, "must be at most 1000")


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
    # The weights count, not where they lie. Run directories of before this key do not have it.
    init_from: str | None = field(default=None, metadata={"execution": True})
    runs_dir: str = execution()
    repeat: bool = execution()
    dry_run: bool = execution()
    device: str = execution()
    threads: int | None = execution()

    def validate(self) -> None:
        """Raise `InputError` for the first value that breaks a rule."""
        check("seed", self.seed, 0 <= self.seed < 2**63, "must be from 0 to 2^63 - 1")
        if self.threads is not None:
            check("threads", self.threads, 1 <= self.threads <= 1024, "must be 1 to 1024, or null")


def conf_dir() -> Path:
    """The shipped configs: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / "conf"
    return checkout if (package.parent / "pyproject.toml").exists() else package / "conf"


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
        parts.append(f"warmup{canonical(run.schedule['warmup'])}")
    if "lr" in run.optimizer:
        parts.append(f"lr{float(run.optimizer['lr']):g}")
    return re.sub(r"[^\w.+-]", "_", "-".join([*parts, f"seed{run.seed}"]))


def _snake(spec: Mapping[str, Any]) -> str:
    name = str(spec["_target_"]).rsplit(".", 1)[-1]
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
