"""The link to a cluster: figures from what the gateway writes, and a line from the figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rtagent.telemetry.cluster import OF_A_MOMENT, SILENT_S, cluster_figures, in_a_line
from rtagent.telemetry.figures.cluster import Cluster, Emulated
from rtagent.telemetry.figures.declaration import as_json, from_json

NOW = 500.0


def example_document(now: float, **changes: Any) -> dict[str, Any]:
    """What a gateway writes that has been connected for 12 s."""
    return {
        "at": now - 0.2, "connected": True, "since": now - 12.0, "reason": None,
        "nodes": [
            {"id": "robot-1", "share": 20, "generated": 6000, "shipped": 4000, "learned": 3980},
            {"id": "robot-2", "share": 12, "generated": 3600, "shipped": 2400, "learned": 2388},
        ],
        "batches_in_flight": 3, "bytes_per_sample": {"up": 15_204.0, "down": 431.5},
        "alpha": 1.52, "loss_mean": 0.0123, "priority_transferred": 0.42, "priority_sampled": 0.4,
        "weights_age_s": 0.35, "cache_hits": 0.31, "stale_priorities": 17,
        "experiences_lost": 5, "round_trip_ms": 201.3,
        "emulated": {"rtt_ms": 200.0, "bandwidth_mbps": 4.5, "loss": 0.01}, **changes,
    }


def test_figures_of_a_link_that_is_well() -> None:
    found = as_json(cluster_figures(example_document(NOW), NOW))
    written = example_document(NOW)
    for name in set(written) - {"at", "since"}:
        assert found[name] == written[name], name
    assert found["since_s"] == pytest.approx(12.0)
    assert set(found) == set(written) - {"at", "since"} | {"since_s"}


def test_before_the_gateway_has_written_nothing_is_known() -> None:
    found = as_json(cluster_figures({}, NOW))
    assert (found.pop("connected"), found.pop("reason")) == (False, "the gateway has not begun")
    assert (found.pop("nodes"), found.pop("stale_priorities")) == ([], 0)
    assert found.pop("experiences_lost") == 0
    assert found.pop("bytes_per_sample") == {"up": None, "down": None}
    assert set(found.values()) == {None}


def _of_a_moment(found: Cluster) -> set[float | None]:
    """The values of the figures that OF_A_MOMENT names."""
    told = vars(found) | {"bytes_per_sample": None}
    return {*vars(found.bytes_per_sample).values(), *(told[name] for name in OF_A_MOMENT)}


def test_a_gateway_that_is_silent_does_not_answer() -> None:
    written = example_document(NOW, at=NOW)
    assert cluster_figures(written, NOW + SILENT_S).connected
    found = cluster_figures(written, NOW + SILENT_S + 0.1)
    assert (found.connected, found.reason) == (False, "the gateway does not answer")
    assert found.since_s == pytest.approx(SILENT_S + 0.1)
    assert _of_a_moment(found) == {None}
    assert found.stale_priorities == 17


def test_a_cut_link_says_why_and_since_when_also_while_its_gateway_joins_anew_for_long() -> None:
    document = example_document(NOW, connected=False, reason="no Ray cluster at 10.0.0.1:6379")
    for later in (0.0, 20.0):
        found = cluster_figures(document, NOW + later)
        assert (found.connected, found.reason) == (False, "no Ray cluster at 10.0.0.1:6379")
        assert found.since_s == pytest.approx(12.0 + later)
    assert _of_a_moment(found) == {None}


@pytest.mark.parametrize(("changes", "line"), [
    ({}, "connected for 12 s, 3 batches in flight (emulated: 200 ms round trip, 4.5 Mbit/s, "
         "1 % of calls fail)"),
    ({"emulated": None}, "connected for 12 s, 3 batches in flight"),
    ({"emulated": None, "batches_in_flight": 1}, "connected for 12 s, 1 batch in flight"),
    ({"emulated": Emulated(5.0, None, 0.0)},
     "connected for 12 s, 3 batches in flight (emulated: 5 ms round trip)"),
    ({"connected": False, "reason": "no resource learner", "emulated": None},
     "cut for 12 s: no resource learner"),
    ({"connected": False, "reason": "no resource learner", "since_s": None,
      "emulated": Emulated(0.0, None, 0.5)},
     "cut: no resource learner (emulated: 50 % of calls fail)"),
])
def test_the_link_in_a_line(changes: dict[str, Any], line: str) -> None:
    assert in_a_line(replace(cluster_figures(example_document(NOW), NOW), **changes)) == line


def test_a_daemon_of_another_version_leaves_no_none_in_the_line() -> None:
    assert "None" not in in_a_line(from_json(Cluster, {"connected": True}))
    assert "None" not in in_a_line(from_json(Cluster, {"emulated": {"loss": 0.1}}))
