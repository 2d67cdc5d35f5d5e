"""One run on one screen: how it ended, its scores, what it is, where it came from."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import Any

from lnexp.errors import InputError
from lnexp.report.differences import changes, flat, words
from lnexp.report.inventory import Entry, Json, mapping, number
from lnexp.report.listing import age, clean, clock, short
from lnexp.run_dir import RunDir

LABELS = {"bleu": "BLEU", "bleu_tokenised": "tokenised BLEU", "chrf": "chrF"}

SESSIONS = 5
"""How many of the latest sessions are shown."""


def card(entry: Entry, now: float) -> Json:
    """Everything worth knowing of a run, as JSON has it."""
    run = RunDir(entry.path)
    identity = mapping(entry.identity.get("identity"))
    valid, fault = _last_valid(run)
    return {
        **summary(entry, now),
        "damaged": [*entry.damage, *([fault] if fault else [])],
        "result": entry.result,
        "last_valid": valid,
        "earlier_results": _earlier(run),
        "config": {k: v for k, v in identity.items() if k != "data_fingerprint"},
        "data": {"fingerprint": identity.get("data_fingerprint"), **mapping(entry.env.get("data"))},
        "sessions": entry.sessions,
        "checkpoints": [
            {"file": path.name, "bytes": size} for path, size in _sizes(run)
        ],
        "error": entry.status.get("error"),
        "last_line": _last_line(run),
    }  # fmt: skip


def summary(entry: Entry, now: float) -> Json:
    """A run in the listing, as JSON has it."""
    result = entry.result
    return {
        "path": str(entry.path),
        "recipe": entry.recipe,
        "name": entry.name,
        "version": entry.version,
        "hash": entry.hash or None,
        "state": entry.state,
        "outcome": result.get("outcome"),
        "t": entry.t,
        "updates": entry.updates,
        "eta_seconds": entry.eta(now),
        "valid_loss": number(result.get("valid_loss")),
        "valid_bleu": number(result.get("valid_bleu")),
        "test": result.get("test"),
        "best": result.get("best"),
        "learned": result.get("learned"),
        "seconds": number(result.get("seconds")),
        "tokens": number(result.get("tokens")),
        "git": result.get("git"),
        "experiments": entry.experiments,
        "seen": entry.seen,
        "host": entry.status.get("host"),
        "pid": entry.status.get("pid"),
        "damaged": list(entry.damage),
    }


def _last_valid(run: RunDir) -> tuple[Json | None, str | None]:
    """The latest evaluation during training, and what is wrong with the record of it."""
    last = None
    try:
        for row in run.metrics():
            if isinstance(row, dict) and row.get("kind") == "valid":
                last = row
    except InputError as error:
        return last, str(error).replace(f"{run.path}/", "")
    except OSError as error:
        return last, f"metrics.jsonl cannot be read ({error.strerror})"
    return last, None


def _earlier(run: RunDir) -> list[Json]:
    """Results of the run before it grew, shortest first."""
    found = (run.read_json(path.stem) for path in sorted(run.path.glob("result-*.json")))
    return [result for result in found if result]


def _sizes(run: RunDir) -> Iterator[tuple[Any, int]]:
    for path in sorted(run.checkpoints.glob("*.pt")):
        try:
            yield path, path.stat().st_size
        except OSError:  # replaced or pruned while we look
            continue


def _last_line(run: RunDir) -> str | None:
    try:
        with open(run.log_file, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return None
    return next((line for line in reversed(lines) if line.strip()), None)


def card_text(entry: Entry, width: int | None, now: float) -> str:
    """Write `card` for people."""
    known = card(entry, now)
    sessions = entry.sessions
    kept = (f"{c['file']} {c['bytes'] / 1e6:,.1f} MB" for c in known["checkpoints"])
    blocks = {
        "": _ending(entry, known, now),
        "scores": _scores(known),
        "config": [_pairs(group, value) for group, value in known["config"].items()],
        "data": [_pairs("", known["data"])],
        "code": list(dict.fromkeys(map(_code, sessions))),
        "machine": list(dict.fromkeys(map(_machine, sessions))),
        f"sessions ({len(sessions)})": list(map(_session, sessions[-SESSIONS:])),
        "checkpoints": [", ".join(kept)],
    }
    lines = [short(entry.path)]
    for head, block in blocks.items():
        if any(block):
            lines += [head] if head else []
            for line in map(clean, filter(None, block)):
                lines += textwrap.wrap(
                    line, width or 10**6, initial_indent="  ", subsequent_indent="    ",
                    break_on_hyphens=False, drop_whitespace=True,
                )  # fmt: skip
    return "\n".join(lines)


def _ending(entry: Entry, known: Json, now: float) -> list[str]:
    done = "-" if entry.t is None else entry.t
    asked = "-" if entry.updates is None else entry.updates
    said = [entry.state, f"{done} of {asked} updates"]
    if known["seconds"] is not None:
        said.append(f"{clock(known['seconds'])} of training")
    if entry.eta(now) is not None:
        said.append(f"eta {clock(entry.eta(now))}")
    if entry.seen is not None:
        said.append(f"last sign of life {age(now - entry.seen)} ago")
    lines = [", ".join(said), f"recipe {entry.recipe}, hash {entry.hash or 'unknown'}"]
    if entry.experiments:
        lines[-1] += f", asked for by {', '.join(entry.experiments)}"
    entropy = number(entry.result.get("unigram_entropy"))
    if entry.state == "finished" and entropy is not None:
        learned = "learned" if entry.result.get("learned") else "nothing learned"
        lines.append(f"{learned}: the unigram entropy of the targets is {entropy:.3f} nats")
    if entry.state == "diverged":
        lines.append(f"diverged at update {entry.result.get('diverged_at')}")
    lines += [f"damaged: {fault}" for fault in known["damaged"]]
    if known["error"]:
        lines.append(f"last error: {known['error']}")
    if entry.state not in ("finished", "diverged") and known["last_line"]:
        lines.append(f"last line of the log: {known['last_line']}")
    return lines


def _scores(known: Json) -> list[str]:
    result, last = known["result"], known["last_valid"]
    valid: Json = {
        "loss": result.get("valid_loss"),
        "loss_smoothed_bits": result.get("valid_loss_smoothed_bits"),
        "bleu": result.get("valid_bleu"),
    }
    best, test = mapping(result.get("best")), mapping(result.get("test"))
    lines = []
    if result.get("outcome") == "finished":
        lines.append(_score_line("valid, last weights", valid))
        lines.append(_score_line("test, last weights", test))
        label = f"test, best weights (update {best.get('t')})"
        same = best.get("t") == result.get("updates")
        lines.append(f"{label}: the same" if same else _score_line(label, best.get("test")))
    elif last is not None:
        lines.append(_score_line(f"valid, update {last.get('t')}", last))
    for earlier in known["earlier_results"]:
        label = f"test, as it was at {earlier.get('updates')} updates"
        lines.append(_score_line(label, earlier.get("test")))
    for name in ("bleu", "bleu_tokenised", "chrf"):
        if signature := test.get(f"{name}_signature"):
            lines.append(f"{LABELS[name]}: {signature}")
    return lines


def _score_line(label: str, scores: Any) -> str:
    scores = mapping(scores)
    said = []
    loss, bits = number(scores.get("loss")), number(scores.get("loss_smoothed_bits"))
    if loss is not None:
        said.append(f"loss {loss:.4f} nats (perplexity {math.exp(min(loss, 700)):.2f})")
    if bits is not None:
        said.append(f"{bits:.4f} bits smoothed")
    for name, title in LABELS.items():
        value = number(scores.get(name))
        if value is not None:
            beam = f" (beam {scores['beam']})" if name == "bleu" and "beam" in scores else ""
            said.append(f"{title} {value:.2f}{beam}")
    return f"{label}: {', '.join(said) or 'no scores'}"


def _pairs(head: str, value: Any) -> str:
    if not isinstance(value, dict):
        return f"{head}: {words(value)}"
    pairs = (f"{k} {words(v)}" for k, v in flat(value).items())
    return (f"{head}: " if head else "") + ", ".join(pairs)


def _code(session: Json) -> str:
    state = mapping(session.get("code"))
    commit = state.get("commit")
    dirty = changes(state.get("diff"))
    where = f"commit {commit}" if commit else "not from a git checkout"
    how = f", uncommitted changes: {dirty}" if dirty else ", no uncommitted changes"
    return f"lnexp {state.get('version')}, {where}{how if commit else ''}"


def _machine(session: Json) -> str:
    torch = mapping(session.get("packages")).get("torch")
    gpus = session.get("gpus")
    names = ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else "no GPU"
    return (
        f"{session.get('host')}: {session.get('cpu')}, CPUs {session.get('cpus')}, "
        f"threads {session.get('threads')}, {names}; Python {session.get('python')}, "
        f"torch {torch}, {session.get('platform')}"
    )


def _session(session: Json) -> str:
    command = session.get("command")
    line = " ".join(map(str, command)) if isinstance(command, list) else str(command)
    return f"{session.get('started')}: {line}  (in {session.get('directory')})"
