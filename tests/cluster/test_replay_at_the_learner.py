"""The baseline: every tick travels once, and is sampled at the learner; virtual time, no Ray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.cluster.forwarding_node import TICKS_PER_CALL
from rtagent.cluster.learner import PATIENCE_S
from rtagent.cluster.link import Emulation
from rtagent.cluster.message import Message, MessageError, pack, unpack
from rtagent.cluster.mirror import Mirror
from rtagent.cluster.node import Settings
from rtagent.cluster.trainer import Trainer
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.replay import Replay
from tests.cluster.edge import Edge
from tests.cluster.scene import STEP_S, Scene
from tests.rows import write_row

pytestmark = pytest.mark.usefixtures("no_gradients")

LINK = Emulation(rtt_s=0.1, bits_per_s=2e6, loss=0.2)


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of all ticks that a learner has taken in."""
    numbers: list[int] = []
    receive = Mirror.receive

    def watch(mirror: Mirror, message: Message) -> Any:
        numbers.extend(message.arrays["numbers"].tolist())
        return receive(mirror, message)

    monkeypatch.setattr(Mirror, "receive", watch)
    return numbers


def baseline(**settings: Any) -> Edge:
    return Edge(replay="learner", prioritized=True, **settings)


def mirror(scene: Scene, name: str = "edge") -> Mirror:
    source = scene.learner._nodes[name].source
    assert isinstance(source, Mirror)
    return source


def transitions(replay: Replay) -> Any:
    """All that can be sampled."""
    replay.catch_up()
    return replay.index.get(np.arange(*replay.index.span))


def check_nothing_is_missing(
    scene: Scene, world: Edge, name: str = "edge", within_s: float = 1.0
) -> None:
    """The learner has the transitions that a replay at the edge would have, in the same order."""
    scene.run(within_s, ticks=0)
    here = transitions(Replay(world.frames, world.ledger, world.config.learning))
    there = transitions(mirror(scene, name).replay)
    for column in ("frame", "next_frame", "reward", "discount", "terminal", "action"):
        newest = getattr(there, column)[-len(here):]
        np.testing.assert_array_equal(newest, getattr(here, column), err_msg=column)


@pytest.mark.parametrize("link", [Emulation(), LINK])
def test_every_tick_arrives_once_and_in_order(link: Emulation, arrived: list[int]) -> None:
    world = baseline(capacity=4096)
    scene = Scene(world, emulation=link).run(5.0)
    # Less than a call's worth stays behind while nothing is learned.
    world.play(TICKS_PER_CALL)
    # A call that the link loses is sent again after its round trip.
    check_nothing_is_missing(scene, world, within_s=8.0 if link.loss else 1.0)
    assert arrived == list(range(world.frames.newest + 1))
    counts = world.node.counts
    assert counts.shipped == len(arrived)
    assert counts.lost == 0
    assert 0 < counts.samples <= scene.learner.status()["nodes"][0]["learned"]


def test_ticks_that_the_ring_lost_before_they_were_sent_are_counted(arrived: list[int]) -> None:
    world = baseline(capacity=256)
    scene = Scene(world).run(1.0)
    # The link is cut; the ring goes round several times.
    scene.remotes[0].broken = RuntimeError("cut")
    scene.run(5.0, ticks=2)
    scene.remotes[0].broken = None
    scene.run(7.0)
    counts = world.node.counts
    assert counts.lost > 256
    assert scene.exchanges[0].connected
    check_nothing_is_missing(scene, world)
    assert arrived == sorted(set(arrived))
    assert len(arrived) + counts.lost == world.frames.newest + 1


def test_a_tick_that_several_sessions_have_missed_is_lost_once() -> None:
    world, settings = baseline(capacity=256), Settings(batch_size=8, learning_rate=5e-4, beta=0.5)
    for _ in range(3):
        world.play(1000)
        # Nothing of the session before has arrived.
        world.node.begin_session(expected=50, slots=0)
        assert world.node.make(1, settings) is not None
    assert world.node.counts.lost == world.frames.oldest - 50


def test_a_node_that_joins_anew_goes_on_where_the_learner_is(arrived: list[int]) -> None:
    world = baseline(capacity=4096)
    scene = Scene(world).run(2.0)
    kept = mirror(scene)
    scene.remotes[0].broken = RuntimeError("cut")
    scene.run(0.5)
    scene.remotes[0].broken = None
    scene.run(3.0)
    assert mirror(scene) is kept
    check_nothing_is_missing(scene, world)
    assert arrived == list(range(world.frames.newest + 1))


def test_a_learner_that_was_started_again_is_sent_all_that_the_ring_holds() -> None:
    world = baseline(capacity=4096)
    scene = Scene(world).run(2.0)
    scene.restart()
    scene.run(4.0)
    assert scene.exchanges[0].connected
    assert mirror(scene).replay.index.span[0] == 0
    check_nothing_is_missing(scene, world)


def test_ticks_that_are_sent_late_do_not_change_the_rate() -> None:
    world = baseline(capacity=4096)
    scene = Scene(world).run(5.0)
    scene.restart()
    scene.run(1.5)
    # By these rates the learner divides a batch among the nodes.
    assert scene.learner.status()["nodes"][0]["rate"] == pytest.approx(100.0, rel=0.1)


def test_what_is_generated_is_counted_without_a_learner() -> None:
    world = baseline(capacity=4096).play(100)
    here = transitions(Replay(world.frames, world.ledger, world.config.learning))
    assert len(here) <= world.node.generated <= 100


def test_while_learning_is_paused_ticks_are_sent() -> None:
    world = baseline(capacity=4096)
    scene = Scene(world)
    scene.paused = {0}
    scene.run(2.0)
    assert world.node.counts.shipped > 200 - 2 * TICKS_PER_CALL
    assert world.node.counts.shipped == mirror(scene).expected
    assert scene.learner.status()["batches"] == 0
    assert scene.updates == []


def test_a_daemon_that_is_paused_costs_the_others_one_wait() -> None:
    both = Scene(baseline(name="a", capacity=4096), baseline(name="b", capacity=4096)).run(2.0)
    before, sent = both.learner.status()["batches"], both.edges[1].node.counts.shipped
    both.paused = {1}
    both.run(4.0)
    # Its ticks travel on, and nobody waits for a share with them.
    assert both.edges[1].node.counts.shipped > sent + 300
    waited = 4.0 / STEP_S - (both.learner.status()["batches"] - before)
    assert waited * STEP_S < PATIENCE_S + 0.2
    assert both.exchanges[0].share == 8
    both.paused = set()
    both.run(1.0)
    assert [each.share for each in both.exchanges] == [4, 4]


def test_priorities_stay_at_the_learner_and_both_means_come_back() -> None:
    world = baseline(capacity=4096)
    scene = Scene(world).run(3.0, collect=False)
    found = scene.exchanges[0].learned()
    assert found[-1].sampled is not None
    assert found[-1].transferred is not None
    values = mirror(scene).replay.drawn_priorities
    assert len(np.unique(values)) > 2
    assert world.node.generated > 200


def test_nodes_of_both_kinds_feed_one_learner() -> None:
    first, second = baseline(name="a", capacity=4096), Edge(name="b")
    scene = Scene(first, second).run(2.0)
    learned = {node["id"]: node["learned"] for node in scene.learner.status()["nodes"]}
    assert learned["a"] > 0
    assert learned["b"] > 0
    check_nothing_is_missing(scene, first, "a")


def test_the_trainer_is_used_under_its_lock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, held = Scene(baseline()), list[bool]()
    errors = Trainer.errors

    def watched(trainer: Trainer, batch: Batch) -> Any:
        held.append(scene.learner._training.locked())
        return errors(trainer, batch)

    monkeypatch.setattr(Trainer, "errors", watched)
    scene.run(2.0)
    assert held
    assert all(held)


@pytest.mark.parametrize("change", [
    {"rows": np.zeros(5, np.uint8)}, {"rows": np.zeros((2, 0), np.uint8)},
    {"frames": np.zeros((4, 9), np.float32)},
    {"frames": np.full((2, 3), np.nan, np.float32)},
    {"numbers": np.zeros(1, np.int64)}, {"stop": float("inf")},
    {"count": -1}, {"count": 10**12}, {"beta": float("nan")}, {"beta": -1e3},
    {"numbers": np.arange(2.0)}, {"numbers": np.zeros((2, 1), np.int64)},
    {"numbers": np.array([0, 2**63 - 1])}, {"episode_starts": np.array([0, -1])},
])
def test_messages_without_proper_ticks_are_refused(change: dict[str, Any]) -> None:
    world = baseline()
    scene = Scene(world).run(0.1, learn=False)
    source = mirror(scene)
    arrays = {
        "rows": np.zeros(0, np.uint8), "frames": np.zeros((2, 3), np.float32),
        "numbers": np.arange(2), "episode_starts": np.zeros(2, np.int64),
        **{name: each for name, each in change.items() if isinstance(each, np.ndarray)},
    }
    values = {name: each for name, each in change.items() if name not in arrays}
    session = scene.learner._nodes["edge"]
    seq = session._next_seq
    block = pack({
        "seq": seq, "count": 0, "beta": 1.0, "stop": 2, "generated": 2, "batch_size": 8,
        "learning_rate": 1e-3, **values,
    }, arrays)
    before = source.expected
    with pytest.raises(MessageError, match="no ticks"):
        scene.learner.offer("edge", session.number, [block])
    assert source.expected == before


@pytest.mark.parametrize("action", [-1, 3])
def test_a_row_whose_action_the_world_does_not_have_is_refused(action: int) -> None:
    # The learner ended when it learned from it.
    world = baseline().play(1)
    write_row(world.ledger, 1, action=action)
    world.frames.publish(1, np.zeros(3, np.float32), 0)
    sent = world.node.make(1, Settings(8, 1e-3, 1.0))
    source = Mirror(world.config, world.blueprint, VirtualClock())
    with pytest.raises(MessageError, match="no ticks"):
        source.receive(unpack(sent.block))
