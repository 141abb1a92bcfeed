"""Sequences of decisions, for networks that carry a state from one inference to the next.

As R2D2 (Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning,
ICLR 2019): a state that was used while acting begins a sequence, its first decisions only bring it
up to date with the newest weights (burn-in), and the ones behind them are learned from.

What is different: inferences are staggered, so a decision's state is seldom that of the decision
before it. The ledger says with which lag it came, and it is replayed at that lag. A sequence is T
consecutive decisions, by their frames; step t begins with

    what step u < t has left, if the frame of u lies as many ticks before that of t as its lag;
    zeros, if its inference began anew, as after a reset;
    else the state that is stored with it: the inference behind that came before the sequence, or
    its action was never executed.

So a sequence may go through the end of an episode, and through several strands that staggered
processes have woven. Successors are steps of the same sequence, which goes on for n ticks behind
the decisions that are learned from. A decision whose successor is not among them, as after
truncation, has the weight 0, as have all of a sequence of which frames or states are lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch, BatchBuffer, empty_batch
from rtagent.learning.replay.look_up import Flags, Ints, Transitions
from rtagent.learning.replay.replay import Replay
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import Frames
from rtagent.memory.gather import prepare_gather


def _no_positions() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True)
class SequenceBatch(Batch):
    """B sequences of T decisions, of which N are learned from.

    Observations and what is pending are those of all B T steps, sequence by sequence, and there are
    no others of successors. Everything else that a `Batch` has is of the N.

    Attributes:
        parents: (B, T) int64, the step whose state a step begins with; -1: `starts` has it.
        starts: (B, T, state_size) float32.
        learned: (N,) int64, places among the B T steps.
        successors: (N,) int64, the same of the successors; any where terminal, or the weight is 0.
        burn_in: first steps of each sequence, which are not learned from.
        end: the step behind the last that is.
    """

    parents: Tensor = field(default_factory=_no_positions)
    starts: Tensor = field(default_factory=lambda: torch.zeros(0))
    learned: Tensor = field(default_factory=_no_positions)
    successors: Tensor = field(default_factory=_no_positions)
    burn_in: int = 0
    end: int = 0


@dataclass(frozen=True)
class Plan:
    """How long sequences are.

    Attributes:
        burn_in: decisions before those that are learned from.
        learned: decisions of a sequence that are learned from.
        behind: decisions behind them, among which their successors are.
    """

    burn_in: int
    learned: int
    behind: int

    @staticmethod
    def of(learning: LearningConfig) -> Plan:
        """As configured: no more decisions than ticks fit into those of a transition."""
        return Plan(learning.burn_in, learning.sequence, learning.n_step)

    @property
    def steps(self) -> int:
        """T."""
        return self.burn_in + self.learned + self.behind

    def sequences(self, count: int) -> int:
        """B, for so many decisions to learn from."""
        return -(-count // self.learned)

    def positions(self, count: int) -> Ints:
        """(count,) places of those decisions among the B T steps."""
        firsts = np.arange(self.sequences(count)) * self.steps + self.burn_in
        places: Ints = (firsts[:, None] + np.arange(self.learned)).ravel()[:count]
        return places


class SequenceReplay(Replay):
    """Batches of sequences, each with the same probability; `sample` counts what is learned from.

    They are new memory, and stay valid.
    """

    def sample(
        self, count: int, rng: np.random.Generator, beta: float = 1.0,
        out: BatchBuffer | None = None,
    ) -> Batch | None:
        """Draw a batch; see `Replay.sample`."""
        plan = Plan.of(self._learning)
        self._forget()
        first, end = self.index.span
        if end - first < plan.steps:
            return None
        begins = rng.integers(first, end - plan.steps + 1, plan.sequences(count))
        begins.sort()
        serials: Ints = (begins[:, None] + np.arange(plan.steps)).ravel()
        return self._batch(self.index.get(serials), plan, count)

    def _batch(self, found: Transitions, plan: Plan, count: int) -> SequenceBatch:
        shape = plan.sequences(count), plan.steps
        frames, lags = found.frame.reshape(shape), found.rows["lag"].reshape(shape)
        parents = np.where(lags > 0, _steps_of(frames, frames - lags), -1)
        following = _steps_of(frames, found.next_frame.reshape(shape))
        known = lags >= 0
        starts = np.zeros((*shape, self._ledger.state_size), np.float32)
        wanted = (lags > 0) & (parents < 0)
        executed = (found.frame + found.rows["delay"]).reshape(shape)[wanted]
        rows, whole = self._ledger.at(executed)
        starts[wanted] = np.where(whole[:, None], rows["state"], 0.0)
        known[wanted] = whole
        observations, there = self._observations(found.frame)
        usable: Flags = np.asarray((known & there.reshape(shape)).all(axis=1))
        observations[~there] = 0
        learned = plan.positions(count)
        sequence = learned // plan.steps
        after = following.ravel()[learned]
        terminal = found.terminal[learned]
        pending = self._ledger.pending
        beside = None if pending is None else torch.from_numpy(
            pending.encode(found.rows["pending"])
        )
        return SequenceBatch(
            observations=torch.from_numpy(observations),
            actions=torch.from_numpy(found.action[learned].astype(np.int64)),
            rewards=torch.from_numpy(found.reward[learned]),
            discounts=torch.from_numpy(found.discount[learned]),
            next_observations=torch.empty(0), terminals=torch.from_numpy(terminal),
            weights=torch.from_numpy(
                (usable[sequence] & (terminal | (after >= 0))).astype(np.float32)
            ),
            frames=found.frame[learned], pending=beside,
            demonstrated=torch.from_numpy(found.demonstrated[learned]),
            parents=torch.from_numpy(parents), starts=torch.from_numpy(starts),
            learned=torch.from_numpy(learned),
            successors=torch.from_numpy(sequence * plan.steps + np.maximum(after, 0)),
            burn_in=plan.burn_in, end=plan.burn_in + plan.learned,
        )

    def _observations(self, numbers: Ints) -> tuple[Frames, Flags]:
        """The stacks that end with these frames (n,), and which are whole."""
        ring = self._ring
        out = np.empty((len(numbers), ring.stack, *ring.frames.shape[1:]), ring.frames.dtype)
        gather = prepare_gather(ring, numbers, out)
        gather.run()
        return out, np.asarray(gather.right.all(axis=1))


def _steps_of(frames: Ints, wanted: Ints) -> Ints:
    """Which steps of their sequences have the wanted frames, both (B, T); -1: none."""
    same = wanted[:, :, None] == frames[:, None, :]
    return np.where(same.any(axis=2), same.argmax(axis=2), -1)


def blank(blueprint: Blueprint, learning: LearningConfig, count: int) -> Batch:
    """Zeros in the shapes of a run, as `empty_batch`; of a recurrent network sequences."""
    if not blueprint.state_size:
        return empty_batch(blueprint, count)
    plan = Plan.of(learning)
    shape = plan.sequences(count), plan.steps
    steps, learned = empty_batch(blueprint, shape[0] * shape[1]), empty_batch(blueprint, count)
    positions = torch.from_numpy(plan.positions(count))
    parents = torch.arange(-1, plan.steps - 1).expand(shape)
    return SequenceBatch(
        observations=steps.observations, actions=learned.actions, rewards=learned.rewards,
        discounts=learned.discounts, next_observations=torch.empty(0),
        terminals=learned.terminals, weights=learned.weights, demonstrated=learned.demonstrated,
        pending=steps.pending, parents=parents,
        starts=torch.zeros(*shape, blueprint.state_size), learned=positions,
        successors=positions, burn_in=plan.burn_in, end=plan.burn_in + plan.learned,
    )
