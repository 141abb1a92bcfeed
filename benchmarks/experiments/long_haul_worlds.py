"""Where the long-haul paper's comparison is played: a Breakout of cells, or a game as it is.

A game is seen through the program's own adapter, as grey levels of 84 x 84 in stacks of 4, and
learned with the network of 13 MB that the paper's size fits (dueling, Mnih et al., 2015).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from benchmarks.worlds.bricks import ACTIONS, SIZE, Bricks
from benchmarks.worlds.shapes import blueprint as image_blueprint
from rtagent.config import Config
from rtagent.env.adapter import Adapter, Step, open_environment
from rtagent.evaluation.probe import probe
from rtagent.memory.blueprint import Blueprint
from rtagent.policy import networks

BRICKS = "bricks"
_GAME = ("policy.network=nature", "learning.precision=bfloat16")
# An episode is given to the buffer node when it ends: so its length is limited.
SETTINGS = {
    BRICKS: ("policy.network=mlp", "policy.width=2", "learning.learning_rate=1e-3"),
    "starfall": ("env.id=rtagent/Starfall-v0", "env.kwargs={max_ticks = 2000}", *_GAME),
    "breakout": (
        "env.id=ALE/Breakout-v5", "env.kwargs={max_num_frames_per_episode = 8000}", *_GAME,
    ),
}
"""Overrides of the configuration in each world, beside those that all worlds share."""


class World(Protocol):
    """What an actor plays."""

    def reset(self) -> npt.NDArray[Any]:
        """Begin an episode; its first frame, valid until the next call."""

    def step(self, action: int) -> tuple[npt.NDArray[Any], float, bool, bool]:
        """One tick: the frame, the reward, whether the episode is over, whether it is cut."""


class InTurn(World):
    """One of several games that take turns in one emulator: a process can hold only one.

    Args:
        adapter: adapter of an environment whose state can be saved.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._saved: Any = None

    def reset(self) -> npt.NDArray[Any]:
        frame = self._adapter.reset()
        self._saved = self._adapter.save()
        return frame

    def step(self, action: int) -> Step:
        self._adapter.restore(self._saved)
        step = self._adapter.step(action)
        self._saved = self._adapter.save()
        return step


def opened(name: str, config: Config, count: int, rng: np.random.Generator) -> list[World]:
    """Open so many independent games of a world."""
    if name == BRICKS:
        return [Bricks(rng) for _ in range(count)]
    adapter = open_environment(config.env)
    adapter.reset(int(rng.integers(1 << 31)))
    return [InTurn(adapter) for _ in range(count)]


def blueprint(name: str, config: Config) -> Blueprint:
    """Shapes of a world, and of the network that learns in it."""
    if name != BRICKS:
        return probe(config)
    frame = (4 * SIZE * SIZE,)
    shapes = replace(
        image_blueprint(), frame_shape=frame, frame_dtype="float32", frame_stack=1,
        observation_space=spaces.Box(0.0, 1.0, (1, *frame), np.float32), network="mlp k=2",
        action_space=spaces.Discrete(ACTIONS), action_meanings=(), screen=False,
    )
    made_for = shapes.observation_space, shapes.action_space
    head = networks.head_of(config.learning, shapes.action_space)
    network = networks.build(config.policy, *made_for, head)
    return replace(shapes, tensors=networks.tensor_specs(network))
