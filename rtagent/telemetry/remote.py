"""The figures of a policy on another machine, from the records of the inference processes.

Pure: records in, figures and a sentence out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rtagent.telemetry.figures.acting import Remote

if TYPE_CHECKING:
    from rtagent.memory.process_metrics import InferenceRecord


def remote_figures(running: Sequence[InferenceRecord], all_: Sequence[InferenceRecord]) -> Remote:
    """The figures.

    Args:
        running: of the processes that run.
        all_: of all processes that have ever run.
    """
    # The times of a link that is lost are those of the past.
    connected = [each for each in running if each.connected]
    asked = [each for each in connected if each.round_trip_ns or each.compute_ns]

    def mean_ms(name: str) -> float | None:
        values = [getattr(each, name) for each in asked]
        return sum(values) / len(values) / 1e6 if values else None

    return Remote(
        connected=bool(connected),
        round_trip_ms=mean_ms("round_trip_ns"), queue_ms=mean_ms("queue_ns"),
        compute_ms=mean_ms("compute_ns"), in_flight=sum(each.in_flight for each in running),
        dropped=sum(each.dropped for each in all_), hedged=sum(each.hedged for each in all_),
    )


def in_a_line(remote: Remote) -> str:
    """How the link is, and where the time goes."""
    if not remote.connected:
        return "no policy server answers"
    if remote.round_trip_ms is None or remote.compute_ms is None:
        return "connected"
    queue = f", {remote.queue_ms:.1f} ms in its queue" if remote.queue_ms else ""
    return (
        f"connected, {remote.round_trip_ms:.1f} ms on the network{queue}, "
        f"{remote.compute_ms:.1f} ms computing, {remote.in_flight} in flight"
    )
