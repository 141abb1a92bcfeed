"""Nodes that talk to one learner, in virtual time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from rtagent.clock import VirtualClock
from rtagent.cluster.exchange import Exchange
from rtagent.cluster.learner import ClusterLearner
from rtagent.cluster.link import Emulation
from rtagent.cluster.message import Bytes, pack
from rtagent.cluster.node import Settings
from rtagent.cluster.trainer import snapshot_arrays
from rtagent.learning import state as states
from rtagent.learning.beginning import build_network
from rtagent.policy import networks
from tests.cluster.edge import Direct, Edge

STEP_S = 0.01
NO_EMULATION = Emulation()


def first_state(edge: Edge) -> Bytes:
    flat = networks.flattened(build_network(edge.config, edge.blueprint))
    return pack({}, snapshot_arrays(states.begin(flat, 7)))


class Scene:
    """Nodes that talk to one learner, and a clock that is moved.

    Attributes:
        losses: of every share that was answered, by node.
        paused: places of the nodes whose daemon wants nothing learned.
    """

    def __init__(self, *edges: Edge, emulation: Emulation = NO_EMULATION, seed: int = 3) -> None:
        self.clock = VirtualClock(100.0)
        self.learner = ClusterLearner(self.clock, None)
        self.remotes = [Direct(self.learner) for _ in edges]
        self.edges = edges
        self._emulation, self._seed = emulation, seed
        self.exchanges = [
            self.new_exchange(each, remote)
            for each, remote in zip(edges, self.remotes, strict=True)
        ]
        self.settings = Settings(batch_size=8, learning_rate=5e-4, beta=0.5)
        self.losses: list[list[float]] = [[] for _ in edges]
        self.paused: set[int] = set()
        self.updates: list[int] = []
        self.weights: list[Any] = []

    def new_exchange(self, edge: Edge, remote: Direct) -> Exchange:
        """An exchange that begins now."""
        now = self.clock.now()
        return Exchange(
            remote, edge.node, edge.joining, lambda: first_state(edge), self._emulation,
            random.Random(self._seed).random, now, now,
        )

    def restart(self, folder: Path | None = None, identity: str | None = None) -> None:
        """Put another learner into the place of the last one."""
        self.learner = ClusterLearner(self.clock, folder, identity)
        for remote in self.remotes:
            remote.learner = self.learner

    def run(self, seconds: float, *, learn: int = 1, ticks: int = 1, collect: bool = True) -> Scene:
        """Let time pass; the learner has time for `learn` updates in every step."""
        for _ in range(round(seconds / STEP_S)):
            for index, (exchange, edge) in enumerate(zip(self.exchanges, self.edges, strict=True)):
                edge.play(ticks)
                exchange.advance(self.clock.now())
                while room := exchange.room:
                    learning = index not in self.paused
                    made = [exchange.make(self.settings, learn=learning) for _ in range(room)]
                    exchange.send(self.clock.now())
                    if not all(made):
                        break
                for learned in exchange.learned() if collect else ():
                    self.losses[index].append(learned.loss)
                    self.updates.append(learned.updates)
                if (found := exchange.weights()) is not None:
                    self.weights.append(found)
            for _ in range(learn):
                self.learner.step(0.0)
            self.clock.advance(STEP_S)
        return self
