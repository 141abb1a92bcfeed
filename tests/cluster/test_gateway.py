"""A gateway that does not reach the learner, in virtual time and without Ray."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.cluster import gateway, ray_session
from rtagent.cluster.exchange import LONGEST_PAUSE_S
from rtagent.cluster.gateway import cut_since, settings_at, unreached
from rtagent.cluster.node import Settings
from rtagent.config import LearningConfig
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.learning import state as states
from rtagent.learning.beginning import build_network
from rtagent.memory.double_buffer import JsonDoubleBuffer
from rtagent.memory.learner_state import LearnerState
from rtagent.memory.process_metrics import LearnerRecord
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.telemetry.cluster import OF_A_MOMENT, cluster_figures
from tests.cluster.edge import Edge
from tests.conftest import private
from tests.telemetry.test_cluster import example_document

REASON = "no Ray cluster at 10.0.0.1:6379: timed out"


class Context:
    """Context of a gateway's process, which is told to stop at some time."""

    def __init__(self, requested: int, seconds: float) -> None:
        self.config = parse_config({
            "learning": {"where": "cluster"}, "cluster": {"address": "10.0.0.1:6379"},
        })
        self.clock = VirtualClock(100.0)
        self.record = private(LearnerRecord)
        self.cluster = private(JsonDoubleBuffer, 4096)
        self.learner = private(LearnerState, 4)
        self.checkpoint, self.checkpoint_dir = requested, Path("there-are-none")
        self.desired = self.world = self
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.set_idle_priority = self.ready = self.beat = lambda: None
        self._end = self.clock.now() + seconds

    @property
    def stopping(self) -> bool:
        return self.clock.now() >= self._end

    def event(self, kind: str, **details: Any) -> None:
        self.events.append((kind, details))


@pytest.fixture
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "connect", Mock(side_effect=UserError(REASON)))
    monkeypatch.setattr(ray_session, "disconnect", lambda: None)


@pytest.mark.usefixtures("_no_cluster")
def test_a_checkpoint_that_is_requested_while_the_learner_is_not_reached_is_refused() -> None:
    context: Any = Context(requested=2, seconds=5.0)
    assert gateway._reach(context) is None
    assert context.events == [
        ("cluster_unreached", {"reason": REASON}),
        ("checkpoint_failed", {"reason": "the learner is not reached", "request": 2}),
    ]
    assert context.learner.checkpoints.served == 2
    assert context.record.checkpoint_failures == 1


def test_while_a_ray_of_this_machine_starts_the_status_says_so(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes many seconds, after each death of a gateway: the gateway was said not to answer."""
    context: Any = Context(requested=0, seconds=5.0)
    context.config = parse_config({"learning": {"where": "cluster"}})
    context.cluster.write(example_document(now=100.0))
    said: list[Any] = []

    def connect(*_: Any, **__: Any) -> None:
        said.append(cluster_figures(context.cluster.read(), 110.0))
        raise UserError(REASON)

    monkeypatch.setattr(ray_session, "connect", connect)
    monkeypatch.setattr(ray_session, "disconnect", lambda: None)
    gateway._reach(context)
    first, *others = [(each.connected, each.reason, each.since_s) for each in said]
    assert first == (False, "a Ray of this machine alone starts", pytest.approx(10.2))
    # Why it did not start is not hidden while it is tried again.
    assert len(others) > 2
    assert {each[:2] for each in others} == {(False, REASON)}


@pytest.mark.usefixtures("_no_cluster")
def test_a_stop_while_the_learner_is_not_reached_says_what_is_not_saved(tmp_path: Path) -> None:
    context: Any = Context(requested=0, seconds=5.0)
    context.record.applied, context.checkpoint_dir = 70, tmp_path
    names = [f"checkpoint-{number:06d}-{30 * number:012d}.safetensors" for number in (1, 2)]
    for name in names:
        (tmp_path / name).touch()
    assert gateway._reach(context) is None
    assert context.events[1:] == [("checkpoint_failed", {
        "reason": "the learner is not reached: what it has learned since "
                  f"{names[1]} is not saved here",
        "request": 0,
    })]


@pytest.mark.usefixtures("_no_cluster")
def test_while_the_learner_is_not_reached_only_counts_are_known() -> None:
    context: Any = Context(requested=0, seconds=5.0)
    context.cluster.write(example_document(context.clock.now()))
    assert gateway._reach(context) is None
    found = context.cluster.read()
    assert not set(found) & set(OF_A_MOMENT)
    assert (found["reason"], found["stale_priorities"]) == (REASON, 17)
    figures = cluster_figures(found, context.clock.now())
    assert (figures.connected, figures.reason) == (False, REASON)
    assert figures.loss_mean is figures.batches_in_flight is figures.round_trip_ms is None
    # The others are known from the learner.
    assert [(each.id, each.learned) for each in figures.nodes] == [("robot-1", 3980)]
    assert unreached({}, 50.0, REASON)["nodes"] == []


@pytest.mark.parametrize(("reasons", "told"), [
    # As of a network that comes and goes while the machine there is gone.
    (cycle(["No route to host", "timed out"]), 2),
    # As a line of Ray's log, which begins with the time: it was an event at each attempt, and there
    # was one three times a second.
    ((f"[08:27:{n}.737 E {4000 + n}] Failed to connect to GCS" for n in count()), 1),
])
def test_reasons_that_come_again_and_again_are_told_once_and_tried_seldom(
    monkeypatch: pytest.MonkeyPatch, reasons: Iterator[str], told: int
) -> None:
    tried = list[str]()

    def refuse(*_: Any, **__: Any) -> None:
        tried.append(next(reasons))
        raise UserError(tried[-1])

    monkeypatch.setattr(ray_session, "connect", refuse)
    context: Any = Context(requested=0, seconds=600.0)
    assert gateway._reach(context) is None
    assert context.events == [("cluster_unreached", {"reason": reason}) for reason in tried[:told]]
    assert len(tried) < 600.0 / LONGEST_PAUSE_S + 10
    assert context.cluster.read()["reason"] == tried[-1]


def test_the_learner_is_told_how_far_the_schedules_are() -> None:
    learning = LearningConfig(
        batch_size=12, learning_rate=8e-4, learning_rate_steps=100, learning_rate_end_factor=0.5,
        importance_exponent=0.5, importance_steps=50,
    )
    found = [settings_at(learning, updates) for updates in (0, 25, 100)]
    assert found[0] == Settings(12, 8e-4, 0.5)
    assert found[1] == Settings(12, pytest.approx(7e-4), pytest.approx(0.75))
    assert found[2] == Settings(12, pytest.approx(4e-4), 1.0)


@pytest.mark.usefixtures("_no_cluster")
@pytest.mark.parametrize("known", [0, 6000])
def test_the_schedules_of_a_resumed_run_go_on(known: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first answer, a learner that has gone on is not told the first step size."""
    monkeypatch.setattr(gateway, "publish_if_nobody_has", lambda _: None)
    monkeypatch.setattr(gateway, "keep_freed_memory", lambda: None)
    context: Any = Context(requested=0, seconds=5.0)
    context.weights = private(WeightBuffers, 4)
    context.weights.publish(np.ones(4, np.float32), WeightsInfo(3, 5000))
    context.record.updates = known
    gateway.run(context)
    assert context.record.updates == max(known, 5000)


def test_a_gateway_that_begins_tells_since_when_its_predecessor_was_cut() -> None:
    assert cut_since({}, 50.0) == 50.0
    assert cut_since({"connected": True, "at": 40.0, "since": 3.0}, 50.0) == 40.0
    assert cut_since({"connected": False, "at": 40.0, "since": 3.0}, 50.0) == 3.0


@pytest.mark.parametrize(("acting", "updates", "taken"), [
    (4, 10, "state"), (4, 12, "weights"),
    # Of an actor and critics, the weights that act are the actor.
    (2, 12, "state"),
])
def test_a_learner_without_a_state_is_given_the_newest_that_is_whole(
    acting: int, updates: int, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = private(LearnerState, 4)
    states.put(states.begin(np.ones(4, np.float32), 10), state)
    monkeypatch.setattr(gateway, "first_state", lambda *_: "weights")
    weights = SimpleNamespace(info=lambda: WeightsInfo(3, updates))
    context: Any = SimpleNamespace(
        blueprint=SimpleNamespace(parameters=acting, learned_parameters=4),
        world=SimpleNamespace(weights=weights), config=None, resume=None,
    )
    update: Any = SimpleNamespace(state=state, algorithm=SimpleNamespace(network=None))
    found: Any = gateway.newest_state(context, update)
    assert found == "weights" if taken == "weights" else found.progress.updates == 10


def test_a_learner_is_given_the_newest_weights_when_the_resumed_checkpoint_is_gone(
    tmp_path: Path,
) -> None:
    # Newer ones had taken its place: the gateway ended as often as it was started.
    edge = Edge()
    shapes, network = edge.blueprint, build_network(edge.config, edge.blueprint)
    count, told = shapes.parameters, list[tuple[str, str]]()
    newest = np.arange(count, dtype=np.float32)
    state = private(LearnerState, count)
    states.put(states.begin(np.ones(count, np.float32), 10), state)
    weights = private(WeightBuffers, count)
    weights.publish(newest, WeightsInfo(3, 12))
    context: Any = SimpleNamespace(
        blueprint=shapes, world=SimpleNamespace(blueprint=shapes, weights=weights),
        config=edge.config, resume=tmp_path / "checkpoint-000001-000000000007.safetensors",
        event=lambda kind, reason: told.append((kind, reason)),
    )
    update: Any = SimpleNamespace(state=state, algorithm=SimpleNamespace(network=network))
    found = gateway.newest_state(context, update)
    np.testing.assert_array_equal(found.arrays.weights, newest)
    assert found.progress.updates == 12
    # What it begins without was said nowhere.
    ((kind, reason),) = told
    assert kind == "checkpoint_corrupt"
    assert str(context.resume) in reason
    assert reason.endswith("; learning goes on with the weights that act, and with moments of 0")
