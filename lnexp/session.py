"""One session of a run: find it, train it as far as it goes, score it, record the outcome."""

from __future__ import annotations

import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml

from lnexp.atomic import atomic_write
from lnexp.build import Parts, build, build_plan
from lnexp.checkpoint import load_model, load_state
from lnexp.config import RunConfig, readable_name
from lnexp.errors import Diverged, InputError, Interrupted
from lnexp.identity import identity_hash
from lnexp.kept_weights import forget_after
from lnexp.provenance import code_state, git_label, session
from lnexp.record import Recorder, Signals, say_plain, scores_line
from lnexp.run_dir import RunDir, open_run, write_status
from lnexp.tasks.translation import Translation
from lnexp.train import TrainPlan, TrainState, evaluate, evaluation_due, train


def train_run(cfg: RunConfig, resolved: dict[str, Any], experiments: list[str]) -> Path:
    """Train the run that ``cfg`` describes, or go on with it, and return its directory.

    ``resolved`` is the same config as plain data, for the record. Raises `Interrupted` after the
    state was saved.
    """
    parts = build(cfg, say_plain)
    task, state, who = parts.task, parts.state, parts.identity
    vocabulary = task.tokenised.tokenizer.model

    run, found = open_run(
        Path(cfg.runs_dir).expanduser(),
        cfg.recipe.name,
        readable_name(cfg),
        who,
        cfg.train.updates,
        cfg.repeat,
    )
    try:
        if found == "finished":
            _say_finished(run, cfg.train.updates)
            return run.path
        code = code_state()
        check_tokenizer(run, vocabulary)
        _restore(state, run, parts.device, cfg.train.updates)
        atomic_write(run.tokenizer_file, vocabulary)
        _write_provenance(run, resolved, experiments, code, task.corpus.origin)
        with (
            Signals() as signals,
            Recorder(run, cfg.train.updates, signals, cfg.train.keep_weights) as recorder,
        ):
            parameters = sum(p.numel() for p in state.model.parameters())
            recorder.say(f"run {run.path}" + (f", from update {state.t}" if state.t else ""))
            recorder.say(f"{parameters:,} parameters on {parts.device}; {_data_line(task)}")
            result = _train_and_score(parts, recorder, build_plan(cfg))
            result |= {"config_hash": identity_hash(who), "git": git_label(code)}
            run.write_json("result", result)
            write_status(run, result["outcome"], state.t, cfg.train.updates)
            if signals.received is not None:  # too late for this run, not for a sweep
                raise Interrupted(signals.received)
        return run.path
    finally:
        run.release()


def _train_and_score(parts: Parts, recorder: Recorder, plan: TrainPlan) -> dict[str, Any]:
    """Train to the end or to divergence, and say how it ended in the form of ``result.json``."""
    run, state, task = recorder.run, parts.state, parts.task
    unigram = task.unigram_entropy()
    result: dict[str, Any] = {"outcome": "finished", "updates": 0, "unigram_entropy": unigram}
    try:
        try:
            train(state, task, parts.schedule, parts.probes, recorder, plan)
        except Interrupted:
            # Only here: once trained, the state is on disk, and scoring may load other weights.
            if state.t > 0:
                recorder.save(state)
            raise
        result |= _scores(state, task, recorder, plan)
        # Adam can leave weights whose loss is not finite although every update's was.
        loss = result["valid_loss"]
        result["learned"] = loss is not None and loss < unigram
        if not result["learned"]:
            recorder.say(
                f"not learned: validation loss {loss and round(loss, 3)} is no better than the "
                f"unigram entropy of the targets, {unigram:.3f} nats"
            )
    except Diverged as error:
        recorder.say(f"diverged at {error}")
        result |= {"outcome": "diverged", "learned": False, "valid_loss": None, "test": None}
        result |= {"valid_loss_smoothed_bits": None, "diverged_at": error.t}
    except Interrupted:
        write_status(run, "stopped", state.t, plan.updates)
        recorder.say(f"stopped after update {state.t}; the same command continues")
        raise
    except BaseException as error:
        with suppress(OSError):  # a full disk takes neither
            write_status(run, "failed", state.t, plan.updates, error=repr(error))
            recorder.log(traceback.format_exc())
        raise
    return result | {"updates": state.t, "seconds": state.seconds, "tokens": state.tokens}


def _scores(
    state: TrainState, task: Translation, recorder: Recorder, plan: TrainPlan
) -> dict[str, Any]:
    """Validation loss and test scores of the last weights, and of the best ones beside them."""
    if evaluation_due(state.t, plan, task.batches_per_epoch):
        rows = [r for r in recorder.run.metrics() if r["kind"] == "valid" and r["t"] == state.t]
        valid = rows[-1]
    else:
        # Off the cadence: not in the checkpoint, so that a run that grows forgets this row.
        valid = evaluate(state, task, recorder, keep=False)

    model: Any = state.model

    def test(t: int) -> dict[str, Any]:
        model.eval()
        with torch.no_grad():
            scores, samples = task.evaluate(model, "test", lambda: recorder.poll(state))
        recorder.samples("test", t, samples)
        return scores

    last = test(state.t)
    recorder.say(f"test, last weights (update {state.t}): {scores_line(last)}")
    best = {"t": state.t, "valid_loss": valid["loss"], "test": last}
    # An evaluation off the cadence may be the lowest; a loss that is not finite never is.
    is_best = valid["loss"] is not None and (
        state.best is None or state.best.t == state.t or valid["loss"] < state.best.loss
    )
    if state.best is not None and not is_best:
        device = next(state.model.parameters()).device
        load_model(model, [recorder.run.weights(state.best.t)], device)
        best = {"t": state.best.t, "valid_loss": state.best.loss, "test": test(state.best.t)}
        recorder.say(f"test, best weights (update {state.best.t}): {scores_line(best['test'])}")
    return {
        "valid_loss": valid["loss"],
        "valid_loss_smoothed_bits": valid["loss_smoothed_bits"],
        "valid_bleu": valid["bleu"],
        "test": last,
        "best": best,
    }


def _restore(state: TrainState, run: RunDir, device: torch.device, updates: int) -> None:
    """Go back to the last checkpoint, and let the record forget what came after it."""
    size = 0
    if run.last_checkpoint.exists():
        size = load_state(state, run.last_checkpoint, device)
    if state.t > updates:
        raise InputError(
            f"train.updates={updates} is below the {state.t} updates already trained in {run.path}; "
            "ask for more, or set another runs_dir"
        )
    run.truncate_metrics(size)
    forget_after(run, state.t)
    run.keep_result()


def _write_provenance(
    run: RunDir, resolved: dict[str, Any], experiments: list[str], code: dict[str, Any], origin: Any
) -> None:
    text = yaml.safe_dump(anywhere(resolved), sort_keys=False, allow_unicode=True)
    atomic_write(run.config_file, f"# schema: 1\n{text}")
    sessions = run.read_json("env").get("sessions", [])
    run.write_json("env", {"data": origin, "sessions": [*sessions, session(experiments, code)]})


def anywhere(resolved: dict[str, Any]) -> dict[str, Any]:
    """The config with paths that hold wherever it is read from: `lnexp eval` opens the data again."""
    data = dict(resolved["data"])
    for key in ("path", "codes", "cache_dir"):
        if data.get(key):
            data[key] = str(Path(data[key]).expanduser().absolute())
    return {**resolved, "data": data}


def _data_line(task: Translation) -> str:
    d = task.describe()
    pairs = ", ".join(f"{n:,} {split}" for split, n in d["pairs"].items())
    dropped = ", ".join(f"{n} {reason}" for reason, n in d["dropped_from_train"].items() if n)
    return (
        f"pairs: {pairs}{f' (left out of train: {dropped})' if dropped else ''}; "
        f"{d['batches_per_epoch']} batches and {d['target_tokens_per_epoch']:,} target tokens an epoch"
    )


def check_tokenizer(run: RunDir, model: bytes) -> None:
    """Refuse to go on with pieces that mean something else than they did."""
    if run.tokenizer_file.exists() and run.tokenizer_file.read_bytes() != model:
        raise InputError(
            f"{run.tokenizer_file} is not the vocabulary that this sentencepiece learns from the "
            "same text; install the version that env.json names, or set runs_dir to another"
        )


def _say_finished(run: RunDir, updates: int) -> None:
    result = run.result_for(updates)
    if run.read_json("status").get("state") == "running":  # it was killed right before it ended
        write_status(run, result["outcome"], result["updates"], updates)
    line = f"already {result['outcome']}, {result['updates']} updates"
    if result.get("test"):
        line += f"; test: {scores_line(result['test'])}"
    say_plain(f"{line}; repeat=true trains it again")
