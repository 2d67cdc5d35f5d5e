"""How sharply the objective curves: the largest eigenvalue of its Hessian."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from lnexp.errors import InputError
from lnexp.optim.radam import RAdam
from lnexp.probes.gradients import check_probe, matching
from lnexp.probes.lanczos import largest_eigenvalue
from lnexp.probes.protocol import Reading, Until, Update

COUPLED = (torch.optim.Adam, torch.optim.RAdam)
"""Optimisers whose weight decay is part of the gradient, unless their groups say otherwise."""


@dataclass(frozen=True)
class Sharpness:
    """Largest eigenvalue of the Hessian H of the update's mean objective per target.

    Over the matching parameters, at the weights before the step and with the update's dropout.
    Also of ``D^-1/2 H D^-1/2`` with Adam's ``D = sqrt(v_hat) + eps`` of the coming step (Cohen et
    al., 2022, arXiv 2207.14484), where the optimiser is Adam, AdamW or RAdam. The gradient in v is
    the one before clipping.

    At update 1 ``v_hat`` is ``g^2``, and the second one is large: elements with next to no gradient
    decide. Under bf16 it is noise, since D then divides by gradients that are zero but for rounding
    (those of key biases, to which attention is blind): take train.precision=fp32.

    Expensive: at most ``2 * iterations`` products with H, each the work of about two updates,
    and a memory of ``iterations`` times the parameters. Stops early where an eigenvalue is
    within ``tolerance``, relative, of the value.
    """

    params: str
    every: int
    iterations: int
    tolerance: float
    until: Until = field(default="gradients", init=False)

    def __post_init__(self) -> None:
        check_probe("sharpness", self.every, self.params)
        if self.iterations < 1:
            raise InputError(f"probes.sharpness.iterations={self.iterations} must be at least 1")
        if not 0 <= self.tolerance < 1:
            raise InputError(f"probes.sharpness.tolerance={self.tolerance} must be in [0, 1)")

    @contextmanager
    def watch(self, update: Update) -> Iterator[Reading]:
        """Yield ``sharpness`` and ``preconditioned_sharpness``, each also with ``_error``.

        The error is the norm of the residual: some eigenvalue is this near.
        """
        reading: Reading = {}
        yield reading
        params = [p for p in matching(update.model, self.params).values() if p.requires_grad]
        if not params:
            return
        denominators = adam_denominators(update.optimizer, params)
        with undisturbed(update.model):
            reading |= self._measure("sharpness", update, params, None)
            if denominators is not None:
                name = "preconditioned_sharpness"
                reading |= self._measure(name, update, params, denominators.rsqrt())

    def _measure(
        self, name: str, update: Update, params: Sequence[Tensor], scale: Tensor | None
    ) -> Reading:
        def product(v: Tensor) -> Tensor:
            if scale is None:
                return hessian_product(update, params, v[0])[None]
            return (scale * hessian_product(update, params, scale * v[0]))[None]

        generator = torch.Generator().manual_seed(0)  # the global one belongs to the training
        n = sum(p.numel() for p in params)
        start = torch.randn(1, n, generator=generator, dtype=params[0].dtype)
        start = start.to(params[0].device)
        found = largest_eigenvalue(product, start, self.iterations, self.tolerance)
        return {name: found.value.item(), f"{name}_error": found.error.item()}


def hessian_product(update: Update, params: Sequence[Tensor], vector: Tensor) -> Tensor:
    """``H v`` of the update's mean objective per target, for ``v`` (n,) along flattened parameters.

    One batch's graph is held at a time. Attention that torch fuses has no second derivative, so
    torch is held to its plain formula.
    """
    parts = vector.split([p.numel() for p in params])
    vectors = [part.view_as(p) for part, p in zip(parts, params)]
    total = torch.zeros_like(vector)
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        for objective in update.objectives():
            gradients = grad(objective, params, create_graph=True, materialize_grads=True)
            # A gradient that depends on no weight has no graph, and no curvature.
            curved = [(g, v) for g, v in zip(gradients, vectors) if g.requires_grad]
            if curved:
                gs, vs = zip(*curved)
                products = grad(gs, params, vs, materialize_grads=True)
                total += torch.cat([h.flatten() for h in products])
    return total / update.n_targets


def adam_denominators(optimizer: torch.optim.Optimizer, params: Sequence[Tensor]) -> Tensor | None:
    """``sqrt(v_hat) + eps`` (n,) that Adam divides by in its coming step; None for other kinds.

    ``v = beta2 * v + (1 - beta2) * g^2`` with the gradient in ``p.grad``, and
    ``v_hat = v / (1 - beta2^t)`` (Kingma and Ba, 2015, Algorithm 1).
    """
    if not isinstance(optimizer, (*COUPLED, torch.optim.AdamW, RAdam)):
        return None
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    if any(p not in groups for p in params):  # a parameter that is not trained has no D
        return None
    parts = []
    for p in params:
        g = torch.zeros_like(p) if p.grad is None else p.grad
        group = groups[p]
        if isinstance(optimizer, COUPLED) and not group.get("decoupled_weight_decay"):
            g = g + group["weight_decay"] * p.detach()
        parts.append(_denominator(g, group, optimizer.state.get(p, {})).flatten())
    return torch.cat(parts)


def _denominator(g: Tensor, group: dict[str, Any], state: dict[str, Any]) -> Tensor:
    beta2, t = group["betas"][1], int(state.get("step", 0)) + 1
    v = beta2 * state.get("exp_avg_sq", 0) + (1 - beta2) * g.square()
    if group.get("amsgrad"):
        v = torch.maximum(v, state.get("max_exp_avg_sq", torch.zeros_like(v)))
    return (v / (1 - beta2**t)).sqrt() + group["eps"]


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Put random streams and every module's mode back to what they were."""
    modes = {module: module.training for module in model.modules()}
    devices = {p.device.index for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(devices=sorted(devices)):
        try:
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode
