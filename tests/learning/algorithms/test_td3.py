"""TD3: its gradients, what it learns alone, and in turn on shared weights."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from benchmarks.local_update import LocalUpdate
from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning.algorithms.actor_critic import TARGET_TAU, critics_loss
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.algorithms.td3 import TD3, td3_targets
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.learner_state import Progress
from rtagent.policy import networks
from rtagent.policy.actor_critic import ActorCritic, build_learned

B = 16
ACTIONS = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
VECTORS = spaces.Box(-1, 1, (1, 5), np.float32)
IMAGES = spaces.Box(0, 255, (2, 36, 36), np.uint8)


def learning(**values: Any) -> LearningConfig:
    return LearningConfig(
        **{"precision": "float32", "learning_rate": 3e-3, "publish_every": 3, **values}
    )


def network(space: spaces.Box = VECTORS, seed: int = 0) -> ActorCritic:
    torch.manual_seed(seed)
    made = build_learned(PolicyConfig(), space, ACTIONS, learning())
    assert isinstance(made, ActorCritic)
    return made


def batch(seed: int = 0, space: spaces.Box = VECTORS, *, terminal: float = 0.2) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    low, high = torch.from_numpy(ACTIONS.low), torch.from_numpy(ACTIONS.high)
    frames = torch.rand(2, B, *space.shape, generator=rng)
    if space.dtype == np.uint8:
        frames = (255 * frames).to(torch.uint8)
    return Batch(
        observations=frames[0], actions=low + torch.rand(B, 2, generator=rng) * (high - low),
        rewards=torch.randn(B, generator=rng), discounts=torch.full((B,), 0.9),
        next_observations=frames[1], terminals=torch.rand(B, generator=rng) < terminal,
        weights=torch.linspace(0.1, 1.0, B),
    )


def pair(space: spaces.Box = VECTORS, **values: Any) -> TD3:
    """An algorithm whose target differs from the network that learns; without noise."""
    made = TD3(network(space), learning(target_noise=0.0, **values))
    made.target.load_state_dict(network(space, seed=1).state_dict())
    return made


def gradient(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])


# ---- gradients


def test_the_gradient_is_that_of_the_algorithm() -> None:
    made, data = pair(), batch(3)
    loss, errors = made.compute_gradient(data)
    actor, critics = gradient(made.network.actor), gradient(made.network.critics)
    made.network.zero_grad()
    actions = made.target.actor(data.next_observations)
    ahead = made.target.values(data.next_observations, actions)
    targets = td3_targets(data.rewards, data.discounts, ahead, data.terminals)
    values = made.network.values(data.observations, data.actions)
    wanted, far = critics_loss(values, targets, data.weights)
    wanted.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-5)
    torch.testing.assert_close(errors, far)
    torch.testing.assert_close(critics, gradient(made.network.critics))
    made.network.zero_grad()
    climbed = made.network.values(data.observations, made.network.actor(data.observations))[0]
    (-(data.weights * climbed).mean()).backward()
    torch.testing.assert_close(actor, gradient(made.network.actor))
    assert all(p.grad is None for p in made.target.parameters())


def test_without_its_turn_the_actor_has_no_gradient() -> None:
    made, data = pair(), batch(1)
    made.compute_gradient(data, acting=True)
    with_actor = gradient(made.network.critics)
    made.compute_gradient(data, acting=False)
    assert all(p.grad is None for p in made.network.actor.parameters())
    torch.testing.assert_close(gradient(made.network.critics), with_actor)


def test_target_actions_are_smoothed_by_the_generator_s_noise() -> None:
    found = []
    for seed in (1, 1, 2):
        made = TD3(network(), learning(), torch.Generator().manual_seed(seed))
        found.append(made.compute_gradient(batch(terminal=0.0))[0])
    assert found[0] == found[1] != found[2]


def test_bootstrapping_stops_at_terminal_states_only() -> None:
    made = pair()
    ended, cut = batch(terminal=1.1), batch(terminal=0.0)
    before = [made.compute_gradient(data)[0] for data in (ended, cut)]
    made.target.load_state_dict(network(seed=7).state_dict())
    after = [made.compute_gradient(data)[0] for data in (ended, cut)]
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_bfloat16_gives_nearly_the_same_gradient() -> None:
    found = []
    for precision in ("float32", "bfloat16"):
        made = pair(IMAGES, precision=precision)
        made.compute_gradient(batch(3, IMAGES))
        found.append([gradient(made.network.actor), gradient(made.network.critics)])
    for full, low in zip(*found, strict=True):
        assert low.dtype == torch.float32
        assert float((low - full).norm()) < 0.1 * float(full.norm())


# ---- learning alone


def guess(data: Batch) -> Batch:
    """The best action is a function of the observation; all ends at once."""
    best = torch.stack([4.0 * data.observations[:, 0, 0] - 2.0, data.observations[:, 0, 1]], dim=1)
    errors = (data.actions - best) / torch.tensor([2.0, 0.5])
    return replace(
        data, rewards=-errors.square().sum(dim=1), terminals=torch.ones(B, dtype=torch.bool),
        weights=torch.ones(B),
    )


def test_it_learns_what_to_do() -> None:
    update = LocalUpdate(network(), learning())
    assert isinstance(update.network, ActorCritic)
    data = guess(batch(999))
    rewards = []
    for seed in range(300):
        if seed in (0, 299):
            with torch.no_grad():
                mine = replace(data, actions=update.network.actor(data.observations))
            rewards.append(float(guess(mine).rewards.mean()))
        update.step(guess(batch(seed)))
    first, last = rewards
    assert last > -0.1 > -0.4 > first


def test_actor_and_targets_follow_in_their_turn() -> None:
    update = LocalUpdate(network(), learning(policy_delay=3))
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
    (update,) = make(1)
    before = update.state.current.weights.copy()
    assert not update.step(replace(batch(), rewards=torch.full((B,), bad))).finite
    np.testing.assert_array_equal(update.state.current.weights, before)
    assert update.step(batch(1)).finite


# ---- in turn, on shared weights


def make(count: int, **settings: Any) -> list[SharedUpdate]:
    """Learners that share what they learn."""
    config = learning(target_noise=0.0, **settings)
    first = SharedUpdate.private(network(), config)
    others = [
        SharedUpdate(algorithm_for(network(), config), first.state, first.weights, config)
        for _ in range(count - 1)
    ]
    return [first, *others]


def turn(update: SharedUpdate, seed: int) -> bool:
    """One update; whether the actor had a part in it."""
    progress = update.refresh()
    assert progress is not None
    gradient = update.compute(batch(seed), progress.updates)
    update.apply(gradient)
    return gradient.acting


@pytest.mark.parametrize("settings", [{}, {"policy_delay": 1}, {"gradient_clip": 0.05}])
def test_learners_in_turn_learn_what_one_alone_learns(settings: dict[str, Any]) -> None:
    updates = make(3, **settings)
    alone = LocalUpdate(network(), learning(target_noise=0.0, **settings))
    for step in range(13):
        turn(updates[step % 3], step)
        alone.step(batch(step))
    updates[0].refresh()
    for mine, theirs in (
        (updates[0].algorithm.network, alone.algorithm.network),
        (updates[0].algorithm.target, alone.algorithm.target),
    ):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5)
    delay = settings.get("policy_delay", 2)
    followed = 0 if delay == 1 else 12
    assert updates[0].state.progress == Progress(13, 13, 13 * B, followed)


def test_what_is_published_is_the_actor() -> None:
    (update,) = make(1)
    for step in range(3):
        turn(update, step)
    update.refresh()
    learned = update.algorithm.network
    assert isinstance(learned, ActorCritic)
    wanted = networks.flattened(learned.actor)
    found = np.empty_like(wanted)
    info = update.weights.read(found)
    assert info is not None
    assert info.updates == 3
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_late_gradients_keep_the_actor_s_share(count: int) -> None:
    """Each learner reads before the others have applied theirs, as in a live round."""
    updates = make(count)
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
    (update,) = make(1, policy_delay=1)
    for step in range(12):
        turn(update, step)
    later = SharedUpdate(
        algorithm_for(network(), learning(policy_delay=4)), update.state, update.weights,
        learning(policy_delay=4),
    )
    shares = [turn(later, step) for step in range(13)]
    assert 3 <= sum(shares) <= 5
