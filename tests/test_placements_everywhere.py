"""What must hold of every placement that conf/placement has, whatever its equation."""

import functools
from functools import partial

import pytest
import torch
from hydra import compose, initialize_config_dir
from torch import nn

from lnexp.build import build, build_model, make
from lnexp.config import conf_dir
from lnexp.evaluation.trust import is_known
from lnexp.model.attention import Attention, FeedForward
from lnexp.model.init import initialise, profile
from lnexp.model.placement import PostLN, StackShape
from lnexp.model.placement_residual import DeepNorm, ReZero
from lnexp.model.transformer import ModelShape, Transformer
from lnexp.validate import validate

PLACEMENTS = sorted(p.stem for p in (conf_dir() / "placement").glob("*.yaml"))
NORMS = sorted(p.stem for p in (conf_dir() / "norm").glob("*.yaml"))
SIZES = ["model.d_model=16", "model.d_ff=32", "model.n_heads=4", "model.n_layers=3"]
SRC = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
TGT = torch.tensor([[2, 9, 10, 11], [2, 12, 13, 14]])
V = 20


@functools.cache  # composing takes longer than all that is done with it
def composed(placement, norm="layer"):
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return validate(compose("config", [f"placement={placement}", f"norm={norm}", *SIZES]))


def factory(cfg):
    """The placement of a config, for a stack."""

    def norm(width):
        return make(cfg.norm, normalized_shape=width)

    return lambda stack: make(cfg.placement, shape=stack, norm=norm)


def loss_of(model, src=SRC, tgt=TGT):
    return model.logits(model(src, tgt)).logsumexp(-1).sum()


@pytest.fixture(params=PLACEMENTS)
def model(request):
    """A float64 model without dropout, profiled where it needs that."""
    cfg = composed(request.param)
    torch.manual_seed(1)
    shape = ModelShape(16, 32, 4, 3, 0.0, 0.0, 0.0)
    model = Transformer(shape, V, 0, factory(cfg)).double()
    profile(model, lambda: model(SRC, TGT))
    return model.train()


@pytest.fixture
def shaken(model):
    """The same with gains, biases and scales away from 0 and 1, so that they matter."""
    for p in model.parameters():
        if p.dim() < 2:
            nn.init.normal_(p, mean=0.5, std=0.5)
    return model


def test_there_are_all_that_were_promised():
    assert set(PLACEMENTS) >= {
        "post_ln", "pre_ln", "deep_norm", "admin", "b2t", "resi_dual", "sandwich", "peri_ln",
        "reordered", "lns", "mix_ln", "rezero", "t_fixup",
    }  # fmt: skip
    assert set(NORMS) >= {"layer", "rms", "dyt"}


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_it_composes_with_every_norm_and_trains(placement, norm):
    cfg = composed(placement, norm)
    assert is_known("placement", cfg.placement["_target_"])
    assert is_known("norm", cfg.norm["_target_"])
    model = build_model(cfg, V)
    profile(model, lambda: model(SRC, TGT))
    model.train()
    before = {name: p.clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for t in range(3):
        torch.manual_seed(t)
        logits = model.logits(model(SRC, TGT))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), TGT.flatten())
        assert loss.isfinite()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, p in model.named_parameters():
        assert p.isfinite().all(), name
        assert name.endswith(".k.bias") or not torch.equal(p, before[name]), name


def test_a_gradient_reaches_every_parameter(model):
    loss_of(model).backward()
    if isinstance(model.encoder_placement, ReZero):
        # While its scale is 0 a branch gets no gradient, and the encoder reaches the loss through
        # branches of the decoder alone: one step opens the decoder, a second one the encoder.
        for _ in range(2):
            closed = [p for n, p in model.named_parameters() if "encoder" in n]
            assert not any(p.grad.any() for p in closed if p.dim())
            torch.optim.SGD(model.parameters(), lr=0.1).step()
            model.zero_grad()
            loss_of(model).backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        # Adding one number to all scores of a softmax changes nothing, so key biases get none.
        assert p.grad.abs().max() > 1e-12 or name.endswith(".k.bias"), name


def test_padding_does_not_change_real_positions(shaken):
    alone = shaken(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]]))
    src = torch.tensor([[5, 6, 3, 0, 0], [9, 9, 9, 9, 3]])
    tgt = torch.tensor([[2, 7, 0, 0], [2, 8, 8, 8]])
    torch.testing.assert_close(shaken(src, tgt)[:1, :2], alone)


def test_future_targets_do_not_leak(shaken):
    a = shaken(SRC, TGT)
    b = shaken(SRC, torch.tensor([[2, 9, 4, 4], [2, 12, 4, 4]]))
    torch.testing.assert_close(a[:, :2], b[:, :2])
    assert not torch.allclose(a[:, 2:], b[:, 2:])


def test_cached_steps_equal_one_pass(shaken):
    shaken.eval()
    expected = shaken.logits(shaken(SRC, TGT)).log_softmax(-1).float()
    state = shaken.start(SRC)
    steps = torch.cat([shaken.step(TGT[:, t : t + 1], state) for t in range(4)], dim=1)
    torch.testing.assert_close(steps, expected, rtol=1e-5, atol=1e-5)


def test_the_same_seed_draws_the_same_weights_up_to_their_gain():
    states = []
    for name in PLACEMENTS:
        model = build_model(composed(name), V)
        states.append({n: p for n, p in model.named_parameters() if "placement" not in n})
    for state in states[1:]:
        for name, p in state.items():
            a, b = p.flatten(), states[0][name].flatten()
            if b.any():
                ratio = a.norm() / b.norm()
                torch.testing.assert_close(a, ratio * b)
            else:
                assert not a.any(), name


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_it_serves_a_stack_alone(placement):
    cfg = composed(placement)
    make_placement = factory(cfg)
    stack = make_placement(StackShape(16, 3, 2))
    blocks = nn.ModuleList(
        nn.ModuleList([Attention(16, 4, 0.0), FeedForward(16, 32, 0.0)]) for _ in range(3)
    )
    initialise(blocks, stack)
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    taps = []
    for tap in stack.layer_out:
        tap.register_forward_hook(lambda _, inputs, output: taps.append(output))
    y = stack(x, ((partial(attn, bias=None), ffn) for attn, ffn in blocks))
    assert y.shape == x.shape
    assert y.isfinite().all()
    assert len(taps) == 3
    # No position is lost or mixed up by the placement: permuting them permutes the output.
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = stack(x[:, order], ((partial(attn, bias=None), ffn) for attn, ffn in blocks))
    torch.testing.assert_close(shuffled, y[:, order], rtol=1e-4, atol=1e-5)


def test_a_run_with_admin_starts_from_a_profile_of_its_first_batch(tiny):
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        cfg = validate(compose("config", [*tiny, "placement=admin"]))
    parts = build(cfg, lambda _: None)
    model, task = parts.state.model, parts.task
    other = build_model(cfg, task.tokenised.tokenizer.vocab_size)
    profile(other, lambda: task.loss(other, next(task.batches(start=0))))
    for name, p in model.named_parameters():
        assert torch.equal(p, other.get_parameter(name)), name
    assert model.decoder_placement.residual_scales[0][2].min() > 1


def losses_of_copying(placement, n_layers, updates):
    """Cross-entropy (nats) of naming one's own symbol of 8, at each update."""
    torch.manual_seed(0)
    d, n_symbols, length = 16, 8, 6
    embedding, positions = nn.Embedding(n_symbols, d), nn.Parameter(torch.randn(length, d))
    blocks = nn.ModuleList(
        nn.ModuleList([Attention(d, 2, 0.0), FeedForward(d, 2 * d, 0.0)]) for _ in range(n_layers)
    )
    stack = placement(StackShape(d, n_layers, 2), partial(nn.LayerNorm, eps=1e-5))
    initialise(blocks, stack)
    head = nn.Linear(d, n_symbols)
    parts = nn.ModuleList([embedding, blocks, stack, head])
    optimizer = torch.optim.Adam([positions, *parts.parameters()], lr=5e-3, betas=(0.9, 0.98))
    losses = []
    for _ in range(updates):
        ids = torch.randint(n_symbols, (8, length))
        branches = ((partial(attn, bias=None), ffn) for attn, ffn in blocks)
        scores = head(stack(embedding(ids) + positions, branches))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_at_100_layers_deep_norm_trains_where_post_ln_does_not():
    # ln 8 = 2.08 is a guess. Seeds 0 to 5 gave, at updates 13 and 16, at most 1.43 and 1.36 with
    # DeepNorm, and with Post-LN at least 2.06 (up to update 60 as well, at 1e-3 and 3e-3, too).
    deep, post = (min(losses_of_copying(p, 100, 14)[-2:]) for p in (DeepNorm, PostLN))
    assert deep < 1.75
    assert post > 1.95
