"""The gateway's figures of the link: the document behind `cluster` in `/v1/stats`.

L_t, p_t and p_s are those of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835,
Sec. V-C: the training loss, the mean priority of the transitions that were sent, and of those that
were sampled. With the replay at the edge only sampled transitions are sent, so p_t = p_s; for the
replay at the learner, `mirror.py` says how both are measured. alpha is that of Sec. VI-A: the ratio
of the transitions generated and those learned from in the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from rtagent.cluster.calls import Learned
from rtagent.cluster.exchange import Exchange
from rtagent.cluster.link import Emulation
from rtagent.cluster.node import Counts, Node

OVER_S = 10.0
"""Time over which means and ratios are computed."""


class _Mark(NamedTuple):
    """The counts at one time, `at`, in seconds."""

    at: float
    generated: int
    counts: Counts


def counted(document: Mapping[str, Any]) -> tuple[int, Counts]:
    """Transitions that were generated, and the counts of this run, by the newest document.

    Args:
        document: of the last gateway; empty if there was none.
    """
    if not document.get("nodes"):
        return 0, Counts()
    return document["nodes"][0]["generated"], Counts(**document["counts"])


class LinkFigures:
    """Figures of one gateway's link.

    Attributes:
        weights_age_s: age of the newest weights when they arrived. If None, none have arrived.
    """

    def __init__(self, exchange: Exchange, node: Node, emulation: Emulation) -> None:
        self._exchange, self._node, self._emulation = exchange, node, emulation
        self._learned: deque[tuple[float, Learned]] = deque()
        self._marks: deque[_Mark] = deque()
        self.weights_age_s: float | None = None

    def learned(self, learned: Learned, now: float) -> None:
        """Add an update; those that were left out have no finite loss, and do not count."""
        if learned.outcome == "applied":
            self._learned.append((now, learned))

    def document(self, now: float) -> dict[str, Any]:
        """The document that `/v1/stats` is made from; unknown figures are None."""
        while self._learned and self._learned[0][0] < now - OVER_S:
            self._learned.popleft()
        mark = self._mark(now)
        exchange, counts = self._exchange, mark.counts
        first, before = self._marks[0], self._marks[0].counts
        samples = counts.samples - before.samples
        return {
            "at": now,
            "connected": exchange.connected,
            "since": exchange.since,
            "reason": exchange.reason,
            "nodes": [{
                "id": exchange.node_name, "share": exchange.share, "generated": mark.generated,
                "shipped": counts.shipped, "learned": counts.samples,
            }, *exchange.others],
            "batches_in_flight": sum(each.learns for each in self._node.under_way.values()),
            "bytes_per_sample": {
                "up": _ratio(counts.bytes_up - before.bytes_up, samples),
                "down": _ratio(counts.bytes_down - before.bytes_down, samples),
            },
            "alpha": _ratio(mark.generated - first.generated, samples),
            "loss_mean": _mean(each.loss for _, each in self._learned),
            "priority_transferred": _mean(each.transferred for _, each in self._learned),
            "priority_sampled": _mean(each.sampled for _, each in self._learned),
            "weights_age_s": self.weights_age_s,
            "cache_hits": _ratio(
                counts.cache_hits - before.cache_hits, counts.frames - before.frames
            ),
            "stale_priorities": counts.stale_priorities,
            "experiences_lost": counts.lost,
            "counts": asdict(counts),
            "round_trip_ms": exchange.in_flight.delay_s * 1e3 or None if samples else None,
            "emulated": self._emulated(),
        }

    def _mark(self, now: float) -> _Mark:
        """Note the counts; keep the marks of the last `OVER_S`, and one older mark."""
        mark = _Mark(now, self._node.generated, replace(self._node.counts))
        self._marks.append(mark)
        while len(self._marks) > 1 and self._marks[1].at < now - OVER_S:
            self._marks.popleft()
        return mark

    def _emulated(self) -> dict[str, Any] | None:
        if not self._emulation.active:
            return None
        bits = self._emulation.bits_per_s
        return {
            "rtt_ms": self._emulation.rtt_s * 1e3,
            "bandwidth_mbps": None if bits is None else bits / 1e6,
            "loss": self._emulation.calls_lost,
        }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _ratio(over: float, under: float) -> float | None:
    return over / under if under > 0 else None
