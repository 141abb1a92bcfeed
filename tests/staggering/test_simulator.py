"""The simulator: repeatable, and true to its script and to the order of time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import processes_needed
from rtagent.staggering.inference_times import (
    DISTRIBUTIONS,
    InferenceTimes,
    Slowdown,
    outliers,
)
from rtagent.staggering.register import ALGORITHMS, LIVE
from rtagent.staggering.simulator import (
    Disturb,
    Kill,
    Outlier,
    SetProcesses,
    SimulationConfig,
    SimulationResult,
    simulate,
)


def run(seed: int = 0, **options: object) -> SimulationResult:
    return simulate(SimulationConfig(**{"seconds": 20.0} | options), np.random.default_rng(seed))  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_seed_gives_the_same_run_and_another_gives_another(algorithm: str) -> None:
    options = {"algorithm": algorithm, "distribution": "gauss", "spread": 0.1}
    first, again, other = (run(seed, **options) for seed in (3, 3, 4))
    assert first.ticks == again.ticks
    assert first.actions == again.actions
    assert first.figures() == again.figures()
    assert first.actions != other.actions


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_executed_before_it_was_seen_and_computed(algorithm: str) -> None:
    result = run(algorithm=algorithm, inference_ticks=3.0, processes=4)
    assert [record.tick for record in result.ticks] == list(range(len(result.ticks)))
    assert len(result.ticks) == int(20.0 * 59.7275)
    acted = [record for record in result.ticks if record.source != Source.DEFAULT]
    assert acted
    assert all(record.delay == record.tick - record.frame >= 3 for record in acted)


@pytest.mark.parametrize("algorithm", LIVE)
def test_more_work_than_processes_can_do_shows_as_inaction(algorithm: str) -> None:
    found = run(algorithm=algorithm, inference_ticks=8.0, processes=4, fill=0).figures()
    assert found["inaction_fraction"] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("chunk", [1, 3])
def test_an_action_for_a_tick_after_the_end_is_not_called_overwritten(chunk: int) -> None:
    result = run(chunk=chunk)
    assert result.figures()["inaction_fraction"] == 0.0
    assert result.figures()["overwritten_fraction"] == 0.0


@pytest.mark.parametrize("algorithm", ["maximum-time", "expected-time"])
@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_actions_of_whole_ticks_do_not_come_when_ticks_choose(algorithm: str, ticks: int) -> None:
    """Else chance would decide at every tick which of two it finds, and lose the other."""
    found = run(algorithm=algorithm, inference_ticks=float(ticks), processes=ticks).figures()
    assert found["inaction_fraction"] == found["overwritten_fraction"] == 0.0
    assert found["delay_mean"] == ticks + 1


def test_strictly_one_action_per_tick_without_fill() -> None:
    options = {"processes": 8, "distribution": "outliers", "spread": 0.02}
    assert any(r.source == Source.REUSED for r in run(**options).ticks)
    assert not any(r.source == Source.REUSED for r in run(fill=0, **options).ticks)


@pytest.mark.parametrize("spare", [0, 1])
@pytest.mark.parametrize(
    ("step", "inference", "delay"), [(0.48, 0.5, 2), (0.45, 1.5, 3), (0.68, 0.3, 2), (0.15, 0.8, 2)]
)
def test_the_time_that_a_step_takes_costs_no_action(
    step: float, inference: float, delay: int, spare: int
) -> None:
    """Without it in D, actions would come about when those of their ticks are chosen."""
    found = run(
        inference_ticks=inference, processes=math.ceil(inference) + spare, step_ticks=step,
        distribution="gauss", spread=0.02, seconds=60.0,
    ).figures()
    assert found["inaction_fraction"] < 0.001
    assert found["delay_mean"] == delay


CHUNKS = {"processes": 2, "inference_ticks": 8.0, "distribution": "outliers", "spread": 0.01}


def test_chunks_cover_what_two_processes_are_too_few_for() -> None:
    alone, chunks = (run(chunk=chunk, seconds=60.0, **CHUNKS) for chunk in (1, 10))
    assert alone.figures()["inaction_fraction"] == pytest.approx(0.5, abs=0.05)
    assert alone.figures()["from_chunk_fraction"] == 0.0
    found = chunks.figures()
    assert found["inaction_fraction"] <= 0.001
    assert found["from_chunk_fraction"] == pytest.approx(0.79, abs=0.05)
    assert found["overwritten_fraction"] <= 0.02
    # An action is older than a single one by its position, at most 9.
    assert found["delay_p99"] <= alone.figures()["delay_p99"] + 9


def test_chunks_are_an_insurance_against_a_death() -> None:
    options = CHUNKS | {"distribution": "constant", "events": (Kill(10.0, 1),)}
    assert run(chunk=10, **options).lost(1.0, 10.0) == (0, 0)
    after = run(chunk=10, **options).figures(11.0, 20.0)
    assert after["inaction_fraction"] <= 0.15
    assert run(**options).figures(11.0, 20.0)["inaction_fraction"] >= 0.6


def test_killing_every_process_stops_all_action() -> None:
    result = run(processes=6, events=tuple(Kill(10.0, worker) for worker in range(6)))
    assert result.lost(2.0, 10.0) == (0, 0)
    assert result.lost(11.0, 20.0)[0] == len(
        [record for record in result.ticks if 11.0 <= record.at < 20.0]
    )


def test_more_processes_end_inaction_live() -> None:
    result = run(processes=3, events=(SetProcesses(10.0, 7),))
    assert result.lost(5.0, 10.0)[0] > 40
    assert result.lost(12.0) == (0, 0)


@pytest.mark.parametrize("before", LIVE)
@pytest.mark.parametrize("after", LIVE)
def test_the_algorithm_changes_live(before: str, after: str) -> None:
    change = Disturb(10.0, lambda state: state.reset(after, 10.0, 7))
    result = run(algorithm=before, processes=7, events=(change,))
    assert result.lost(2.0, 10.0)[0] == 0
    assert result.lost(12.0)[0] == 0


@pytest.mark.parametrize(
    ("spread", "found"),
    [(0.0, (0.01, 10.0)), (0.05, (0.05, 10.0)), (1.0, (0.01, 1.0)), (25.0, (0.01, 25.0))],
)
def test_the_spread_of_outliers_is_a_share_or_a_factor(
    spread: float, found: tuple[float, float]
) -> None:
    assert outliers(spread) == found


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_distributions_have_the_mean_they_promise(distribution: str) -> None:
    spread = {"outliers": 0.01, "lognormal": 0.5}.get(distribution, 0.02)
    times = InferenceTimes(0.1, distribution, spread, 100.0, (), np.random.default_rng(0))
    drawn = [times.draw(0.0) for _ in range(20_000)]
    promised = 0.1 * (1.09 if distribution == "outliers" else 1.0)
    assert np.mean(drawn) == pytest.approx(promised, rel=0.02)
    assert np.std(drawn) > 0 or distribution == "constant"


def test_drift_step_and_slowdown_follow_the_clock() -> None:
    def mean(distribution: str, now: float) -> float:
        slow = (Slowdown(90.0, 95.0, 3.0),)
        rng = np.random.default_rng(0)
        times = InferenceTimes(1.0, distribution, 0.5, 100.0, slow, rng)
        return float(np.mean([times.draw(now) for _ in range(3000)]))

    assert mean("drift", 50.0) == pytest.approx(1.5, rel=0.01)
    assert mean("drift", 100.0) == pytest.approx(1.0, rel=0.01)
    assert mean("step", 49.0) == pytest.approx(1.0, rel=0.01)
    assert mean("step", 50.0) == pytest.approx(1.5, rel=0.01)
    assert mean("constant", 94.0) == 3.0
    assert mean("constant", 95.0) == 1.0


@pytest.mark.parametrize("at", [0.5, 4.0])
def test_one_hold_up_does_not_decide_the_delay_of_the_next_minute(at: float) -> None:
    """A live run has such hold-ups, at its start and later."""
    found = run(
        seconds=30.0, processes=2, inference_ticks=1.1, distribution="gauss", spread=0.1,
        rate_hz=25.0, events=(Outlier(at, 3.0),),
    )
    delays = [each.delay for each in found.ticks if each.at > at + 3.0]
    assert set(delays) == {2}


@pytest.mark.parametrize("ticks", [2.8, 8.65, 8.9])
@pytest.mark.parametrize(("distribution", "spread"), [("gauss", 0.015), ("lognormal", 0.04)])
def test_processes_needed_leave_room_for_jitter(
    ticks: float, distribution: str, spread: float
) -> None:
    """With waits that end a millisecond late on average, and ticks that come late.

    A delay is accepted with which one action in 500 is late.
    """
    times = InferenceTimes(ticks, distribution, spread, 30.0, (), np.random.default_rng(1))
    longest = float(np.percentile([times.draw(0.0) for _ in range(4000)], 99))
    figures = run(
        processes=processes_needed(ticks, longest, 1.0), inference_ticks=ticks,
        distribution=distribution, spread=spread, seconds=30.0, sleep_overshoot_s=1e-3,
    ).figures()
    assert (figures["inaction_fraction"] or 0.0) <= 0.004
    assert (figures["strict_inaction_fraction"] or 0.0) <= 0.006


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("algorithm", "best"),
        ("distribution", "cauchy"),
        ("inference_ticks", 0.0),
        ("inference_ticks", float("nan")),
        ("seconds", float("inf")),
        ("rate_hz", -1.0),
        ("spread", -0.1),
        ("processes", 0),
        ("sleep_overshoot_s", -1e-3),
        ("fill", -1),
    ],
)
def test_illegal_options_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        run(**{name: value})
