"""`lnexp eval RUN...`: score checkpoints of runs again, compare them, or translate with one.

Standard output holds the result alone: a table, one JSON document, or translations.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

from lnexp.errors import InputError
from lnexp.report.find import resolve
from lnexp.run_dir import finite

SCHEMA = 1
T = TypeVar("T")


class Parser(argparse.ArgumentParser):
    """argparse, with mistakes told in one line like all others."""

    def error(self, message: str) -> NoReturn:
        """Raise `InputError`."""
        raise InputError(f"{message}; lnexp eval --help shows what there is")


def eval_command(arguments: list[str]) -> int:
    """Parse the command line, score or translate, print; return the exit code."""
    with _ended_by_sigterm():
        return _eval(arguments)


def _eval(arguments: list[str]) -> int:
    try:
        options = _parser().parse_args(arguments)
        options.run = [_run(name, options.runs_dir) for name in options.run]
        _check(options)
        # Only now: torch takes seconds, which neither help nor a mistake should cost.
        if options.translate:
            _translate(options)
        else:
            _score(options)
    except InputError as error:
        print(f"lnexp: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as an error does, so that it cleans up, with exit code 143."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough: what cleans up is not cut short
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _parser() -> Parser:
    parser = Parser(
        prog="lnexp eval",
        description="Decode and score checkpoints of runs again; compare runs; translate.",
        epilog="Lists are written with commas: --checkpoint last,best:5 --beam 4,5.",
    )
    add = parser.add_argument
    add("run", nargs="+", help="a run directory, .../v1, or a part of its name or hash that no "
        "other run has; several are compared")  # fmt: skip
    add("--runs-dir", default="runs", metavar="DIR", help="where to look for a name")
    add(
        "--checkpoint",
        type=_list(str, "a name"),
        default=["last"],
        metavar="WHICH",
        help="last, best (lowest validation loss), an update, or the mean of the weights of the "
        "last N evaluations (last:N) or of the N around the best (best:N); a list scores each",
    )
    add("--split", choices=("train", "valid", "test"), help="default: test")
    add("--input", type=Path, metavar="FILE", help="translate this text instead of a split")
    add("--reference", type=Path, metavar="FILE", help="what --input is to be compared to")
    add(
        "--prepared",
        action="store_true",
        help="the files are already tokenised and lower-cased as the run's text is",
    )
    add(
        "--beam",
        type=_list(_beam, "a whole number from 1 to 1000"),
        default=[None],
        metavar="K",
        help="default: as the run does for this split; a list scores each",
    )
    add(
        "--length-penalty",
        type=_list(_penalty, "a number from -10 to 10"),
        default=[None],
        metavar="A",
        help="default: as the run does; a list scores each",
    )
    add(
        "--bootstrap",
        type=_resamples,
        default=1000,
        metavar="N",
        help="resamples for 95%% intervals, and for tests against the first run; 0: none",
    )
    add("--output", type=Path, metavar="DIR", help="write translations and their scores there")
    add(
        "--translate",
        action="store_true",
        help="translate standard input line by line; needs the run directory alone",
    )
    add("--json", action="store_true", help="print the scores as one JSON document")
    add("--data-path", metavar="DIR", help="where the data lie now, if they moved")
    add("--codes", metavar="FILE", help="where the merges given as data.codes lie now")
    add("--cache-dir", metavar="DIR", help="where to keep tokenised text")
    add("--device", help="auto, cpu, cuda, ... (as in training)")
    add("--trust", action="store_true", help="load classes from outside lnexp")
    return parser  # fmt: skip


def _run(name: str, runs_dir: str) -> Path:
    """The run directory that ``name`` means; a path is taken as it is."""
    if Path(name).exists() or os.sep in name or not os.path.isdir(runs_dir):
        return Path(name)
    [entry] = resolve([name], [runs_dir], time.time(), lambda line: None)
    return entry.path


def _list(one: Callable[[str], T], needed: str) -> Callable[[str], list[T]]:
    def parse(text: str) -> list[T]:
        try:
            return list(dict.fromkeys(one(part) for part in text.split(",")))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text} must be {needed}, or several") from None

    return parse


def _beam(text: str) -> int:
    if not 1 <= int(text) <= 1000:
        raise ValueError(text)
    return int(text)


def _penalty(text: str) -> float:
    if not -10 <= float(text) <= 10:
        raise ValueError(text)
    return float(text)


def _resamples(text: str) -> int:
    if not text.isdecimal() or int(text) == 1:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number of at least 2, or 0")
    return int(text)


def _check(options: argparse.Namespace) -> None:
    """Refuse what does not go together."""
    for path in options.run:
        if sum(path.resolve() == other.resolve() for other in options.run) > 1:
            raise InputError(f"{path} is named twice; a run is not compared with itself")
    if options.split and options.input:
        raise InputError("--split and --input name two texts; give one of them")
    for name in ("reference", "prepared"):
        if getattr(options, name) and not options.input and not options.translate:
            raise InputError(f"--{name} goes with --input; add --input FILE")
    if options.translate:
        for name in (
            "split", "input", "reference", "output", "json", "data_path", "codes", "cache_dir",
        ):  # fmt: skip
            if getattr(options, name):
                option = name.replace("_", "-")
                raise InputError(
                    f"--translate reads standard input and takes no --{option}; drop it"
                )
        for name in ("run", "checkpoint", "beam", "length_penalty"):
            if len(getattr(options, name)) > 1:
                option = name.replace("_", "-")
                what = "one run" if name == "run" else f"one --{option}"
                raise InputError(f"--translate takes {what}, not {len(getattr(options, name))}")
    elif options.input and not options.reference and not options.output:
        raise InputError(
            "--input without --reference gives no scores; add --output DIR for the translations, "
            "or --reference FILE"
        )


def _score(options: argparse.Namespace) -> None:
    from rich.console import Console

    from lnexp.evaluation.score import Request, score_runs
    from lnexp.evaluation.table import print_scores

    request = Request(
        runs=options.run,
        checkpoints=options.checkpoint,
        beams=options.beam,
        length_penalties=options.length_penalty,
        split=None if options.input else options.split or "test",
        input=options.input,
        reference=options.reference,
        prepared=options.prepared,
        resamples=options.bootstrap,
        output=options.output,
        opening={
            "trust": options.trust, "device": options.device,
            "data_path": options.data_path, "codes": options.codes, "cache": options.cache_dir,
            "say": lambda line: print(line, file=sys.stderr, flush=True),
        },
    )  # fmt: skip
    with Console(stderr=True, markup=False).status("reading") as status:
        rows = score_runs(request, status.update)
    if options.json:
        document = {"schema": SCHEMA, "scores": finite(rows)}
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        print_scores(rows)


def _translate(options: argparse.Namespace) -> None:
    from lnexp.evaluation.translate import translate_stream

    translate_stream(
        options.run[0], sys.stdin.buffer, sys.stdout.buffer,
        checkpoint=options.checkpoint[0], beam=options.beam[0],
        length_penalty=options.length_penalty[0], prepared=options.prepared,
        trust=options.trust, device=options.device,
    )  # fmt: skip
