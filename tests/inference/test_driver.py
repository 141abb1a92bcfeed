"""The driver of an inference process, on a virtual clock and memory of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config import Config, LearningConfig, PolicyConfig
from rtagent.inference.driver import HURRY, SLICE_S, Driver
from rtagent.inference.weights import Weights
from rtagent.memory.actions import NANO, ActionSlots
from rtagent.memory.alternation import Alternation
from rtagent.memory.blueprint import TensorSpec
from rtagent.memory.control import DesiredState
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.policy.exploration import explores, smooth_noise
from rtagent.staggering.arbiter import Deposited, Source
from rtagent.staggering.instructions import (
    Deposit,
    Infer,
    Inferred,
    Learn,
    Moment,
    Now,
    WaitFrame,
    WaitUntil,
)
from tests.conftest import make_blueprint
from tests.desired import make_desired, with_changes

CAPACITY = 64
PARAMETERS = 3
INDEX = 2
TAU_S = 0.25
START_S = 10.0
ALWAYS_THE_POLICY = PolicyConfig(epsilon_start=0.0, epsilon_end=0.0)


class StubPolicy:
    """Prefers the action that its weights name, after `TAU_S`."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.weights = self.idle = np.zeros(PARAMETERS, np.float32)
        self.pieces, self.piece_s = 1, 0.0
        self.seen: list[list[int]] = []
        self.during: Callable[[], None] = lambda: None
        self.answers: np.ndarray | None = None

    def fill(self, piece: int, values: np.ndarray) -> None:
        self.clock.advance(self.piece_s)
        self.idle = values.copy()

    def swap(self) -> None:
        self.weights = self.idle

    def values(self, observation: np.ndarray) -> np.ndarray:
        self.seen.append([int(frame.flat[0]) for frame in observation])
        before = self.weights
        self.during()
        assert self.weights is before, "the weights were switched inside an inference"
        self.clock.advance(TAU_S)
        return self.weights if self.answers is None else self.answers


class ImpatientBell:
    """Lets the whole time limit pass, or what the test puts in its place."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.during: Callable[[], None] = lambda: None

    def ring(self) -> None:
        pass

    def wait_for(self, condition: Callable[[], bool], clock: Any, timeout: float) -> bool:
        if not condition():
            self.during()
        if not condition():
            self.clock.advance(timeout)
        return condition()


class SteppingClock(VirtualClock):
    """Looking at the time takes time, so that nothing spins for ever."""

    def now(self) -> float:
        self.advance(1e-6)
        return super().now()


def memory(size: int) -> memoryview:
    return memoryview(np.zeros(-(-size // 8), np.int64)).cast("B")


class AskingPolicy(StubPolicy):
    """One that asks what is pending, after `TAU_S`."""

    def values(self, observation: np.ndarray, pending: Any = None) -> np.ndarray:
        answer = super().values(observation)
        self.told = pending()
        return answer


class Bench:
    """A driver with everything around it, and a script in place of the staggering algorithm."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **shapes: Any) -> None:
        blueprint = make_blueprint(tensors=(TensorSpec("weight", (PARAMETERS,)),), **shapes)
        self.clock = SteppingClock(START_S)
        weights = memory(WeightBuffers.size(PARAMETERS))
        frames = memory(FrameRing.size(blueprint, CAPACITY))
        slots = memory(ActionSlots.size(blueprint))
        FrameRing.format(frames)
        ActionSlots.format(slots, blueprint)
        self.buffers = WeightBuffers(weights, PARAMETERS)
        self.frames = FrameRing(frames, blueprint, CAPACITY)
        self.frames.bell = self.bell = ImpatientBell(self.clock)  # type: ignore[assignment]
        self.slots = ActionSlots(slots, blueprint)
        self.alternation = Alternation(memory(Alternation.size()))
        self.alternation._answers = ImpatientBell(self.clock)  # type: ignore[assignment]
        rows = memory(Ledger.size(blueprint, CAPACITY))
        Ledger.format(rows)
        self.ledger = Ledger(rows, blueprint, CAPACITY)
        self.metrics = ProcessMetrics(memory(ProcessMetrics.size()))
        self.record = self.metrics.inference[INDEX]
        self.desired = make_desired(processes=4, rows=4, inference={"algorithm": "script"}, go=True)
        self.beats = 0
        self.stopping = False
        bench = self

        class Context(SimpleNamespace):
            @property
            def desired(self) -> DesiredState:
                return bench.desired

            @property
            def stopping(self) -> bool:
                return bench.stopping

        self.context = Context(
            clock=self.clock, index=INDEX, blueprint=blueprint, record=self.record,
            config=Config(policy=ALWAYS_THE_POLICY, learning=LearningConfig(processes=0)),
            beat=self._beat,
            world=SimpleNamespace(
                frames=self.frames, actions=self.slots, weights=self.buffers, metrics=self.metrics,
                states=None,
                stagger=SimpleNamespace(algorithm="script"), claim_lock=nullcontext(),
                alternation=self.alternation, ledger=self.ledger,
            ),
        )
        asks = "pending_actions" in shapes
        self.policy = AskingPolicy(self.clock) if asks else StubPolicy(self.clock)
        self.weights = Weights(self.buffers, PARAMETERS, self.policy, self.clock)
        self._monkeypatch = monkeypatch
        self.publish(0)
        self.weights.take_over()

    def _beat(self) -> None:
        self.beats += 1

    def publish(self, version: int, best: int = 1) -> None:
        values = np.zeros(PARAMETERS, np.float32)
        values[best] = 1.0 + version
        self.buffers.publish(values, WeightsInfo(version, 10 * version))

    def show(self, *numbers: int) -> None:
        for number in numbers:
            self.frames.publish(number, np.full((6, 5), number, np.uint8), 0)

    def follow(self, *instructions: Any) -> list[Any]:
        """The replies to a list of instructions; the process is told to leave after the last."""
        replies = []

        def script(*arguments: Any) -> Generator[Any, Any, None]:
            for instruction in instructions:
                reply = yield instruction
                replies.append(reply)
            self.stopping = True
            yield Now()

        self._monkeypatch.setattr("rtagent.inference.driver.ALGORITHMS", {"script": script})
        driver = Driver(self.context, self.policy, self.weights)  # type: ignore[arg-type]
        driver.run()
        self.awake = driver._ahead.seconds, driver._ahead.awake_s
        return replies


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_now(bench: Bench) -> None:
    bench.show(0, 1)
    (reply,) = bench.follow(Now())
    assert isinstance(reply, Moment)
    assert reply.newest == 1
    assert reply.now == pytest.approx(START_S, abs=1e-3)


def test_wait_until_beats_all_the_while(bench: Bench) -> None:
    (reply,) = bench.follow(WaitUntil(START_S + 5.0))
    assert reply.now == pytest.approx(START_S + 5.0, abs=1e-3)
    assert bench.beats >= 5.0 / SLICE_S


def test_time_that_is_past_is_not_waited_for(bench: Bench) -> None:
    (reply,) = bench.follow(WaitUntil(START_S - 5.0))
    assert reply.now == pytest.approx(START_S, abs=1e-3)


def test_wait_for_a_frame(bench: Bench) -> None:
    bench.bell.during = lambda: bench.show(5)
    (reply,) = bench.follow(WaitFrame(5))
    assert reply.newest == 5


def test_wait_for_a_frame_ends_with_its_slice(bench: Bench) -> None:
    bench.show(0)
    (reply,) = bench.follow(WaitFrame(1))
    assert reply.newest == 0
    assert reply.now <= START_S + 2 * SLICE_S


def test_inference_reads_the_frame_asked_for(bench: Bench) -> None:
    bench.show(*range(9))
    (reply,) = bench.follow(Infer(6))
    assert isinstance(reply, Inferred)
    assert (reply.frame, reply.newest) == (6, 8)
    assert reply.tau == pytest.approx(TAU_S, rel=0.01)
    assert reply.now == pytest.approx(START_S + TAU_S, abs=1e-3)
    assert bench.policy.seen == [[3, 4, 5, 6]]


@pytest.mark.parametrize("asked", [None, 1, 1000])
def test_frame_that_is_not_there_gives_way_to_the_newest(bench: Bench, asked: int | None) -> None:
    bench.show(*range(CAPACITY + 10))
    (reply,) = bench.follow(Infer(asked))
    assert reply.frame == CAPACITY + 9


@pytest.mark.parametrize("asked", [None, 0])
def test_first_frame_is_waited_for(bench: Bench, asked: int | None) -> None:
    bench.bell.during = lambda: bench.show(0)
    (reply,) = bench.follow(Infer(asked))
    assert reply.frame == 0
    assert bench.policy.seen == [[0, 0, 0, 0]]
    # The time without a frame is no inference time.
    assert reply.tau == pytest.approx(TAU_S, rel=0.01)


def test_action_is_deposited(bench: Bench) -> None:
    bench.show(0, 1, 2)
    bench.publish(7, best=2)
    bench.weights.take_over()
    replies = bench.follow(Infer(2), Deposit(9, 2))
    (found,) = bench.slots.at(9)
    assert found == Deposited(INDEX, 2, 9, 2, 7, found.registered_at)
    assert found.registered_at == pytest.approx(replies[1].now, abs=1e-3)
    assert bench.record.deposits == bench.record.inferences == 1
    assert bench.record.weights_version == 7
    (sample,) = bench.record.registrations_since(0)
    assert sample["tick"] == 9
    assert sample["registered_ns"] / NANO == pytest.approx(found.registered_at, abs=1e-6)
    assert sample["latency_ns"] / NANO == pytest.approx(TAU_S, rel=0.01)


def test_a_chunk_fills_the_slots_of_consecutive_ticks(bench: Bench) -> None:
    bench.show(0, 1, 2)
    bench.policy.answers = np.eye(PARAMETERS, dtype=np.float32)
    order = []
    deposit = bench.slots.deposit
    bench.slots.deposit = lambda item: (  # type: ignore[method-assign]
        order.append((item.tick, item.position, bench.record.inferences)), deposit(item)
    )
    bench.follow(Infer(2), Deposit(9, 2))
    # The first is in a hurry: the accounts wait for it, and the others for the accounts.
    assert order == [(9, 0, 0), (10, 1, 1), (11, 2, 1)]
    for position, tick in enumerate((9, 10, 11)):
        (found,) = bench.slots.at(tick)
        assert found == Deposited(
            INDEX, 2, tick, position, 0, found.registered_at, position=position
        )
    assert len({bench.slots.at(tick)[0].registered_at for tick in (9, 10, 11)}) == 1
    (sample,) = bench.record.registrations_since(0)
    assert (sample["tick"], sample["ticks"]) == (9, 3)
    bench.policy.answers[2, 0] = np.nan
    with pytest.raises(FloatingPointError, match="to frame 2"):
        bench.follow(Infer(2))


@pytest.mark.parametrize(("tick", "chosen"), [(3, [0, 1, 2]), (4, [1, 2]), (5, [2]), (9, [2])])
def test_a_chunk_that_starts_at_its_observation_leaves_out_what_is_over(
    bench: Bench, tick: int, chosen: list[int]
) -> None:
    """Frame 2 is what tick 2 made: the first action is for tick 3, whatever tick was promised."""
    bench.context.config = Config(
        policy=PolicyConfig(epsilon_end=0.0, chunk_start="observation"),
        learning=LearningConfig(processes=0),
    )
    bench.show(0, 1, 2)
    bench.policy.answers = np.eye(PARAMETERS, dtype=np.float32)
    bench.follow(Infer(2), Deposit(tick, 2))
    found = [bench.slots.at(tick + position) for position in range(PARAMETERS)]
    assert [each[0].action for each in found if each] == chosen
    assert [each[0].position for each in found if each] == list(range(len(chosen)))


def test_where_a_chunk_starts_by_itself() -> None:
    assert not PolicyConfig().starts_at_observation
    assert PolicyConfig(pretrained="policy.pt2").starts_at_observation
    assert PolicyConfig(remote="ws://here:1").starts_at_observation
    assert not PolicyConfig(remote="ws://here:1", chunk_start="promised").starts_at_observation


def test_each_action_of_a_chunk_explores_like_that_of_its_tick(bench: Bench) -> None:
    bench.context.config = Config(
        policy=PolicyConfig(epsilon_end=0.5, exploration_hold_ticks=1),
        learning=LearningConfig(processes=0),
    )
    bench.show(*range(5))
    bench.policy.answers = np.tile(np.float32([1.0, 0.0, 0.0]), (40, 1))
    bench.follow(Infer(4), Deposit(6, 4))
    drawn = [explores(0, 4 + position, 1, 0.5, PARAMETERS) or 0 for position in range(40)]
    assert [bench.slots.at(6 + position)[0].action for position in range(40)] == drawn
    assert any(drawn)


def test_a_policy_that_answers_actions_is_taken_at_its_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = gymnasium.spaces.Box(-2.0, 2.0, (3,))
    bench = Bench(monkeypatch, action_space=box, action_shape=(3,), action_dtype="float32")
    bench.context.config = Config(
        policy=PolicyConfig(epsilon_end=1.0), learning=LearningConfig(processes=0)
    )
    bench.show(0)
    bench.policy.answers_actions = True  # type: ignore[attr-defined]
    bench.policy.answers = np.float32([[1.0, -1.0, 0.5], [0.0, 3.0, 0.0]])
    bench.follow(Infer(0), Deposit(1, 0))
    assert bench.slots.at(1)[0].action.tolist() == [1.0, -1.0, 0.5]
    assert bench.slots.at(2)[0].action.tolist() == [0.0, 2.0, 0.0]


def test_a_policy_s_probability_travels_with_its_action(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.context.config = Config(learning=LearningConfig(algorithm="ppo"))
    bench.policy.answers = np.log(np.float32([0.2, 0.7, 0.1]))
    said = {}
    for frame in range(12):
        bench.show(frame)
        # A look ahead draws another action, which is not the one that is deposited.
        bench.follow(Infer(frame), WaitFrame(frame + 1), Deposit(frame + 1, frame))
        bench.stopping = False
        (found,) = bench.slots.at(frame + 1)
        said[found.action] = found.log_probability
    assert len(said) > 1
    for action, value in said.items():
        assert value == pytest.approx(np.log([0.2, 0.7, 0.1][action]), abs=1e-5)


def test_continuous_actions_travel_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    box = gymnasium.spaces.Box(np.float32([-1.0, 0.0, -9.0]), np.float32([1.0, 0.5, 9.0]))
    bench = Bench(monkeypatch, action_space=box, action_shape=(3,), action_dtype="float32")
    bench.show(0, 1, 2)
    bench.policy.answers = np.float32([0.25, 0.75, 3.0])
    bench.follow(Infer(2), Deposit(9, 2))
    (found,) = bench.slots.at(9)
    # The second is outside its bounds.
    assert found.action.tolist() == [0.25, 0.5, 3.0]
    bench.policy.answers = np.float32([0.0, np.nan, 0.0])
    with pytest.raises(FloatingPointError, match="to frame 2"):
        bench.follow(Infer(2))


def test_continuous_actions_explore_alike_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    box = gymnasium.spaces.Box(-2.0, 2.0, (3,))
    actions = []
    for _ in range(2):
        bench = Bench(monkeypatch, action_space=box, action_shape=(3,), action_dtype="float32")
        bench.context.config = Config(
            policy=PolicyConfig(epsilon_end=0.5), learning=LearningConfig(processes=0)
        )
        bench.show(*range(5))
        bench.policy.answers = np.zeros(3, np.float32)
        bench.follow(Infer(4), Deposit(5, 4))
        actions.append(bench.slots.at(5)[0].action.tolist())
    wanted = np.clip(np.array(smooth_noise(0, 4, 8, 3)), -2.0, 2.0)
    np.testing.assert_allclose(actions[0], wanted, rtol=1e-5)
    assert actions[0] == actions[1]
    assert bench.record.epsilon == 0.5


def test_exploration_follows_the_updates_behind_the_weights(bench: Bench) -> None:
    """Not the frames: here a hundred updates lie between two of them."""
    policy = PolicyConfig(
        epsilon_start=1.0, epsilon_end=0.0, epsilon_steps=1000, exploration_hold_ticks=1
    )
    bench.context.config = Config(policy=policy, learning=LearningConfig(processes=1))
    numbers = range(200, 211)
    bench.show(*range(190, 211))
    for version, number in enumerate(numbers):
        bench.publish(10 * version)
        bench.weights.take_over()
        bench.stopping = False
        bench.follow(Infer(number), Deposit(number + 1, number))
        rate = 1.0 - version / 10
        assert bench.record.epsilon == pytest.approx(rate)
        random = explores(0, number, 1, rate, PARAMETERS)
        (deposited,) = bench.slots.at(number + 1)
        assert deposited.frame == number
        assert deposited.action == (1 if random is None else random)


def test_a_run_explores_by_schedule_once_it_has_learners(bench: Bench) -> None:
    bench.context.config = Config(
        policy=PolicyConfig(epsilon_end=0.5), learning=LearningConfig(processes=0)
    )
    bench.show(0, 1)
    bench.follow(Infer(0), Deposit(1, 0))
    assert bench.record.epsilon == 0.5
    bench.desired = with_changes(bench.desired, learning={"processes": 1})
    bench.follow(Infer(1), Deposit(2, 1))
    assert bench.record.epsilon == 1.0


def test_weights_are_switched_between_inferences_only(bench: Bench) -> None:
    bench.show(0)
    versions = iter(range(1, 10))
    bench.policy.during = lambda: bench.publish(next(versions), best=2)
    bench.follow(Infer(0), Deposit(1, 0), Infer(0), Deposit(2, 0))
    # What was published during an inference acts from the next one on.
    (first,), (second,) = bench.slots.at(1), bench.slots.at(2)
    assert (first.version, first.action) == (0, 1)
    assert (second.version, second.action) == (1, 2)


IDLE_S = 0.05
PIECES, PIECE_S = 20, 1e-3


def latencies_s(bench: Bench, publishing: bool, idle_s: float = IDLE_S) -> list[float]:
    """Of 50 inferences with large weights, and with a publication in each of them."""
    bench.show(0)
    bench.policy.pieces, bench.policy.piece_s = PIECES, PIECE_S
    versions = itertools.count(1)
    if publishing:
        bench.policy.during = lambda: bench.publish(next(versions), best=2)
    wait = [WaitUntil(START_S + k * (TAU_S + idle_s)) for k in range(1, 51)]
    script = [each for due in wait for each in (Infer(0), Deposit(1, 0), due)]
    taus = [reply.tau for reply in bench.follow(*script) if isinstance(reply, Inferred)]
    samples = bench.record.registrations_since(0)["latency_ns"] / NANO
    np.testing.assert_allclose(samples, taus, atol=1e-4)
    return taus


@pytest.mark.parametrize("idle_s", [IDLE_S, 1.2 * HURRY * TAU_S])
def test_publications_do_not_lengthen_inferences_where_there_is_idle_time(
    idle_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where it is too short for all pieces, but as long as what would be taken on the way."""
    p99 = [
        np.percentile(latencies_s(Bench(monkeypatch), publishing, idle_s), 99)
        for publishing in (False, True)
    ]
    assert p99[1] == pytest.approx(p99[0], abs=1e-4)


def test_weights_prepared_in_a_wait_act_from_the_next_inference_on(bench: Bench) -> None:
    latencies_s(bench, publishing=True)
    assert bench.weights.version == 49
    assert bench.record.takeover_ns < 1e-3 * bench.record.inferences * TAU_S * NANO


def test_without_idle_time_latency_covers_what_new_weights_take(bench: Bench) -> None:
    taus = np.array(latencies_s(bench, publishing=True, idle_s=-TAU_S))
    # The first inference knows no duration, nor has anything been published before it.
    assert taus[0] == pytest.approx(TAU_S, abs=1e-4)
    extra = taus[1:] - TAU_S
    assert PIECE_S < extra.max() <= HURRY * taus.max() + 2 * PIECE_S
    # A snapshot every second inference or so, although there is never any idle time.
    assert bench.weights.version >= 49 - 4
    assert bench.policy.weights[2] == 1.0 + bench.weights.version
    # And it is counted which part of the inferences that was.
    assert bench.record.takeover_ns == pytest.approx(extra.sum() * NANO, rel=0.01)


def test_waiting_for_frames_is_idle_time(bench: Bench) -> None:
    """The driver knows from the environment's clock when the next one comes."""
    tick_s = bench.context.blueprint.tick_seconds
    bench.policy.pieces, bench.policy.piece_s = 10, 1e-3
    bench.show(0)
    bench.metrics.environment.anchor_ns = round(START_S * NANO)
    bench.bell.during = lambda: bench.show(bench.frames.newest + 1)
    beat = bench.context.beat

    def publish_first() -> None:
        if bench.beats == 1:
            bench.publish(1, best=2)
        beat()

    bench.context.beat = publish_first
    first, second, answer = bench.follow(WaitFrame(1), WaitFrame(3), Infer(None))
    assert second.now - first.now < 3.1 * tick_s
    assert (bench.weights.version, answer.tau) == (1, pytest.approx(TAU_S, rel=1e-3))


class World:
    """Frames that come on a steady clock, and a bell that wakes whoever waits `late_s` late."""

    def __init__(self, bench: Bench, late_s: float) -> None:
        self.bench = bench
        self.late_s = late_s
        bench.frames.bell = self  # type: ignore[assignment]
        self.tick_s = bench.context.blueprint.tick_seconds
        self.start_s = START_S + 0.001
        bench.metrics.environment.anchor_ns = round(self.start_s * NANO)
        look = bench.clock.now
        bench.clock.now = lambda: self._show(look())  # type: ignore[method-assign]

    def due(self, frame: int) -> float:
        return self.start_s + frame * self.tick_s

    def _show(self, now: float) -> float:
        while self.due(self.bench.frames.newest + 1) <= now:
            self.bench.show(self.bench.frames.newest + 1)
        return now

    def ring(self) -> None:
        pass

    def wait_for(self, condition: Callable[[], bool], clock: Any, timeout: float) -> bool:
        end = clock.now() + timeout
        while not condition() and clock.now() < end:
            clock.sleep_until(min(end, self.due(self.bench.frames.newest + 1)))
        clock.advance(self.late_s)
        return clock.now() > 0.0 and condition()


@pytest.mark.parametrize("late_s", [30e-6, 600e-6])
def test_the_driver_is_awake_when_a_frame_comes(bench: Bench, late_s: float) -> None:
    """Also on a machine that wakes up later than any constant time ahead had it."""
    frames = 120
    world = World(bench, late_s)
    replies = bench.follow(*[WaitFrame(frame) for frame in range(frames)])
    seen_late = [reply.now - world.due(frame) for frame, reply in enumerate(replies)][40:]
    assert max(seen_late) < 30e-6
    ahead_s, awake_s = bench.awake
    assert late_s < ahead_s < late_s + 150e-6
    assert awake_s < 0.03 * frames * world.tick_s


@pytest.mark.parametrize("instruction", [Now(), WaitUntil(START_S + 1e6), WaitFrame(9)])
@pytest.mark.parametrize("processes", [INDEX, 1])
def test_leaves_when_it_is_one_too_many(bench: Bench, instruction: Any, processes: int) -> None:
    bench.show(0)
    bench.desired = replace(bench.desired, processes=processes)
    assert bench.follow(instruction) == []
    assert bench.policy.seen == []
    assert list(bench.slots.at(1)) == []


def test_an_action_under_way_is_registered_before_leaving(bench: Bench) -> None:
    bench.show(0)
    bench.desired = replace(bench.desired, processes=INDEX)
    assert len(bench.follow(Infer(0), Deposit(1, 0), Now())) == 1
    assert [each.frame for each in bench.slots.at(1)] == [0]


def test_stays_while_it_is_wanted(bench: Bench) -> None:
    bench.desired = replace(bench.desired, processes=INDEX + 1)
    assert len(bench.follow(Now(), Now())) == 2


def test_leaves_in_the_middle_of_a_long_wait(bench: Bench) -> None:
    beat = bench.context.beat

    def last_beat() -> None:
        beat()
        bench.stopping = bench.beats == 5

    bench.context.beat = last_beat
    assert bench.follow(WaitUntil(START_S + 1e6)) == []
    assert bench.clock.now() < START_S + 6 * SLICE_S


def test_leaves_while_there_is_no_frame(bench: Bench) -> None:
    def stop() -> None:
        bench.stopping = True

    bench.bell.during = stop
    assert bench.follow(Infer(None)) == []


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_network_that_answers_no_number(bench: Bench, wrong: float) -> None:
    bench.show(*range(5))
    bench.policy.answers = np.array([0.0, wrong, 1.0], np.float32)
    with pytest.raises(FloatingPointError, match="to frame 4"):
        bench.follow(Infer(None), Deposit(5, 4))
    assert list(bench.slots.at(5)) == []


@pytest.mark.parametrize(("injected_ms", "tau_s"), [(600.0, 0.6), (100.0, TAU_S)])
def test_injected_latency_includes_the_forward_pass(
    bench: Bench, injected_ms: float, tau_s: float
) -> None:
    bench.show(0)
    bench.desired = with_changes(bench.desired, inference={"injected_latency_ms": injected_ms})
    (reply,) = bench.follow(Infer(0))
    assert reply.tau == pytest.approx(tau_s, rel=0.01)


def test_algorithm_in_force_is_started_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def first(index: int, state: Any, lock: Any, tick_s: float) -> Generator[Any, Any, None]:
        started.append(("first", index, tick_s))
        yield Now()
        state.algorithm = "second"

    def second(index: int, state: Any, lock: Any, tick_s: float) -> Generator[Any, Any, None]:
        started.append(("second", index, tick_s))
        bench.stopping = True
        yield Now()

    monkeypatch.setattr("rtagent.inference.driver.ALGORITHMS", {"first": first, "second": second})
    bench.context.world.stagger.algorithm = "first"
    Driver(bench.context, bench.policy, bench.weights).run()  # type: ignore[arg-type]
    tick_s = bench.context.blueprint.tick_seconds
    assert started == [("first", INDEX, tick_s), ("second", INDEX, tick_s)]


SEQUENTIAL = {"algorithm": "sequential-infer-learn"}


@pytest.fixture
def waiting(bench: Bench) -> Bench:
    """A driver that waits for updates, beside a learner that has just shown life."""
    bench.desired = with_changes(
        bench.desired, inference=SEQUENTIAL, learner_ring=[0], learning={"lease_s": 1.0}
    )
    bench.metrics.learners[0].heartbeat_ns = round(START_S * NANO)
    return bench


def test_an_update_is_permitted_and_waited_for(waiting: Bench) -> None:
    shared = waiting.alternation
    shared._answers.during = lambda: shared.answer(shared.permitted)  # type: ignore[attr-defined]
    (reply,) = waiting.follow(Learn())
    assert (shared.permitted, shared.answered) == (1, 1)
    assert reply.now == pytest.approx(START_S, abs=1e-3)


def test_a_learner_that_shows_no_life_is_waited_for_as_long_as_its_lease(waiting: Bench) -> None:
    (reply,) = waiting.follow(Learn())
    assert START_S + 1.0 <= reply.now <= START_S + 1.0 + 2 * SLICE_S


def test_a_slow_update_is_waited_for(waiting: Bench) -> None:
    waiting.metrics.learners[0].update_ns = 2 * NANO
    shared, begun = waiting.alternation, waiting.clock.now()

    def answer() -> None:
        if waiting.clock.now() > begun + 5.0:
            shared.answer(1)

    shared._answers.during = answer  # type: ignore[attr-defined]
    (reply,) = waiting.follow(Learn())
    assert reply.now > begun + 5.0
    assert shared.answered == 1


@pytest.mark.parametrize(
    "changes", [{"learner_ring": []}, {"inference": {"algorithm": "adaptive"}}]
)
def test_nobody_is_waited_for_where_nobody_learns_in_turn(
    waiting: Bench, changes: dict[str, Any]
) -> None:
    waiting.desired = with_changes(waiting.desired, **changes)
    (reply,) = waiting.follow(Learn())
    assert reply.now == pytest.approx(START_S, abs=1e-3)


def test_what_is_pending_is_asked_for_after_the_injected_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Executed and promised meanwhile; and it goes with the action into its slot."""
    bench = Bench(monkeypatch, pending_actions=4)
    bench.desired = with_changes(bench.desired, inference={"injected_latency_ms": 500.0})
    bench.show(0, 1)
    beside = {"version": 1, "registered_at": 1.0}
    bench.slots.deposit(Deposited(0, 0, 3, 2, **beside))
    began = bench.clock.now()
    prepare = Driver._prepare

    def during_the_wait(driver: Driver, until: float) -> None:
        prepare(driver, until)
        assert bench.clock.now() - began >= TAU_S
        if bench.ledger.newest < 2:
            for tick in range(bench.ledger.newest + 1, 3):
                bench.ledger.write(
                    tick, observed=-1, time_ns=1, registered_ns=0, lateness_ns=0, reward=0.0,
                    weights_version=-1, episode=0, worker=-1, source=Source.DEFAULT, flags=0,
                    action=tick % 2,
                )
            bench.slots.deposit(Deposited(1, 0, 4, 1, **beside))

    monkeypatch.setattr(Driver, "_prepare", during_the_wait)
    reply, _ = bench.follow(Infer(1), Deposit(tick=5, frame=1))
    assert reply.tau == pytest.approx(0.5, abs=0.01)
    (item,) = bench.slots.at(5)
    assert item.pending.tolist() == [0, 2, 1, -1]
    assert bench.policy.told.tolist() == [[1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]]  # type: ignore[attr-defined]


def test_what_a_server_has_chosen_is_taken_as_it_is(bench: Bench) -> None:
    bench.context.config = Config(
        policy=PolicyConfig(epsilon_end=1.0), learning=LearningConfig(processes=0)
    )
    bench.policy.answers_actions = True  # type: ignore[attr-defined]
    bench.show(*range(20))
    for number in range(20):
        bench.follow(Infer(number), Deposit(number + 1, number))
        assert bench.slots.at(number + 1)[0].action == 1
    assert bench.record.epsilon == 0.0


def test_after_a_cut_link_the_newest_frame_is_asked_about(bench: Bench) -> None:
    """And the time before counts as no inference."""
    bench.show(0, 1)
    answers, values = iter([None, None]), bench.policy.values

    def cut_twice(observation: np.ndarray) -> Any:
        answer = values(observation)
        try:
            cut = next(answers)
        except StopIteration:
            return answer
        bench.show(len(bench.policy.seen) + 1)
        return cut

    bench.policy.values = cut_twice  # type: ignore[method-assign]
    (found,) = [each for each in bench.follow(Infer(1)) if isinstance(each, Inferred)]
    assert [seen[-1] for seen in bench.policy.seen] == [1, 2, 3]
    assert found.frame == 3
    assert found.tau == pytest.approx(TAU_S, rel=0.01)


def test_an_answer_is_dropped_when_its_tick_is_over_and_a_newer_frame_was_acted_on(
    bench: Bench,
) -> None:
    for tick, frame in ((8, 5), (9, 7), (10, -1)):
        source = Source.DEFAULT if frame < 0 else Source.AGENT
        bench.ledger.write(
            tick, observed=frame, time_ns=tick, registered_ns=0, lateness_ns=0, reward=0.0,
            weights_version=0, episode=0, worker=0, source=source, flags=0, action=0,
        )
    driver = Driver(bench.context, bench.policy, bench.weights)  # type: ignore[arg-type]
    passed = {
        (tick, frame): driver._passed_over(driver._deposited(frame, tick))
        for tick in (10, 11) for frame in (6, 7, 8)
    }
    assert [key for key, over in passed.items() if over] == [(10, 6), (10, 7)]
