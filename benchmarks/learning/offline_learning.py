"""Learning tick by tick, with no wall clock and no processes.

Each action is executed a fixed number of ticks after its frame, and the learner gets a fixed number
of updates per tick, as many as one core of the machine in mind would reach. With a delay of 0 the
world waits for the agent, as in textbooks. Replay, transitions and updates are the program's own,
over buffers in this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from benchmarks.learning.dqn_sides import DaemonUpdate
from rtagent.config import Config, LearningConfig
from rtagent.env.adapter import Step, open_environment
from rtagent.evaluation.probe import world_of
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.replay import Replay
from rtagent.memory.array_buffer import Floats
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Ledger
from rtagent.policy import exploration, networks
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.action_selection import explorer_for
from rtagent.policy.actor_critic import build_learned
from rtagent.staggering.arbiter import Source


class Update(Protocol):
    """Learns from batches."""

    @property
    def updates(self) -> int:
        """Updates applied so far."""
        ...

    def step(self, batch: Batch) -> float:
        """One gradient step; returns the loss."""
        ...

    def weights(self) -> Floats:
        """The newest weights of what acts, flat."""
        ...


@dataclass
class Offline:
    """One run in virtual time.

    Args:
        config: configuration of the run.
        delay: ticks from a frame to the execution of its action. With 0 the world waits, and an
            episode begins with a frame before its first tick. With 1 the first tick of an episode
            executes the default behaviour.
        updates_per_tick: updates of the learner per tick.
        learner: makes what trains the network.

    Attributes:
        returns: return of each finished episode.
        lengths: ticks of each finished episode.
    """

    config: Config
    delay: int
    updates_per_tick: float
    learner: Callable[[nn.Module, LearningConfig], Update] = DaemonUpdate
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        torch.manual_seed(config.run.seed)
        self.adapter = open_environment(config.env)
        shapes = world_of(self.adapter)
        capacity = config.replay.capacity
        self.frames = FrameRing.private(shapes, capacity)
        self.ledger = Ledger.private(shapes, capacity)
        made_for = (shapes.observation_space, shapes.action_space)
        head = networks.head_of(config.learning, shapes.action_space)
        network = build_learned(config.policy, *made_for, config.learning)
        self.update = self.learner(network, config.learning)
        self.acting = ActingPolicy.of(config, shapes)
        self.explorer = explorer_for(shapes.action_space, config.run.seed, config.policy, head)
        self.replay = Replay(self.frames, self.ledger, config.learning)
        self.rng = np.random.default_rng(config.run.seed)
        self.observation = shapes.no_observation()
        self.noop: Any = self.adapter.noop_action
        self.executed = self.noop
        self.pending: deque[tuple[int, Any]] = deque()
        self.number = 0
        self.credit = 0.0

    def run(self, ticks: int) -> None:
        """Play for so many ticks, and learn meanwhile."""
        self._take_over_weights()
        self._begin_episode(self.config.run.seed)
        for _ in range(ticks):
            self._tick()
            self._learn()
        self.adapter.close()

    def _begin_episode(self, seed: int | None = None) -> None:
        frame = self.adapter.reset(seed)
        self.start, self.total, self.length = self.number, 0.0, 0
        self.executed = self.noop
        if self.delay == 0:
            self.pending.clear()
            self._put(Step(frame, 0.0, False, False), -1, self.noop)

    def _tick(self) -> None:
        due = len(self.pending) >= max(1, self.delay)
        observed, action = self.pending.popleft() if due else (-1, self.noop)
        if observed < 0 and self.config.env.default_action == "repeat":
            action = self.executed
        self.executed = action
        step = self.adapter.step(action)
        self._put(step, observed, action)
        self.total += step.reward
        self.length += 1
        if step.terminated or step.truncated:
            self.returns.append(self.total)
            self.lengths.append(self.length)
            self._begin_episode()

    def _put(self, step: Step, observed: int, action: int) -> None:
        """Write a tick into frames and ledger, and choose the action that answers its frame."""
        self.frames.publish(self.number, step.frame, self.start)
        self.ledger.write(
            self.number, observed=observed, time_ns=self.number, registered_ns=0, lateness_ns=0,
            reward=step.reward, weights_version=0, episode=len(self.returns), worker=0,
            source=Source.AGENT if observed >= 0 else Source.DEFAULT,
            flags=TERMINATED * step.terminated | TRUNCATED * step.truncated, action=action,
        )
        self.pending.append((self.number, self._choose(self.number)))
        self.number += 1

    def _choose(self, tick: int) -> Any:
        rate = exploration.epsilon(self.update.updates, self.config.policy)
        self.explorer.decide(tick, rate)
        self.frames.observation(tick, self.observation)
        return self.explorer.action(self.acting.values(self.observation))

    def _learn(self) -> None:
        learning = self.config.learning
        if self.replay.ticks < learning.learning_starts:
            return
        self.credit += self.updates_per_tick
        while self.credit >= 1.0:
            self.credit -= 1.0
            self.replay.refresh()
            batch = self.replay.sample(learning.batch_size, self.rng)
            if batch is None:
                return
            self.update.step(batch)
            if self.update.updates % learning.publish_every == 0:
                self._take_over_weights()

    def _take_over_weights(self) -> None:
        self.acting.load(self.update.weights())
