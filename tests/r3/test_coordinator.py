"""The division of memory between batches and replay, on a virtual clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rtagent.errors import UserError
from rtagent.memory.meter import Measured
from rtagent.r3.budget import AIM
from rtagent.r3.memory_usage import PATIENCE_S, MemoryUsage, NotMeasured
from rtagent.r3.publication import Changes
from tests.desired import with_changes
from tests.r3.coordinated import BASE_BYTES, FIXED_BYTES, MIB, TICK_BYTES, WORKERS_BYTES, Daemon

# ---- without a budget


def test_without_a_budget_nothing_is_limited() -> None:
    daemon = Daemon()
    assert daemon.run(20, ticks_per_s=10_000) is None
    assert daemon.coordinator.ticks_limit == 100_000
    shown = daemon.horizon.reservations
    assert shown.budget_bytes == -1
    assert shown.used_bytes == daemon.used
    assert shown.baseline_bytes == WORKERS_BYTES + FIXED_BYTES - BASE_BYTES


def test_nothing_is_measured_before_every_worker_is_ready() -> None:
    daemon = Daemon(memory_budget_mb=10)
    daemon.metrics.inference[1].ready = 0
    daemon.run(5)
    assert daemon.horizon.reservations.used_bytes == -1
    daemon.metrics.inference[1].ready = 1
    with pytest.raises(UserError):
        daemon.run(5)


@pytest.mark.parametrize("before_s", [0, 10])
def test_the_budget_holds_although_a_worker_never_gets_ready_again(before_s: int) -> None:
    daemon = Daemon(memory_budget_mb=400)
    daemon.run(before_s, ticks_per_s=100)
    daemon.metrics.learners[0].ready = 0
    daemon.private += 50 * MIB
    daemon.run(2 * PATIENCE_S, ticks_per_s=1000)
    assert daemon.used <= 400 * MIB


def test_a_measurement_counts_if_every_worker_was_there_all_along() -> None:
    daemon = Daemon()
    daemon.metrics.inference[1].ready = 0
    answers = [None, Measured(1, False), None, Measured(2, True)]
    there: list[bool] = []

    def measure(pids: object, everybody: bool) -> Measured | None:
        there.append(everybody)
        return answers.pop(0)

    usage = MemoryUsage(daemon.rings, daemon.world, lambda: [1], measure)  # type: ignore[arg-type]
    assert not usage.measure(0.0, daemon.desired)
    daemon.metrics.inference[1].ready = 1
    assert not usage.measure(0.1, daemon.desired)
    assert usage.total() == -1
    assert [usage.measure(now, daemon.desired) for now in (1.2, 1.3)] == [False, True]
    assert usage.total() == 2 + sum(daemon.rings.pages().values())
    assert there == [False, True, True, True]


def test_the_memory_of_a_larger_batch_is_no_baseline_until_it_is_given_back() -> None:
    daemon = Daemon()
    usage = daemon.coordinator._usage
    larger = with_changes(daemon.desired, learning={"batch_size": 64})
    assert usage.batches(larger) == usage.batches(daemon.desired) == 2 * BASE_BYTES
    usage.forget_largest_batch()
    assert usage.batches(daemon.desired) == BASE_BYTES


# ---- the budget


@pytest.mark.parametrize("budget_mb", [300, 500, 900])
def test_a_filling_replay_stops_within_the_budget(budget_mb: int) -> None:
    daemon = Daemon(memory_budget_mb=budget_mb)
    for _ in range(120):
        daemon.run(1, ticks_per_s=1000)
        assert daemon.used <= 1.02 * budget_mb * MIB
    assert daemon.used > 0.98 * budget_mb * MIB - 4 * BASE_BYTES


def test_memory_that_the_workers_take_is_taken_from_the_replay_at_once() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(120, ticks_per_s=1000)
    before = daemon.coordinator.ticks_limit
    daemon.private += 100 * MIB
    daemon.run(3)
    assert daemon.used <= 1.02 * 600 * MIB
    assert daemon.coordinator.ticks_limit < before - 90 * MIB // TICK_BYTES
    daemon.private -= 100 * MIB
    daemon.run(3)
    slowly = daemon.coordinator.ticks_limit
    assert before - 100 * MIB // TICK_BYTES < slowly < 0.85 * before
    daemon.run(60)
    assert daemon.coordinator.ticks_limit == pytest.approx(before, rel=0.01)


def test_the_reservations_are_what_the_processes_leave_and_start_with_their_share() -> None:
    daemon = Daemon(memory_budget_mb=600, batch_share=0.3, base_bytes=50 * MIB)
    daemon.run(1)
    shown = daemon.horizon.reservations
    left = AIM * 600 * MIB - (WORKERS_BYTES + FIXED_BYTES - 50 * MIB)
    assert shown.batch_bytes + shown.replay_bytes == pytest.approx(left, abs=2)
    assert shown.batch_bytes == pytest.approx(0.3 * left, abs=2)


def test_batches_are_reserved_no_more_than_the_largest_can_use() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(1)
    assert daemon.horizon.reservations.batch_bytes == 4 * BASE_BYTES


def test_every_learner_gets_its_part_of_the_batches_memory() -> None:
    daemon = Daemon(memory_budget_mb=600, learners=3)
    changes = daemon.run(1)
    assert changes.batch_bytes == daemon.horizon.reservations.batch_bytes // 3
    daemon.desired = with_changes(
        daemon.desired, batch_bytes=changes.batch_bytes, r3={"mode": "max-p"}
    )
    assert daemon.coordinator._keeper.batch_size(daemon.desired) == 32
    daemon.desired = with_changes(daemon.desired, r3={"deadline_s": 1.0, "data_budget": 1000})
    assert daemon.coordinator._keeper.batch_size(daemon.desired) == 128


def test_batches_of_the_smallest_size_are_kept_while_the_workers_grow() -> None:
    daemon = Daemon(
        base_bytes=16 * MIB, mode="step", deadline_s=5.0, data_budget=10_000, memory_budget_mb=275
    )
    for _ in range(60):
        daemon.private += MIB // 4
        changes = daemon.run(1, ticks_per_s=50)
        if changes is not None:
            daemon.desired = replace(daemon.desired, batch_bytes=changes.batch_bytes)
        daemon.coordinator._keeper.advance(
            int(daemon.clock.now() * 1e9), 32, 1, daemon.metrics.environment, daemon.desired
        )
    assert daemon.coordinator._keeper.batch_size(daemon.desired) >= 32
    assert daemon.used <= 275 * MIB


def test_batches_of_a2c_have_the_memory_of_a_rollout() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.desired = with_changes(
        daemon.desired, learning={"algorithm": "a2c", "rollout": 256, "batch_size": 8}
    )
    daemon.run(2.0)
    assert daemon.horizon.reservations.batch_bytes >= 256 / 32 * BASE_BYTES
    assert daemon.coordinator._keeper.batch_size(daemon.desired) == 256


def test_a_new_batch_size_is_given_its_memory_at_once() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(1)
    daemon.desired = with_changes(daemon.desired, learning={"batch_size": 64})
    changes = daemon.run(0.1)
    assert changes.batch_bytes == 8 * BASE_BYTES


def test_a_long_bad_episode_moves_memory_as_equation_5_says() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=50 * MIB)
    daemon.run(1)
    before = daemon.horizon.reservations
    daemon.finish_episode(60, 10.0)
    daemon.finish_episode(180, 5.0)
    after = daemon.horizon.reservations
    assert (after.alpha, after.beta) == (pytest.approx(3.0), pytest.approx(0.5))
    batch = before.batch_bytes * (1 + 2.0 * 0.5)
    replay = before.replay_bytes * (1 + 1.0 * 0.5)
    total = before.batch_bytes + before.replay_bytes
    assert after.batch_bytes == pytest.approx(total * batch / (batch + replay), rel=1e-3)
    assert after.batch_bytes + after.replay_bytes == pytest.approx(total, rel=1e-3)


def test_alpha_and_beta_move_memory_where_there_is_plenty_of_it() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=10 * MIB)
    changes = daemon.run(1)
    assert changes.batch_bytes == 40 * MIB
    before = daemon.horizon.reservations
    total = before.batch_bytes + before.replay_bytes
    daemon.finish_episode(60, 10.0)
    changes = daemon.finish_episode(60, 5.0)
    replay = 1.5 * before.replay_bytes
    expected = total * before.batch_bytes / (before.batch_bytes + replay)
    assert changes.batch_bytes == pytest.approx(expected, rel=1e-3)
    changes = daemon.finish_episode(600, 5.0)
    assert changes.batch_bytes == 40 * MIB


def test_the_division_returns_to_the_configured_one() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=10 * MIB)
    daemon.run(1)
    for value in (10.0, 5.0, 2.0):
        daemon.finish_episode(60, value)
    assert daemon.horizon.reservations.batch_bytes < 25 * MIB
    for _ in range(24):
        daemon.finish_episode(60, 2.0)
    assert daemon.horizon.reservations.batch_bytes == pytest.approx(40 * MIB, rel=0.01)


def test_bad_episodes_leave_the_batches_what_the_smallest_needs() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=50 * MIB)
    daemon.run(1)
    shares = []
    for number in range(400):
        daemon.finish_episode(60, -(1.5 ** min(number, 200)))
        shares.append(daemon.horizon.reservations.batch_bytes / MIB)
    assert min(shares) == pytest.approx(50, abs=0.01)


def test_the_first_episode_has_none_before_it_to_be_compared_with() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(1)
    daemon.finish_episode(60, 1.0)
    found = daemon.horizon.reservations
    assert np.isnan([found.alpha, found.beta]).all()


def test_a_return_that_is_no_number_changes_nothing() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(1)
    before = daemon.horizon.reservations
    daemon.finish_episode(60, 1.0)
    daemon.finish_episode(60, float("nan"))
    daemon.finish_episode(60, 1.0)
    after = daemon.horizon.reservations
    assert (after.alpha, after.beta) == (1.0, 1.0)
    assert after.replay_bytes == before.replay_bytes


def test_a_budget_below_what_the_workers_need_is_refused_with_the_figures() -> None:
    daemon = Daemon(memory_budget_mb=220)
    with pytest.raises(UserError, match=r"r3.memory_budget_mb = 220 is too little.*216.0 MiB") as e:
        daemon.run(2)
    least = int(str(e.value).rpartition("give it ")[2].split()[0])
    enough = Daemon(memory_budget_mb=least)
    enough.run(60, ticks_per_s=1000)
    assert enough.used <= 1.02 * least * MIB
    with pytest.raises(UserError):
        Daemon(memory_budget_mb=least - 2).run(2)


def test_a_budget_is_changed_while_running_and_refused_whole() -> None:
    daemon = Daemon()
    daemon.run(100, ticks_per_s=1000)
    assert daemon.used > 900 * MIB
    with pytest.raises(UserError):
        daemon.coordinator.set_budget(100, daemon.desired)
    assert daemon.run(2) is None
    daemon.coordinator.set_budget(500, daemon.desired)
    daemon.run(2)
    assert daemon.used <= 500 * MIB
    daemon.coordinator.set_budget(None, daemon.desired)
    changes = daemon.run(1)
    assert changes == Changes(None, 100_000)


def test_workers_that_outgrow_an_accepted_budget_are_reported_once() -> None:
    daemon = Daemon(memory_budget_mb=400)
    daemon.run(30, ticks_per_s=1000)
    daemon.private += 400 * MIB
    daemon.run(10)
    assert len(daemon.events_of("memory_budget_exceeded")) == 1
    assert daemon.coordinator.ticks_limit == 1000


def test_a_large_change_of_the_division_is_an_event_with_its_inputs() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(30, ticks_per_s=100)
    assert len(daemon.events_of("memory_division")) == 1
    daemon.private += 50 * MIB
    daemon.run(5)
    first, second = daemon.events_of("memory_division")[:2]
    assert second["baseline_bytes"] - first["baseline_bytes"] == 50 * MIB
    assert second["ticks_limit"] < first["ticks_limit"]


def test_it_measures_once_a_second_and_goes_on_while_it_waits_for_the_figure() -> None:
    daemon = Daemon(memory_budget_mb=600)
    asked: list[float] = []

    def later(pids: object, everybody: bool) -> Measured | None:
        asked.append(daemon.clock.now())
        return Measured(WORKERS_BYTES, everybody) if len(asked) % 4 == 0 else None

    daemon.coordinator._usage._measure_private = later
    daemon.run(0.3)
    assert daemon.events_of("memory_division") == []
    with pytest.raises(NotMeasured):
        daemon.coordinator.set_budget(700, daemon.desired)
    daemon.run(60)
    assert daemon.events_of("memory_division")
    answered = asked[3::4]
    assert np.diff(answered) == pytest.approx([1.3] * (len(answered) - 1), abs=0.11)


# ---- the horizon


def test_a_deadline_that_passes_without_learning_is_an_event() -> None:
    daemon = Daemon(mode="step", deadline_s=5.0, data_budget=1000)
    daemon.coordinator._keeper.advance(
        int(daemon.clock.now() * 1e9), 32, 1, daemon.metrics.environment, daemon.desired
    )
    daemon.run(5.5)
    (told,) = daemon.events_of("horizon")
    assert (told["outcome"], told["horizon"], told["consumed"]) == ("missed", 0, 32)
    assert daemon.horizon.read().missed == 1


def test_a_lock_that_is_taken_is_left_alone() -> None:
    daemon = Daemon(mode="step", deadline_s=5.0, data_budget=1000)
    daemon.lock.taken = True
    daemon.run(10)
    assert daemon.horizon.read().seen_ns == 0


def test_after_a_night_in_which_everything_was_stopped_memory_is_divided_as_before() -> None:
    daemon = Daemon(memory_budget_mb=400)
    daemon.run(20.0, ticks_per_s=60)
    before = daemon.coordinator.ticks_limit
    daemon.clock.advance(12 * 3600.0)
    daemon.run(20.0, ticks_per_s=60)
    assert daemon.coordinator.ticks_limit >= before
