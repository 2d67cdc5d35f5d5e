"""BPE is subword-nmt's, its pieces are the training text's, and a vocabulary is what it says."""

import gzip
import io
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data.tokenizer import (
    BOS,
    EOS,
    PAD,
    UNK,
    check_merges,
    count_words,
    learn_merges,
)
from lnexp.data.vocabulary import Vocabulary, load_tokenizer
from lnexp.errors import InputError

DE = ["der hund lief schnell zum haus .", "das haus war gross .", "die hunde liefen ."] * 3
EN = ["the dog ran fast to the house .", "the house was large .", "the dogs ran ."] * 3
PAIRS = (DE, EN)
CODES = b"#version: 0.2\nt h\nth e</w>\nh u\nd </w>\n"


@pytest.fixture(scope="module")
def tokenizer():
    return Vocabulary("bpe", 20).learn(PAIRS)


def subword_nmt(command, *arguments, text):
    """subword-nmt's own command line."""
    done = subprocess.run(
        [sys.executable, "-m", f"subword_nmt.{command}_bpe", *arguments],
        input=text, capture_output=True, text=True, check=True, encoding="utf-8",
    )  # fmt: skip
    return done.stdout


def test_merges_and_segmentation_are_those_of_subword_nmts_command_line(tokenizer, tmp_path):
    text = "".join(f"{line}\n" for side in PAIRS for line in side)
    codes = subword_nmt("learn", "-s", "20", text=text)
    assert learn_merges(count_words(text.splitlines()), 20) == codes
    (tmp_path / "codes").write_text(codes)
    segmented = subword_nmt("apply", "-c", str(tmp_path / "codes"), text=text).splitlines()
    ids = tokenizer.encode([line for side in PAIRS for line in side])
    assert [" ".join(tokenizer.pieces(line)) for line in ids] == segmented
    # As fairseq makes its dictionary: every piece of the training text, the most frequent first.
    counts = Counter(piece for line in segmented for piece in line.split())
    assert tokenizer.vocab_size == 4 + len(counts)
    frequencies = [counts[piece] for piece in tokenizer.pieces(range(4, tokenizer.vocab_size))]
    assert frequencies == sorted(counts.values(), reverse=True)


def test_given_merges_are_used_instead_of_learned_ones():
    tokenizer = Vocabulary("bpe", 4, CODES).learn(PAIRS)
    [ids] = tokenizer.encode(["the hund"])
    assert tokenizer.pieces(ids) == ["the", "hu@@", "n@@", "d"]
    [first] = Vocabulary("bpe", 1, CODES).learn(PAIRS).encode(["the"])
    assert len(first) == 2  # t h and no more


@given(st.lists(st.text(st.sampled_from(sorted(set("".join(DE + EN)) - {" "})), min_size=1)))
def test_decoding_gives_back_the_words(tokenizer, words):
    [ids] = tokenizer.encode([" ".join(words)])
    # A piece that the training text never falls into is unknown, as in the authors' toolkit.
    if UNK not in ids:
        assert tokenizer.decode(ids) == " ".join(words)
    assert all(4 <= i < tokenizer.vocab_size or i == UNK for i in ids)


@given(st.text())
def test_any_text_can_be_encoded_and_runs_of_blanks_are_one(tokenizer, text):
    [ids] = tokenizer.encode([text])
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    assert tokenizer.encode([f"  {text.replace(' ', '   ')} "]) == [ids]


def test_specials_are_dropped_unknown_pieces_shown_and_a_cut_word_ends(tokenizer):
    [ids] = tokenizer.encode(["der hund"])
    assert tokenizer.decode([BOS, *ids, EOS, PAD]) == "der hund"
    assert tokenizer.decode(tokenizer.encode(["der 犬 hund"])[0]) == "der \u2047 hund"
    [rare] = tokenizer.encode(["hxund"])
    assert tokenizer.pieces(rare)[0].endswith("@@")
    assert tokenizer.decode(rare[:1]) == tokenizer.pieces(rare)[0].removesuffix("@@")
    assert tokenizer.encode(["", "der"]) == [[], tokenizer.encode(["der"])[0]]


def test_text_that_looks_like_a_special_is_text():
    tokenizer = Vocabulary("bpe", 1, b"a b\n").learn((["<s> </s> <pad>"], ["a"]))
    [ids] = tokenizer.encode(["<s> <pad>"])
    assert min(ids) > EOS
    assert tokenizer.decode(ids) == "<s> <pad>"


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_the_model_alone_makes_the_tokeniser_again(kind):
    made = Vocabulary(kind, 30).learn(PAIRS)
    again = load_tokenizer(made.model)
    assert again.vocab_size == made.vocab_size
    assert again.encode(DE + EN) == made.encode(DE + EN)
    assert again.model == made.model
    assert Vocabulary(kind, 30).learn(PAIRS).model == made.model


def test_a_sample_is_evenly_spaced_and_the_pieces_come_from_all_of_the_text():
    rare = ["hund"] * 50 + ["katze katze"] + ["hund"] * 49
    pairs = (rare, ["dog"] * 100)
    tokenizer = Vocabulary("bpe", 2, lines=10).learn(pairs)
    assert UNK not in tokenizer.encode(["katze"])[0]
    assert "katze" not in tokenizer.pieces(range(tokenizer.vocab_size))  # no merge saw it
    heard = []
    Vocabulary("sentencepiece", 20, lines=10).learn(pairs, heard.append)
    assert heard == ["learning 20 pieces from 10 pairs"]


def test_whatever_the_pieces_depend_on_is_in_the_identity():
    variants = [
        Vocabulary("bpe", 20), Vocabulary("bpe", 21), Vocabulary("sentencepiece", 20),
        Vocabulary("bpe", 20, CODES), Vocabulary("bpe", 20, CODES + b"x y\n"),
        Vocabulary("bpe", 20, lines=5),
    ]  # fmt: skip
    identities = [str(v.identity()) for v in variants]
    assert len(set(identities)) == len(variants)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Vocabulary("bpe", 500).learn(PAIRS),
         r"data.vocab_size=500 is too large for this text \(it has \d+ merges .* or less"),
        (lambda: Vocabulary("bpe", 9).learn(([""], [" "])), "training split holds no text"),
        (lambda: Vocabulary("bpe", 9, CODES).learn(PAIRS),
         "data.codes holds 4 merges, data.vocab_size=9 asks for more; set data.vocab_size=4"),
        (lambda: check_merges(b"#version: 0.2\na b\nabc\n", 1),
         r"data.codes line 3 \('abc'\) is no merge: two symbols"),
        (lambda: check_merges(b"\xff\xfe", 1), "data.codes is not UTF-8 text"),
        (lambda: Vocabulary("sentencepiece", 9, CODES), "set data.subword=bpe"),
        (lambda: Vocabulary("word", 9), "data.subword=word must be sentencepiece or bpe"),
    ],
)  # fmt: skip
def test_a_vocabulary_that_cannot_be_had_is_refused_in_one_line(make, message):
    with pytest.raises(InputError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_merges_with_carriage_returns_and_without_a_header_are_read():
    assert check_merges(b"t h\r\nth e</w>\r\n", 2) == "t h\nth e</w>\n"


def test_the_communitys_merges_give_the_size_that_papers_have(real_data):
    folder = real_data / "iwslt14_de_en"

    def read(name):
        with gzip.open(folder / name, "rt", encoding="utf-8", newline="\n") as file:
            return io.StringIO(file.read()).read().split("\n")[:-1]

    codes = gzip.decompress((folder / "bpe10k.code.gz").read_bytes())
    pairs = read("train_partial.de.gz"), read("train_partial.en.gz")
    tokenizer = Vocabulary("bpe", 10_000, codes).learn(pairs)
    assert 10_000 < tokenizer.vocab_size < 10_200
    some = read("test.de.gz")[:500]
    known = [ids for ids in tokenizer.encode(some) if UNK not in ids]
    assert len(known) > 480
    assert {tokenizer.decode(ids) for ids in known} <= set(some)
