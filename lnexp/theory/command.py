"""`lnexp theory`: each lemma and the theorem, predicted and measured, with a verdict.

Progress goes to stderr; every reading is kept in the directory, so that the same command goes on
where it was interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from lnexp.app import config_command
from lnexp.atomic import atomic_write
from lnexp.build import make
from lnexp.config import RunConfig
from lnexp.errors import InputError
from lnexp.model.placement import Placement, StackShape
from lnexp.provenance import code_state, git_label
from lnexp.record import complain
from lnexp.theory import figures, study, tables
from lnexp.theory.lab import Journal, Lab
from lnexp.theory.options import HELP, Options, parse, specs
from lnexp.theory.real import ConfiguredModel
from lnexp.theory.setting import PlacementFactory

FULL_MODEL = (
    "model.d_model=512",
    "model.d_ff=1024",
    "model.n_heads=4",
    "train.tokens_per_batch=512",
)
QUICK_NOTE = (
    "quick: three seeds and narrow networks show that it runs; what holds for large d (section 3.4, "
    "the width) and what needs many seeds cannot be judged by them"
)
QUICK_MODEL = (
    "model.d_model=64",
    "model.d_ff=128",
    "model.n_heads=4",
    "train.tokens_per_batch=512",
)


def theory_command(arguments: list[str]) -> int:
    """Do the study that the arguments describe; return the exit code."""
    if any(word in ("-h", "--help") for word in arguments):
        print(HELP.format(names=" ".join(study.NAMES)), end="")
        return 0
    try:
        options = parse(arguments)
    except InputError as error:
        complain(str(error))
        return 2
    results: list[dict[str, Any]] = []
    action = partial(do_study, options=options, results=results)
    overrides = [*(QUICK_MODEL if options.quick else FULL_MODEL), *options.overrides]
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        code = config_command("theory", overrides, action)
    if options.json and results:
        print(json.dumps(results[0], indent=1))
    return code


def do_study(
    cfg: RunConfig,
    resolved: dict[str, Any],
    experiments: list[str],
    *,
    options: Options,
    results: list[dict[str, Any]],
) -> Path:
    """Measure, write and show; return the directory."""
    torch.set_num_threads(cfg.threads or 1)  # small networks: a second thread mostly waits
    out, sizes = options.directory, options.sizes
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"-o {out} is no directory to write to ({error.strerror})") from None
    n_seeds = options.seeds or (3 if options.quick else 10)
    seeds, known = range(1, n_seeds + 1), specs()
    context = {"norm": cfg.norm, "placements": known}
    console = Console(stderr=options.json, highlight=False, emoji=False)
    with progress() as say:
        lab = Lab(
            sizes=sizes, seeds=seeds, placements={k: _factory(cfg, v) for k, v in known.items()},
            journal=Journal(out / "measurements.jsonl", context),
            real_model=lambda: ConfiguredModel(cfg, known, n_seeds, say), say=say,
        )  # fmt: skip
        found = study.run(lab, options.names, options.placements, partial(_draw, out))
    about = {
        "seeds": n_seeds, "quick": options.quick, "code": git_label(code_state()),
        "torch": torch.__version__, "threads": torch.get_num_threads(),
        "recipe": cfg.recipe.name, "model": dataclasses.asdict(cfg.model),
        "sizes": dataclasses.asdict(sizes),
    }  # fmt: skip
    files = _write(out, options, found, about, results)
    tables.show(console, found)
    if options.quick:
        console.print(QUICK_NOTE, style="dim", soft_wrap=True)
    console.print(f"table {files[0]}; figures beside it", soft_wrap=True)
    return out


def _factory(cfg: RunConfig, spec: dict[str, Any]) -> PlacementFactory:
    def norm(width: int) -> nn.Module:
        made: nn.Module = make(cfg.norm, normalized_shape=width)
        return made

    def placement(shape: StackShape) -> Placement:
        made: Placement = make(spec, shape=shape, norm=norm)
        return made

    return placement


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Say on stderr what is being measured: in one line on a terminal, else every new thing."""
    console = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if console.is_terminal:
        with console.status("starting") as status:
            yield status.update
    else:
        said: set[str] = set()

        def say(text: str) -> None:
            what = text.split(": seed ")[0]
            if what not in said:
                said.add(what)
                print(what, file=sys.stderr, flush=True)

        yield say


def _draw(out: Path, found: study.Study, name: str) -> None:
    title = study.TITLES[name]
    if name in found.results:
        figures.draw_panels(found.results[name].panels, title, out / name)
    else:
        figures.draw_scalings(found.scalings[name], title, out / name)


def _write(
    out: Path,
    options: Options,
    found: study.Study,
    about: dict[str, Any],
    results: list[dict[str, Any]],
) -> list[Path]:
    """Write the tables; those of a part of the study do not replace those of the whole."""
    plain = tables.as_json(about, found)
    results.append(plain)
    stem = "-".join(["theory", *([] if options.whole else options.names)])
    title = f"The theory at initialisation: {about['seeds']} seeds, recipe {about['recipe']}"
    files = [out / f"{stem}.md", out / f"{stem}.json"]
    atomic_write(files[0], tables.markdown(title, found))
    atomic_write(files[1], json.dumps(plain, indent=1) + "\n")
    return files
