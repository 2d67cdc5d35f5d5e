"""Corpus scores from sacreBLEU, each beside the signature that says how it was computed.

No score is rounded and none leaves without its signature, so that any number can be computed
again with sacreBLEU's own command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lnexp.errors import InputError


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
) -> dict[str, Any]:
    """BLEU and chrF (0 to 100) of detokenised text, one reference per hypothesis.

    Papineni et al. (2002) and Popović (2015). ``lowercase`` holds for both scores, as
    sacreBLEU's ``-lc --chrf-lowercase``. ``tokenize`` is one of its tokenisers and concerns BLEU
    alone; ``none`` takes text that is tokenised already, which with ``lowercase=True`` gives the
    tokenised, lower-cased BLEU of IWSLT14 papers.
    """
    # Costs a third of a second; training without decoding never pays it.
    from sacrebleu.metrics import BLEU, CHRF

    if len(hypotheses) != len(references):
        raise InputError(
            f"{len(hypotheses)} hypotheses for {len(references)} references: "
            "BLEU needs one line of each per sentence; check which split was translated"
        )
    if not hypotheses:
        raise InputError("0 hypotheses: BLEU needs at least one sentence; check the split")
    if tokenize not in BLEU.TOKENIZERS:
        raise InputError(
            f"tokenize={tokenize} is no tokeniser of sacreBLEU; "
            f"set one of {', '.join(BLEU.TOKENIZERS)}"
        )
    # `force` only silences the warning about text that looks tokenised.
    bleu = BLEU(lowercase=lowercase, tokenize=tokenize, force=tokenize == "none")
    chrf = CHRF(lowercase=lowercase)
    scores: dict[str, Any] = {}
    for name, metric in (("bleu", bleu), ("chrf", chrf)):
        scores[name] = float(metric.corpus_score(hypotheses, [references]).score)
        # A signature is complete only once something was scored.
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores
