"""The paper's two translation settings: what their recipes come to, against the paper's numbers."""

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir

from lnexp.build import build_model, build_preparation, build_vocabulary, make
from lnexp.config import conf_dir
from lnexp.errors import InputError
from lnexp.validate import validate


def composed(*overrides):
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return validate(compose("config", list(overrides)))


@pytest.mark.parametrize(
    ("recipe", "vocab_size", "parameters"),
    [("iwslt14", 10_000, 36_663_296), ("wmt14", 37_000, 63_082_496)],
)
def test_models_have_the_papers_numbers_of_parameters(recipe, vocab_size, parameters):
    with torch.device("meta"):  # sizes only
        sizes = {}
        for placement in ("post_ln", "pre_ln"):
            model = build_model(composed(f"recipe={recipe}", f"placement={placement}"), vocab_size)
            sizes[placement] = sum(p.numel() for p in model.parameters())
    assert sizes["post_ln"] == parameters
    assert sizes["pre_ln"] == parameters + 2 * 2 * 512  # a final norm for each stack


def test_iwslt14_is_trained_as_the_appendix_says():
    cfg = composed("+exp=postln_warmup", "recipe=iwslt14")
    assert cfg.train.tokens_per_batch * cfg.train.batches_per_update == 4096
    assert (cfg.model.d_model, cfg.model.d_ff, cfg.model.n_heads, cfg.model.n_layers) == (
        512,
        1024,
        4,
        6,
    )
    assert (cfg.model.dropout, cfg.task["label_smoothing"], cfg.train.clip_norm) == (0.1, 0.1, None)
    assert cfg.optimizer["betas"] == [0.9, 0.98]
    lr = make(cfg.schedule)
    # Equation 1: linear to 5e-4 at update 4,000, then the inverse square root.
    rates = [cfg.optimizer["lr"] * lr(t) for t in (1, 2000, 4000, 16_000)]
    assert rates == pytest.approx([5e-4 / 4000, 2.5e-4, 5e-4, 2.5e-4])
    assert (cfg.decode.beam, cfg.decode.length_penalty) == (5, 1.2)


def test_wmt14_is_trained_on_131k_tokens_an_update():
    cfg = composed("+exp=postln_warmup", "recipe=wmt14")
    assert cfg.train.tokens_per_batch * cfg.train.batches_per_update == 131_072
    assert (cfg.model.d_model, cfg.model.d_ff, cfg.model.n_heads, cfg.model.n_layers) == (
        512,
        2048,
        8,
        6,
    )
    assert (cfg.data.src, cfg.data.tgt, cfg.data.vocab_size) == ("en", "de", 37_000)
    lr = make(cfg.schedule)
    assert cfg.optimizer["lr"] * lr(4000) == pytest.approx(7e-4)
    other = composed("+exp=preln_nowarmup", "recipe=wmt14", "recipe.lr=1.5e-3")
    assert np.isclose(other.optimizer["lr"] * make(other.schedule)(1), 1.5e-3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.codes=nowhere"], r"data\.codes=nowhere cannot be read \(No such file.*name a file"),
        (["data.tokenize=spacy"], r"data\.tokenize=spacy must be moses, or null"),
        (["data.subword=word"], r"data\.subword=word must be sentencepiece or bpe"),
        (
            ["data.min_words=9", "data.max_words=5"],
            r"data\.min_words=9 is more than data\.max_words=5",
        ),
        (["data.max_ratio=0.5"], r"data\.max_ratio=0\.5 must be 1 or more, or null"),
        (["data.valid_every=1"], r"data\.valid_every=1 must be 2 or more, or null"),
        (["data.vocab_lines=0"], r"data\.vocab_lines=0 must be at least 1, or null"),
        (["train.keep_weights=-1"], r"train\.keep_weights=-1 must be a number of evaluations"),
    ],
)
def test_wrong_values_are_refused_in_one_line(overrides, message):
    def build():
        cfg = composed("recipe=iwslt14", *overrides)
        build_vocabulary(cfg)
        build_preparation(cfg)

    with pytest.raises(InputError, match=message) as error:
        build()
    assert "\n" not in str(error.value)


def test_merges_for_a_vocabulary_without_merges_are_refused(tmp_path):
    (tmp_path / "codes").write_text("a b\n")
    cfg = composed(
        "recipe=iwslt14", f"data.codes={tmp_path / 'codes'}", "data.subword=sentencepiece"
    )
    with pytest.raises(InputError, match=r"data\.codes is set, .*set data\.subword=bpe"):
        build_vocabulary(cfg)


def test_merges_are_read_from_a_gzipped_file_and_named_when_damaged(tmp_path):
    import gzip

    (tmp_path / "codes.gz").write_bytes(gzip.compress(b"a b\n"))
    cfg = composed("recipe=iwslt14", f"data.codes={tmp_path / 'codes.gz'}", "data.vocab_size=9")
    assert build_vocabulary(cfg).codes == b"a b\n"
    (tmp_path / "codes.gz").write_bytes(gzip.compress(b"a b\n")[:-6])
    with pytest.raises(InputError, match=r"codes\.gz cannot be read"):
        build_vocabulary(cfg)
