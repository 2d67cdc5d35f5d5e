"""RAdam: the authors' formula by hand, torch's where the two agree, and where they must not."""

import pytest
import torch

from lnexp.optim.radam import RAdam, rectifier


@pytest.mark.parametrize(
    ("t", "beta2", "value"),
    # From the formula, to two digits: the first 100 updates at the paper's beta2 are a warm-up.
    [(6, 0.98, 0.12), (10, 0.98, 0.22), (50, 0.98, 0.62), (100, 0.98, 0.82), (500, 0.98, 1.0),
     (10, 0.999, 0.05), (100, 0.999, 0.21), (1000, 0.999, 0.65), (4000, 0.999, 0.96)],
)  # fmt: skip
def test_rectifier_values(t, beta2, value):
    assert rectifier(t, beta2) == pytest.approx(value, abs=0.006)


def test_no_update_while_the_rectifier_is_undefined():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = RAdam([p], lr=0.1, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
    for t in range(1, 8):
        before = p.detach().clone()
        p.grad = torch.full((3,), 0.5)
        optimizer.step()
        assert torch.equal(p, before) == (rectifier(t, 0.98) is None) == (t < 6)


def reference(gradients, lr, beta1, beta2, eps):
    """Liu et al. (2020), Algorithm 2, one number at a time, in the paper's symbols."""
    theta = m = v = 0.0
    rho_inf = 2 / (1 - beta2) - 1
    path = []
    for t, g in enumerate(gradients, 1):
        v = beta2 * v + (1 - beta2) * g * g
        m = beta1 * m + (1 - beta1) * g
        m_hat = m / (1 - beta1**t)
        rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
        if rho >= 5:
            r = ((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)) ** 0.5
            theta -= lr * r * m_hat * (1 - beta2**t) ** 0.5 / (v**0.5 + eps)
        path.append(theta)
    return path


def test_steps_equal_the_paper_algorithm():
    gradients = torch.randn(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = RAdam([p], lr=0.1, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.0)
    path = []
    for g in gradients:
        p.grad = g.clone()
        optimizer.step()
        path.append(p.item())
    assert path == pytest.approx(reference(gradients.tolist(), 0.1, 0.9, 0.98, 1e-8))


def test_torch_version_moves_at_update_1_and_then_rectifies_alike():
    ours, theirs = (torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)) for _ in range(2))
    a = RAdam([ours], lr=0.1, betas=(0.9, 0.98), eps=1e-12, weight_decay=0.0)
    b = torch.optim.RAdam([theirs], lr=0.1, betas=(0.9, 0.98), eps=1e-12)
    generator = torch.Generator().manual_seed(1)
    for t in range(1, 20):
        before = ours.detach().clone(), theirs.detach().clone()
        ours.grad = torch.randn(4, generator=generator, dtype=torch.float64)
        theirs.grad = ours.grad.clone()
        a.step()
        b.step()
        if t == 1:
            assert torch.equal(ours, before[0])
            assert not torch.equal(theirs, before[1])
        if t >= 6:
            torch.testing.assert_close(ours - before[0], theirs - before[1], rtol=1e-6, atol=1e-9)
