"""Encoding and decoding are inverse, the specials are where they should be, sizes are exact."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data.tokenizer import BOS, EOS, PAD, UNK, SentencePiece
from lnexp.data.tokenizer import learn_sentencepiece as learn
from lnexp.errors import InputError

LINES = ["der Hund läuft  schnell", "das Haus ist groß", "the dog runs fast", " ½ ﬁn"] * 3
CHARACTERS = sorted(set("".join(LINES)))


@pytest.fixture(scope="module")
def tokenizer():
    return learn(LINES, 60)


@given(st.text(st.sampled_from(CHARACTERS)))
def test_decoding_gives_back_what_was_encoded_blanks_included(tokenizer, text):
    [ids] = tokenizer.encode([text])
    assert tokenizer.decode(ids) == text
    assert not set(ids) & {PAD, UNK, BOS, EOS}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_encoded(tokenizer, text):
    [ids] = tokenizer.encode([text])
    assert all(0 <= i < tokenizer.vocab_size for i in ids)


def test_the_vocabulary_has_the_size_asked_for_with_the_specials_first(tokenizer):
    assert tokenizer.vocab_size == 60
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert len(set(tokenizer.pieces(range(60)))) == 60


def test_an_empty_line_has_no_pieces_and_lines_are_independent(tokenizer):
    assert tokenizer.encode(["", "der Hund", ""]) == [[], *tokenizer.encode(["der Hund"]), []]
    assert tokenizer.encode([]) == []
    assert tokenizer.decode([]) == ""


def test_specials_are_dropped_and_unknown_characters_are_shown(tokenizer):
    [ids] = tokenizer.encode(["der Hund"])
    assert tokenizer.decode([BOS, *ids, EOS, PAD, PAD]) == "der Hund"
    assert tokenizer.decode(tokenizer.encode(["der 犬 Hund"])[0]) == "der \u2047 Hund"


def test_text_that_looks_like_a_special_is_text():
    tokenizer = learn(["< / > s p a d <s> <pad>"], 12)
    [ids] = tokenizer.encode(["<s> </s> <pad>"])
    assert tokenizer.decode(ids) == "<s> </s> <pad>"
    assert min(ids) > EOS


def test_text_is_not_normalised():
    text = "e\u0301 é ﬁ ½ Ⅷ \u00a0x\u2009y \uff57"
    tokenizer = learn([text], 4 + len(set(text)) + 1)
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def test_learning_twice_gives_the_same_bytes_and_a_model_can_be_loaded(tokenizer):
    assert learn(iter(LINES), 60).model == tokenizer.model
    assert SentencePiece(tokenizer.model).encode(LINES) == tokenizer.encode(LINES)


def test_the_most_frequent_pair_is_merged_first():
    # Pairs: a blank and x ten times, then (blank x) and y nine times, then z once.
    lines = ["xy"] * 9 + ["xz"]
    for n, merges in enumerate([["▁x"], ["▁x", "▁xy"], ["▁x", "▁xy", "▁xz"]], 1):
        pieces = learn(lines, 4 + 4 + n).pieces(range(4, 8 + n))
        assert pieces[:n] == merges
        assert set(pieces[n:]) == set("▁xyz")


def test_a_long_line_is_learned_from():
    assert "z" in learn(["a b", "z" * 100_000], 10).pieces(range(10))


@pytest.mark.parametrize(
    ("vocab_size", "message"),
    [
        (9_999, r"^data\.vocab_size=9999 is too large for this text \(at most (\d+) pieces\)"),
        (10, r"^data\.vocab_size=10 is too small for this text's characters .*\((\d+)\)"),
    ],
)
def test_an_impossible_size_is_refused_and_the_one_proposed_works(vocab_size, message):
    with pytest.raises(InputError, match=message) as error:
        learn(LINES, vocab_size)
    assert "\n" not in str(error.value)
    remedy = int(str(error.value).split("data.vocab_size=")[-1].split()[0])
    assert learn(LINES, remedy).vocab_size == remedy


@pytest.mark.parametrize("lines", [[], ["", ""]])
def test_no_text_is_refused(lines):
    with pytest.raises(InputError, match="holds no text to learn a vocabulary from"):
        learn(lines, 100)


@pytest.mark.parametrize("vocab_size", [-1, 0, 3])
def test_a_size_without_room_for_the_specials_is_refused(vocab_size):
    with pytest.raises(InputError, match=rf"^data\.vocab_size={vocab_size} "):
        learn(LINES, vocab_size)


def test_learning_prints_nothing():
    code = "from lnexp.data.tokenizer import learn_sentencepiece as learn; learn(['ein Hund', 'a dog'], 20)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
