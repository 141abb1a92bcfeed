"""The learner's loop with a scripted context: virtual time, memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rtagent.clock import Clock, MonotonicClock, VirtualClock
from rtagent.config import Config, PolicyConfig
from rtagent.config_sources import parse_config
from rtagent.learning import checkpointing, learner
from rtagent.learning.beginning import publish_initial
from rtagent.learning.pace import CREDIT_TICKS
from rtagent.learning.replay.batch import empty_batch
from rtagent.memory.arena import Arena
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.control import DesiredState
from rtagent.memory.double_buffer import JsonDoubleBuffer
from rtagent.memory.horizon import HorizonRecord
from rtagent.memory.learner_state import LearnerState
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.robust_lock import RobustLock
from rtagent.memory.turns import Turns
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.policy import networks
from rtagent.policy.actor_critic import acting_part, build_learned
from rtagent.storage import checkpoint as checkpoints
from rtagent.telemetry import run_record
from tests.desired import with_changes

CAPACITY = 1000
BOX = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
SETTINGS: dict[str, Any] = {
    "learning": {"learning_starts": 50, "batch_size": 4, "publish_every": 5, "n_step": 2,
                 "prefetch": 0},
    "replay": {"capacity": CAPACITY},
}


class FakeContext:
    """What `worker.py` gives a learner, under the test's control.

    Attributes:
        on_beat: called with the number of beats so far.
        paused_for: whether the desired state pauses learning.
    """

    def __init__(self, world: Any, folder: Path, resume: Path | None = None) -> None:
        self.world, self.config, self.blueprint = world, world.config, world.blueprint
        self.index = 0
        self.clock: Clock = VirtualClock(100.0)
        self.record = world.metrics.learners[0]
        self.checkpoint_dir, self.resume, self.run_dir = folder, resume, folder
        self.desired = DesiredState(world.config, learner_ring=[0])
        self.order(learning={"processes": 1})
        self.stopping = False
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.beats: list[float] = []
        self.ready_after: tuple[int, float] | None = None
        self.on_beat: Callable[[int], None] = lambda count: None

    def order(self, **changes: Any) -> None:
        self.desired = with_changes(self.desired, **changes)

    def beat(self) -> None:
        self.beats.append(self.clock.now())
        self.on_beat(len(self.beats))

    def set_idle_priority(self) -> None:
        self.gave_way = True

    def ready(self) -> None:
        self.ready_after = (self.world.weights.number, self.clock.now())

    def event(self, kind: str, **details: Any) -> None:
        self.events.append((kind, details))

    @property
    def updates(self) -> int:
        return self.record.updates


@pytest.fixture
def make_world(
    make_blueprint: Any, make_rings: Any, shared_bytes: Any
) -> Iterator[Callable[..., SimpleNamespace]]:
    """A world in this process's memory; keyword arguments are learning settings."""
    arenas: list[Arena] = []

    def make(*, continuous: bool = False, **learning: Any) -> SimpleNamespace:
        settings = {**SETTINGS, "learning": {**SETTINGS["learning"], **learning}}
        config: Config = parse_config(settings)
        shapes: Blueprint = make_blueprint()
        if continuous:
            shapes = replace(
                shapes, action_space=BOX, action_shape=BOX.shape, action_dtype="float32"
            )
        network = build_learned(
            PolicyConfig(), shapes.observation_space, shapes.action_space, config.learning
        )
        tensors, acting = networks.tensor_specs(network), acting_part(network)
        count = len(networks.tensor_specs(acting))
        shapes = replace(shapes, tensors=tensors[:count], critics=tensors[count:])
        frames, ledger = make_rings(shapes, CAPACITY)
        buffer = shared_bytes(WeightBuffers.size(shapes.parameters))
        state, horizon = (
            shared_bytes(size) for size in (
                LearnerState.size(shapes.learned_parameters), HorizonRecord.size()
            )
        )
        arenas.append(Arena("apply", 1))
        return SimpleNamespace(
            config=config, blueprint=shapes, frames=frames, ledger=ledger,
            weights=WeightBuffers(buffer, shapes.parameters),
            learner=LearnerState(state, shapes.learned_parameters),
            horizon=HorizonRecord(horizon),
            turns=Turns(shared_bytes(Turns.size()), RobustLock(arenas[-1].handle)),
            metrics=ProcessMetrics(memoryview(bytearray(ProcessMetrics.size()))), priorities=None,
            status=JsonDoubleBuffer(shared_bytes(JsonDoubleBuffer.size(4096)), 4096),
        )

    yield make
    for arena in arenas:
        arena.close()


@pytest.fixture
def play(write_row: Any) -> Callable[..., None]:
    def ticks(world: Any, count: int, reward: float = 1.0) -> None:
        for tick in range(world.ledger.newest + 1, world.ledger.newest + 1 + count):
            frame = np.random.default_rng(tick).normal(size=3).astype(np.float32)
            world.frames.publish(tick, frame, 0)
            continuous = bool(world.blueprint.action_shape)
            action = BOX.low + (tick % 5) / 5 * (BOX.high - BOX.low) if continuous else tick % 4
            write_row(world.ledger, tick, reward=reward, action=action)

    return ticks


def stop_at(context: FakeContext, updates: int, beats: int = 2000) -> None:
    """Let the loop run until so many updates; more than `beats` beats fail the test."""

    def stop(count: int) -> None:
        assert count < beats, "the loop does not get there"
        context.stopping = context.updates >= updates

    context.on_beat = stop


def test_it_learns_publishes_and_leaves_a_checkpoint(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world()
    play(world, 200)
    world.status.write({"config": {"run": {"seed": 5}}})
    run_record.write(tmp_path, {"config": {}, "versions": {"torch": "2.6"}})
    context = FakeContext(world, tmp_path)
    stop_at(context, 23)
    learner.run(context)
    assert context.ready_after == (1, 100.0)
    assert world.weights.info() == WeightsInfo(version=6, updates=23)
    record = context.record
    assert record.samples_consumed == 23 * 4
    assert record.weights_version == 6
    assert 0.0 < float(record.loss) < 10.0
    newest = checkpoints.newest(tmp_path)
    assert newest is not None
    written = checkpoints.load(newest)
    assert written.counters == checkpoints.Counters(23, 92, 6)
    assert written.run == {"config": {"run": {"seed": 5}}, "versions": {"torch": "2.6"}}
    assert [kind for kind, _ in context.events] == ["checkpoint"]


def test_it_waits_for_data_and_keeps_beating(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world()
    context = FakeContext(world, tmp_path)

    def on_beat(count: int) -> None:
        if count == 50:
            assert context.updates == 0
            play(world, 49)
        if count == 70:
            assert context.updates == 0
            play(world, 30)
        context.stopping = count >= 90

    context.on_beat = on_beat
    learner.run(context)
    assert context.updates > 5
    assert max(np.diff(context.beats)) <= learner.IDLE_S + 1e-9


def test_pausing_stops_the_updates(make_world: Any, play: Any, tmp_path: Path) -> None:
    world = make_world()
    play(world, 200)
    context = FakeContext(world, tmp_path)
    at: dict[int, int] = {}

    def on_beat(count: int) -> None:
        at[count] = context.updates
        context.order(learning={"paused": 60 <= count < 100})
        context.stopping = count >= 160

    context.on_beat = on_beat
    learner.run(context)
    assert at[60] > 5
    # The update that was under way is finished.
    assert at[100] <= at[60] + 1
    assert at[99] == at[65]
    assert at[160] > at[100] + 10


@pytest.mark.parametrize("rate", [0.25, 3.0])
def test_updates_per_tick_are_bounded(
    rate: float, make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world(updates_per_tick=rate)
    play(world, 100)
    context = FakeContext(world, tmp_path)

    def on_beat(count: int) -> None:
        if count % 10 == 0:
            play(world, 1)
        context.stopping = count >= 1000

    context.on_beat = on_beat
    learner.run(context)
    assert context.updates == pytest.approx(rate * 100, abs=rate + 1)


def test_the_correction_for_priorities_grows_to_the_full_one(
    make_world: Any, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(importance_exponent=0.4, importance_steps=20)
    play(world, 200)
    context = FakeContext(world, tmp_path)
    sample, betas = learner.Replay.sample, []

    def note(self: Any, count: int, rng: Any, beta: float, out: Any) -> Any:
        betas.append((context.updates, beta))
        return sample(self, count, rng, beta, out)

    monkeypatch.setattr(learner.Replay, "sample", note)
    stop_at(context, 30)
    learner.run(context)
    found = dict(betas)
    assert found[0] == 0.4
    assert found[5] == pytest.approx(0.55)
    assert found[10] == pytest.approx(0.7)
    assert [found[updates] for updates in (20, 21, 29)] == [1.0] * 3


@pytest.mark.parametrize("learners", [1, 2, 3])
def test_a_gradient_may_be_stale_by_two_rounds(
    learners: int, make_world: Any, tmp_path: Path
) -> None:
    """With n learners, 2n updates may have been missed, and not one more."""
    context = FakeContext(make_world(), tmp_path)
    context.order(learner_ring=list(range(learners)), learning={"processes": learners})
    publish_initial(context.world, context.world.config, None)
    one = learner.Learner(context)
    one._take_over()
    update, batch = one._update, empty_batch(context.blueprint, 4)
    for stale in (2 * learners + 1, 2 * learners):
        update.refresh()
        one._finish(update.compute(batch, update.state.progress.updates - stale))
    record = context.record
    assert (record.dropped, record.applied) == (1, 1)
    assert record.staleness_max == record.staleness_sum == 2 * learners
    assert update.state.progress.updates == 1


@pytest.mark.parametrize(("rate", "moves"), [(1.0, True), (1e-9, False)])
def test_the_step_size_follows_the_desired_state(
    rate: float, moves: bool, make_world: Any, tmp_path: Path
) -> None:
    context = FakeContext(make_world(), tmp_path)
    publish_initial(context.world, context.world.config, None)
    one = learner.Learner(context)
    one._take_over()
    update, before = one._update, context.world.learner.current.weights.copy()
    update.refresh()
    gradient = update.compute(empty_batch(context.blueprint, 4), 0)
    context.order(learning={"learning_rate": rate})
    one._finish(gradient)
    moved = np.abs(context.world.learner.current.weights - before).max()
    assert bool(moved > 0.1) is moves


def test_the_bound_of_updates_is_that_of_all_learners_together(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world()
    play(world, 100)
    context = FakeContext(world, tmp_path)
    one = learner.Learner(context)
    granted = []
    for ring in ([0], [0, 1, 2]):
        context.order(learner_ring=ring, learning={"updates_per_tick": 3.0})
        one._pace.credit = 0.0
        play(world, 10)
        one._may_update()
        granted.append(one._pace.credit)
    assert granted == [30.0, 10.0]


def test_what_a_batch_needs_is_noted_with_its_size(
    make_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What computing takes, and the batches: three that are ready, one in use, one being made."""
    monkeypatch.setattr(learner, "measure_peak", lambda run: 1000)
    context = FakeContext(make_world(prefetch=3, batch_size=8), tmp_path)
    publish_initial(context.world, context.world.config, None)
    one = learner.Learner(context)
    one._take_over()
    one._warm_up()
    horizon = context.world.horizon.read()
    frames = empty_batch(context.blueprint, 8)
    each = frames.observations.nbytes + frames.next_observations.nbytes
    assert (horizon.base_bytes, horizon.base_size) == (1000 + 5 * each, 8)


def test_a_lease_lasts_for_four_updates_of_its_holder(make_world: Any, tmp_path: Path) -> None:
    context = FakeContext(make_world(lease_s=2.0), tmp_path)
    one = learner.Learner(context)
    _, second, third, *_ = context.world.metrics.learners
    second.update_ns, third.update_ns = 300_000_000, 700_000_000
    assert [one._lease_s(index) for index in (0, 1, 2)] == pytest.approx([2.0, 2.0, 2.8])


def test_errors_become_priorities_unless_the_gradient_is_no_number(
    make_world: Any, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    play(world, 200)
    context = FakeContext(world, tmp_path)
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
    stop_at(context, 10)
    learner.run(context)
    finite = [gradient.errors for gradient in gradients if gradient.finite]
    assert context.record.skipped > 3
    assert len(told) == 10
    assert all(mine is theirs for mine, theirs in zip(told, finite[-10:], strict=True))


def test_a_long_pause_saves_up_few_updates(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world(updates_per_tick=0.5)
    play(world, 100)
    context = FakeContext(world, tmp_path)
    context.order(learning={"paused": True})

    def on_beat(count: int) -> None:
        if count == 10:
            play(world, 600)
        context.order(learning={"paused": count < 20})
        context.stopping = count >= 200

    context.on_beat = on_beat
    learner.run(context)
    assert context.updates == CREDIT_TICKS * 0.5


def test_bad_rewards_are_never_learned_from(
    make_world: Any, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(gradient_clip=0.0)
    play(world, 200)
    context = FakeContext(world, tmp_path)
    sample = learner.Replay.sample
    poisoned = {11, 12, 13, 20}
    calls = [0]

    def poison(self: Any, *args: Any) -> Any:
        batch = sample(self, *args)
        calls[0] += 1
        if calls[0] in poisoned and batch is not None:
            batch.rewards.fill_(float("nan"))
        return batch

    monkeypatch.setattr(learner.Replay, "sample", poison)
    stop_at(context, 30)
    learner.run(context)
    assert context.record.skipped == 4
    bursts = [details for kind, details in context.events if kind == "update_skipped"]
    assert [each["updates"] for each in bursts] == [10, 16]
    flat = np.empty(world.blueprint.parameters, np.float32)
    assert world.weights.read(flat) is not None
    assert np.isfinite(flat).all()


def test_a_batch_that_does_not_fit_is_halved(
    make_world: Any, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(batch_size=16)
    play(world, 200)
    context = FakeContext(world, tmp_path)
    compute, fits = learner.SharedUpdate.compute, [5]

    def starved(self: Any, batch: Any, updates: int, **options: Any) -> Any:
        if len(batch.actions) > fits[0]:
            raise MemoryError
        return compute(self, batch, updates, **options)

    monkeypatch.setattr(learner.SharedUpdate, "compute", starved)

    def on_beat(count: int) -> None:
        assert count < 2000, "the loop does not get there"
        if context.updates == 10:
            fits[0] = 2
        context.stopping = context.updates >= 20

    context.on_beat = on_beat
    learner.run(context)
    assert context.record.out_of_memory == 3
    sizes = [each["next_batch_size"] for kind, each in context.events if kind == "out_of_memory"]
    assert sizes == [8, 4, 2]
    # What is safe grows again, slowly.
    assert 10 * 4 + 10 * 2 <= context.record.samples_consumed <= 10 * 5 + 10 * 2


def test_checkpoints_come_in_their_period(make_world: Any, play: Any, tmp_path: Path) -> None:
    world = make_world()
    context = FakeContext(world, tmp_path)
    context.on_beat = lambda _: setattr(context, "stopping", context.clock.now() > 350.0)
    learner.run(context)
    assert context.record.checkpoints == 3


def test_a_checkpoint_that_cannot_be_written_does_not_stop_learning(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world()
    (tmp_path / "file").touch()
    context = FakeContext(world, tmp_path / "file")
    context.on_beat = lambda _: setattr(context, "stopping", context.clock.now() > 350.0)
    learner.run(context)
    assert context.record.checkpoint_failures == 3
    assert {kind for kind, _ in context.events} == {"checkpoint_failed"}


def test_who_writes_a_checkpoint_holds_no_turn(
    make_world: Any, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    play(world, 60)
    writer, other = FakeContext(world, tmp_path), FakeContext(world, tmp_path)
    other.index, other.record = 1, world.metrics.learners[1]
    writer.desired = other.desired = with_changes(
        other.desired, learner_ring=[0, 1], learning={"processes": 2}
    )
    other.clock = MonotonicClock()
    second = learner.Learner(other)
    entered = []
    save = checkpoints.save

    def slowly(*args: Any, **kwargs: Any) -> Path:
        for _ in range(3):
            entered.append(second._turns.enter())
            second._turns.leave()
        return save(*args, **kwargs)

    monkeypatch.setattr(checkpoints, "save", slowly)
    stop_at(writer, 0)
    learner.run(writer)
    assert (entered, world.turns.expired) == ([True] * 3, 0)
    assert not any(each.writing for each in world.metrics.learners)
    # It takes turns again.
    assert second._ring() == [0, 1]


def test_a_checkpoint_for_which_there_is_no_memory_does_not_stop_learning(
    make_world: Any, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def ask_for(count: int) -> None:
        asked.append(count)
        if len(asked) < 3:
            raise MemoryError("not so many bytes" if len(asked) == 1 else "")

    monkeypatch.setattr(checkpointing, "ask_for", ask_for)
    world = make_world()
    context = FakeContext(world, tmp_path)
    context.on_beat = lambda _: setattr(context, "stopping", context.clock.now() > 350.0)
    learner.run(context)
    record = context.record
    assert (record.checkpoint_failures, record.checkpoints) == (2, 1)
    reasons = [details["reason"] for kind, details in context.events if kind != "checkpoint"]
    assert reasons == ["not so many bytes", "out of memory"]
    # Weights, target network, both moments; once as copied, twice as written.
    assert asked == [4 * 4 * world.blueprint.learned_parameters * 3] * 3


def test_a_new_size_is_asked_for_before_it_is_taken(
    make_world: Any, play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    play(world, 200)
    context = FakeContext(world, tmp_path)
    took: list[int] = []
    take = learner.Learner._take

    def note(self: Any, size: int) -> Any:
        took.append(size)
        return take(self, size)

    def require(self: Any, size: int) -> None:
        if size > 4:
            raise MemoryError

    monkeypatch.setattr(learner.Learner, "_take", note)
    monkeypatch.setattr(learner.BatchMemory, "require", require)

    def on_beat(count: int) -> None:
        assert count < 2000, "the loop does not get there"
        if context.updates == 10:
            context.order(learning={"batch_size": 32})
        context.stopping = context.updates >= 20

    context.on_beat = on_beat
    learner.run(context)
    assert set(took) == {4}
    sizes = [each["batch_size"] for kind, each in context.events if kind == "out_of_memory"]
    assert sizes == [32, 16, 8]


def published(world: Any) -> np.ndarray:
    flat = np.empty(world.blueprint.parameters, np.float32)
    assert world.weights.read(flat) is not None
    return flat


def test_the_rate_of_updates_is_measured(make_world: Any, play: Any, tmp_path: Path) -> None:
    world = make_world()
    play(world, 200)
    context = FakeContext(world, tmp_path)
    looks: list[tuple[float, int, float | None]] = []

    def on_beat(count: int) -> None:
        now, record = context.clock.now(), context.record
        rate = record.applied_rate(round(now * 1e9), 5_000_000_000)
        looks.append((now, record.applied, rate))
        context.clock.advance(0.1)
        context.stopping = context.updates >= 120

    context.on_beat = on_beat
    learner.run(context)
    assert looks[2][2] is None
    end, applied, rate = looks[-1]
    before = next(each for each in looks if each[0] >= end - 5.0)
    assert rate == pytest.approx((applied - before[1]) / (end - before[0]), rel=0.1)


def test_a_new_run_resumes_from_the_checkpoint(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world()
    play(world, 200)
    first = FakeContext(world, tmp_path)
    stop_at(first, 20)
    learner.run(first)
    new = make_world()
    second = FakeContext(new, tmp_path, resume=checkpoints.newest(tmp_path))
    second.on_beat = lambda _: setattr(second, "stopping", True)
    learner.run(second)
    np.testing.assert_array_equal(published(new), published(world))
    old, info = world.weights.info(), new.weights.info()
    assert info.updates == 20
    assert info.version > old.version
    assert second.record.samples_consumed == 80


def test_a_restarted_learner_goes_on_from_the_shared_weights(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world()
    play(world, 200)
    first = FakeContext(world, tmp_path / "a")
    stop_at(first, 20)
    learner.run(first)
    later = FakeContext(world, tmp_path / "later")
    stop_at(later, 30)
    learner.run(later)
    before, info = published(world), world.weights.info()
    second = FakeContext(world, tmp_path / "b", resume=checkpoints.newest(tmp_path / "a"))
    second.on_beat = lambda _: setattr(second, "stopping", True)
    learner.run(second)
    np.testing.assert_array_equal(published(world), before)
    assert world.weights.info().updates == 30
    assert world.weights.info().version > info.version
    assert second.record.samples_consumed == 120
    left = checkpoints.newest(tmp_path / "b")
    assert left is not None
    tensors, earlier = checkpoints.load(left).tensors, checkpoints.newest(tmp_path / "later")
    assert earlier is not None
    for name, values in checkpoints.load(earlier).tensors.items():
        np.testing.assert_array_equal(tensors[name], values)
    assert int(tensors["optimizer.steps"]) == 30


def test_a_checkpoint_of_another_network_is_refused(
    make_world: Any, tmp_path: Path
) -> None:
    world = make_world()
    first = FakeContext(world, tmp_path)
    first.on_beat = lambda _: setattr(first, "stopping", True)
    learner.run(first)
    other = make_world()
    other.blueprint = replace(other.blueprint, network="mlp k=9")
    with pytest.raises(checkpoints.CheckpointError, match="belongs to the network mlp k=1"):
        learner.run(FakeContext(other, tmp_path, resume=checkpoints.newest(tmp_path)))


def test_where_nobody_learns_the_first_weights_are_published(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world()
    publish_initial(world, world.config, None)
    assert world.weights.info() == WeightsInfo(version=1, updates=0)
    assert published(world).std() > 0.01
    play(world, 200)
    context = FakeContext(world, tmp_path)
    stop_at(context, 20)
    learner.run(context)
    acting = make_world()
    publish_initial(acting, acting.config, checkpoints.newest(tmp_path))
    assert acting.weights.info().updates == 20
    np.testing.assert_array_equal(published(acting), published(world))


# ---- continuous actions


def test_an_actor_and_its_critics_learn_and_resume(
    make_world: Any, play: Any, tmp_path: Path
) -> None:
    world = make_world(continuous=True)
    play(world, 200)
    context = FakeContext(world, tmp_path)
    stop_at(context, 21)
    learner.run(context)
    assert context.record.skipped == 0
    assert world.weights.info() == WeightsInfo(version=6, updates=21)
    state = world.learner
    assert (state.progress.steps, state.progress.followed) == (21, 20)
    acting = world.blueprint.parameters
    np.testing.assert_array_equal(published(world), state.current.weights[:acting])
    assert np.abs(state.current.square[:acting]).sum() > 0
    assert np.abs(state.target - state.current.weights).sum() > 0
    newest = checkpoints.newest(tmp_path)
    assert newest is not None
    # A daemon begins anew, with another learner in it.
    later = make_world(continuous=True)
    second = FakeContext(later, tmp_path, resume=newest)
    second.on_beat = lambda _: setattr(second, "stopping", True)
    learner.run(second)
    np.testing.assert_array_equal(published(later), published(world))
    assert later.learner.progress == state.progress
    for name in ("weights", "mean", "square"):
        np.testing.assert_array_equal(
            getattr(later.learner.current, name), getattr(state.current, name)
        )
    np.testing.assert_array_equal(later.learner.target, state.target)


def test_critics_begin_alike_in_every_learner(make_world: Any, tmp_path: Path) -> None:
    starts = []
    for index in (0, 1):
        world = make_world(continuous=True)
        publish_initial(world, world.config, None)
        context = FakeContext(world, tmp_path / str(index))
        context.index = index
        context.on_beat = lambda _, context=context: setattr(context, "stopping", True)
        learner.run(context)
        starts.append(world.learner.current.weights.copy())
        np.testing.assert_array_equal(starts[-1][: world.blueprint.parameters], published(world))
    np.testing.assert_array_equal(*starts)


def test_learners_draw_different_noise(make_world: Any, tmp_path: Path) -> None:
    drawn = []
    for index in (0, 1, 0):
        context = FakeContext(make_world(continuous=True), tmp_path)
        context.index = index
        drawn.append(learner.Learner(context)._generator().initial_seed())
    assert drawn[0] == drawn[2] != drawn[1]
