"""TD3: its noise, and the turns of its actor."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.local_update import LocalUpdate
from rtagent.learning.algorithms.actor_critic import TARGET_TAU
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.algorithms.td3 import TD3
from rtagent.learning.shared_update import SharedUpdate

from .actor_critics import B, batch, generator, gradient, in_turn, learning, network, pair


def test_without_its_turn_the_actor_has_no_gradient() -> None:
    made, data = pair("td3"), batch(1)
    made.compute_gradient(data, acting=True)
    with_actor = gradient(made.network.critics)
    made.compute_gradient(data, acting=False)
    assert all(p.grad is None for p in made.network.actor.parameters())
    torch.testing.assert_close(gradient(made.network.critics), with_actor)


def test_target_actions_are_smoothed_by_the_generator_s_noise() -> None:
    found = []
    for seed in (1, 1, 2):
        made = TD3(network("td3"), learning("td3", target_noise=0.2), generator(seed))
        found.append(made.compute_gradient(batch(terminal=0.0))[0])
    assert found[0] == found[1] != found[2]


def test_actor_and_targets_follow_in_their_turn() -> None:
    update = LocalUpdate(network("td3"), learning("td3", policy_delay=3))
    algorithm = update.algorithm
    assert isinstance(algorithm, TD3)
    before = copy.deepcopy(algorithm.target.state_dict())
    bias = "critics.heads.1.4.bias"
    for seed in range(3):
        assert torch.equal(algorithm.target.state_dict()[bias], before[bias])
        actor = torch.cat([p.detach().flatten() for p in algorithm.network.actor.parameters()])
        critic = algorithm.network.state_dict()[bias].clone()
        update.step(batch(seed))
        now = torch.cat([p.detach().flatten() for p in algorithm.network.actor.parameters()])
        assert torch.equal(actor, now) == (seed < 2)
        assert not torch.equal(critic, algorithm.network.state_dict()[bias])
    wanted = torch.lerp(before[bias], algorithm.network.state_dict()[bias], TARGET_TAU)
    torch.testing.assert_close(algorithm.target.state_dict()[bias], wanted)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_applied(bad: float) -> None:
    (update,) = in_turn(1, "td3")
    before = update.state.current.weights.copy()
    assert not update.step(replace(batch(), rewards=torch.full((B,), bad))).finite
    np.testing.assert_array_equal(update.state.current.weights, before)
    assert update.step(batch(1)).finite


def turn(update: SharedUpdate, seed: int) -> bool:
    """One update; whether the actor had a part in it."""
    progress = update.refresh()
    assert progress is not None
    gradient = update.compute(batch(seed), progress.updates)
    update.apply(gradient)
    return gradient.acting


@pytest.mark.parametrize("count", [2, 3, 5])
def test_late_gradients_keep_the_actor_s_share(count: int) -> None:
    """Each learner reads before the others have applied theirs, as in a live round."""
    updates = in_turn(count, "td3")
    waiting = []
    for update in updates:
        update.refresh()
        waiting.append(update.compute(batch(), 0))
    for step in range(40):
        index = step % count
        updates[index].apply(waiting[index])
        progress = updates[index].refresh()
        assert progress is not None
        waiting[index] = updates[index].compute(batch(step), progress.updates)
    progress = updates[0].state.progress
    assert progress.steps == 40
    # One step of the actor for two of the critics, give or take what is under way.
    assert 40 - 2 * count <= progress.followed <= 40


def test_another_delay_after_a_restart_neither_stops_nor_floods_the_actor() -> None:
    (update,) = in_turn(1, "td3", policy_delay=1)
    for step in range(12):
        turn(update, step)
    config = learning("td3", policy_delay=4)
    made = algorithm_for(network("td3"), config)
    later = SharedUpdate(made, update.state, update.weights, config)
    shares = [turn(later, step) for step in range(13)]
    assert 3 <= sum(shares) <= 5
