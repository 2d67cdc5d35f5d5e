"""`lnexp eval RUN`: decode and score the checkpoints of a run again, from its directory."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any, cast

import torch
from hydra.utils import get_object
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lnexp.build import build
from lnexp.checkpoint import load_model
from lnexp.config import RunConfig
from lnexp.errors import InputError
from lnexp.model.transformer import Transformer
from lnexp.record import complain, scores_line
from lnexp.run_dir import RunDir, identity_hash
from lnexp.session import check_tokenizer
from lnexp.validate import PROVIDED, validate


def eval_command(arguments: list[str]) -> int:
    """Parse the command line, score, print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="lnexp eval", description="Decode and score a checkpoint of a run again."
    )
    parser.add_argument("run", type=Path, help="a run directory, .../v1")
    parser.add_argument("--checkpoint", choices=("last", "best"), default="last")
    parser.add_argument("--split", choices=("train", "valid", "test"), default="test")
    parser.add_argument("--data-path", metavar="DIR", help="where the data lie now, if they moved")
    parser.add_argument("--cache-dir", metavar="DIR", help="where to keep tokenised text")
    parser.add_argument("--device", default=None, help="auto, cpu, cuda, ... (as in training)")
    parser.add_argument("--trust", action="store_true", help="load classes from outside lnexp")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")
    options = parser.parse_args(arguments)
    try:
        scores = score_run(
            RunDir(options.run), options.checkpoint, options.split,
            data_path=options.data_path, cache=options.cache_dir, device=options.device,
            trust=options.trust,
        )  # fmt: skip
    except InputError as error:
        complain(str(error))
        return 2
    if options.json:
        print(json.dumps(scores, indent=1, ensure_ascii=False))
    else:
        print(f"{options.split} of update {scores['t']}: {scores_line(scores)}")
        print(f"BLEU {scores['bleu_signature']}\nchrF {scores['chrf_signature']}")
    return 0


def score_run(
    run: RunDir, checkpoint: str, split: str, *,
    data_path: str | None, cache: str | None, device: str | None, trust: bool,
) -> dict[str, Any]:  # fmt: skip
    """Score one checkpoint on one split, as training did.

    Raises `InputError` where the directory, its data or its checkpoint is not what it was.
    """
    cfg = load_config(run, trust=trust)
    if data_path:
        cfg.data.path = data_path
        for name in ("train", "valid", "test"):  # the files that were named, at their new place
            files = getattr(cfg.data, name) or []
            files = [files] if isinstance(files, str) else files
            setattr(cfg.data, name, [Path(f).name for f in files] or None)
    if cache:
        cfg.data.cache_dir = cache
    if device:
        cfg.device = device
    parts = build(cfg, lambda line: print(line, file=sys.stderr))
    if run.read_json("identity").get("hash") != identity_hash(parts.identity):
        raise InputError(
            f"{run.path}: the data or the config differ from those the run was trained on; "
            "name the right data with --data-path"
        )
    task, model = parts.task, cast(Transformer, parts.state.model)
    check_tokenizer(run, task.tokenised.tokenizer.model)
    t = load_model(model, checkpoint_file(run, checkpoint), parts.device)
    model.eval()
    with torch.no_grad():
        scores, _ = task.evaluate(model, split, lambda: None)
    return {"t": t, "checkpoint": checkpoint, "split": split, **scores}


def checkpoint_file(run: RunDir, which: str) -> Path:
    """Path of the ``last`` or the ``best`` weights."""
    if which == "last":
        return run.last_checkpoint
    result = run.read_json("result")
    if "best" in result:
        last = result["best"]["t"] == result["updates"]
        return run.last_checkpoint if last else run.best_checkpoint(result["best"]["t"])
    found = sorted(run.checkpoints.glob("best-*.pt"))  # of a run that has not ended
    return found[-1] if found else run.last_checkpoint


def load_config(run: RunDir, *, trust: bool) -> RunConfig:
    """Read and check the config of a run directory, which may be somebody else's."""
    if not run.config_file.exists():
        raise InputError(f"{run.path} holds no config.yaml; name a run directory, .../v1")
    try:
        config = OmegaConf.load(run.config_file)
    except (OSError, YAMLError, OmegaConfBaseException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{run.config_file} cannot be read ({reason})") from None
    plain: Any = OmegaConf.to_container(config)
    if not isinstance(plain, dict) or not set(PROVIDED) <= plain.keys():
        raise InputError(f"{run.config_file} is not the config of a run; it was cut or is foreign")
    named = {group: plain.get(group) for group in PROVIDED} | dict(plain.get("probes") or {})
    for group, spec in named.items():
        target = str((spec or {}).get("_target_", ""))
        if not trust and not _is_ours(target):
            raise InputError(
                f"{run.config_file}: {group}._target_={target} is not part of lnexp or torch; "
                "add --trust if you trust this directory"
            )
    plain.pop("hydra", None)
    return validate(OmegaConf.create(plain))


def _is_ours(target: str) -> bool:
    """Whether ``target`` is a class defined in lnexp or torch, not merely reachable from there."""
    prefixes = ("lnexp.", "torch.optim.", "torch.nn.")
    if not target.startswith(prefixes):
        return False
    try:
        found = get_object(target)
    except (ImportError, ValueError, TypeError):
        return False
    return isinstance(found, type) and found.__module__.startswith(prefixes)
