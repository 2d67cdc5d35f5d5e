"""Initial weights, as the authors' toolkit drew them when the paper was written.

Every draw comes from torch's global generator in the order of the modules, and norms draw
nothing: with the same seed two placements of one size start from the same weights.
"""

from __future__ import annotations

from torch import nn

from lnexp.model.attention import Attention, FeedForward


def initialise(model: nn.Module) -> None:
    """Xavier uniform weights and zero biases in every sublayer of ``model``.

    Query, key and value have gain 1/sqrt(2), which makes three d x d matrices equal to one fused
    3d x d matrix under Xavier's rule. Norms keep gain 1 and bias 0.
    """
    for module in model.modules():
        if isinstance(module, Attention):
            for linear in (module.q, module.k, module.v):
                nn.init.xavier_uniform_(linear.weight, gain=2**-0.5)
            nn.init.xavier_uniform_(module.out.weight)
            linears = [module.q, module.k, module.v, module.out]
        elif isinstance(module, FeedForward):
            nn.init.xavier_uniform_(module.w1.weight)
            nn.init.xavier_uniform_(module.w2.weight)
            linears = [module.w1, module.w2]
        else:
            continue
        for linear in linears:
            nn.init.zeros_(linear.bias)
