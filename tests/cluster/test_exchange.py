"""Calls over a link: what is sent again, what is sent once, and how long is waited."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rtagent.cluster.calls import EndedError
from rtagent.cluster.exchange import LONGEST_PAUSE_S, OTHERS_EVERY_S, SMALL_BYTES
from rtagent.cluster.in_flight import LEAST
from rtagent.cluster.link import Direction, Emulation
from rtagent.cluster.message import MessageError, pack
from rtagent.processes.restart_policy import WELL_S
from tests.cluster.edge import Edge
from tests.cluster.scene import STEP_S, Scene, first_state

pytestmark = pytest.mark.usefixtures("no_gradients")


def test_a_new_session_measures_the_link_anew() -> None:
    scene = Scene(Edge(), emulation=Emulation(rtt_s=0.2))
    exchange, calls = scene.exchanges[0], scene.remotes[0].calls
    scene.run(6.0)
    assert exchange.in_flight.limit > LEAST
    scene.restart()
    while calls.count("join") == 1:
        assert scene.clock.now() < 200.0, "it does not join anew"
        scene.run(STEP_S)
    scene.run(0.15)
    assert exchange.connected
    assert exchange.in_flight.limit == LEAST


# In the first the call `begin` is lost, in the second `join` and `snapshot`, in both the others.
@pytest.mark.parametrize("seed", [0, 4])
def test_over_a_lossy_link_it_begins_learns_and_sends_its_state(seed: int) -> None:
    scene = Scene(Edge(), emulation=Emulation(rtt_s=0.02, loss=0.3), seed=seed)
    exchange = scene.exchanges[0]
    for _ in range(200):
        scene.run(1.0)
        exchange.wants_snapshot = exchange.wants_snapshot or exchange.snapshot is None
        if exchange.snapshot is not None and len(scene.weights) > 2:
            return
    raise AssertionError("a lost call was never repeated")


def test_a_state_that_travels_for_long_is_sent_once() -> None:
    world = Edge()
    state = len(first_state(world))
    # Half a minute in each direction.
    scene = Scene(world, emulation=Emulation(bits_per_s=8 * state / 30)).run(40.0)
    assert scene.remotes[0].calls.count("begin") == 1
    scene.exchanges[0].wants_snapshot = True
    scene.run(80.0)
    assert scene.remotes[0].calls.count("snapshot") == 1
    assert scene.exchanges[0].snapshot is not None
    assert scene.exchanges[0].connected


def test_shares_that_take_long_to_leave_are_sent_once() -> None:
    world = Edge(slots=1024, batch_size=256)
    # Longer than the least time until a share without an answer is repeated.
    scene = Scene(world, emulation=Emulation(bits_per_s=64e3))
    scene.settings = scene.settings._replace(batch_size=256)
    scene.run(60.0)
    assert len(scene.updates) > 20
    assert scene.remotes[0].calls.count("offer") <= world.node.counts.shipped / 256


@pytest.mark.parametrize("rtt_s", [2.0, 4.0, 10.0])
def test_over_the_longest_link_it_joins_once_and_repeats_nothing(rtt_s: float) -> None:
    world = Edge()
    scene = Scene(world, emulation=Emulation(rtt_s=rtt_s))
    exchange, calls = scene.exchanges[0], scene.remotes[0].calls
    scene.run(8 * rtt_s)
    assert exchange.connected
    assert (calls.count("join"), calls.count("begin")) == (1, 1)
    # Each share once: their answers tell how long the link is.
    assert calls.count("offer") <= world.node.counts.shipped / 8
    assert exchange.in_flight.delay_s == pytest.approx(rtt_s, abs=5 * STEP_S)
    assert len(scene.updates) > 8
    assert not exchange.lost(scene.clock.now())


def test_a_call_without_a_message_counts_once_however_much_it_says(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    # That for weights, which says two numbers, counted twice.
    scene, sizes, send = Scene(Edge()), dict[str, set[int]](), Direction.send

    def noted(way: Direction, now: float, size: int, message: Any) -> None:
        if way is scene.exchanges[0]._up:
            sizes.setdefault(message.method, set()).add(size)
        send(way, now, size, message)

    monkeypatch.setattr(Direction, "send", noted)
    scene.run(3.0)
    assert sizes["join"] == sizes["weights"] == sizes["status"] == {SMALL_BYTES}
    assert min(sizes["begin"] | sizes["offer"]) > SMALL_BYTES


def test_a_call_that_is_worked_on_is_not_repeated() -> None:
    scene = Scene(Edge())
    remote = scene.remotes[0]
    remote.finished = lambda: []  # type: ignore[method-assign]
    scene.run(20.0)
    assert remote.calls == ["join"]
    del remote.finished  # type: ignore[method-assign]
    scene.run(2.0)
    assert remote.calls.count("join") == 1
    assert scene.exchanges[0].connected
    assert len(scene.updates) > 50


def test_calls_that_fail_are_repeated_and_cost_no_session() -> None:
    scene = Scene(Edge())
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


def test_after_half_a_minute_without_a_link_it_learns_on() -> None:
    world = Edge()
    scene = Scene(world).run(1.0)
    exchange, remote, cut_at = scene.exchanges[0], scene.remotes[0], scene.clock.now()
    remote.broken = ConnectionError("unreachable\nand much more")
    scene.run(30.0)
    assert (exchange.connected, exchange.reason) == (False, "unreachable")
    assert exchange.since == pytest.approx(cut_at, abs=0.3)
    assert len(world.node.under_way) <= exchange.in_flight.limit
    assert not exchange.lost(scene.clock.now())
    remote.broken = None
    scene.run(10.0)
    assert (exchange.connected, exchange.reason) == (True, None)
    assert remote.calls.count("join") == 1
    # What was on its way is learned from once, and nothing else is missing.
    assert scene.updates == list(range(8, 8 + len(scene.updates)))
    learned = scene.learner.status()
    assert learned["nodes"][0]["learned"] == 8 * learned["batches"]
    remote.broken = ConnectionError("unreachable")
    scene.run(60.0)
    assert exchange.lost(scene.clock.now())


def test_it_waits_until_the_next_arrival_at_most() -> None:
    scene = Scene(Edge(), emulation=Emulation(rtt_s=0.1))
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


def test_a_paused_node_joins_a_learner_that_was_started_again() -> None:
    # It sent no share that could be refused, and so got no weights that others had learned.
    scene = Scene(Edge()).run(1.0)
    scene.paused = {0}
    scene.run(1.0)
    assert not scene.edges[0].node.under_way
    scene.restart()
    scene.run(OTHERS_EVERY_S + 1.0)
    assert [each["id"] for each in scene.learner.status()["nodes"]] == ["edge"]
    assert scene.exchanges[0].connected


def test_a_call_that_is_given_up_does_not_cancel_the_answer() -> None:
    scene = Scene(Edge()).run(0.5)
    joined = scene.learner.join(scene.edges[0].joining)
    scene.edges[0].node.begin_session(0, 512)
    share = scene.edges[0].node.make(8, scene.settings)
    first, again = (scene.learner.offer("edge", joined.session, [share.block])[0] for _ in range(2))
    assert not first.cancel()
    assert scene.learner.step(0.0)
    assert again.done()


def test_a_learner_that_could_not_begin_is_looked_for_anew_soon() -> None:
    scene = Scene(Edge())
    exchange = scene.exchanges[0]
    scene.remotes[0].broken = EndedError("another learner writes its checkpoints there")
    # A process that ends sooner would count as one that cannot work.
    scene.run(WELL_S)
    assert not exchange.lost(scene.clock.now())
    scene.run(10.0)
    assert exchange.lost(scene.clock.now())
    assert exchange.reason == "another learner writes its checkpoints there"


def test_a_learner_that_cannot_be_joined_is_asked_ever_more_seldom() -> None:
    scene = Scene(Edge())
    remote, asked = scene.remotes[0], list[int]()
    remote.broken = RuntimeError("unavailable")
    for seconds in (5.5, 14.5, 30.0):
        before = remote.calls.count("join")
        scene.run(seconds)
        asked.append(remote.calls.count("join") - before)
    assert asked == [5, 2, 3]
    remote.broken = None
    scene.run(LONGEST_PAUSE_S + 1.0)
    assert scene.exchanges[0].connected


@pytest.mark.parametrize("values", [np.zeros(1), np.zeros((2, 2)), "nan"])
def test_weights_that_no_network_of_the_daemon_can_act_with_are_refused(
    values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One value filled all of the weights that act.
    world = Edge()
    scene = Scene(world)
    if isinstance(values, str):
        values = np.full(world.blueprint.parameters, np.nan, np.float32)
    about = {"version": 9, "updates": 9, "age_s": 0.0}
    monkeypatch.setattr(scene.learner, "weights", lambda _: pack(about, {"weights": values}))
    with pytest.raises(MessageError, match="the learner's weights are of another network"):
        scene.run(1.0)
    assert scene.exchanges[0].weights() is None
