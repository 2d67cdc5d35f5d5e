"""Batched beam search over a model that caches keys and values, as in the authors' toolkit.

The invariant: a translation depends on its own sentence alone, never on the batch around it.
The device only runs the model and picks the best tokens of each hypothesis; what is kept, ended
or dropped is decided on the host, in small arrays, from one transfer a step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lnexp.errors import InputError

# Ids of the tokenizer's specials.
PAD, BOS, EOS = 0, 2, 3

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class State(Protocol):
    """What a model carries from one target position to the next."""

    def reorder(self, sentences: Tensor, parents: Tensor) -> None:
        """Keep ``sentences`` (B',), and for each its former hypotheses ``parents`` (B', K').

        ``sentences`` increases strictly, so as many as before means all of them.
        """


StateT = TypeVar("StateT", bound=State)


class Decodable(Protocol[StateT]):
    """A model that translates one target position at a time."""

    def start(self, src: Tensor) -> StateT:
        """Encode ``src`` (B, S), padded behind its EOS; one empty hypothesis per sentence."""

    def step(self, tokens: Tensor, state: StateT) -> Tensor:
        """Log-probabilities (B, K, vocabulary), fp32, after each hypothesis' last token (B, K).

        Advances ``state`` in place. The result is fresh: the search writes into it.
        """


@dataclass(frozen=True)
class Hypothesis:
    """A translation without its EOS; ``log_prob`` and ``score`` count the EOS."""

    ids: list[int]
    score: float
    """``log_prob / length ** length_penalty``."""
    log_prob: float


@dataclass
class _Beam:
    """The sentences still open, and their hypotheses of equal length."""

    sentences: Ints
    """(B,) rows of the source batch."""
    limits: Ints
    """(B,) longest translation of each, EOS not counted."""
    ids: Ints
    """(B, K, t)."""
    log_probs: Floats
    """(B, K); -inf marks a hypothesis that is none (fewer continuations than places)."""


@dataclass
class _Candidates:
    """Continuations of every open sentence, best first: each (B, 2 * beam)."""

    log_probs: Floats
    parents: Ints
    tokens: Ints

    def take(self, which: Ints) -> _Candidates:
        """Those at ``which`` (B, n)."""
        return _Candidates(
            np.take_along_axis(self.log_probs, which, axis=1),
            np.take_along_axis(self.parents, which, axis=1),
            np.take_along_axis(self.tokens, which, axis=1),
        )


@torch.no_grad()
def beam_search(
    model: Decodable[Any],
    src: Tensor,
    *,
    beam: int,
    length_penalty: float,
    max_len_a: float,
    max_len_b: float,
    min_len: int = 1,
    n_best: int = 1,
    bos: int = BOS,
    eos: int = EOS,
    pad: int = PAD,
) -> list[list[Hypothesis]]:
    """Translate ``src`` (B, S): for each sentence up to ``n_best`` hypotheses, best score first.

    At each step the ``2 * beam`` most probable continuations of a sentence are looked at: those
    that end and rank among the first ``beam`` are finished, the best ``beam`` others go on. A
    sentence is done once ``beam`` hypotheses are finished, or at its longest translation,
    ``max_len_a * length + max_len_b`` tokens and a forced EOS. Its length counts its EOS but no
    padding (the authors' toolkit counts padding too, so that translations vary with the batch).
    PAD and BOS are never produced, EOS not before ``min_len`` tokens (the toolkit's default is
    1, too). Equal probabilities: earlier parent, more probable token, lower id.

    A sentence always has a hypothesis: an empty one of score -inf if the model gives no
    probability (NaN counts as none) to any. Put ``model`` in evaluation mode first.
    """
    _check(beam, n_best)
    if not len(src):
        return []
    found: list[list[Hypothesis]] = [[] for _ in range(len(src))]
    open_ = _opened(src, pad, max_len_a, max_len_b)
    never = torch.tensor([pad, bos], device=src.device)
    too_early = torch.tensor([pad, bos, eos], device=src.device)
    tokens = np.full((len(src), 1), bos)
    state = model.start(src)
    for t in count():
        log_probs = model.step(_to(src, tokens), state)
        banned = too_early if t < min_len else never
        best = _continuations(open_, log_probs, 2 * beam, eos, banned)
        ends = (best.tokens == eos) & (best.log_probs > -math.inf)
        _finish(found, open_, best, ends[:, :beam], length_penalty)

        # A parent has one EOS, so at least half of the candidates go on: False sorts first.
        best = best.take(np.argsort(ends, axis=1, kind="stable")[:, :beam])
        alive = best.log_probs > -math.inf
        full = np.array([len(found[s]) == beam for s in open_.sentences])
        kept = np.flatnonzero(alive.any(axis=1) & ~full & (open_.limits > t))
        if not len(kept):
            break
        tokens = np.where(alive, best.tokens, bos)[kept]
        best = _Candidates(best.log_probs[kept], best.parents[kept], best.tokens[kept])
        if _moved(open_, kept, best.parents):
            state.reorder(_to(src, kept), _to(src, best.parents))
        open_ = _extend(open_, kept, best)
    none = Hypothesis([], -math.inf, -math.inf)
    # Of equal scores, the one found first comes first.
    return [sorted(each, key=lambda h: -h.score)[:n_best] or [none] for each in found]


def _check(beam: int, n_best: int) -> None:
    if beam < 1:
        raise InputError(f"beam={beam} must be at least 1 (1 decodes greedily)")
    if not 1 <= n_best <= beam:
        raise InputError(
            f"n_best={n_best} must be from 1 to beam={beam}; a search finds no more than its beam"
        )


def _opened(src: Tensor, pad: int, max_len_a: float, max_len_b: float) -> _Beam:
    """One empty hypothesis per sentence."""
    lengths = (src != pad).sum(dim=1).cpu().numpy()
    limits = np.floor(max_len_a * lengths + max_len_b).astype(np.int64)
    n = len(src)
    return _Beam(np.arange(n), limits, np.empty((n, 1, 0), np.int64), np.zeros((n, 1)))


def _to(like: Tensor, array: Ints) -> Tensor:
    return torch.from_numpy(array).to(like.device)


def _best_tokens(log_probs: Tensor, k: int) -> tuple[Floats, Ints]:
    """Return the ``k`` best values and ids of each hypothesis, (B, K, k); ties by lower id."""
    rows = log_probs.flatten(0, 1)
    k = min(k, rows.shape[1])
    # One more than needed shows whether a tie runs across the edge of the best k.
    top = rows.topk(min(k + 1, rows.shape[1]))
    values, ids = top.values.cpu().numpy(), top.indices.cpu().numpy()
    if np.isnan(values).any():
        return _best_tokens(log_probs.masked_fill(log_probs.isnan(), -math.inf), k)
    tied = (values[:, k - 1] == values[:, -1]) & (values[:, -1] > -math.inf)
    if values.shape[1] > k and tied.any():
        # Which of equal values `topk` takes depends on device and shape, hence on the batch.
        exact = rows[_to(rows, np.flatnonzero(tied))].sort(dim=1, descending=True, stable=True)
        ids[tied] = exact.indices[:, : k + 1].cpu().numpy()
    values, ids = values[:, :k], ids[:, :k]
    order = np.lexsort((ids, -values), axis=1)
    values, ids = (np.take_along_axis(x, order, axis=1) for x in (values, ids))
    shape = (*log_probs.shape[:2], k)
    return values.astype(np.float64).reshape(shape), ids.reshape(shape)


def _continuations(
    open_: _Beam, log_probs: Tensor, n: int, eos: int, banned: Tensor
) -> _Candidates:
    """Return the ``n`` best continuations of each sentence; at its limit, EOS alone."""
    at_limit = open_.limits == open_.ids.shape[2]
    last = log_probs[..., eos].cpu().numpy().copy() if at_limit.any() else None
    values, ids = _best_tokens(log_probs.index_fill_(-1, banned, -math.inf), n)
    if last is not None:
        values[at_limit] = -math.inf
        values[at_limit, :, 0], ids[at_limit, :, 0] = last[at_limit], eos
    # NaN (of a forced EOS) sorts last and is not above -inf, so it counts as no continuation.
    total = (open_.log_probs[:, :, None] + values).reshape(len(values), -1)
    order = np.argsort(-total, axis=1, kind="stable")[:, :n]
    every = np.broadcast_to(np.arange(ids.shape[1])[:, None], ids.shape)
    best = _Candidates(total, every.reshape(total.shape), ids.reshape(total.shape)).take(order)
    if (short := n - order.shape[1]) > 0:  # a vocabulary smaller than the beam
        fill = ((0, 0), (0, short))
        best.log_probs = np.pad(best.log_probs, fill, constant_values=-math.inf)
        best.parents, best.tokens = np.pad(best.parents, fill), np.pad(best.tokens, fill)
    return best


def _finish(
    found: list[list[Hypothesis]],
    open_: _Beam,
    best: _Candidates,
    ends: npt.NDArray[np.bool_],
    length_penalty: float,
) -> None:
    """Add the candidates that end to ``found``, best first, up to the beam's size."""
    length = open_.ids.shape[2] + 1
    for row, rank in zip(*np.nonzero(ends)):
        hypotheses = found[open_.sentences[row]]
        if len(hypotheses) < ends.shape[1]:
            ids = open_.ids[row, best.parents[row, rank]].tolist()
            log_prob = float(best.log_probs[row, rank])
            hypotheses.append(Hypothesis(ids, log_prob / length**length_penalty, log_prob))


def _moved(open_: _Beam, kept: Ints, parents: Ints) -> bool:
    """Whether any cache has to change its place."""
    stay = np.broadcast_to(np.arange(open_.ids.shape[1]), open_.ids.shape[:2])
    return len(kept) < len(open_.sentences) or not np.array_equal(parents, stay)


def _extend(open_: _Beam, kept: Ints, best: _Candidates) -> _Beam:
    """Return the ``kept`` sentences, each hypothesis one token longer."""
    ids = np.take_along_axis(open_.ids[kept], best.parents[:, :, None], axis=1)
    ids = np.concatenate([ids, best.tokens[:, :, None]], axis=2)
    return _Beam(open_.sentences[kept], open_.limits[kept], ids, best.log_probs)
