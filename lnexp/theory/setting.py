"""The theorem's own network, made of the model's sublayers, and its assumptions as switches.

With ``Assumptions()`` it is that of Xiong et al. (2020), section 3.3: ``W_Q = W_K = 0``, so that
attention is ``(1/n) sum_j x_j W_V``; no ``W_O``; one head; every matrix d x d and N(0, 1/d); inputs
N(0, I); no biases, no dropout; loss the mean over positions of ``-log softmax(W_emb x)``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lnexp.model.attention import Attention, FeedForward
from lnexp.model.placement import Placement, PreLN, StackShape, Sublayer
from lnexp.model.transformer import DecoderBlock, EncoderBlock, ModelShape, sinusoids

PlacementFactory = Callable[[StackShape], Placement]

VOCABULARY = 10_000
"""Rows of W_emb where there is no text."""


@dataclass(frozen=True)
class Assumptions:
    """What the theorem assumes, each with the departure that the real model makes."""

    learned_qk: bool = False
    """Query and key weights drawn as the value's, instead of 0."""
    heads: int = 1
    output_matrix: bool = False
    """W_O drawn as the others, instead of none."""
    ffn_width: int = 1
    """Width of the feed-forward network in units of d."""
    value_gain: float = 1.0
    """Of W_V; the authors' toolkit has 1/sqrt(2)."""
    uniform: bool = False
    """Xavier uniform instead of Xavier normal, which has the same variance."""
    causal: bool = False
    real_input: bool = False
    """Embedded sentences with position encodings instead of N(0, I)."""
    tied: bool = False
    """W_emb is the input embedding and the targets are the next pieces; needs ``real_input``."""
    dropout: float = 0.0
    cross_attention: bool = False
    """The last feed-forward network is a decoder's, over an encoder of the same depth."""


@dataclass(frozen=True)
class Size:
    """Width, depth, positions of a sequence, and sequences."""

    d: int
    n_layers: int
    n_positions: int = 32
    n_sequences: int = 1


@dataclass(frozen=True)
class Text:
    """Real sentences, as piece numbers, for the switches that need them."""

    sentences: Sequence[Sequence[int]]
    vocab_size: int


class Stack(nn.Module):
    """Blocks and their placement; ``memory`` is what a decoder attends to."""

    def __init__(self, placement: PlacementFactory, size: Size, a: Assumptions, n: int) -> None:
        super().__init__()
        shape = ModelShape(
            d_model=size.d, d_ff=a.ffn_width * size.d, n_heads=a.heads, n_layers=size.n_layers,
            dropout=a.dropout, attention_dropout=0.0, activation_dropout=0.0,
        )  # fmt: skip
        with torch.device("meta"):  # else torch would draw weights that nobody wants
            block = EncoderBlock(shape) if n == 2 else DecoderBlock(shape)
        blocks = nn.ModuleList(copy.deepcopy(block) for _ in range(size.n_layers))
        self.blocks = cast("Sequence[EncoderBlock | DecoderBlock]", blocks.to_empty(device="cpu"))
        peer = size.n_layers if a.cross_attention else 0
        self.placement = placement(StackShape(size.d, size.n_layers, n, peer_layers=peer))
        usual = PreLN(StackShape(1, 0, n), nn.LayerNorm)
        for module in self.modules():
            if isinstance(module, (Attention, FeedForward)):
                self._draw(module, a, usual)
        self.requires_grad_(False)

    def _draw(self, module: Attention | FeedForward, a: Assumptions, usual: Placement) -> None:
        """Draw the weights of a sublayer; those that the theorem does without are 0, W_O is 1."""
        if isinstance(module, FeedForward):
            drawn = {"w1": module.w1, "w2": module.w2}
        else:
            drawn = {"v": module.v}
            if a.learned_qk:
                drawn |= {"q": module.q, "k": module.k}
            if a.output_matrix:
                drawn["out"] = module.out
        for linear in (m for m in module.modules() if isinstance(m, nn.Linear)):
            linear.bias.data.zero_()
            if linear not in drawn.values():
                linear.weight.data.zero_()
        if isinstance(module, Attention) and not a.output_matrix:
            nn.init.eye_(module.out.weight)
        for name, linear in drawn.items():
            # A placement that has a rule of its own keeps it; the usual gain is the theorem's 1.
            gain = self.placement.gain(name)
            if gain == usual.gain(name):
                gain = a.value_gain if name == "v" else 1.0
            xavier = nn.init.xavier_uniform_ if a.uniform else nn.init.xavier_normal_
            xavier(linear.weight, gain=gain)

    def forward(self, x: Tensor, bias: Tensor | None, memory: Tensor | None) -> Tensor:
        """(B, n, d) to the same shape."""

        def sublayers(block: EncoderBlock | DecoderBlock) -> Sequence[Sublayer]:
            if isinstance(block, EncoderBlock):
                return block.sublayers(bias)
            assert memory is not None
            return block.sublayers(block.cross_attn.keys_values(memory), None, bias)

        return self.placement(x, (sublayers(block) for block in self.blocks))


class Network(nn.Module):
    """One freshly drawn network of the theorem, with its input and its targets.

    The draws depend on the seed, the size and the switches alone: placements of one size share
    their weights.
    """

    def __init__(
        self, placement: PlacementFactory, size: Size, a: Assumptions, seed: int, text: Text | None
    ) -> None:
        super().__init__()
        self.causal = a.causal
        seed_everything(seed, size.d, size.n_layers)
        self.stack = Stack(placement, size, a, n=3 if a.cross_attention else 2)
        self.encoder = Stack(placement, size, a, n=2) if a.cross_attention else None
        gain = (self.encoder or self.stack).placement.embedding_gain
        self.x, self.targets, self.w_emb = _data(size, a, seed, text, gain)
        self.memory_x = torch.randn_like(self.x) * gain

    def forward(self) -> Tensor:
        """Output (B, n, d) of the top of the stack for its own input."""
        bias = None
        if self.causal:
            n = self.x.shape[1]
            bias = torch.full((n, n), -torch.inf).triu(1)
        memory = None if self.encoder is None else self.encoder(self.memory_x, None, None)
        return self.stack(self.x, bias, memory)

    def loss(self) -> Tensor:
        """Mean over positions of ``-log softmax(W_emb x)`` at the target."""
        logits = F.linear(self(), self.w_emb)
        return F.cross_entropy(logits.flatten(0, 1), self.targets.flatten())


def seed_everything(*key: int) -> None:
    """Key torch's generator by ``key``."""
    torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]))


def _data(
    size: Size, a: Assumptions, seed: int, text: Text | None, gain: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Input (B, n, d), targets (B, n) and W_emb (V, d)."""
    shape = size.n_sequences, size.n_positions
    if not a.real_input:
        w_emb = torch.randn(VOCABULARY, size.d) * size.d**-0.5
        return torch.randn(*shape, size.d) * gain, torch.randint(VOCABULARY, shape), w_emb
    assert text is not None
    ids = torch.tensor([text.sentences[seed % len(text.sentences)]])
    w_emb = torch.randn(text.vocab_size, size.d) * size.d**-0.5
    embedding = w_emb * gain
    x = F.embedding(ids[:, :-1], embedding) * size.d**0.5 + sinusoids(ids.shape[1] - 1, size.d)
    if a.tied:
        return x, ids[:, 1:], embedding
    other = torch.randn(VOCABULARY, size.d) * size.d**-0.5
    return x, torch.randint(VOCABULARY, (1, ids.shape[1] - 1)), other
