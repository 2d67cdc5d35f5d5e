"""The encoder-decoder Transformer: blocks of sublayers, wired by a placement.

Source, target and output share one embedding matrix. Padding never changes a real position:
padded source positions are masked, padded target positions lie behind every real one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lnexp.model.attention import Attention, FeedForward
from lnexp.model.init import initialise
from lnexp.model.placement import Placement, StackShape, Sublayer

PlacementFactory = Callable[[StackShape], Placement]
KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class ModelShape:
    """Sizes and dropout rates of a Transformer with ``n_layers`` layers in each stack."""

    d_model: int
    d_ff: int
    n_heads: int
    n_layers: int
    dropout: float
    attention_dropout: float
    activation_dropout: float


def sinusoids(length: int, d_model: int) -> Tensor:
    """Position encodings (length, d_model) of Vaswani et al. (2017), section 3.5.

    ``PE(p, 2i) = sin(p / 10000^(2i/d))`` and ``PE(p, 2i+1) = cos(...)``, p from 0.
    """
    rates = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class EncoderBlock(nn.Module):
    """The two sublayers of one encoder layer, not yet wired together."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.attn = Attention(shape.d_model, shape.n_heads, shape.attention_dropout)
        self.ffn = FeedForward(shape.d_model, shape.d_ff, shape.activation_dropout)
        self.dropout = nn.Dropout(shape.dropout)

    def sublayers(self, bias: Tensor | None) -> tuple[Sublayer, ...]:
        """``bias`` hides padded source positions; see `Attention.attend`."""
        return (
            lambda x: self.dropout(self.attn(x, bias)),
            lambda x: self.dropout(self.ffn(x)),
        )


class DecoderBlock(nn.Module):
    """The three sublayers of one decoder layer, not yet wired together."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape.d_model, shape.n_heads, shape.attention_dropout)
        self.cross_attn = Attention(shape.d_model, shape.n_heads, shape.attention_dropout)
        self.ffn = FeedForward(shape.d_model, shape.d_ff, shape.activation_dropout)
        self.dropout = nn.Dropout(shape.dropout)

    def sublayers(
        self, memory: KeysValues, memory_bias: Tensor | None, bias: Tensor | None
    ) -> tuple[Sublayer, ...]:
        """For all target positions at once; ``bias`` is the causal mask."""
        return (
            lambda x: self.dropout(self.self_attn(x, bias)),
            lambda x: self.dropout(self.cross_attn(x, memory_bias, memory)),
            lambda x: self.dropout(self.ffn(x)),
        )

    def step_sublayers(self, cache: LayerCache, memory_bias: Tensor) -> tuple[Sublayer, ...]:
        """For one new position of each hypothesis: x is (B * K, 1, d_model)."""

        def cross_attention(x: Tensor) -> Tensor:
            # The K hypotheses of a sentence are K queries on one memory: nothing is copied.
            sentences = cache.memory[0].shape[0]
            together = x.view(sentences, -1, x.shape[-1])
            return self.cross_attn.attend(together, cache.memory, memory_bias).view_as(x)

        return (
            lambda x: self.self_attn.attend(x, cache.extend(*self.self_attn.keys_values(x)), None),
            cross_attention,
            self.ffn,
        )


@dataclass
class LayerCache:
    """Keys and values of one decoder layer while decoding."""

    memory: KeysValues
    """Of the source: each (B, n_heads, S, d_head), one for all hypotheses of a sentence."""
    past: KeysValues | None = None
    """Of the target so far: each (B * K, n_heads, t, d_head)."""

    def extend(self, keys: Tensor, values: Tensor) -> KeysValues:
        """Append one position and return all of them."""
        if self.past is not None:
            keys = torch.cat([self.past[0], keys], dim=2)
            values = torch.cat([self.past[1], values], dim=2)
        self.past = keys, values
        return self.past


@dataclass
class DecodingState:
    """Everything that decoding carries from one position to the next."""

    layers: list[LayerCache]
    memory_bias: Tensor
    """(B, 1, 1, S)."""
    position: int = 0

    def reorder(self, sentences: Tensor, parents: Tensor) -> None:
        """Keep ``sentences`` (B',), and for each its hypotheses ``parents`` (B', K')."""
        n_sentences = self.memory_bias.shape[0]
        keep_all = len(sentences) == n_sentences
        if not keep_all:
            self.memory_bias = self.memory_bias[sentences]
        for layer in self.layers:
            if not keep_all:
                layer.memory = layer.memory[0][sentences], layer.memory[1][sentences]
            if layer.past is not None:
                k = layer.past[0].shape[0] // n_sentences
                rows = (sentences[:, None] * k + parents).flatten()
                layer.past = layer.past[0][rows], layer.past[1][rows]


def _modules(modules: Iterable[nn.Module]) -> Any:
    """Make a ModuleList; torch's types do not say what is in one."""
    return nn.ModuleList(modules)


class Transformer(nn.Module):
    """Vaswani et al. (2017), with the place of normalisation left open."""

    def __init__(
        self, shape: ModelShape, vocab_size: int, pad: int, placement: PlacementFactory
    ) -> None:
        super().__init__()
        n, d = shape.n_layers, shape.d_model
        self.pad, self.d_model, self.dropout = pad, d, nn.Dropout(shape.dropout)
        self.embedding = nn.Embedding(vocab_size, d, padding_idx=pad)
        self.encoder_blocks: Sequence[EncoderBlock] = _modules(
            EncoderBlock(shape) for _ in range(n)
        )
        self.decoder_blocks: Sequence[DecoderBlock] = _modules(
            DecoderBlock(shape) for _ in range(n)
        )
        self.encoder_placement = placement(StackShape(d, n, 2, peer_layers=n))
        self.decoder_placement = placement(StackShape(d, n, 3, peer_layers=n))
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(512, d), persistent=False)
        gain = self.encoder_placement.embedding_gain
        nn.init.normal_(self.embedding.weight, std=gain * d**-0.5)
        nn.init.zeros_(self.embedding.weight[pad])
        initialise(self.encoder_blocks, self.encoder_placement)
        initialise(self.decoder_blocks, self.decoder_placement)

    def embed(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed (B, T) ids at positions ``start`` and on: (B, T, d_model)."""
        end = start + ids.shape[1]
        if end > len(self.positions):
            self.positions = sinusoids(2 * end, self.d_model).to(self.positions)
        x = self.embedding(ids) * self.d_model**0.5 + self.positions[start:end]
        return self.dropout(x)

    def real_positions(self, src: Tensor, tgt_in: Tensor) -> dict[str, Tensor]:
        """Which positions of each stack are not padding, (B, S) and (B, T); for probes."""
        return {"encoder": src != self.pad, "decoder": tgt_in != self.pad}

    def mask_padding(self, src: Tensor) -> Tensor:
        """Scores to add, (B, 1, 1, S): -inf at the padding of ``src`` (B, S)."""
        hidden = torch.zeros(src.shape, dtype=self.embedding.weight.dtype, device=src.device)
        return hidden.masked_fill_(src == self.pad, -torch.inf)[:, None, None, :]

    def encode(self, src: Tensor, bias: Tensor | None) -> Tensor:
        """Encode (B, S) ids as (B, S, d_model)."""
        blocks = (block.sublayers(bias) for block in self.encoder_blocks)
        return self.encoder_placement(self.embed(src), blocks)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Decoder output (B, T, d_model) for ``src`` (B, S) and shifted targets (B, T)."""
        bias = self.mask_padding(src)
        memory = self.encode(src, bias)
        length = tgt_in.shape[1]
        causal = torch.full((length, length), -torch.inf, device=src.device, dtype=bias.dtype)
        causal = causal.triu(1)
        blocks = (
            block.sublayers(block.cross_attn.keys_values(memory), bias, causal)
            for block in self.decoder_blocks
        )
        return self.decoder_placement(self.embed(tgt_in), blocks)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores (..., vocab_size) of decoder outputs (..., d_model)."""
        return F.linear(hidden, self.embedding.weight)

    def start(self, src: Tensor) -> DecodingState:
        """Encode ``src`` (B, S) and return the state before the first target position."""
        bias = self.mask_padding(src)
        memory = self.encode(src, bias)
        caches = [LayerCache(b.cross_attn.keys_values(memory)) for b in self.decoder_blocks]
        return DecodingState(caches, bias)

    def step(self, tokens: Tensor, state: DecodingState) -> Tensor:
        """Log-probabilities (B, K, vocab_size) after the last ``tokens`` (B, K)."""
        x = self.embed(tokens.reshape(-1, 1), start=state.position)
        blocks = (
            block.step_sublayers(cache, state.memory_bias)
            for block, cache in zip(self.decoder_blocks, state.layers, strict=True)
        )
        hidden = self.decoder_placement(x, blocks)
        state.position += 1
        scores: Tensor = self.logits(hidden).float().log_softmax(-1)
        return scores.view(*tokens.shape, -1)
