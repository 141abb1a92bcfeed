"""A buffer node, the exchange and the learner together, in virtual time and without Ray."""

from __future__ import annotations

import copy
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.clock import VirtualClock
from rtagent.cluster.exchange import Exchange
from rtagent.cluster.learner import PATIENCE_S, ClusterLearner
from rtagent.cluster.link import Emulation
from rtagent.cluster.message import Bytes, pack, unpack
from rtagent.cluster.node import Settings
from rtagent.cluster.trainer import Trainer, snapshot_arrays
from rtagent.errors import UserError
from rtagent.learning import state as states
from rtagent.learning.beginning import build_network
from rtagent.learning.replay.batch import Batch
from rtagent.policy import networks
from tests.cluster.edge import Direct, Edge

STEP_S = 0.01
NO_EMULATION = Emulation()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def edge() -> Callable[..., Edge]:
    return Edge


def first_state(edge: Edge) -> Bytes:
    flat = networks.flattened(build_network(edge.config, edge.blueprint))
    return pack({}, snapshot_arrays(states.begin(flat, 7)))


class Scene:
    """Nodes that talk to one learner, and a clock that is moved.

    Attributes:
        losses: of every share that was answered, by node.
    """

    def __init__(
        self, *edges: Edge, emulation: Emulation = NO_EMULATION, seed: int = 3
    ) -> None:
        self.clock = VirtualClock(100.0)
        self.learner = ClusterLearner(self.clock, None)
        self.remotes = [Direct(self.learner) for _ in edges]
        self.edges = edges
        self.exchanges = [
            Exchange(
                remote, each.node, each.joining, lambda each=each: first_state(each), emulation,  # type: ignore[misc]
                random.Random(seed).random, self.clock.now(),
            )
            for remote, each in zip(self.remotes, edges, strict=True)
        ]
        self.settings = Settings(batch_size=8, learning_rate=5e-4, beta=0.5)
        self.losses: list[list[float]] = [[] for _ in edges]
        self.updates: list[int] = []
        self.weights: list[Any] = []

    def run(
        self, seconds: float, *, learn: int = 1, ticks: int = 1, collect: bool = True
    ) -> None:
        """Let time pass; the learner has time for `learn` updates in every step."""
        for _ in range(round(seconds / STEP_S)):
            for index, (exchange, edge) in enumerate(zip(self.exchanges, self.edges, strict=True)):
                edge.play(ticks)
                exchange.advance(self.clock.now())
                while room := exchange.room:
                    made = [exchange.make(self.settings) for _ in range(room)]
                    exchange.send(self.clock.now())
                    if not all(made):
                        break
                for learned in exchange.learned() if collect else ():
                    self.losses[index].append(learned.loss)
                    self.updates.append(learned.updates)
                if (found := exchange.weights()) is not None:
                    self.weights.append(found)
            for _ in range(learn):
                self.learner.step(0.0)
            self.clock.advance(STEP_S)


@pytest.mark.parametrize("replay", ["edge", "learner"])
def test_it_learns_and_weights_come_back(edge: Callable[..., Edge], replay: str) -> None:
    scene = Scene(edge(replay=replay))
    scene.run(3.0)
    assert scene.exchanges[0].connected
    assert len(scene.losses[0]) > 100
    # Each batch once: the number of updates grows by one, from those of the first state on.
    assert scene.updates == list(range(8, 8 + len(scene.updates)))
    assert [each.updates for each in scene.weights[:3]] == [7, 8, 12]
    assert (scene.weights[0].values != scene.weights[-1].values).any()


@pytest.mark.parametrize("replay", ["edge", "learner"])
@pytest.mark.parametrize("prioritized", [False, True])
def test_what_is_learned_from_is_what_happened(
    edge: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch, replay: str, prioritized: bool
) -> None:
    scene = Scene(edge(stack=3, episode=7, replay=replay, prioritized=prioritized))
    seen: list[Batch] = []
    learn = Trainer.learn

    def watch(trainer: Trainer, batch: Batch, learning_rate: float) -> Any:
        seen.append(copy.deepcopy(batch))
        return learn(trainer, batch, learning_rate)

    monkeypatch.setattr(Trainer, "learn", watch)
    scene.run(4.0)
    assert len(seen) > 100
    for batch in seen:
        newest = np.rint(batch.observations.numpy()[:, -1, 0] * 100).astype(int)
        starts = newest - newest % 7
        for age in range(3):
            expected = np.maximum(newest - age, starts)
            found = batch.observations.numpy()[:, -1 - age, 0] * 100
            np.testing.assert_allclose(found, expected, atol=1e-3)
        following = np.rint(batch.next_observations.numpy()[:, -1, 0] * 100).astype(int)
        alive = ~batch.terminals.numpy()
        assert (following[alive] > newest[alive]).all()
        assert (following[alive] <= newest[alive] + 2).all()
        np.testing.assert_array_equal(batch.actions.numpy()[alive], (newest[alive] + 1) % 3)


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_behind_a_slow_lossy_link_nothing_is_learned_twice(
    edge: Callable[..., Edge], loss: float
) -> None:
    world = edge(prioritized=True)
    scene = Scene(world, emulation=Emulation(rtt_s=0.1, bits_per_s=2e6, loss=loss))
    applied: list[np.ndarray[Any, Any]] = []
    original = world.replay.update_errors
    world.replay.update_errors = lambda frames, errors: (  # type: ignore[method-assign]
        applied.append(frames), original(frames, errors))[1]
    scene.run(20.0)
    learned = scene.learner.status()
    assert learned["batches"] > 100
    # Every batch of the learner was one share, and every answer was applied once.
    assert learned["nodes"][0]["learned"] == 8 * learned["batches"]
    assert world.node.counts.samples == sum(len(each) for each in applied)
    assert world.node.counts.samples <= 8 * learned["batches"]
    assert world.node.counts.shipped >= world.node.counts.samples
    if loss == 0.0:
        # None was repeated; some have not arrived yet.
        assert scene.remotes[0].calls.count("offer") <= world.node.counts.shipped / 8


@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_round_trip_and_age_are_those_of_the_link_alone(
    edge: Callable[..., Edge], wait_s: float
) -> None:
    scene = Scene(edge(), emulation=Emulation(rtt_s=0.1))
    for _ in range(5):
        # Meanwhile the learner holds what has come.
        scene.run(wait_s, learn=0)
        scene.run(1.0)
    link = scene.exchanges[0].in_flight
    assert link.delay_s == pytest.approx(0.1, abs=2 * STEP_S)
    assert link.answer_s > 0.1 - 2 * STEP_S
    # Weights are fetched as soon as they are there, and half of a round trip on their way.
    assert min(each.age_s for each in scene.weights[2:]) == pytest.approx(0.05, abs=3 * STEP_S)


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_batches_that_take_little_time_travel_several_in_a_call(
    edge: Callable[..., Edge], loss: float
) -> None:
    world = edge(prioritized=True)
    scene = Scene(world, emulation=Emulation(rtt_s=0.02, loss=loss))
    applied: list[int] = []
    answered = world.node.answered
    world.node.answered = lambda answer: (  # type: ignore[method-assign]
        applied.append(answer.values["seq"]), answered(answer))[1]
    scene.run(4.0, learn=8)
    shares, calls = world.node.counts.samples // 8, scene.remotes[0].calls.count("offer")
    assert shares > 200
    assert len(world.node.under_way) <= scene.exchanges[0].in_flight.limit
    # Each once, whatever had to be repeated; and in their order.
    assert len(set(scene.updates)) == len(scene.updates)
    learned = scene.learner.status()
    assert learned["nodes"][0]["learned"] == 8 * learned["batches"]
    assert sorted(set(applied)) == list(range(shares))
    if loss == 0.0:
        assert calls < shares / 2
        assert applied == list(range(shares))


def test_frames_that_the_learner_has_do_not_travel(edge: Callable[..., Edge]) -> None:
    small, large = edge(name="a", slots=64), edge(name="b", slots=1024)
    for each in (small, large):
        Scene(each).run(3.0)
    counts, others = small.node.counts, large.node.counts
    assert counts.cache_hits / counts.frames < others.cache_hits / others.frames
    assert others.cache_hits / others.frames > 0.8


def test_two_nodes_share_a_batch_by_what_they_generate(edge: Callable[..., Edge]) -> None:
    quick, slow = edge(name="quick"), edge(name="slow", capacity=300)
    scene = Scene(quick, slow)
    for _ in range(10):
        # Two more ticks for each of the other's.
        quick.play(40)
        scene.run(0.5)
    shares = {node["id"]: node["share"] for node in scene.learner.status()["nodes"]}
    assert sum(shares.values()) == 8
    assert shares["quick"] > shares["slow"]
    # Answers come when a call of theirs is over: one may know of more than the other.
    known = min(map(len, scene.losses))
    assert known > 100
    assert scene.losses[0][:known] == scene.losses[1][:known]


def test_the_shares_follow_a_node_that_comes(edge: Callable[..., Edge]) -> None:
    first, second = edge(name="first"), edge(name="second")
    scene = Scene(first)
    scene.run(4.0)
    assert scene.exchanges[0].share == 8
    later = Scene(second)
    later.remotes[0].learner, later.clock = scene.learner, scene.clock
    scene.edges, scene.losses = (first, second), [[], []]
    scene.exchanges.append(later.exchanges[0])
    scene.run(2.0)
    assert [each.share for each in scene.exchanges] == [4, 4]


def test_a_node_that_falls_silent_costs_one_wait(edge: Callable[..., Edge]) -> None:
    both = Scene(edge(name="a"), edge(name="b"))
    both.run(2.0)
    before = both.learner.status()["batches"]
    silent = both.exchanges.pop()
    both.edges = both.edges[:1]
    both.run(4.0)
    after = both.learner.status()["batches"]
    waited = 4.0 / STEP_S - (after - before)
    # What the silent node had sent, its one wait, and no more.
    assert waited * STEP_S < PATIENCE_S + 0.2
    assert both.exchanges[0].share == 8
    both.exchanges.append(silent)
    both.edges = (*both.edges, edge(name="c"))
    assert silent.node_name == "b"


def test_a_learner_that_was_started_again_is_joined_anew(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    scene.run(1.0)
    count = len(scene.updates)
    scene.remotes[0].learner = scene.learner = ClusterLearner(scene.clock, None)
    scene.run(2.0)
    assert scene.remotes[0].calls.count("join") == 2
    assert scene.exchanges[0].connected
    assert len(scene.updates) > count + 50


def test_a_learner_that_died_learns_on_from_its_own_checkpoint(
    edge: Callable[..., Edge], tmp_path: Path
) -> None:
    world = edge()
    scene = Scene(world)
    scene.remotes[0].learner = scene.learner = ClusterLearner(scene.clock, tmp_path)
    scene.run(1.0)
    assert scene.learner.save_if_due(0.0) is not None
    saved = 7 + scene.learner.status()["batches"]
    scene.run(1.0)
    before = len(scene.updates)
    again = ClusterLearner(scene.clock, tmp_path, resume=True)
    scene.remotes[0].learner = scene.learner = again
    scene.run(2.0)
    # What the first had answered may come, and then what the second learns, from the checkpoint on.
    rest = scene.updates[before:]
    start = next(index for index, each in enumerate(rest) if each < scene.updates[before - 1])
    assert rest[start] == saved + 1
    assert rest[start:] == list(range(rest[start], rest[-1] + 1))
    assert scene.remotes[0].calls.count("begin") == 1
    learned = again.status()
    assert learned["nodes"][0]["learned"] == 8 * learned["batches"]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_lost_it_begins_learns_and_hands_out_its_state(
    edge: Callable[..., Edge], seed: int
) -> None:
    scene = Scene(edge(), emulation=Emulation(rtt_s=0.02, loss=0.3), seed=seed)
    exchange = scene.exchanges[0]
    for _ in range(200):
        scene.run(1.0)
        exchange.wants_snapshot = exchange.wants_snapshot or exchange.snapshot is None
        if exchange.snapshot is not None and len(scene.weights) > 2:
            return
    raise AssertionError("a lost call was never repeated")


def test_a_state_that_travels_for_long_is_sent_once(edge: Callable[..., Edge]) -> None:
    world = edge()
    state = len(first_state(world))
    # Half a minute in each direction.
    scene = Scene(world, emulation=Emulation(bits_per_s=8 * state / 30))
    scene.run(40.0)
    assert scene.remotes[0].calls.count("begin") == 1
    scene.exchanges[0].wants_snapshot = True
    scene.run(80.0)
    assert scene.remotes[0].calls.count("snapshot") == 1
    assert scene.exchanges[0].snapshot is not None
    assert scene.exchanges[0].connected


def test_a_call_that_is_worked_on_is_not_repeated(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    remote = scene.remotes[0]
    remote.finished = lambda: []  # type: ignore[method-assign]
    scene.run(20.0)
    assert remote.calls == ["join"]
    del remote.finished  # type: ignore[method-assign]
    scene.run(2.0)
    assert remote.calls.count("join") == 1
    assert scene.exchanges[0].connected
    assert len(scene.updates) > 50


def test_calls_that_fail_are_repeated_and_cost_no_session(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    remote, exchange = scene.remotes[0], scene.exchanges[0]
    scene.run(1.0)
    original, chance = remote.begin, random.Random(1).random

    def begin(method: str, *arguments: Any) -> Any:
        remote.broken = RuntimeError("unavailable") if chance() < 0.01 else None
        return original(method, *arguments)

    remote.begin = begin  # type: ignore[method-assign]
    scene.run(12.0)
    assert remote.calls.count("join") == 1
    assert exchange.connected
    assert scene.updates == list(range(8, 8 + len(scene.updates)))
    # Each that fails is missed for 0.2 s.
    assert len(scene.updates) > 400


def test_after_half_a_minute_without_a_link_it_learns_on(edge: Callable[..., Edge]) -> None:
    world = edge()
    scene = Scene(world)
    scene.run(1.0)
    scene.remotes[0].broken, cut_at = ConnectionError("unreachable"), scene.clock.now()
    scene.run(30.0)
    exchange = scene.exchanges[0]
    assert (exchange.connected, exchange.reason) == (False, "unreachable")
    assert exchange.since == pytest.approx(cut_at, abs=0.3)
    assert len(world.node.under_way) <= exchange.in_flight.limit
    assert not exchange.lost(scene.clock.now())
    scene.remotes[0].broken = None
    scene.run(10.0)
    assert exchange.connected
    # What was on its way is learned from once, and nothing else is missing.
    assert scene.updates == list(range(8, 8 + len(scene.updates)))
    learned = scene.learner.status()
    assert learned["nodes"][0]["learned"] == 8 * learned["batches"]
    scene.remotes[0].broken = ConnectionError("unreachable")
    scene.run(60.0)
    assert exchange.lost(scene.clock.now())


def test_a_session_that_is_over_says_nothing(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge(), emulation=Emulation(rtt_s=1.0))
    scene.run(8.0)
    assert scene.weights
    # What is on its way to the old learner, and comes back from it, is of no session any more.
    scene.remotes[0].learner = scene.learner = ClusterLearner(scene.clock, None)
    scene.run(12.0)
    assert scene.remotes[0].calls.count("join") == 2
    scene.weights.clear()
    scene.run(5.0)
    assert [each.updates for each in scene.weights] == sorted({w.updates for w in scene.weights})
    assert len(scene.weights) > 1


def test_who_is_gone_for_long_is_forgotten(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge(name="a"))
    scene.run(1.0)
    share = scene.edges[0].node.make(8, scene.settings)
    assert share is not None
    (waits,) = scene.learner.offer("a", 1, [share.block])
    scene.clock.advance(61.0)
    scene.learner.join(edge(name="b").joining)
    assert [node["id"] for node in scene.learner.status()["nodes"]] == ["b"]
    with pytest.raises(UserError, match="join anew"):
        waits.result(0)


def test_a_cut_is_told_with_its_reason_and_its_beginning(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    scene.run(1.0)
    scene.remotes[0].broken = RuntimeError("the actor died\nand much more")
    cut_at = scene.clock.now()
    scene.run(5.0)
    exchange = scene.exchanges[0]
    assert not exchange.connected
    assert exchange.reason == "the actor died"
    assert exchange.since == pytest.approx(cut_at, abs=0.3)
    calls = scene.remotes[0].calls.count("join")
    assert calls <= 6
    scene.remotes[0].broken = None
    scene.run(11.0)
    assert exchange.connected
    assert exchange.reason is None


def test_a_learner_that_says_nothing_is_cut(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    scene.run(1.0)
    scene.run(6.0, learn=0)
    # Weights are still asked for and answered: the link is there, the learner is slow.
    assert scene.exchanges[0].connected


def test_it_waits_no_longer_than_for_what_arrives_next(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge(), emulation=Emulation(rtt_s=0.1))
    exchange, remote = scene.exchanges[0], scene.remotes[0]
    exchange.wait(0.03, scene.clock.now())
    exchange.advance(scene.clock.now())
    # It has asked to join, which is half a round trip on its way.
    exchange.wait(0.2, scene.clock.now())
    scene.clock.advance(0.04)
    exchange.wait(0.2, scene.clock.now())
    scene.clock.advance(0.04)
    exchange.wait(0.2, scene.clock.now())
    assert remote.waits == pytest.approx([0.03, 0.05, 0.01, 0.0])


def test_the_bytes_of_what_was_answered_are_given_back(edge: Callable[..., Edge]) -> None:
    world = edge()
    scene = Scene(world)
    blocks: list[weakref.ref[Bytes]] = []
    learned: list[Any] = []
    make, take = world.node.make, scene.exchanges[0].learned

    def noted(*args: Any) -> Any:
        sent = make(*args)
        if sent is not None:
            blocks.append(weakref.ref(sent.block))
        return sent

    def kept() -> list[Any]:
        learned.extend(found := take())
        return found

    world.node.make = noted  # type: ignore[method-assign]
    scene.exchanges[0].learned = kept  # type: ignore[method-assign]
    scene.run(1.0)
    # The figures remember for ten seconds what was learned.
    assert len(learned) > 50
    alive = sum(block() is not None for block in blocks)
    assert alive <= len(world.node.under_way) + 1


def test_live_settings_of_the_daemon_reach_the_learner(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    scene.run(1.0)
    trainer = scene.learner._trainer
    assert trainer is not None
    scene.settings = Settings(batch_size=12, learning_rate=1e-3, beta=0.5)
    scene.run(1.0)
    assert scene.exchanges[0].share == 12
    assert trainer._update.learning.learning_rate == 1e-3


def test_another_network_is_refused(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge(name="a"))
    scene.run(0.5)
    with pytest.raises(UserError, match="another"):
        scene.learner.join(edge(name="b", actions=2).joining)
    other = Scene(edge(name="c", actions=2))
    other.remotes[0].learner = scene.learner
    other.run(5.0)
    # Told in a line, and tried again: the others may go.
    assert not other.exchanges[0].connected
    assert (other.exchanges[0].reason or "").startswith("the learner has another ")
    assert other.remotes[0].calls.count("join") > 1
    assert not other.exchanges[0].lost(other.clock.now())


def test_a_session_of_before_is_refused(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    scene.run(0.5)
    with pytest.raises(UserError, match="join anew"):
        scene.learner.offer("edge", 99, [pack({"seq": 0}, {})])


def test_a_snapshot_holds_all_that_is_learned(edge: Callable[..., Edge]) -> None:
    scene = Scene(edge())
    scene.run(1.0)
    asked_at = scene.updates[-1]
    scene.exchanges[0].wants_snapshot = True
    scene.run(0.05)
    assert scene.exchanges[0].snapshot is not None
    assert not scene.exchanges[0].wants_snapshot
    message = unpack(scene.exchanges[0].snapshot)
    assert message.arrays["progress"][0] >= asked_at
    assert (message.arrays["mean"] != 0).any()
