"""Evaluation: greedy episodes with the newest weights, on time, in a paused world."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config import Config, EnvConfig
from rtagent.config_sources import parse_config
from rtagent.env.adapter import Adapter
from rtagent.evaluation import process
from rtagent.evaluation.process import Evaluation, Evaluator, Played, seed_of
from rtagent.memory.frames import FrameRing
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.policy import networks
from tests.conftest import make_blueprint, private

STACK = 3


class Walk(gym.Env[Any, Any]):
    """Pays what the action is worth, and ends after so many steps.

    Args:
        length: of an episode.
        truncated: whether it is cut short at the end.
    """

    observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)
    metadata = MappingProxyType({"render_fps": 20})

    def __init__(self, length: int = 5, truncated: bool = False) -> None:
        self.length, self.truncated = length, truncated
        self.seeds: list[int | None] = []
        self.actions: list[int] = []
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.steps = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        value = float(np.asarray(action).item())
        self.actions.append(int(value))
        self.steps += 1
        over = self.steps == self.length
        ends = (False, over) if self.truncated else (over, False)
        return self._see(), value + 0.5, *ends, {}

    def _see(self) -> Any:
        return np.array([self.steps, 10.0 * len(self.seeds)], np.float32)


def third_is_best(observation: Any) -> Any:
    return np.array([0.0, 1.0, 2.0], np.float32)


def evaluator(
    walk: Walk, values: Any = third_is_best, go_on: Callable[[], bool] = lambda: True
) -> Evaluator:
    return Evaluator(Adapter(walk, EnvConfig(frame_stack=STACK)), values, go_on)


@pytest.mark.parametrize("truncated", [False, True])
def test_an_episode_is_played_to_its_end(truncated: bool) -> None:
    walk = Walk(5, truncated)
    assert evaluator(walk).play_episode(3) == Played(12.5, 5, ended=True)
    assert (walk.seeds, walk.actions) == ([3], [2] * 5)


def test_the_best_action_is_taken_always() -> None:
    answers = iter([[0, 3, 1], [9, -3, 1], [-3, -2, -1], [1, 1, 0]])
    walk = Walk(4)
    evaluator(walk, lambda observation: np.array(next(answers), np.float32)).play_episode(0)
    assert walk.actions == [1, 0, 2, 0]


def test_continuous_actions_are_taken_as_they_are() -> None:
    walk = Walk(3)
    walk.action_space = gym.spaces.Box(0.0, 9.0, (1,))  # type: ignore[assignment]
    answers = iter([2.0, 99.0, 7.0])
    played = evaluator(walk, lambda observation: np.float32([next(answers)])).play_episode(0)
    assert played == Played(2.0 + 9.0 + 7.0 + 1.5, 3, ended=True)


def test_observations_are_stacked_as_the_frame_ring_stacks_them() -> None:
    blueprint = make_blueprint(frame_shape=(2,), frame_dtype="float32", frame_stack=STACK)
    ring = FrameRing.private(blueprint, 64)
    seen: list[Any] = []

    def look(observation: Any) -> Any:
        seen.append(observation.copy())
        return third_is_best(observation)

    walk = Walk(6)
    player = evaluator(walk, look)
    player.play_episode(0)
    player.play_episode(1)
    for number, observation in enumerate(seen):
        episode, step = divmod(number, 6)
        frame = np.array([step, 10.0 * (episode + 1)], np.float32)
        ring.publish(number, frame, 6 * episode)
        expected = np.zeros_like(observation)
        assert ring.observation(number, expected)
        assert observation.tolist() == expected.tolist()
    assert len(seen) == 12


def test_an_endless_episode_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LONGEST_EPISODE_S", 3.0)
    walk = Walk(10_000)
    assert evaluator(walk).play_episode(0) == Played(150.0, 60, ended=False)


def test_an_episode_has_a_tick_however_long_a_tick_is() -> None:
    slow = Evaluator(Adapter(Walk(5), EnvConfig(rate_hz=1e-4)), third_is_best, lambda: True)
    assert slow.play_episode(0) == Played(2.5, 1, ended=False)


def test_it_ends_in_the_middle_when_told_to() -> None:
    walk = Walk(100)
    assert evaluator(walk, go_on=lambda: len(walk.actions) < 7).play_episode(0) is None
    assert len(walk.actions) == 7


def test_seeds_are_all_different_and_repeatable() -> None:
    seeds = [seed_of(run, number, episode) for run in range(3) for number in range(10)
             for episode in range(10)]
    assert len(set(seeds)) == len(seeds)
    assert seeds[:2] == [seed_of(0, 0, 0), seed_of(0, 0, 1)]
    assert all(0 <= seed < 2**32 for seed in seeds)


# ---- on time, in the metrics


class FakePolicy:
    """Remembers what it was given; its values are the weights."""

    def __init__(self) -> None:
        self.loaded: list[list[float]] = []

    def load(self, values: Any) -> None:
        self.loaded.append(values.tolist())

    def forget(self) -> None:
        """It carries nothing along."""

    def greedy(self, observation: Any) -> Any:
        return np.array(self.loaded[-1], np.float32)


class FakeContext:
    """What `worker.py` gives a worker, under the test's control.

    Attributes:
        until: the loop is told to stop at this time.
    """

    def __init__(self, config: Config, weights: WeightBuffers, parameters: int) -> None:
        self.config = config
        self.world = SimpleNamespace(weights=weights)
        self.blueprint = SimpleNamespace(parameters=parameters)
        self.metrics = private(ProcessMetrics)
        self.record = self.metrics.evaluation
        self.clock = VirtualClock(1000.0)
        self.until = float("inf")
        self.beats = 0
        self.events: list[dict[str, Any]] = []
        self.has_idle_priority = self.is_ready = False
        self.on_event: Callable[[], None] = lambda: None
        self.beat_s = 0.0

    @property
    def stopping(self) -> bool:
        return self.clock.now() >= self.until

    def beat(self) -> None:
        self.beats += 1
        self.clock.advance(self.beat_s)
        assert self.beats < 100_000

    def event(self, kind: str, **details: Any) -> None:
        self.events.append({"kind": kind, "at": self.clock.now(), **details})
        self.on_event()

    def set_idle_priority(self) -> None:
        self.has_idle_priority = True

    def ready(self) -> None:
        self.is_ready = True


def make_context(parameters: int = 3, **learning: Any) -> FakeContext:
    settings = {"evaluation_every_s": 60.0, "evaluation_episodes": 2, **learning}
    config = parse_config({"learning": settings, "run": {"seed": 5}})
    memory = memoryview(np.zeros(WeightBuffers.size(parameters), np.uint8))
    return FakeContext(config, WeightBuffers(memory, parameters), parameters)


def publish(context: FakeContext, values: list[float], version: int, updates: int) -> None:
    context.world.weights.publish(np.array(values, np.float32), WeightsInfo(version, updates))


def make_evaluation(context: FakeContext, walk: Walk) -> tuple[Evaluation, FakePolicy]:
    policy = FakePolicy()
    adapter = Adapter(walk, EnvConfig())
    return Evaluation(context, adapter, policy), policy  # type: ignore[arg-type]


def test_the_newest_weights_are_evaluated_every_so_often() -> None:
    context = make_context()
    walk = Walk(4)
    evaluations, policy = make_evaluation(context, walk)
    publish(context, [0, 1, 0], 7, 70)
    context.on_event = lambda: publish(context, [0, 0, 1], 8, 80)
    context.until = 1000.0 + 130.0
    evaluations.run()
    assert policy.loaded == [[0, 1, 0], [0, 0, 1]]
    assert [event["at"] for event in context.events] == pytest.approx([1060.0, 1120.0])
    first, second = context.events
    assert (first["kind"], first["mean_return"], first["returns"]) == ("evaluation", 6.0, [6, 6])
    assert (first["updates"], first["weights_version"]) == (70, 7)
    assert (first["ticks"], first["unfinished"]) == ([4, 4], 0)
    assert (second["mean_return"], second["updates"]) == (10.0, 80)
    record = context.metrics.evaluation
    names = ("evaluations", "episodes", "mean_return", "updates", "weights_version")
    assert [getattr(record, name) for name in names] == [2, 4, 10.0, 80, 8]
    assert walk.seeds == [seed_of(5, number, episode) for number in (0, 1) for episode in (0, 1)]
    assert context.beats > 2 * 2 * 4


def test_a_successor_goes_on_with_other_seeds() -> None:
    context = make_context(evaluation_episodes=1)
    publish(context, [1, 0, 0], 0, 0)
    context.record.evaluations = 9
    walk = Walk()
    make_evaluation(context, walk)[0].evaluate()
    assert walk.seeds == [seed_of(5, 9, 0)]
    assert context.record.evaluations == 10


def test_without_weights_there_is_nothing_to_evaluate() -> None:
    context = make_context()
    walk = Walk()
    evaluations, _ = make_evaluation(context, walk)
    context.until = 1000.0 + 200.0
    evaluations.run()
    assert (walk.seeds, context.events) == ([], [])


def test_one_that_takes_too_long_delays_the_next_and_nothing_is_made_up_for() -> None:
    context = make_context(evaluation_episodes=1)
    publish(context, [1, 0, 0], 0, 0)
    evaluations, _ = make_evaluation(context, Walk(50))

    def hurry() -> None:
        context.beat_s = 0.0

    context.beat_s, context.on_event = 6.0, hurry
    context.until = 1000.0 + 500.0
    evaluations.run()
    times = [event["at"] for event in context.events]
    assert times[0] >= 1060.0 + 300.0
    assert np.diff(times) == pytest.approx([0.0, 60.0, 60.0])


def test_stopped_in_the_middle_nothing_is_reported() -> None:
    context = make_context()
    publish(context, [1, 0, 0], 0, 0)
    walk = Walk(50)
    evaluations, _ = make_evaluation(context, walk)
    context.beat_s, context.until = 1.0, 1000.0 + 60.0 + 80.0
    evaluations.run()
    assert len(walk.seeds) == 2
    assert context.events == []
    assert context.record.evaluations == 0


def test_the_whole_process_with_a_real_network() -> None:
    settings = {"env": {"id": "CartPole-v1"}, "run": {"seed": 5}}
    settings["learning"] = {"evaluation_every_s": 1.0, "evaluation_episodes": 3, "dueling": True}
    config = parse_config(settings)
    observations = gym.spaces.Box(-np.inf, np.inf, (1, 4), np.float32)
    actions = gym.spaces.Discrete(2)
    head = networks.head_of(config.learning, actions)
    network = networks.build(config.policy, observations, actions, head)
    flat = networks.flattened(network)
    parameters = len(flat)
    returns = []
    for _ in range(2):
        context = make_context(parameters)
        context.config = config
        context.blueprint = SimpleNamespace(
            parameters=parameters, observation_space=observations, action_space=actions,
            pending_actions=0, precision="float32",
        )
        context.world.weights.publish(flat, WeightsInfo(1, 10))

        def stop(context: FakeContext = context) -> None:
            context.until = 0.0

        context.on_event = stop
        process.run(context)  # type: ignore[arg-type]
        assert context.has_idle_priority
        assert context.is_ready
        returns.append(context.events[0]["returns"])
    assert returns[0] == returns[1]
    assert len(returns[0]) == 3
    assert min(returns[0]) >= 5.0
