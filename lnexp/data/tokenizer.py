"""The joint sub-word vocabulary of a corpus: sentencepiece BPE, learned on the training split.

Text is not normalised in any way, and blanks are part of the pieces, so decoding gives back what
was encoded.  Two things do not survive: a character that the training text lacks becomes ``UNK``,
shown as U+2047 (and sentencepiece reserves U+2585, which is never learned); and U+2581, with which
sentencepiece writes a blank, comes back as one.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

import sentencepiece

from lnexp.errors import InputError

PAD, UNK, BOS, EOS = 0, 1, 2, 3


class Tokenizer:
    """Text to piece numbers and back; ``model`` is a serialised sentencepiece model."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def vocab_size(self) -> int:
        """Number of pieces, the four specials included."""
        return int(self._processor.get_piece_size())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Piece numbers of each line, without BOS and EOS; an empty line has none."""
        ids: list[list[int]] = self._processor.encode(list(lines), out_type=int)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of piece numbers, PAD, BOS and EOS dropped, UNK shown as U+2047."""
        return str(self._processor.decode([int(i) for i in ids]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each number's piece, as written in the vocabulary (U+2581 stands for a blank)."""
        return [self._processor.id_to_piece(int(i)) for i in ids]


def learn(lines: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn exactly ``vocab_size`` pieces; the same lines give the same bytes.

    Byte-pair encoding as Sennrich et al. (2016), over the characters of all ``lines``; merges never
    cross a blank.  Raises `InputError` where the text cannot have that many pieces, or that few.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            character_coverage=1.0,
            max_sentence_length=2**24,  # bytes; longer lines would be skipped in silence
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            unk_surface="\u2047",  # the default puts blanks around it
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise InputError(_explain(vocab_size, str(error))) from None
    return Tokenizer(model.getvalue())


def _explain(vocab_size: int, error: str) -> str:
    key = f"data.vocab_size={vocab_size}"
    if at_most := re.search(r"too high .*<= (\d+)", error):
        n = at_most[1]
        return (
            f"{key} is too large for this text (at most {n} pieces); "
            f"set data.vocab_size={n} or less"
        )
    if at_least := re.search(rf"required_chars\. {vocab_size} vs (\d+)", error):
        n = at_least[1]
        return (
            f"{key} is too small for this text's characters and the 4 specials ({n}); "
            f"set data.vocab_size={n} or more"
        )
    if "sentences_.empty()" in error:
        return "data: the training split holds no text to learn a vocabulary from; check its files"
    return f"{key} cannot be learned from this text: {' '.join(error.split())}"
