"""The command line of `lnexp theory`: its own words and flags, and what is left for the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lnexp.config import conf_dir
from lnexp.errors import InputError
from lnexp.theory import study
from lnexp.theory.lab import FULL, QUICK, Sizes

HELP = """usage: lnexp theory [NAME ...] [--quick] [--seeds N] [--placements A,B|all] [--json]
                    [-o DIR] [KEY=VALUE ...]

Measure each lemma and the theorem of the paper at initialisation: in the theorem's own setting and
in the real model, with 95 % intervals over seeds and a verdict.

  NAME             what to measure, of:
                   {names}
                   (everything but placements, which --placements adds)
  --quick          under a minute: 3 seeds, small networks; much stays inconclusive
  --seeds N        seeds 1..N (10, with --quick 3)
  --placements     exponents of more placements, one line each: names of conf/placement, or all
  --json           the results on stdout
  -o, --out DIR    theory.md, theory.json and the figures (with NAMEs: theory-NAME.md); default
                   runs/theory, with --quick runs/theory-quick

  lnexp theory --quick
  lnexp theory theorem_1 --seeds 20
  lnexp theory recipe=multi30k data.path=DIR

KEY=VALUE are those of `lnexp train`, and are about the real model: text, batch, sizes, norm.
"""

SWEPT = {
    "placement": "--placements", "model.n_layers": "depths are swept", "seed": "--seeds N",
    "exp": "nothing, it trains no experiment", "init_from": "lnexp probe init_from=RUN",
    "norm": "lnexp probe norm=NAME, the statements are about LayerNorm",
    "probes": "lnexp probe", "dry_run": "nothing, it trains nothing",
    "train.precision": "nothing, it is fp32", "device": "nothing, it is the CPU",
}  # fmt: skip
"""Overrides that say what the study itself says, and what to write instead."""


@dataclass
class Options:
    """The command line, without the overrides."""

    names: list[str] = field(default_factory=list)
    quick: bool = False
    seeds: int | None = None
    placements: list[str] = field(default_factory=list)
    json: bool = False
    out: Path | None = None
    overrides: list[str] = field(default_factory=list)

    @property
    def sizes(self) -> Sizes:
        """How large and how many."""
        return QUICK if self.quick else FULL

    @property
    def whole(self) -> bool:
        """Whether every statement is measured; placements may come on top."""
        return set(self.names) >= set(study.NAMES) - {study.PLACEMENTS}

    @property
    def directory(self) -> Path:
        """Where results go."""
        return self.out or Path("runs") / ("theory-quick" if self.quick else "theory")


def parse(arguments: Sequence[str]) -> Options:
    """Tell options, names and overrides apart."""
    options, rest = Options(), iter(arguments)
    for word in rest:
        flag, _, given = word.partition("=")
        if word in ("--quick", "--json"):
            setattr(options, word[2:], True)
        elif flag in ("--seeds", "--placements", "--out", "-o"):
            value = given or next(rest, "")
            if not value or value.startswith("-"):
                raise InputError(f"{flag} needs a value; see lnexp theory --help")
            _set(options, flag, value)
        elif flag in ("--config-dir", "-cd"):
            raise InputError(f"{flag} is not for this study; put your yaml into conf/placement")
        elif word.startswith("-"):
            raise InputError(f"{word} is no option of lnexp theory; see lnexp theory --help")
        elif "=" in word or word[:1] in ("+", "~"):
            flag = flag.lstrip("+~")
            flag = next((key for key in SWEPT if f"{flag}.".startswith(f"{key}.")), flag)
            if flag in SWEPT:
                raise InputError(f"{word} is not for this study; use instead: {SWEPT[flag]}")
            options.overrides.append(word)
        elif word in study.NAMES:
            options.names.append(word)
        else:
            names = ", ".join(study.NAMES)
            raise InputError(f"{word!r} is no statement; there are: {names}")
    if not options.names:
        options.names = [name for name in study.NAMES if name != study.PLACEMENTS]
    if options.placements and study.PLACEMENTS not in options.names:
        options.names.append(study.PLACEMENTS)
    if study.PLACEMENTS in options.names and not options.placements:
        options.placements = sorted(specs())
    return options


def _set(options: Options, flag: str, value: str) -> None:
    if flag == "--seeds":
        if not value.isdecimal() or int(value) < 2:
            raise InputError(f"--seeds {value} must be at least 2, for an interval")
        options.seeds = int(value)
    elif flag == "--placements":
        known = sorted(specs())
        options.placements = known if value == "all" else list(dict.fromkeys(value.split(",")))
        for name in options.placements:
            if name not in known:
                raise InputError(f"--placements {name}: there is no such placement; "
                                 f"there are: {', '.join(known)}")  # fmt: skip
    else:
        options.out = Path(value).expanduser()


def specs() -> dict[str, dict[str, Any]]:
    """Every placement of ``conf/placement``, by the name of its file."""
    return {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in sorted((conf_dir() / "placement").glob("*.yaml"))
    }
