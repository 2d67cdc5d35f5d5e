"""From a validated config to objects: the composition root.

Below this module nothing sees a config.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from hydra.utils import get_object
from torch import nn

from lnexp.config import RunConfig, scientific
from lnexp.data.cache import TokenisedCorpus, tokenised
from lnexp.data.sources import Corpus, load_corpus
from lnexp.data.tokenizer import PAD
from lnexp.errors import InputError
from lnexp.model.placement import Placement, StackShape
from lnexp.model.transformer import ModelShape, Transformer
from lnexp.probes import Probe
from lnexp.tasks.translation import DecodeOptions, Translation
from lnexp.train import Schedule, TrainPlan, TrainState


def make(spec: Mapping[str, Any], **provided: Any) -> Any:
    """Call the class that ``spec`` names with its arguments and those that lnexp provides."""
    arguments = {k: v for k, v in spec.items() if k != "_target_"}
    try:
        return get_object(spec["_target_"])(**arguments, **provided)
    except InputError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{spec['_target_']} does not take {arguments}: {reason}") from error


@dataclass
class Parts:
    """Everything that a config describes, put together and not yet trained."""

    device: torch.device
    schedule: Schedule
    probes: list[Probe]
    task: Translation
    state: TrainState
    identity: dict[str, Any]


def build(cfg: RunConfig, say: Callable[[str], None]) -> Parts:
    """Put a run together; ``say`` hears of the text being tokenised.

    Raises `InputError` for whatever in the config or the data cannot be used; what is cheap to
    refuse is refused before the data are read.
    """
    if cfg.threads:
        torch.set_num_threads(cfg.threads)
    device = pick_device(cfg.device)
    schedule, probes = make(cfg.schedule), [make(spec) for spec in cfg.probes.values()]
    corpus = load_data(cfg)
    text = tokenised(corpus, vocab_size=cfg.data.vocab_size, cache_dir=cache_dir(cfg), say=say)
    task = build_task(cfg, corpus, text, device)
    model = build_model(cfg, text.tokenizer.vocab_size).to(device)
    state = TrainState(model, build_optimizer(cfg, model))
    return Parts(device, schedule, probes, task, state, identity(cfg, corpus))


def load_data(cfg: RunConfig) -> Corpus:
    """Read the raw text of a run."""
    d = cfg.data
    return load_corpus(
        name=cfg.recipe.name,
        source=d.source, hub=d.hub, hub_config=d.hub_config, revision=d.revision,
        path=d.path, train=d.train, valid=d.valid, test=d.test,
        src=d.src, tgt=d.tgt, split_names=d.split_names, cache_dir=cache_dir(cfg),
    )  # fmt: skip


def cache_dir(cfg: RunConfig) -> Path:
    """Where tokenised text lies."""
    if cfg.data.cache_dir:
        return Path(cfg.data.cache_dir).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lnexp"


def identity(cfg: RunConfig, corpus: Corpus) -> dict[str, Any]:
    """What makes this run this run: its scientific keys and the content of its data."""
    return {**scientific(cfg), "data_fingerprint": corpus.fingerprint}


def pick_device(name: str) -> torch.device:
    """Resolve ``device=``."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split(". ")[0].splitlines()[0][:120]
        raise InputError(
            f"device={name} cannot be used ({reason}); use auto, cpu or cuda"
        ) from None


def build_task(
    cfg: RunConfig, corpus: Corpus, text: TokenisedCorpus, device: torch.device
) -> Translation:
    """Make the task of a run."""
    decode = DecodeOptions(
        beam=cfg.decode.beam,
        length_penalty=cfg.decode.length_penalty,
        max_len_a=cfg.decode.max_len_a,
        max_len_b=cfg.decode.max_len_b,
        batch_tokens=cfg.decode.batch_tokens,
    )
    return cast(
        Translation,
        make(
            cfg.task,
            corpus=corpus,
            tokenised=text,
            tokens_per_batch=cfg.train.tokens_per_batch,
            max_length=cfg.data.max_length,
            seed=cfg.seed,
            device=device,
            decode=decode,
            valid_beam=cfg.decode.valid_beam,
        ),
    )


def build_model(cfg: RunConfig, vocab_size: int) -> Transformer:
    """Make the model; its initial weights depend on the seed and the sizes alone."""
    torch.manual_seed(cfg.seed)
    m = cfg.model
    shape = ModelShape(
        d_model=m.d_model, d_ff=m.d_ff, n_heads=m.n_heads, n_layers=m.n_layers,
        dropout=m.dropout, attention_dropout=m.attention_dropout,
        activation_dropout=m.activation_dropout,
    )  # fmt: skip

    def norm(width: int) -> nn.Module:
        return cast(nn.Module, make(cfg.norm, normalized_shape=width))

    def placement(stack: StackShape) -> Placement:
        return cast(Placement, make(cfg.placement, shape=stack, norm=norm))

    return Transformer(shape, vocab_size, PAD, placement)


def build_optimizer(cfg: RunConfig, model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimiser; its ``lr`` is the peak of the schedule."""
    return cast(torch.optim.Optimizer, make(cfg.optimizer, params=model.parameters()))


def build_plan(cfg: RunConfig) -> TrainPlan:
    """Gather what the loop needs to know."""
    t = cfg.train
    return TrainPlan(
        seed=cfg.seed, updates=t.updates, batches_per_update=t.batches_per_update,
        clip_norm=t.clip_norm, precision=t.precision, eval_every=t.eval_every,
        log_every=t.log_every, checkpoint_every=t.checkpoint_every,
    )  # fmt: skip
