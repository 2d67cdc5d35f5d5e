"""Teacher forcing: the log-probability a model gives to each piece of a given translation.

The invariant: the log-probabilities of a hypothesis add up to what the beam search says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lnexp.data.batching import ordered_batches
from lnexp.decode.beam import BOS, EOS, PAD


class Forcible(Protocol):
    """A model of all target positions at once."""

    def __call__(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Decoder output (B, T, d_model) for ``src`` (B, S) and shifted targets (B, T)."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores (..., vocab_size) of decoder outputs."""


class Forced(NamedTuple):
    """Log-probabilities (nats) at each position of a target, its EOS the last."""

    target: NDArray[np.float64]
    """Of the piece that stands there."""
    mean: NDArray[np.float64]
    """The mean over the vocabulary, which label smoothing draws on."""


@torch.no_grad()
def force(
    model: Forcible,
    sources: Sequence[Sequence[int] | NDArray[Any]],
    targets: Sequence[Sequence[int] | NDArray[Any]],
    poll: Callable[[], None],
    *,
    device: torch.device,
    batch_tokens: int,
) -> list[Forced]:
    """Score ``targets`` given ``sources`` (piece numbers without EOS), in their order.

    ``batch_tokens`` bounds the padded tokens at once, and changes no more than the last digits.
    Put ``model`` in evaluation mode first.
    """
    src_lengths, tgt_lengths = ([len(ids) for ids in side] for side in (sources, targets))
    found: list[Forced] = [Forced(np.empty(0), np.empty(0))] * len(sources)
    for rows in ordered_batches(src_lengths, tgt_lengths, range(len(sources)), batch_tokens):
        poll()
        src = _pad([[*sources[i], EOS] for i in rows], device)
        tgt_in = _pad([[BOS, *targets[i]] for i in rows], device)
        tgt_out = _pad([[*targets[i], EOS] for i in rows], device)
        log_probs = model.logits(model(src, tgt_in)).float().log_softmax(-1)
        values = log_probs.gather(2, tgt_out[:, :, None])[:, :, 0].double().cpu().numpy()
        means = log_probs.mean(-1).double().cpu().numpy()
        for i, value, mean in zip(rows, values, means, strict=True):
            n = len(targets[i]) + 1
            found[i] = Forced(value[:n], mean[:n])
    return found


def _pad(rows: list[list[int]], device: torch.device) -> Tensor:
    tensors = [torch.tensor([int(i) for i in row], dtype=torch.int64) for row in rows]
    return pad_sequence(tensors, batch_first=True, padding_value=PAD).to(device)
