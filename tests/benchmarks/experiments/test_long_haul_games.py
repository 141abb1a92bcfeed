"""The long-haul paper's comparison on whole games: what is played, what is planned and drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.experiments import long_haul, long_haul_epochs, long_haul_games, long_haul_trial
from benchmarks.experiments.long_haul_trial import Setup, Trial
from benchmarks.experiments.long_haul_worlds import SETTINGS, opened
from benchmarks.results import Results
from rtagent.config_sources import load_config

BATCHES = 2


def setup_of(world: str, **changes: Any) -> Setup:
    return Setup("edge", 8, 2048, 1, 8, BATCHES, 0, world=world)._replace(**changes)


@pytest.mark.parametrize(
    ("world", "settings"),
    [("starfall", "starts = 1"), ("breakout", "repeat_action_probability = 0")],
)
def test_plays_in_one_emulator_do_not_touch_each_other(world: str, settings: str) -> None:
    """Where nothing is left to chance, the same actions have the same effect beside another."""
    config = load_config(overrides=[*SETTINGS[world], f"env.kwargs={{{settings}}}"])
    one, other = opened(world, config, 2, np.random.default_rng(0))
    actions = [int(each) for each in np.random.default_rng(1).integers(3, size=400)]
    one.reset()
    alone = [tuple(map(np.copy, one.step(each))) for each in actions]
    assert any(reward for _, reward, *_ in alone)
    first = one.reset().copy()
    other.reset()
    for action, known in zip(actions[:150], alone, strict=False):
        step = one.step(action)
        for was, found in zip(known, step, strict=True):
            np.testing.assert_array_equal(was, found)
        other.step(2)
    assert not np.array_equal(first, step[0])


@pytest.mark.parametrize(
    ("world", "architecture"),
    [("starfall", "edge"), ("starfall", "whole"), ("breakout", "learner")],
)
def test_pictures_are_learned_from_as_the_game_shows_them(
    world: str, architecture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_haul_trial, "BATCHES", BATCHES)
    # Processors without bfloat16 take ten times as long for it.
    exact = (*SETTINGS[world], "learning.precision=float32")
    monkeypatch.setitem(SETTINGS, world, exact)
    # No episode of Starfall is as short as this replay's share of two actors.
    trial = Trial(setup_of(world, architecture=architecture, actors=2, capacity=256))
    began: list[int] = []
    learn = trial._learn

    def noting() -> tuple[Any, float, Any]:
        began.append(trial._tick)
        return learn()

    trial._learn = noting  # type: ignore[method-assign]
    course = trial.run()
    # Learning begins with a full replay.
    assert began[0] >= 256
    assert course.loss.shape == (1, BATCHES)
    assert np.isfinite([course.loss, course.sampled]).all()
    assert (course.transferred > 0).all()
    ring = trial._frames
    assert (ring.frames.shape, ring.frames.dtype, ring.stack) == ((256, 84, 84), np.uint8, 4)
    for actor in trial._actors:
        seen = actor.observation(4)
        assert seen.shape == (4, 84, 84)
        np.testing.assert_array_equal(seen[-1], actor.rows[-1][0])


def test_a_stack_repeats_the_first_frame_of_its_episode() -> None:
    trial = Trial(setup_of("starfall"))
    actor = trial._actors[0]
    (first, *_), = actor.rows
    np.testing.assert_array_equal(actor.observation(4), [first] * 4)
    for _ in range(5):
        actor.step(2)
    frames = [frame for frame, *_ in actor.rows]
    assert len(frames) == 6
    np.testing.assert_array_equal(actor.observation(4), frames[-4:])


@pytest.mark.parametrize("architecture", ["edge", "learner"])
def test_what_arrives_is_rated_whatever_its_number(
    architecture: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts, and each part as if all were one."""
    found = []
    for most in (100, 100_000):
        monkeypatch.setattr(long_haul_trial, "MOST_RATED", most)
        trial = Trial(setup_of("bricks", architecture=architecture))
        trial._play(700)
        trial._transfer()
        found.append(trial._rate())
        assert not len(trial._rate())
    assert len(found[0]) > 300
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_the_plan_begins_with_the_paper_s_comparison_on_both_games() -> None:
    planned = long_haul_games.trials(quick=False)
    assert [(each["world"], each["variant"]) for each in planned[:6]] == [
        ("breakout", "edge"), ("breakout", "whole"), ("starfall", "edge"), ("starfall", "whole"),
        ("breakout", "learner"), ("starfall", "learner"),
    ]
    assert {each["variant"] for each in planned} == set(long_haul_games.VARIANTS)
    drawn = {name for group in long_haul_games.GROUPS.values() for name in group}
    assert drawn == set(long_haul_games.VARIANTS)
    assert [each["batch"] for each in planned] == [512] * len(planned)


@pytest.mark.parametrize(("batch", "capacities"), [(512, {65_536, 8192}), (64, {8192, 1024})])
def test_every_variant_consumes_as_often_as_it_replaces(batch: int, capacities: set[int]) -> None:
    """N_replay: the replay is replaced when as much as it holds has been learned from."""
    every = [
        long_haul_games.scaled(setup, batch) for setup in long_haul_games.VARIANTS.values()
    ]
    assert {setup.capacity for setup in every} == capacities
    for setup in every:
        assert setup.batch_size == batch
        if setup.architecture == "whole":
            assert setup.transfer_every * batch == setup.capacity


def test_a_trial_says_what_it_took_and_where_it_was_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr(long_haul_games, "figures_of", lambda *each: asked.append(each) or {})
    found = long_haul_games.run("virtual", "starfall", "whole, small replay", 64, 4, seed=7)
    assert found["processor_s"] >= 0
    ((setup, label),) = asked
    assert label == "starfall, whole, small replay"
    assert (setup.world, setup.epochs, setup.seed) == ("starfall", 4, 7)
    assert (setup.capacity, setup.transfer_every) == (1024, 16)


def test_as_many_epochs_as_the_paper_s_of_small_batches() -> None:
    """Its last half is the paper's: epochs 51 to 100."""
    planned = long_haul_epochs.trials(quick=False)
    assert {(each["batch"], each["epochs"]) for each in planned} == {(64, 100)}
    assert [(each["world"], each["variant"]) for each in planned] == [
        ("breakout", "edge"), ("breakout", "whole"), ("starfall", "edge"), ("starfall", "whole"),
    ]


@pytest.mark.parametrize(("experiment", "half"), [
    (long_haul, "16 epochs, last half: from 9 on"),
    (long_haul_epochs, "100 epochs, last half: from 51 on"),
    (long_haul_games, "3 epochs, last half: from 2 on"),
])
def test_what_is_there_is_drawn(experiment: Any, half: str) -> None:
    """The rest is said to be unknown, so that a plan may be looked at before its end."""
    curve = {name: [2.0, 1.0] for name in ("L_t", "p_t", "p_s", "L_t within", "p_s within")}
    means = dict.fromkeys(("p_t, first epoch", "p_t, last half", "L_t, last half"), 3.0)
    trials = [
        {"params": params, "seed": 0, "figures": curve | means}
        for params in experiment.trials(quick=False)[:2]
    ]
    failed = {"params": trials[0]["params"], "seed": 1, "failed": "no memory"}
    figure = Figure(figsize=experiment.EXPERIMENT.size, layout="constrained")
    experiment.draw(Results([*trials, failed]), figure)
    FigureCanvasAgg(figure).draw()
    part = figure.subfigs[0] if figure.subfigs else figure
    heading = part.get_suptitle()
    assert "edge over whole: priority, first epoch 1.00" in heading
    planned = {params["variant"] for params in experiment.trials(quick=False)}
    unknown = "edge over learner: priority, first epoch unknown" in heading
    assert unknown == ("learner" in planned)
    assert ("edge over learner" in heading) == ("learner" in planned)
    assert f"{half}; seeds: 1\n" in heading, "one that failed is none of them"
    assert part.axes[0].get_legend() is not None
