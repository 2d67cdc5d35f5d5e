"""Schedules by hand; the rate of update 1 above all, which several toolkits run wrong."""

import math

import pytest

from lnexp.errors import InputError
from lnexp.optim.schedule import Constant, Cosine, InverseSqrt, Linear, Step

TABLE = [
    # The paper's warm-up: T = 4000, then sqrt(T / t).
    (InverseSqrt(4000, 4000), {1: 1 / 4000, 2000: 0.5, 4000: 1.0, 16000: 0.5}),
    # No warm-up, the literal reading: 22-fold down in 500 updates.
    (InverseSqrt(1, 1), {1: 1.0, 4: 0.5, 500: 500**-0.5}),
    # No warm-up, the held reading.
    (InverseSqrt(1, 4000), {1: 1.0, 4000: 1.0, 16000: 0.5}),
    # Anchor apart from warm-up: after it, the rate of a T = 4000 run.
    (InverseSqrt(500, 4000), {1: 1 / 500, 500: 1.0, 4000: 1.0, 16000: 0.5}),
    (Constant(1), {1: 1.0, 10**6: 1.0}),
    (Constant(10), {1: 0.1, 10: 1.0, 11: 1.0}),
    (Linear(1, 100), {1: 1.0, 51: 0.5, 100: 0.01, 101: 0.0, 500: 0.0}),
    (Linear(10, 109), {1: 0.1, 10: 1.0, 60: 0.5, 109: 0.01}),
    (Cosine(1, 100), {1: 1.0, 51: 0.5, 26: (1 + math.cos(math.pi / 4)) / 2, 101: 0.0}),
    (Cosine(10, 109), {1: 0.1, 10: 1.0, 60: 0.5}),
    (Step(1, 8, 0.1), {1: 1.0, 7: 1.0, 8: 0.1, 800: 0.1}),
    (Step(4, 8, 0.1), {1: 0.25, 4: 1.0, 8: 0.1}),
]


@pytest.mark.parametrize(("schedule", "values"), TABLE, ids=lambda v: str(v)[:40])
def test_factors_by_hand(schedule, values):
    for t, factor in values.items():
        assert schedule(t) == pytest.approx(factor, abs=1e-12), t


@pytest.mark.parametrize("schedule", [row[0] for row in TABLE], ids=str)
def test_factor_is_in_0_1_and_the_peak_is_1(schedule):
    factors = [schedule(t) for t in range(1, 5000)]
    assert all(0 <= f <= 1 for f in factors)
    assert max(factors) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: InverseSqrt(0, 1), r"schedule\.warmup=0 must be at least 1 update \(1 means no w"),
        (lambda: InverseSqrt(1, 0), r"schedule\.anchor=0 must be at least 1 update"),
        (lambda: Constant(-1), r"schedule\.warmup=-1 must be at least 1"),
        (lambda: Linear(20, 10), r"schedule\.warmup=20 must not exceed schedule\.total=10"),
        (lambda: Cosine(20, 10), r"schedule\.warmup=20 must not exceed schedule\.total=10"),
        (lambda: Step(1, 0, 0.1), r"schedule\.drop_at=0 must be at least 1"),
        (lambda: Step(1, 5, 2.0), r"schedule\.factor=2\.0 must be above 0 and at most 1"),
    ],
)
def test_senseless_schedules_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
