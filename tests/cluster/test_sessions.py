"""A link that is cut, a learner that is started again: sessions begin, end and are repeated."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box

from rtagent.cluster.joining import check_same
from rtagent.cluster.learner import FORGOTTEN_S, ClusterLearner
from rtagent.cluster.link import Emulation
from rtagent.cluster.link_figures import LinkFigures
from rtagent.cluster.message import Message, MessageError, pack
from rtagent.cluster.received_shares import Columns, ReceivedShares
from rtagent.cluster.session import SILENT_S, Session
from rtagent.errors import UserError
from rtagent.memory.world import CLUSTER_CAPACITY
from rtagent.storage.checkpoint import CheckpointError
from tests.cluster.edge import Edge
from tests.cluster.scene import STEP_S, Scene

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.mark.parametrize("change", [
    {"seq": None}, {"seq": "next"}, {"batch_size": [8]}, {"learning_rate": {}},
    {"shipped": float("inf")}, {"learning_rate": math.nan}, {"learning_rate": math.inf},
    {"learning_rate": 0.0}, {"batch_size": 0}, {"batch_size": 10**400}, {"shipped": -1},
    {"generated": float("inf")}, {"generated": "many"}, {"generated": -1}, {"generated": 10**400},
])
def test_a_message_without_a_proper_header_changes_nothing(change: dict[str, Any]) -> None:
    scene = Scene(Edge()).run(1.0, learn=False)
    session = scene.learner._nodes["edge"]
    values = {"seq": session._next_seq, "batch_size": 8, "learning_rate": 1e-3, **change}
    block = pack({name: value for name, value in values.items() if value is not None}, {})
    with pytest.raises(MessageError, match="no message of a node"):
        scene.learner.offer("edge", session.number, [block])
    count = len(scene.updates)
    scene.run(1.0)
    assert len(scene.updates) > count + 50
    assert scene.remotes[0].calls.count("join") == 1


def test_a_bad_share_that_came_early_is_refused_to_all_who_wait_for_it() -> None:
    scene = Scene(Edge()).run(0.1, learn=False)
    session, world = scene.learner._nodes["edge"], scene.edges[0]
    good = world.node.make(8, scene.settings)
    header = {"seq": good.seq + 1, "batch_size": 8, "learning_rate": 1e-3}
    bad = pack(header, {})
    (early,) = scene.learner.offer("edge", session.number, [bad])
    with pytest.raises(MessageError, match="no share"):
        scene.learner.offer("edge", session.number, [good.block])
    (again,) = scene.learner.offer("edge", session.number, [bad])
    for answer in (early, again):
        with pytest.raises(MessageError, match="no share"):
            answer.result(0)


def test_a_share_for_which_there_is_no_memory_costs_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It was never answered: its node, which stayed connected, soon sent no further one.
    scene = Scene(Edge()).run(1.0)
    check, full = ReceivedShares._check, iter([True])

    def checked(*args: Any) -> None:
        if next(full, False):
            raise MemoryError
        check(*args)

    monkeypatch.setattr(ReceivedShares, "_check", checked)
    count = len(scene.updates)
    scene.run(3.0)
    assert scene.remotes[0].calls.count("join") == 2
    assert len(scene.updates) > count + 50


def test_the_status_says_why_there_is_no_checkpoint(tmp_path: Path) -> None:
    scene = Scene(Edge())
    folder = tmp_path / "learner"
    scene.restart(folder, "one")
    scene.run(1.0)
    folder.touch()
    with pytest.raises(CheckpointError):
        scene.learner.save_if_due(0.0)
    assert "cannot write a checkpoint" in scene.learner.status()["checkpoint_error"]
    folder.unlink()
    assert scene.learner.save_if_due(0.0) is not None
    assert scene.learner.status()["checkpoint_error"] is None


def test_a_learner_that_learns_nothing_writes_no_further_checkpoint(tmp_path: Path) -> None:
    # It wrote its whole state to disk every half a minute, also when all daemons had left.
    scene = Scene(Edge())
    scene.restart(tmp_path, "one")
    for written in (True, False, True):
        scene.run(0.5, learn=written)
        assert (scene.learner.save_if_due(0.0) is not None) == written


def test_a_learner_that_died_learns_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    world = Edge()
    scene = Scene(world)
    scene.restart(tmp_path, "one")
    scene.run(1.0)
    assert scene.learner.save_if_due(0.0) is not None
    saved = 7 + scene.learner.status()["batches"]
    scene.run(1.0)
    before = len(scene.updates)
    scene.restart(tmp_path, "one")
    scene.run(2.0)
    # What the first had answered may come, and then what the second learns, from the checkpoint on.
    rest = scene.updates[before:]
    start = next(index for index, each in enumerate(rest) if each < scene.updates[before - 1])
    assert rest[start] == saved + 1
    assert rest[start:] == list(range(rest[start], rest[-1] + 1))
    assert len(rest[start:]) > 50
    assert scene.exchanges[0].connected
    assert (scene.remotes[0].calls.count("join"), scene.remotes[0].calls.count("begin")) == (2, 1)
    learned = scene.learner.status()
    assert learned["nodes"][0]["learned"] == 8 * learned["batches"]


@pytest.mark.parametrize("stack", [2, 3])
def test_a_learner_leaves_the_checkpoints_of_others_alone(stack: int, tmp_path: Path) -> None:
    earlier = Scene(Edge(stack=stack))
    earlier.restart(tmp_path, "one")
    earlier.run(1.0)
    assert earlier.learner.save_if_due(0.0) is not None
    scene = Scene(Edge())
    # It has died before it had written one, and is started again.
    for _ in range(2):
        scene.restart(tmp_path, "two")
        scene.run(3.0)
        assert scene.exchanges[0].connected
    assert scene.remotes[0].calls.count("begin") == 2
    assert scene.updates.count(8) == 2


def test_a_learner_leaves_its_checkpoint_alone_if_the_network_is_built_otherwise(
    tmp_path: Path,
) -> None:
    # As by a policy.factory that was changed: the node was told to start without the checkpoint.
    earlier = Scene(Edge(dueling=True))
    earlier.restart(tmp_path, "one")
    earlier.run(0.5)
    assert earlier.learner.save_if_due(0.0) is not None
    scene = Scene(Edge())
    scene.restart(tmp_path, "one")
    scene.run(1.0)
    calls = scene.remotes[0].calls
    assert (calls.count("join"), calls.count("begin")) == (1, 1)


def test_a_node_that_learns_less_often_does_not_slow_down_the_others() -> None:
    scene = Scene(Edge("often"), Edge("seldom")).run(0.2)
    scene.paused = {1}
    scene.run(0.5)
    before = [len(each) for each in scene.losses]
    for _ in range(4):
        assert scene.exchanges[1].make(scene.settings, learn=True)
        scene.exchanges[1].send(scene.clock.now())
        scene.run(0.3)
    often, seldom = (len(each) - n for each, n in zip(scene.losses, before, strict=True))
    assert often > 100
    assert seldom == 4
    scene.paused = set()
    scene.run(0.2)
    assert not any(node.missed for node in scene.learner._nodes.values())


def test_the_rate_of_a_slow_world_is_a_mean_of_some_transitions() -> None:
    source: Any = SimpleNamespace(generated=0)
    session, rates = Session(1, source, 8, 5e-4, 0.0), []
    for tenths in range(600):
        source.generated = tenths // 50
        session._note_generated(tenths / 10)
        rates.append(session.rate)
    assert 0.15 < min(rates[200:]) <= max(rates[200:]) < 0.25


def test_a_count_that_falls_makes_no_rate_negative() -> None:
    # The other nodes were asked for more than a whole batch.
    source: Any = SimpleNamespace(generated=100)
    session = Session(1, source, 8, 5e-4, 0.0)
    for now, source.generated in enumerate((100, 200, 0, 0)):
        session._note_generated(float(now))
        assert session.rate >= 0.0
    assert session.rate > 0.0


def test_results_of_a_session_that_is_over_are_ignored() -> None:
    scene = Scene(Edge(), emulation=Emulation(rtt_s=1.0)).run(8.0)
    assert scene.weights
    # What is on its way to the old learner, and comes back from it, is of no session any more.
    scene.restart()
    scene.run(12.0)
    assert scene.remotes[0].calls.count("join") == 2
    scene.weights.clear()
    scene.run(5.0)
    assert [each.updates for each in scene.weights] == sorted({w.updates for w in scene.weights})
    assert len(scene.weights) > 1


def test_a_late_state_of_a_session_that_is_over_does_not_replace_the_newer_one() -> None:
    scene = Scene(Edge())
    exchange, remote = scene.exchanges[0], scene.remotes[0]
    scene.run(1.0)
    remote.held, exchange.wants_snapshot = "snapshot", True
    scene.run(0.5)
    remote.held = None
    scene.restart()
    scene.run(2.0)
    assert (remote.calls.count("snapshot"), exchange.wants_snapshot) == (2, False)
    newer = exchange.snapshot
    assert newer is not None
    remote.release()
    scene.run(3 * STEP_S)
    assert exchange.snapshot is newer


def test_a_learner_that_is_started_again_knows_no_session_of_its_predecessor() -> None:
    scene = Scene(Edge(name="a")).run(1.0)
    share = scene.edges[0].node.make(8, scene.settings)
    again = ClusterLearner(scene.clock, None)
    again.join(scene.edges[0].joining)
    with pytest.raises(UserError, match="join anew"):
        again.offer("a", scene.learner._nodes["a"].number, [share.block])


def test_a_silent_node_has_a_rate_of_zero() -> None:
    scene = Scene(Edge(name="a")).run(5.0)
    scene.paused = {0}
    scene.run(0.5)
    assert scene.learner.status()["nodes"][0]["rate"] > 0.0
    scene.clock.advance(4.0)
    assert scene.learner.status()["nodes"][0]["rate"] == 0.0


def test_a_node_whose_shares_wait_for_a_slow_learner_is_not_silent() -> None:
    """It sends no share before one is answered: two daemons were each asked for a whole batch."""
    scene = Scene(Edge("one"), Edge("two")).run(1.0)
    shares = set()
    for _ in range(10):
        scene.clock.advance(SILENT_S + 1.0)
        assert scene.learner.step(0.0)
        scene.run(0.02, learn=0)
        shares.add(sum(each.share for each in scene.exchanges))
        shares.add(sum(each["share"] for each in scene.learner.status()["nodes"]))
    assert shares == {scene.settings.batch_size}


def test_a_node_that_is_gone_for_long_is_forgotten_with_its_frames() -> None:
    scene = Scene(Edge(name="a")).run(1.0)
    share = scene.edges[0].node.make(8, scene.settings)
    number = scene.learner._nodes["a"].number
    (answer,) = scene.learner.offer("a", number, [share.block])
    scene.clock.advance(FORGOTTEN_S + 1.0)
    assert not scene.learner.step(0.0)
    assert scene.learner.status()["nodes"] == []
    with pytest.raises(UserError, match="join anew"):
        answer.result(0)


def test_a_replay_at_the_learner_is_kept_until_another_node_joins() -> None:
    scene = Scene(Edge(name="a", replay="learner")).run(1.0)
    scene.clock.advance(FORGOTTEN_S + 1.0)
    scene.learner.step(0.0)
    assert [node["id"] for node in scene.learner.status()["nodes"]] == ["a"]
    scene.learner.join(Edge(name="b").joining)
    assert [node["id"] for node in scene.learner.status()["nodes"]] == ["b"]


def test_a_replay_at_the_learner_goes_if_another_node_has_joined_sooner() -> None:
    # A daemon that was started again at once left the replay of its last run in memory.
    scene = Scene(Edge(name="a", replay="learner")).run(1.0)
    scene.learner.join(Edge(name="b", replay="learner").joining)
    scene.clock.advance(FORGOTTEN_S + 1.0)
    scene.learner.step(0.0)
    assert [node["id"] for node in scene.learner.status()["nodes"]] == ["b"]


def test_a_learner_that_answers_but_does_not_learn_is_connected() -> None:
    scene = Scene(Edge()).run(1.0)
    # Calls for weights are still answered: the link is there, the learner is slow.
    scene.run(6.0, learn=0)
    assert scene.exchanges[0].connected


def test_a_node_may_be_forgotten_while_its_share_is_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene(Edge(name="a")).run(1.0)
    others, receive = [Edge(name="b")], ReceivedShares.receive

    def slowly(self: ReceivedShares, message: Message) -> Callable[[], Columns]:
        draw = receive(self, message)

        def drawn() -> Columns:
            if others:
                scene.clock.advance(FORGOTTEN_S + 1.0)
                scene.learner.join(others.pop().joining)
            return draw()

        return drawn

    monkeypatch.setattr(ReceivedShares, "receive", slowly)
    scene.run(2.0)
    assert [each["id"] for each in scene.learner.status()["nodes"]] == ["a", "b"]
    assert scene.remotes[0].calls.count("join") == 2


@pytest.mark.parametrize("replay", ["edge", "learner"])
def test_a_node_says_what_it_has_generated_when_it_joins(replay: str) -> None:
    world = Edge(replay=replay).play(100)
    scene = Scene(world)
    scene.paused = {0}
    scene.run(0.2)
    told = scene.learner.status()["nodes"][0]["generated"]
    assert told == pytest.approx(world.node.generated, abs=25)


def test_what_a_node_has_sent_does_not_fall_while_it_is_paused_after_it_has_joined_anew() -> None:
    # Others showed 0 until it sent again: a counter that began anew, and then jumped.
    scene = Scene(Edge()).run(0.5)
    scene.paused = {0}
    scene.restart()
    scene.run(2.0)
    assert scene.remotes[0].calls.count("join") == 2
    shipped = scene.edges[0].node.counts.shipped
    assert scene.learner.status()["nodes"][0]["shipped"] == shipped > 0


def test_what_a_node_has_sent_does_not_fall_after_its_gateway_was_killed() -> None:
    # The next gateway counts on from what the killed one has written, up to 0.25 s before.
    scene = Scene(Edge()).run(0.5)
    (before,) = scene.learner.status()["nodes"]
    scene.edges[0].node.counts.shipped -= 24
    scene.exchanges = [scene.new_exchange(scene.edges[0], scene.remotes[0])]
    told = []
    for _ in range(20):
        scene.run(0.01)
        told.append(scene.learner.status()["nodes"][0]["shipped"])
    assert scene.remotes[0].calls.count("join") == 2
    assert [before["shipped"], *told] == sorted([before["shipped"], *told])
    assert told[-1] == scene.edges[0].node.counts.shipped > before["shipped"]


def test_the_document_of_the_link_has_room_for_a_thousand_nodes() -> None:
    scene = Scene(Edge()).run(0.5)
    exchange, node = scene.exchanges[0], scene.learner.status()["nodes"][0]
    node |= {"rate": 1e3 / 17, "silent_s": 1e-3 / 17, "generated": 10**9, "shipped": 10**9}
    exchange.others = [node | {"id": f"ALE/Breakout-v5-{index:08x}"} for index in range(1000)]
    figures = LinkFigures(exchange, scene.edges[0].node, Emulation())
    assert len(json.dumps(figures.document(scene.clock.now()))) < CLUSTER_CAPACITY


def test_a_node_whose_network_cannot_be_built_is_told_on_which_machine() -> None:
    world = Edge(device="cuda:99")
    scene = Scene(world).run(1.0)
    assert not scene.exchanges[0].connected
    reason = scene.exchanges[0].reason
    assert reason.startswith("on the learner's machine: learning.device = 'cuda:99': ")
    # The next node that joins may bring what can be built.
    scene.learner.join(Edge().joining)


def test_another_network_is_refused() -> None:
    scene = Scene(Edge(name="a")).run(0.5)
    with pytest.raises(UserError) as caught:
        scene.learner.join(Edge(name="b", actions=2).joining)
    assert str(caught.value) == (
        "the learner has another action space than b: Discrete(3), not Discrete(2); use the same "
        "policy and environment, or another learner (cluster.name)"
    )
    first = scene.learner._first
    bounds = np.arange(900.0, dtype=np.float32)
    large = replace(first, blueprint=replace(first.blueprint, action_space=Box(-bounds, bounds)))
    with pytest.raises(UserError, match=r"\(cluster\.name\)$") as caught:
        check_same(large, first)
    assert len(str(caught.value)) < 600
    other = Scene(Edge(name="c", actions=2))
    other.remotes[0].learner = scene.learner
    other.run(5.0)
    # Told in a line, and tried again: the others may go.
    assert not other.exchanges[0].connected
    assert (other.exchanges[0].reason or "").startswith("the learner has another ")
    assert other.remotes[0].calls.count("join") > 1
    assert not other.exchanges[0].lost(other.clock.now())


def test_another_version_is_refused() -> None:
    scene = Scene(Edge())
    with pytest.raises(UserError, match=r"^the learner has rtagent .*, and b has 9\.9: "):
        scene.learner.join(replace(Edge(name="b").joining, version="9.9"))


def test_a_paused_daemon_keeps_its_session_when_another_joins() -> None:
    scene = Scene(Edge(name="a")).run(1.0)
    scene.paused = {0}
    scene.run(FORGOTTEN_S + 5.0, ticks=0)
    scene.learner.join(Edge(name="b").joining)
    scene.paused = set()
    scene.run(1.0)
    assert scene.remotes[0].calls.count("join") == 1
    assert len(scene.updates) > 50
