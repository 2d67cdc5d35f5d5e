"""Text to sub-word pieces and back: sentencepiece's BPE, or subword-nmt's as papers had it.

*sentencepiece* takes text as it is and does not normalise it in any way; blanks are part of the
pieces, so decoding gives back what was encoded.  Two things do not survive: a character that the
training text lacks becomes ``UNK``, shown as U+2047 (and sentencepiece reserves U+2585, which is
never learned); and U+2581, with which sentencepiece writes a blank, comes back as one.

*bpe* (Sennrich et al., 2016) takes text in words between blanks, as Moses leaves them.  The merges
are learned here or given; the pieces are all those that the training text then falls into, as the
authors' toolkit makes its dictionary, most frequent first.  So ``vocab_size`` merges give some more
or fewer pieces.  Runs of blanks come back as one blank.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import sentencepiece

from lnexp.errors import InputError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
UNK_SURFACE = "\u2047"


class Tokenizer(Protocol):
    """Text to piece numbers and back; ``model`` is all that it takes to make it again."""

    model: bytes

    @property
    def vocab_size(self) -> int:
        """Number of pieces, the four specials included."""

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Piece numbers of each line, without BOS and EOS; an empty line has none."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of piece numbers, PAD, BOS and EOS dropped, UNK shown as U+2047."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each number's piece, as written in the vocabulary."""


class SentencePiece:
    """A `Tokenizer`; ``model`` is a serialised sentencepiece model."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)

    @property
    def vocab_size(self) -> int:
        """Number of pieces, the four specials included."""
        return int(self._processor.get_piece_size())

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Piece numbers of each line, without BOS and EOS; an empty line has none."""
        ids: list[list[int]] = self._processor.encode(list(lines), out_type=int, num_threads=1)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of piece numbers, PAD, BOS and EOS dropped, UNK shown as U+2047."""
        return str(self._processor.decode([int(i) for i in ids]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each number's piece, as written in the vocabulary (U+2581 stands for a blank)."""
        return [self._processor.id_to_piece(int(i)) for i in ids]


class SubwordNMT:
    """A `Tokenizer`; ``model`` is JSON: the merges and the pieces in the order of their numbers."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        content = json.loads(model)
        self._bpe = _apply(content["merges"])
        self._pieces = [*SPECIALS, *content["pieces"]]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i >= len(SPECIALS)}
        # Words recur: segmenting each once is most of the speed.
        self._word = lru_cache(maxsize=2**19)(self._encode_word)

    @property
    def vocab_size(self) -> int:
        """Number of pieces, the four specials included."""
        return len(self._pieces)

    def _encode_word(self, word: str) -> list[int]:
        pieces = self._bpe.segment_tokens([word])
        self._bpe.cache.clear()  # it knows no bound; ours does
        return [self._ids.get(piece, UNK) for piece in pieces]

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """Piece numbers of each line, without BOS and EOS; an empty line has none."""
        return [[i for word in words(line) for i in self._word(word)] for line in lines]

    def decode(self, ids: Sequence[int]) -> str:
        """The words of piece numbers, PAD, BOS and EOS dropped, UNK shown as U+2047."""
        shown = (
            UNK_SURFACE if i == UNK else self._pieces[i] for i in ids if i not in (PAD, BOS, EOS)
        )
        return (" ".join(shown) + " ").replace("@@ ", "").rstrip(" ")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each number's piece, as written in the vocabulary (``@@`` says that the word goes on)."""
        return [self._pieces[int(i)] for i in ids]


def words(line: str) -> list[str]:
    """What stands between blanks, as subword-nmt cuts a line."""
    return [word for word in line.split(" ") if word]


def count_words(lines: Iterable[str]) -> Counter[str]:
    """How often each word occurs, in the order of first occurrence."""
    return Counter(word for line in lines for word in words(line))


def learn_merges(counts: Counter[str], n_merges: int) -> str:
    """Learn merges as subword-nmt does from the text itself; raises `InputError` if it has fewer."""
    from subword_nmt.learn_bpe import learn_bpe

    if not counts:
        raise InputError(NO_TEXT)
    codes = io.StringIO()
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        learn_bpe([f"{word} {n}\n" for word, n in counts.items()], codes, n_merges, is_dict=True)
    if (found := len(_merges(codes.getvalue()))) < n_merges:
        raise InputError(
            f"data.vocab_size={n_merges} is too large for this text (it has {found} merges of pairs "
            f"that occur twice); set data.vocab_size={found} or less"
        )
    return codes.getvalue()


def check_merges(codes: bytes, n_merges: int) -> str:
    """The first ``n_merges`` of a file in subword-nmt's format, or `InputError`."""
    try:
        text = codes.decode()
    except UnicodeDecodeError:
        raise InputError(
            "data.codes is not UTF-8 text; name a file of subword-nmt merges"
        ) from None
    header = text.startswith("#version:")
    for number, merge in enumerate(_merges(text), 1 + header):
        if len(merge.split(" ")) != 2:
            raise InputError(
                f"data.codes line {number} ({merge[:40]!r}) is no merge: two symbols with a blank "
                "between them; name a file of subword-nmt merges"
            )
    if (found := len(_merges(text))) < n_merges:
        raise InputError(
            f"data.codes holds {found} merges, data.vocab_size={n_merges} asks for more; "
            f"set data.vocab_size={found}"
        )
    lines = text.splitlines()[:1] if header else []
    return "\n".join([*lines, *_merges(text)[:n_merges]]) + "\n"


def _merges(codes: str) -> list[str]:
    lines = [line.rstrip("\r ") for line in codes.rstrip("\n").split("\n")]
    return [line for line in lines if line and not line.startswith("#version:")]


def subword_nmt(codes: str, counts: Counter[str]) -> SubwordNMT:
    """The tokeniser of these merges whose pieces are those that the counted words fall into."""
    bpe = _apply(codes)
    pieces: Counter[str] = Counter()
    for word, n in counts.items():
        for piece in bpe.segment_tokens([word]):
            pieces[piece] += n
        bpe.cache.clear()  # no word comes twice
    if not pieces:
        raise InputError(NO_TEXT)
    order = sorted(pieces, key=lambda piece: (-pieces[piece], piece))
    content = {"kind": "bpe", "merges": codes, "pieces": order}
    return SubwordNMT(json.dumps(content, ensure_ascii=False).encode())


def _apply(codes: str) -> Any:
    from subword_nmt.apply_bpe import BPE

    try:
        with contextlib.redirect_stderr(io.StringIO()):  # it explains at length, and exits
            return BPE(io.StringIO(codes))
    except SystemExit:
        raise ValueError("a merge is not two symbols with a blank between them") from None


def learn_sentencepiece(lines: Iterable[str], vocab_size: int) -> SentencePiece:
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
            unk_surface=UNK_SURFACE,  # the default puts blanks around it
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        raise InputError(_explain(vocab_size, str(error))) from None
    return SentencePiece(model.getvalue())


NO_TEXT = "data: the training split holds no text to learn a vocabulary from; check its files"


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
        return NO_TEXT
    return f"{key} cannot be learned from this text: {' '.join(error.split())}"
