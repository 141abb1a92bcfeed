"""Exploration: the schedule, and the draw that all processes share."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from rtagent.config import PolicyConfig
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.policy.exploration import epsilon, explores, smooth_noise

POLICY = PolicyConfig(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=1000)


@pytest.mark.parametrize(
    ("updates", "wanted"), [(-1, 1.0), (0, 1.0), (500, 0.55), (1000, 0.1), (10**9, 0.1)]
)
def test_epsilon_falls_linearly(updates: int, wanted: float) -> None:
    assert epsilon(updates, POLICY) == pytest.approx(wanted)


@pytest.mark.parametrize("share", [-0.1, 0.0, 0.25, 0.5, 1.0, 7.0])
def test_epsilon_falls_by_equal_factors(share: float) -> None:
    policy = PolicyConfig(
        epsilon_start=0.8, epsilon_end=0.2, epsilon_steps=1000, epsilon_schedule="exponential"
    )
    wanted = 0.8
    factor = (0.2 / 0.8) ** (1 / 1000)
    for _ in range(min(round(1000 * share), 1000)):
        wanted *= factor
    assert epsilon(round(1000 * share), policy) == pytest.approx(wanted)


def test_an_exponential_schedule_that_never_ends_is_refused() -> None:
    policy = {"epsilon_schedule": "exponential", "epsilon_end": 0.0}
    with pytest.raises(UserError, match=r"policy.epsilon_end = 0"):
        parse_config({"policy": policy})
    assert parse_config({"policy": policy | {"epsilon_end": 0.01}}).policy.epsilon_end == 0.01


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5, 0.9, 1.0])
def test_frequency(rate: float) -> None:
    blocks = 20_000
    share = np.mean([explores(3, tick, 1, rate, 4) is not None for tick in range(blocks)])
    assert abs(share - rate) <= 5 * (rate * (1 - rate) / blocks) ** 0.5


@pytest.mark.parametrize("actions", [2, 3, 7])
def test_actions_are_uniform_and_independent_of_the_last_one(actions: int) -> None:
    drawn = np.array([explores(0, tick, 1, 1.0, actions) for tick in range(30_000)], np.int64)
    pairs = drawn[:-1] * actions + drawn[1:]
    for values, kinds in ((drawn, actions), (pairs, actions**2)):
        counts = np.bincount(values, minlength=kinds)
        assert len(counts) == kinds
        expected = len(values) / kinds
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert chi_square < kinds - 1 + 6 * (2 * (kinds - 1)) ** 0.5


def test_the_action_does_not_depend_on_how_the_exploring_ticks_fell() -> None:
    drawn = [explores(0, tick, 1, 0.05, 3) for tick in range(60_000)]
    counts = np.bincount([action for action in drawn if action is not None], minlength=3)
    assert counts.min() > 0.8 * counts.mean()


def test_one_draw_is_held_for_a_block() -> None:
    drawn = [explores(5, tick, 8, 0.5, 3) for tick in range(800)]
    blocks = [drawn[start : start + 8] for start in range(0, 800, 8)]
    assert all(len(set(block)) == 1 for block in blocks)
    assert len({block[0] for block in blocks}) == 4


def test_a_higher_rate_keeps_the_draws_of_a_lower_one() -> None:
    for tick in range(1000):
        low, high = (explores(9, tick, 4, rate, 5) for rate in (0.2, 0.7))
        assert low is None or low == high


def test_seeds_differ() -> None:
    one, other = ([explores(seed, tick, 1, 1.0, 4) for tick in range(400)] for seed in (0, 1))
    same = sum(a == b for a, b in zip(one, other, strict=True))
    assert 60 < same < 140


# ---- continuous actions


@pytest.mark.parametrize("hold", [1, 8])
def test_noise_is_standard_normal_on_every_tick(hold: int) -> None:
    drawn = np.array([smooth_noise(4, tick, hold, 2) for tick in range(40_000)])
    # All ticks, and those half-way between two draws.
    for each in (drawn, drawn[hold // 2 :: hold]):
        blocks = len(each) if each is not drawn else len(each) / hold
        assert np.abs(each.mean(axis=0)).max() < 5 / blocks**0.5
        assert np.abs(each.var(axis=0) - 1.0).max() < 8 / blocks**0.5
        assert np.abs((each < -1.0).mean(axis=0) - NormalDist().cdf(-1.0)).max() < 3 / blocks**0.5
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 6 / (len(drawn) / hold) ** 0.5


@pytest.mark.parametrize("mixed", [0, 2**64 - 1])
def test_noise_is_finite_for_every_draw(mixed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtagent.policy.exploration._mix", lambda value: mixed)
    assert 8.0 < abs(smooth_noise(0, 0, 1, 1)[0]) < 8.5


def test_noise_moves_smoothly_and_goes_somewhere() -> None:
    slow = np.array([smooth_noise(0, tick, 8, 1)[0] for tick in range(8000)])
    fast = np.array([smooth_noise(0, tick, 1, 1)[0] for tick in range(8000)])
    # White noise steps by sqrt(2), root mean square; smooth noise by about pi / 2 in eight steps.
    assert np.sqrt(np.mean(np.diff(slow) ** 2)) < 0.25
    assert np.sqrt(np.mean(np.diff(fast) ** 2)) > 1.3
    # The sum over a second, as of a force on a body.
    travelled = [np.std(each[: 7980].reshape(-1, 60).sum(axis=1)) for each in (slow, fast)]
    assert travelled[0] > 1.8 * travelled[1]


def test_all_processes_draw_the_same_noise_and_seeds_differ() -> None:
    ticks = [0, 3, 8, 9, 10**12]
    one, again = ([smooth_noise(7, tick, 8, 3) for tick in ticks] for _ in range(2))
    assert one == again
    assert one != [smooth_noise(8, tick, 8, 3) for tick in ticks]
    assert len(set(np.ravel(one))) == 15
