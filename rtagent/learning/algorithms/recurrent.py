"""Learning values over sequences, with a network that carries a state: DQN, Double DQN and C51.

Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (ICLR 2019):
the network and its target are unrolled over the same sequences from the same stored states; the
first steps are without gradient, and only bring the states up to date. Targets and losses are those
of single transitions. Their rescaling of values is left out, and so are priorities of sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rtagent.config import Precision
from rtagent.learning.algorithms.value_learning import ValueLearning
from rtagent.learning.precision import computing
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.sequences import SequenceBatch
from rtagent.policy.recurrent import encoded, step


class RecurrentValueLearning(ValueLearning):
    """As `ValueLearning`, of a `SequenceBatch`."""

    def _compute(self, batch: Batch) -> tuple[float, Tensor]:
        assert isinstance(batch, SequenceBatch)
        output = unroll(self.network, batch, self.precision)
        with torch.no_grad():
            following = unroll(self.target, batch, self.precision)[batch.successors]
        chosen_by = output.detach()[batch.successors] if self._double else None
        return self._descend(batch, output[batch.learned], following, chosen_by)


def unroll(
    module: nn.Module, batch: SequenceBatch, precision: Precision = "float32"
) -> Tensor:
    """What a network says at every step, as it would have with the weights that it has now.

    Args:
        module: recurrent.
        batch: B sequences of T steps. A gradient is kept of the steps that are learned from.
        precision: of the passes.

    Returns:
        (B T, ...), sequence by sequence.
    """
    count, steps = batch.parents.shape
    given = [each.view(count, steps, *each.shape[1:]) for each in batch.inputs]
    keeps = torch.is_grad_enabled()
    answers: list[Tensor] = []
    lefts: list[Tensor] = []
    edges = (0, batch.burn_in, batch.end, steps)
    for start, stop, learned in zip(edges[:-1], edges[1:], (False, True, False), strict=True):
        if start == stop:
            continue
        # Each by itself: autocast keeps the weights that it has cast, and those that were cast
        # without gradient are none of the pass with gradient.
        with torch.set_grad_enabled(keeps and learned), computing(precision, batch.parents.device):
            observations, *pending = (each[:, start:stop] for each in given)
            flat = encoded(module, observations.flatten(0, 1))
            features = flat.view(count, stop - start, *flat.shape[1:])
            for at in range(start, stop):
                begun = beginnings(batch.parents[:, at], batch.starts[:, at], lefts)
                own = tuple(each[:, at - start] for each in pending)
                answer, left = step(module, features[:, at - start], begun, own)
                answers.append(answer)
                lefts.append(left)
    return torch.stack(answers, dim=1).flatten(0, 1)


def beginnings(parents: Tensor, starts: Tensor, lefts: Sequence[Tensor]) -> Tensor:
    """The states (B, state_size) that a step begins with.

    Args:
        parents: (B,), the step whose state it takes; -1: none.
        starts: (B, state_size), what it begins with in that case.
        lefts: what the steps before it have left, (B, state_size) each.
    """
    inside = parents >= 0
    if not inside.any():
        return starts
    # Parents are at most a few steps back.
    first = int(parents[inside].min())
    recent = torch.stack(list(lefts[first:]))
    rows = torch.arange(len(parents), device=parents.device)
    taken = recent[(parents - first).clamp(min=0), rows]
    return torch.where(inside[:, None], taken, starts)
