"""RAdam as its authors wrote it.

torch's RAdam takes steps of plain momentum while the rectifier is undefined (updates 1 to 5 at
beta2 = 0.98): the very updates that a study of warm-up looks at. Liu et al.'s code takes none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


def rectifier(t: int, beta2: float) -> float | None:
    """``r_t`` of Liu et al. (2020), Algorithm 2; None where the variance is intractable.

    Their code asks for ``rho_t >= 5``, the paper for ``rho_t > 4``; this is the code's rule.
    """
    rho_inf = 2 / (1 - beta2) - 1
    rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
    if rho < 5:
        return None
    return math.sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho))


class RAdam(torch.optim.Optimizer):
    """Rectified Adam (Liu et al., 2020) that waits while the rectifier is undefined.

    Moments are gathered from update 1. Weight decay is decoupled, and waits too.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        beta1, beta2 = betas
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1 and eps >= 0 and weight_decay >= 0):
            raise ValueError(
                f"betas={[beta1, beta2]} must be in [0, 1), eps={eps} and "
                f"weight_decay={weight_decay} not negative"
            )
        defaults = dict(lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one update."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        state = self.state[p]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(p)
            state["exp_avg_sq"] = torch.zeros_like(p)
        state["step"] += 1
        t, m, v = state["step"], state["exp_avg"], state["exp_avg_sq"]
        m.lerp_(grad, 1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        r = rectifier(t, beta2)
        if r is None:
            return
        p.mul_(1 - group["lr"] * group["weight_decay"])
        scale = r * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        p.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-group["lr"] * scale)
