"""The figures of learning in a cluster: the link, what travels over it, and what it is used for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rtagent.telemetry.figures.declaration import MS, RATIO, SHARE, Figure, counter, setting

NOT_BEGUN = "before the gateway has begun"
NO_BATCH = "no batch was learned from in the last 10 s"
NO_WEIGHTS = "before weights have come"
NO_FRAME = "no batch was sent in the last 10 s"
NOT_PRIORITIZED = f"{NO_BATCH}, or sampling is not prioritized"
BYTES = "Bytes on the wire for each transition learned from in the last 10 s, by direction."


@dataclass(frozen=True)
class Node:
    """The figures of a buffer node: a daemon whose replay feeds the learner.

    This daemon's own is the first; the others are as the learner knows them, while it answers.
    """

    id: Annotated[str, Figure("Its name.", "robot-1", names=("Node",))]
    share: Annotated[int, Figure(
        "Transitions of a batch that the learner asks it for.", 256, metric="cluster_node_share",
        names=("Share",))]
    generated: Annotated[int, counter(
        "Transitions that its world has generated.", 61_440,
        metric="cluster_node_generated_total", names=("Generated",))]
    shipped: Annotated[int, counter(
        "Transitions that it has sent to the learner; ticks, if the replay is there.", 40_448,
        metric="cluster_node_shipped_total", names=("Sent",))]
    learned: Annotated[int, counter(
        "Transitions of its world that were learned from, a repeated one each time; of another "
        "daemon's, since it last joined.", 39_936,
        metric="cluster_node_learned_total", names=("Learned from",))]


@dataclass(frozen=True)
class Traffic:
    """Bytes on the wire for each transition learned from in the last 10 s."""

    up: Annotated[float | None, Figure(
        "Bytes sent to the learner for each transition learned from, over the last 10 s.",
        15_204.0, "bytes", "cluster_sample_bytes", labels={"direction": "up"}, family=BYTES,
        names=("Bytes per transition, up",), none=NO_BATCH)]
    down: Annotated[float | None, Figure(
        "Bytes received from the learner for each transition learned from, over the last 10 s.",
        431.5, "bytes", "cluster_sample_bytes", labels={"direction": "down"}, family=BYTES,
        names=("Bytes per transition, down",), none=NO_BATCH)]


@dataclass(frozen=True)
class Emulated:
    """What of the link is emulated; null: nothing, and every figure is that of the link itself."""

    rtt_ms: Annotated[float, setting(
        "Delay that is added to the link, there and back.", 200.0, MS,
        "cluster_emulated_round_trip_seconds", names=("emulated",))]
    bandwidth_mbps: Annotated[float | None, setting(
        "Bandwidth to which each direction is limited, 10^6 bits per second.", 4.5, "Mbit/s",
        "cluster_emulated_bandwidth_megabits_per_second", none="it is not limited")]
    loss: Annotated[float, setting(
        "Share of calls that are made to fail.", 0.01, SHARE, "cluster_emulated_loss_ratio")]


@dataclass(frozen=True)
class Cluster:
    """The learner somewhere else, and the link to it; absent where learning is done here."""

    connected: Annotated[bool, Figure(
        "Whether the learner answers.", True, metric="cluster_connected")]
    since_s: Annotated[float | None, Figure(
        "Seconds since it has been connected, or cut.", 12.0, "s", "cluster_state_seconds",
        none=NOT_BEGUN)]
    reason: Annotated[str | None, Figure(
        "Why it is cut, in a line.", "nobody answers at 10.0.0.1:6379", none="it is connected")]
    nodes: list[Node]
    batches_in_flight: Annotated[int | None, Figure(
        "Batches sent whose answers have not come yet.", 3, "batches",
        "cluster_batches_in_flight", names=("Batches in flight",),
        none="the gateway does not answer")]
    bytes_per_sample: Traffic
    alpha: Annotated[float | None, Figure(
        "Transitions generated for each one learned from, over the last 10 s (alpha).", 1.52,
        RATIO, "cluster_generation_ratio", names=("Generated per learned",), none=NO_BATCH)]
    loss_mean: Annotated[float | None, Figure(
        "Mean loss of the batches of the last 10 s (L_t).", 0.0123, "loss", "cluster_loss_mean",
        names=("Loss of batches",), none=NO_BATCH)]
    priority_transferred: Annotated[float | None, Figure(
        "Mean priority of the transitions sent in the last 10 s (p_t); with the replay at the "
        "learner, of a sample of them, by the errors that they had there.", 0.42, "priority",
        "cluster_priority_transferred_mean", names=("Priority, sent",), none=NOT_PRIORITIZED)]
    priority_sampled: Annotated[float | None, Figure(
        "Mean priority of the transitions learned from in the last 10 s (p_s).", 0.40, "priority",
        "cluster_priority_sampled_mean", names=("Priority, learned from",), none=NOT_PRIORITIZED)]
    weights_age_s: Annotated[float | None, Figure(
        "Age of the newest weights on arrival: from their update to their leaving the learner, and "
        "half of the round trip, or their time on an emulated link if it is longer.", 0.35, "s",
        "cluster_weights_age_seconds",
        names=("Age of weights on arrival",), none=NO_WEIGHTS)]
    cache_hits: Annotated[float | None, Figure(
        "Share of the frames of batches, over the last 10 s, that did not travel, as the learner "
        "still had them.", 0.31, SHARE, "cluster_cache_hit_ratio", names=("Frames not sent",),
        none=NO_FRAME)]
    stale_priorities: Annotated[int, counter(
        "Priorities that came for transitions whose frames had been overwritten.", 17,
        metric="cluster_stale_priorities_total", names=("Priorities too late",))]
    experiences_lost: Annotated[int, counter(
        "Ticks that were overwritten before they could be sent to a replay at the learner.", 0,
        metric="cluster_experiences_lost_total", names=("Ticks not sent in time",))]
    round_trip_ms: Annotated[float | None, Figure(
        "Smallest recent time from a batch to its answer, without the time that the learner held "
        "it: the link alone, there and back.", 201.3, MS, "cluster_round_trip_seconds",
        names=("Batches in flight, round trip",), none=NO_BATCH)]
    emulated: Emulated | None
