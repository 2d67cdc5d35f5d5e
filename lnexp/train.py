"""The training loop: one screen, from the first update to the last.

``t`` counts updates from 1. Nothing here depends on the history of the process: a run that was
interrupted anywhere goes on exactly as if it had not been.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from lnexp.errors import Diverged
from lnexp.probes import Probe, Until, Update

Schedule = Callable[[int], float]
Metrics = dict[str, Any]


class Loss(NamedTuple):
    """Sums over the targets of a batch, so that neither accumulation nor ranks change a gradient."""

    objective: Tensor
    """What is minimised (label-smoothed, say); has a graph."""
    nll: Tensor
    """Negative log-likelihood in nats, without smoothing; detached."""
    n_targets: int


class Task(Protocol):
    """What is learned."""

    @property
    def batches_per_epoch(self) -> int:
        """The same in every epoch."""

    def batches(self, *, start: int) -> Iterator[Any]:
        """Yield batches for ever, from batch number ``start`` (from 0) on."""

    def loss(self, model: Any, batch: Any) -> Loss:
        """Compute the loss of one batch."""

    def evaluate(self, model: Any, split: str, poll: Callable[[], None]) -> tuple[Metrics, str]:
        """Score ``split``: metrics with ``loss`` in nats per target, and samples to read.

        Calls ``poll`` every now and then; it raises if the process should end.
        """


class Record(Protocol):
    """Where the loop writes what it does."""

    def row(self, kind: str, t: int, values: Metrics) -> None:
        """Append a row to the record."""

    def samples(self, split: str, t: int, text: str) -> None:
        """Keep sample outputs."""

    def save(self, state: TrainState) -> None:
        """Write a checkpoint to resume from."""

    def save_weights(self, state: TrainState) -> None:
        """Keep the weights of an evaluation; ``state.best`` says whether it is the best so far."""

    def poll(self, state: TrainState) -> None:
        """Show progress; raise `Interrupted` if the process was told to end."""


class Best(NamedTuple):
    """The evaluation with the lowest validation loss."""

    t: int
    loss: float


@dataclass
class TrainState:
    """Exactly what a checkpoint holds."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    t: int = 0
    tokens: int = 0
    """Real target tokens trained on, EOS in, padding out."""
    seconds: float = 0.0
    """Time spent in updates, over all sessions."""
    evaluated_at: int = 0
    best: Best | None = None


@dataclass(frozen=True)
class TrainPlan:
    """How long, how much at once, and how often to look."""

    seed: int
    updates: int
    batches_per_update: int
    clip_norm: float | None
    """None measures the gradient norm but never clips, as in the paper."""
    precision: str
    eval_every: int
    """Updates; 0 evaluates at the end of each epoch."""
    log_every: int
    checkpoint_every: int


def train(
    state: TrainState,
    task: Task,
    schedule: Schedule,
    probes: Sequence[Probe],
    record: Record,
    plan: TrainPlan,
) -> None:
    """Advance ``state`` to ``plan.updates``. Raises `Diverged`, or `Interrupted` from the record."""
    peak = state.optimizer.defaults["lr"]
    k = plan.batches_per_update
    batches = task.batches(start=state.t * k)
    logged_tokens, logged_seconds = state.tokens, state.seconds

    while True:
        if evaluation_due(state.t, plan, task.batches_per_epoch) and state.evaluated_at < state.t:
            evaluate(state, task, record, keep=True)
        if state.t >= plan.updates or (state.t and state.t % plan.checkpoint_every == 0):
            record.save(state)
        if state.t >= plan.updates:
            return
        record.poll(state)

        t, started = state.t + 1, time.perf_counter()
        lr = peak * schedule(t)
        for group in state.optimizer.param_groups:
            group["lr"] = lr
        due = [probe for probe in probes if t == 1 or t % probe.every == 0]
        now = list(islice(batches, k))
        loss, grad_norm, n_targets = update_weights(state, task, now, due, record, plan)
        state.t = t
        state.tokens += n_targets
        state.seconds += time.perf_counter() - started

        if t == 1 or t % plan.log_every == 0:
            rate = (state.tokens - logged_tokens) / (state.seconds - logged_seconds)
            logged_tokens, logged_seconds = state.tokens, state.seconds
            row = {"loss": loss, "lr": lr, "grad_norm": grad_norm, "tokens_per_second": rate}
            record.row("train", t, row)


def update_weights(
    state: TrainState,
    task: Task,
    batches: Sequence[Any],
    probes: Sequence[Probe],
    record: Record,
    plan: TrainPlan,
) -> tuple[float, float, int]:
    """Do update ``state.t + 1`` on ``batches``, watched by ``probes``.

    Returns loss (nats per target), gradient norm before clipping, and number of targets. Raises
    `Diverged`, with the weights as they were, if the first two are not finite.
    """
    model, t = state.model, state.t + 1
    update = Update(model, state.optimizer, t, lambda: objectives(model, task, batches, t, plan))
    with ExitStack() as until_step:
        with ExitStack() as until_gradients:
            ends = {"gradients": until_gradients, "step": until_step}
            readings = [ends[probe.until].enter_context(probe.watch(update)) for probe in probes]
            loss, update.n_targets = accumulate_gradients(model, task, batches, t, plan)
        _record_readings(record, t, probes, readings, "gradients")
        grad_norm = clip_gradients(model, plan.clip_norm)
        if not (np.isfinite(loss) and np.isfinite(grad_norm)):
            raise Diverged(t, loss, grad_norm)
        state.optimizer.step()
    _record_readings(record, t, probes, readings, "step")
    state.optimizer.zero_grad()
    return loss, grad_norm, update.n_targets


def _record_readings(
    record: Record, t: int, probes: Sequence[Probe], readings: Sequence[Metrics], until: Until
) -> None:
    for probe, reading in zip(probes, readings, strict=True):
        if probe.until == until:
            record.row("probe", t, reading)


def accumulate_gradients(
    model: nn.Module, task: Task, batches: Iterable[Any], t: int, plan: TrainPlan
) -> tuple[float, int]:
    """Leave the gradient of the mean objective per target over ``batches`` in the model.

    Sums are divided by the target count of all the batches, so that the gradient does not depend
    on how targets fall into batches. Returns the mean negative log-likelihood (nats per target,
    unsmoothed) and the number of targets.
    """
    nll, n_targets = torch.zeros((), device=next(model.parameters()).device), 0
    for loss in losses(model, task, batches, t, plan):
        loss.objective.backward()
        nll, n_targets = nll + loss.nll, n_targets + loss.n_targets
    torch._foreach_div_([p.grad for p in model.parameters() if p.grad is not None], n_targets)
    return nll.item() / n_targets, n_targets


def losses(
    model: nn.Module, task: Task, batches: Iterable[Any], t: int, plan: TrainPlan
) -> Iterator[Loss]:
    """Yield the loss of each batch of update ``t``, with the dropout of that update."""
    model.train()
    device = next(model.parameters()).device
    for i, batch in enumerate(batches):
        seed_dropout(plan.seed, t, i)
        with torch.autocast(device.type, torch.bfloat16, enabled=plan.precision == "bf16"):
            loss = task.loss(model, batch)
        yield loss


def objectives(
    model: nn.Module, task: Task, batches: Iterable[Any], t: int, plan: TrainPlan
) -> Iterator[Tensor]:
    """Yield what is minimised, summed over the targets of each batch; for probes."""
    return (loss.objective for loss in losses(model, task, batches, t, plan))


def seed_dropout(seed: int, t: int, batch: int) -> None:
    """Key the random streams by (seed, update, batch in update), never by process history."""
    torch.manual_seed(int(np.random.SeedSequence([seed, t, batch]).generate_state(1, np.uint64)[0]))


def clip_gradients(model: nn.Module, clip_norm: float | None) -> float:
    """Return the norm of the whole gradient, after scaling it down to ``clip_norm`` if above."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm = get_total_norm(grads)
    if clip_norm is not None:
        clip_grads_with_norm_(model.parameters(), clip_norm, norm)
    return norm.item()


def evaluation_due(t: int, plan: TrainPlan, batches_per_epoch: int) -> bool:
    """Whether update ``t`` is one to evaluate after: the ``eval_every``-th, or ends an epoch."""
    if t == 0:
        return False
    if plan.eval_every:
        return t % plan.eval_every == 0
    k = plan.batches_per_update
    return t * k // batches_per_epoch > (t - 1) * k // batches_per_epoch


def evaluate(state: TrainState, task: Task, record: Record, *, keep: bool) -> Metrics:
    """Score the validation split; ``keep`` the weights, as the best if no loss was lower so far."""
    state.model.eval()
    with torch.no_grad():
        metrics, samples = task.evaluate(state.model, "valid", lambda: record.poll(state))
    record.row("valid", state.t, metrics)
    record.samples("valid", state.t, samples)
    state.evaluated_at = state.t
    loss = metrics["loss"]
    if keep:
        if np.isfinite(loss) and (state.best is None or loss < state.best.loss):
            state.best = Best(state.t, loss)
        record.save_weights(state)
    return metrics
