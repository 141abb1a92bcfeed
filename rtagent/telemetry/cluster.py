"""The figures of the link to a cluster, from the document of its gateway; and the link in a line.

Pure: documents in, figures and sentences out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtagent.telemetry.figures.cluster import Cluster, Emulated
from rtagent.telemetry.figures.declaration import from_json

SILENT_S = 3.0
"""A gateway that has written nothing for so long counts as one that does not answer."""
OF_A_MOMENT = (
    "batches_in_flight", "bytes_per_sample", "alpha", "loss_mean", "priority_transferred",
    "priority_sampled", "cache_hits", "round_trip_ms",
)
"""These are unknown while the gateway does not answer."""


def cluster_figures(document: Mapping[str, Any], now: float) -> Cluster:
    """The figures.

    Args:
        document: of the gateway; empty if it has written none yet. `at` and `since` are seconds
            of the monotonic clock.
        now: seconds of the same clock.
    """
    connected, since = bool(document.get("connected")), document.get("since")
    reason = None if connected else str(document.get("reason") or "the gateway gives no reason")
    if not document:
        reason = "the gateway has not begun"
    elif now - document["at"] > SILENT_S:
        if connected:
            # A gateway whose link is cut already may be busy with joining anew.
            connected, since, reason = False, document["at"], "the gateway does not answer"
        document = {**document, **dict.fromkeys(OF_A_MOMENT)}
    return from_json(Cluster, {
        "stale_priorities": 0, "experiences_lost": 0, **document, "connected": connected,
        "since_s": None if since is None else max(0.0, now - since), "reason": reason,
    })


def in_a_line(cluster: Cluster) -> str:
    """How the link is: connected or cut, since when and why, and what is emulated."""
    emulated = _emulated(cluster.emulated)
    lasting = "" if cluster.since_s is None else f" for {cluster.since_s:.0f} s"
    if not cluster.connected:
        return f"cut{lasting}: {cluster.reason or 'the reason is unknown'}{emulated}"
    in_flight = cluster.batches_in_flight
    return f"connected{lasting}, {'unknown' if in_flight is None else in_flight} " + (
        f"{'batch' if in_flight == 1 else 'batches'} in flight{emulated}"
    )


def _emulated(emulated: Emulated | None) -> str:
    if emulated is None:
        return ""
    parts = [
        f"{emulated.rtt_ms:g} ms round trip" if emulated.rtt_ms else "",
        f"{emulated.bandwidth_mbps:g} Mbit/s" if emulated.bandwidth_mbps is not None else "",
        f"{100 * emulated.loss:g} % of calls fail" if emulated.loss else "",
    ]
    return f" (emulated: {', '.join(filter(None, parts))})"
