"""Learning values over sequences, with a network that carries a state: DQN, Double DQN and C51.

Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (ICLR 2019):
the network and its target are unrolled over the same sequences from the same stored states; the
first steps (burn-in) have no gradient, and only recompute the states with the newest weights.
Targets and losses are those of single transitions. The paper's rescaling of values and its
priorities of sequences are left out.
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
    """Does what `ValueLearning` does, from a `SequenceBatch`."""

    def _compute(self, batch: Batch, acting: bool) -> tuple[Tensor, Tensor]:
        assert isinstance(batch, SequenceBatch)
        output = unroll(self.network, batch, self.precision)
        with torch.no_grad():
            next_output = unroll(self.target, batch, self.precision)[batch.successors]
        chosen_by = output.detach()[batch.successors] if self._double else None
        return self._backward(batch, output[batch.learned], next_output, chosen_by)


def unroll(
    module: nn.Module, batch: SequenceBatch, precision: Precision = "float32"
) -> Tensor:
    """The outputs of a network at every step, computed with its current weights.

    Args:
        module: a recurrent network.
        batch: B sequences of T steps. Only the steps that are learned from keep a gradient.
        precision: of the passes.

    Returns:
        (B T, ...), sequence by sequence.
    """
    count, steps = batch.parents.shape
    inputs = [each.view(count, steps, *each.shape[1:]) for each in batch.inputs]
    with_gradient, device = torch.is_grad_enabled(), batch.parents.device
    outputs: list[Tensor] = []
    new_states: list[Tensor] = []
    edges = (0, batch.burn_in, batch.end, steps)
    for start, stop, learned in zip(edges[:-1], edges[1:], (False, True, False), strict=True):
        if start == stop:
            continue
        # A context for each part: autocast caches the weights that it has cast, and weights that
        # were cast without gradient must not be used with gradient.
        with torch.set_grad_enabled(with_gradient and learned), computing(precision, device):
            observations, *pending = (each[:, start:stop] for each in inputs)
            flat = encoded(module, observations.flatten(0, 1))
            features = flat.view(count, stop - start, *flat.shape[1:])
            for at in range(start, stop):
                states = states_before(batch.parents[:, at], batch.starts[:, at], new_states)
                own = tuple(each[:, at - start] for each in pending)
                output, new_state = step(module, features[:, at - start], states, own)
                outputs.append(output)
                new_states.append(new_state)
    return torch.stack(outputs, dim=1).flatten(0, 1)


def states_before(parents: Tensor, starts: Tensor, new_states: Sequence[Tensor]) -> Tensor:
    """The states (B, state_size) that a step begins with.

    Args:
        parents: (B,), the earlier step whose new state is used; -1: none.
        starts: (B, state_size), the states that are used where the parent is -1.
        new_states: the states after each earlier step, (B, state_size) each.
    """
    inside = parents >= 0
    if not inside.any():
        return starts
    # Parents are at most a few steps back.
    first = int(parents[inside].min())
    recent = torch.stack(list(new_states[first:]))
    rows = torch.arange(len(parents), device=parents.device)
    taken = recent[(parents - first).clamp(min=0), rows]
    return torch.where(inside[:, None], taken, starts)
