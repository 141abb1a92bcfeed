"""The automatic number of processes, in virtual time: against a small model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest

from rtagent.supervisor.autoscaler import (
    NO_MORE,
    AutoScaler,
    Limits,
    Measured,
    Move,
    first_guess,
)

TICK = 1.0 / 59.7275
WINDOW_S = 5.0
STARTING_S = 1.0
"""Until new processes act, nothing is known."""
LIMITS = Limits(TICK, "adaptive", 256)
MINUTES = 60.0

Times = Callable[[float, int], float]
"""Inference time in ticks at a second, with so many processes."""


@dataclass
class Model:
    """Processes whose samples arrive as often as their inference time lets them."""

    times: Times
    limits: Limits = LIMITS
    processes: int = 2
    now: float = 0.0
    moves: list[tuple[float, Move]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scaler = AutoScaler(0.0, self.processes, self.limits)
        self.taus: list[tuple[float, float]] = []
        self._known_from = self._changed = 0.0

    def run(self, seconds: float) -> list[Move]:
        """Go on; returns what was changed meanwhile."""
        before = len(self.moves)
        until = self.now + seconds
        while self.now < until:
            self.now += 1.0
            self._infer()
            measured = self.measured() if self.now >= self._known_from else None
            move = self.scaler.step(self.now, measured)
            if move is not None:
                assert move.before == self.processes != move.after
                assert 1 <= move.after <= self.limits.most
                self.moves.append((self.now, move))
                self.processes = move.after
                self._known_from = self.now + STARTING_S
                self._changed = self.now
        return [move for _, move in self.moves[before:]]

    def interaction(self) -> float:
        """Seconds between two actions now, on the mean."""
        recent = [tau for at, tau in self.taus if at > self.now - 2.0]
        return max(TICK, float(np.mean(recent)) / self.processes)

    def measured(self) -> Measured | None:
        since = max(self.now - WINDOW_S, self._changed)
        taus = np.array([tau for at, tau in self.taus if at > since])
        if not len(taus):
            return None
        interaction = max(TICK, float(taus.mean()) / self.processes)
        longest = max(float(taus.mean()), float(np.percentile(taus, 99)))
        return Measured(
            float(taus.mean()), longest, len(taus), interaction, 1.0 - TICK / interaction
        )

    def _infer(self) -> None:
        """One second's worth of inferences."""
        self.taus = [(at, tau) for at, tau in self.taus if at > self.now - WINDOW_S]
        at = self.now - 1.0
        while at < self.now:
            tau = self.times(at, self.processes) * TICK
            self.taus.append((at, tau))
            at += max(TICK, tau / self.processes)


def decided(
    processes: int, measured: Callable[[int], Measured | None], seconds: int,
    limits: Limits = LIMITS,
) -> list[Move]:
    """What is changed within so many seconds, at each of which so much is measured."""
    scaler = AutoScaler(0.0, processes, limits)
    moves = [scaler.step(float(second), measured(second)) for second in range(seconds)]
    return [move for move in moves if move is not None]


def constant(ticks: float) -> Times:
    return lambda at, processes: ticks


def drawn(
    ticks: float, seed: int, spread: float = 0.02, outliers: float = 0.0, cores: int = 256
) -> Times:
    """Normal times, of which a share takes ten times as long; all longer where cores are few."""
    rng = np.random.default_rng(seed)

    def draw(at: float, processes: int) -> float:
        long = 10.0 if outliers and rng.random() < outliers else 1.0
        return float(rng.normal(ticks, spread * ticks)) * long * max(1.0, processes / cores)

    return draw


@pytest.mark.parametrize("ticks", [0.2, 0.99, 4.9, 5.0, 30.0])
def test_a_constant_time_takes_one_move_and_no_more(ticks: float) -> None:
    model = Model(constant(ticks))
    model.run(15.0)
    assert np.ceil(ticks) <= model.processes <= max(np.ceil(ticks), first_guess(LIMITS))
    assert len(model.moves) <= 1
    assert model.run(10 * MINUTES) == []


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ticks", [4.9, 5.0, 12.0])
def test_noise_is_not_followed(ticks: float, seed: int) -> None:
    model = Model(drawn(ticks, seed, 0.1))
    model.run(20.0)
    assert model.interaction() <= 1.02 * TICK
    assert len(model.run(10 * MINUTES)) <= 1
    assert ticks < model.processes <= 1.3 * ticks + 2


@pytest.mark.parametrize("seed", range(2))
def test_one_inference_in_a_hundred_may_take_ten_times_as_long(seed: int) -> None:
    model = Model(drawn(5.0, seed, outliers=0.01))
    model.run(30.0)
    assert len(model.run(10 * MINUTES)) <= 1
    assert 6 <= model.processes <= 9


def test_the_longest_time_counts_where_the_algorithm_waits_for_it() -> None:
    model = Model(drawn(5.0, 0, 0.1), Limits(TICK, "maximum-time", 256))
    model.run(30.0)
    assert len(model.run(10 * MINUTES)) <= 1
    assert 6 <= model.processes <= 8


def test_three_times_slower_and_back() -> None:
    slow = (100.0, 160.0)
    model = Model(lambda at, processes: 15.0 if slow[0] <= at < slow[1] else 5.0)
    model.run(100.0)
    assert model.processes == 5
    model.run(25.0)
    assert model.processes == 15, "within seconds"
    assert model.run(35.0 + 55.0) == [], "not given up at once"
    model.run(30.0)
    assert model.processes in (5, 6)
    assert model.moves[-1][1].why.endswith(" are enough, and for 60 s fewer than 15 were")
    assert len(model.moves) <= 4
    assert model.run(10 * MINUTES) == []


def test_slow_drift_is_followed() -> None:
    model = Model(lambda at, processes: 5.0 + 5.0 * min(1.0, at / 300.0))
    late = 0
    for _ in range(360):
        model.run(1.0)
        late += model.interaction() > 1.02 * TICK
    assert model.processes >= 10
    assert late < 60
    assert all(move.after > move.before for _, move in model.moves)


@pytest.mark.parametrize(("ticks", "cores"), [(2.0, 2), (5.0, 2), (9.0, 4)])
def test_processes_beyond_the_free_cores_are_given_back(ticks: float, cores: int) -> None:
    """The machine has eight cores, and others leave it only a few."""
    model = Model(drawn(ticks, 0, cores=cores), Limits(TICK, "adaptive", 8))
    model.run(60.0)
    assert cores <= model.processes <= cores + 1
    assert len(model.moves) <= 4, "found, and given back"
    assert "do not help here" in model.moves[-1][1].why
    assert model.run(9 * MINUTES) == []


def test_what_did_not_help_is_tried_again_after_a_while() -> None:
    """Two processes do not become faster when other programs leave them more cores."""
    model = Model(
        lambda at, processes: 5.0 * max(1.0, processes / (2 if at < 120.0 else 8)),
        Limits(TICK, "adaptive", 8),
    )
    model.run(15 * MINUTES)
    assert model.processes == 2
    model.run(10 * MINUTES)
    assert model.processes == 5


def test_a_number_that_was_enough_for_long_was_no_mistake() -> None:
    model = Model(lambda at, processes: 15.0 if at % 600.0 < 60.0 else 5.0)
    for _ in range(3):
        model.run(50.0)
        assert model.processes == 15
        model.run(100.0)
        assert model.processes in (5, 6), "given up as soon as the first time"
        model.run(450.0)


def test_how_soon_more_are_added() -> None:
    """When they are needed, once more after a growth, and after a process was away."""
    scaler, moves = AutoScaler(0.0, 3, LIMITS), []
    for second in range(130):
        ticks = 2.0 if second < 50 else 5.0 if second < 58 else 10.0 if second < 101 else 14.0
        measured = Measured(ticks * TICK, ticks * TICK, 200, None, None)
        move = scaler.step(float(second), None if second == 100 else measured)
        moves += [] if move is None else [(second, move.after)]
    assert moves == [(56, 5), (67, 10), (111, 14)]


def test_cores_that_come_free_are_used() -> None:
    model = Model(
        lambda at, processes: 4.0 * max(1.0, processes / (1 if at < 120.0 else 8)),
        Limits(TICK, "adaptive", 8),
    )
    model.run(119.0)
    assert model.processes == 2
    model.run(30.0)
    assert model.processes == 4


def test_never_more_than_the_cores() -> None:
    model = Model(constant(9.0), Limits(TICK, "adaptive", 4))
    model.run(30.0)
    assert model.processes == 4
    assert model.moves[0][1].why.endswith(f"4 processes are not enough, but {NO_MORE}")
    assert model.run(10 * MINUTES) == []


def test_a_slower_policy_during_a_growth_is_not_taken_for_contention() -> None:
    model = Model(lambda at, processes: 2.5 if at < 4.0 else 30.0)
    assert [move.after for move in model.run(4.0)] == [3]
    model.run(50.0)
    assert model.processes == 30


def test_without_measurements_nothing_changes() -> None:
    few = Measured(1.0, 1.0, 2, None, None)
    assert decided(3, lambda second: None if second < 200 else few, 400) == []


def test_a_hold_up_of_the_machine_changes_nothing() -> None:
    """One second in a hundred, every inference takes six times as long."""
    model = Model(lambda at, processes: 24.0 if 50.0 < at % 100.0 < 51.0 else 4.0)
    model.run(20.0)
    assert model.processes == 4
    assert len(model.run(10 * MINUTES)) <= 1


SLOW_LIMITS = Limits(1.0, "adaptive", 256)


def test_a_growth_is_judged_when_new_slow_processes_have_acted() -> None:
    """An inference takes 5 s, and so long the new processes bring nothing; 20 s are measured.

    At first only two actions are known, which came one after the other.
    """

    def measured(second: int) -> Measured:
        if second == 2:
            return Measured(5.0, 5.0, 3, 1.0, None)
        seen = range(max(0, second - 20), second + 1)
        actions = sum(1.0 / 2.5 if each < 9 else 1.0 for each in seen)
        return Measured(5.0, 5.0, 10, len(seen) / actions, None)

    assert [move.after for move in decided(2, measured, 150, SLOW_LIMITS)] == [5]


def test_slow_processes_that_have_not_acted_yet_are_not_too_few() -> None:
    """Six were set by hand, and at first the actions of two are known."""
    well, late = (Measured(5.0, 5.0, 10, between, None) for between in (1.0, 2.5))
    assert decided(6, lambda second: late if second < 10 else well, 50, SLOW_LIMITS) == []


def test_a_hold_up_changes_nothing_where_it_is_measured_for_long() -> None:
    well, late = (Measured(5.0, 5.0, 10, between, None) for between in (1.0, 1.2))
    slow = range(50, 70)
    assert decided(5, lambda second: late if second in slow else well, 150, SLOW_LIMITS) == []


def test_a_growth_to_the_limit_is_kept_where_interaction_times_say_nothing() -> None:
    """Even if inference then takes twice as long, and calls for still more."""
    before, after = (Measured(x * TICK, x * TICK, 200, None, None) for x in (8.0, 16.0))
    limits = Limits(TICK, "unstaggered", 4)
    moves = decided(2, lambda second: before if second < 5 else after, 300, limits)
    assert [move.after for move in moves] == [4]


def test_a_world_slower_than_its_rate_is_not_the_agents_fault() -> None:
    measured = Measured(0.5 * TICK, 0.5 * TICK, 200, 1.3 * TICK, 0.0)
    moves = decided(1, lambda second: measured, 600)
    assert [move.after for move in moves] == [2, 1], "tried, and given up"


def test_a_number_that_was_too_small_is_remembered() -> None:
    """Fewer processes than nine are slower each: what is seen at nine misleads."""
    model = Model(lambda at, processes: 5.0 if processes >= 9 and at > 3.0 else 8.5, processes=9)
    model.run(15 * MINUTES)
    shrunk = [move for _, move in model.moves if move.after < move.before]
    assert 1 <= len(shrunk) <= 2


def test_an_event_says_why() -> None:
    model = Model(constant(4.9))
    model.run(10.0)
    ((_, move),) = model.moves
    assert (move.before, move.after) == (2, 5)
    assert move.why == (
        "an inference takes 82.0 ms (p99 82.0 ms) and actions come every 41.0 ms: "
        "for one every 16.7 ms, 5 processes are enough"
    )
    assert move.inputs["inference_ms"] == pytest.approx(82.04, abs=0.01)
    assert move.inputs["samples"] >= 3
    assert move.inputs["algorithm"] == "adaptive"


def test_too_few_are_not_called_enough() -> None:
    """Inference time calls for one process, interaction time for three."""
    late = Measured(0.5 * TICK, 0.5 * TICK, 200, 3.0 * TICK, 0.6)
    move, *_ = decided(1, lambda second: late, 10, Limits(TICK, "adaptive", 2))
    assert move.why.endswith(f"2 processes are not enough, but {NO_MORE}")


def test_a_number_beyond_which_nothing_helped_is_not_called_enough() -> None:
    late, well = (
        Measured(x * TICK, x * TICK, 200, between * TICK, 0.0)
        for x, between in ((20.0, 1.3), (14.5, 1.0))
    )
    moves = decided(20, lambda second: well if 30 < second < 110 else late, 130)
    assert [move.after for move in moves][:4] == [25, 20, 17, 20]
    assert moves[3].why.endswith("are not enough, but more than 20 have not helped here")


def test_the_first_guess() -> None:
    assert first_guess(LIMITS) == 2
    assert first_guess(dataclasses.replace(LIMITS, most=1)) == 1
    assert first_guess(dataclasses.replace(LIMITS, algorithm="maximum-time")) == 1


def test_surplus_processes_are_given_back_with_slots() -> None:
    """Actions reach the world once a tick at most: that says nothing about what is to spare."""
    model = Model(constant(4.9), Limits(TICK, "maximum-time", 256))
    model.run(20.0)
    model.times = constant(2.9)
    model.run(2 * MINUTES)
    assert model.processes in (3, 4)
