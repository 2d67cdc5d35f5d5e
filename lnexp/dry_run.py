"""What a run would be, without training it: sizes, cost, the learning-rate curve, the directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from torch import nn

from lnexp.build import build, build_plan
from lnexp.config import RunConfig, readable_name
from lnexp.record import say_plain
from lnexp.run_dir import planned_path
from lnexp.train import Schedule

BLOCKS = " ▁▂▃▄▅▆▇█"


def dry_run(cfg: RunConfig, resolved: dict[str, Any]) -> Path:
    """Print what `train_run` would do, and return the directory it would use."""
    parts, plan = build(cfg, say_plain), build_plan(cfg)
    task, model, optimizer = parts.task, parts.state.model, parts.state.optimizer
    vocab_size, peak = task.tokenised.tokenizer.vocab_size, optimizer.defaults["lr"]
    parameters = sum(p.numel() for p in model.parameters())
    described = task.describe()
    tokens = described["target_tokens_per_epoch"] / described["batches_per_epoch"]
    tokens *= plan.batches_per_update
    updates_per_epoch = described["batches_per_epoch"] / plan.batches_per_update
    memory = estimate_memory(cfg, parameters, vocab_size)
    print(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True), end="")
    rows = {
        "parameters": f"{parameters:,}",
        "optimiser": f"{type(optimizer).__name__}, peak lr {peak:g}",
        "pairs": ", ".join(f"{n:,} {split}" for split, n in described["pairs"].items()),
        "left out of train": ", ".join(f"{n} {r}" for r, n in task.dropped.items()) or "none",
        "tokens an epoch": f"{task.tokens_per_epoch:,} target tokens, {updates_per_epoch:,.1f} updates",
        "epochs": f"{plan.updates / updates_per_epoch:,.1f} ({plan.updates:,} updates)",
        "FLOPs an update": f"{flops_per_update(model, tokens):.2e} (about {tokens:,.0f} target tokens)",
        "memory": f"about {memory / 2**20:,.0f} MiB (weights, gradients, optimiser, activations)",
        "learning rate": lr_line(parts.schedule, peak, plan.updates),
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")
    return planned_path(
        Path(cfg.runs_dir).expanduser(), cfg.recipe.name, readable_name(cfg), parts.identity
    )


def flops_per_update(model: nn.Module, target_tokens: float) -> float:
    """Floating-point operations of one update: 6 a weight and token (Kaplan et al., 2020).

    Source and target are taken to be equally long, and every weight to meet one of them; the
    attention scores, small at sentence length, are left out.
    """
    weights = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    return 6.0 * weights * target_tokens


def estimate_memory(cfg: RunConfig, parameters: int, vocab_size: int) -> float:
    """Bytes at the peak of an update: a rough estimate from sizes, without what torch itself takes."""
    m, tokens = cfg.model, cfg.train.tokens_per_batch
    moments = {"SGD": 0}.get(str(cfg.optimizer["_target_"]).rsplit(".", 1)[-1], 2)
    static = 4.0 * parameters * (2 + moments)
    per_layer = (2 + 3) * 8 * m.d_model + 2 * 2 * m.d_ff
    return static + 4.0 * tokens * (m.n_layers * per_layer + 3 * vocab_size)


def lr_line(schedule: Schedule, peak: float, updates: int, width: int = 40) -> str:
    """Draw the learning rate over the run in one line of blocks."""
    ts = [1 + round(i * (updates - 1) / (width - 1)) for i in range(width)] if updates > 1 else [1]
    factors = [schedule(t) for t in ts]
    top = max(max(factors), 1e-30)
    line = "".join(BLOCKS[round(f / top * (len(BLOCKS) - 1))] for f in factors)
    return f"{line}  update 1: {peak * schedule(1):.2e}, last: {peak * schedule(updates):.2e}"
