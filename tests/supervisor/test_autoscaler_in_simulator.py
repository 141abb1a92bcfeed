"""The automatic number of processes, with the staggering algorithms in their simulator."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rtagent.staggering.inference_times import InferenceTimes, Slowdown
from rtagent.staggering.simulator import (
    Event,
    SetProcesses,
    SimulationConfig,
    SimulationResult,
    simulate,
)
from rtagent.supervisor.autoscaler import LATE, AutoScaler, Limits, Measured, Move, first_guess
from tests.supervisor.test_autoscaler import TICK, WINDOW_S, decided


def interaction_s(result: SimulationResult, since: float, until: float) -> float | None:
    mean = result.figures(since, until)["interaction_mean"]
    return None if mean is None else mean * TICK


def closed_loop(config: SimulationConfig) -> tuple[SimulationResult, list[tuple[float, Move]]]:
    """The project's simulator with the scaler in charge.

    A seed gives the same run up to the first new event: so after each move the run is simulated
    anew, with that move in its script.
    """
    slowdowns = [event for event in config.events if isinstance(event, Slowdown)]
    mean = config.inference_ticks * config.tick_seconds
    times = InferenceTimes(
        mean, config.distribution, config.spread, config.seconds, slowdowns,
        np.random.default_rng(1),
    )
    limits, moves = Limits(config.tick_seconds, config.algorithm, 256), list[tuple[float, Move]]()
    config = dataclasses.replace(config, processes=first_guess(limits))
    scaler = AutoScaler(0.0, config.processes, limits)
    result, changed = simulate(config, np.random.default_rng(0)), 0.0
    for now in range(1, int(config.seconds)):
        since = max(now - WINDOW_S, changed)
        inferred = sum(since <= action.registered_at < now for action in result.actions)
        if not inferred:
            continue
        taus = np.array([times.draw(float(at)) for at in np.linspace(since, now, inferred)])
        lost, ran = result.lost(since, now)[0], (now - since) / config.tick_seconds
        measured = Measured(
            float(taus.mean()),
            max(float(taus.mean()), float(np.percentile(taus, 99))),
            len(taus),
            interaction_s(result, since, now),
            lost / ran,
        )
        move = scaler.step(float(now), measured)
        if move is not None:
            moves.append((float(now), move))
            changed = float(now)
            event: Event = SetProcesses(changed, move.after)
            config = dataclasses.replace(config, events=(*config.events, event))
            result = simulate(config, np.random.default_rng(0))
    return result, moves


@pytest.mark.parametrize(("algorithm", "ticks", "distribution", "spread"), [
    ("adaptive", 0.5, "gauss", 0.02),
    ("adaptive", 5.0, "gauss", 0.02),
    ("adaptive", 5.0, "outliers", 0.01),
    ("adaptive", 12.0, "lognormal", 0.3),
    ("maximum-time", 4.9, "gauss", 0.02),
])
def test_really_acts_in_time_once_settled(
    algorithm: str, ticks: float, distribution: str, spread: float
) -> None:
    """Slots lose a tick whenever an inference takes longer than any before."""
    config = SimulationConfig(
        algorithm=algorithm, inference_ticks=ticks, distribution=distribution, spread=spread,
        seconds=120.0,
    )
    result, moves = closed_loop(config)
    assert len(moves) <= 2
    settled = moves[-1][0] + 3.0 if moves else 3.0
    assert settled < 60.0
    inaction = result.figures(since=settled)["inaction_fraction"]
    assert inaction <= (0.001 if algorithm == "adaptive" else 0.003)
    between = interaction_s(result, settled, 120.0)
    assert between <= LATE * TICK


@pytest.mark.parametrize("processes", [2, 5])
def test_processes_in_step_are_as_late_as_one_and_more_of_them_are_no_remedy(
    processes: int
) -> None:
    config = SimulationConfig(
        algorithm="unstaggered", processes=processes, inference_ticks=4.9, seconds=60.0
    )
    result = simulate(config, np.random.default_rng(0))
    between = interaction_s(result, 30.0, 60.0)
    assert between == pytest.approx(4.9 * TICK, rel=0.01)
    limits = Limits(TICK, "unstaggered", 256)
    measured = Measured(4.9 * TICK, 4.9 * TICK, 100, between, 0.8)
    moves = decided(processes, lambda second: measured, 300, limits)
    assert [move.after for move in moves] == [5] * (processes != 5)
    assert all(move.why.endswith(" are what the inference time calls for") for move in moves)


def test_three_times_slower_costs_seconds_in_the_simulator() -> None:
    slow = Slowdown(20.0, 60.0, 3.0)
    result, moves = closed_loop(SimulationConfig(inference_ticks=4.0, seconds=60.0, events=(slow,)))
    assert moves[-1][1].after >= 12
    assert result.figures(since=40.0)["inaction_fraction"] == pytest.approx(0.0, abs=0.001)
    assert result.lost(until=40.0)[0] < 8.0 / TICK
