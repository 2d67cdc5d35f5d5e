"""Scores and signatures against sacreBLEU's own command line."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lnexp.decode.bleu import corpus_scores
from lnexp.errors import InputError

REFERENCES = [
    "The house at the end of the street is red, isn't it?",
    "Twenty-one bottles of wine cost 12.50 euros.",
    'He said: "No!" \u2013 and left.',
    "Ein Stra\u00dfenf\u00e9st in M\u00fcnchen\u2028mit Musik",
    "Nothing was found here at all.",
]
HYPOTHESES = [
    "the house at the end of the road is red , is it not ?",
    "Twenty-one bottles of wine cost 12.50 Euros.",
    'He said: "No" \u2013 and left.  ',
    "Ein Stra\u00dfenf\u00e9st in M\u00fcnchen\u2028ohne Musik",
    "",
]


def command_line(tmp_path, *options):
    """Scores and signatures as ``python -m sacrebleu`` prints them, with all their digits."""
    for name, lines in (("ref", REFERENCES), ("hyp", HYPOTHESES)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", "ref", "-i", "hyp", "-m", "bleu", "chrf",
         "--format", "json", "-w", "12", *options],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    bleu, chrf = json.loads(done.stdout)
    assert (bleu["name"], chrf["name"]) == ("BLEU", "chrF2")
    return bleu, chrf


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, []),
        ({"lowercase": True}, ["-lc", "--chrf-lowercase"]),
        ({"lowercase": True, "tokenize": "none"}, ["-lc", "--chrf-lowercase", "-tok", "none"]),
        ({"tokenize": "intl"}, ["-tok", "intl"]),
    ],
)
def test_scores_equal_the_command_line(tmp_path, arguments, options):
    scores = corpus_scores(HYPOTHESES, REFERENCES, **arguments)
    for name, theirs in zip(("bleu", "chrf"), command_line(tmp_path, *options), strict=True):
        assert scores[name] == pytest.approx(theirs["score"], abs=1e-11)
        assert 0 < scores[name] < 100
        assert scores[f"{name}_signature"] == theirs["signature"]
    assert "tok:" + arguments.get("tokenize", "13a") in scores["bleu_signature"]


def test_a_perfect_translation_scores_100():
    scores = corpus_scores(REFERENCES, REFERENCES)
    assert scores["bleu"] == pytest.approx(100)
    assert scores["chrf"] == pytest.approx(100)


def test_bleu_by_hand():
    # 5 of 6 words are right, 3 of 5 pairs (the cat, cat sat, sat on), 2 of 4 triples, 1 of 3
    # quadruples; as long as the reference, so no brevity penalty.
    scores = corpus_scores(["the cat sat on my mat"], ["the cat sat on the mat"])
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert scores["bleu"] == pytest.approx(expected)


def test_case_counts_unless_lowercase():
    assert corpus_scores(["A B C D E"], ["a b c d e"])["bleu"] == 0
    lower = corpus_scores(["A B C D E"], ["a b c d e"], lowercase=True)
    assert lower["bleu"] == pytest.approx(100)
    assert "case:lc" in lower["bleu_signature"]


def test_empty_translations_score_0():
    scores = corpus_scores(["", ""], ["a b", "c d"])
    assert (scores["bleu"], scores["chrf"]) == (0, 0)


def test_tokenised_text_is_scored_without_a_warning(caplog):
    corpus_scores(["a b ."] * 200, ["a b ."] * 200, tokenize="none")
    assert not caplog.records


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), min_size=1, max_size=5))
def test_any_text_has_scores_from_0_to_100(pairs):
    scores = corpus_scores([h for h, _ in pairs], [r for _, r in pairs])
    for name in ("bleu", "chrf"):
        assert 0 <= scores[name] <= 100 + 1e-9
    assert json.loads(json.dumps(scores)) == scores


def test_unequal_numbers_of_lines_are_refused():
    with pytest.raises(InputError, match=r"^2 hypotheses for 1 references: .*one line of each"):
        corpus_scores(["a", "b"], ["a"])


def test_no_sentences_are_refused():
    with pytest.raises(InputError, match=r"^0 hypotheses: "):
        corpus_scores([], [])


def test_an_unknown_tokeniser_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match=r"^tokenize=moses is no tokeniser .*13a, intl"):
        corpus_scores(["a"], ["a"], tokenize="moses")
