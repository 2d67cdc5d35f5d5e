"""The loop on a task small enough to follow: linear regression with sums as losses."""

import math

import pytest
import torch
from torch import nn

from lnexp.checkpoint import load_model, load_state, save_model, save_state
from lnexp.errors import Diverged, InputError, Interrupted
from lnexp.optim.schedule import Constant, InverseSqrt
from lnexp.probes import GradNorm
from lnexp.train import (
    Best,
    Loss,
    TrainPlan,
    TrainState,
    accumulate_gradients,
    clip_gradients,
    evaluation_due,
    train,
)


class Regression:
    """Batches of unequal size; every batch is a function of its number."""

    batches_per_epoch = 4

    def __init__(self, scale=1.0, poison_at=None):
        self.scale, self.poison_at = scale, poison_at

    def batches(self, *, start):
        number = start
        while True:
            generator = torch.Generator().manual_seed(number)
            x = torch.randn(2 + number % 3, 4, generator=generator)
            yield (x * math.nan if number == self.poison_at else x) * self.scale
            number += 1

    def loss(self, model, x):
        error = (model(x) - x.sum(1, keepdim=True)).pow(2).sum()
        return Loss(error, error.detach(), len(x))

    def evaluate(self, model, split, poll):
        poll()
        x = next(self.batches(start=1000))
        loss = self.loss(model, x)
        return {"loss": loss.nll.item() / loss.n_targets}, "samples"


class Memory:
    """A record in memory that may end the process after an update."""

    def __init__(self, stop_at=None, path=None):
        self.rows, self.stop_at, self.path, self.saved, self.best = [], stop_at, path, [], []

    def row(self, kind, t, values):
        self.rows.append((kind, t, {k: v for k, v in values.items() if k != "tokens_per_second"}))

    def samples(self, split, t, text):
        pass

    def save(self, state):
        self.saved.append(state.t)
        if self.path:
            save_state(state, len(self.rows), self.path)

    def save_weights(self, state):
        if state.best is not None and state.best.t == state.t:
            self.best.append(state.t)

    def poll(self, state):
        if self.stop_at is not None and state.t >= self.stop_at:
            raise Interrupted(15)


def state():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.3), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    return TrainState(model, torch.optim.Adam(model.parameters(), lr=0.01))


def plan(**changes):
    given = dict(seed=1, updates=12, batches_per_update=2, clip_norm=None, precision="fp32",
                 eval_every=0, log_every=1, checkpoint_every=5)  # fmt: skip
    return TrainPlan(**{**given, **changes})


def test_update_1_runs_at_the_scheduled_rate():
    record = Memory()
    train(state(), Regression(), InverseSqrt(4, 4), [], record, plan(updates=5))
    rates = [values["lr"] for kind, _, values in record.rows if kind == "train"]
    assert rates == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.01 * (4 / 5) ** 0.5])


def test_sgd_by_hand():
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    s = TrainState(model, torch.optim.SGD(model.parameters(), lr=0.1))
    train(s, Regression(), Constant(1), [], Memory(), plan(updates=1, batches_per_update=1))
    x = next(Regression().batches(start=0))
    expected = 0.1 * 2 * (x.sum(1, keepdim=True) * x).mean(0)  # -d/dw mean (x w - sum x)^2 at 0
    torch.testing.assert_close(model.weight[0], expected)


def test_accumulated_gradient_is_that_of_one_large_batch():
    batches = [b for b, _ in zip(Regression().batches(start=0), range(3))]
    assert len({len(b) for b in batches}) > 1
    s = state()
    s.model[0].p = 0.0
    loss, n = accumulate_gradients(s.model, Regression(), batches, 1, plan())
    accumulated = [p.grad.clone() for p in s.model.parameters()]
    s.optimizer.zero_grad()
    whole, m = accumulate_gradients(s.model, Regression(), [torch.cat(batches)], 1, plan())
    assert n == m == sum(map(len, batches))
    assert loss == pytest.approx(whole)
    for a, p in zip(accumulated, s.model.parameters()):
        torch.testing.assert_close(a, p.grad)


@pytest.mark.parametrize("stop_at", [1, 2, 3, 5, 6, 11])
def test_resuming_reaches_the_same_weights_and_rows(stop_at, tmp_path):
    path = tmp_path / "last.pt"
    once, record = state(), Memory()
    train(once, Regression(), InverseSqrt(4, 4), [], record, plan())

    first, cut = state(), Memory(stop_at, path)
    with pytest.raises(Interrupted):
        train(first, Regression(), InverseSqrt(4, 4), [], cut, plan())
    cut.save(first)
    second, rest = state(), Memory()
    n_rows = load_state(second, path, torch.device("cpu"))
    torch.manual_seed(99)  # whatever the process did before
    train(second, Regression(), InverseSqrt(4, 4), [], rest, plan())

    assert cut.rows[:n_rows] + rest.rows == record.rows
    assert (second.t, second.tokens, second.best) == (once.t, once.tokens, once.best)
    for a, b in zip(once.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(once.optimizer.state.values(), second.optimizer.state.values(), strict=True):
        assert all(torch.equal(a[k], b[k]) for k in a)


def test_divergence_is_raised_before_the_weights_change():
    s = state()
    before = None

    class Watching(Memory):
        def row(self, kind, t, values):
            nonlocal before
            before = [p.detach().clone() for p in s.model.parameters()]

    with pytest.raises(Diverged) as caught:
        train(s, Regression(poison_at=9), Constant(1), [], Watching(), plan())
    assert caught.value.t == 5
    assert s.t == 4
    assert all(torch.equal(a, b) for a, b in zip(before, s.model.parameters(), strict=True))


def test_clipping_scales_the_whole_gradient():
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])
    assert clip_gradients(model, None) == 5.0
    assert model.weight.grad.tolist() == [[3.0, 4.0]]
    assert clip_gradients(model, 1.0) == 5.0
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.8]]))


def test_evaluations_come_once_an_epoch_or_every_n_updates():
    def due(**changes):
        return [t for t in range(13) if evaluation_due(t, plan(**changes), 7)]

    assert due(batches_per_update=1) == [7]
    assert due(batches_per_update=2) == [4, 7, 11]  # epochs end in batches 7, 14 and 21
    assert due(batches_per_update=10) == list(range(1, 13))
    assert due(eval_every=5) == [5, 10]


def test_checkpoints_come_at_their_cadence_and_at_the_end():
    record = Memory()
    train(state(), Regression(), Constant(1), [], record, plan())
    assert record.saved == [5, 10, 12]


def test_best_is_the_lowest_validation_loss():
    s, record = state(), Memory()
    train(s, Regression(), Constant(1), [], record, plan(updates=40))
    losses = {t: v["loss"] for kind, t, v in record.rows if kind == "valid"}
    t = min(losses, key=losses.get)
    assert s.best == Best(t, losses[t])
    assert record.best[-1] == t


def test_a_probe_reads_the_gradient_and_changes_nothing():
    probe = GradNorm(r"^3\.weight$", 3)
    with_probe, without, record = state(), state(), Memory()
    train(with_probe, Regression(), Constant(1), [probe], record, plan(updates=7))
    train(without, Regression(), Constant(1), [], Memory(), plan(updates=7))
    for a, b in zip(with_probe.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(a, b)
    probed = [(t, values) for kind, t, values in record.rows if kind == "probe"]
    assert [t for t, _ in probed] == [1, 3, 6]
    fresh = state()
    batches = [b for b, _ in zip(Regression().batches(start=0), range(2))]
    accumulate_gradients(fresh.model, Regression(), batches, 1, plan())
    norm = fresh.model[3].weight.grad.pow(2).sum().sqrt().item()
    assert probed[0][1] == {"grad_norm/3.weight": pytest.approx(norm)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("(", 1), r"probes\.grad_norm\.params='\(' is no regular expression"),
     (("x", 0), r"probes\.grad_norm\.every=0 must be at least 1")],
)  # fmt: skip
def test_senseless_probes_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        GradNorm(*arguments)


def test_damaged_and_missing_checkpoints_are_named(tmp_path):
    path = tmp_path / "x.pt"
    with pytest.raises(InputError, match=r"x\.pt does not exist"):
        load_model(state().model, [path], torch.device("cpu"))
    save_model(state().model, 3, path)
    assert load_model(state().model, [path], torch.device("cpu")) == [3]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"x\.pt is damaged or foreign"):
        load_model(state().model, [path], torch.device("cpu"))


def test_bf16_gradient_is_close_to_that_of_fp32():
    batch = [torch.randn(64, 4, generator=torch.Generator().manual_seed(0))]
    grads = {}
    for precision in ("fp32", "bf16"):
        s = state()
        accumulate_gradients(s.model, Regression(), batch, 1, plan(precision=precision))
        grads[precision] = torch.cat([p.grad.flatten() for p in s.model.parameters()])
    difference = (grads["bf16"] - grads["fp32"]).norm() / grads["fp32"].norm()
    assert 0 < difference < 0.02


def test_an_evaluation_that_is_not_finite_is_never_the_best():
    class Poisoned(Regression):
        def evaluate(self, model, split, poll):
            metrics, samples = super().evaluate(model, split, poll)
            self.poisoned = not getattr(self, "poisoned", False)
            return {"loss": math.nan if self.poisoned else metrics["loss"]}, samples

    s, record = state(), Memory()
    train(s, Poisoned(), Constant(1), [], record, plan(updates=4))
    assert record.best == [4]  # evaluated after updates 2 and 4
    assert s.best.t == 4
