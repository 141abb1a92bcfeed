"""The long-haul paper's comparison in small: the game, a trial of each architecture, the ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.experiments import long_haul_trial
from benchmarks.experiments.long_haul import PAPER, STANDARD, progress, ratios, run
from benchmarks.experiments.long_haul_trial import BATCHES, Course, Trial
from benchmarks.results import Results
from benchmarks.worlds.bricks import BALL, BRICK, LONGEST, PADDLE, SIZE, Bricks
from rtagent.clock import VirtualClock

SHORT = STANDARD._replace(epochs=1, batch_size=4, capacity=256)


@pytest.fixture(scope="module")
def courses() -> dict[str, list[Course]]:
    return {
        name: [Trial(SHORT._replace(architecture=name)).run()]  # type: ignore[arg-type]
        for name in ("edge", "learner", "whole")
    }


@pytest.mark.parametrize("cells", [1, 3])
def test_who_follows_the_ball_keeps_it_and_clears_bricks(cells: int) -> None:
    world = Bricks(np.random.default_rng(0), cells)
    frame, total = world.reset(), 0.0
    for tick in range(1, LONGEST + 1):
        planes = frame.reshape(4, SIZE, SIZE)
        assert [int(planes[each].sum()) for each in (PADDLE, BALL)] == [cells, 1]
        ball, paddle = (int(np.argwhere(planes[each])[:, 1].mean()) for each in (BALL, PADDLE))
        # It is where the ball will come down at the next tick.
        goal = world._column + world._columns
        goal = goal if 0 <= goal < SIZE else ball - world._columns
        frame, reward, lost, late = world.step(0 if goal == paddle else 1 + (goal > paddle))
        bricks = int(frame.reshape(4, SIZE, SIZE)[BRICK].sum())
        total += reward
        assert not lost
        assert bricks == 3 * SIZE - total % (3 * SIZE)
        assert late == (tick == LONGEST)
    assert total > 20


def test_who_stands_still_loses_it() -> None:
    world = Bricks(np.random.default_rng(0))
    assert any(world.step(0)[2] for _ in range(20))


def test_each_architecture_learns_from_what_its_actors_generate(
    courses: dict[str, list[Course]],
) -> None:
    for (each,) in courses.values():
        assert each.alpha == pytest.approx(1.52, rel=0.02)
        assert np.isfinite([each.loss, each.sampled]).all()
        assert (each.sampled > 0).all()
    (edge,) = courses["edge"]
    # What is sent from a replay at the edge is what is learned from.
    assert edge.transferred[0] == pytest.approx(edge.sampled.mean(), rel=1e-5)
    assert courses["whole"][0].transferred[0] != courses["whole"][0].sampled.mean()


def test_a_replay_that_is_replaced_at_once_stays_as_it_is_in_between() -> None:
    trial = Trial(SHORT._replace(architecture="whole"))
    trial._play(256)
    trial._transfer()
    trial._rate()
    before = trial._replay.index.span
    for _ in range(4):
        trial._play(100)
        trial._learn()
        assert trial._replay.index.span == before
    trial._transfer()
    trial._rate()
    assert trial._replay.index.span[1] > before[1] + 100


def test_a_trial_is_kept_as_means_and_curves(
    courses: dict[str, list[Course]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (course,) = courses["whole"]
    monkeypatch.setattr(Trial, "run", lambda trial, ended: course)
    found = run("virtual", "whole", epochs=1, seed=0)
    assert found["L_t, last half"] == pytest.approx(course.loss.mean())
    assert found["p_t, first epoch"] == course.transferred[0]
    assert found["p_s"] == [pytest.approx(course.sampled.mean())]
    assert len(found["L_t within"]) == BATCHES == 128
    assert np.mean(found["L_t within"]) == pytest.approx(1.0)


def test_ratios_are_of_means_over_the_seeds() -> None:
    def trial(variant: str, seed: int, value: float) -> dict[str, Any]:
        names = ("p_t, first epoch", "p_t, last half", "L_t, last half")
        return {
            "params": {"variant": variant}, "seed": seed, "figures": dict.fromkeys(names, value)
        }

    results = Results([trial("edge", 0, 1.0), trial("edge", 1, 3.0), trial("whole", 0, 0.5)])
    assert ratios(results, "whole") == dict.fromkeys(PAPER, 4.0)
    assert all(np.isnan(value) for value in ratios(results, "learner").values())


def test_a_long_trial_tells_its_epochs_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    ended = progress("edge, seed 3", 100, clock)
    for epoch in range(1, 5):
        clock.sleep_until(30.0 * epoch)
        ended(epoch)
    assert capsys.readouterr().err == (
        "edge, seed 3: 2 of 100 epochs\nedge, seed 3: 4 of 100 epochs\n"
    )


def test_a_trial_tells_each_epoch_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_haul_trial, "BATCHES", 2)
    told: list[int] = []
    Trial(SHORT._replace(epochs=2, actors=1)).run(told.append)
    assert told == [1, 2]
