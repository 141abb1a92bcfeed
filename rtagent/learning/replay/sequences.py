"""Sequences of decisions, for networks that carry a state from one inference to the next.

As in R2D2 (Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning,
ICLR 2019), a sequence begins with a state that was used while acting. Its first decisions only
recompute the state with the newest weights (burn-in), and the decisions after them are learned
from.

One thing differs: inferences are staggered, so a decision seldom begins with the state that the
decision before it has left. The ledger has the lag of each decision's state in ticks, and replaying
uses the same lag. A sequence is T consecutive decisions, by their frames; step t begins with

    the new state of step u < t, if the frame of u is lag ticks before that of t, and the process
    that made u left the state;
    zeros, if its inference began with zeros, as after a reset;
    else the state in the ledger: the inference that made it came before the sequence, or its action
    was never executed, as that of another process on the same frame.

So a sequence may go beyond the end of an episode, and through the interleaved states of several
staggered processes. Successors are steps of the same sequence, which goes on for n decisions after
those that are learned from. A decision whose successor is not in the sequence, as after truncation,
has the weight 0, as have all decisions of a sequence if frames or states of it are lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch, BatchBuffer, empty_batch
from rtagent.learning.replay.look_up import Flags, Ints, Transitions
from rtagent.learning.replay.replay import Replay
from rtagent.memory.blueprint import Blueprint


@dataclass(frozen=True, kw_only=True)
class SequenceBatch(Batch):
    """B sequences of T decisions, of which N are learned from.

    Observations and pending actions are those of all B T steps, sequence by sequence; those of the
    successors are among them. All other attributes of `Batch` are of the N decisions.

    Attributes:
        parents: (B, T) int64, the step whose new state a step begins with; -1: it begins with its
            state in `starts`.
        starts: (B, T, state_size) float32.
        learned: (N,) int64, positions among the B T steps of the decisions that are learned from.
        successors: (N,) int64, positions of their successors; any position where the successor is
            terminal or the weight is 0.
        burn_in: number of first steps of each sequence, which are not learned from.
        end: the step after the last one that is learned from.
    """

    parents: Tensor
    starts: Tensor
    learned: Tensor
    successors: Tensor
    burn_in: int
    end: int

    @property
    def at_once(self) -> int:
        return len(self.parents)


@dataclass(frozen=True)
class SequenceShape:
    """The number of decisions in each part of a sequence.

    Attributes:
        burn_in: decisions before those that are learned from.
        learned: decisions that are learned from.
        after: decisions after them, among which are successors.
    """

    burn_in: int
    learned: int
    after: int

    @staticmethod
    def of(learning: LearningConfig) -> SequenceShape:
        """The configured shape; a transition of n ticks has at most n decisions."""
        return SequenceShape(learning.burn_in, learning.sequence, learning.n_step)

    @property
    def steps(self) -> int:
        """T."""
        return self.burn_in + self.learned + self.after

    def sequences(self, count: int) -> int:
        """B, to learn from `count` decisions."""
        return -(-count // self.learned)

    def positions(self, count: int) -> Ints:
        """(count,) positions of the decisions that are learned from, among the B T steps."""
        firsts = np.arange(self.sequences(count)) * self.steps + self.burn_in
        positions: Ints = (firsts[:, None] + np.arange(self.learned)).ravel()[:count]
        return positions


class SequenceReplay(Replay):
    """Batches of sequences, each with the same probability.

    The `count` of `sample` is that of the decisions that are learned from. Each batch is new
    memory, and stays valid.
    """

    def sample(
        self, count: int, rng: np.random.Generator, beta: float = 1.0,
        out: BatchBuffer | None = None,
    ) -> Batch | None:
        """Draw a batch; see `Replay.sample`."""
        lengths = SequenceShape.of(self._learning)
        self._forget()
        first, end = self.index.span
        if end - first < lengths.steps:
            return None
        begins = rng.integers(first, end - lengths.steps + 1, lengths.sequences(count))
        begins.sort()
        serials: Ints = (begins[:, None] + np.arange(lengths.steps)).ravel()
        return self._batch(self.index.get(serials), lengths, count)

    def _batch(self, found: Transitions, lengths: SequenceShape, count: int) -> SequenceBatch:
        shape = lengths.sequences(count), lengths.steps
        frames, lags = found.frame.reshape(shape), found.rows["state_lag"].reshape(shape)
        parents = np.where(lags > 0, _steps_of(frames, frames - lags), -1)
        made_by, left_by = (
            found.rows[name].reshape(shape) for name in ("worker", "state_worker")
        )
        # Where there is no parent, any step may be looked at.
        parents[np.take_along_axis(made_by, parents, axis=1) != left_by] = -1
        following = _steps_of(frames, found.next_frame.reshape(shape))
        known = lags >= 0
        starts = np.zeros((*shape, self._ledger.state_size), np.float32)
        stored = (lags > 0) & (parents < 0)
        rows, whole = self._ledger.at(found.rows["tick"].reshape(shape)[stored])
        starts[stored] = np.where(whole[:, None], rows["state"], 0.0)
        known[stored] = whole
        observations, there = self._stacks(found.frame)
        usable: Flags = np.asarray((known & there.reshape(shape)).all(axis=1))
        observations[~there] = 0
        learned = lengths.positions(count)
        sequence = learned // lengths.steps
        after = following.ravel()[learned]
        terminal = found.terminal[learned]
        pending = self._ledger.pending
        encoded = None if pending is None else torch.from_numpy(
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
            frames=found.frame[learned], pending=encoded,
            demonstrated=torch.from_numpy(found.demonstrated[learned]),
            parents=torch.from_numpy(parents), starts=torch.from_numpy(starts),
            learned=torch.from_numpy(learned),
            successors=torch.from_numpy(sequence * lengths.steps + np.maximum(after, 0)),
            burn_in=lengths.burn_in, end=lengths.burn_in + lengths.learned,
        )


def _steps_of(frames: Ints, wanted: Ints) -> Ints:
    """(B, T) the step of the sequence that has each wanted frame; -1 if none has."""
    same = wanted[:, :, None] == frames[:, None, :]
    return np.where(same.any(axis=2), same.argmax(axis=2), -1)


def blank(blueprint: Blueprint, learning: LearningConfig, count: int) -> Batch:
    """An empty batch, see `empty_batch`; for a recurrent network one of sequences."""
    if not blueprint.state_size:
        return empty_batch(blueprint, count)
    lengths = SequenceShape.of(learning)
    shape = lengths.sequences(count), lengths.steps
    steps, learned = empty_batch(blueprint, shape[0] * shape[1]), empty_batch(blueprint, count)
    positions = torch.from_numpy(lengths.positions(count))
    parents = torch.arange(-1, lengths.steps - 1).expand(shape)
    return SequenceBatch(
        observations=steps.observations, actions=learned.actions, rewards=learned.rewards,
        discounts=learned.discounts, next_observations=torch.empty(0),
        terminals=learned.terminals, weights=learned.weights, demonstrated=learned.demonstrated,
        pending=steps.pending, parents=parents,
        starts=torch.zeros(*shape, blueprint.state_size), learned=positions,
        successors=positions, burn_in=lengths.burn_in, end=lengths.burn_in + lengths.learned,
    )
