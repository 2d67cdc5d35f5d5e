"""Initial weights, as the authors' toolkit drew them when the paper was written.

Every draw comes from torch's global generator in the order of the modules, and norms draw
nothing: with the same seed two placements of one size start from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import torch
from torch import nn

from lnexp.model.attention import Attention, FeedForward
from lnexp.model.placement import Placement


def initialise(blocks: Iterable[nn.Module], placement: Placement) -> None:
    """Xavier uniform weights, with the gains of ``placement``, and zero biases in a stack's blocks.

    Norms keep gain 1 and bias 0.
    """
    for module in (m for block in blocks for m in block.modules()):
        if isinstance(module, Attention):
            matrices = {"q": module.q, "k": module.k, "v": module.v, "out": module.out}
        elif isinstance(module, FeedForward):
            matrices = {"w1": module.w1, "w2": module.w2}
        else:
            continue
        for name, linear in matrices.items():
            nn.init.xavier_uniform_(linear.weight, gain=placement.gain(name))
            nn.init.zeros_(linear.bias)


def profile(model: nn.Module, forward: Callable[[], object]) -> None:
    """Let the placements that need it watch one ``forward`` pass of the fresh model.

    It runs without dropout, so that what they see depends on the weights and the batch alone.
    """
    curious = [m for m in model.modules() if isinstance(m, Placement) and m.needs_profile]
    if not curious:
        return
    model.eval()
    with torch.no_grad(), ExitStack() as stack:
        for placement in curious:
            stack.enter_context(placement.profiling())
        forward()
