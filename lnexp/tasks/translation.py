"""Translation: parallel text, label-smoothed cross-entropy, beam search and BLEU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lnexp.data.batching import epoch_batches, n_batches, ordered_batches, select
from lnexp.data.cache import TokenisedCorpus
from lnexp.data.corpus import Corpus
from lnexp.data.tokenizer import BOS, EOS, PAD
from lnexp.decode.beam import Hypothesis, beam_search
from lnexp.decode.bleu import translation_scores
from lnexp.errors import InputError
from lnexp.model.transformer import Transformer
from lnexp.train import Loss, Metrics


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded at the end: (B, S), (B, T) and (B, T)."""

    src: Tensor
    tgt_in: Tensor
    """BOS and the target."""
    tgt_out: Tensor
    """The target and EOS."""


@dataclass(frozen=True)
class DecodeOptions:
    """Beam search as in the authors' toolkit."""

    beam: int
    length_penalty: float
    max_len_a: float
    max_len_b: float
    batch_tokens: int
    """Padded source tokens decoded at once; does not change a translation."""


@dataclass
class Translation:
    """One corpus, tokenised, and what is done with it."""

    corpus: Corpus
    tokenised: TokenisedCorpus
    label_smoothing: float
    tokens_per_batch: int
    max_length: int
    seed: int
    device: torch.device
    decode_options: DecodeOptions
    valid_beam: int
    """Beam of the evaluations during training; the final scores use ``decode.beam``."""
    n_samples: int = 6
    kept: np.ndarray = field(init=False)
    dropped: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"task.label_smoothing={self.label_smoothing} must be in [0, 1)")
        split = self.tokenised.splits["train"]
        self.kept, self.dropped = select(
            split.src.lengths, split.tgt.lengths, max_length=self.max_length
        )
        if not len(self.kept):
            raise InputError(
                f"data.max_length={self.max_length} leaves no training pair ({self.dropped}); raise it"
            )
        _ = self.batches_per_epoch  # refuses a budget that is too small

    # Training

    @cached_property
    def batches_per_epoch(self) -> int:
        """The same in every epoch; see `lnexp.data.batching`."""
        split = self.tokenised.splits["train"]
        return n_batches(
            split.src.lengths, split.tgt.lengths, self.kept, tokens_per_batch=self.tokens_per_batch
        )

    def _epoch(self, epoch: int) -> list[np.ndarray]:
        split = self.tokenised.splits["train"]
        return epoch_batches(
            split.src.lengths,
            split.tgt.lengths,
            self.kept,
            tokens_per_batch=self.tokens_per_batch,
            seed=self.seed,
            epoch=epoch,
        )

    def batches(self, *, start: int) -> Iterator[Batch]:
        """Yield batches for ever, from batch number ``start`` on."""
        epoch, skip = divmod(start, self.batches_per_epoch)
        while True:
            for rows in self._epoch(epoch)[skip:]:
                yield self.collate("train", rows)
            epoch, skip = epoch + 1, 0

    def collate(self, split: str, rows: np.ndarray) -> Batch:
        """Pad the pairs ``rows`` of ``split`` to rectangles."""
        data = self.tokenised.splits[split]
        src = [np.append(data.src[i], EOS) for i in rows]
        tgt = [data.tgt[i] for i in rows]
        tgt_in = [np.insert(ids, 0, BOS) for ids in tgt]
        tgt_out = [np.append(ids, EOS) for ids in tgt]
        return Batch(*(pad(x).to(self.device) for x in (src, tgt_in, tgt_out)))

    def loss(self, model: Transformer, batch: Batch) -> Loss:
        """Label-smoothed cross-entropy, summed over real target positions.

        ``(1 - e) * nll - e / V * sum over the vocabulary of log p`` (Szegedy et al., 2016), as the
        authors' toolkit had it in 2019.
        """
        real = batch.tgt_out != PAD
        # Padding is dropped before the largest matrix product, not masked after it.
        hidden = model(batch.src, batch.tgt_in)[real]
        log_probs = model.logits(hidden).float().log_softmax(-1)
        nll = -log_probs.gather(1, batch.tgt_out[real][:, None]).sum()
        e = self.label_smoothing
        smooth = -log_probs.mean(-1).sum() if e else torch.zeros_like(nll)
        return Loss((1 - e) * nll + e * smooth, nll.detach(), len(hidden))

    # Evaluation

    def evaluate(
        self, model: Transformer, split: str, poll: Callable[[], None]
    ) -> tuple[Metrics, str]:
        """Loss of every pair of ``split``, and BLEU of its translations; samples to read.

        Validation during training decodes with ``valid_beam``; every other split with
        ``decode_options.beam``.
        """
        beam = self.valid_beam if split == "valid" else self.decode_options.beam
        metrics = self.score_loss(model, split, poll)
        data = self.tokenised.splits[split].src
        best = self.decode(
            model,
            [data[i] for i in range(len(data))],
            poll,
            replace(self.decode_options, beam=beam),
        )
        hypotheses = [self.text(hypothesis.ids) for hypothesis in best]
        sources, references = self.corpus.splits[split]
        metrics |= {"beam": beam, **self.scores(hypotheses, references[:])}
        n = min(self.n_samples, len(hypotheses))
        shown = zip(sources[:n], references[:n], hypotheses[:n])
        samples = "\n".join(f"src  {s}\nref  {r}\nhyp  {h}\n" for s, r, h in shown)
        return metrics, samples

    def score_loss(self, model: Transformer, split: str, poll: Callable[[], None]) -> Metrics:
        """``loss`` in nats per target, unsmoothed; ``loss_smoothed_bits`` as figures plot it."""
        objective = nll = 0.0
        n_targets = 0
        for rows in self._ordered(split):
            poll()
            loss = self.loss(model, self.collate(split, rows))
            objective += loss.objective.item()
            nll += loss.nll.item()
            n_targets += loss.n_targets
        return {
            "loss": nll / n_targets,
            "loss_smoothed_bits": objective / n_targets / math.log(2),
            "n_targets": n_targets,
        }

    def decode(
        self,
        model: Transformer,
        sources: Sequence[NDArray[Any]],
        poll: Callable[[], None],
        options: DecodeOptions,
    ) -> list[Hypothesis]:
        """The best hypothesis for each of ``sources`` (piece numbers without EOS), in their order."""
        return decode(model, sources, poll, options)

    def text(self, ids: Sequence[int]) -> str:
        """The line of the corpus that piece numbers stand for: Moses tokens where it has those."""
        return self.tokenised.tokenizer.decode(ids)

    def scores(self, hypotheses: Sequence[str], references: Sequence[str]) -> Metrics:
        """BLEU and chrF of lines as in the corpus, each with its signature."""
        c = self.corpus
        return translation_scores(
            hypotheses, references,
            tokenised=c.tokenised, lowercased=c.lowercased, language=c.tgt,
        )  # fmt: skip

    def _ordered(self, split: str) -> list[np.ndarray]:
        data = self.tokenised.splits[split]
        everything = np.arange(len(data.src))
        return ordered_batches(
            data.src.lengths, data.tgt.lengths, everything, self.tokens_per_batch
        )

    # What the record says of the data

    def unigram_entropy(self) -> float:
        """Entropy (nats per target) of the unigram distribution of the training targets.

        A model that finished no better than this has learned nothing from its source.
        """
        split = self.tokenised.splits["train"]
        size = self.tokenised.tokenizer.vocab_size
        counts = np.bincount(split.tgt.ids, minlength=size)
        # Few are left out: taking those off is quick where millions are kept.
        for i in np.setdiff1d(np.arange(len(split.tgt)), self.kept, assume_unique=True):
            counts -= np.bincount(split.tgt[i], minlength=size)
        counts[EOS] = len(self.kept)
        p = counts[counts > 0] / counts.sum()
        return float(-(p * np.log(p)).sum())

    def describe(self) -> dict[str, Any]:
        """Sizes, for the log and the record."""
        return {
            "pairs": {name: len(split.src) for name, split in self.tokenised.splits.items()},
            "dropped_from_train": self.dropped,
            "target_tokens_per_epoch": self.tokens_per_epoch,
            "batches_per_epoch": self.batches_per_epoch,
        }

    @property
    def tokens_per_epoch(self) -> int:
        """Real target tokens of the training split, EOS in."""
        lengths = self.tokenised.splits["train"].tgt.lengths
        return int(lengths[self.kept].sum()) + len(self.kept)


def decode(
    model: Transformer,
    sources: Sequence[NDArray[Any]],
    poll: Callable[[], None],
    options: DecodeOptions,
) -> list[Hypothesis]:
    """The best hypothesis for each of ``sources`` (piece numbers without EOS), in their order.

    Sentences are decoded in batches of about equal length; none depends on its batch.
    """
    device = next(model.parameters()).device
    lengths = np.array([len(ids) for ids in sources], np.int64)
    result: list[Hypothesis] = [Hypothesis([], 0.0, 0.0)] * len(sources)
    for rows in ordered_batches(lengths, lengths, np.arange(len(lengths)), options.batch_tokens):
        poll()
        best = beam_search(
            model,
            pad([np.append(sources[i], EOS) for i in rows]).to(device),
            beam=options.beam,
            length_penalty=options.length_penalty,
            max_len_a=options.max_len_a,
            max_len_b=options.max_len_b,
        )
        for row, hypotheses in zip(rows, best, strict=True):
            result[row] = hypotheses[0]
    return result


def pad(rows: list[np.ndarray]) -> Tensor:
    """Stack id sequences to (len(rows), longest), padded with PAD at the end."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)
