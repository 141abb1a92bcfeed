"""The learner's loop with a scripted context: virtual time, memory of this process."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.config import LEARNING_PRECISIONS
from rtagent.learning import learner, placing, shared_update
from rtagent.learning import state as states
from rtagent.learning.beginning import publish_initial
from rtagent.learning.precision import fastest
from rtagent.learning.replay import replay
from rtagent.learning.replay.batch import empty_batch
from rtagent.memory.learner_state import Progress
from rtagent.memory.process_metrics import PLACEMENTS
from rtagent.memory.weights import WeightsInfo
from rtagent.storage import checkpoint as checkpoints
from rtagent.telemetry import run_record
from tests.learning.learner_run import Run, Start
from tests.placement.steps import made_profile


def test_it_learns_publishes_and_leaves_a_checkpoint(start: Start, tmp_path: Path) -> None:
    run = start()
    run.world.status.write({"config": {"run": {"seed": 5}}})
    run_record.write(tmp_path, {"config": {}, "versions": {"torch": "2.6"}})
    run.learn(23)
    assert run.ready_after == (1, 100.0)
    assert run.world.weights.info() == WeightsInfo(version=6, updates=23)
    assert run.record.samples_consumed == 23 * 4
    assert 0.0 < run.record.loss < 10.0
    written = checkpoints.load(run.newest)
    assert written.counters == checkpoints.Counters(23, 92, 6)
    assert written.run == {"config": {"run": {"seed": 5}}, "versions": {"torch": "2.6"}}
    assert [kind for kind, _ in run.events] == ["checkpoint"]


def test_it_knows_the_whole_replay_before_it_takes_turns(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (learner, replay):
        monkeypatch.setattr(module, "ROWS_PER_REFRESH", 16)
    made, _ = start(ticks=200).begin()
    made.begin()
    assert len(made._replay) > 190


def plan_for_two_cores(monkeypatch: pytest.MonkeyPatch, bfloat16: float) -> None:
    """Have placement find two cores, and layers that take so many times as long in bfloat16."""
    profile = made_profile(("layers.0", "layers.2", "values"), bfloat16=bfloat16)
    monkeypatch.setattr(placing, "usable_cores", lambda: 2)
    monkeypatch.setattr(placing, "take_profile", lambda *_: profile)
    monkeypatch.setattr(placing.ProfileCache, "write", lambda *_: None)


def test_a_placed_learner_learns_the_same(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_for_two_cores(monkeypatch, bfloat16=3.0)
    weights = {}
    for placement in ("off", "auto"):
        run = start(folder=placement, precision="float32", placement=placement)
        run.learn(30)
        weights[placement] = run.world.learner.current.weights.copy()
        kinds = [kind for kind, _ in run.events]
        assert ("placement" in kinds) == (placement == "auto"), run.events
        assert PLACEMENTS[run.record.placement] in ("off", "two cores", "taken back")
    assert (weights["off"] == weights["auto"]).all()


def test_until_there_is_a_plan_it_is_shown_that_placement_measures(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was shown as off, and nothing told of the seconds that a profile takes."""
    plan_for_two_cores(monkeypatch, bfloat16=3.0)
    shown: list[str] = []
    profile = placing.take_profile

    def profiled(*args: Any) -> Any:
        shown.append(PLACEMENTS[run.record.placement])
        return profile(*args)

    monkeypatch.setattr(placing, "take_profile", profiled)
    run = start(precision="float32", placement="auto")
    made, _ = run.begin()
    made.begin()
    assert PLACEMENTS[run.record.placement] == "measuring"
    run.record.placement = 0
    run.learn(3)
    assert shown == ["measuring"]
    assert PLACEMENTS[run.record.placement] == "two cores"


def test_the_precision_that_is_shown_is_that_of_the_plan(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_for_two_cores(monkeypatch, bfloat16=0.3)
    run = start(precision="float32", placement="auto").learn(3)
    assert PLACEMENTS[run.record.placement] == "two cores"
    assert LEARNING_PRECISIONS[run.record.precision - 1] == "bfloat16"


def test_it_waits_for_data_and_keeps_beating(start: Start) -> None:
    run = start(ticks=0)

    def on_beat(count: int) -> None:
        if count in (50, 70):
            assert run.updates == 0
            run.play(49 if count == 50 else 30)
        run.stopping = count >= 90

    run.learn(on_beat=on_beat)
    assert run.updates > 5
    assert max(np.diff(run.beats)) <= learner.IDLE_S + 1e-9


def test_if_acting_waits_there_is_one_update_for_each_permission(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel sleeps in real time, whatever the clock.
    monkeypatch.setattr(learner, "IDLE_S", 0.0)
    run = start()
    run.change_settings(inference={"algorithm": "sequential-infer-learn"})
    shared, seen = run.world.alternation, []

    def on_beat(count: int) -> None:
        if shared.permitted == shared.answered:
            seen.append(run.updates)
            shared.permit()
        run.stopping = len(seen) > 6

    run.learn(on_beat=on_beat)
    # While the batch is not ready in time, a permission passes without an update.
    assert np.diff(seen).max() == 1
    assert run.updates > 0


def test_pausing_stops_the_updates(start: Start) -> None:
    run = start()
    at: dict[int, int] = {}

    def on_beat(count: int) -> None:
        at[count] = run.updates
        run.change_settings(learning={"paused": 60 <= count < 100})
        run.stopping = count >= 160

    run.learn(on_beat=on_beat)
    assert at[60] > 5
    # The update that was under way is finished.
    assert at[100] <= at[60] + 1
    assert at[99] == at[65]
    assert at[160] > at[100] + 10


@pytest.mark.parametrize("rate", [0.25, 3.0])
def test_updates_per_tick_are_bounded(rate: float, start: Start) -> None:
    run = start(ticks=100, updates_per_tick=rate)

    def on_beat(count: int) -> None:
        if count % 10 == 0:
            run.play(1)
        run.stopping = count >= 1000

    run.learn(on_beat=on_beat)
    assert run.updates == pytest.approx(rate * 100, abs=rate + 1)


def test_the_correction_for_priorities_grows_to_the_full_one(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(importance_exponent=0.4, importance_steps=20)
    sample, betas = learner.Replay.sample, {}

    def note(self: Any, count: int, rng: Any, beta: float, out: Any) -> Any:
        betas[run.updates] = beta
        return sample(self, count, rng, beta, out)

    monkeypatch.setattr(learner.Replay, "sample", note)
    run.learn(30)
    found = [betas[updates] for updates in (0, 5, 10, 20, 21, 29)]
    assert found == pytest.approx([0.4, 0.55, 0.7, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("publish_every", [6, 1000])
def test_what_was_learned_from_a_rollout_is_published_once(
    publish_every: int, start: Start
) -> None:
    """Two batches, three times."""
    run = start(
        ticks=60, algorithm="ppo", rollout=16, batch_size=8, epochs=3, publish_every=publish_every
    )
    published = set()

    def on_beat(count: int) -> None:
        assert count < 20_000, "the loop does not get there"
        run.play(20)
        published.add(run.world.weights.info())
        run.stopping = run.updates >= 12

    run.learn(on_beat=on_beat)
    assert published - {None} == {WeightsInfo(1, 0), WeightsInfo(2, 6), WeightsInfo(3, 12)}


@pytest.mark.parametrize("learners", [1, 2, 3])
def test_a_gradient_may_be_stale_by_two_rounds(learners: int, start: Start) -> None:
    """With n learners, 2n updates may have been missed, and not one more."""
    run = start(ticks=0)
    run.change_settings(learner_ring=list(range(learners)), learning={"processes": learners})
    one, update = run.begin()
    batch = empty_batch(run.blueprint, 4)
    for stale in (2 * learners + 1, 2 * learners):
        update.refresh()
        one._finish(update.compute(batch, update.state.progress.updates - stale))
    assert (run.record.dropped, run.record.applied) == (1, 1)
    assert run.record.staleness_max == run.record.staleness_sum == 2 * learners
    assert update.state.progress.updates == 1


@pytest.mark.parametrize(("rate", "moves"), [(1.0, True), (1e-9, False)])
def test_the_step_size_follows_the_desired_state(rate: float, moves: bool, start: Start) -> None:
    run = start(ticks=0)
    one, update = run.begin()
    before = update.state.current.weights.copy()
    update.refresh()
    gradient = update.compute(empty_batch(run.blueprint, 4), 0)
    run.change_settings(learning={"learning_rate": rate})
    one._finish(gradient)
    assert bool(np.abs(update.state.current.weights - before).max() > 0.1) is moves


def test_the_bound_of_updates_is_that_of_all_learners_together(start: Start) -> None:
    run = start(ticks=100)
    one, granted = learner.Learner(run), []
    for ring in ([0], [0, 1, 2]):
        run.change_settings(learner_ring=ring, learning={"updates_per_tick": 3.0})
        one._pace.credit = 0.0
        run.play(10)
        one._may_update()
        granted.append(one._pace.credit)
    assert granted == [30.0, 10.0]


def test_a_lease_lasts_for_four_updates_of_its_holder(start: Start) -> None:
    run = start(ticks=0, lease_s=2.0)
    one = learner.Learner(run)
    _, second, third, *_ = run.world.metrics.learners
    second.update_ns, third.update_ns = 300_000_000, 700_000_000
    assert [one._turns._lease_s(index) for index in (0, 1, 2)] == pytest.approx([2.0, 2.0, 2.8])


def test_errors_become_priorities_unless_the_gradient_is_no_number(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    compute, gradients, told = learner.SharedUpdate.compute, [], []

    def spoil(self: Any, batch: Any, updates: int, **options: Any) -> Any:
        gradient = compute(self, batch, updates, **options)
        # The first ones are of the warming up.
        if len(gradients) % 3 == 2:
            gradient = replace(gradient, loss=float("nan"))
        gradients.append(gradient)
        return gradient

    monkeypatch.setattr(learner.SharedUpdate, "compute", spoil)
    monkeypatch.setattr(
        learner.Replay, "update_priorities", lambda self, batch, errors: told.append(errors)
    )
    run.learn(10)
    finite = [gradient.errors for gradient in gradients if gradient.finite]
    assert run.record.skipped > 3
    assert len(told) == 10
    assert all(mine is theirs for mine, theirs in zip(told, finite[-10:], strict=True))


def test_the_fastest_precision_is_measured_once_for_all(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By this clock all take as long, on whatever machine.
    clock = itertools.count().__next__
    monkeypatch.setattr(
        shared_update, "fastest", lambda *run, **how: fastest(*run, **{**how, "now": clock})
    )
    run = start(precision="auto").learn(3)
    (told,) = run.events_of("precision")
    assert (told["chosen"], run.record.precision) == ("float32", 1)
    assert told["ms"]["float32"] > 0.0
    run.world.learner.precision.chosen = 2
    other = start(ticks=0, world=run.world).learn(6)
    assert not other.events_of("precision")
    assert other.record.precision == 2
    assert other.record.loss_scale == 0.0


def test_overflows_of_float16_are_counted_apart_and_the_scale_is_kept(start: Start) -> None:
    run = start(precision="float16")
    publish_initial(run.world, run.config, None)
    begun = states.begin(run.published(), 0)
    states.put(replace(begun, progress=Progress(scale_exponent=24)), run.world.learner)
    run.learn(20)
    exponent = run.world.learner.progress.scale_exponent
    assert run.record.overflows == 24 - exponent > 0
    assert run.record.skipped == 0
    assert run.record.loss_scale == 2.0**exponent
    assert not run.events_of("update_skipped")
    later = start(ticks=0, resume=run.newest, precision="float16").learn(0)
    assert later.world.learner.progress == run.world.learner.progress


def test_bad_rewards_are_never_learned_from(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(gradient_clip=0.0)
    sample, calls = learner.Replay.sample, itertools.count(1)

    def poison(self: Any, *args: Any) -> Any:
        batch = sample(self, *args)
        if next(calls) in (11, 12, 13, 20) and batch is not None:
            batch.rewards.fill_(float("nan"))
        return batch

    monkeypatch.setattr(learner.Replay, "sample", poison)
    run.learn(30)
    assert run.record.skipped == 4
    assert [each["updates"] for each in run.events_of("update_skipped")] == [10, 16]
    assert np.isfinite(run.published()).all()


def test_the_rate_of_updates_is_measured(start: Start) -> None:
    run = start()
    looks: list[tuple[float, int, float | None]] = []

    def on_beat(count: int) -> None:
        now = run.clock.now()
        rate = run.record.applied_rate(round(now * 1e9), 5_000_000_000)
        looks.append((now, run.record.applied, rate))
        run.clock.advance(0.1)
        run.stopping = run.updates >= 120

    run.learn(on_beat=on_beat)
    assert looks[2][2] is None
    end, applied, rate = looks[-1]
    before = next(each for each in looks if each[0] >= end - 5.0)
    assert rate == pytest.approx((applied - before[1]) / (end - before[0]), rel=0.1)


def noise_seed(run: Run) -> int:
    """The seed of the noise that a learner's algorithm draws."""
    _, update = run.begin()
    return update.algorithm.generator.initial_seed()


def test_learners_draw_different_noise(start: Start) -> None:
    drawn = []
    for index in (0, 1, 0):
        run = start(ticks=0, continuous=True)
        run.index = index
        drawn.append(noise_seed(run))
    assert drawn[0] == drawn[2] != drawn[1]


def test_a_run_that_goes_on_does_not_draw_its_noise_again(start: Start) -> None:
    run = start(continuous=True)
    first = noise_seed(run)
    run.learn(10)
    later = start(ticks=0, continuous=True, resume=run.newest)
    assert noise_seed(later) != first
