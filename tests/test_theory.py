import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

import lnexp
from lnexp.model.placement import PostLN, PreLN
from lnexp.theory import concentration, departures, lemmas, statements, study, tables, theorem
from lnexp.theory.figures import draw_panels, draw_scalings
from lnexp.theory.findings import THEOREM, Results, series, single
from lnexp.theory.intervals import (
    CONTRADICTED,
    INCONCLUSIVE,
    SUPPORTED,
    Interval,
    Prediction,
    exactly,
    exponent,
    jointly,
    slope,
    t_interval,
    t_quantile,
)
from lnexp.theory.lab import MEASURING, QUICK, Journal, Lab
from lnexp.theory.observe import ALL, LAST, NONE, Observation, observe, spectral_ratio
from lnexp.theory.setting import VOCABULARY, Assumptions, Network, Size, Text


def post_ln(shape):
    return PostLN(shape, lambda width: nn.LayerNorm(width, eps=0.0))


def pre_ln(shape):
    return PreLN(shape, lambda width: nn.LayerNorm(width, eps=0.0))


TEXT = Text([[3, 4, 5, 6, 7, 8, 9, 3], [5, 6, 7, 3, 4, 5, 9, 9]], 12)


class Stub:
    """Stands for the real model by the theorem's with causal attention."""

    d = 16
    text = TEXT

    def key(self):
        return {}

    def observe(self, placement, n_layers, seed, layers):
        factory = {"post_ln": post_ln, "pre_ln": pre_ln}[placement]
        size, causal = Size(16, n_layers, 8), Assumptions(causal=True)
        return [observe(factory, size, seed + k, assumptions=causal, layers=layers) for k in (0, 9)]


def tiny_lab(path=None, seeds=(1, 2), **sizes):
    given = {
        "d": 16, "depths": (2, 4), "widths": (16, 32), "width_depth": 2, "norms_depth": 3,
        "single_depth": 2, "bounded_d": 16, "bounded_depths": (2,), "sequences": 2,
        "factor_depth": 4, "placement_depths": (2, 4), "switch_d": 16, "switch_depths": (2, 4),
        "samples": 500, **sizes,
    }  # fmt: skip
    placements = {"post_ln": post_ln, "pre_ln": pre_ln}
    small = dataclasses.replace(QUICK, **given)
    return Lab(small, seeds, placements, Journal(path), Stub, lambda _: None)


# Intervals and verdicts


@pytest.mark.parametrize(
    ("freedom", "level", "t"),
    [(1, 0.95, 12.7062), (2, 0.95, 4.3027), (9, 0.95, 2.2622), (9, 0.99, 3.2498),
     (30, 0.95, 2.0423), (4, 0.5, 0.7407)],
)  # fmt: skip
def test_t_quantiles_are_those_of_the_printed_table(freedom, level, t):
    assert t_quantile(freedom, level) == pytest.approx(t, abs=5e-5)


@given(st.integers(1, 200), st.floats(0.01, 0.9999))
def test_t_quantiles_are_those_of_scipy(freedom, level):
    assert t_quantile(freedom, level) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom))


def test_an_interval_by_hand():
    # Mean 2, standard deviation 1, t = 4.3027 at two degrees of freedom.
    found = t_interval([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.high - 2 == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert 2 - found.low == pytest.approx(found.high - 2)


def test_joint_intervals_are_wider_as_bonferroni_has_it():
    found = t_interval([1.0, 2.0, 3.0, 5.0], parts=10)
    half = stats.t.ppf(1 - 0.05 / 20, 3) * stats.sem([1, 2, 3, 5])
    assert found.high - found.mean == pytest.approx(half)


def test_one_seed_has_no_interval():
    assert t_interval([1.0]).high == math.inf


def test_the_slope_is_that_of_a_regression():
    xs, ys = [1.0, 2.0, 4.0, 7.0], [3.0, 1.0, 4.0, 1.5]
    assert slope(xs, ys) == pytest.approx(stats.linregress(xs, ys).slope)


@given(st.floats(-3, 3), st.floats(0.01, 100))
def test_the_exponent_of_an_exact_power_law_is_recovered(power, factor):
    xs = [6, 8, 12, 48]
    assert exponent(xs, [factor * x**power for x in xs]) == pytest.approx(power, abs=1e-9)


def test_a_gradient_of_zero_has_no_exponent():
    assert math.isnan(exponent([1, 2], [0.0, 1.0]))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-0.56, -0.46, SUPPORTED), (-0.64, -0.56, CONTRADICTED), (-0.62, -0.54, INCONCLUSIVE),
     (-0.59, -0.50, SUPPORTED), (-0.9, -0.2, INCONCLUSIVE), (-0.44, -0.40, CONTRADICTED)],
)  # fmt: skip
def test_a_verdict_can_come_out_each_way(low, high, verdict):
    claim = exactly(-0.5, resolution=0.06, margin=0.05)
    assert claim.verdict(Interval((low + high) / 2, low, high, 10)) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(-2.0, -1.9, SUPPORTED), (0.8, 1.1, SUPPORTED), (0.95, 1.1, INCONCLUSIVE),
     (1.1, 1.2, CONTRADICTED), (-5.0, 5.0, INCONCLUSIVE)],
)  # fmt: skip
def test_a_bound_is_contradicted_from_one_side_only(low, high, verdict):
    claim = Prediction(-math.inf, 1.0, margin=0.0, resolution=0.2)
    assert claim.verdict(Interval((low + high) / 2, low, high, 10)) == verdict


def test_what_is_no_number_decides_nothing():
    claim = exactly(0.0, resolution=1.0)
    assert claim.verdict(Interval(math.nan, math.nan, math.nan, 3)) == INCONCLUSIVE
    assert claim.verdict(t_interval([math.nan, 1.0])) == INCONCLUSIVE


def test_a_statement_at_many_places_is_contradicted_by_one():
    assert jointly([SUPPORTED, INCONCLUSIVE, CONTRADICTED]) == CONTRADICTED
    assert jointly([SUPPORTED, INCONCLUSIVE]) == INCONCLUSIVE
    assert jointly([SUPPORTED, SUPPORTED]) == SUPPORTED


def test_the_intervals_of_a_series_hold_together():
    samples = [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]]
    _, curve = series(
        "s", "p", THEOREM, "c", "q", "d", [1, 2], samples, lambda _: exactly(2.0, resolution=9.0),
        "Post-LN",
    )  # fmt: skip
    # Two intervals of 97.5 %: t with 2 degrees of freedom is 6.205, and the standard error 1/sqrt 3.
    assert curve.measured[0].high == pytest.approx(2 + 6.205 / 3**0.5, abs=1e-3)


def test_appendix_f_judges_the_upper_half_of_the_layers():
    row = [1.0, 1.0, 1.0, 1.0, *(1 / layer for layer in (5, 6, 7, 8))]
    results = Results()
    theorem._layers(results, THEOREM, "pre_ln", "", [row, row])
    assert results.findings[0].measured.mean == pytest.approx(-1)
    post = Results()
    theorem._layers(post, THEOREM, "post_ln", "", [[1.5**layer for layer in range(8)]] * 2)
    assert post.findings[0].measured.mean == pytest.approx(1.5)


def test_the_jacobians_norm_is_the_root_of_its_mean_square():
    found = theorem.appendix_f(tiny_lab()).findings[0]
    assert found.measured.mean == pytest.approx(math.sqrt(2 / 3), abs=0.06)  # 2/3 is 0.15 away


def test_concentration_is_judged_on_one_side_and_on_both():
    seen = [Observation(above=0.1, away=0.3), Observation(above=0.1, away=0.3)]
    one, both = concentration._sides(THEOREM, "pre_ln", "here", statements.bounded(), seen)
    assert (one.measured.mean, both.measured.mean) == (0.1, 0.3)
    assert (one.verdict, both.verdict) == (SUPPORTED, CONTRADICTED)


def test_lemma_2_counts_the_attentions_of_a_decoder_layer():
    one, two = statements.lemma_2_pre_ln(4), statements.lemma_2_pre_ln(4, attentions=2)
    assert (one.low, one.high) == (3, 7)
    assert (two.low, two.high) == (3, 11)


def test_a_reading_is_made_again_when_the_code_or_the_number_of_seeds_changes(
    tmp_path, monkeypatch
):
    path, made = tmp_path / "j.jsonl", []

    def reading(journal, what):
        return journal.once(what, lambda: [made.append(1)] and [len(made)])

    assert reading(Journal(path), {"seed": 1}) == [1]
    assert reading(Journal(path), {"seed": 1}) == [1]  # from the file
    monkeypatch.setattr("lnexp.theory.lab._code", lambda: "other code")
    assert reading(Journal(path), {"seed": 1}) == [2]
    path.write_text(path.read_text().replace("[2]", "5"))  # damaged
    assert reading(Journal(path), {"seed": 1}) == [3]


def test_what_is_hashed_as_code_exists():
    package = Path(lnexp.__file__).parent
    assert all(list(package.glob(f"{name}.py")) for name in MEASURING)


def test_the_row_of_a_series_shows_where_it_fails():
    samples = [[1.0, 2.0, 1.0], [1.0, 2.01, 1.0], [1.0, 1.99, 1.0]]
    finding, curve = series(
        "s", "p", THEOREM, "c", "q", "depth", [1, 2, 3], samples,
        lambda _: exactly(1.0, resolution=0.5, margin=0.01), "Post-LN",
    )  # fmt: skip
    assert finding.verdict == CONTRADICTED
    assert finding.note == "shown at depth 2; contradicted at 1 of 3"
    assert finding.measured == curve.measured[1]
    assert single("s", "p", THEOREM, "c", "q", curve.predicted[0], [1.0, 1.0]).verdict == SUPPORTED


# Predictions


def test_predictions_by_hand():
    assert (statements.lemma_1().low, statements.lemma_1().high) == (0.5, 0.5)
    assert statements.lemma_2_post_ln().low == 1.5
    bounds = statements.lemma_2_pre_ln(6)
    assert (bounds.low, bounds.high) == (4.0, 10.0)
    assert statements.appendix_g(512, 0.1).high == pytest.approx(0.5273, abs=1e-4)  # exp(-0.64)
    assert statements.bounded().high == 0.125
    assert statements.theorem_1_post_ln().low == 0.0
    assert statements.theorem_1_pre_ln_rate().low == statements.theorem_1_norm().low == -0.5
    assert statements.theorem_1_pre_ln_bound().low == -math.inf
    # ln(512 sqrt(ln 512)) - ln(64 sqrt(ln 64)) = ln 8 + ln(9/6)/2, over ln 8.
    assert statements.theorem_1_width([64, 512]) == pytest.approx(
        1 + math.log(1.5) / 2 / math.log(8)
    )
    assert statements.appendix_f_post_ln().low == pytest.approx(1.2247, abs=1e-4)
    assert statements.appendix_f_jacobian().low == pytest.approx(0.8165, abs=1e-4)
    assert statements.appendix_f_pre_ln().low == 0.0


@pytest.mark.parametrize("d", [3, 8, 64])
def test_lemma_3_is_autograds_jacobian(d):
    torch.manual_seed(d)
    x = torch.randn(d, dtype=torch.float64) * 3 + 1
    norm = nn.LayerNorm(d, eps=0.0, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(norm, x)
    torch.testing.assert_close(statements.lemma_3(x), jacobian, atol=1e-12, rtol=0)
    spectral = torch.linalg.svdvals(jacobian)[0].item()
    assert statements.lemma_3_norm(x) == pytest.approx(spectral, rel=1e-12)


# The theorem's network


def ln(x):
    y = x - x.mean(-1, keepdim=True)
    return y / y.square().mean(-1, keepdim=True).sqrt()


def by_hand(network, kind):
    """Table 1 of the paper, with uniform attention and no W_O."""
    x = network.x
    for block in network.stack.blocks:
        w_v, w_1, w_2 = (m.weight.T for m in (block.attn.v, block.ffn.w1, block.ffn.w2))

        def attention(h, w_v=w_v):
            return (h @ w_v).mean(1, keepdim=True).expand_as(h)

        def ffn(h, w_1=w_1, w_2=w_2):
            return (h @ w_1).relu() @ w_2

        if kind == "post":
            x = ln(x + attention(x))
            x = ln(x + ffn(x))
        else:
            x = x + attention(ln(x))
            x = x + ffn(ln(x))
    return x if kind == "post" else ln(x)


@pytest.mark.parametrize(("factory", "kind"), [(post_ln, "post"), (pre_ln, "pre")])
def test_the_network_is_table_1(factory, kind):
    network = Network(factory, Size(16, 3, 5, 2), Assumptions(), 1, None).double()
    network.x, network.w_emb = network.x.double(), network.w_emb.double()
    torch.testing.assert_close(network(), by_hand(network, kind))
    scores = network() @ network.w_emb.T
    logs = scores.log_softmax(-1).gather(-1, network.targets[..., None])
    torch.testing.assert_close(network.loss(), -logs.mean())


def test_the_draws_are_the_theorems():
    network = Network(pre_ln, Size(256, 2), Assumptions(), 1, None)
    for block in network.stack.blocks:
        for linear in (block.attn.v, block.ffn.w1, block.ffn.w2):
            assert linear.weight.shape == (256, 256)
            assert linear.weight.std().item() == pytest.approx(1 / 16, rel=0.02)  # N(0, 1/d)
            assert not linear.bias.any()
        assert not block.attn.q.weight.any()
        assert not block.attn.k.weight.any()
        assert torch.equal(block.attn.out.weight, torch.eye(256))
    assert network.x.std().item() == pytest.approx(1, rel=0.05)
    assert network.w_emb.shape == (VOCABULARY, 256)
    assert network.w_emb.std().item() == pytest.approx(1 / 16, rel=0.01)


def test_placements_of_one_size_share_weights_and_data():
    one, other = (Network(f, Size(16, 2), Assumptions(), 3, None) for f in (post_ln, pre_ln))
    for a, b in zip(one.stack.blocks.parameters(), other.stack.blocks.parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(one.x, other.x)
    assert torch.equal(one.targets, other.targets)


def test_each_switch_changes_what_it_says():
    def net(**switched):
        return Network(pre_ln, Size(16, 1, 8), Assumptions(**switched), 1, TEXT)

    assert net(learned_qk=True, heads=4).stack.blocks[0].attn.q.weight.any()
    assert net(learned_qk=True, heads=4).stack.blocks[0].attn.n_heads == 4
    assert not torch.equal(net(output_matrix=True).stack.blocks[0].attn.out.weight, torch.eye(16))
    assert net(ffn_width=2).stack.blocks[0].ffn.w1.weight.shape == (32, 16)
    plain, gain = net().stack.blocks[0].attn.v.weight, net(value_gain=0.5).stack.blocks[0].attn
    torch.testing.assert_close(gain.v.weight, plain / 2)
    bound = math.sqrt(3 / 16)  # of a uniform distribution of variance 1/d
    assert net(uniform=True).stack.blocks[0].ffn.w1.weight.abs().max() <= bound
    assert net(dropout=0.1).stack.blocks[0].dropout.p == 0.1
    assert net(cross_attention=True).encoder is not None
    real = net(real_input=True)
    assert real.x.shape == (1, 7, 16)
    assert len(real.w_emb) == VOCABULARY
    tied = net(real_input=True, tied=True)
    assert torch.equal(tied.targets, torch.tensor([[6, 7, 3, 4, 5, 9, 9]]))
    positions = tied.x - tied.w_emb[torch.tensor([5, 6, 7, 3, 4, 5, 9])] * 4
    assert positions[0, 0, ::2].abs().max() < 1e-6  # sin 0


def test_a_causal_network_does_not_look_ahead():
    network = Network(pre_ln, Size(16, 2, 6), Assumptions(causal=True), 1, None)
    before = network()
    network.x = network.x.clone()
    network.x[:, -1] += 1
    torch.testing.assert_close(network()[:, :-1], before[:, :-1])


# Observations


@pytest.mark.parametrize(("factory", "kind"), [(post_ln, "post"), (pre_ln, "pre")])
def test_norms_and_gradients_are_read_off_rightly(factory, kind):
    size = Size(16, 2, 5)
    network = Network(factory, size, Assumptions(), 1, None)
    weights = [block.ffn.w2.weight.requires_grad_() for block in network.stack.blocks]
    logits = by_hand(network, kind) @ network.w_emb.T
    nn.functional.cross_entropy(logits.flatten(0, 1), network.targets.flatten()).backward()
    seen = observe(factory, size, 1, layers=ALL)
    assert seen.gradients == pytest.approx([w.grad.norm().item() for w in weights], rel=1e-4)
    assert observe(factory, size, 1, layers=LAST).gradients == pytest.approx(seen.gradients[-1:])
    x, d = network.x, 16
    block = network.stack.blocks[0]
    w_v, w_1, w_2 = (m.weight.T for m in (block.attn.v, block.ffn.w1, block.ffn.w2))
    if kind == "post":
        x3 = ln(x + (x @ w_v).mean(1, keepdim=True))
        x5 = x3 + (x3 @ w_1).relu() @ w_2
        assert seen.sublayer_sums[0] == pytest.approx((x5.square().sum(-1).mean() / d).item())
        assert seen.streams == pytest.approx([1.0, 1.0])
        assert seen.top_norm == pytest.approx(seen.sublayer_sums[-1])
        y = x5 - x5.mean(-1, keepdim=True)
        assert seen.jacobians[0] == pytest.approx((d / y.square().sum(-1)).mean().item(), rel=1e-4)
    else:
        assert seen.top_norm == pytest.approx(seen.streams[-1])
        assert seen.sublayer_sums[0] < seen.streams[0]
    assert spectral_ratio(nn.LayerNorm(16, eps=0.0), x[0, 0]) == pytest.approx(1.0, abs=1e-6)
    assert 0 <= seen.above <= seen.away <= 1


def test_no_gradient_is_taken_where_none_is_asked_for():
    assert observe(pre_ln, Size(16, 2), 1, layers=NONE).gradients == []


def test_concentration_counts_positions():
    seen = observe(post_ln, Size(16, 1, 4, n_sequences=50), 1, layers=NONE)
    network = Network(post_ln, Size(16, 1, 4, n_sequences=50), Assumptions(), 1, None)
    inputs = []
    network.stack.placement.norms_of(0)[1].register_forward_pre_hook(
        lambda _, args: inputs.append(args[0])
    )
    network()
    z = inputs[0].square().sum(-1)
    assert seen.above == pytest.approx((z > 1.1 * z.mean()).float().mean().item())


# Experiments, small


@pytest.mark.parametrize("experiment", study.EXPERIMENTS, ids=lambda f: f.__name__)
def test_each_experiment_finds_something(experiment):
    results = experiment(tiny_lab())
    assert results.findings
    assert {f.statement for f in results.findings} == {experiment.__name__}
    assert all(len(c.xs) == len(c.measured) for p in results.panels for c in p.curves)


def test_a_figure_shows_every_panel(tmp_path):
    results = lemmas.lemma_2(tiny_lab())
    png, svg = draw_panels(results.panels, "Lemma 2", tmp_path / "lemma_2")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().count('id="axes_') == len(results.panels) == 4


def test_exact_statements_are_supported():
    assert [f.verdict for f in lemmas.lemma_3(tiny_lab()).findings[:2]] == [SUPPORTED] * 2
    many = tiny_lab(seeds=range(1, 6), samples=20_000)
    assert lemmas.lemma_1(many).findings[0].verdict == SUPPORTED
    assert concentration.appendix_g(many).findings[0].verdict == SUPPORTED


def test_one_position_lies_on_the_upper_bound():
    lab = tiny_lab(seeds=range(1, 5), d=64, networks=25)
    size = Size(64, 2, n_positions=1)
    rows = lab.theorem("pre_ln", size, layers=NONE, networks=lab.sizes.networks)
    samples = [sum(o.streams[1] for o in row) / len(row) for row in rows]
    bound = statements.lemma_2_pre_ln(2)
    assert bound.high == 4.0
    found = t_interval(samples)
    assert found.low < bound.high < found.high
    assert found.mean == pytest.approx(4.0, rel=0.1)
    assert bound.verdict(found) != CONTRADICTED


def test_the_pre_ln_gradient_falls_with_the_norm_and_the_post_ln_one_does_not():
    lab = tiny_lab(seeds=range(1, 7), d=96)
    depths = (6, 24)
    pre, post = (
        theorem.exponents(depths, theorem.at_each_depth(lab, name, THEOREM, depths))
        for name in ("pre_ln", "post_ln")
    )
    assert t_interval(pre["gradient in norm"]).mean == pytest.approx(-0.5, abs=0.15)
    assert t_interval(pre["gradient in L"]).mean < -0.35 < t_interval(post["gradient in L"]).mean
    assert t_interval(pre["norm in L"]).mean > 1.0


def test_the_table_of_switches_has_a_line_for_each(tmp_path):
    found = departures.assumptions(tiny_lab(switch_depths=(1, 2)))
    assert [s.what for s in found[::2]] == list(departures.SWITCHES)
    table = tables.scaling_table("assumptions", found)
    assert len(table) == len(departures.SWITCHES) + 1
    assert draw_scalings(found, "t", tmp_path / "assumptions")[0].exists()


def test_placements_are_compared_in_both_settings():
    found = departures.placements(tiny_lab(), ["pre_ln"])
    assert [s.setting for s in found] == ["theorem", "real model"]
    assert tables.scaling_table("placements", found)[1][0] == "Pre-LN"


def test_interrupted_work_goes_on(tmp_path):
    path = tmp_path / "measurements.jsonl"
    lab = tiny_lab(path)
    first = lab.theorem("pre_ln", Size(16, 2))
    path.write_bytes(path.read_bytes() + b'{"key": "torn')
    again = tiny_lab(path)
    again.placements = {}  # nothing can be drawn any more
    assert again.theorem("pre_ln", Size(16, 2)) == first
    again.journal.once({"x": 1}, lambda: [2.5])
    assert Journal(path).once({"x": 1}, lambda: [3.5]) == [2.5]  # not glued to the torn line
    with pytest.raises(KeyError):
        again.theorem("pre_ln", Size(16, 3))


def test_readings_of_other_settings_are_not_taken(tmp_path):
    path = tmp_path / "measurements.jsonl"
    one, other = Journal(path, {"norm": "a"}), Journal(path, {"norm": "b"})
    assert one.once({"x": 1}, lambda: [1]) == [1]
    assert other.once({"x": 1}, lambda: [2]) == [2]
    assert Journal(path, {"norm": "a"}).once({"x": 1}, lambda: [3]) == [1]


def test_json_has_null_where_there_is_no_number():
    found = study.Study()
    found.results["theorem_1"] = theorem.theorem_1(tiny_lab())
    plain = json.dumps(tables.as_json({"seeds": 2}, found), allow_nan=False)
    bound = next(f for f in json.loads(plain)["findings"] if "bound" in f["claim"])
    assert bound["prediction"]["low"] is None
    assert set(bound) >= {"place", "setting", "claim", "measured", "verdict"}
    assert "| Theorem 1 |" in tables.markdown("t", found)
