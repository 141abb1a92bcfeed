"""The bytes on the wire, counted over a short run."""

from __future__ import annotations

import pytest

from benchmarks.cluster.cluster_bytes import Line, measure, verdict


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return measure([0.5, 1.52], batches=60, capacity=2048)


def test_what_each_way_needs(lines: list[Line]) -> None:
    assert all(holds for _, holds in verdict(lines))
    for line in lines:
        assert line.learner == pytest.approx(line.alpha * line.edge)
        assert line.edge_cached < line.edge_once < line.edge
        # A frame that is used at all travels once; so does its transition's row, once or more.
        assert line.edge_cached > 0.5 * min(1.0, line.alpha) * 84 * 84 * 0.5
        # A frame and its row, and little beside it.
        assert line.learner_once == pytest.approx(line.alpha * 84 * 84, rel=0.05)


def test_a_verdict_can_be_missed(lines: list[Line]) -> None:
    worse = [line._replace(edge_cached=line.edge) for line in lines]
    assert [holds for _, holds in verdict(worse)] == [True, False]
