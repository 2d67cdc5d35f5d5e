"""Scores from sacreBLEU, each beside the signature that says how it was computed.

No score is rounded and none leaves without its signature, so that any number can be computed
again with sacreBLEU's own command line. BLEU: Papineni et al. (2002); chrF: Popović (2015);
paired bootstrap: Koehn (2004).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lnexp.errors import InputError

MOST_RESAMPLED = 5 * 10**7
"""Sentences times resamples; sacreBLEU holds all of them at once, in up to 80 bytes each."""


def translation_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    tokenised: bool,
    lowercased: bool,
    language: str,
) -> dict[str, Any]:
    """Every score of translations into ``language``, given as lines of the corpus.

    ``bleu`` and ``chrf`` are of detokenised text, ``case:lc`` where the corpus is lower-cased.
    ``bleu_tokenised`` is there where the corpus is ``tokenised`` by Moses: BLEU of its tokens as
    they are, which IWSLT14 papers quote (multi-bleu.perl, and the authors' toolkit's scorer).
    """
    _check(hypotheses, references)
    scores: dict[str, Any] = {}
    for name, metric, (hyp, ref) in _views(
        (hypotheses, references), tokenised=tokenised, lowercased=lowercased, language=language
    ):
        scores |= _score(name, metric, hyp, ref)
    return scores


def bootstrap(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    tokenised: bool,
    lowercased: bool,
    language: str,
    resamples: int,
) -> list[dict[str, Any]]:
    """95 % intervals of each system's scores, and tests of each against the first.

    For each score of `translation_scores`, say bleu: ``bleu_mean`` and ``bleu_half_width`` of its
    interval, ``bleu_p`` (not for the first system, nor for one with the same translations) and
    ``bleu_bootstrap_signature``; as sacreBLEU's ``--confidence`` and ``--paired-bs``, with its
    seed.
    """
    from sacrebleu.significance import PairedTest

    for hypotheses in systems:
        _check(hypotheses, references)
    found: list[dict[str, Any]] = [{} for _ in systems]
    for name, metric, (ref, *hyps) in _views(
        (references, *systems), tokenised=tokenised, lowercased=lowercased, language=language
    ):
        named = [(str(i), hyp) for i, hyp in enumerate(hyps)]
        signatures, results = PairedTest(named, {name: metric}, [ref], "bs", resamples)()
        # sacreBLEU calls the columns by its own names; "System" is the other one.
        (theirs,) = signatures
        for row, hyp, result in zip(found, hyps, results[theirs], strict=True):
            row[f"{name}_mean"] = float(result.mean)
            row[f"{name}_half_width"] = float(result.ci)
            # Of equal translations sacreBLEU says p = 1 / (resamples + 1), as if they differed.
            if result.p_value is not None and hyp != hyps[0]:
                row[f"{name}_p"] = float(result.p_value)
            row[f"{name}_bootstrap_signature"] = str(signatures[theirs])
    return found


def check_resamples(n_sentences: int, resamples: int) -> None:
    """Refuse a bootstrap that would not fit into memory, before anything is decoded."""
    if n_sentences * resamples > MOST_RESAMPLED:
        raise InputError(
            f"--bootstrap={resamples} of {n_sentences:,} sentences needs too much memory; "
            f"use --bootstrap {MOST_RESAMPLED // n_sentences} or less, or 0 for none"
        )


def sentence_scores(hypothesis: str, reference: str, *, lowercased: bool) -> dict[str, float]:
    """BLEU and chrF of one detokenised sentence, as sacreBLEU's ``--sentence-level``."""
    given = {"bleu": _bleu(lowercased, effective_order=True), "chrf": _chrf(lowercased)}
    return {
        name: float(metric.sentence_score(hypothesis, [reference]).score)
        for name, metric in given.items()
    }


def detokenised(lines: Sequence[str], language: str) -> list[str]:
    """Moses tokens as one would write them."""
    # Costs a third of a second; text that is not tokenised never pays it.
    from lnexp.data.preparation import Moses

    detokenise = Moses(language).detokenise
    return [detokenise(line) for line in lines]


def _views(
    texts: Sequence[Sequence[str]], *, tokenised: bool, lowercased: bool, language: str
) -> Iterator[tuple[str, Any, list[list[str]]]]:
    """Yield each score's name, its metric, and the texts as that metric is to see them."""
    plain = [detokenised(lines, language) if tokenised else list(lines) for lines in texts]
    yield "bleu", _bleu(lowercased), plain
    yield "chrf", _chrf(lowercased), plain
    if tokenised:
        yield "bleu_tokenised", _bleu(lowercased, "none"), [list(lines) for lines in texts]


def _score(
    name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    score = float(metric.corpus_score(hypotheses, [references]).score)
    # A signature is complete only once something was scored.
    return {name: score, f"{name}_signature": str(metric.get_signature())}


def _bleu(lowercase: bool, tokenize: str = "13a", *, effective_order: bool = False) -> Any:
    # Costs a third of a second; training without decoding never pays it.
    from sacrebleu.metrics import BLEU

    # `force` only silences the warning about text that looks tokenised.
    return BLEU(
        lowercase=lowercase,
        tokenize=tokenize,
        force=tokenize == "none",
        effective_order=effective_order,
    )


def _chrf(lowercase: bool) -> Any:
    from sacrebleu.metrics import CHRF

    return CHRF(lowercase=lowercase)


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses for {len(references)} references: "
            "BLEU needs one line of each per sentence; check which split was translated"
        )
    if not hypotheses:
        raise InputError("0 hypotheses: BLEU needs at least one sentence; check the split")
