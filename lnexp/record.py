"""What a run says of itself: rows, curves, checkpoints, progress. One object for the loop.

``metrics.jsonl`` is the record; TensorBoard is a view of it, made anew from it at each resume.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from lnexp.atomic import atomic_write, naming
from lnexp.checkpoint import save_model, save_state
from lnexp.errors import Interrupted
from lnexp.kept_weights import prune
from lnexp.run_dir import RunDir, write_status
from lnexp.train import TrainState

SHOW_CURSOR = b"\x1b[?25h"

STATUS_SECONDS = 2.0
"""How often ``status.json`` is renewed at most."""


class Signals:
    """Turns SIGTERM and Ctrl-C into a flag; a second one ends the process at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is not None:
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), SHOW_CURSOR)  # the bar hides it
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.received = number
        os.write(2, b"lnexp: saving and leaving; once more leaves at once\n")


class TensorBoard:
    """Event files that always show what ``metrics.jsonl`` says."""

    def __init__(self, run: RunDir) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._path = run.tensorboard
        shutil.rmtree(self._path, ignore_errors=True)
        self._previous, threading.excepthook = threading.excepthook, self._on_thread_error
        try:
            with naming(self._path):
                self._writer = SummaryWriter(str(self._path), flush_secs=5)
            for row in run.metrics():
                self.row(row["kind"], row["t"], row)
        except BaseException:
            threading.excepthook = self._previous
            raise

    def row(self, kind: str, t: int, values: dict[str, Any]) -> None:
        """Add every number of a row as a scalar ``kind/name``."""
        for name, value in values.items():
            if isinstance(value, (int, float)) and name != "t":
                tag = name if name.startswith("grad_norm/") else f"{kind}/{name}"
                with naming(self._path):
                    self._writer.add_scalar(tag, value, t)

    def close(self) -> None:
        """Write what is left."""
        try:
            with naming(self._path):
                self._writer.close()
        finally:
            threading.excepthook = self._previous

    def _on_thread_error(self, error: threading.ExceptHookArgs) -> None:
        # The writer's thread keeps an OSError and raises it again in the next call from here.
        if not isinstance(error.exc_value, OSError):
            self._previous(error)


class Recorder:
    """The `lnexp.train.Record` of one session of a run."""

    def __init__(self, run: RunDir, updates: int, signals: Signals, keep_weights: int = 0) -> None:
        self.run, self.updates, self.signals = run, updates, signals
        self.keep_weights = keep_weights
        self.console = Console(soft_wrap=True, highlight=False, emoji=False, markup=False)
        self._log = open(run.log_file, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._tensorboard = TensorBoard(run)
        self._bar: Progress | None = None
        self._started: tuple[float, int] | None = None
        self._status_at = 0.0
        self._last: dict[str, Any] = {}

    def __enter__(self) -> Recorder:
        if self.console.is_terminal:
            columns = TextColumn("{task.fields[numbers]}"), BarColumn(bar_width=20)
            self._bar = Progress(*columns, console=self.console, transient=True)
            self._bar.add_task("training", total=self.updates, numbers="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        try:
            self._tensorboard.close()
        finally:
            with naming(self.run.log_file):
                self._log.close()

    def say(self, text: str) -> None:
        """Print a line, and keep it in ``train.log``."""
        self.console.print(text)
        self.log(text)

    def log(self, text: str) -> None:
        """Keep a line in ``train.log``."""
        with naming(self.run.log_file):
            self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")

    def row(self, kind: str, t: int, values: dict[str, Any]) -> None:
        """Append a row to the record and to the curves, and say it."""
        self.run.append(kind, t, values)
        self._tensorboard.row(kind, t, values)
        if kind == "train":
            self._last = values
            line = f"update {t}/{self.updates}  {self._numbers(values)}  eta {self._eta(t)}"
            if self._bar is None:
                self.say(line)
            else:
                self.log(line)
        elif kind == "valid":
            self.say(f"{kind} after update {t}: {scores_line(values)}")

    def samples(self, split: str, t: int, text: str) -> None:
        """Keep sample translations."""
        atomic_write(self.run.sample_file(split, t), text)

    def save(self, state: TrainState) -> None:
        """Write the checkpoint to resume from, then drop weights that no one will ask for."""
        self.run.sync_metrics()
        save_state(state, self.run.metrics_size(), self.run.last_checkpoint)
        prune(self.run, state.best and state.best.t, self.keep_weights)

    def save_weights(self, state: TrainState) -> None:
        """Keep the weights of an evaluation; what the checkpoint on disk names stays until `save`."""
        if self.keep_weights or (state.best is not None and state.best.t == state.t):
            save_model(state.model, state.t, self.run.weights(state.t))

    def poll(self, state: TrainState) -> None:
        """Show progress; raise `Interrupted` if the process was told to end."""
        if self.signals.received is not None:
            raise Interrupted(self.signals.received)
        now = time.monotonic()
        if self._started is None:
            self._started = now, state.t
        if self._bar is not None:
            t, row = state.t, self._last
            numbers = f"{t}/{self.updates}  eta {self._eta(t)}" if t < self.updates else "scoring"
            if row:  # short enough for 80 columns; the log has the rest
                numbers += f"  loss {row['loss']:.3f}  {row['tokens_per_second']:,.0f} tok/s"
            self._bar.update(self._bar.task_ids[0], completed=t, numbers=numbers)
        if now - self._status_at > STATUS_SECONDS:
            self._status_at = now
            write_status(
                self.run, "running", state.t, self.updates, loss=self._last.get("loss"),
                eta_seconds=self._seconds_left(state.t),
            )  # fmt: skip

    def _numbers(self, row: dict[str, Any]) -> str:
        return (
            f"loss {row['loss']:.3f}  lr {row['lr']:.2e}  grad {row['grad_norm']:.3f}  "
            f"{row['tokens_per_second']:,.0f} tok/s"
        )

    def _seconds_left(self, t: int) -> float | None:
        if self._started is None or t <= self._started[1]:
            return None
        started, first = self._started
        return (time.monotonic() - started) / (t - first) * (self.updates - t)

    def _eta(self, t: int) -> str:
        seconds = self._seconds_left(t)
        if seconds is None:
            return "-"
        minutes, seconds = divmod(int(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def scores_line(scores: dict[str, Any]) -> str:
    """Say an evaluation in a line."""
    loss = scores["loss"]
    loss = math.nan if loss is None else loss  # what JSON cannot say comes back as None
    perplexity = math.exp(min(loss, 700))
    line = f"loss {loss:.4f} nats (perplexity {perplexity:.2f})"
    if "bleu" in scores:
        line += f"  BLEU {scores['bleu']:.2f} (beam {scores['beam']})  chrF {scores['chrf']:.2f}"
    return line


def say_plain(text: str) -> None:
    """Print a line before there is a run to log it in."""
    print(text, flush=True)


def complain(text: str) -> None:
    """Print a line of error."""
    print(f"lnexp: {text}", file=sys.stderr, flush=True)
