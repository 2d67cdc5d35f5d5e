"""How much a normaliser stretches what comes through it: the norm of its Jacobian."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd import grad

from lnexp.errors import InputError
from lnexp.model.placement import Placement
from lnexp.probes.gradients import check_probe
from lnexp.probes.hearing import Hear, Place, full_precision, hearing, placements
from lnexp.probes.lanczos import largest_eigenvalue
from lnexp.probes.protocol import Reading, Until, Update


@dataclass(frozen=True)
class NormJacobian:
    """Spectral norm of the Jacobian of each normaliser, at the inputs that it gets.

    Mean over ``positions`` real positions of each batch, evenly spaced. The paper's Lemma 3 has
    ``sqrt(d) / ||x - mean(x)||`` for LayerNorm with unit gains; here it is measured, gains
    included, and for any normaliser that has a second derivative and works position by position.
    ``iterations`` steps of Lanczos are exact for unit gains; otherwise 12 leave the mean short by
    less than a percent.
    """

    every: int
    positions: int
    iterations: int
    until: Until = field(default="gradients", init=False)

    def __post_init__(self) -> None:
        check_probe("norm_jacobian", self.every)
        for name, value in (("positions", self.positions), ("iterations", self.iterations)):
            if value < 1:
                raise InputError(f"probes.norm_jacobian.{name}={value} must be at least 1")

    @contextmanager
    def watch(self, update: Update) -> Iterator[Reading]:
        """Yield ``norm_jacobian/<stack>.<layer>.<name>``, or ``<stack>.<name>`` for the final one.

        Names and numbers are those of the normaliser in its placement: ``encoder.0.norms.1`` is
        that of the second branch of the first layer.
        """
        reading: Reading = {}
        samples: dict[str, list[Tensor]] = {}
        places, norms = [], {}

        def note(key: str) -> Hear:
            def hear(x: Tensor, _: Tensor, real: Tensor | None) -> None:
                x = x.flatten(0, -2) if real is None else x[real]
                n = min(self.positions, len(x))
                where = torch.linspace(0, len(x) - 1, n, device=x.device).round().long()
                samples.setdefault(key, []).append(full_precision(x[where]))

            return hear

        for stack, placement in placements(update.model).items():
            for name, norm in normalisers(placement).items():
                norms[key := f"norm_jacobian/{stack}.{name}"] = norm
                places.append(Place(norm, stack, note(key)))
        with hearing(update, places):
            yield reading
        for key, norm in norms.items():
            if key in samples:
                sizes = spectral_norms(norm, torch.cat(samples[key]), self.iterations)
                reading[key] = sizes.mean().item()


def normalisers(placement: Placement) -> dict[str, nn.Module]:
    """The normalisers that a placement owns, by names with the layer in front: ``0.norms.1``."""
    found: dict[str, nn.Module] = {}

    def look(owner: nn.Module, path: tuple[str, ...]) -> None:
        for name, module in owner.named_children():
            if isinstance(module, nn.ModuleList):
                look(module, (*path, name))
            elif not isinstance(module, (nn.Identity, nn.ParameterList, nn.ParameterDict)):
                layers = [n for n in path[1:2] if n.isdigit()]
                rest = [*path[:1], *path[1 + len(layers) :], name]
                found[".".join([*layers, *rest])] = module

    look(placement, ())
    return found


def spectral_norms(norm: nn.Module, x: Tensor, iterations: int) -> Tensor:
    """Largest singular value of the Jacobian of ``norm`` at each position of ``x`` (n, d): (n,)."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y = norm(x)
        # J^T u is linear in u, and the derivative of that, applied to v, is J v: no forward-mode
        # derivative is asked of the normaliser.
        u = torch.zeros_like(y).requires_grad_()
        (pulled,) = grad(y, x, u, create_graph=True)

    def gram(v: Tensor) -> Tensor:
        (pushed,) = grad(pulled, u, v, retain_graph=True)
        return grad(y, x, pushed, retain_graph=True)[0]

    generator = torch.Generator().manual_seed(0)  # the global one belongs to the training
    start = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
    return largest_eigenvalue(gram, start, iterations).value.clamp(min=0).sqrt()
