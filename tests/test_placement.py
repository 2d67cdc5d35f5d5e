"""The paper's two placements against its equations and torch's own layers, in float64."""

from functools import partial

import pytest
import torch
from torch import nn

from lnexp.model.attention import Attention, FeedForward
from lnexp.model.placement import PostLN, PreLN, StackShape
from lnexp.model.transformer import ModelShape, Transformer, sinusoids

D = 8
LN = partial(nn.LayerNorm, eps=1e-5)


def halve(x):
    return x / 2


def negate(x):
    return -x


def ln(x):
    """The paper's LN with gain 1 and bias 0: population variance, eps inside the root."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.fixture
def x():
    return torch.randn(2, 3, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_post_ln_matches_table_1(x):
    y = PostLN(StackShape(D, 2, 2), LN).double()(x, [(halve, negate), (negate, halve)])
    h = ln(x + x / 2)
    h = ln(h - h)
    h = ln(h - h)
    torch.testing.assert_close(y, ln(h + h / 2))
    y = PostLN(StackShape(D, 1, 2), LN).double()(x, [(halve, torch.sin)])
    h = ln(x + x / 2)
    torch.testing.assert_close(y, ln(h + h.sin()))


def test_pre_ln_matches_table_1(x):
    y = PreLN(StackShape(D, 1, 2), LN).double()(x, [(halve, torch.sin)])
    h = x + ln(x) / 2
    torch.testing.assert_close(y, ln(h + ln(h).sin()))


def shape(n_layers=2, d_model=16, dropout=0.0):
    return ModelShape(d_model, 2 * d_model, 4, n_layers, dropout, 0.0, 0.0)


def transformer(placement, **sizes):
    torch.manual_seed(1)
    model = Transformer(shape(**sizes), 20, 0, lambda stack: placement(stack, LN)).double()
    for p in model.parameters():  # gains and biases away from 1 and 0, so that they matter
        if p.dim() == 1:
            nn.init.normal_(p, mean=0.5, std=0.5)
    return model


def copy_attention(theirs, ours: Attention):
    theirs.in_proj_weight.data = torch.cat([ours.q.weight, ours.k.weight, ours.v.weight]).detach()
    theirs.in_proj_bias.data = torch.cat([ours.q.bias, ours.k.bias, ours.v.bias]).detach()
    theirs.out_proj.load_state_dict(ours.out.state_dict())


def copy_rest(theirs, ffn: FeedForward, norms):
    theirs.linear1.load_state_dict(ffn.w1.state_dict())
    theirs.linear2.load_state_dict(ffn.w2.state_dict())
    for i, norm in enumerate(norms, 1):
        getattr(theirs, f"norm{i}").load_state_dict(norm.state_dict())


@pytest.mark.parametrize("placement", [PostLN, PreLN])
def test_transformer_equals_torch_layers(placement):
    ours = transformer(placement)
    pre = placement is PreLN
    sizes = dict(d_model=16, nhead=4, dim_feedforward=32, dropout=0.0, batch_first=True,
                 norm_first=pre, dtype=torch.float64)  # fmt: skip
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
    tgt = torch.tensor([[2, 9, 10], [2, 11, 12]])
    padding = src == 0

    memory = ours.embed(src)
    for i, block in enumerate(ours.encoder_blocks):
        layer = nn.TransformerEncoderLayer(**sizes)
        copy_attention(layer.self_attn, block.attn)
        copy_rest(layer, block.ffn, ours.encoder_placement.norms_of(i))
        memory = layer(memory, src_key_padding_mask=padding)
    y = ours.embed(tgt)
    if pre:
        memory = ours.encoder_placement.final_norm(memory)
    causal = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
    for i, block in enumerate(ours.decoder_blocks):
        layer = nn.TransformerDecoderLayer(**sizes)
        copy_attention(layer.self_attn, block.self_attn)
        copy_attention(layer.multihead_attn, block.cross_attn)
        copy_rest(layer, block.ffn, ours.decoder_placement.norms_of(i))
        mask = torch.zeros(padding.shape, dtype=torch.float64).masked_fill(padding, -torch.inf)
        y = layer(y, memory, tgt_mask=causal, memory_key_padding_mask=mask)
    if pre:
        y = ours.decoder_placement.final_norm(y)
    torch.testing.assert_close(ours(src, tgt), y)


@pytest.mark.parametrize(("placement", "more"), [(PostLN, 0), (PreLN, 2048)])
def test_parameter_count_of_the_iwslt_model(placement, more):
    sizes = ModelShape(512, 1024, 4, 6, 0.1, 0.0, 0.0)
    with torch.device("meta"):
        model = Transformer(sizes, 10_000, 0, lambda stack: placement(stack, LN))
    assert sum(p.numel() for p in model.parameters()) == 36_663_296 + more


def test_reordered_caches_follow_their_hypotheses():
    model = transformer(PreLN).eval()
    src = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0], [4, 4, 3, 0]])
    state = model.start(src)
    model.step(torch.tensor([[2], [2], [2]]), state)
    state.reorder(torch.tensor([0, 2]), torch.tensor([[0, 0], [0, 0]]))  # sentence 1 is finished
    model.step(torch.tensor([[9, 10], [11, 12]]), state)
    state.reorder(torch.tensor([0, 1]), torch.tensor([[1, 0], [1, 1]]))
    got = model.step(torch.tensor([[13, 14], [15, 16]]), state)
    prefixes = [[2, 10, 13], [2, 9, 14], [2, 12, 15], [2, 12, 16]]
    whole = model(src[[0, 0, 2, 2]], torch.tensor(prefixes))[:, -1]
    expected = model.logits(whole).log_softmax(-1).float().view(2, 2, -1)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_sinusoids_by_hand():
    table = sinusoids(3, 4)
    expected = [[torch.tensor(f).item() for f in (0.0, 1.0, 0.0, 1.0)]]
    for p in (1.0, 2.0):
        t = torch.tensor([p, p / 100])  # 10000^(2/4) = 100
        expected.append([t[0].sin(), t[0].cos(), t[1].sin(), t[1].cos()])
    torch.testing.assert_close(table, torch.tensor(expected))


def test_long_sequences_get_positions_beyond_the_first_table():
    model = transformer(PostLN, n_layers=1)
    ids = torch.full((1, 700), 5)
    assert model.embed(ids).shape == (1, 700, 16)


def test_initial_weights_are_those_of_the_authors_toolkit():
    torch.manual_seed(0)
    d = 256
    model = Transformer(ModelShape(d, 2 * d, 4, 2, 0.0, 0.0, 0.0), 1000, 0, lambda s: PostLN(s, LN))
    block = model.decoder_blocks[0]
    bounds = {
        block.self_attn.q: (6 / (2 * d)) ** 0.5 * 2**-0.5,
        block.cross_attn.v: (6 / (2 * d)) ** 0.5 * 2**-0.5,
        block.self_attn.out: (6 / (2 * d)) ** 0.5,
        block.ffn.w1: (6 / (3 * d)) ** 0.5,
        block.ffn.w2: (6 / (3 * d)) ** 0.5,
    }
    for linear, bound in bounds.items():
        assert linear.weight.abs().max() <= bound
        # The standard deviation of U(-b, b) is b / sqrt(3); with 65,536 draws it is sharp.
        assert linear.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.01)
        assert not linear.bias.any()
    assert model.embedding.weight[1:].std().item() == pytest.approx(d**-0.5, rel=0.01)
    assert not model.embedding.weight[0].any()


def test_placements_start_from_the_same_weights():
    states = []
    for placement in (PostLN, PreLN):
        torch.manual_seed(3)
        states.append(Transformer(shape(), 20, 0, lambda s, p=placement: p(s, LN)).state_dict())
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
