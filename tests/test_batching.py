"""Batches are a function of lengths, seed and epoch, hold each pair once, keep to the budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lnexp.data.batching import epoch_batches, n_batches, ordered_batches, select
from lnexp.errors import InputError

LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), max_size=60)


def sides(pairs):
    lengths = np.array(pairs, np.int32).reshape(-1, 2)
    return lengths[:, 0], lengths[:, 1]


def cost(src, tgt, batch):
    """Padded tokens: sentences times the longest side, EOS in."""
    return len(batch) * max(max(src[batch]), max(tgt[batch]), 0) + len(batch)


def as_lists(batches):
    return [batch.tolist() for batch in batches]


def test_select_by_hand():
    src, tgt = [3, 0, 9, 10, 2, 0], [3, 1, 9, 1, 10, 99]
    kept, dropped = select(src, tgt, max_length=10)
    assert kept.tolist() == [0, 2]
    assert dropped == {"empty": 2, "too long": 2}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))), st.integers(1, 12))
def test_select_accounts_for_every_pair(pairs, max_length):
    kept, dropped = select(*sides(pairs), max_length=max_length)
    assert len(kept) + sum(dropped.values()) == len(pairs)
    wanted = [i for i, (s, t) in enumerate(pairs) if s and t and max(s, t) + 1 <= max_length]
    assert kept.tolist() == wanted


def test_batches_by_hand():
    # With EOS, and sorted by source then target: widths 2, 3, 3, 5, 5.
    src, tgt = [2, 1, 4, 1, 2], [2, 1, 4, 2, 4]
    batches = ordered_batches(src, tgt, range(5), 9)
    assert as_lists(batches) == [[1, 3, 0], [4], [2]]
    assert as_lists(ordered_batches(src, tgt, range(5), 10)) == [[1, 3, 0], [4, 2]]


@given(LENGTHS, st.integers(13, 80), st.integers(0, 2**32), st.integers(0, 50))
def test_an_epoch_holds_every_pair_once_within_the_budget(pairs, budget, seed, epoch):
    src, tgt = sides(pairs)
    chosen = np.arange(len(pairs))[:: 1 + len(pairs) % 2]
    batches = epoch_batches(src, tgt, chosen, tokens_per_batch=budget, seed=seed, epoch=epoch)
    assert sorted(i for batch in batches for i in batch) == chosen.tolist()
    assert all(len(batch) and cost(src, tgt, batch) <= budget for batch in batches)
    again = epoch_batches(src, tgt, chosen, tokens_per_batch=budget, seed=seed, epoch=epoch)
    assert as_lists(again) == as_lists(batches)


@given(LENGTHS, st.integers(13, 80), st.integers(0, 9))
def test_every_epoch_has_the_same_number_of_batches_of_the_same_shapes(pairs, budget, seed):
    src, tgt = sides(pairs)
    expected = n_batches(src, tgt, range(len(pairs)), tokens_per_batch=budget)
    shapes = []
    for epoch in range(4):
        batches = epoch_batches(
            src, tgt, range(len(pairs)), tokens_per_batch=budget, seed=seed, epoch=epoch
        )
        assert len(batches) == expected
        shapes.append(sorted(sorted(zip(src[b], tgt[b], strict=True)) for b in batches))
    assert all(shape == shapes[0] for shape in shapes)


def test_epochs_and_seeds_differ_in_batches_and_in_their_order():
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, 9, (2, 500))
    rows = np.arange(500)

    def batches(seed, epoch):
        found = epoch_batches(src, tgt, rows, tokens_per_batch=64, seed=seed, epoch=epoch)
        return as_lists(found)

    base = batches(1, 0)
    for other in (batches(1, 1), batches(2, 0), batches(0, 1)):
        # Ties are broken anew, so the batches themselves differ, not only their order.
        assert {frozenset(b) for b in other} != {frozenset(b) for b in base}
    longest = [max(src[b]) for b in base]
    assert longest != sorted(longest)


def test_batches_follow_the_source_length_then_the_target_length():
    rng = np.random.default_rng(0)
    src, tgt = rng.integers(1, 30, (2, 300))
    batches = epoch_batches(src, tgt, np.arange(300), tokens_per_batch=128, seed=1, epoch=0)
    in_order = sorted(batches, key=lambda b: (src[b[0]], tgt[b[0]], src[b[-1]], tgt[b[-1]]))
    flat = [(int(src[i]), int(tgt[i])) for batch in in_order for i in batch]
    assert flat == sorted(flat)


def test_a_pair_larger_than_the_budget_is_refused_in_training():
    keys = {"tokens_per_batch": 10, "seed": 1, "epoch": 0}
    message = (
        r"train\.tokens_per_batch=10 is smaller than the longest training pair \(11 tokens\); "
        r"set train\.tokens_per_batch=11 or more, or data\.max_length=10 or less"
    )
    with pytest.raises(InputError, match=message):
        epoch_batches([3, 10], [3, 1], [0, 1], **keys)
    with pytest.raises(InputError, match=message):
        n_batches([3, 10], [3, 1], [0, 1], tokens_per_batch=10)
    assert as_lists(epoch_batches([3, 10], [3, 1], [0], **keys)) == [[0]]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40), st.integers(1, 40))
def test_evaluation_drops_nothing(pairs, budget):
    src, tgt = sides(pairs)
    batches = ordered_batches(src, tgt, np.arange(len(pairs)), budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
    assert all(len(batch) == 1 or cost(src, tgt, batch) <= budget for batch in batches)


def test_no_pairs_make_no_batches():
    empty = np.zeros(0, np.int32)
    assert epoch_batches(empty, empty, [], tokens_per_batch=9, seed=1, epoch=0) == []
    assert n_batches(empty, empty, [], tokens_per_batch=9) == 0
    assert ordered_batches(empty, empty, [], 9) == []
