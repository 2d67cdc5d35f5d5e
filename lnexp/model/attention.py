"""Multi-head attention and the feed-forward network: the sublayers that a placement wires together.

Attention is written as two matrix products and a softmax: on short sequences this is faster than
torch's fused CPU kernel, and it has a second derivative.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    """Scaled dot-product attention with ``n_heads`` heads (Vaswani et al., 2017, section 3.2).

    The paper's text divides by sqrt(d_model); this divides by sqrt(d_head), as its code and
    everybody else's do.
    """

    def __init__(self, d_model: int, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.q = nn.Linear(d_model, d_model)
        self.k = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)
        self.softmax = nn.Softmax(-1)  # a module, so that a probe can hook the weights

    def heads(self, x: Tensor) -> Tensor:
        """Split (B, T, d_model) into (B, n_heads, T, d_head)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def keys_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values, each (B, n_heads, S, d_head), of ``memory`` (B, S, d_model)."""
        return self.heads(self.k(memory)), self.heads(self.v(memory))

    def attend(self, x: Tensor, keys_values: tuple[Tensor, Tensor], bias: Tensor | None) -> Tensor:
        """Let ``x`` (B, T, d_model) look at keys and values; return (B, T, d_model).

        ``bias`` is added to the scores and broadcasts to (B, n_heads, T, S): 0 where a query may
        look, -inf where it may not.
        """
        keys, values = keys_values
        queries = self.heads(self.q(x)) * keys.shape[-1] ** -0.5
        scores = queries @ keys.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        weights = F.dropout(self.softmax(scores), self.dropout, self.training)
        mixed = weights.to(values.dtype) @ values
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(
        self, x: Tensor, bias: Tensor | None, memory: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Attention of ``x`` to the keys and values ``memory``, or to itself."""
        return self.attend(x, self.keys_values(x) if memory is None else memory, bias)


class FeedForward(nn.Module):
    """``FFN(h) = ReLU(h W1 + b1) W2 + b2`` (Xiong et al., 2020, section 3.1)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, h: Tensor) -> Tensor:
        """(B, T, d_model) to the same shape; ``dropout`` acts on the activation."""
        return self.w2(F.dropout(F.relu(self.w1(h)), self.dropout, self.training))
