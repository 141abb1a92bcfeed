"""Small worlds at the edge, and a way to the learner that is a function call."""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from rtagent.clock import VirtualClock
from rtagent.cluster.buffer_node import BufferNode
from rtagent.cluster.forwarding_node import ForwardingNode
from rtagent.cluster.joining import Joining
from rtagent.cluster.learner import ClusterLearner
from rtagent.cluster.message import Bytes
from rtagent.cluster.node import Node
from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.learning.replay.replay import Replay
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.priorities import Priorities
from rtagent.policy import networks
from rtagent.policy.actor_critic import build_learned
from tests.conftest import make_blueprint
from tests.rows import private_rings, write_row

SHAPE = (3,)


class Edge:
    """A world with a replay: frame k is (k, k, k) / 100, of which the learner keeps `slots`."""

    def __init__(
        self, name: str = "edge", capacity: int = 256, slots: int = 512, stack: int = 2,
        actions: int = 3, episode: int = 20, replay: str = "edge", **learning: Any,
    ) -> None:
        # What is measured, and so chosen, differs from machine to machine.
        settings = {
            "batch_size": 8, "n_step": 2, "learning_starts": 1, "precision": "float32", **learning,
        }
        self.config: Config = parse_config({
            "learning": settings, "replay": {"capacity": capacity},
            "cluster": {"replay": replay, "weights_every": 4},
        })
        self.blueprint = _blueprint(self.config, stack, actions)
        self.frames, self.ledger = private_rings(self.blueprint, capacity)
        self._slots = slots
        self.node = self.new_node()
        self.joining = Joining(name, self.config, self.blueprint, slots)
        self._episode = episode
        self._tick = 0

    def new_node(self) -> Node:
        """The node of a gateway that begins now."""
        if self.config.cluster.replay == "learner":
            return ForwardingNode(self.frames, self.ledger)
        priorities = None
        if self.config.learning.prioritized:
            priorities = Priorities.private(self.frames.capacity, VirtualClock())
        self.replay = Replay(self.frames, self.ledger, self.config.learning, priorities)
        return BufferNode(self.replay, self.frames, self._slots, np.random.default_rng(0))

    def play(self, ticks: int) -> Edge:
        """Let the world go on."""
        for tick in range(self._tick, self._tick + ticks):
            start = tick - tick % self._episode
            write_row(
                self.ledger, tick, reward=float(tick % 3), episode=tick // self._episode,
                action=tick % 3,
            )
            self.frames.publish(tick, np.full(SHAPE, tick / 100, np.float32), start)
        self._tick += ticks
        return self


class Direct:
    """Calls that end at once, unless told otherwise.

    Attributes:
        broken: what every call ends with. If None, it works.
        held: the method whose answers are held back until `release`. If None, there is none.
    """

    def __init__(self, learner: ClusterLearner) -> None:
        self.learner = learner
        self.broken: Exception | None = None
        self.calls: list[str] = []
        self.waits: list[float] = []
        self.held: str | None = None
        self._open: dict[int, tuple[ClusterLearner, Any]] = {}
        self._held: dict[int, tuple[ClusterLearner, Any]] = {}

    def begin(self, method: str, *arguments: Any) -> Hashable:
        self.calls.append(method)
        ticket = len(self.calls)
        calls = self._held if method == self.held else self._open
        calls[ticket] = self.learner, self._result(method, arguments)
        return ticket

    def release(self) -> None:
        """Answer the calls that were held back."""
        self._open.update(self._held)
        self._held.clear()

    def finished(self) -> list[tuple[Hashable, Any]]:
        done: list[tuple[Hashable, Any]] = []
        for ticket, (learner, result) in list(self._open.items()):
            if not isinstance(result, list):
                found = result
            elif learner is not self.learner:
                found = ConnectionError("the learner that was called has died")
            elif all(each.done() for each in result):
                found = _answers(result)
            else:
                continue
            del self._open[ticket]
            done.append((ticket, found))
        return done

    def _result(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if self.broken is not None:
            return self.broken
        # Nobody waits for newer weights here.
        given = arguments[:1] if method == "weights" else arguments
        try:
            return getattr(self.learner, method)(*given)
        except Exception as error:
            return error

    def wait(self, timeout_s: float) -> None:
        self.waits.append(timeout_s)


def _answers(futures: list[Future[Bytes]]) -> list[Bytes] | BaseException:
    """Those of a call, or what it ends with."""
    failed = [error for each in futures if (error := each.exception()) is not None]
    return failed[0] if failed else [each.result() for each in futures]


def _blueprint(config: Config, stack: int, actions: int) -> Blueprint:
    shapes = make_blueprint(
        frame_shape=SHAPE, frame_dtype="float32", frame_stack=stack, network="mlp k=1",
        observation_space=spaces.Box(-10, 10, (stack, *SHAPE), np.float32),
        action_space=spaces.Discrete(actions), action_meanings=(), screen=False,
    )
    network = build_learned(
        config.policy, shapes.observation_space, shapes.action_space, config.learning
    )
    return replace(shapes, tensors=networks.tensor_specs(network))
