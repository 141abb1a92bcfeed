"""What the gateway says of the link, in virtual time."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from rtagent.cluster import link_figures
from rtagent.cluster.forwarding_node import TICKS_PER_CALL
from rtagent.cluster.link import Direction, Emulation
from rtagent.cluster.link_figures import LinkFigures, counted
from tests.cluster.edge import Edge
from tests.cluster.scene import NO_EMULATION, Scene

pytestmark = pytest.mark.usefixtures("no_gradients")

OVER_S = 2.0
REPORT_S = 0.1


@pytest.fixture(autouse=True)
def _short_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of virtual time is a hundred updates."""
    monkeypatch.setattr(link_figures, "OVER_S", OVER_S)


class Told:
    """A scene of one node, of which a report is made now and then."""

    def __init__(self, replay: str, capacity: int = 8192) -> None:
        self.scene = Scene(Edge(replay=replay, capacity=capacity))
        (exchange,), (edge,) = self.scene.exchanges, self.scene.edges
        self._figures = LinkFigures(exchange, edge.node, NO_EMULATION)

    def restart_gateway(self, away: int = 0) -> None:
        """Put another gateway, `away` ticks later, into the place of that of the last report."""
        (edge,), document = self.scene.edges, self._figures.document(self.scene.clock.now())
        edge.play(away)
        edge.node = edge.new_node()
        edge.node.count_on(*counted(document))
        self.scene.exchanges = [self.scene.new_exchange(edge, self.scene.remotes[0])]
        self._figures = LinkFigures(self.scene.exchanges[0], edge.node, NO_EMULATION)

    def run(self, seconds: float) -> dict[str, Any]:
        """Let time pass; the last report."""
        for _ in range(round(seconds / REPORT_S)):
            self.scene.run(REPORT_S)
            found = self._figures.document(self.scene.clock.now())
        return found


def test_a_call_fails_if_it_or_its_answer_is_lost() -> None:
    emulation, chance = Emulation(loss=0.1), random.Random(0).random
    up, down = (Direction(emulation, chance) for _ in range(2))
    calls = 20_000
    for call in range(calls):
        up.send(0.0, 1, call)
    for call in up.arrived(1.0):
        down.send(1.0, 1, call)
    answered = len(down.arrived(2.0))
    scene = Scene(Edge(), emulation=emulation)
    figures = LinkFigures(scene.exchanges[0], scene.edges[0].node, emulation)
    told = figures.document(scene.clock.now())["emulated"]["loss"]
    assert told == pytest.approx(1 - answered / calls, abs=0.01)
    assert told == pytest.approx(0.19)


@pytest.mark.parametrize("paused", [False, True])
def test_ticks_that_are_sent_while_learning_is_paused_are_no_batch(paused: bool) -> None:
    edge = Edge(replay="learner")
    scene = Scene(edge)
    scene.paused = {0} if paused else set()
    scene.run(1.0, learn=0)
    figures = LinkFigures(scene.exchanges[0], edge.node, NO_EMULATION)
    edge.play(TICKS_PER_CALL)
    assert edge.node.make(0, scene.settings) is not None
    in_flight = figures.document(scene.clock.now())["batches_in_flight"]
    assert in_flight == len(edge.node.under_way) - 1
    assert (in_flight == 0) == paused


@pytest.mark.parametrize("replay", ["edge", "learner"])
def test_what_is_generated_in_a_pause_counts_when_it_is_generated(replay: str) -> None:
    told = Told(replay)
    learned = 8
    # A transition for each tick, and a batch for each.
    assert told.run(1.25 * OVER_S)["alpha"] == pytest.approx(1 / learned, rel=0.1)
    told.scene.paused = {0}
    before = told.run(1.0)["nodes"][0]["generated"]
    paused = told.run(3 * OVER_S)
    assert paused["nodes"][0]["generated"] - before == pytest.approx(300 * OVER_S, rel=0.1)
    status = told.scene.learner.status()["nodes"][0]
    if replay == "learner":
        assert status["rate"] == pytest.approx(100.0, rel=0.1)
    told.scene.paused = set()
    # In half of this time it was learned.
    assert told.run(OVER_S / 2)["alpha"] == pytest.approx(2 / learned, rel=0.1)


@pytest.mark.parametrize("replay", ["edge", "learner"])
@pytest.mark.parametrize(("fault", "learned"), [("cut", 0.5), ("restart", 0.75)])
def test_neither_a_cut_nor_a_new_learner_changes_what_is_generated(
    fault: str, learned: float, replay: str
) -> None:
    told, batch = Told(replay), 8
    reports = [told.run(1.25 * OVER_S)]
    remote = told.scene.remotes[0]
    if fault == "cut":
        remote.broken = ConnectionError("unreachable")
        reports += [told.run(REPORT_S) for _ in range(round(3 * OVER_S / REPORT_S))]
        assert reports[-1]["alpha"] is None
        remote.broken = None
    else:
        told.scene.restart()
    before = reports[-1]["nodes"][0]["learned"]
    while reports[-1]["nodes"][0]["learned"] == before:
        assert len(reports) < 1000, "nothing is learned any more"
        reports.append(told.run(REPORT_S))
    reports += [told.run(REPORT_S) for _ in range(round(OVER_S / 2 / REPORT_S))]
    # In such a part of this time it was learned; a new learner is noticed after half a second.
    assert reports[-1]["alpha"] == pytest.approx(1 / learned / batch, rel=0.15)
    reports += [told.run(REPORT_S) for _ in range(round(OVER_S / REPORT_S))]
    assert reports[-1]["alpha"] == pytest.approx(1 / batch, rel=0.1)
    generated = [each["nodes"][0]["generated"] for each in reports]
    # A transition for each tick; the newest are not complete yet.
    grown = [after - before for before, after in pairwise(generated)]
    assert grown == pytest.approx([100 * REPORT_S] * len(grown), abs=4)


@pytest.mark.parametrize("replay", ["edge", "learner"])
@pytest.mark.parametrize("away", [0, 150])
def test_a_gateway_that_takes_the_place_of_another_counts_on(away: int, replay: str) -> None:
    told = Told(replay, capacity=256)
    before = told.run(3.0)["nodes"][0]
    assert before["generated"] > 256
    told.restart_gateway(away)
    after = told.run(REPORT_S)["nodes"][0]
    # A transition for each tick but the first of an episode of twenty.
    passed = (away + 100 * REPORT_S) * 19 / 20
    assert after["generated"] == pytest.approx(before["generated"] + passed, abs=4)
    assert after["shipped"] >= before["shipped"] > 0
    assert after["learned"] >= before["learned"] > 0
    learned = told.run(1.0)
    assert learned["nodes"][0]["learned"] > before["learned"]
    # Ratios are of what this gateway has done.
    assert learned["alpha"] == pytest.approx(1 / 8, rel=0.2)


def test_a_tick_that_a_new_gateway_sends_again_counts_once() -> None:
    told = Told("learner")
    told.run(1.0)
    told.restart_gateway()
    # This learner has no replay: it is sent all that the ring holds.
    told.scene.restart()
    found = told.run(2.0)["nodes"][0]
    assert found["shipped"] <= told.scene.edges[0].frames.newest + 1


def test_a_round_trip_is_unknown_while_nothing_is_learned() -> None:
    emulation = Emulation(rtt_s=0.2)
    scene = Scene(Edge(), emulation=emulation)
    figures = LinkFigures(scene.exchanges[0], scene.edges[0].node, emulation)

    def told(steps: int) -> Any:
        for _ in range(steps):
            scene.run(0.5)
            found = figures.document(scene.clock.now())["round_trip_ms"]
        return found

    assert told(8) == pytest.approx(200.0, rel=0.2)
    scene.paused.add(0)
    assert told(60) is None
