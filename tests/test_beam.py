"""Beam search against exhaustive search, and against a plain one-sentence reference."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lnexp.decode.beam import BOS, EOS, PAD, Hypothesis, beam_search
from lnexp.errors import InputError
from lnexp.model.placement import PostLN, PreLN
from lnexp.model.transformer import ModelShape, Transformer

N_ROWS = 1009  # of the table of log-probabilities; a prime spreads the hashes


class TableModel:
    """Log-probabilities that depend on the whole source and the whole prefix, through a hash.

    ``levels`` quantises the logits, so that a few levels make many exact ties.
    """

    def __init__(self, seed, vocab, levels=None, eos_bonus=0.0):
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(N_ROWS, vocab, generator=generator)
        if levels:
            logits = torch.randint(levels, (N_ROWS, vocab), generator=generator).float()
        logits[:, EOS] += eos_bonus
        self.table = logits.log_softmax(-1)
        self.rows_stepped = []
        self.reorders = 0

    def start(self, src):
        key = torch.zeros(len(src), dtype=torch.int64)
        for column in src.T:
            key = torch.where(column == PAD, key, (key * 31 + column + 1) % N_ROWS)
        return TableState(self, key[:, None])

    def step(self, tokens, state):
        assert tokens.shape == state.key.shape
        assert (tokens != PAD).all()
        self.rows_stepped.append(tokens.numel())
        state.key = (state.key * 37 + tokens + 1) % N_ROWS
        return self.table[state.key]

    def log_probs(self, src, prefix):
        """The same as a plain function of one sentence and one prefix, BOS not included."""
        key = 0
        for token in src:
            key = (key * 31 + token + 1) % N_ROWS
        for token in (BOS, *prefix):
            key = (key * 37 + token + 1) % N_ROWS
        return self.table[key].tolist()


class TableState:
    def __init__(self, model, key):
        self.model, self.key = model, key

    def reorder(self, sentences, parents):
        assert sentences.tolist() == sorted(set(sentences.tolist()))
        self.model.reorders += 1
        self.key = self.key[sentences].gather(1, parents)


def pad(sentences):
    width = max(map(len, sentences))
    return torch.tensor([[*s, *[PAD] * (width - len(s))] for s in sentences])


def reference(log_probs, src, *, beam, length_penalty, max_len_a, max_len_b, min_len=1):
    """Search one sentence with lists; ``log_probs(src, prefix)`` sees the whole prefix."""
    limit = int(max_len_a * len(src) + max_len_b)
    live, done = [(0.0, [])], []
    for t in range(limit + 1):
        candidates = []
        for parent, (total, prefix) in enumerate(live):
            for token, lp in enumerate(log_probs(src, prefix)):
                allowed = token == EOS if t == limit else token not in (PAD, BOS)
                if t < min_len and t < limit and token == EOS:
                    allowed = False
                if allowed and lp > -math.inf:
                    candidates.append((-(total + lp), parent, -lp, token, prefix))
        candidates = sorted(candidates)[: 2 * beam]
        live = []
        for rank, (minus_total, _, _, token, prefix) in enumerate(candidates):
            if token != EOS:
                live.append((-minus_total, [*prefix, token]))
            elif rank < beam and len(done) < beam:
                score = -minus_total / (t + 1) ** length_penalty
                done.append(Hypothesis(prefix, score, -minus_total))
        live = live[:beam]
        if len(done) == beam or not live:
            break
    return sorted(done, key=lambda h: -h.score)


def everything(log_probs, src, words, limit, length_penalty, min_len):
    """Score every translation of up to ``limit`` words, by enumeration."""
    found = []
    for n in range(min_len, limit + 1):
        for words_ in itertools.product(words, repeat=n):
            ids = [*words_, EOS]
            total = sum(log_probs(src, ids[:i])[ids[i]] for i in range(n + 1))
            found.append(Hypothesis(list(words_), total / (n + 1) ** length_penalty, total))
    return sorted(found, key=lambda h: -h.score)


def assert_same(actual, expected):
    assert [h.ids for h in actual] == [h.ids for h in expected]
    for name in ("score", "log_prob"):
        np.testing.assert_allclose(
            [getattr(h, name) for h in actual], [getattr(h, name) for h in expected], rtol=1e-12
        )


settings_ = settings(deadline=None, max_examples=60)
sources = st.lists(
    st.lists(st.integers(4, 8), max_size=5).map(lambda ids: [*ids, EOS]), min_size=1, max_size=6
)
options = st.fixed_dictionaries(
    {
        "beam": st.integers(1, 6),
        "length_penalty": st.sampled_from([0.0, 0.6, 1.0, 1.2]),
        "max_len_a": st.sampled_from([0.0, 0.5, 1.2]),
        "max_len_b": st.integers(0, 6),
        "min_len": st.integers(0, 2),
    }
)
models = st.builds(
    TableModel,
    seed=st.integers(0, 10_000),
    vocab=st.integers(4, 12),
    levels=st.sampled_from([None, 1, 2, 5]),
    eos_bonus=st.sampled_from([-2.0, 0.0, 2.0]),
)


# With no fewer places than there are translations, nothing is ever dropped: a step has at most
# as many candidates as the beam, and a sentence is full only when every translation is found.
# So the search is exact for any length penalty. (With a narrow beam it is not even for penalty
# 0, since a low-ranked prefix may be the best one's.)
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("min_len", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_every_translation_in_order_of_score(seed, min_len, length_penalty):
    model, words, limit = TableModel(seed, vocab=6), (1, 4, 5), 3
    sentences = [[4, EOS], [5, 4, 4, EOS]]
    n = sum(len(words) ** length for length in range(limit + 1))
    result = beam_search(
        model, pad(sentences), beam=n, n_best=n, length_penalty=length_penalty,
        max_len_a=0, max_len_b=limit, min_len=min_len,
    )  # fmt: skip
    for src, hypotheses in zip(sentences, result, strict=True):
        expected = everything(model.log_probs, src, words, limit, length_penalty, min_len)
        assert_same(hypotheses, expected)


@settings_
@given(models, sources, options)
@example(TableModel(0, 4, levels=1), [[EOS]], {"beam": 6, "length_penalty": 1.0, "max_len_a": 0.0,
         "max_len_b": 4, "min_len": 1})  # fmt: skip
def test_search_agrees_with_the_reference(model, sentences, kwargs):
    result = beam_search(model, pad(sentences), n_best=kwargs["beam"], **kwargs)
    for src, hypotheses in zip(sentences, result, strict=True):
        assert_same(hypotheses, reference(model.log_probs, src, **kwargs))


@settings_
@given(models, sources, options, st.randoms(use_true_random=False))
def test_a_translation_is_the_same_alone_and_in_any_batch_and_order(model, sentences, kwargs, rng):
    search = functools.partial(beam_search, model, n_best=kwargs["beam"], **kwargs)
    alone = [search(pad([src]))[0] for src in sentences]
    order = rng.sample(range(len(sentences)), len(sentences))
    shuffled = pad([sentences[i] for i in order])
    wider = torch.nn.functional.pad(shuffled, (0, rng.randrange(3)))
    assert search(wider) == [alone[i] for i in order]


@settings_
@given(models, sources, options)
def test_beam_1_is_greedy(model, sentences, kwargs):
    kwargs = {**kwargs, "beam": 1, "min_len": 0}
    for src, (best,) in zip(sentences, beam_search(model, pad(sentences), **kwargs), strict=True):
        limit, ids = int(kwargs["max_len_a"] * len(src) + kwargs["max_len_b"]), []
        while len(ids) < limit:
            log_probs = model.log_probs(src, ids)
            log_probs[PAD] = log_probs[BOS] = -math.inf
            token = int(np.argmax(log_probs))
            if token == EOS:
                break
            ids.append(token)
        assert best.ids == ids


@settings_
@given(models, sources, options)
def test_hypotheses_are_ranked_distinct_and_hold_only_words(model, sentences, kwargs):
    beam = kwargs["beam"]
    for src, hypotheses in zip(
        sentences, beam_search(model, pad(sentences), n_best=beam, **kwargs), strict=True
    ):
        limit = int(kwargs["max_len_a"] * len(src) + kwargs["max_len_b"])
        assert 1 <= len(hypotheses) <= beam
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            assert not {PAD, BOS, EOS} & set(h.ids)
            assert min(kwargs["min_len"], limit) <= len(h.ids) <= limit


def chain(rows):
    """A model without memory: ``rows[token]`` maps next tokens to probabilities."""
    model = TableModel(0, vocab=6)
    table = torch.full((6, 6), -math.inf)
    for token, row in rows.items():
        for following, p in row.items():
            table[token, following] = math.log(p) if p else -math.inf

    def step(tokens, state):
        return table[tokens]

    model.step = step
    return model


def test_score_is_log_probability_over_length_with_eos_to_the_penalty():
    model = chain({BOS: {4: 0.5, 5: 0.25}, 4: {5: 0.5, EOS: 0.25}, 5: {EOS: 0.5, 4: 0.5}})
    (best,) = beam_search(
        model, pad([[4, EOS]]), beam=3, n_best=3, length_penalty=0.5, max_len_a=0, max_len_b=2
    )
    # 4 5 EOS: 1/2 · 1/2 · 1/2; 4 EOS and 5 EOS: 1/8 each; 5 4 EOS: 1/4 · 1/2 · 1/4.
    by_ids = {tuple(h.ids): h for h in best}
    assert by_ids[4, 5].log_prob == pytest.approx(math.log(1 / 8))
    assert by_ids[4, 5].score == pytest.approx(math.log(1 / 8) / math.sqrt(3))
    assert by_ids[4,].score == pytest.approx(math.log(1 / 8) / math.sqrt(2))
    assert best[0].ids == [4, 5]  # equally probable as the others, and longer


def test_length_penalty_changes_the_winner():
    model = chain({BOS: {4: 1.0}, 4: {5: 0.6, EOS: 0.4}, 5: {EOS: 0.6}})
    kwargs = dict(beam=2, max_len_a=0, max_len_b=5)
    ((short,),) = beam_search(model, pad([[EOS]]), length_penalty=0, **kwargs)
    ((long,),) = beam_search(model, pad([[EOS]]), length_penalty=1, **kwargs)
    assert (short.ids, long.ids) == ([4], [4, 5])


def test_eos_that_ranks_behind_the_beam_is_not_finished():
    # At the second step 5, 4 precede EOS: rank 3 of a beam of 2 neither ends nor goes on.
    model = chain({BOS: {4: 1.0}, 4: {5: 0.5, 4: 0.3, EOS: 0.2}, 5: {EOS: 1.0}})
    (found,) = beam_search(
        model, pad([[EOS]]), beam=2, n_best=2, length_penalty=0, max_len_a=0, max_len_b=9
    )
    assert [4] not in [h.ids for h in found]
    assert [4, 5] in [h.ids for h in found]


def test_longest_translation_depends_on_the_sentence_without_padding():
    # EOS has probability 0.001: every sentence runs into its own limit, and EOS is forced there.
    model = chain({BOS: {4: 0.999, EOS: 0.001}, 4: {4: 0.999, EOS: 0.001}})
    sentences = [[4] * n + [EOS] for n in (0, 7, 3)]
    result = beam_search(
        model, pad(sentences), beam=1, length_penalty=1, max_len_a=1.5, max_len_b=2
    )
    assert [len(best.ids) for (best,) in result] == [3, 14, 8]  # floor(1.5 · (n + 1) + 2)
    expected = 3 * math.log(0.999) + math.log(0.001)
    assert result[0][0].log_prob == pytest.approx(expected, rel=1e-6)


def test_the_first_parent_and_the_lowest_id_win_ties():
    model = TableModel(0, vocab=9, levels=1)  # all tokens equally probable, always
    ((best,),) = beam_search(
        model, pad([[EOS]]), beam=2, length_penalty=0, max_len_a=0, max_len_b=3, min_len=3
    )
    assert best.ids == [1, 1, 1]


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_model_without_probabilities_yields_an_empty_translation(bad):
    model = TableModel(0, vocab=8)
    model.table.fill_(bad)
    result = beam_search(
        model, pad([[4, EOS], [EOS]]), beam=3, length_penalty=1, max_len_a=1, max_len_b=5
    )
    assert result == [[Hypothesis([], -math.inf, -math.inf)]] * 2


def test_nan_is_never_chosen():
    model = TableModel(3, vocab=8)
    clean = TableModel(3, vocab=8)
    model.table[:, 5], clean.table[:, 5] = math.nan, -math.inf
    kwargs = dict(beam=4, n_best=4, length_penalty=1, max_len_a=1, max_len_b=5)
    sentences = pad([[4, EOS], [6, 7, EOS]])
    assert beam_search(model, sentences, **kwargs) == beam_search(clean, sentences, **kwargs)


@pytest.mark.parametrize("placement", [PreLN, PostLN])
def test_cached_search_of_a_transformer_agrees_with_its_whole_prefix_forward(placement):
    torch.manual_seed(0)
    shape = ModelShape(16, 32, 2, 2, dropout=0.1, attention_dropout=0.1, activation_dropout=0.1)
    model = Transformer(shape, 12, PAD, functools.partial(placement, norm=torch.nn.LayerNorm))
    for parameter in model.parameters():  # away from uniform predictions
        torch.nn.init.normal_(parameter, std=0.5)
    model.double().eval()
    sentences = [[4, 5, 6, 7, EOS], [8, EOS], [9, 9, 4, EOS], [10, 11, 5, EOS]]

    @torch.no_grad()
    def log_probs(src, prefix):
        hidden = model(torch.tensor([src]), torch.tensor([[BOS, *prefix]]))[0, -1]
        return model.logits(hidden).log_softmax(-1).tolist()

    kwargs = dict(beam=4, length_penalty=1.0, max_len_a=1.2, max_len_b=5)
    result = beam_search(model, pad(sentences), n_best=4, **kwargs)
    for src, hypotheses in zip(sentences, result, strict=True):
        expected = reference(log_probs, src, **kwargs)
        assert [h.ids for h in hypotheses] == [h.ids for h in expected]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], rel=1e-5)


def test_finished_sentences_leave_the_batch():
    model = chain({BOS: {4: 1.0}, 4: {4: 1.0}})
    rows = []
    step = model.step
    model.step = lambda tokens, state: rows.append(tuple(tokens.shape)) or step(tokens, state)
    sentences = pad([[4] * n + [EOS] for n in (2, 0, 1)])
    beam_search(model, sentences, beam=1, length_penalty=1, max_len_a=1, max_len_b=0)
    assert rows == [(3, 1), (3, 1), (2, 1), (1, 1)]  # limits 3, 1 and 2, and a step for EOS


def test_a_sentence_with_a_full_beam_leaves_the_batch():
    model = chain({BOS: {4: 0.6, 5: 0.4}, 4: {EOS: 1.0}, 5: {EOS: 0.5, 5: 0.5}})
    calls = []
    step = model.step
    model.step = lambda tokens, state: calls.append(tuple(tokens.shape)) or step(tokens, state)
    ((first, second),) = beam_search(
        model, pad([[EOS]]), beam=2, n_best=2, length_penalty=0, max_len_a=0, max_len_b=50
    )
    assert (first.ids, second.ids) == ([4], [5])
    assert calls == [(1, 1), (1, 2)]  # both found at the second step; 5 5 is not looked at


def test_greedy_search_moves_no_cache_while_no_sentence_ends():
    model = TableModel(1, vocab=8, eos_bonus=-50)
    beam_search(
        model, pad([[4, EOS], [5, EOS]]), beam=1, length_penalty=1, max_len_a=0, max_len_b=20
    )
    assert (model.reorders, len(model.rows_stepped)) == (0, 21)


def test_no_sentences_no_translations():
    src = torch.empty(0, 5, dtype=torch.int64)
    assert beam_search(None, src, beam=2, length_penalty=1, max_len_a=1, max_len_b=1) == []


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"beam": 0}, r"^beam=0 must be at least 1"),
        ({"beam": 2, "n_best": 3}, r"^n_best=3 must be from 1 to beam=2"),
        ({"beam": 2, "n_best": 0}, r"^n_best=0 must be from 1 to beam=2"),
    ],
)
def test_impossible_sizes_are_refused(kwargs, message):
    with pytest.raises(InputError, match=message):
        beam_search(
            TableModel(0, 6), pad([[EOS]]), length_penalty=1, max_len_a=1, max_len_b=1, **kwargs
        )
