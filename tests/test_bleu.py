"""Scores and signatures against sacreBLEU's own command line."""

import json
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lnexp.data.preparation import Moses
from lnexp.decode.bleu import bootstrap, check_resamples, translation_scores
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

MIXED = {"tokenised": False, "lowercased": False, "language": "en"}
LOWER = {**MIXED, "lowercased": True}
IWSLT14 = {"tokenised": True, "lowercased": True, "language": "en"}


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


@pytest.mark.parametrize(("given_", "options"), [(MIXED, []), (LOWER, ["-lc", "--chrf-lowercase"])])
def test_scores_equal_the_command_line(tmp_path, given_, options):
    scores = translation_scores(HYPOTHESES, REFERENCES, **given_)
    for name, theirs in zip(("bleu", "chrf"), command_line(tmp_path, *options), strict=True):
        assert scores[name] == pytest.approx(theirs["score"], abs=1e-11)
        assert 0 < scores[name] < 100
        assert scores[f"{name}_signature"] == theirs["signature"]
    assert "tok:13a" in scores["bleu_signature"]


def test_a_perfect_translation_scores_100():
    scores = translation_scores(REFERENCES, REFERENCES, **MIXED)
    assert scores["bleu"] == pytest.approx(100)
    assert scores["chrf"] == pytest.approx(100)


def test_bleu_by_hand():
    # 5 of 6 words are right, 3 of 5 pairs (the cat, cat sat, sat on), 2 of 4 triples, 1 of 3
    # quadruples; as long as the reference, so no brevity penalty.
    scores = translation_scores(["the cat sat on my mat"], ["the cat sat on the mat"], **MIXED)
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert scores["bleu"] == pytest.approx(expected)


def test_case_counts_unless_lowercase():
    assert translation_scores(["A B C D E"], ["a b c d e"], **MIXED)["bleu"] == 0
    lower = translation_scores(["A B C D E"], ["a b c d e"], **LOWER)
    assert lower["bleu"] == pytest.approx(100)
    assert "case:lc" in lower["bleu_signature"]


def test_empty_translations_score_0():
    scores = translation_scores(["", ""], ["a b", "c d"], **MIXED)
    assert (scores["bleu"], scores["chrf"]) == (0, 0)


def test_tokenised_text_is_scored_without_a_warning(caplog):
    translation_scores(["a b ."] * 200, ["a b ."] * 200, **IWSLT14)
    assert not caplog.records


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), min_size=1, max_size=5))
def test_any_text_has_scores_from_0_to_100(pairs):
    scores = translation_scores([h for h, _ in pairs], [r for _, r in pairs], **MIXED)
    for name in ("bleu", "chrf"):
        assert 0 <= scores[name] <= 100 + 1e-9
    assert json.loads(json.dumps(scores)) == scores


def test_unequal_numbers_of_lines_are_refused():
    with pytest.raises(InputError, match=r"^2 hypotheses for 1 references: .*one line of each"):
        translation_scores(["a", "b"], ["a"], **MIXED)


def test_no_sentences_are_refused():
    with pytest.raises(InputError, match=r"^0 hypotheses: "):
        translation_scores([], [], **MIXED)


# Scores of a corpus

OTHERS = [*REFERENCES[:2], *HYPOTHESES[2:4], "nothing was found"]


def tokens(lines):
    """Moses tokens in lower case, as IWSLT14 has them."""
    return [Moses("en").tokenise(line).lower() for line in lines]


def written(tmp_path, **texts):
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def one_score(tmp_path, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *arguments, "-w", "12", "--format", "json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_tokens_are_scored_detokenised_and_as_they_are(tmp_path):
    hyp, ref = tokens(HYPOTHESES), tokens(REFERENCES)
    assert "&apos;" in ref[0]
    plain = [[Moses("en").detokenise(line) for line in lines] for lines in (hyp, ref)]
    assert plain[1][0] == REFERENCES[0].lower()
    written(tmp_path, hyp=plain[0], ref=plain[1], hyptok=hyp, reftok=ref)
    scores = translation_scores(hyp, ref, **IWSLT14)
    assert scores.keys() == {
        f"{name}{end}" for name in ("bleu", "chrf", "bleu_tokenised") for end in ("", "_signature")
    }
    for name, arguments in (
        ("bleu", ["ref", "-i", "hyp", "-m", "bleu", "-lc"]),
        ("chrf", ["ref", "-i", "hyp", "-m", "chrf", "--chrf-lowercase"]),
        ("bleu_tokenised", ["reftok", "-i", "hyptok", "-m", "bleu", "-lc", "--tokenize", "none"]),
    ):
        theirs = one_score(tmp_path, *arguments)
        assert scores[name] == pytest.approx(theirs["score"], abs=1e-11)
        assert scores[f"{name}_signature"] == theirs["signature"]
    assert scores["bleu_tokenised"] != scores["bleu"]


def test_tokenised_bleu_by_hand():
    """Escapes are tokens like others: 4 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 fours."""
    scores = translation_scores(["it &apos;s a red dog"], ["it &apos;s a red cat"], **IWSLT14)
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert scores["bleu_tokenised"] == pytest.approx(expected)


def test_intervals_are_those_of_the_command_line(tmp_path):
    written(tmp_path, hyp=HYPOTHESES, ref=REFERENCES)
    (found,) = bootstrap([HYPOTHESES], REFERENCES, resamples=60, **MIXED)
    for name in ("bleu", "chrf"):
        theirs = one_score(
            tmp_path, "ref", "-i", "hyp", "-m", name, "--confidence", "--confidence-n", "60"
        )
        # sacreBLEU takes this mean in single precision here and in double there.
        assert found[f"{name}_mean"] == pytest.approx(theirs["confidence_mean"], rel=1e-6)
        assert found[f"{name}_half_width"] == pytest.approx(theirs["confidence_var"], rel=1e-6)
        assert found[f"{name}_bootstrap_signature"] == theirs["signature"]
        assert f"{name}_p" not in found


@pytest.mark.parametrize("seed", ["12345", "7"])
def test_paired_tests_are_those_of_the_command_line(tmp_path, monkeypatch, seed):
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    written(tmp_path, ref=REFERENCES, one=HYPOTHESES, two=OTHERS, three=REFERENCES)
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", "ref", "-i", "one", "two", "three", "-m", "bleu",
         "chrf", "--paired-bs", "--paired-bs-n", "60", "-w", "8", "--format", "text"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = re.findall(r"([\d.]+) \(([\d.]+) \u00b1 ([\d.]+)\)", done.stdout)
    ps = re.findall(r"\(p = ([\d.]+)\)", done.stdout)
    found = bootstrap([HYPOTHESES, OTHERS, REFERENCES], REFERENCES, resamples=60, **MIXED)
    ours = [(f[f"{n}_mean"], f[f"{n}_half_width"]) for f in found for n in ("bleu", "chrf")]
    for (_, mean, half), (our_mean, our_half) in zip(rows, ours, strict=True):
        assert (our_mean, our_half) == pytest.approx((float(mean), float(half)), rel=1e-6)
    assert [f[f"{n}_p"] for f in found[1:] for n in ("bleu", "chrf")] == pytest.approx(
        [float(p) for p in ps], abs=5e-5
    )
    assert f"seed:{seed}" in found[1]["bleu_bootstrap_signature"]


def test_equal_translations_are_not_said_to_differ():
    first, second = bootstrap([HYPOTHESES, list(HYPOTHESES)], REFERENCES, resamples=20, **MIXED)
    assert first == second
    assert "bleu_p" not in second


def test_a_bootstrap_that_does_not_fit_into_memory_is_refused():
    check_resamples(6750, 1000)
    with pytest.raises(InputError, match=r"^--bootstrap=1000 of 160,239 sentences .* 312 or less"):
        check_resamples(160_239, 1000)
