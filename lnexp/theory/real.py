"""The model that is trained, read as the theorem's network is: real batches, its loss, dropout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from lnexp.build import build_model, build_task, build_vocabulary, identity, load_text
from lnexp.config import RunConfig
from lnexp.model.init import profile
from lnexp.tasks.translation import Batch
from lnexp.theory.observe import ALL, Observation, Watch, read
from lnexp.theory.setting import Text
from lnexp.train import seed_dropout

SENTENCE = (17, 33)
"""Fewest and most pieces of a sentence that stands for the theorem's 32 positions."""


class ConfiguredModel:
    """The model and the text of a config; placement, depth and seed are asked for.

    ``placements`` are specs as in ``conf/placement``.
    """

    def __init__(
        self,
        cfg: RunConfig,
        placements: Mapping[str, dict[str, Any]],
        n_batches: int,
        say: Callable[[str], None],
    ) -> None:
        self.cfg, self.placements, self.d = cfg, placements, cfg.model.d_model
        vocabulary = build_vocabulary(cfg)
        corpus, tokenised = load_text(cfg, vocabulary, say)
        self._task = build_task(cfg, corpus, tokenised, torch.device("cpu"))
        self._batches: list[Batch] = list(islice(self._task.batches(start=0), n_batches))
        self._vocab_size = tokenised.tokenizer.vocab_size
        who = identity(cfg, corpus, vocabulary)
        self._key = {k: who[k] for k in ("data", "model", "task", "norm", "seed",
                                         "data_fingerprint", "text")}  # fmt: skip
        # How many seeds there are decides which batch and which sentence each of them gets.
        self._key |= {"tokens_per_batch": cfg.train.tokens_per_batch, "n_batches": n_batches}
        self.text = self._sentences(n_batches)

    def key(self) -> dict[str, Any]:
        """What a reading depends on, beside placement, depth, seed and layers."""
        return self._key

    def observe(self, placement: str, n_layers: int, seed: int, layers: str) -> list[Observation]:
        """Draw one model and read its decoder and its encoder, on a batch of its own.

        The gradient is that of the objective's mean over the batch's targets, dropout on.
        """
        model_cfg = dataclasses.replace(self.cfg.model, n_layers=n_layers)
        cfg = dataclasses.replace(
            self.cfg, model=model_cfg, placement=self.placements[placement], seed=seed
        )
        model = build_model(cfg, self._vocab_size)
        batch = self._batches[seed % len(self._batches)]
        profile(model, lambda: model(batch.src, batch.tgt_in))
        real = model.real_positions(batch.src, batch.tgt_in)
        watches = [
            Watch(
                model.decoder_placement, [b.ffn for b in model.decoder_blocks], real["decoder"],
                jacobian=layers == ALL,
            ),
            Watch(model.encoder_placement, [b.ffn for b in model.encoder_blocks], real["encoder"]),
        ]  # fmt: skip

        def loss() -> Tensor:
            found = self._task.loss(model, batch)
            return found.objective / found.n_targets

        model.train()
        seed_dropout(seed, 1, 0)
        return read(watches, model, loss, layers)

    def _sentences(self, n: int) -> Text:
        """Target sentences of about the theorem's length, spread over the training text."""
        split = self._task.tokenised.splits["train"].tgt
        lengths = torch.as_tensor(split.lengths)
        fitting = ((lengths >= SENTENCE[0]) & (lengths <= SENTENCE[1])).nonzero().flatten()
        if not len(fitting):  # very short lines: the longest there are
            fitting = lengths.argsort(descending=True)[:n]
        some = torch.linspace(0, len(fitting) - 1, min(n, len(fitting))).long()
        chosen = fitting[some]
        return Text([[int(i) for i in split[int(row)]] for row in chosen], self._vocab_size)
