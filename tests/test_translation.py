"""The translation task: its loss against torch and the authors' formula, its batches by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sacrebleu.metrics import BLEU

from lnexp.data.cache import tokenised
from lnexp.data.corpus import Corpus
from lnexp.data.tokenizer import BOS, EOS, PAD
from lnexp.data.vocabulary import Vocabulary
from lnexp.decode import beam
from lnexp.errors import InputError
from lnexp.model.placement import PreLN
from lnexp.model.transformer import ModelShape, Transformer
from lnexp.tasks.translation import Batch, DecodeOptions, Translation, pad

TRAIN = (["a b", "b a a b", "c", "a"], ["x y", "y x x y", "z", "x x x x x x"])
OTHER = (["a b c", "c"], ["x y z", "z"])


@pytest.fixture(scope="module")
def corpus():
    return Corpus("t", "de", "en", {"train": TRAIN, "valid": OTHER, "test": OTHER}, {})


@pytest.fixture(scope="module")
def text(corpus, tmp_path_factory):
    cache_dir = tmp_path_factory.mktemp("cache")
    return tokenised(corpus, Vocabulary("sentencepiece", 12), cache_dir=cache_dir)


def task(corpus, text, **changes):
    given = dict(
        corpus=corpus, tokenised=text, label_smoothing=0.1, tokens_per_batch=30, max_length=50,
        seed=1, device=torch.device("cpu"), decode_options=DecodeOptions(2, 1.0, 1.2, 5, 100),
        valid_beam=1,
    )  # fmt: skip
    return Translation(**{**given, **changes})


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = ModelShape(8, 16, 2, 1, 0.0, 0.0, 0.0)
    return Transformer(shape, 12, PAD, lambda stack: PreLN(stack, torch.nn.LayerNorm)).eval()


def test_sentences_are_shifted_ended_and_padded(corpus, text):
    batch = task(corpus, text).collate("train", np.array([2, 0]))
    x, z = (text.tokenizer.encode([s])[0] for s in ("x y", "z"))
    assert batch.tgt_in.tolist() == pad([np.array([BOS, *z]), np.array([BOS, *x])]).tolist()
    assert batch.tgt_out.tolist() == pad([np.array([*z, EOS]), np.array([*x, EOS])]).tolist()
    assert pad([np.array([5]), np.array([6, 7, 8])]).tolist() == [[5, PAD, PAD], [6, 7, 8]]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_loss_is_label_smoothed_cross_entropy_over_real_targets(corpus, text, model, smoothing):
    t = task(corpus, text, label_smoothing=smoothing)
    batch = t.collate("train", np.arange(4))
    assert (batch.tgt_out == PAD).any()
    loss = t.loss(model, batch)
    logits = model.logits(model(batch.src, batch.tgt_in)).transpose(1, 2)
    given = dict(ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(
        loss.objective, F.cross_entropy(logits, batch.tgt_out, label_smoothing=smoothing, **given)
    )
    torch.testing.assert_close(loss.nll, F.cross_entropy(logits, batch.tgt_out, **given))
    assert loss.n_targets == int((batch.tgt_out != PAD).sum())


def test_smoothing_by_hand():
    """(1 - e) * nll + e / V * (sum of -log p): with V = 12 equal scores both are log 12."""

    class Flat(torch.nn.Module):
        def forward(self, src, tgt_in):
            return torch.zeros(*tgt_in.shape, 4)

        def logits(self, hidden):
            return torch.zeros(len(hidden), 12)

    batch = Batch(torch.tensor([[5, EOS]]), torch.tensor([[BOS, 7]]), torch.tensor([[7, EOS]]))
    loss = Translation.loss(type("T", (), {"label_smoothing": 0.1})(), Flat(), batch)
    assert loss.objective.item() == pytest.approx(2 * math.log(12))
    assert loss.nll.item() == pytest.approx(2 * math.log(12))


def test_batches_go_on_from_any_number(corpus, text):
    t = task(corpus, text, tokens_per_batch=20)
    assert t.batches_per_epoch > 1

    def first(start, count):
        return [b.tgt_out.tolist() for b, _ in zip(t.batches(start=start), range(count))]

    whole = first(0, 9)
    for start in range(9):
        assert first(start, 9 - start) == whole[start:]


def test_unigram_entropy_by_hand(corpus, text):
    t = task(corpus, text)
    ids = [i for line in TRAIN[1] for i in [*text.tokenizer.encode([line])[0], EOS]]
    p = np.unique(ids, return_counts=True)[1] / len(ids)
    assert t.unigram_entropy() == pytest.approx(-(p * np.log(p)).sum())
    assert t.tokens_per_epoch == len(ids)


def test_long_pairs_are_left_out_and_counted(corpus, text):
    split = text.splits["train"]
    lengths = np.maximum(split.src.lengths, split.tgt.lengths)
    t = task(corpus, text, max_length=int(lengths.max()))  # EOS makes the longest one too long
    kept = [i for i in range(4) if lengths[i] < lengths.max()]
    assert t.kept.tolist() == kept
    assert 0 < t.dropped["too long"] == 4 - len(kept)
    ids = [i for k in kept for i in [*text.tokenizer.encode([TRAIN[1][k]])[0], EOS]]
    p = np.unique(ids, return_counts=True)[1] / len(ids)
    assert t.unigram_entropy() == pytest.approx(-(p * np.log(p)).sum())
    with pytest.raises(InputError, match=r"data\.max_length=2 leaves no training pair"):
        task(corpus, text, max_length=2)


def test_evaluation_counts_every_pair_whatever_the_batches(corpus, text, model):
    with torch.no_grad():
        small, samples = task(corpus, text, tokens_per_batch=9).evaluate(
            model, "valid", lambda: None
        )
        large, _ = task(corpus, text, tokens_per_batch=500).evaluate(model, "valid", lambda: None)
    assert small["loss"] == pytest.approx(large["loss"], rel=1e-6)
    assert small["n_targets"] == sum(len(x) + 1 for x in text.tokenizer.encode(OTHER[1]))
    assert {k: small[k] for k in small if "loss" not in k} == {
        k: large[k] for k in large if "loss" not in k
    }
    assert samples.startswith("src  a b c\nref  x y z\nhyp  ")


def test_translations_come_in_the_order_of_their_sources_and_do_not_depend_on_the_batch(
    corpus, text, model
):
    t = task(corpus, text)
    sources = [np.array(ids) for ids in text.tokenizer.encode(["c", "b a a b", "", "a", "b a"])]
    with torch.no_grad():
        together = t.decode(model, sources, lambda: None, DecodeOptions(2, 1.0, 1.2, 5, 100))
        alone = [
            t.decode(model, [ids], lambda: None, DecodeOptions(2, 1.0, 1.2, 5, 1))[0]
            for ids in sources
        ]
    assert [h.ids for h in together] == [h.ids for h in alone]
    assert [t.text(h.ids) for h in together] == [text.tokenizer.decode(h.ids) for h in alone]


def test_scores_are_those_of_detokenised_text_where_the_corpus_is_tokenised(corpus, text):
    tokens = ["it &apos;s a dog , isn &apos;t it ?", "the big house is old ."]
    other = ["it &apos;s a cat , isn &apos;t it ?", "the big house is old ."]
    plain = task(corpus, text).scores(tokens, other)
    moses = replace(corpus, tokenised=True, lowercased=True)
    scores = task(moses, text).scores(tokens, other)
    assert "|case:lc|eff:no|tok:13a|" in scores["bleu_signature"]
    assert "tok:none" in scores["bleu_tokenised_signature"]
    expected = BLEU(lowercase=True).corpus_score(
        ["it's a dog, isn't it?", "the big house is old."],
        [["it's a cat, isn't it?", "the big house is old."]],
    )
    assert scores["bleu"] == pytest.approx(expected.score)
    expected = BLEU(lowercase=True, tokenize="none", force=True).corpus_score(tokens, [other])
    assert scores["bleu_tokenised"] == pytest.approx(expected.score)
    assert "bleu_tokenised" not in plain
    assert "case:mixed" in plain["bleu_signature"]


def test_smoothed_bits_are_the_objective_in_base_2(corpus, text, model):
    t = task(corpus, text)
    with torch.no_grad():
        metrics = t.score_loss(model, "valid", lambda: None)
        loss = t.loss(model, t.collate("valid", np.arange(2)))
    expected = loss.objective.item() / loss.n_targets / math.log(2)
    assert metrics["loss_smoothed_bits"] == pytest.approx(expected)


def test_an_end_is_heard_during_evaluation(corpus, text, model):
    class Told(Exception):
        pass

    def poll():
        raise Told

    with pytest.raises(Told), torch.no_grad():
        task(corpus, text).evaluate(model, "valid", poll)


def test_special_pieces_are_the_same_everywhere():
    assert (beam.PAD, beam.BOS, beam.EOS) == (PAD, BOS, EOS)


def test_a_senseless_smoothing_is_refused(corpus, text):
    with pytest.raises(InputError, match=r"task\.label_smoothing=1\.0 must be in \[0, 1\)"):
        task(corpus, text, label_smoothing=1.0)
