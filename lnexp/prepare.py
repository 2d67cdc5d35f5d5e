"""`lnexp prepare`: fetch, clean, tokenise and keep the text of a recipe, without training.

Everything happens as `lnexp train` would do it, and is kept where it would keep it, so that a run
started afterwards finds it.  ``--out DIR`` leaves a copy that may be moved to a machine without
network, for ``data.path=DIR``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from lnexp.app import config_command
from lnexp.atomic import atomic_write, sync
from lnexp.build import build_vocabulary, load_text
from lnexp.config import RunConfig
from lnexp.data.cache import export
from lnexp.data.corpus import RECORD, is_store, read_record
from lnexp.errors import InputError
from lnexp.record import complain, say_plain

HELP = """usage: lnexp prepare [--out DIR] [recipe=NAME] [KEY=VALUE ...]

Fetch, clean, tokenise and keep the text of a recipe; `lnexp train` with the same keys finds it.

  --out DIR    leave a copy in DIR, to be moved to a machine without network (data.path=DIR)

  lnexp prepare recipe=iwslt14
  lnexp prepare --out iwslt14 recipe=iwslt14 data.path=de-en.tgz
  lnexp prepare --out wmt14 recipe=wmt14

Groups and keys are those of `lnexp train`: see lnexp train --help.
"""

CODES = "codes"
"""The merges that were given, in the copy."""
HERE = re.compile(
    r"\+*(data\.(path|train|valid|test|source|archive|hub|hub_config|revision|codes|cache_dir)"
    r"|runs_dir|threads|device)="
)
"""Overrides that say where things are, and mean nothing where the copy goes."""


def prepare_command(arguments: list[str]) -> int:
    """Prepare what the overrides describe; return the exit code."""
    if any(word in ("-h", "--help") for word in arguments):
        print(HELP, end="")
        return 0
    out: Path | None = None
    overrides: list[str] = []
    rest = iter(arguments)
    for word in rest:
        if word == "--out" or word.startswith("--out="):
            name = next(rest, "") if word == "--out" else word.removeprefix("--out=")
            if not name or (word == "--out" and (name.startswith("-") or "=" in name)):
                complain(f"{' '.join([word, name]).strip()}: name a directory, --out DIR")
                return 2
            out = Path(name).expanduser()
        else:
            overrides.append(word)
    return config_command("prepare", overrides, partial(prepare, out=out))


def prepare(
    cfg: RunConfig, resolved: dict[str, Any], experiments: list[str], *, out: Path | None
) -> Path:
    """Prepare the text of ``cfg`` and return the directory of the text."""
    if cfg.dry_run:
        raise InputError("dry_run=true is for lnexp train; leave it out")
    if out is not None:
        _refuse_other(out)
    vocabulary = build_vocabulary(cfg)
    corpus, text = load_text(cfg, vocabulary, say_plain)
    corpus.verify()
    for split, sides in text.splits.items():
        tokens = f"{len(sides.src.ids):,} and {len(sides.tgt.ids):,} pieces"
        say_plain(f"{split}: {len(sides.src):,} pairs, {tokens} of {corpus.src} and {corpus.tgt}")
    say_plain(f"vocabulary: {text.tokenizer.vocab_size:,} pieces ({cfg.data.subword})")
    assert corpus.home is not None
    if out is None:
        return corpus.home
    more = [f"data.path={out}"]
    try:
        _copy(corpus.home, out)
        export(text, out)
        if vocabulary.codes is not None:
            atomic_write(out / CODES, vocabulary.codes)
            more.append(f"data.codes={out / CODES}")
    except OSError as error:
        raise InputError(
            f"--out {out} cannot be written ({error.strerror or error}); name another directory"
        ) from None
    given = [] if experiments else ["+exp=preln_nowarmup"]
    given += [o for o in HydraConfig.get().overrides.task if not HERE.match(o)]
    say_plain(f"on any machine: lnexp train {shlex.join([*given, *more])}")
    return out


def _refuse_other(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; name a directory")
    if out.is_dir() and any(out.iterdir()) and not is_store(out):
        raise InputError(f"--out {out} holds other files; name a new or an empty directory")


def _copy(home: Path, out: Path) -> None:
    """Copy the text store ``home`` to ``out``, whole or not at all; files in use stay as they are."""
    if out.exists() and (out.samefile(home) or is_store(out)):
        if read_record(out)["fingerprints"] != read_record(home)["fingerprints"]:
            raise InputError(f"--out {out} holds another text; name a new or an empty directory")
        return
    building = out.with_name(f".{out.name}.building")
    shutil.rmtree(building, ignore_errors=True)  # of a process that was killed
    building.mkdir(parents=True)
    for name in [*read_record(home)["files"], RECORD]:
        shutil.copyfile(home / name, building / name)
        with open(building / name, "rb+") as file:
            sync(file)
    if out.exists():  # it is empty; it stays, since somebody may be in it
        for name in [*read_record(home)["files"], RECORD]:
            os.replace(building / name, out / name)
        building.rmdir()
    else:
        building.rename(out)
