"""Plain Ray actors for `cluster_throughput`: a replay of rows, and a learner that asks it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import torch

from rtagent.cluster.trainer import Trainer
from rtagent.config import Config
from rtagent.learning import state as states
from rtagent.learning.beginning import build_network
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import Gradient
from rtagent.memory.blueprint import Blueprint
from rtagent.policy.networks import flattened

PLAIN_ROWS = 4096
"""Rows of the plain replay; as float32 they take 0.9 GB."""


def begun(config: Config, shapes: Blueprint) -> Trainer:
    """A trainer with random weights."""
    trainer = Trainer(config, shapes)
    trainer.begin(states.begin(flattened(build_network(config, shapes)), 0))
    return trainer


def without_update(self: Trainer, batch: Batch, learning_rate: float) -> Gradient:
    """A replacement of `Trainer.learn` that takes no time, to see how fast batches come."""
    count = len(batch.actions)
    return Gradient(0.0, 0.0, torch.ones(count), self.progress.updates, count)


class Row(NamedTuple):
    """A transition as a home-made replay actor would keep it."""

    observation: Any
    action: int
    reward: float
    discount: float
    next_observation: Any
    terminal: bool


class PlainReplay:
    """A list of rows; each call returns some of them at random."""

    def __init__(self, rows: int, shapes: Blueprint) -> None:
        self._rng = np.random.default_rng(0)
        shape = (shapes.frame_stack, *shapes.frame_shape)
        pictures = self._rng.integers(0, 256, (64, *shape), np.uint8)
        kind = np.dtype(shapes.frame_dtype)
        if kind.kind == "f":
            pictures = pictures / np.float32(255)
        pictures = pictures.astype(kind)
        self._rows = [
            Row(pictures[n % 64].copy(), n % 3, 1.0, 0.9, pictures[(n + 8) % 64].copy(), False)
            for n in range(rows)
        ]

    def sample(self, count: int) -> list[Row]:
        """Rows, each drawn with the same probability."""
        return [self._rows[at] for at in self._rng.integers(0, len(self._rows), count)]


class PlainLearner:
    """Asks for a batch, learns from it, asks for the next.

    Args:
        replay: the actor to ask.
        config: names the network.
        shapes: of the run.
        learns: if False, the update takes no time.
    """

    def __init__(self, replay: Any, config: Config, shapes: Blueprint, *, learns: bool) -> None:
        torch.set_num_threads(1)
        self._replay, self._rate = replay, config.learning.learning_rate
        if not learns:
            Trainer.learn = without_update  # type: ignore[method-assign]
        self._trainer = begun(config, shapes)

    def run(self, count: int, seconds: float) -> tuple[int, float, float]:
        """Learn for a while: batches, the seconds that they took, and those of an update (mean)."""
        import ray

        batches, updating, began = 0, 0.0, time.monotonic()
        while not batches or time.monotonic() - began < seconds:
            batch = joined(ray.get(self._replay.sample.remote(count)))
            at = time.monotonic()
            self._trainer.learn(batch, self._rate)
            updating += time.monotonic() - at
            batches += 1
        return batches, time.monotonic() - began, updating / batches


def joined(rows: list[Row]) -> Batch:
    """Rows as a batch."""
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    observations, actions, rewards, discounts, following, terminals = columns
    return Batch(
        torch.from_numpy(observations), torch.from_numpy(actions),
        torch.from_numpy(rewards.astype(np.float32)),
        torch.from_numpy(discounts.astype(np.float32)),
        torch.from_numpy(following), torch.from_numpy(terminals),
        torch.ones(len(rows)), demonstrated=torch.zeros(len(rows), dtype=torch.bool),
    )
