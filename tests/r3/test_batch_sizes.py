"""The batch size that each mode of R3 chooses, and what bounds it."""

from __future__ import annotations

import pytest

from rtagent.memory.horizon import Horizon
from rtagent.r3.controller import DEAD_BAND, RECOVER_NS, batch_in_force
from tests.r3.horizon_life import B_MIN, Life, begun, of_mode


@pytest.mark.parametrize(("mode", "size"), [("off", 32), ("max-a", 32), ("max-p", 128)])
def test_fixed_modes(mode: str, size: int) -> None:
    life = Life(mode)
    for _ in range(10):
        life.update(3.0)
        assert life.size == size


def test_an_update_of_a2c_is_a_rollout_where_it_fits_into_memory() -> None:
    life = Life("off")
    life.change_settings(learning={"algorithm": "a2c", "rollout": 512})
    assert life.size == 512
    life.keeper.note_base(1000, 512)
    life.change_settings(batch_bytes=500)
    life.update(1.0)
    assert life.size == 256
    life.keeper.note_out_of_memory(life.now_ns, 256)
    assert life.size == 128
    assert life.horizon.b_min == 512


def test_step_follows_equation_1_at_every_update() -> None:
    life = begun()
    sizes = []
    for samples in (1, 1, 1, 8000, 1):
        life.update(1.0, samples)
        sizes.append(life.size)
    assert sizes == [64, 128, 128, 64, 32]
    first = life.decisions("step")[0]
    assert (first.before, first.after, first.b_min) == (32, 64, 32)
    assert first.time_ratio == pytest.approx(0.1)
    assert first.data_ratio == pytest.approx(0.0002)


def test_step_leaves_the_size_alone_within_the_dead_band() -> None:
    life = begun()
    life.update(10.0 * DEAD_BAND * 0.9, samples=1)
    assert life.size == B_MIN
    life.update(10.0 * DEAD_BAND * 0.2, samples=1)
    assert life.size == 2 * B_MIN


def test_episode_decides_when_an_episode_ends_only() -> None:
    life = begun("episode")
    for _ in range(10):
        life.update(0.1, samples=1)
    assert life.size == B_MIN
    life.finish_episode()
    life.wait(0.0)
    assert life.size == B_MIN
    life.update(0.1, samples=1)
    assert life.size == 2 * B_MIN
    assert len(life.decisions("episode")) == 1
    for _ in range(10):
        life.update(0.1, samples=1)
    assert life.size == 2 * B_MIN


def test_episode_decides_within_an_episode_longer_than_an_eighth_of_the_deadline() -> None:
    life = begun("episode")
    for _ in range(13):
        life.update(0.1, samples=1)
    assert life.size == 2 * B_MIN


def test_episode_does_not_shrink_a_batch_that_is_still_needed() -> None:
    """Ahead of time now, but behind it at the next decision if the batch were halved."""
    life = begun("episode")
    life.update(1.0, samples=500)
    life.finish_episode()
    life.update(0.0, samples=1)
    assert life.size == 64
    life.update(1.0, samples=1600)
    life.finish_episode()
    life.update(0.0, samples=1)
    assert life.horizon.data_ratio > life.horizon.time_ratio
    assert life.size == 64
    life.update(1.0, samples=4000)
    life.finish_episode()
    life.update(0.0, samples=1)
    assert life.size == 32


def test_episode_expects_nothing_more_after_the_time_that_it_aims_at() -> None:
    life = begun("episode", margin=0.1)
    life.update(9.5, samples=4998)
    life.finish_episode()
    life.update(0.0, samples=1)
    last = life.decisions("episode")[-1]
    assert (last.time_ratio, last.data_ratio) == pytest.approx((9.5 / 9.0, 0.5))


@pytest.mark.parametrize("mode", ["off", "max-a"])
def test_the_smallest_batch_is_in_force_again_when_nothing_steers(mode: str) -> None:
    life = begun()
    life.update(5.0, samples=1)
    assert life.size == 2 * B_MIN
    life.change_settings(r3={"mode": mode})
    assert life.size == B_MIN


def test_a_new_smallest_batch_is_in_force_at_once() -> None:
    life = Life("max-p")
    life.update(1.0)
    life.change_settings(learning={"batch_size": 10})
    assert life.size == 40
    life.change_settings(r3={"mode": "step"})
    assert 10 <= life.size <= 40


@pytest.mark.parametrize("mode", ["off", "max-p", "step"])
def test_reserved_memory_caps_every_mode(mode: str) -> None:
    life = Life(mode)
    life.keeper.note_base(3_200_000, 32)
    life.change_settings(batch_bytes=2_000_000)
    assert life.size == 20
    life.update(0.0)
    assert life.horizon.batch_cap == 20
    assert life.horizon.batch_size == 20
    life.keeper.note_out_of_memory(life.now_ns, 64)
    assert life.horizon.batch_cap == 20
    life.change_settings(batch_bytes=1)
    assert life.size == 1


def test_a_batch_at_the_limit_of_memory_is_not_decided_anew_at_every_update() -> None:
    life = Life("step")
    life.keeper.note_base(3_200_000, 32)
    life.change_settings(batch_bytes=6_400_000)
    for _ in range(10):
        life.update(0.5, samples=1)
    assert life.size == 64
    decided = [(each.before, each.after) for each in life.decisions("step", "memory")]
    assert decided == [(32, 64)]


def test_memory_reserved_before_it_was_measured_caps_nothing() -> None:
    life = Life("max-p")
    life.change_settings(batch_bytes=1)
    assert life.size == 128


def test_out_of_memory_halves_the_batch_which_grows_again_slowly() -> None:
    life = Life("max-p")
    life.update(0.0)
    life.keeper.note_out_of_memory(life.now_ns, 128)
    assert life.size == 64
    life.keeper.note_out_of_memory(life.now_ns, 64)
    assert life.size == 32
    life.update(1.0)
    assert life.size == 32
    sizes = []
    for _ in range(7):
        life.now_ns += RECOVER_NS
        life.update(0.0)
        sizes.append(life.size)
        life.update(1.0)
        assert life.size == sizes[-1]
    assert sizes == [40, 50, 62, 77, 96, 120, 128]
    assert life.horizon.safe_size == 0
    first, second = life.decisions("out-of-memory")
    assert (first.before, first.after, second.before, second.after) == (128, 64, 64, 32)


def test_out_of_memory_before_the_first_update_is_remembered_as_long() -> None:
    life = Life("max-p")
    life.keeper.note_out_of_memory(life.now_ns, 128)
    life.update(1.0)
    assert life.size == 64


def test_a_late_report_of_lacking_memory_does_not_raise_the_safe_size() -> None:
    life = Life("max-p")
    life.keeper.note_out_of_memory(life.now_ns, 64)
    life.keeper.note_out_of_memory(life.now_ns, 128)
    assert life.size == 32


def test_the_smallest_safe_batch_is_one_transition() -> None:
    life = Life("off")
    life.keeper.note_out_of_memory(life.now_ns, 1)
    assert life.size == 1


def test_batch_in_force_bounds_what_an_older_horizon_left() -> None:
    assert batch_in_force(Horizon(batch_size=999), of_mode("step")) == 128
    assert batch_in_force(Horizon(batch_size=0), of_mode("episode")) == 32
