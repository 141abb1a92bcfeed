"""What the gateway counts of the updates that the learner has made."""

from __future__ import annotations

from dataclasses import astuple, replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from rtagent.cluster.calls import Learned
from rtagent.cluster.learned_record import LearnedRecord
from rtagent.cluster.message import pack, unpack
from rtagent.config import LEARNING_PRECISIONS, Precision
from rtagent.learning.precision import LossScale
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.learner_state import Progress
from rtagent.memory.process_metrics import LearnerRecord
from tests.cluster.edge import Edge
from tests.cluster.scene import Scene, first_state
from tests.conftest import private

APPLIED = Learned("applied", 0.5, 1.0, 8, 64, 0.01, None, None, "float32", 0.0)


@pytest.mark.parametrize(("change", "outcome"), [
    ({"loss": nan}, "skipped"), ({"norm": inf}, "skipped"),
    ({"norm": inf, "scale": LossScale()}, "overflowed"),
])
def test_the_learner_says_what_has_become_of_an_update(
    change: dict[str, Any], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, calls = SharedUpdate.compute, iter(range(10**6))

    def every_third(self: SharedUpdate, *args: Any, **options: Any) -> Any:
        found = compute(self, *args, **options)
        return replace(found, **change) if next(calls) % 3 == 2 else found

    monkeypatch.setattr(SharedUpdate, "compute", every_third)
    world = Edge(prioritized=True)
    scene = Scene(world).run(3.0, collect=False)
    found = scene.exchanges[0].learned()
    assert [each.outcome for each in found[:6]] == ["applied", "applied", outcome] * 2
    assert [each.updates for each in found[:6]] == [8, 9, 9, 10, 11, 11]
    assert [each.samples for each in found[:6]] == [8, 16, 16, 24, 32, 32]
    # Nothing was learned from it, whoever counts.
    applied = sum(each.outcome == "applied" for each in found)
    assert world.node.counts.samples == 8 * applied
    learned = scene.learner.status()
    assert learned["nodes"][0]["learned"] == 8 * learned["batches"]


def test_what_was_learned_before_a_resumed_run_is_counted() -> None:
    scene, record = Scene(Edge()), private(LearnerRecord)
    begun = Progress(updates=7, samples=56)
    block = unpack(first_state(scene.edges[0]))
    arrays = block.arrays | {"progress": np.array(astuple(begun), np.int64)}
    scene.learner.join(scene.edges[0].joining)
    scene.learner.begin(pack({}, arrays))
    counting = LearnedRecord(record, lambda kind, **said: None)
    counting.begin(begun)
    assert (record.updates, record.samples_consumed) == (7, 56)
    scene.run(1.0, collect=False)
    found = scene.exchanges[0].learned()
    counting.note(found[0], scene.clock.now())
    assert (record.updates, record.samples_consumed, record.applied) == (8, 64, 1)


def test_an_update_that_was_left_out_is_counted_as_such() -> None:
    record = private(LearnerRecord)
    events: list[tuple[str, dict[str, Any]]] = []
    counting = LearnedRecord(record, lambda kind, **said: events.append((kind, said)))
    bad = APPLIED._replace(outcome="skipped", loss=nan, norm=nan)
    for at, learned in enumerate([
        APPLIED, bad, bad, APPLIED._replace(updates=9, samples=72, outcome="overflowed"),
        APPLIED._replace(updates=9, samples=72, loss=0.25), bad._replace(updates=9, samples=72),
    ]):
        counting.note(learned, float(at))
    assert (record.applied, record.skipped, record.overflows) == (2, 3, 1)
    assert (record.updates, record.samples_consumed) == (9, 72)
    assert (record.loss, record.applied_ns, record.update_ns) == (0.25, 4 * 10**9, 10**7)
    # Once for those that follow each other.
    assert events == [
        ("update_skipped", {"loss": "nan", "gradient_norm": "nan", "updates": updates})
        for updates in (8, 9)
    ]


@pytest.mark.parametrize(("precision", "loss_scale"), [("bfloat16", 0.0), ("float16", 65536.0)])
def test_the_precision_is_that_of_the_learner(precision: Precision, loss_scale: float) -> None:
    scene, record = Scene(Edge(precision=precision)).run(1.0, collect=False), private(LearnerRecord)
    learned = scene.exchanges[0].learned()[0]
    LearnedRecord(record, lambda kind, **said: None).note(learned, scene.clock.now())
    assert LEARNING_PRECISIONS[record.precision - 1] == precision
    assert record.loss_scale == loss_scale


def test_the_rate_of_updates_is_that_of_the_learner_whoever_had_a_share() -> None:
    scene = Scene(Edge("often"), Edge("seldom")).run(0.2, collect=False)
    record, seldom = private(LearnerRecord), scene.exchanges[1]
    counting = LearnedRecord(record, lambda kind, **said: None)
    for learned in seldom.learned():
        counting.note(learned, scene.clock.now())
    scene.paused = {1}
    scene.run(0.5, collect=False)
    before, applied = int(record.updates), int(record.applied)
    for _ in range(4):
        assert seldom.make(scene.settings, learn=True)
        seldom.send(scene.clock.now())
        scene.run(0.3, collect=False)
        for learned in seldom.learned():
            counting.note(learned, scene.clock.now())
    assert record.updates - before > 100
    assert record.applied - applied == record.updates - before


def test_a_learner_that_begins_with_weights_alone_counts_its_transitions_on() -> None:
    """The counts of the next checkpoint are its own."""
    record = private(LearnerRecord)
    counting = LearnedRecord(record, lambda kind, **said: None)
    counting.note(APPLIED._replace(updates=80, samples=640), 0.0)
    record.samples_consumed += 100
    assert counting.begin(Progress(updates=78)) == Progress(updates=78, samples=740)
    counting.note(APPLIED._replace(updates=79, samples=748), 0.0)
    assert (record.updates, record.samples_consumed) == (81, 748)


def test_what_was_learned_does_not_fall_with_a_learner_that_begins_earlier() -> None:
    record = private(LearnerRecord)
    record.updates, record.samples_consumed = 80, 640
    counting, told = LearnedRecord(record, lambda kind, **said: None), []
    for samples in (800, 808, 160, 168, 176):
        counting.note(APPLIED._replace(updates=samples // 8, samples=samples), 0.0)
        told.append((int(record.updates), int(record.samples_consumed)))
    begun = counting.begin(Progress(updates=0, samples=0))
    counting.note(APPLIED._replace(updates=1, samples=begun.samples + 8), 0.0)
    told.append((int(record.updates), int(record.samples_consumed)))
    assert told == [(each // 8, each) for each in (800, 808, 808, 816, 824, 832)]
