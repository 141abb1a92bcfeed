"""The learner's loop with a scripted context: virtual time, memory of this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rtagent.clock import Clock, MonotonicClock, VirtualClock
from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.learning import checkpointing, learner, placing
from rtagent.learning import state as states
from rtagent.learning.beginning import build_network, publish_initial
from rtagent.learning.device import Device
from rtagent.learning.pace import CREDIT_TICKS
from rtagent.learning.replay.batch import empty_batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.alternation import Alternation
from rtagent.memory.arena import Arena
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.control import DesiredState
from rtagent.memory.double_buffer import JsonDoubleBuffer
from rtagent.memory.horizon import HorizonRecord
from rtagent.memory.learner_state import LearnerState, Progress
from rtagent.memory.process_metrics import PLACEMENTS, ProcessMetrics
from rtagent.memory.robust_lock import RobustLock
from rtagent.memory.turns import Turns
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.policy import networks
from rtagent.policy.actor_critic import acting_part
from rtagent.storage import checkpoint as checkpoints
from rtagent.telemetry import run_record
from tests.desired import with_changes
from tests.placement.steps import made_profile

CAPACITY = 1000
BOX = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
Start = Callable[..., "Run"]
SETTINGS: dict[str, Any] = {
    "learning": {"learning_starts": 50, "batch_size": 4, "publish_every": 5, "n_step": 2,
                 "prefetch": 0, "precision": "float32"},
    "replay": {"capacity": CAPACITY},
}


class Run:
    """A learner's world, and what `worker.py` gives it, under the test's control.

    Attributes:
        on_beat: called with the number of beats so far.
    """

    def __init__(self, world: Any, folder: Path, resume: Path | None, write_row: Any) -> None:
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
        self._write_row = write_row

    # ---- what a learner asks for

    def beat(self) -> None:
        self.beats.append(self.clock.now())
        self.on_beat(len(self.beats))

    def set_idle_priority(self) -> None:
        self.gave_way = True

    def ready(self) -> None:
        self.ready_after = (self.world.weights.number, self.clock.now())

    def event(self, kind: str, **details: Any) -> None:
        self.events.append((kind, details))

    # ---- what a test does

    def order(self, **changes: Any) -> None:
        self.desired = with_changes(self.desired, **changes)

    def play(self, count: int) -> None:
        ledger, continuous = self.world.ledger, bool(self.blueprint.action_shape)
        for tick in range(ledger.newest + 1, ledger.newest + 1 + count):
            frame = np.random.default_rng(tick).normal(size=3).astype(np.float32)
            self.world.frames.publish(tick, frame, 0)
            action = BOX.low + (tick % 5) / 5 * (BOX.high - BOX.low) if continuous else tick % 4
            self._write_row(ledger, tick, reward=1.0, action=action)

    def learn(
        self, updates: int = 0, until_s: float = 0.0, on_beat: Callable[[int], None] | None = None
    ) -> Run:
        """Let the loop run until so many updates, or a time; or as `on_beat` says."""

        def stop(count: int) -> None:
            assert count < 20_000, "the loop does not get there"
            self.stopping = self.updates >= updates and self.clock.now() >= until_s

        self.on_beat = stop if on_beat is None else on_beat
        learner.run(self)
        return self

    def begin(self) -> tuple[learner.Learner, SharedUpdate]:
        """A learner that has taken over the shared state, and its update."""
        publish_initial(self.world, self.config, None)
        one = learner.Learner(self)
        one._take_over()
        return one, one._update

    @property
    def updates(self) -> int:
        return int(self.record.updates)

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [details for each, details in self.events if each == kind]

    @property
    def newest(self) -> Path:
        """The newest checkpoint."""
        found = checkpoints.newest(self.checkpoint_dir)
        assert found is not None
        return found

    def published(self) -> np.ndarray:
        flat = np.empty(self.blueprint.parameters, np.float32)
        assert self.world.weights.read(flat) is not None
        return flat


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
        network = build_network(config, shapes)
        tensors, acting = (networks.tensor_specs(each) for each in (network, acting_part(network)))
        shapes = replace(shapes, tensors=tensors[: len(acting)], critics=tensors[len(acting) :])
        frames, ledger = make_rings(shapes, CAPACITY)
        parameters, learned = shapes.parameters, shapes.learned_parameters
        arenas.append(Arena("apply", 1))
        return SimpleNamespace(
            config=config, blueprint=shapes, frames=frames, ledger=ledger,
            weights=WeightBuffers(shared_bytes(WeightBuffers.size(parameters)), parameters),
            learner=LearnerState(shared_bytes(LearnerState.size(learned)), learned),
            horizon=HorizonRecord(shared_bytes(HorizonRecord.size())),
            turns=Turns(shared_bytes(Turns.size()), RobustLock(arenas[-1].handle)),
            metrics=ProcessMetrics(memoryview(bytearray(ProcessMetrics.size()))), priorities=None,
            alternation=Alternation(shared_bytes(Alternation.size())),
            status=JsonDoubleBuffer(shared_bytes(JsonDoubleBuffer.size(4096)), 4096),
        )

    yield make
    for arena in arenas:
        arena.close()


@pytest.fixture(autouse=True)
def _this_process_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "keep_freed_memory", lambda: None)


@pytest.fixture
def start(make_world: Any, write_row: Any, tmp_path: Path) -> Start:
    """A run after some ticks of play; keyword arguments are learning settings."""

    def begin(
        ticks: int = 200, folder: str = "", resume: Path | None = None, world: Any = None,
        **settings: Any,
    ) -> Run:
        run = Run(world or make_world(**settings), tmp_path / folder, resume, write_row)
        run.play(ticks)
        return run

    return begin


def test_it_learns_publishes_and_leaves_a_checkpoint(start: Start, tmp_path: Path) -> None:
    run = start()
    run.world.status.write({"config": {"run": {"seed": 5}}})
    run_record.write(tmp_path, {"config": {}, "versions": {"torch": "2.6"}})
    run.learn(23)
    assert run.ready_after == (1, 100.0)
    assert run.world.weights.info() == WeightsInfo(version=6, updates=23)
    assert (run.record.samples_consumed, run.record.weights_version) == (23 * 4, 6)
    assert 0.0 < run.record.loss < 10.0
    written = checkpoints.load(run.newest)
    assert written.counters == checkpoints.Counters(23, 92, 6)
    assert written.run == {"config": {"run": {"seed": 5}}, "versions": {"torch": "2.6"}}
    assert [kind for kind, _ in run.events] == ["checkpoint"]


def test_a_placed_learner_learns_the_same(
    start: Start, make_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = ("layers.0", "layers.2", "values")
    profile = made_profile(layers, bfloat16=3.0)
    monkeypatch.setattr(placing, "usable_cores", lambda: 2)
    monkeypatch.setattr(placing, "take_profile", lambda *_: profile)
    monkeypatch.setattr(placing.ProfileCache, "write", lambda *_: None)
    weights = {}
    for placement in ("off", "auto"):
        run = start(folder=placement, precision="float32", placement=placement)
        run.learn(30)
        weights[placement] = run.world.learner.current.weights.copy()
        kinds = [kind for kind, _ in run.events]
        assert ("placement" in kinds) == (placement == "auto"), run.events
        assert PLACEMENTS[run.record.placement] in ("off", "two cores", "taken back")
    assert (weights["off"] == weights["auto"]).all()


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


def test_where_acting_waits_there_is_one_update_for_each_permission(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel sleeps in real time, whatever the clock.
    monkeypatch.setattr(learner, "IDLE_S", 0.0)
    run = start()
    run.order(inference={"algorithm": "sequential-infer-learn"})
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
        run.order(learning={"paused": 60 <= count < 100})
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


@pytest.mark.parametrize("learners", [1, 2, 3])
def test_a_gradient_may_be_stale_by_two_rounds(learners: int, start: Start) -> None:
    """With n learners, 2n updates may have been missed, and not one more."""
    run = start(ticks=0)
    run.order(learner_ring=list(range(learners)), learning={"processes": learners})
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
    run.order(learning={"learning_rate": rate})
    one._finish(gradient)
    assert bool(np.abs(update.state.current.weights - before).max() > 0.1) is moves


def test_the_bound_of_updates_is_that_of_all_learners_together(start: Start) -> None:
    run = start(ticks=100)
    one, granted = learner.Learner(run), []
    for ring in ([0], [0, 1, 2]):
        run.order(learner_ring=ring, learning={"updates_per_tick": 3.0})
        one._pace.credit = 0.0
        run.play(10)
        one._may_update()
        granted.append(one._pace.credit)
    assert granted == [30.0, 10.0]


def test_what_a_batch_needs_is_noted_with_its_size(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What computing takes, and the batches: three that are ready, one in use, one being made."""
    monkeypatch.setattr(learner, "measure_peak", lambda run: 1000)
    run = start(ticks=0, prefetch=3, batch_size=8)
    run.begin()[0]._warm_up()
    horizon, frames = run.world.horizon.read(), empty_batch(run.blueprint, 8)
    each = frames.observations.nbytes + frames.next_observations.nbytes
    assert (horizon.base_bytes, horizon.base_size) == (1000 + 5 * each, 8)


def test_a_lease_lasts_for_four_updates_of_its_holder(start: Start) -> None:
    run = start(ticks=0, lease_s=2.0)
    one = learner.Learner(run)
    _, second, third, *_ = run.world.metrics.learners
    second.update_ns, third.update_ns = 300_000_000, 700_000_000
    assert [one._lease_s(index) for index in (0, 1, 2)] == pytest.approx([2.0, 2.0, 2.8])


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


def test_the_fastest_precision_is_measured_once_for_all(start: Start) -> None:
    run = start(precision="auto").learn(3)
    (told,) = run.told("precision")
    assert (told["chosen"], run.record.precision) == ("float32", 1)
    assert told["ms"]["float32"] > 0.0
    run.world.learner.precision.chosen = 2
    other = start(ticks=0, world=run.world).learn(6)
    assert not other.told("precision")
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
    assert not run.told("update_skipped")
    later = start(ticks=0, resume=run.newest, precision="float16").learn(0)
    assert later.world.learner.progress == run.world.learner.progress


def test_what_large_batches_leave_is_given_back_after_they_have_shrunk(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = start().begin()
    at: list[int] = []
    for size in (64, 32, 64, 16, 15, 32, 7, 8, 1):
        monkeypatch.setattr(learner, "release", lambda size=size: at.append(size))
        one._release_after(size)
    assert at == [15, 7, 1]


def test_a_long_pause_saves_up_few_updates(start: Start) -> None:
    run = start(ticks=100, updates_per_tick=0.5)
    run.order(learning={"paused": True})

    def on_beat(count: int) -> None:
        if count == 10:
            run.play(600)
        run.order(learning={"paused": count < 20})
        run.stopping = count >= 200

    run.learn(on_beat=on_beat)
    assert run.updates == CREDIT_TICKS * 0.5


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
    assert [each["updates"] for each in run.told("update_skipped")] == [10, 16]
    assert np.isfinite(run.published()).all()


def test_a_batch_that_does_not_fit_is_halved(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    run = start(batch_size=16)
    compute = learner.SharedUpdate.compute

    def starved(self: Any, batch: Any, updates: int, **options: Any) -> Any:
        if len(batch.actions) > (2 if run.updates >= 10 else 5):
            raise MemoryError
        return compute(self, batch, updates, **options)

    monkeypatch.setattr(learner.SharedUpdate, "compute", starved)
    run.learn(20)
    assert run.record.out_of_memory == 3
    assert [each["next_batch_size"] for each in run.told("out_of_memory")] == [8, 4, 2]
    # What is safe grows again, slowly.
    assert 10 * 4 + 10 * 2 <= run.record.samples_consumed <= 10 * 5 + 10 * 2


def test_a_batch_that_does_not_fit_on_the_device_is_halved(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(Device):
        def send(self, batch: Any) -> Any:
            if len(batch.actions) > 5:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().send(batch)

    small = Small(torch.device("cpu"), nullcontext)
    monkeypatch.setattr(Device, "of", lambda learning: small)
    run = start(batch_size=16, prefetch=1, device="cuda").learn(5)
    told = run.told("out_of_memory")
    assert [each["next_batch_size"] for each in told[:2]] == [8, 4]
    assert run.record.samples_consumed <= 5 * run.updates


@pytest.mark.gpu
def test_a_learner_on_a_gpu_learns_and_publishes(start: Start) -> None:
    run = start(device="cuda", prefetch=2).learn(23)
    assert run.world.weights.info() == WeightsInfo(version=6, updates=23)
    assert np.isfinite(run.published()).all()


def test_a_new_size_is_asked_for_before_it_is_taken(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
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
        if run.updates == 10:
            run.order(learning={"batch_size": 32})
        run.stopping = run.updates >= 20

    run.learn(on_beat=on_beat)
    assert set(took) == {4}
    assert [each["batch_size"] for each in run.told("out_of_memory")] == [32, 16, 8]


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


# ---- checkpoints


def test_checkpoints_come_in_their_period(start: Start) -> None:
    assert start(ticks=0).learn(until_s=350.0).record.checkpoints == 3


def test_a_checkpoint_that_cannot_be_written_does_not_stop_learning(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    run = start(ticks=0, folder="file").learn(until_s=350.0)
    assert run.record.checkpoint_failures == 3
    assert {kind for kind, _ in run.events} == {"checkpoint_failed"}


def test_a_checkpoint_for_which_there_is_no_memory_does_not_stop_learning(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def ask_for(count: int) -> None:
        asked.append(count)
        if len(asked) < 3:
            raise MemoryError("not so many bytes" if len(asked) == 1 else "")

    monkeypatch.setattr(checkpointing, "ask_for", ask_for)
    run = start(ticks=0).learn(until_s=350.0)
    assert (run.record.checkpoint_failures, run.record.checkpoints) == (2, 1)
    reasons = [each["reason"] for each in run.told("checkpoint_failed")]
    assert reasons == ["not so many bytes", "out of memory"]
    # Weights, target network, both moments; once as copied, twice as written.
    assert asked == [4 * 4 * run.blueprint.learned_parameters * 3] * 3


def test_who_writes_a_checkpoint_holds_no_turn(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = start(ticks=60)
    other = start(ticks=0, world=writer.world)
    other.index, other.record = 1, writer.world.metrics.learners[1]
    for run in (writer, other):
        run.order(learner_ring=[0, 1], learning={"processes": 2})
    other.clock = MonotonicClock()
    second, entered = learner.Learner(other), []
    save = checkpoints.save

    def slowly(*args: Any, **kwargs: Any) -> Path:
        for _ in range(3):
            entered.append(second._turns.enter())
            second._turns.leave()
        return save(*args, **kwargs)

    monkeypatch.setattr(checkpoints, "save", slowly)
    writer.learn(0)
    assert (entered, writer.world.turns.expired) == ([True] * 3, 0)
    assert not any(each.writing for each in writer.world.metrics.learners)
    # It takes turns again.
    assert second._ring() == [0, 1]


def test_a_new_run_resumes_from_the_checkpoint(start: Start) -> None:
    first = start().learn(20)
    second = start(ticks=0, resume=first.newest).learn(0)
    np.testing.assert_array_equal(second.published(), first.published())
    old, new = first.world.weights.info(), second.world.weights.info()
    assert new.updates == 20
    assert new.version > old.version
    assert second.record.samples_consumed == 80


def test_a_restarted_learner_goes_on_from_the_shared_weights(start: Start) -> None:
    first = start(folder="a").learn(20)
    later = start(ticks=0, folder="later", world=first.world).learn(30)
    before, info = first.published(), first.world.weights.info()
    second = start(ticks=0, folder="b", world=first.world, resume=first.newest).learn(0)
    np.testing.assert_array_equal(second.published(), before)
    assert second.world.weights.info().updates == 30
    assert second.world.weights.info().version > info.version
    assert second.record.samples_consumed == 120
    tensors = checkpoints.load(second.newest).tensors
    for name, values in checkpoints.load(later.newest).tensors.items():
        np.testing.assert_array_equal(tensors[name], values)
    assert int(tensors["optimizer.steps"]) == 30


def test_a_checkpoint_of_another_network_is_refused(start: Start) -> None:
    first = start(ticks=0).learn(0)
    other = start(ticks=0, resume=first.newest)
    other.world.blueprint = other.blueprint = replace(other.blueprint, network="mlp k=9")
    with pytest.raises(checkpoints.CheckpointError, match="belongs to the network mlp k=1"):
        other.learn(0)


def test_where_nobody_learns_the_first_weights_are_published(start: Start) -> None:
    run = start()
    publish_initial(run.world, run.config, None)
    assert run.world.weights.info() == WeightsInfo(version=1, updates=0)
    assert run.published().std() > 0.01
    run.learn(20)
    acting = start(ticks=0)
    publish_initial(acting.world, acting.config, run.newest)
    assert acting.world.weights.info().updates == 20
    np.testing.assert_array_equal(acting.published(), run.published())


# ---- continuous actions


def test_an_actor_and_its_critics_learn_and_resume(start: Start) -> None:
    run = start(continuous=True).learn(21)
    assert run.record.skipped == 0
    assert run.world.weights.info() == WeightsInfo(version=6, updates=21)
    state, acting = run.world.learner, run.blueprint.parameters
    assert (state.progress.steps, state.progress.followed) == (21, 20)
    np.testing.assert_array_equal(run.published(), state.current.weights[:acting])
    assert np.abs(state.current.square[:acting]).sum() > 0
    assert np.abs(state.target - state.current.weights).sum() > 0
    # A daemon begins anew, with another learner in it.
    later = start(ticks=0, continuous=True, resume=run.newest).learn(0)
    np.testing.assert_array_equal(later.published(), run.published())
    again = later.world.learner
    assert again.progress == state.progress
    for name in ("weights", "mean", "square"):
        np.testing.assert_array_equal(getattr(again.current, name), getattr(state.current, name))
    np.testing.assert_array_equal(again.target, state.target)


def test_critics_begin_alike_in_every_learner(start: Start) -> None:
    starts = []
    for index in (0, 1):
        run = start(ticks=0, continuous=True, folder=str(index))
        publish_initial(run.world, run.config, None)
        run.index = index
        run.learn(0)
        starts.append(run.world.learner.current.weights.copy())
        np.testing.assert_array_equal(starts[-1][: run.blueprint.parameters], run.published())
    np.testing.assert_array_equal(*starts)


def test_learners_draw_different_noise(start: Start) -> None:
    drawn = []
    for index in (0, 1, 0):
        run = start(ticks=0, continuous=True)
        run.index = index
        drawn.append(learner.Learner(run)._generator().initial_seed())
    assert drawn[0] == drawn[2] != drawn[1]
