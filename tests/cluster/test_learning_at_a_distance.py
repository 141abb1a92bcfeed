"""A buffer node, the exchange and the learner together, in virtual time and without Ray."""

from __future__ import annotations

import copy
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.cluster.learner import PATIENCE_S
from rtagent.cluster.link import Emulation
from rtagent.cluster.message import Bytes, unpack
from rtagent.cluster.node import Settings
from rtagent.cluster.trainer import Trainer
from rtagent.learning.replay.batch import Batch
from tests.cluster.edge import Edge
from tests.cluster.scene import STEP_S, Scene


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """Every batch that is learned from."""
    batches: list[Batch] = []
    learn = Trainer.learn

    def watch(trainer: Trainer, batch: Batch, learning_rate: float) -> Any:
        batches.append(copy.deepcopy(batch))
        return learn(trainer, batch, learning_rate)

    monkeypatch.setattr(Trainer, "learn", watch)
    return batches


@pytest.mark.parametrize("replay", ["edge", "learner"])
def test_it_learns_and_weights_come_back(replay: str) -> None:
    scene = Scene(Edge(replay=replay)).run(3.0)
    assert scene.exchanges[0].connected
    assert len(scene.losses[0]) > 100
    # Each batch once: the number of updates grows by one, from those of the first state on.
    assert scene.updates == list(range(8, 8 + len(scene.updates)))
    assert [each.updates for each in scene.weights[:3]] == [7, 8, 12]
    assert (scene.weights[0].values != scene.weights[-1].values).any()


@pytest.mark.usefixtures("no_gradients")
@pytest.mark.parametrize("replay", ["edge", "learner"])
@pytest.mark.parametrize("prioritized", [False, True])
def test_batches_hold_what_happened(seen: list[Batch], replay: str, prioritized: bool) -> None:
    Scene(Edge(stack=3, episode=7, replay=replay, prioritized=prioritized)).run(4.0)
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


@pytest.mark.usefixtures("no_gradients")
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_behind_a_slow_lossy_link_nothing_is_learned_twice(loss: float) -> None:
    world = Edge(prioritized=True)
    scene = Scene(world, emulation=Emulation(rtt_s=0.1, bits_per_s=2e6, loss=loss))
    applied: list[np.ndarray[Any, Any]] = []
    original = world.replay.update_errors
    world.replay.update_errors = lambda frames, errors: (  # type: ignore[method-assign]
        applied.append(frames), original(frames, errors))[1]
    scene.run(10.0)
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


@pytest.mark.usefixtures("no_gradients")
@pytest.mark.parametrize("wait_s", [0.0, 0.3])
def test_round_trip_and_age_are_those_of_the_link_alone(wait_s: float) -> None:
    scene = Scene(Edge(), emulation=Emulation(rtt_s=0.1))
    for _ in range(5):
        # Meanwhile the learner holds what has come.
        scene.run(wait_s, learn=0)
        scene.run(1.0)
    link = scene.exchanges[0].in_flight
    assert link.delay_s == pytest.approx(0.1, abs=2 * STEP_S)
    assert link.answer_s > 0.1 - 2 * STEP_S
    # Weights are fetched as soon as they are there, and half of a round trip on their way.
    assert min(each.age_s for each in scene.weights[2:]) == pytest.approx(0.05, abs=3 * STEP_S)


@pytest.mark.usefixtures("no_gradients")
def test_weights_that_take_long_to_leave_are_older() -> None:
    size = Scene(Edge()).edges[0].blueprint.learned_parameters * 4
    scene = Scene(Edge(), emulation=Emulation(bits_per_s=8 * size / 2)).run(20.0)
    # The weights alone take two seconds.
    assert len(scene.weights) > 2
    assert min(each.age_s for each in scene.weights) > 2.0


def test_weights_that_a_learner_begins_with_are_as_old_as_its_beginning(tmp_path: Path) -> None:
    scene = Scene(Edge())
    scene.restart(tmp_path, "one")
    # Nobody has joined yet.
    scene.clock.advance(60.0)
    scene.run(1.0)
    assert scene.weights[0].updates == 7
    assert scene.weights[0].age_s < 0.1
    assert scene.learner.save_if_due(0.0) is not None
    scene.restart(tmp_path, "one")
    scene.clock.advance(60.0)
    scene.weights.clear()
    scene.run(2.0)
    assert max(each.age_s for each in scene.weights) < 0.1


@pytest.mark.usefixtures("no_gradients")
@pytest.mark.parametrize(("loss", "seconds"), [(0.0, 2.0), (0.05, 4.0)])
def test_batches_that_take_little_time_travel_several_in_a_call(
    loss: float, seconds: float
) -> None:
    world = Edge(prioritized=True)
    scene = Scene(world, emulation=Emulation(rtt_s=0.02, loss=loss))
    applied: list[int] = []
    answered = world.node.answered
    world.node.answered = lambda answer: (  # type: ignore[method-assign]
        applied.append(answer.values["seq"]), answered(answer))[1]
    scene.run(seconds, learn=8)
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


@pytest.mark.usefixtures("no_gradients")
def test_large_batches_are_few_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtagent.cluster.in_flight.MOST_BYTES", 2500)
    world = Edge()
    scene = Scene(world, emulation=Emulation(rtt_s=0.2)).run(4.0, learn=8)
    # Of about 1 kB each.
    link = scene.exchanges[0].in_flight
    assert len(world.node.under_way) <= link.limit == 2
    assert link.per_call == 1
    assert len(scene.updates) > 10


@pytest.mark.usefixtures("no_gradients")
def test_frames_that_the_learner_has_are_not_sent() -> None:
    small, large = Edge(name="a", slots=64), Edge(name="b", slots=1024)
    for each in (small, large):
        Scene(each).run(3.0)
    counts, others = small.node.counts, large.node.counts
    assert counts.cache_hits / counts.frames < others.cache_hits / others.frames
    assert others.cache_hits / others.frames > 0.8


@pytest.mark.usefixtures("no_gradients")
def test_two_nodes_share_a_batch_by_what_they_generate() -> None:
    quick, slow = Edge(name="quick"), Edge(name="slow", capacity=300)
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


@pytest.mark.usefixtures("no_gradients")
def test_the_shares_follow_a_node_that_comes() -> None:
    first, second = Edge(name="first"), Edge(name="second")
    scene = Scene(first).run(4.0)
    assert scene.exchanges[0].share == 8
    later = Scene(second)
    later.remotes[0].learner, later.clock = scene.learner, scene.clock
    scene.edges, scene.losses = (first, second), [[], []]
    scene.exchanges.append(later.exchanges[0])
    scene.run(2.0)
    assert [each.share for each in scene.exchanges] == [4, 4]


@pytest.mark.usefixtures("no_gradients")
def test_a_node_that_falls_silent_costs_one_wait() -> None:
    both = Scene(Edge(name="a"), Edge(name="b")).run(2.0)
    before = both.learner.status()["batches"]
    both.exchanges.pop()
    both.edges = both.edges[:1]
    both.run(4.0)
    after = both.learner.status()["batches"]
    waited = 4.0 / STEP_S - (after - before)
    # What the silent node had sent, its one wait, and no more.
    assert waited * STEP_S < PATIENCE_S + 0.2
    assert both.exchanges[0].share == 8


def test_messages_that_were_answered_are_freed() -> None:
    world = Edge()
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


def test_live_settings_of_the_daemon_reach_the_learner() -> None:
    scene = Scene(Edge()).run(1.0)
    trainer = scene.learner._trainer
    scene.settings = Settings(batch_size=12, learning_rate=1e-3, beta=0.5)
    scene.run(1.0)
    assert scene.exchanges[0].share == 12
    assert trainer._update.learning.learning_rate == 1e-3


@pytest.mark.usefixtures("no_gradients")
def test_batches_that_outgrow_what_the_learner_keeps_are_learned_from_whole(
    seen: list[Batch],
) -> None:
    world = Edge(slots=32)
    scene = Scene(world).run(1.0)
    # Four frames for each: more than 32 of them.
    scene.settings = Settings(batch_size=24, learning_rate=1e-3, beta=0.5)
    scene.run(3.0)
    assert scene.exchanges[0].connected
    assert scene.remotes[0].calls.count("join") == 2
    large = [each for each in seen if len(each.actions) == 24]
    assert len(large) > 50
    for batch in large:
        newest = np.rint(batch.observations.numpy()[:, -1, 0] * 100).astype(int)
        np.testing.assert_array_equal(batch.actions.numpy(), (newest + 1) % 3)


def test_a_snapshot_holds_all_that_is_learned() -> None:
    scene = Scene(Edge()).run(1.0)
    asked_at = scene.updates[-1]
    scene.exchanges[0].wants_snapshot = True
    scene.run(0.05)
    assert scene.exchanges[0].snapshot is not None
    assert not scene.exchanges[0].wants_snapshot
    message = unpack(scene.exchanges[0].snapshot)
    assert message.arrays["progress"][0] >= asked_at
    assert (message.arrays["mean"] != 0).any()
