"""A ring of frames that a test pattern fills: the world of benchmarks that only learn."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks.worlds.shapes import blueprint
from rtagent.config import Config
from rtagent.learning.beginning import build_network
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ledger import TERMINATED
from rtagent.memory.world import World, WorldMemory
from rtagent.policy.networks import tensor_specs
from rtagent.staggering.arbiter import Source

EPISODE = 1000
PICTURES = 64
MAINTAIN_EVERY = 32


class PatternWorld:
    """The shared memory of a run, without its processes.

    Args:
        config: configuration of the run.
        shapes: shapes of the run.
        ticks: ticks that the world begins with.
        pictures: (n, *frame_shape), which its frames show one after the other. If None, noise.

    Attributes:
        memory: the arenas.
        world: the arenas as this process sees them.
        began_at: monotonic seconds at which the first `ticks` were there.
    """

    def __init__(
        self, config: Config, shapes: Blueprint, ticks: int = 0, pictures: np.ndarray | None = None
    ) -> None:
        self._capacity = config.replay.capacity
        self.memory = WorldMemory(config, shapes)
        self.world = World(self.memory.handles)
        shape = self.world.frames.frames.shape[1:]
        if pictures is None:
            pictures = np.random.default_rng(0).integers(0, 256, (PICTURES, *shape), np.uint8)
        self._pictures = pictures
        self._first, self._tick = ticks, 0
        self.play(ticks)
        self.began_at = time.monotonic()

    def play(self, ticks: int) -> None:
        """Write so many ticks."""
        for tick in range(self._tick, self._tick + ticks):
            if tick % MAINTAIN_EVERY == 0:
                self.memory.maintain(tick, self._capacity)
            self.world.ledger.write(
                tick, observed=tick - 1, time_ns=tick, registered_ns=tick, lateness_ns=7,
                reward=1.0, weights_version=3, episode=tick // EPISODE, worker=0,
                source=Source.AGENT, flags=TERMINATED * (tick % EPISODE == EPISODE - 1),
                action=tick % 3,
            )
            picture = self._pictures[tick % len(self._pictures)]
            self.world.frames.publish(tick, picture, tick - tick % EPISODE)
        self._tick += ticks

    def play_until(self, now: float, rate_hz: float) -> None:
        """Write the ticks that are due by `now` (monotonic seconds) at a rate."""
        due = self._first + int((now - self.began_at) * rate_hz)
        self.play(max(0, due - self._tick))

    def close(self) -> None:
        """Give back the memory."""
        self.world.close()
        self.memory.close()


def with_network(config: Config) -> Blueprint:
    """The shapes of the built-in game, with the network of a configuration."""
    shapes = blueprint()
    return replace(shapes, network="nature 1", tensors=tensor_specs(build_network(config, shapes)))
