"""What probes read, by hand; that they leave no trace is tested for all of them together."""

import math
import re
from functools import partial

import pytest
import torch
from hydra import compose, initialize_config_dir
from torch import nn

from lnexp.build import build_model, make
from lnexp.config import conf_dir
from lnexp.errors import Diverged, InputError
from lnexp.evaluation.trust import is_known
from lnexp.model.norm import DyT
from lnexp.model.placement import PostLN, PreLN
from lnexp.model.placement_residual import ResiDual
from lnexp.model.transformer import ModelShape, Transformer
from lnexp.optim.schedule import Constant
from lnexp.probes import (
    AttentionEntropy,
    GradNorm,
    MeanGradNorm,
    NormJacobian,
    Sharpness,
    StreamNorm,
    Update,
    UpdateSize,
)
from lnexp.probes.normalisers import normalisers, spectral_norms
from lnexp.train import Loss, TrainPlan, TrainState, train, update_weights
from lnexp.validate import validate

PAD, VOCAB, D, HEADS, LAYERS = 0, 12, 8, 2, 2
LN = partial(nn.LayerNorm, eps=1e-12)
ALL = [GradNorm(".", 1), MeanGradNorm(".", 1), StreamNorm(1), AttentionEntropy(1),
       NormJacobian(1, 4, 6), Sharpness(".", 2, 2, 0.0), UpdateSize(".", 1)]  # fmt: skip


def transformer(placement=PreLN, norm=LN, dropout=0.0, dtype=torch.float64):
    torch.manual_seed(1)
    shape = ModelShape(D, 16, HEADS, LAYERS, dropout, dropout, dropout)
    return Transformer(shape, VOCAB, PAD, lambda stack: placement(stack, norm)).to(dtype)


class Copying:
    """Padded pairs of random pieces; a batch is a function of its number."""

    batches_per_epoch = 4

    def __init__(self, fail_at=None):
        self.fail_at = fail_at

    def batches(self, *, start):
        number = start
        while True:
            if number == self.fail_at:
                raise KeyError("the data are gone")
            generator = torch.Generator().manual_seed(number)
            src = torch.randint(1, VOCAB, (3, 5 + number % 2), generator=generator)
            tgt = torch.randint(1, VOCAB, (3, 6), generator=generator)
            src[1, 3:] = src[2, 1:] = tgt[0, 4:] = PAD
            yield src, tgt[:, :-1], tgt[:, 1:]
            number += 1

    def loss(self, model, batch):
        src, tgt_in, tgt_out = batch
        if src is None:
            raise KeyError("the data are gone")
        real = tgt_out != PAD
        log_probs = model.logits(model(src, tgt_in)[real]).log_softmax(-1)
        nll = -log_probs.gather(1, tgt_out[real][:, None]).sum()
        return Loss(nll, nll.detach(), int(real.sum()))

    def evaluate(self, model, split, poll):
        return {"loss": 1.0}, ""


class Rows(list):
    """A record that keeps its rows."""

    def row(self, kind, t, values):
        self.append((kind, t, {k: v for k, v in values.items() if k != "tokens_per_second"}))

    def readings(self, t):
        return {
            k: v for kind, at, row in self if (kind, at) == ("probe", t) for k, v in row.items()
        }

    def ignore(self, *_):
        pass

    samples = save = save_weights = poll = ignore


def plan(**changes):
    given = dict(seed=1, updates=4, batches_per_update=2, clip_norm=None, precision="fp32",
                 eval_every=0, log_every=1, checkpoint_every=5)  # fmt: skip
    return TrainPlan(**{**given, **changes})


def state(model, optimizer=torch.optim.Adam, **arguments):
    return TrainState(model, optimizer(model.parameters(), **{"lr": 0.01, **arguments}))


def read(model, *probes, batches=2, **changes):
    """Readings of update 1, on ``batches`` batches."""
    record, plan_ = Rows(), plan(batches_per_update=batches, **changes)
    stream = Copying().batches(start=0)
    given = [next(stream) for _ in range(batches)]
    update_weights(state(model), Copying(), given, probes, record, plan_)
    return record.readings(1)


def batches(n=2):
    stream = Copying().batches(start=0)
    return [next(stream) for _ in range(n)]


# No trace


def hooks(model):
    found = []
    for module in model.modules():
        found += [k for k, v in vars(module).items() if k.endswith(("_hooks", "_kwargs")) and v]
    for p in model.parameters():
        found += [p._backward_hooks, p._post_accumulate_grad_hooks]
    return [hook for hook in found if hook]


def test_hooks_are_found_where_there_are_some():
    model = transformer()
    assert hooks(model) == []
    model.embedding.register_forward_hook(print)
    model.embedding.weight.register_post_accumulate_grad_hook(print)
    assert len(hooks(model)) == 2


@pytest.mark.parametrize("order", [1, -1])
def test_weights_are_bit_for_bit_those_of_a_run_without_probes(order):
    watched, alone, record, plain = (
        transformer(dropout=0.2),
        transformer(dropout=0.2),
        Rows(),
        Rows(),
    )
    a, b = state(watched), state(alone)
    train(a, Copying(), Constant(1), ALL[::order], record, plan())
    train(b, Copying(), Constant(1), [], plain, plan())
    assert [row for row in record if row[0] != "probe"] == plain
    for p, q in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(p, q)
    for s, r in zip(a.optimizer.state.values(), b.optimizer.state.values(), strict=True):
        assert all(torch.equal(s[k], r[k]) for k in s)
    assert hooks(watched) == []
    prefixes = {key.partition("/")[0] for key in record.readings(2)}
    assert prefixes == {
        "grad_norm", "mean_grad_norm", "stream", "branch", "attention_entropy", "norm_jacobian",
        "sharpness", "sharpness_error", "preconditioned_sharpness",
        "preconditioned_sharpness_error", "update_size",
    }  # fmt: skip
    assert all(math.isfinite(v) for v in record.readings(4).values())


def test_readings_do_not_depend_on_the_other_probes():
    together = [read(transformer(dropout=0.2), *ALL[::order]) for order in (1, -1)]
    apart = {}
    for probe in ALL:
        apart |= read(transformer(dropout=0.2), probe)
    assert together == [apart, apart]


@pytest.mark.parametrize("probe", ALL, ids=lambda p: type(p).__name__)
def test_a_watch_leaves_hooks_gradients_random_streams_and_modes_alone(probe):
    model = transformer(dropout=0.2)
    model.decoder_blocks.eval()
    modes = [m.training for m in model.modules()]

    def objectives():  # as the loop's: draws, and sets every mode
        model.train()
        torch.manual_seed(3)
        yield Copying().loss(model, batches()[0]).objective

    update = Update(model, state(model).optimizer, 1, objectives)
    torch.manual_seed(5)
    with probe.watch(update) as reading:
        loss = Copying().loss(model, batches()[0])
        loss.objective.backward()
        update.n_targets = loss.n_targets
        before = torch.get_rng_state(), [p.grad.clone() for p in model.parameters()]
        weights = [p.detach().clone() for p in model.parameters()]
    assert reading
    assert torch.equal(torch.get_rng_state(), before[0])
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), before[1], strict=True))
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    assert [m.training for m in model.modules()] == modes
    assert hooks(model) == []


@pytest.mark.parametrize("probe", ALL, ids=lambda p: type(p).__name__)
def test_no_hooks_are_left_when_the_update_fails(probe):
    model = transformer()
    given = [batches()[0], (None, None, None)]
    with pytest.raises(KeyError, match="the data are gone"):
        update_weights(state(model), Copying(), given, [probe], Rows(), plan())
    assert hooks(model) == []


def test_a_diverging_update_is_read_and_then_reported():
    model, record = transformer(), Rows()
    with torch.no_grad():
        model.encoder_blocks[0].ffn.w1.weight[0, 0] = math.nan
    with pytest.raises(Diverged):
        train(state(model), Copying(), Constant(1), ALL, record, plan())
    readings = record.readings(1)
    assert math.isnan(readings["sharpness"])
    assert math.isnan(readings["norm_jacobian/encoder.1.norms.0"])
    assert math.isfinite(readings["stream/encoder.in"])
    assert hooks(model) == []


def test_models_without_a_stack_have_no_stack_to_read():
    model = nn.Linear(3, 1)
    update = Update(model, state(model).optimizer, 1, lambda: iter(()))
    for probe in (StreamNorm(1), AttentionEntropy(1), NormJacobian(1, 4, 6)):
        with probe.watch(update) as reading:
            model(torch.zeros(2, 3))
        assert reading == {}


# Stream and branches


def test_stream_and_branches_of_pre_ln_by_hand():
    model = transformer()
    squares = {}

    def note(key, x, real):
        squares.setdefault(key, []).append((x[real] ** 2).sum(-1) / D)

    readings = read(model, StreamNorm(1), batches=3)
    model = transformer()  # the update moved the other one
    for src, _, _ in batches(3):
        x, bias, real = model.embed(src), model.mask_padding(src), src != PAD
        note("stream/encoder.in", x, real)
        for layer, block in enumerate(model.encoder_blocks):
            norms = model.encoder_placement.norms[layer]
            f = block.attn(norms[0](x), bias)
            note(f"branch/encoder.{layer}.attn", f, real)
            x = x + f
            f = block.ffn(norms[1](x))
            note(f"branch/encoder.{layer}.ffn", f, real)
            x = x + f
            note(f"stream/encoder.{layer}", x, real)
        note("stream/encoder.out", model.encoder_placement.final_norm(x), real)
    expected = {key: torch.cat(values).mean().item() for key, values in squares.items()}
    assert {k: v for k, v in readings.items() if "/encoder" in k} == pytest.approx(expected)
    decoder = {re.sub(r"^(\w+)/decoder", r"\1", k) for k in readings if "/decoder" in k}
    assert decoder == {
        "stream.in", "stream.0", "stream.1", "stream.out",
        *(f"branch.{i}.{name}" for i in (0, 1) for name in ("self_attn", "cross_attn", "ffn")),
    }  # fmt: skip


def test_the_input_comes_first_and_the_output_last():
    keys = [k for k in read(transformer(), StreamNorm(1)) if k.startswith("stream/encoder")]
    assert keys == [f"stream/encoder.{place}" for place in ("in", "0", "1", "out")]


def test_a_normalised_stream_has_mean_square_1():
    readings = read(transformer(PostLN), StreamNorm(1))
    streams = [v for k, v in readings.items() if re.match(r"stream/\w+\.(\d|out)", k)]
    assert streams == pytest.approx([1] * 6)


def test_a_stream_of_two_tensors_has_two_readings():
    readings = read(transformer(ResiDual), StreamNorm(1), batches=1)
    model = transformer(ResiDual)
    src, _, _ = batches(1)[0]
    a = s = model.embed(src)
    norms = model.encoder_placement.norms[0]
    for f, norm in zip(model.encoder_blocks[0].sublayers(model.mask_padding(src)), norms):
        branch = f(a)
        a, s = norm(a + branch), s + branch
    second = (s[src != PAD] ** 2).mean().item()
    assert readings["stream/encoder.0.1"] == pytest.approx(1)
    assert readings["stream/encoder.0.2"] == pytest.approx(second)
    assert "stream/encoder.0" not in readings


# Jacobians of normalisers


def gained(norm):
    """With gains and biases away from 1 and 0."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in norm.double().parameters():
            if p.dim():
                p += torch.randn(p.shape, generator=generator)
    return norm


NORMS = [nn.LayerNorm, nn.RMSNorm, partial(DyT, alpha=0.5)]


@pytest.mark.parametrize("make_norm", NORMS, ids=["layer", "rms", "dyt"])
@pytest.mark.parametrize(("d", "iterations"), [(8, 8), (96, 12)])
def test_spectral_norms_are_those_of_the_full_jacobian(make_norm, d, iterations):
    norm = gained(make_norm(d))
    x = torch.randn(9, d, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    jacobians = torch.stack([torch.func.jacrev(norm)(row) for row in x])
    expected = torch.linalg.matrix_norm(jacobians, ord=2)
    found = spectral_norms(norm, x, iterations)
    if iterations == d:
        torch.testing.assert_close(found, expected)
    assert (found <= expected * (1 + 1e-9)).all()
    assert found.mean().item() == pytest.approx(expected.mean().item(), rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unit_gains_give_lemma_3(dtype):
    x = 3 + 2 * torch.randn(7, 512, generator=torch.Generator().manual_seed(1), dtype=dtype)
    expected = 512**0.5 / (x - x.mean(-1, keepdim=True)).norm(dim=-1)
    torch.testing.assert_close(spectral_norms(LN(512).to(dtype), x, 16), expected)


def test_jacobians_of_a_model_are_lemma_3_at_its_real_positions():
    readings = read(transformer(PostLN), NormJacobian(1, 1000, 6))
    model, inputs = transformer(PostLN), []
    norm = model.encoder_placement.norms[1][0]
    handle = norm.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    for src, tgt_in, _ in batches():
        model(src, tgt_in)
        inputs[-1] = inputs[-1][src != PAD]
    handle.remove()
    x = torch.cat(inputs)
    expected = (D**0.5 / (x - x.mean(-1, keepdim=True)).norm(dim=-1)).mean().item()
    assert readings["norm_jacobian/encoder.1.norms.0"] == pytest.approx(expected)
    assert len(readings) == LAYERS * (2 + 3)


def test_so_many_positions_of_each_batch_are_looked_at(monkeypatch):
    seen = []

    def spy(norm, x, iterations):
        seen.append(len(x))
        return spectral_norms(norm, x, iterations)

    monkeypatch.setattr("lnexp.probes.normalisers.spectral_norms", spy)
    read(transformer(), NormJacobian(1, 4, 6), batches=3)
    assert set(seen) == {12}


PLACEMENTS = sorted(p.stem for p in (conf_dir() / "placement").glob("*.yaml"))
NORM_OPTIONS = sorted(p.stem for p in (conf_dir() / "norm").glob("*.yaml"))


def composed(*overrides):
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return validate(compose("config", list(overrides)))


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("norm", NORM_OPTIONS)
def test_every_placement_and_norm_can_be_looked_at(placement, norm):
    sizes = ["model.d_model=8", "model.d_ff=16", "model.n_heads=2", "model.n_layers=2"]
    cfg = composed(f"placement={placement}", f"norm={norm}", *sizes)
    model = build_model(cfg, VOCAB)
    names = {
        (stack, name)
        for stack in ("encoder", "decoder")
        for name in normalisers(getattr(model, f"{stack}_placement"))
    }
    weights = [n for n, _ in model.named_parameters() if re.search(r"_placement.*weight$", n)]
    assert len(names) == len(weights)  # every norm that is shipped has one gain vector
    readings = read(model, StreamNorm(1), NormJacobian(1, 2, 4), batches=1)
    jacobians = {k for k in readings if k.startswith("norm_jacobian/")}
    assert jacobians == {f"norm_jacobian/{stack}.{name}" for stack, name in names}
    assert all(math.isfinite(v) for v in readings.values())


# Attention


def test_uniform_attention_has_the_logarithm_of_the_number_of_keys():
    model = transformer()
    for module in model.modules():
        if hasattr(module, "q"):
            nn.init.zeros_(module.q.weight)
    readings = read(model, AttentionEntropy(1), batches=1)
    # Sources have 5, 3 and 1 real pieces; targets 4, 5 and 5, the i-th of which sees i.
    keys = torch.tensor([5.0] * 5 + [3] * 3 + [1])
    assert readings["attention_entropy/encoder.0.attn"] == pytest.approx(keys.log().mean().item())
    seen = torch.tensor([1.0, 2, 3, 4, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]).log()
    assert readings["attention_entropy/decoder.1.self_attn"] == pytest.approx(seen.mean().item())
    keys = torch.tensor([5.0] * 4 + [3] * 5 + [1] * 5).log()
    cross = readings["attention_entropy/decoder.1.cross_attn"]
    assert cross == pytest.approx(keys.mean().item())
    lowest = readings["attention_entropy/decoder.1.cross_attn.lowest_head"]
    assert lowest == pytest.approx(cross)
    assert len(readings) == 2 * LAYERS * 3


def test_attention_to_one_key_has_entropy_0_and_the_lowest_head_is_told_apart():
    model = transformer()
    q = model.encoder_blocks[0].attn.q
    with torch.no_grad():
        q.weight[: D // HEADS] *= 1e9  # the first head looks at one key, the second at all alike
        q.weight[D // HEADS :] = 0
    readings = read(model, AttentionEntropy(1), batches=1)
    uniform = torch.tensor([5.0] * 5 + [3] * 3 + [1]).log().mean().item()
    key = "attention_entropy/encoder.0.attn"
    assert readings[f"{key}.lowest_head"] == 0
    assert readings[key] == pytest.approx(uniform / 2)


# Updates


def test_update_size_is_the_learning_rate_times_the_gradient_for_sgd():
    model = transformer()
    s = state(model, torch.optim.SGD, lr=0.1)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    grads = {}

    class Spy(Rows):
        def row(self, kind, t, values):
            super().row(kind, t, values)
            if not grads:
                grads.update({n: p.grad.clone() for n, p in model.named_parameters()})

    record = Spy()
    probes = [GradNorm("w1", 1), UpdateSize(r"ffn\.w\d\.weight", 1)]
    update_weights(s, Copying(), batches(), probes, record, plan())
    sizes = {k: v for k, v in record.readings(1).items() if k.startswith("update_size/")}
    assert len(sizes) == 2 * 2 * LAYERS
    for key, size in sizes.items():
        name = key.removeprefix("update_size/")
        assert size == pytest.approx(0.1 * grads[name].norm().item() / before[name].norm().item())


def test_bf16_updates_can_be_looked_at():
    probes = [probe for probe in ALL if not isinstance(probe, Sharpness)]
    readings = read(transformer(dtype=torch.float32), *probes, precision="bf16")
    exact = read(transformer(dtype=torch.float32), *probes)
    assert readings.keys() == exact.keys()
    for key in ("stream/encoder.1", "branch/decoder.0.ffn", "norm_jacobian/decoder.1.norms.2",
                "attention_entropy/encoder.0.attn"):  # fmt: skip
        assert readings[key] == pytest.approx(exact[key], rel=0.05)


# Config

YAMLS = sorted(p.stem for p in (conf_dir() / "probes").glob("*.yaml"))


def test_every_probe_has_a_yaml_and_is_known():
    cfg = composed(f"probes=[{','.join(YAMLS)}]")
    assert sorted(cfg.probes) == YAMLS
    assert all(is_known("probes", spec["_target_"]) for spec in cfg.probes.values())
    made = {name: make(spec) for name, spec in cfg.probes.items()}
    assert {type(probe) for probe in made.values()} == {type(probe) for probe in ALL}


@pytest.mark.parametrize(
    ("make_probe", "message"),
    [(partial(StreamNorm, 0), r"probes\.stream\.every=0 must be at least 1"),
     (partial(AttentionEntropy, 0), r"probes\.attention_entropy\.every=0 must be at least 1"),
     (partial(UpdateSize, "(", 1), r"probes\.update_size\.params='\(' is no regular expression"),
     (partial(NormJacobian, 0, 1, 1), r"probes\.norm_jacobian\.every=0 must be at least 1"),
     (partial(NormJacobian, 1, 0, 1), r"probes\.norm_jacobian\.positions=0 must be at least 1"),
     (partial(NormJacobian, 1, 1, 0), r"probes\.norm_jacobian\.iterations=0 must be at least 1"),
     (partial(Sharpness, "[", 1, 1, 0.1), r"probes\.sharpness\.params='\[' is no regular expr"),
     (partial(Sharpness, ".", 1, 0, 0.1), r"probes\.sharpness\.iterations=0 must be at least 1"),
     (partial(Sharpness, ".", 1, 1, 1.0), r"probes\.sharpness\.tolerance=1\.0 must be in \[0, 1\)")],
)  # fmt: skip
def test_senseless_probes_are_refused(make_probe, message):
    with pytest.raises(InputError, match=message) as caught:
        make_probe()
    assert "\n" not in str(caught.value)


def test_when_a_probe_looks_is_not_for_a_config_to_say():
    with pytest.raises(InputError, match=r"probes\.sharpness\.until is no key"):
        composed("probes=[sharpness]", "+probes.sharpness.until=step")
