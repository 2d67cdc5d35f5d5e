"""Lanczos, Hessian-vector products and Adam's preconditioner, against explicit matrices."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_probes import Copying, Rows, batches, plan, read, state, transformer
from torch import nn

from lnexp.optim.radam import RAdam
from lnexp.optim.schedule import Constant
from lnexp.probes import Sharpness, Update
from lnexp.probes.lanczos import largest_eigenvalue
from lnexp.probes.sharpness import adam_denominators, hessian_product
from lnexp.train import Loss, accumulate_gradients, objectives, train, update_weights

# Lanczos


def symmetric(*eigenvalues, seed=0):
    """A matrix with these eigenvalues in a random basis."""
    d = len(eigenvalues)
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return q @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ q.T


def starts(rows, d):
    return torch.randn(rows, d, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def largest(*matrices, iterations=50, tolerance=0.0):
    stacked = torch.stack(matrices)
    return largest_eigenvalue(
        lambda v: torch.einsum("rij,rj->ri", stacked, v),
        starts(*stacked.shape[:2]),
        iterations,
        tolerance,
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=12), st.integers(0, 5))
def test_as_many_products_as_dimensions_give_the_largest_eigenvalue(eigenvalues, seed):
    # Repeated eigenvalues use the Krylov space up early.
    found = largest(symmetric(*eigenvalues, seed=seed))
    assert found.value.item() == pytest.approx(max(eigenvalues), abs=1e-9)
    assert found.error.item() <= 1e-9
    assert found.iterations <= len(eigenvalues)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=6, max_size=30), st.integers(1, 5))
def test_an_early_answer_is_no_higher_and_an_eigenvalue_is_within_its_error(eigenvalues, n):
    found = largest(symmetric(*eigenvalues), iterations=n)
    value, error = found.value.item(), found.error.item()
    assert value <= max(eigenvalues) + 1e-9
    assert min(abs(value - e) for e in eigenvalues) <= error + 1e-9


def test_rows_are_matrices_of_their_own():
    spectra = [(3, -7, 1, 0), (-1, -2, -3, -4), (2, 2, 2, 2), (0, 0, 0, 0), (5, 0, 0, 0)]
    found = largest(*(symmetric(*s) for s in spectra))
    torch.testing.assert_close(found.value, torch.tensor([3.0, -1, 2, 0, 5]).double())


def test_the_tolerance_ends_it_early_and_holds():
    spectrum = [100.0, 50, *torch.linspace(-1, 1, 198).tolist()]
    found = largest(symmetric(*spectrum), iterations=200, tolerance=1e-3)
    assert found.iterations < 20
    assert found.value.item() == pytest.approx(100, rel=1e-3)
    assert found.error.item() <= 1e-3 * 100


def test_what_is_not_finite_stays_so():
    bad = symmetric(1, 2, 3)
    bad[0, 0] = torch.nan
    found = largest(bad, symmetric(1, 2, 3))
    assert found.value.isnan().tolist() == [True, False]
    assert found.value[1].item() == pytest.approx(3)


# Hessians


class Bowl(nn.Module):
    """``n_targets * w^T A w / 2`` summed over batches of unequal size is a mean of ``w^T A w / 2``."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = matrix
        self.w = nn.Parameter(torch.arange(1.0, len(matrix) + 1, dtype=torch.float64))


class Rolling:
    batches_per_epoch = 4

    def batches(self, *, start):
        while True:
            yield 3
            yield 5

    def loss(self, model, n):
        objective = n * (model.w @ model.matrix @ model.w) / 2
        return Loss(objective, objective.detach(), n)


def test_sharpness_of_a_quadratic_is_its_largest_eigenvalue():
    matrix = symmetric(-9, 1, 2, 3, 7)
    model, record = Bowl(matrix), Rows()
    s = state(model, torch.optim.Adam, lr=0.1, eps=0.01, betas=(0.9, 0.98))
    update_weights(s, Rolling(), [3, 5], [Sharpness(".", 1, 10, 0.0)], record, plan())
    readings = record.readings(1)
    assert readings["sharpness"] == pytest.approx(7)
    gradient = matrix @ Bowl(matrix).w.detach()
    scale = torch.diag((gradient.abs() + 0.01).rsqrt())  # at update 1 v_hat is g^2
    expected = torch.linalg.eigvalsh(scale @ matrix @ scale)[-1].item()
    assert readings["preconditioned_sharpness"] == pytest.approx(expected)
    assert readings["preconditioned_sharpness_error"] < 1e-6


def test_a_straight_objective_has_no_curvature():
    class Sliding(Rolling):
        def loss(self, model, n):
            return Loss(n * model.w.sum(), n * model.w.sum().detach(), n)

    model, record = Bowl(symmetric(1, 2)), Rows()
    probes = [Sharpness(".", 1, 5, 0.1)]
    update_weights(state(model, torch.optim.SGD), Sliding(), [3], probes, record, plan())
    assert record.readings(1) == {"sharpness": 0, "sharpness_error": 0}


SOME = (
    r"encoder_blocks\.0\.ffn\.w2\.bias|norms\.0\.0|decoder_blocks\.1\.(self_attn\.v|ffn\.w1)\.bias"
)


def explicit(model, t, params, plan_):
    """The Hessian of the mean objective of update ``t``, a row at a time, and its gradient."""
    given = batches()
    total = n_targets = 0
    for batch, objective in zip(given, objectives(model, Copying(), given, t, plan_)):
        total = total + objective
        n_targets += int((batch[2] != 0).sum())
    gradient = torch.autograd.grad(total / n_targets, params, create_graph=True)
    gradient = torch.cat([g.flatten() for g in gradient])
    rows = [torch.autograd.grad(g, params, retain_graph=True) for g in gradient]
    return torch.stack([torch.cat([h.flatten() for h in row]) for row in rows]), gradient.detach()


def matching(model):
    return [p for n, p in model.named_parameters() if re.search(SOME, n)]


def test_products_and_sharpness_of_the_transformer_are_those_of_its_explicit_hessian():
    model, plan_ = transformer(dropout=0.2), plan()
    params = matching(model)
    hessian, gradient = explicit(model, 1, params, plan_)
    assert len(hessian) == 8 + 2 * 16 + 8 + 16
    torch.testing.assert_close(hessian, hessian.T)
    update = Update(
        model, state(model).optimizer, 1, lambda: objectives(model, Copying(), batches(), 1, plan_)
    )
    update.n_targets = sum(int((b[2] != 0).sum()) for b in batches())
    vector = starts(1, len(hessian))[0]
    torch.testing.assert_close(hessian_product(update, params, vector), hessian @ vector)

    readings = read(transformer(dropout=0.2), Sharpness(SOME, 1, 60, 1e-6))
    expected = torch.linalg.eigvalsh(hessian)[-1].item()
    assert readings["sharpness"] == pytest.approx(expected, rel=1e-6)
    scale = (gradient.abs() + 1e-8).rsqrt()
    expected = torch.linalg.eigvalsh(scale[:, None] * hessian * scale)[-1].item()
    assert readings["preconditioned_sharpness"] == pytest.approx(expected, rel=1e-6)
    assert readings["preconditioned_sharpness_error"] <= 1e-6 * expected


def test_the_hessian_is_that_before_the_step_and_its_preconditioner_that_of_the_step():
    record = Rows()
    train(
        state(transformer(), betas=(0.9, 0.5), eps=1e-3),
        Same(), Constant(1), [Sharpness(SOME, 3, 60, 1e-6)], record, plan(updates=3),
    )  # fmt: skip
    # The same two updates without the probe, then the third by hand.
    model = transformer()
    s = state(model, betas=(0.9, 0.5), eps=1e-3)
    v, params = 0, matching(model)
    for t in (1, 2):
        accumulate_gradients(model, Same(), batches(), t, plan())
        v = 0.5 * v + 0.5 * torch.cat([p.grad.flatten() for p in params]) ** 2
        s.optimizer.step()
        s.optimizer.zero_grad()
    hessian, gradient = explicit(model, 3, params, plan())
    v = 0.5 * v + 0.5 * gradient**2
    scale = ((v / (1 - 0.5**3)).sqrt() + 1e-3).rsqrt()
    readings = record.readings(3)
    expected = torch.linalg.eigvalsh(hessian)[-1].item()
    assert readings["sharpness"] == pytest.approx(expected, rel=1e-6)
    expected = torch.linalg.eigvalsh(scale[:, None] * hessian * scale)[-1].item()
    assert readings["preconditioned_sharpness"] == pytest.approx(expected, rel=1e-6)


class Same(Copying):
    """The same two batches in each update."""

    def batches(self, *, start):
        while True:
            yield from batches()


# Adam's preconditioner: what each optimiser really divides by

ADAMS = [
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"weight_decay": 0.3}),
    (torch.optim.Adam, {"amsgrad": True}),
    (torch.optim.Adam, {"fused": True}),
    (torch.optim.AdamW, {"weight_decay": 0.3}),
    (torch.optim.RAdam, {}),
    (torch.optim.RAdam, {"weight_decay": 0.3}),
    (RAdam, {"weight_decay": 0.0}),
]


@pytest.mark.parametrize(("optimizer", "arguments"), ADAMS)
def test_the_denominator_is_what_the_step_divides_the_gradient_by(optimizer, arguments):
    generator = torch.Generator().manual_seed(4)
    p = nn.Parameter(torch.randn(6, generator=generator, dtype=torch.float64))
    # With beta1 = 0 a step is lr * gradient / D; RAdam's rectifier makes that proportional.
    eps = 0.1 if "RAdam" not in optimizer.__name__ else 1e-12
    opt = optimizer([p], lr=0.01, betas=(0.0, 0.9), eps=eps, **arguments)
    for t in range(1, 13):
        p.grad = torch.randn(6, generator=generator, dtype=torch.float64) * (1 + 5 / t)
        found = adam_denominators(opt, [p])
        before, decay = p.detach().clone(), arguments.get("weight_decay", 0)
        opt.step()
        if "RAdam" in optimizer.__name__ and t < 8:
            continue
        if optimizer is torch.optim.AdamW:
            numerator, before = p.grad, before * (1 - 0.01 * decay)
        else:
            numerator = p.grad + decay * before
        divided = 0.01 * numerator / (before - p.detach())
        if "RAdam" in optimizer.__name__:
            divided = divided * (found / divided).mean()
        torch.testing.assert_close(found, divided)


def test_without_adam_there_is_no_preconditioned_sharpness():
    model, record = transformer(), Rows()
    s = state(model, torch.optim.SGD)
    update_weights(s, Copying(), batches(), [Sharpness("w1", 1, 2, 0.1)], record, plan())
    assert set(record.readings(1)) == {"sharpness", "sharpness_error"}
    assert adam_denominators(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1), []) is None


def test_a_gradient_is_not_needed_where_the_objective_has_none():
    # A parameter that no batch uses has a zero row in H, whatever its denominator.
    model, record = transformer(), Rows()
    model.unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
    s = state(model)
    update_weights(s, Copying(), batches(), [Sharpness("w1|unused", 1, 9, 0.0)], record, plan())
    with_it = record.readings(1)
    without = read(transformer(), Sharpness("w1", 1, 60, 1e-9))
    model, given = transformer(), batches()
    accumulate_gradients(model, Copying(), given, 1, plan())
    assert with_it["sharpness"] <= without["sharpness"] * (1 + 1e-9)
    assert with_it["sharpness"] == pytest.approx(without["sharpness"], rel=0.05)
