"""The shared state survives what a killed process, or anything else, leaves in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rtagent.staggering.adaptive import claim, complete
from rtagent.staggering.instructions import Moment
from rtagent.staggering.register import LIVE
from rtagent.staggering.simulator import Disturb, SimulationConfig, simulate
from rtagent.staggering.state import BOUNDS, MAX_PROCESSES, WINDOW, Plan, StaggerState, anchor
from tests.staggering.begun import fresh

TICK = 1.0 / 59.7275


def test_too_small_a_buffer_is_refused() -> None:
    StaggerState(bytearray(StaggerState.nbytes()))
    with pytest.raises(ValueError, match="bytes"):
        StaggerState(bytearray(StaggerState.nbytes() - 1))


def test_a_second_view_reads_what_the_first_wrote() -> None:
    memory = bytearray(StaggerState.nbytes())
    first, second = StaggerState(memory), StaggerState(memory)
    first.reset("expected-time", 12.5, MAX_PROCESSES)
    plan = first.load()
    plan.period, plan.base, plan.tau_total, plan.bounds = 0.25, 7, 3.5, 9
    first.store(plan)
    assert second.load() == plan
    assert second.load().epoch == 12.5
    assert (second.algorithm, second.processes) == ("expected-time", MAX_PROCESSES)


@pytest.mark.parametrize("processes", [0, -1, MAX_PROCESSES + 1])
def test_impossible_process_counts_are_refused(processes: int) -> None:
    state = fresh()
    with pytest.raises(ValueError, match="processes"):
        state.reset("adaptive", 0.0, processes)
    with pytest.raises(ValueError, match="worker"):
        state.join(processes or MAX_PROCESSES, 0.0)
    assert state.processes == 6


@pytest.mark.parametrize("update", ["", "-infer-learn", "-learn-infer"])
def test_sequential_has_one_process_whatever_is_asked(update: str) -> None:
    assert fresh(f"sequential{update}", 8).membership.ring == (0,)


def test_an_algorithm_begins_without_the_delays_of_the_one_before() -> None:
    state = fresh("published-maximum-time", 4)
    state.delays[1] = 0.03
    state.reset("adaptive", 0.0, 4)
    assert not state.delays.any()


def test_the_generation_changes_with_every_decision_of_the_owner() -> None:
    state = fresh()
    seen = [state.load().generation]
    for decide in (
        lambda: state.reset("maximum-time", 0.0, 6),
        lambda: state.leave(2, 1.0),
        lambda: state.join(2, 2.0),
    ):
        decide()
        seen.append(state.load().generation)
    assert seen == sorted(set(seen))
    state.leave(9, 4.0)
    state.join(1, 4.0)
    assert state.load().generation == seen[-1]


def test_a_new_process_keeps_no_more_inference_times_than_there_are() -> None:
    state = fresh()
    complete(state, 6, 0.08, False, TICK)
    state.join(6, 1.0)
    assert (state.load().samples, state.load().total_ns) == (1, 80_000_000)


def test_the_last_process_cannot_leave() -> None:
    state = fresh(processes=2)
    state.leave(0, 0.0)
    state.leave(1, 0.0)
    assert state.membership.ring == (1,)


@pytest.mark.parametrize(("now", "slot"), [(14.2, 5), (14.0, 4), (8.5, 0)])
def test_anchoring_keeps_the_time_and_the_owner_of_the_next_slot(now: float, slot: int) -> None:
    plan = Plan(epoch=10.0, period=3.0, base=1)
    anchor(plan, now, 6.0, 3)  # slots of the old plan: 10, 11, ...
    assert plan.epoch == pytest.approx(10.0 + slot)
    assert plan.base == (1 + slot) % 3
    assert plan.period == 6.0


def test_a_new_ring_starts_with_the_owner_of_the_next_slot() -> None:
    state = fresh("maximum-time", 4)
    state.store(replace(state.load(), period=4.0))
    state.leave(0, 1.5)  # slot 2, of worker 2, comes next
    assert state.membership.ring == (2, 3, 1)
    assert state.load().epoch == pytest.approx(2.0)
    assert state.load().base == 0
    state.join(0, 1.6)
    assert state.membership.ring == (2, 3, 1, 0)


def test_a_torn_plan_reads_as_a_fresh_one_of_another_generation() -> None:
    state = fresh()
    plan = replace(state.load(), samples=5, total_ns=500, bound=9)
    state.store(plan)
    at = bytes(state.memory).index((500).to_bytes(8, "little"))
    state.memory[at] ^= 1
    torn = state.load()
    assert (torn.samples, torn.total_ns, torn.bound) == (0, 0, 1)
    assert torn.generation != plan.generation


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch", float("nan")),
        ("period", float("inf")),
        ("next_frame", float("-inf")),
        ("tau_total", float("inf")),
        ("bound", 0),
        ("bound", 1 << 40),
        *((name, -1) for name in (
            "period", "samples", "total_ns", "above", "below", "flags", "bounds", "base",
        )),
    ],
)
def test_a_plan_with_absurd_values_is_not_believed(field: str, value: float) -> None:
    state = fresh()
    plan = replace(state.load(), samples=7)
    state.store(plan)
    assert state.load().samples == 7
    state.store(replace(plan, **{field: value}))
    assert state.load().samples == 0


def test_a_torn_membership_is_ignored_for_the_last_good_one() -> None:
    state = fresh("maximum-time", 9)
    assert state.processes == 9
    state.memory[:64] = bytes(64)
    assert (state.algorithm, state.processes) == ("maximum-time", 9)
    state.reset("expected-time", 0.0, 3)
    assert (state.algorithm, state.processes) == ("expected-time", 3)


def test_the_window_keeps_exactly_the_last_samples() -> None:
    state = fresh()
    plan = state.load()
    times = np.random.default_rng(1).integers(1000, 10**9, WINDOW + 300)
    for ns in times:
        state.record(plan, int(ns) * 1e-9 + 1e-10)
    assert plan.held == WINDOW
    assert sorted(state.tau_ns) == sorted(times[-WINDOW:])
    assert plan.total_ns == times[-WINDOW:].sum()
    plan.above, plan.below, plan.flags = 1, 2, 3
    state.keep_last(plan, 5)
    assert (plan.above, plan.below, plan.flags) == (0, 0, 0)
    assert list(state.tau_ns[:5]) == list(times[-5:])
    assert (plan.held, plan.total_ns) == (5, times[-5:].sum())


def test_a_kill_between_sample_and_plan_forgets_the_window() -> None:
    state = fresh()
    for _ in range(WINDOW + 10):
        complete(state, 6, 0.08, False, TICK)
    state.tau_ns[3] += 1
    plan = state.load()
    plan.above, plan.below = 3, 4
    state.record(plan, 0.08)
    assert (plan.samples, plan.above, plan.below) == (1, 0, 0)
    assert plan.bound == 5, "the bound outlives the window"


@pytest.mark.parametrize("tau", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_no_inference_time_breaks_the_window(tau: float) -> None:
    state = fresh()
    for _ in range(3):
        complete(state, 6, tau, False, TICK)
        claim(state, 6, Moment(0.0, 4), TICK)
    plan = state.load()
    assert plan.sane
    assert plan.held == 3


def test_random_bytes_never_raise() -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        state = fresh()
        size = len(state.memory)
        at = int(rng.integers(size))
        length = int(rng.integers(1, size - at + 1))
        state.memory[at : at + length] = rng.bytes(length) if rng.integers(2) else b"\xff" * length
        newest = int(rng.integers(-1, 1000))
        ticket = claim(state, state.processes, Moment(0.0, newest), TICK)
        assert newest <= ticket.frame <= newest + 2 + 4 * state.processes
        complete(state, state.processes, 0.08, True, TICK)
        assert state.load().sane


def _whole(state: StaggerState, rng: np.random.Generator) -> None:
    state.memory[:] = rng.bytes(len(state.memory))


def _stretch(state: StaggerState, rng: np.random.Generator) -> None:
    at = int(rng.integers(len(state.memory)))
    length = int(rng.integers(1, 200))
    tail = state.memory[at : at + length]
    tail[:] = rng.bytes(len(tail))


def _windows(state: StaggerState, rng: np.random.Generator) -> None:
    state.tau_ns[:] = rng.integers(-(1 << 62), 1 << 62, WINDOW)
    state.bounds[:] = rng.integers(0, 1 << 16, BOUNDS)
    state.late[:] = rng.integers(0, 256, WINDOW)


def _plausible_plan(state: StaggerState, rng: np.random.Generator) -> None:
    """A plan with a valid checksum, whose values are possible but wrong."""
    plan = state.load()
    plan.epoch = float(rng.uniform(-1e6, 1e6))
    plan.next_frame = float(rng.uniform(-1e6, 1e6))
    plan.base = int(rng.integers(1 << 40))
    plan.samples = int(rng.integers(1 << 40))
    plan.above, plan.below = (int(n) for n in rng.integers(0, 1 << 20, 2))
    plan.total_ns = int(rng.integers(1 << 60))
    plan.flags, plan.bounds = (int(n) for n in rng.integers(0, 1 << 40, 2))
    state.store(plan)


@pytest.mark.parametrize("algorithm", LIVE)
@pytest.mark.parametrize("damage", [_whole, _stretch, _windows, _plausible_plan])
def test_two_seconds_after_damage_every_tick_is_acted_on_again(
    algorithm: str, damage: Callable[[StaggerState, np.random.Generator], None]
) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        config = SimulationConfig(
            algorithm=algorithm,
            processes=7,
            inference_ticks=5.0,
            distribution="gauss",
            spread=0.01,
            seconds=12.0,
            events=(Disturb(4.0, lambda state, rng=rng: damage(state, rng)),),  # type: ignore[misc]
        )
        result = simulate(config, np.random.default_rng(seed))
        # Of 358 ticks; slots lose a few when they fall close to the time of a tick.
        allowed = 0 if algorithm == "adaptive" else 4
        assert result.lost(6.0, 12.0)[0] <= allowed, f"seed {seed}: {result.lost(6.0, 12.0)}"
