"""Daemons that learn in a Ray cluster, and what is read of them from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from benchmarks.cluster.far_machine import FAR, FarMachine
from benchmarks.cluster.ray_cluster import Head, LearnerNode
from benchmarks.daemon import RunningDaemon
from benchmarks.waiting import until

BATCH = 32
SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=30", "inference.processes=1", "learning.processes=1",
    "learning.learning_starts=30", f"learning.batch_size={BATCH}", "learning.prioritized=true",
    "learning.updates_per_tick=0.3", "replay.capacity=20000", "run.tensorboard=false",
)


def daemon(*settings: str) -> RunningDaemon:
    """A daemon of a small world, not started yet."""
    return RunningDaemon(*SETTINGS, *settings)


class Cluster:
    """A head, and a learner on a node of its own.

    Args:
        machine: that the cluster runs on. If None, this machine.
    """

    def __init__(self, machine: FarMachine | None = None) -> None:
        self.machine = machine
        host, under = ("127.0.0.1", ()) if machine is None else (FAR, machine.under)
        self.head = Head(host, under)
        self.learner = LearnerNode(self.head.address, under)

    def __enter__(self) -> Cluster:
        self.head.start()
        self.learner.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.learner.kill()
        self.head.kill()

    @contextlib.contextmanager
    def daemon(self, *settings: str) -> Iterator[RunningDaemon]:
        """A daemon that learns in this cluster, and has begun to."""
        address = f"cluster.address={self.head.address}"
        with daemon("learning.where=cluster", address, *settings) as running:
            until(lambda: link(running)["connected"], "the daemon has joined the cluster")
            yield running

    def learned_of(self, daemons: list[RunningDaemon]) -> int:
        """Transitions of these daemons that the learner says it has learned from."""
        ids = {own_node(each).get("id") for each in daemons}
        nodes = self.learner.newest().get("nodes", [])
        return sum(int(node["learned"]) for node in nodes if node["id"] in ids)


def link(running: RunningDaemon) -> dict[str, Any]:
    """The figures of a daemon's link."""
    found: dict[str, Any] = running.stats()["cluster"]
    return found


def own_node(running: RunningDaemon) -> dict[str, Any]:
    """The figures of the daemon's own buffer node, which is the first of its link."""
    nodes = link(running)["nodes"]
    return nodes[0] if nodes else dict.fromkeys(("share", "shipped", "learned"), 0)


def gateway(running: RunningDaemon) -> dict[str, Any]:
    """A daemon's gateway, as the status shows it."""
    return next(each for each in running.status()["roles"] if each["name"] == "learner 0")


def learned(running: RunningDaemon) -> int:
    """Transitions of a daemon whose answers have come."""
    return int(running.stats()["learning"]["samples_consumed"])


def shares(daemons: list[RunningDaemon]) -> list[int]:
    """Each daemon's share of a batch, in transitions."""
    return [int(own_node(each)["share"]) for each in daemons]


def evenly(daemons: list[RunningDaemon]) -> bool:
    """Whether the shares are those of daemons that generate the same: within a quarter."""
    found, even = shares(daemons), BATCH / len(daemons)
    return sum(found) == BATCH and all(abs(each - even) <= even / 4 for each in found)
