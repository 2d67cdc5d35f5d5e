"""From a validated config to objects: the composition root.

Below this module nothing sees a config.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from hydra.utils import get_object
from torch import nn

from lnexp.checkpoint import load_model
from lnexp.config import RunConfig, scientific
from lnexp.data.cache import TokenisedCorpus, tokenised
from lnexp.data.corpus import Corpus
from lnexp.data.preparation import Preparation
from lnexp.data.sources import Source, load_corpus
from lnexp.data.tokenizer import PAD
from lnexp.data.vocabulary import Vocabulary
from lnexp.errors import InputError
from lnexp.kept_weights import find as find_checkpoint
from lnexp.model.init import profile
from lnexp.model.placement import Placement, StackShape
from lnexp.model.transformer import ModelShape, Transformer
from lnexp.probes import Probe
from lnexp.report.find import resolve
from lnexp.run_dir import RunDir, latest_version
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
    vocabulary = build_vocabulary(cfg)
    corpus, text = load_text(cfg, vocabulary, say)
    task = build_task(cfg, corpus, text, device)
    model = build_model(cfg, text.tokenizer.vocab_size).to(device)
    who = identity(cfg, corpus, vocabulary)
    if cfg.init_from is None:
        profile(model, lambda: task.loss(model, next(task.batches(start=0))))
    else:
        source = find_run(cfg.init_from, Path(cfg.runs_dir).expanduser())
        who["init_from"] = load_initial(*source, model, text.tokenizer.model, device)
    state = TrainState(model, build_optimizer(cfg, model))
    return Parts(device, schedule, probes, task, state, who)


def load_text(
    cfg: RunConfig, vocabulary: Vocabulary, say: Callable[[str], None]
) -> tuple[Corpus, TokenisedCorpus]:
    """Prepare and tokenise the text of a run, or find it where that was done before."""
    d = cfg.data
    source = Source(
        name=cfg.recipe.name, kind=d.source, path=d.path, archive=d.archive,
        hub=d.hub, hub_config=d.hub_config, revision=d.revision,
        train=d.train, valid=d.valid, test=d.test, split_names=d.split_names,
        src=d.src, tgt=d.tgt,
    )  # fmt: skip
    preparation = build_preparation(cfg)
    where, workers = cache_dir(cfg), cfg.threads or n_cores()
    corpus = load_corpus(source, preparation, cache_dir=where, workers=workers, say=say)
    return corpus, tokenised(corpus, vocabulary, cache_dir=where, workers=workers, say=say)


def build_preparation(cfg: RunConfig) -> Preparation:
    """What is done to raw text."""
    d = cfg.data
    return Preparation(
        tokenize=d.tokenize, lowercase=d.lowercase, min_words=d.min_words, max_words=d.max_words,
        max_ratio=d.max_ratio, valid_every=d.valid_every, prepared=d.prepared,
    )  # fmt: skip


def n_cores() -> int:
    """How many this process may use."""
    known = getattr(os, "sched_getaffinity", None)  # Linux; a job may own a part of its node
    return len(known(0)) if known else os.cpu_count() or 1


def build_vocabulary(cfg: RunConfig) -> Vocabulary:
    """Which pieces the text is to be cut into."""
    d = cfg.data
    codes = None if d.codes is None else read_codes(d.codes)
    return Vocabulary(d.subword, d.vocab_size, codes, d.vocab_lines)


def read_codes(name: str) -> bytes:
    """The content of ``data.codes``, unzipped."""
    path = Path(name).expanduser()
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"data.codes={name} cannot be read ({reason}); name a file of subword-nmt merges"
        ) from None


def cache_dir(cfg: RunConfig) -> Path:
    """Where tokenised text lies."""
    if cfg.data.cache_dir:
        return Path(cfg.data.cache_dir).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lnexp"


def identity(cfg: RunConfig, corpus: Corpus, vocabulary: Vocabulary) -> dict[str, Any]:
    """What makes this run this run: its scientific keys, its text and the merges it was given."""
    codes = None if vocabulary.codes is None else hashlib.sha256(vocabulary.codes).hexdigest()
    text = {"tokenised": corpus.tokenised, "lowercased": corpus.lowercased, "codes": codes}
    return {**scientific(cfg), "data_fingerprint": corpus.fingerprint, "text": text}


def pick_device(name: str) -> torch.device:
    """Resolve ``device=``."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split(". ")[0].splitlines()[0][:120]
        raise InputError(
            f"device={name} cannot be used ({reason}); use auto, cpu or cuda"
        ) from None
    if device.type == "meta":
        raise InputError(
            f"device={name} cannot be used (it holds no numbers); use auto, cpu or cuda"
        )
    return device


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
            decode_options=decode,
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


def find_run(init_from: str, runs_dir: Path) -> tuple[RunDir, str]:
    """The run and the checkpoint that ``init_from=RUN[@CHECKPOINT]`` names.

    RUN is a directory, or a part of its name or hash that no other run in ``runs_dir`` has.
    """
    name, at, checkpoint = init_from.rpartition("@")
    if not at or os.sep in checkpoint:  # the @ is a directory's
        name, checkpoint = init_from, ""
    if not name:
        raise InputError(f"init_from={init_from}: name a run, RUN or RUN@CHECKPOINT, or null")
    path = Path(name).expanduser()
    if not path.is_dir() and os.sep not in name and runs_dir.is_dir():
        path = resolve([name], [str(runs_dir)], time.time(), lambda line: None)[0].path
    run = RunDir(path if (path / "config.yaml").exists() else path / f"v{latest_version(path)}")
    if not run.config_file.exists():
        raise InputError(f"init_from={init_from}: {name} is no run directory; name one, .../v1")
    return run, checkpoint or "last"


def load_initial(
    run: RunDir, checkpoint: str, model: nn.Module, vocabulary: bytes, device: torch.device
) -> str:
    """Give ``model`` the weights of ``checkpoint`` of ``run``; return their SHA-256."""
    if not run.tokenizer_file.exists() or run.tokenizer_file.read_bytes() != vocabulary:
        raise InputError(
            f"init_from={run.path}: that run has another vocabulary; take its recipe and data"
        )
    try:
        load_model(model, find_checkpoint(run, checkpoint).paths, device)
    except InputError as error:
        if "does not fit the model" in str(error):
            raise InputError(
                f"init_from={run.path}: its weights do not fit this model; take model and "
                f"placement from {run.config_file}"
            ) from None
        reason = str(error).replace("--checkpoint=", "init_from=RUN@")
        raise InputError(reason.replace("--checkpoint ", "init_from=RUN@")) from None
    digest = hashlib.sha256()
    for key, value in model.state_dict().items():
        digest.update(key.encode() + value.cpu().numpy().tobytes())
    return digest.hexdigest()


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
