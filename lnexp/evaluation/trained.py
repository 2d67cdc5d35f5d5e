"""A run opened again from its directory: config, model and vocabulary, with its data or without.

The directory may be somebody else's, so nothing in it is executed: see `lnexp.evaluation.trust`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from lnexp.build import build, build_model, pick_device
from lnexp.checkpoint import load_model
from lnexp.config import DataConfig, RunConfig
from lnexp.data.corpus import is_store
from lnexp.data.preparation import Preparation, prepare_lines
from lnexp.data.tokenizer import Tokenizer
from lnexp.data.vocabulary import load_tokenizer
from lnexp.decode.bleu import detokenised
from lnexp.errors import InputError
from lnexp.evaluation.trust import check_classes
from lnexp.identity import identity_hash
from lnexp.kept_weights import Checkpoint
from lnexp.model.transformer import Transformer
from lnexp.run_dir import RunDir
from lnexp.session import check_tokenizer
from lnexp.tasks.translation import DecodeOptions, Translation
from lnexp.validate import PROVIDED, validate


@dataclass
class Trained:
    """A model that can be given any of its run's weights, and the text it reads and writes."""

    run: RunDir
    cfg: RunConfig
    device: torch.device
    model: Transformer
    tokenizer: Tokenizer
    tokenised: bool
    """The text it was trained on is Moses tokens."""
    lowercased: bool
    task: Translation | None
    """With the run's data; None where they are not needed."""

    def load(self, checkpoint: Checkpoint) -> list[int]:
        """Give the model the weights of ``checkpoint``; return the updates they are of."""
        try:
            updates = load_model(self.model, checkpoint.paths, self.device)
        except InputError:
            if gone := [path for path in checkpoint.paths if not path.exists()]:
                raise InputError(
                    f"--checkpoint={checkpoint.name}: {gone[0]} was deleted after it was found, as "
                    "a run under way does; run the same command again"
                ) from None
            raise
        self.model.eval()
        return updates

    def prepare(self, lines: Sequence[str], language: str) -> list[str]:
        """Raw text in the form of the text that it was trained on."""
        preparation = Preparation(
            tokenize="moses" if self.tokenised else None, lowercase=self.lowercased
        )
        return prepare_lines(lines, language, preparation)

    def encode(self, lines: Sequence[str]) -> list[NDArray[Any]]:
        """Piece numbers of lines that are so prepared, without EOS; blanks alone are none."""
        encoded = self.tokenizer.encode([line if line.strip() else "" for line in lines])
        return [np.array(ids, np.int64) for ids in encoded]

    def plain(self, lines: Sequence[str], language: str) -> list[str]:
        """Lines of the corpus, detokenised where it is tokenised."""
        return detokenised(lines, language) if self.tokenised else list(lines)

    def decode_options(
        self, split: str | None, beam: int | None, length_penalty: float | None
    ) -> DecodeOptions:
        """How to decode: as the run does for ``split``, but for what is given."""
        d = self.cfg.decode
        return DecodeOptions(
            beam=beam or (d.valid_beam if split == "valid" else d.beam),
            length_penalty=d.length_penalty if length_penalty is None else length_penalty,
            max_len_a=d.max_len_a,
            max_len_b=d.max_len_b,
            batch_tokens=d.batch_tokens,
        )


def open_trained(
    run: RunDir, *, data: bool, trust: bool, device: str | None = None,
    data_path: str | None = None, codes: str | None = None, cache: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Trained:  # fmt: skip
    """Open a run, with its ``data`` or from its directory alone.

    Raises `InputError` where the directory or its data are not what they were.
    """
    cfg = load_config(run, trust=trust)
    cfg.device = device or cfg.device
    if not data:
        return _without_data(run, cfg)
    if data_path:
        _move(cfg.data, data_path)
    cfg.data.codes = codes or cfg.data.codes
    cfg.data.cache_dir = cache or cfg.data.cache_dir
    try:
        parts = build(cfg, say)
    except InputError as error:
        if not re.search(r"data\.(path|train|valid|test|cache_dir|codes)\b", str(error)):
            raise
        options = "--data-path DIR, --cache-dir DIR, --codes FILE"
        raise InputError(f"{error} (lnexp eval: {options})") from None
    if run.read_json("identity").get("hash") != identity_hash(parts.identity):
        raise InputError(
            f"{run.path}: the data or the config differ from those the run was trained on; "
            "name the right data with --data-path (and --codes)"
        )
    task, model = parts.task, cast(Transformer, parts.state.model)
    check_tokenizer(run, task.tokenised.tokenizer.model)
    return Trained(
        run, cfg, parts.device, model, task.tokenised.tokenizer,
        task.corpus.tokenised, task.corpus.lowercased, task,
    )  # fmt: skip


def _move(data: DataConfig, to: str) -> None:
    """Look for the data, and for the files that were named, at their new place ``to``."""
    for name in ("train", "valid", "test"):
        files = getattr(data, name) or []
        files = [files] if isinstance(files, str) else files
        if is_store(Path(to).expanduser()):  # it holds the text of all the files
            files = []
        setattr(data, name, [_moved(f, data.path) for f in files] or None)
    data.path = to


def _moved(file: str, old: str | None) -> str:
    below = old is not None and not Path(file).expanduser().is_absolute()
    return file if below else Path(file).name


def _without_data(run: RunDir, cfg: RunConfig) -> Trained:
    if cfg.threads:
        torch.set_num_threads(cfg.threads)
    device = pick_device(cfg.device)
    try:
        content = run.tokenizer_file.read_bytes()
        if not content:
            raise ValueError("sentencepiece would take it for a vocabulary of no pieces")
        tokenizer = load_tokenizer(content)
        "".join(tokenizer.pieces(range(tokenizer.vocab_size))).encode()  # all are text
    except (OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise InputError(
            f"{run.tokenizer_file} {reason}; copy the whole run directory again"
        ) from None
    identity = run.read_json("identity").get("identity")
    text = identity.get("text") if isinstance(identity, dict) else None
    if not isinstance(text, dict) or not {"tokenised", "lowercased"} <= text.keys():
        raise InputError(
            f"{run.path / 'identity.json'} does not say how the text was prepared; "
            "copy the whole run directory again"
        )
    model = build_model(cfg, tokenizer.vocab_size).to(device)
    return Trained(
        run, cfg, device, model, tokenizer, bool(text["tokenised"]), bool(text["lowercased"]), None
    )


def load_config(run: RunDir, *, trust: bool) -> RunConfig:
    """Read and check the config of a run directory, which may be somebody else's."""
    if not run.config_file.exists():
        raise InputError(f"{run.path} holds no config.yaml; name a run directory, .../v1")
    try:
        plain: Any = OmegaConf.to_container(OmegaConf.load(run.config_file))
    except (OSError, ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{run.config_file} cannot be read ({reason})") from None
    if not isinstance(plain, dict) or not set(PROVIDED) <= plain.keys():
        raise InputError(f"{run.config_file} is not the config of a run; it was cut or is foreign")
    check_classes(run.config_file, plain, trust=trust)
    plain.pop("hydra", None)
    return validate(OmegaConf.create(plain))
