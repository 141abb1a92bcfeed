"""One trial of the long-haul paper's comparison: replay at the edge, or at the learner.

The actors play in lockstep and learning follows at a fixed ratio, without clock, processes or
network; an actor gives its episodes to the buffer node when they end, which puts them into one
ring, one after the other. Everything between the world and the gradient is the program's own: ring,
ledger, node, message, session, replay, trainer and weights; the link is a function call, so nothing
is in flight.

A transition's first priority is the error that it has when it arrives in the replay, as the paper's
actors compute it (Algorithm 1, line 8; here by the newest weights); or the largest so far, as
rtagent has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.experiments.long_haul_worlds import BRICKS, SETTINGS, World, blueprint, opened
from rtagent.clock import VirtualClock
from rtagent.cluster.buffer_node import BufferNode
from rtagent.cluster.forwarding_node import ForwardingNode
from rtagent.cluster.message import pack, unpack
from rtagent.cluster.mirror import Mirror
from rtagent.cluster.node import Node, Settings
from rtagent.cluster.received_shares import ReceivedShares, batch_of
from rtagent.cluster.session import Session, Share
from rtagent.cluster.trainer import Trainer
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.learning import state as states
from rtagent.learning.beginning import build_network
from rtagent.learning.pace import importance_exponent
from rtagent.learning.replay.replay import Replay
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Ledger
from rtagent.memory.priorities import Priorities
from rtagent.policy import networks
from rtagent.staggering.arbiter import Source

Doubles = npt.NDArray[np.float64]
Architecture = Literal["edge", "learner", "whole"]
"""Replay at the edge; at the learner, sent as it happens; at the learner, replaced at once."""
First = Literal["error", "largest"]

ALPHA_OF_AN_ACTOR = 1.52 / 8
"""Transitions that one of the paper's eight actors generates for each that is learned from
(Sec. VI-A)."""
BATCHES = 128
"""Batches of an epoch (Sec. V-A and V-C-3)."""
WEIGHTS_EVERY = 16
"""Batches between two deliveries of weights: N_update (Sec. V-A)."""
MOST_ACTORS = 8
MOST_RATED = 512
"""Transitions whose errors are computed together."""


class Setup(NamedTuple):
    """The parameters of a trial.

    Attributes:
        architecture: where the replay is.
        actors: number of actors; alpha is in proportion.
        capacity: transitions that the replay holds.
        epochs: number of epochs, each of `BATCHES` batches.
        batch_size: transitions of a batch.
        transfer_every: batches between two replacements of the whole replay (N_replay).
        seed: seed of everything that is random.
        first: what the first priority of a transition is.
        world: name of the world that is played, one of `SETTINGS`.
    """

    architecture: Architecture
    actors: int
    capacity: int
    epochs: int
    batch_size: int
    transfer_every: int
    seed: int
    first: First = "error"
    world: str = BRICKS


class Course(NamedTuple):
    """How a trial went.

    Attributes:
        loss: (epochs, batches), L_t.
        sampled: (epochs, batches), p_s: mean absolute error of the transitions of each batch,
            before it is learned from.
        transferred: (epochs,), p_t: mean absolute error of the transitions that were sent, when
            they were sent; with a replay at the learner, of all that arrived there.
        episode_return: (epochs,), mean return of the episodes that ended; NaN if none did.
        alpha: transitions generated for each that was learned from.
    """

    loss: Doubles
    sampled: Doubles
    transferred: Doubles
    episode_return: Doubles
    alpha: float


@dataclass
class _Actor:
    """One world, and what has happened in it since its episode began (Algorithm 1's LocalBuffer).

    Attributes:
        world: what the actor plays.
        epsilon: its exploration rate.
        rows: frame, reward, flags and action (None where the episode begins) of every tick.
    """

    world: World
    epsilon: float
    rows: list[tuple[npt.NDArray[Any], float, int, int | None]] = field(default_factory=list)

    def begin(self) -> None:
        """Begin an episode."""
        self.rows = [(self.world.reset().copy(), 0.0, 0, None)]

    def step(self, action: int) -> bool:
        """Play a tick; returns whether the episode has ended."""
        frame, reward, over, cut = self.world.step(action)
        flags = TERMINATED * over | TRUNCATED * (cut and not over)
        self.rows.append((frame.copy(), reward, flags, action))
        return bool(flags)

    def observation(self, stack: int) -> npt.NDArray[Any]:
        """(stack, ...) the newest frames; the first of the episode stands for those before it."""
        newest = [frame for frame, *_ in self.rows[-stack:]]
        return np.stack([newest[0]] * (stack - len(newest)) + newest)


class _AllAtOnce(ForwardingNode):
    """Sends no tick above `held`; if that is None, all that its ring holds."""

    held: int | None = None

    @property
    def _newest(self) -> int:
        return super()._newest if self.held is None else self.held


class Trial:
    """One trial."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.config = _config(setup)
        shapes = blueprint(setup.world, self.config)
        torch.manual_seed(setup.seed)
        self._rng = np.random.default_rng(setup.seed)
        # As Horgan et al., 2018, choose the rates of their actors.
        rates = 0.4 ** (1.0 + 7.0 * np.arange(setup.actors) / (MOST_ACTORS - 1))
        worlds = opened(setup.world, self.config, setup.actors, self._rng)
        self._actors = [
            _Actor(world, float(rate)) for world, rate in zip(worlds, rates, strict=True)
        ]
        self._actions, self._stack = int(shapes.action_space.n), shapes.frame_stack
        self._frames = FrameRing.private(shapes, setup.capacity)
        self._ledger = Ledger.private(shapes, setup.capacity)
        self._node, self._source, self._replay = self._ends(shapes)
        self._rated, self._unrated = 0, self._replay.new_buffer()
        learning = self.config.learning
        self._session = Session(
            1, self._source, setup.batch_size, learning.learning_rate, 0.0
        )
        self._trainer = Trainer(self.config, shapes)
        self._acting = build_network(self.config, shapes)
        self._trainer.begin(states.begin(networks.flattened(self._acting), 0))
        self._version = self._tick = self._episode = 0
        self._returns = list[float]()
        for actor in self._actors:
            actor.begin()

    def run(self, ended: Callable[[int], None] = lambda _: None) -> Course:
        """Fill the replay, then learn.

        Args:
            ended: called after each epoch with the number of epochs that have ended.
        """
        setup = self.setup
        # Actors give episodes away when they end, which may be long after a small replay's ticks.
        while self._tick < setup.capacity:
            self._play(setup.capacity - self._tick)
        self._transfer()
        filled = self._rate()
        loss, sampled = np.empty((2, setup.epochs, BATCHES))
        transferred, returned = np.empty((2, setup.epochs))
        owed, played = 0.0, 0
        for epoch in range(setup.epochs):
            sent = [] if epoch or setup.architecture == "edge" else [filled]
            self._returns.clear()
            for batch in range(BATCHES):
                owed += ALPHA_OF_AN_ACTOR * setup.actors * setup.batch_size
                now = self._play(int(owed))
                owed, played = owed - now, played + now
                if setup.architecture == "whole" and batch % setup.transfer_every == 0:
                    self._transfer()
                arrived, loss[epoch, batch], errors = self._learn()
                sampled[epoch, batch] = errors.mean()
                sent.append(errors if setup.architecture == "edge" else arrived)
            transferred[epoch] = np.concatenate(sent).mean()
            returned[epoch] = np.mean(self._returns) if self._returns else np.nan
            ended(epoch + 1)
        alpha = played / (setup.epochs * BATCHES * setup.batch_size)
        return Course(loss, sampled, transferred, returned, alpha)

    # ---- the world

    def _play(self, ticks: int) -> int:
        """Let the actors play so many ticks, or a few more; returns how many they played."""
        self._take_over_weights()
        played = 0
        while played < ticks:
            for actor, action in zip(self._actors, self._choose(), strict=True):
                if actor.step(action):
                    self._push(actor)
            played += len(self._actors)
        return played

    def _choose(self) -> list[int]:
        """Choose an action for every actor."""
        count = len(self._actors)
        random = self._rng.integers(self._actions, size=count)
        if self._version == 0:
            return [int(each) for each in random]
        seen = np.stack([actor.observation(self._stack) for actor in self._actors])
        with torch.inference_mode():
            best = self._acting(torch.from_numpy(seen)).argmax(dim=1).numpy()
        explores = self._rng.random(count) < [actor.epsilon for actor in self._actors]
        return [int(each) for each in np.where(explores, random, best)]

    def _push(self, actor: _Actor) -> None:
        """Give the buffer node an episode, and begin the next one."""
        start = self._tick
        for frame, reward, flags, action in actor.rows:
            tick = self._tick
            self._ledger.write(
                tick, observed=-1 if action is None else tick - 1, time_ns=tick, registered_ns=0,
                lateness_ns=0, reward=reward, weights_version=self._version,
                episode=self._episode, worker=0, flags=flags, action=action or 0,
                source=Source.DEFAULT if action is None else Source.AGENT,
            )
            self._frames.publish(tick, frame, start)
            self._tick += 1
        self._episode += 1
        self._returns.append(sum(reward for _, reward, _, _ in actor.rows))
        actor.begin()

    def _take_over_weights(self) -> None:
        version, updates, values = self._trainer.published()
        if updates and version != self._version:
            networks.load_flat(self._acting, values)
            self._version = version

    # ---- the link

    def _ends(self, shapes: Blueprint) -> tuple[Node, ReceivedShares | Mirror, Replay]:
        """The node at the edge, the source of batches at the learner, and the only replay."""
        capacity = self.setup.capacity
        if self.setup.architecture == "edge":
            priorities = Priorities.private(capacity, VirtualClock())
            replay = Replay(self._frames, self._ledger, self.config.learning, priorities)
            node = BufferNode(replay, self._frames, capacity, self._rng)
            return node, ReceivedShares(capacity, shapes), replay
        kind = ForwardingNode if self.setup.architecture == "learner" else _AllAtOnce
        mirror = Mirror(self.config, shapes, VirtualClock())
        return kind(self._frames, self._ledger), mirror, mirror.replay

    @property
    def _settings(self) -> Settings:
        learning = self.config.learning
        beta = importance_exponent(learning, self._trainer.progress.updates)
        return Settings(learning.batch_size, learning.learning_rate, beta)

    def _transfer(self) -> None:
        """Send all that waits. `_AllAtOnce` then sends nothing more before the next call."""
        if isinstance(self._node, _AllAtOnce):
            self._node.held = None
        while self._exchange(0) is not None:
            pass
        if isinstance(self._node, _AllAtOnce):
            self._node.held = self._tick - 1

    def _exchange(self, count: int) -> Share | None:
        """Send a message; the share to be learned from. None if there was nothing to send."""
        sent = self._node.make(count, self._settings)
        if sent is None:
            return None
        answer = self._session.offer(sent.block, 0.0)
        share = self._session.queue.popleft() if self._session.queue else None
        if answer.done():
            self._node.answered(unpack(answer.result(0)))
        return share or Share(sent.seq, 0.0, lambda: None, answer)

    def _learn(self) -> tuple[Floats, float, Floats]:
        """Learn from one batch: errors of what has arrived for it, its loss, and its own errors."""
        before = self._rate()
        share = self._exchange(self.setup.batch_size)
        assert share is not None, "the replay has transitions"
        arrived = np.concatenate([before, self._rate()])
        columns = share.draw()
        assert columns is not None, "the replay has transitions"
        learning_rate = self.config.learning.learning_rate
        gradient = self._trainer.learn(batch_of([columns]), learning_rate)
        errors = gradient.errors.numpy(force=True).copy()
        more, arrays = self._source.learned(errors)
        values = {"seq": share.seq, "learned": len(errors), "generated": 0, **more}
        self._node.answered(unpack(pack(values, arrays)))
        return arrived, gradient.loss, errors

    def _rate(self) -> Floats:
        """Give new transitions of the replay their first priority; returns their errors."""
        replay = self._replay
        replay.catch_up()
        first, stop = replay.index.span
        first, self._rated = max(first, self._rated), stop
        found = [np.empty(0, np.float32)]
        for start in range(first, stop, MOST_RATED):
            self._unrated.choose(np.arange(start, min(start + MOST_RATED, stop)))
            lost = self._unrated.copy(0)
            batch = self._unrated.batch(None)
            errors = self._trainer.errors(batch).copy()
            if self.setup.first == "error":
                replay.update_errors(batch.frames, errors)
            found.append(np.delete(errors, lost))
        return np.concatenate(found)


def _config(setup: Setup) -> Config:
    return load_config(None, [
        f"replay.capacity={setup.capacity}", f"run.seed={setup.seed}",
        f"learning.batch_size={setup.batch_size}", "learning.algorithm=double-dqn",
        "learning.dueling=true", "learning.n_step=3", "learning.discount=decisions",
        "learning.prioritized=true", "learning.learning_starts=1", "learning.target_period=128",
        f"cluster.weights_every={WEIGHTS_EVERY}", *SETTINGS[setup.world],
    ], {})
