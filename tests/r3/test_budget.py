"""What fits into a budget, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.r3.budget import ReplaySizes, check_budget
from tests.conftest import make_blueprint

MIB = 1 << 20
TICK_BYTES = 200


class Memory:
    """Rings that keep a sixteenth of their ticks, at least ten, reserved ahead of the writer."""

    bytes_per_tick = TICK_BYTES

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def ticks_in(self, size: int) -> int:
        ticks = size // TICK_BYTES
        return self.capacity if ticks >= self.capacity else ticks - max(10, ticks // 16)


def sizes(
    capacity: int, learning_starts: int = 100, n_step: int = 1, state_size: int = 0,
    **learning: Any,
) -> ReplaySizes:
    config = parse_config(
        {
            "replay": {"capacity": capacity},
            "learning": {"learning_starts": learning_starts, "n_step": n_step, **learning},
        }
    )
    return ReplaySizes(Memory(capacity), make_blueprint(state_size=state_size), config)


@pytest.mark.parametrize(
    ("capacity", "starts", "n_step", "least"),
    [(10_000, 1000, 8, 2000), (10_000, 10, 8, 512), (10_000, 10, 900, 1800), (300, 10, 1, 300)],
)
def test_the_smallest_replay_is_twice_what_learning_needs(
    capacity: int, starts: int, n_step: int, least: int
) -> None:
    assert sizes(capacity, starts, n_step).least_ticks == least


@pytest.mark.parametrize(("state_size", "least"), [(0, 512), (128, 4002)])
def test_of_a_recurrent_network_the_smallest_replay_holds_two_sequences(
    state_size: int, least: int
) -> None:
    found = sizes(10_000, state_size=state_size, sequence=1000, burn_in=1000)
    assert found.least_ticks == least


@pytest.mark.parametrize(("algorithm", "least"), [("ppo", 6000), ("a2c", 6000), ("dqn", 512)])
def test_on_policy_the_smallest_replay_holds_two_rollouts(algorithm: str, least: int) -> None:
    assert sizes(10_000, algorithm=algorithm, rollout=3000).least_ticks == least


@given(st.integers(1200, 50_000))
def test_the_smallest_replay_fits_into_its_bytes_and_into_few_less(capacity: int) -> None:
    memory, found = Memory(capacity), sizes(capacity)
    assert memory.ticks_in(found.least_bytes) >= found.least_ticks
    assert memory.ticks_in(int(0.98 * found.least_bytes)) < found.least_ticks


@given(st.integers(0, 10_000_000), st.integers(512, 50_000))
def test_a_replay_stays_within_its_bytes_and_its_bounds(size: int, capacity: int) -> None:
    found = sizes(capacity)
    ticks = found.ticks_in(size)
    assert found.least_ticks <= ticks <= capacity
    if found.least_ticks < ticks < capacity:
        # Eq. 3: all but one of the four frames of the first observation are there besides.
        assert ticks == Memory(capacity).ticks_in(size - 3 * 30)


def test_a_budget_that_just_suffices_is_accepted_and_one_below_refused() -> None:
    needs = 300 * MIB, 5 * MIB, sizes(100_000, 1000)
    with pytest.raises(UserError) as caught:
        check_budget(300 * MIB, *needs)
    least = int(str(caught.value).split()[-3])
    check_budget(least * MIB, *needs)
    replay = f"{needs[-1].least_bytes / MIB:.1f}"
    with pytest.raises(UserError, match=rf"300.0 MiB.*5.0 MiB.*2000 ticks, {replay} MiB"):
        check_budget((least - 1) * MIB, *needs)
