"""Every other placement against its equation, written out by hand; what each draws and refuses."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from lnexp.errors import InputError
from lnexp.model.attention import Attention, FeedForward
from lnexp.model.init import profile
from lnexp.model.norm import DyT
from lnexp.model.placement import LNS, MixLN, PostLN, PreLN, Reordered, Sandwich, StackShape
from lnexp.model.placement_residual import B2T, Admin, DeepNorm, ResiDual, ReZero, TFixup
from lnexp.model.transformer import ModelShape, Transformer

D = 8
LN = partial(nn.LayerNorm, eps=1e-5)
ENCODER, DECODER = StackShape(D, 2, 2, peer_layers=2), StackShape(D, 2, 3, peer_layers=2)
ALONE = StackShape(D, 2, 2)
STACKS = pytest.mark.parametrize("stack", [ENCODER, DECODER, ALONE], ids=["enc", "dec", "alone"])


def ln(x):
    """LayerNorm with gain 1 and bias 0: population variance, eps inside the root."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


def halve(x):
    return x / 2


def turn(x):
    return 0.7 * x.roll(1, -1) + 0.1


BRANCHES = [[halve, torch.sin, turn], [turn, halve, torch.cos]]
"""Of two layers; a stack with two sublayers uses the first two of each."""


@pytest.fixture
def x():
    return torch.randn(2, 3, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def through(placement, x):
    n = len(placement.norms_of(0)) or 2
    return placement.double()(x, [layer[:n] for layer in BRANCHES])


def fold(x, stack, step):
    """``x <- step(x, f, l)`` for every branch ``f`` of each layer ``l`` from 1."""
    for layer, branches in enumerate(BRANCHES, 1):
        for f in branches[: stack.n_sublayers]:
            x = step(x, f, layer)
    return x


@STACKS
def test_deep_norm_scales_the_shortcut(x, stack):
    scale = {
        ENCODER: 0.81 * (2**4 * 2) ** (1 / 16),
        DECODER: (3 * 2) ** (1 / 4),
        ALONE: (2 * 2) ** (1 / 4),
    }[stack]
    expected = fold(x, stack, lambda x, f, _: ln(scale * x + f(x)))
    torch.testing.assert_close(through(DeepNorm(stack, LN), x), expected)
    expected = fold(x, stack, lambda x, f, _: ln(3 * x + f(x)))
    torch.testing.assert_close(through(DeepNorm(stack, LN, residual_scale=3), x), expected)


@pytest.mark.parametrize(
    ("stack", "scale", "gain"),
    [
        (StackShape(D, 6, 2, 6), 1.418, 0.497),
        (StackShape(D, 6, 3, 6), 2.060, 0.343),
        (StackShape(D, 12, 2, 12), 1.761, 0.400),
        (StackShape(D, 12, 3, 12), 2.449, 0.289),
        (StackShape(D, 18, 2, 18), 1.999, 0.353),
        (StackShape(D, 18, 3, 18), 2.711, 0.261),
        (StackShape(D, 12, 2), 2.213, 0.319),
        (StackShape(D, 24, 2), 2.632, 0.269),
    ],
)
def test_deep_norm_has_the_numbers_of_its_paper(stack, scale, gain):
    placement = DeepNorm(stack, LN)
    assert placement.residual_scale == pytest.approx(scale, abs=6e-4)
    assert placement.gain("w1") == pytest.approx(gain, abs=6e-4)


@STACKS
def test_admin_scales_the_shortcut_by_a_vector(x, stack):
    placement = Admin(stack, LN, init="profile")
    omegas = [w for layer in placement.residual_scales for w in layer]
    for omega in omegas:
        nn.init.uniform_(omega, 0.5, 2)
    omega = iter([w.detach().double() for w in omegas])
    expected = fold(x, stack, lambda x, f, _: ln(next(omega) * x + f(x)))
    torch.testing.assert_close(through(placement, x), expected)


@STACKS
def test_admin_profiles_from_the_variances_of_one_pass(x, stack):
    placement = Admin(stack, LN, init="profile")
    with placement.profiling():
        through(placement, x)
    h, squared, expected = x, 1.0, []
    for branches in BRANCHES:
        for f in branches[: stack.n_sublayers]:
            omega = squared**0.5
            expected.append(omega)
            shortcut, branch = omega * h, f(h)
            squared = shortcut.numpy().var() + branch.numpy().var()  # over all numbers
            h = ln(shortcut + branch)
    found = [w for layer in placement.residual_scales for w in layer]
    assert [w.mean().item() for w in found] == pytest.approx(expected)
    assert all(w.std() == 0 and w.requires_grad for w in found)
    # Outside, a pass changes nothing.
    before = [w.clone() for w in found]
    through(placement, 3 * x)
    assert all(torch.equal(a, b) for a, b in zip(before, found))


def test_admin_profiles_each_stack_of_a_model_without_dropout():
    def model():
        torch.manual_seed(0)
        shape = ModelShape(16, 32, 2, 3, 0.5, 0.5, 0.5)
        return Transformer(shape, 20, 0, lambda s: Admin(s, LN, init="profile"))

    src, tgt = torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7]])
    first, again, untouched = model(), model(), model()
    for m in (first, again):
        profile(m, lambda m=m: m(src, tgt))
    for a, b, c in zip(first.state_dict().items(), again.state_dict().values(),
                       untouched.state_dict().values(), strict=True):  # fmt: skip
        name, found = a
        assert torch.equal(found, b), name
        if "residual_scales" not in name:
            assert torch.equal(found, c), name
    for stack in (first.encoder_placement, first.decoder_placement):
        omegas = [w.mean().item() for layer in stack.residual_scales for w in layer]
        # After a norm the variance is 1, so each omega is larger than the one before it.
        assert omegas[0] == 1
        assert omegas[1:] == sorted(set(omegas[1:]))


@pytest.mark.parametrize(
    ("stack", "omega"),
    [
        (StackShape(D, 6, 2, 6), 2.017),
        (StackShape(D, 6, 3, 6), 2.335),
        (StackShape(D, 12, 2), 2.601),
        (StackShape(D, 12, 3, 12), 3.041),
    ],
)
def test_admin_closed_form_counts_the_branches_of_its_own_stack(stack, omega):
    placement = Admin(stack, LN, init="closed_form")
    assert not placement.needs_profile
    for layer in placement.residual_scales:
        for w in layer:
            assert w.tolist() == pytest.approx([omega] * D, abs=6e-4)


def test_b2t_adds_the_input_of_an_encoder_layer_to_its_last_norm(x):
    h = x
    for f, g, _ in BRANCHES:
        a = ln(h + f(h))
        h = ln(h + a + g(a))
    for stack in (ENCODER, ALONE):
        torch.testing.assert_close(through(B2T(stack, LN), x), h)


def test_b2t_adds_the_input_of_a_decoder_layer_to_its_last_norm_alone(x):
    h = x
    for f, g, k in BRANCHES:
        a = ln(h + f(h))
        b = ln(a + g(a))
        h = ln(h + b + k(b))
    torch.testing.assert_close(through(B2T(DECODER, LN), x), h)


@STACKS
def test_resi_dual_sums_its_branches_in_a_second_stream(x, stack):
    a, total = x, x
    for branches in BRANCHES:
        for f in branches[: stack.n_sublayers]:
            total = total + f(a)
            a = ln(a + f(a))
    torch.testing.assert_close(through(ResiDual(stack, LN), x), a + ln(total))


@STACKS
def test_sandwich_normalises_both_ends_of_a_branch(x, stack):
    expected = ln(fold(x, stack, lambda x, f, _: x + ln(f(ln(x)))))
    torch.testing.assert_close(through(Sandwich(stack, LN, embedding_norm=False), x), expected)


@STACKS
def test_peri_ln_is_sandwich_on_a_normalised_embedding(x, stack):
    expected = ln(fold(ln(x), stack, lambda x, f, _: x + ln(f(ln(x)))))
    torch.testing.assert_close(through(Sandwich(stack, LN, embedding_norm=True), x), expected)


@STACKS
def test_reordered_normalises_the_output_of_a_branch(x, stack):
    expected = ln(fold(x, stack, lambda x, f, _: x + ln(f(x))))
    torch.testing.assert_close(through(Reordered(stack, LN), x), expected)


@STACKS
def test_lns_divides_by_the_root_of_the_layer_counted_from_1(x, stack):
    expected = ln(fold(x, stack, lambda x, f, layer: x + f(ln(x) / math.sqrt(layer))))
    torch.testing.assert_close(through(LNS(stack, LN), x), expected)


@STACKS
def test_mix_ln_is_post_ln_first_and_then_pre_ln(x, stack):
    def step(x, f, layer):
        return ln(x + f(x)) if layer == 1 else x + f(ln(x))

    expected = ln(fold(x, stack, step))
    torch.testing.assert_close(through(MixLN(stack, LN, post_fraction=0.5), x), expected)
    none, every = (through(MixLN(stack, LN, post_fraction=p), x) for p in (0, 1))
    torch.testing.assert_close(none, through(PreLN(stack, LN), x))
    torch.testing.assert_close(every, ln(through(PostLN(stack, LN), x)))


@pytest.mark.parametrize(
    ("layers", "fraction", "n_post"),
    [(12, 0.25, 3), (24, 0.25, 6), (6, 0.25, 1), (3, 0.25, 0), (100, 0.29, 29), (6, 1.0, 6)],
)
def test_mix_ln_rounds_the_number_of_post_ln_layers_down(layers, fraction, n_post):
    assert MixLN(StackShape(D, layers, 2), LN, post_fraction=fraction).n_post == n_post


@STACKS
def test_rezero_scales_the_branches_of_a_layer_by_one_number(x, stack):
    placement = ReZero(stack, LN).double()
    branches = [layer[: stack.n_sublayers] for layer in BRANCHES]
    assert torch.equal(placement(x, branches), x)  # every layer is the identity at first
    numbers = [0.3, -1.7]
    for a, number in zip(placement.branch_scale, numbers):
        nn.init.constant_(a, number)
    expected = fold(x, stack, lambda x, f, layer: x + numbers[layer - 1] * f(x))
    torch.testing.assert_close(placement(x, branches), expected)
    assert [tuple(p.shape) for p in placement.parameters()] == [(), ()]


@STACKS
def test_t_fixup_adds_and_does_nothing_else(x, stack):
    placement = TFixup(stack, LN)
    branches = [layer[: stack.n_sublayers] for layer in BRANCHES]
    torch.testing.assert_close(placement(x, branches), fold(x, stack, lambda x, f, _: x + f(x)))
    assert not list(placement.parameters())


def test_rms_norm_and_dyt_by_hand(x):
    rms, dyt = nn.RMSNorm(D, eps=1e-5).double(), DyT(D, alpha=0.5).double()
    torch.testing.assert_close(rms(x), x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt())
    torch.testing.assert_close(dyt(x), torch.tanh(0.5 * x))
    for p in (*rms.parameters(), *dyt.parameters()):
        nn.init.uniform_(p, 0.5, 2)
    e = torch.exp(2 * dyt.alpha * x)
    torch.testing.assert_close(dyt(x), dyt.weight * (e - 1) / (e + 1) + dyt.bias)
    root_mean_square = (x**2).mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(rms(x), rms.weight * x / root_mean_square, rtol=1e-4, atol=1e-4)


def test_the_norm_is_the_one_that_was_asked_for(x):
    y = through(PreLN(ALONE, partial(DyT, alpha=0.5)), x)
    torch.testing.assert_close(
        y, torch.tanh(0.5 * fold(x, ALONE, lambda x, f, _: x + f(torch.tanh(0.5 * x))))
    )


IWSLT_POST_LN, NORMS, ONE_NORM = 36_663_296, 30, 1024


@pytest.mark.parametrize(
    ("placement", "more"),
    [
        (DeepNorm, 0),
        (partial(Admin, init="profile"), NORMS * 512),
        (B2T, 0),
        (ResiDual, 2 * ONE_NORM),
        (partial(Sandwich, embedding_norm=False), (NORMS + 2) * ONE_NORM),
        (partial(Sandwich, embedding_norm=True), (NORMS + 4) * ONE_NORM),
        (Reordered, 2 * ONE_NORM),
        (LNS, 2 * ONE_NORM),
        (partial(MixLN, post_fraction=0.25), 2 * ONE_NORM),
        (ReZero, 12 - NORMS * ONE_NORM),
        (TFixup, -NORMS * ONE_NORM),
    ],
)
def test_parameters_of_the_iwslt_model(placement, more):
    assert parameters(placement, LN) == IWSLT_POST_LN + more


@pytest.mark.parametrize(("norm", "size"), [(nn.RMSNorm, 512), (partial(DyT, alpha=0.5), 1025)])
def test_parameters_of_the_iwslt_model_with_other_norms(norm, size):
    assert parameters(PreLN, norm) == IWSLT_POST_LN - NORMS * ONE_NORM + (NORMS + 2) * size


def parameters(placement, norm):
    sizes = ModelShape(512, 1024, 4, 6, 0.1, 0.0, 0.0)
    with torch.device("meta"):
        model = Transformer(sizes, 10_000, 0, lambda stack: placement(stack, norm))
    return sum(p.numel() for p in model.parameters())


USUAL = {"q": 2**-0.5, "k": 2**-0.5, "v": 2**-0.5, "out": 1, "w1": 1, "w2": 1}
REPLACED = USUAL | dict.fromkeys(("v", "out", "w1", "w2"), 0.3)


def deep(gain):
    return {"q": 1, "k": 1} | dict.fromkeys(("v", "out", "w1", "w2"), gain)


def fixup(gain):
    return USUAL | dict.fromkeys(("v", "out", "w1", "w2"), gain)


@pytest.mark.parametrize(
    ("placement", "encoder", "decoder", "embedding"),
    [
        (partial(Admin, init="closed_form"), USUAL, USUAL, 1),
        (partial(PostLN, branch_gain=0.3), REPLACED, REPLACED, 1),
        (partial(Sandwich, embedding_norm=True, branch_gain=0.3), REPLACED, REPLACED, 1),
        (DeepNorm, deep(0.87 * (2**4 * 2) ** (-1 / 16)), deep((12 * 2) ** (-1 / 4)), 1),
        (partial(DeepNorm, branch_gain=0.3), deep(0.3), deep(0.3), 1),
        (B2T, *[{m: g / math.sqrt(2) for m, g in USUAL.items()}] * 2, 1),
        (TFixup, fixup(0.67 * 2 ** (-1 / 4)), fixup((9 * 2) ** (-1 / 4)), (9 * 2) ** (-1 / 4)),
        (partial(TFixup, branch_gain=0.3), REPLACED, REPLACED, (9 * 2) ** (-1 / 4)),
    ],
)
def test_initial_weights_have_the_spread_of_their_rule(placement, encoder, decoder, embedding):
    torch.manual_seed(0)
    d = 192
    model = Transformer(
        ModelShape(d, 2 * d, 4, 2, 0.0, 0.0, 0.0), 500, 0, lambda s: placement(s, LN)
    )
    for blocks, gains in ((model.encoder_blocks, encoder), (model.decoder_blocks, decoder)):
        for module in blocks.modules():
            if isinstance(module, (Attention, FeedForward)):
                for name, linear in module.named_children():
                    if isinstance(linear, nn.Linear):
                        n_out, n_in = linear.weight.shape
                        std = gains[name] * (2 / (n_in + n_out)) ** 0.5  # Glorot and Bengio (2010)
                        assert linear.weight.std().item() == pytest.approx(std, rel=0.02), name
                        assert not linear.bias.any()
    assert model.embedding.weight[1:].std().item() == pytest.approx(embedding * d**-0.5, rel=0.02)


def test_t_fixup_has_the_numbers_of_its_paper():
    for n, encoder, decoder in ((6, 0.428, 0.369), (12, 0.360, 0.310), (18, 0.325, 0.280)):
        assert TFixup(StackShape(D, n, 2, n), LN).gain("v") == pytest.approx(encoder, abs=6e-4)
        assert TFixup(StackShape(D, n, 3, n), LN).gain("v") == pytest.approx(decoder, abs=6e-4)
        assert TFixup(StackShape(D, n, 2), LN).gain("v") == pytest.approx(encoder, abs=6e-4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(MixLN, post_fraction=1.5), r"placement\.post_fraction=1\.5 must be in \[0, 1\]"),
        (partial(MixLN, post_fraction=-0.1), r"placement\.post_fraction=-0\.1 must be in"),
        (partial(PreLN, branch_gain=0.0), r"placement\.branch_gain=0\.0 must be above 0; null"),
        (partial(TFixup, branch_gain=-1.0), r"placement\.branch_gain=-1\.0 must be above 0"),
        (partial(DeepNorm, residual_scale=0), r"placement\.residual_scale=0 must be above 0; null"),
        (partial(Admin, init="ones"), r"placement\.init=ones must be profile or closed_form"),
    ],
)
def test_arguments_that_break_a_rule_are_refused(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make(ALONE, LN)
    assert "\n" not in str(caught.value)


def test_dyt_refuses_an_alpha_that_would_flip_or_erase_its_input():
    with pytest.raises(InputError, match=r"norm\.alpha=0 must be above 0"):
        DyT(D, alpha=0)
