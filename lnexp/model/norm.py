"""Normalisers that torch lacks; ``conf/norm`` names these and torch's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lnexp.errors import InputError


class DyT(nn.Module):
    """Zhu et al. (2025), arXiv 2503.10622, Dynamic Tanh: ``weight * tanh(alpha * x) + bias``.

    No statistics of ``x`` enter. ``alpha`` is one trained number; weight and bias, of
    ``normalized_shape``, start at 1 and 0.
    """

    def __init__(self, normalized_shape: int, alpha: float) -> None:
        super().__init__()
        if not alpha > 0:
            raise InputError(f"norm.alpha={alpha} must be above 0; the paper has 0.5")
        self.alpha = nn.Parameter(torch.tensor(float(alpha)))
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))

    def forward(self, x: Tensor) -> Tensor:
        """(..., normalized_shape) to the same shape."""
        return self.weight * torch.tanh(self.alpha * x) + self.bias
