"""`lnexp probe`: the first update of a run, watched by its probes; nothing is trained.

The batches, the dropout and the code are those of update 1 of `lnexp train` with the same keys. A
measurement is one file, ``<runs_dir>/<recipe>/probes/<readable name>-<hash>.json``; asked for
again, it is read and not made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lnexp.app import config_command
from lnexp.atomic import atomic_write
from lnexp.build import (
    Parts,
    build,
    build_plan,
    build_vocabulary,
    identity,
    load_text,
    make,
)
from lnexp.config import RunConfig, readable_name
from lnexp.errors import Diverged, InputError
from lnexp.identity import canonical, identity_hash
from lnexp.probes import Probe
from lnexp.provenance import code_state, session
from lnexp.record import say_plain
from lnexp.report.readings import is_reading, read_measurement, readings_table
from lnexp.run_dir import RESULT_SCHEMA, SCHEMA, finite
from lnexp.train import TrainState, update_weights

HELP = """usage: lnexp probe [+exp=NAME] [recipe=NAME] [KEY=VALUE ...] [-m]

Measure the first update of a run with its probes, at initialisation or at init_from=RUN, without
training. An update is train.batches_per_update batches of train.tokens_per_batch.

  lnexp probe +exp=postln_nowarmup
  lnexp probe placement=deep_norm 'probes=[grad_norm,stream]' train.batches_per_update=10
  lnexp probe +exp=postln_warmup init_from=RUN@best
  lnexp probe +exp=fig3_layers                       # the paper's Figure 3, ten seeds

Groups and keys are those of `lnexp train`: see lnexp train --help.
"""


def probe_command(arguments: list[str]) -> int:
    """Measure what the overrides describe; return the exit code."""
    if any(word in ("-h", "--help") for word in arguments):
        print(HELP, end="")
        return 0
    return config_command("probe", arguments, measure)


def measure(cfg: RunConfig, resolved: dict[str, Any], experiments: list[str]) -> Path:
    """Measure one run's first update, or find the measurement; return its file."""
    if cfg.dry_run:
        raise InputError("dry_run=true is for lnexp train; leave it out")
    if not cfg.probes:
        raise InputError("no probe is left to measure; name some: 'probes=[grad_norm,stream]'")
    if cfg.init_from is None:  # what is there already is found without making the network
        vocabulary = build_vocabulary(cfg)
        corpus, _ = load_text(cfg, vocabulary, say_plain)
        path, full, _ = whereabouts(cfg, identity(cfg, corpus, vocabulary))
        parts = None
    else:
        parts = build(cfg, say_plain)
        path, full, _ = whereabouts(cfg, parts.identity)
    say_plain(headline(cfg))
    found = read_measurement(path)
    whole = (found.get("hash"), found.get("result_schema")) == (full, RESULT_SCHEMA)
    if whole and is_reading(found.get("readings")) and not cfg.repeat:
        say_plain("measured before; repeat=true measures again")
    else:
        parts = parts or build(cfg, lambda line: None)
        freeze_unseen(parts.state, parts.probes, spare=cfg.train.clip_norm is None)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"runs_dir: cannot write {path.parent} ({error.strerror}); set runs_dir=DIR"
            ) from None
        path, full, who = whereabouts(cfg, parts.identity)
        found = {
            "schema": SCHEMA, "result_schema": RESULT_SCHEMA, "hash": full,
            "identity": canonical(who), **take(parts, cfg), "config": resolved,
            "data": parts.task.corpus.origin, "session": session(experiments, code_state()),
        }  # fmt: skip
        atomic_write(path, json.dumps(finite(found), ensure_ascii=False) + "\n")
    print(readings_table(found["readings"]))
    return path


def whereabouts(cfg: RunConfig, run: dict[str, Any]) -> tuple[Path, str, dict[str, Any]]:
    """File, hash and identity of a measurement of the run whose identity is ``run``."""
    # What is looked at is part of what a measurement is; how often it would be, in training, not.
    looks = {n: {k: v for k, v in p.items() if k != "every"} for n, p in cfg.probes.items()}
    who = {**run, "probes": looks}
    full = identity_hash(who)
    folder = Path(cfg.runs_dir).expanduser() / cfg.recipe.name / "probes"
    return folder / f"{readable_name(cfg)[:111]}-{full[:8]}.json", full, who


def headline(cfg: RunConfig) -> str:
    """Say in a line what is measured: network, weights and batches."""
    m, t = cfg.model, cfg.train
    name = readable_name(cfg).split("-")[0]
    of = f"the weights of {cfg.init_from}" if cfg.init_from else "at initialisation"
    return (
        f"{name}, {m.n_layers} layers a stack, d {m.d_model}, seed {cfg.seed}, {of}; update 1 of "
        f"{t.batches_per_update} x {t.tokens_per_batch} padded tokens, "
        f"lr {cfg.optimizer['lr'] * make(cfg.schedule)(1):g}"
    )


class Readings:
    """The `lnexp.train.Record` of an update that is only looked at."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def row(self, kind: str, t: int, values: dict[str, Any]) -> None:
        """Keep what the probes read."""
        self.values |= values

    def samples(self, split: str, t: int, text: str) -> None:
        """Nothing is evaluated."""

    def save(self, state: TrainState) -> None:
        """Nothing is kept."""

    def save_weights(self, state: TrainState) -> None:
        """Nothing is kept."""

    def poll(self, state: TrainState) -> None:
        """One update is soon done."""


def take(parts: Parts, cfg: RunConfig) -> dict[str, Any]:
    """Do update 1 and return ``readings``, ``loss`` (nats per target) and ``n_targets``.

    The weights that it moves are given up.
    """
    plan, state = build_plan(cfg), parts.state
    for group in state.optimizer.param_groups:
        group["lr"] = state.optimizer.defaults["lr"] * parts.schedule(1)
    batches = list(islice(parts.task.batches(start=0), plan.batches_per_update))
    record = Readings()
    try:
        loss, _, n_targets = update_weights(state, parts.task, batches, parts.probes, record, plan)
    except Diverged as error:
        loss, n_targets = error.loss, None
    return {"readings": record.values, "loss": loss, "n_targets": n_targets}


def freeze_unseen(state: TrainState, probes: Sequence[Probe], *, spare: bool) -> None:
    """Spare the gradients that no probe looks at, where every probe names its parameters.

    Not unless ``spare``: clipping needs the norm of all. Raises `InputError` where a probe names
    none.
    """
    patterns = [getattr(probe, "params", None) for probe in probes]
    named = dict(state.model.named_parameters())
    for pattern in filter(None, patterns):
        if not any(re.search(pattern, name) for name in named):
            some = next(name for name in named if "_blocks" in name)
            raise InputError(
                f"probes: params={pattern!r} matches no parameter; names are like {some}"
            )
    if spare and None not in patterns:
        for name, p in named.items():
            p.requires_grad_(any(re.search(str(pattern), name) for pattern in patterns))
