"""The largest eigenvalue of symmetric matrices that are known by their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Largest(NamedTuple):
    """Largest Ritz values, never above the largest eigenvalues but for rounding."""

    value: Tensor
    """(rows,)"""
    error: Tensor
    """(rows,): norm of the residual; some eigenvalue is this near."""
    iterations: int
    """Products taken."""


def largest_eigenvalue(
    product: Callable[[Tensor], Tensor], start: Tensor, iterations: int, tolerance: float = 0.0
) -> Largest:
    """Lanczos (1950) with full re-orthogonalisation, on each row of ``start`` (rows, d) at once.

    ``product`` multiplies each row (rows, d) by that row's matrix. Ends after ``iterations``
    products, or when each row's error is at most ``tolerance`` times its value, or when nothing is
    left to look at. Holds ``iterations`` times the size of ``start``. Not finite in, not finite
    out.
    """
    iterations = min(iterations, start.shape[-1])
    rounding = 100 * torch.finfo(start.dtype).eps
    rows, d = start.shape
    basis = start.new_empty(rows, iterations, d)
    diagonal, below = start.new_zeros(2, iterations, rows).unbind()
    q = start / start.norm(dim=-1, keepdim=True)
    scale = start.new_zeros(rows)
    for k in range(iterations):
        basis[:, k] = q
        w = product(q)
        diagonal[k] = (w * q).sum(-1)
        seen = basis[:, : k + 1]
        for _ in range(2):  # twice is enough (Parlett, 1998, section 6.9)
            overlap = seen @ w[..., None]
            w = w - (seen.mT @ overlap)[..., 0]
        below[k] = w.norm(dim=-1)
        scale = torch.maximum(scale, diagonal[k].abs())
        # A row whose Krylov space is used up goes on with q = 0; the first Rayleigh quotient on
        # its diagonal then adds no Ritz value above those it has.
        done = below[k] <= rounding * scale
        below[k].masked_fill_(done, 0)
        scale = torch.maximum(scale, below[k])
        if k:
            diagonal[k] = torch.where(below[k - 1] == 0, diagonal[0], diagonal[k])
        if done.all() or k + 1 == iterations:
            break
        if tolerance:
            value, error = _ritz(diagonal[: k + 1], below[: k + 1])
            if (error <= tolerance * value.abs()).all():
                break
        q = torch.where(done[:, None], 0, w / torch.where(done, 1, below[k])[:, None])
    value, error = _ritz(diagonal[: k + 1], below[: k + 1])
    return Largest(value.to(start), error.to(start), k + 1)


def _ritz(diagonal: Tensor, below: Tensor) -> tuple[Tensor, Tensor]:
    """Largest eigenvalue and residual norm of each row's tridiagonal matrix, (rows,) each."""
    a, b = diagonal.T.cpu().double(), below.T.cpu().double()
    matrix = torch.diag_embed(a) + torch.diag_embed(b[:, :-1], -1)  # eigh reads the lower triangle
    finite = matrix.isfinite().flatten(1).all(1) & b.isfinite().all(1)
    values, vectors = torch.linalg.eigh(torch.where(finite[:, None, None], matrix, 0))
    value, error = values[:, -1], (b[:, -1] * vectors[:, -1, -1]).abs()
    return torch.where(finite, value, torch.nan), torch.where(finite, error, torch.nan)
