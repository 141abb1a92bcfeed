"""PPO and A2C: V-trace and losses against slow transcriptions, gradients, what is learned."""

from __future__ import annotations

from math import exp
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.buffers import RolloutBuffer

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning.algorithms import policy_gradient
from rtagent.learning.algorithms.a2c import A2C, advantage_loss
from rtagent.learning.algorithms.policy_gradient import PolicyGradient
from rtagent.learning.algorithms.ppo import PPO, clipped_loss
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.algorithms.vtrace import vtrace
from rtagent.learning.on_policy import part_of
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.rollouts import Rollout
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy import networks
from rtagent.policy.actor_critic import ActorValue, acting_part, build_learned

T = 40
VECTORS = gym.spaces.Box(-1, 1, (1, 3), np.float32)
ACTIONS = gym.spaces.Discrete(3)
BOTH = pytest.mark.parametrize("name", ["ppo", "a2c"])

Array = np.ndarray[Any, Any]


@pytest.fixture(params=range(4))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def chain(rng: np.random.Generator) -> dict[str, Array]:
    """Decisions with ends of both kinds and ticks that differ."""
    terminal = rng.random(T) < 0.1
    return {
        "values": rng.normal(0, 1, T), "next_values": rng.normal(0, 1, T),
        "rewards": rng.normal(0, 1, T),
        "discounts": np.where(terminal, 0.0, 0.9 ** rng.integers(1, 5, T)),
        "log_ratios": rng.normal(0, 0.5, T),
        "continues": ~terminal & (rng.random(T) < 0.9),
    }


def tensors(columns: dict[str, Array]) -> dict[str, torch.Tensor]:
    return {
        name: torch.from_numpy(each if each.dtype == bool else each.astype(np.float32))
        for name, each in columns.items()
    }


def slow_target(made: dict[str, Array], start: int, trace: float) -> float:
    """v_s, the sum of IMPALA's Eq. 1 as it stands, until the chain ends."""
    total, passed_on = made["values"][start], 1.0
    for t in range(start, T):
        rho = min(1.0, exp(made["log_ratios"][t]))
        ahead = made["discounts"][t] * made["next_values"][t]
        delta = rho * (made["rewards"][t] + ahead - made["values"][t])
        total += passed_on * delta
        if not made["continues"][t]:
            break
        passed_on *= made["discounts"][t] * trace * rho
    return float(total)


@pytest.mark.parametrize("trace", [0.0, 0.9, 1.0])
def test_vtrace_is_the_equation(trace: float, rng: np.random.Generator) -> None:
    made = chain(rng)
    targets, advantages = vtrace(**tensors(made), trace=trace)
    for s in range(T):
        assert float(targets[s]) == pytest.approx(slow_target(made, s, trace), abs=1e-4)
        ahead = made["next_values"][s]
        if made["continues"][s] and s + 1 < T:
            ahead = ahead + trace * (slow_target(made, s + 1, trace) - made["values"][s + 1])
        rho = min(1.0, exp(made["log_ratios"][s]))
        wanted = rho * (made["rewards"][s] + made["discounts"][s] * ahead - made["values"][s])
        assert float(advantages[s]) == pytest.approx(wanted, abs=1e-4)


def test_on_policy_vtrace_is_the_gae_of_stable_baselines3(rng: np.random.Generator) -> None:
    values = rng.normal(0, 1, T + 1).astype(np.float32)
    rewards = rng.normal(0, 1, T).astype(np.float32)
    ends = rng.random(T + 1) < 0.1
    theirs = RolloutBuffer(T, VECTORS, ACTIONS, "cpu", gae_lambda=0.9, gamma=0.97)
    for t in range(T):
        theirs.add(
            np.zeros((1, 1, 3)), np.zeros(1), rewards[t : t + 1], ends[t : t + 1],
            torch.from_numpy(values[t : t + 1]), torch.zeros(1),
        )
    theirs.compute_returns_and_advantage(torch.from_numpy(values[T:]), ends[T:])
    terminal = torch.from_numpy(ends[1:])
    targets, advantages = vtrace(
        torch.from_numpy(values[:T]), torch.from_numpy(values[1:]), torch.from_numpy(rewards),
        torch.where(terminal, 0.0, 0.97), torch.zeros(T), ~terminal, 0.9,
    )
    np.testing.assert_allclose(advantages.numpy(), theirs.advantages[:, 0], atol=1e-5)
    np.testing.assert_allclose(targets.numpy(), theirs.returns[:, 0], atol=1e-5)


def test_the_value_after_a_terminal_state_does_not_count() -> None:
    one, zero = torch.ones(2), torch.zeros(2)
    next_values = torch.tensor([float("nan"), 5.0])
    targets, advantages = vtrace(
        zero, next_values, one, torch.tensor([0.0, 0.0625]), zero, torch.tensor([False, False]), 1.0
    )
    assert targets.tolist() == advantages.tolist() == [1.0, 1.3125]


def test_the_policy_losses_are_the_equations(rng: np.random.Generator) -> None:
    new, old, advantages = (rng.normal(0, 0.5, T).astype(np.float32) for _ in range(3))
    wanted = 0.0
    for i in range(T):
        ratio = exp(new[i] - old[i])
        limited = min(max(ratio, 0.8), 1.2)
        wanted -= min(ratio * advantages[i], limited * advantages[i]) / T
    given = [torch.from_numpy(each) for each in (new, old, advantages)]
    assert float(clipped_loss(*given, 0.2)) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    plain = -sum(new[i] * advantages[i] for i in range(T)) / T
    found = advantage_loss(given[0], given[2])
    assert float(found) == pytest.approx(float(plain), rel=1e-4, abs=1e-5)


# ---- the algorithms


def learning(name: str, **values: Any) -> LearningConfig:
    settings: dict[str, Any] = {
        "algorithm": name, "precision": "float32", "learning_rate": 1e-2, "trace": 0.9, **values
    }
    return LearningConfig(**settings)


def make(name: str, seed: int = 0, **values: Any) -> PolicyGradient:
    torch.manual_seed(seed)
    network = build_learned(PolicyConfig(), VECTORS, ACTIONS, learning(name))
    assert isinstance(network, ActorValue)
    assert acting_part(network) is network.actor
    made = algorithm_for(network, learning(name, **values))
    assert isinstance(made, PPO if name == "ppo" else A2C)
    return made


def rollout(made: PolicyGradient, seed: int) -> Rollout:
    """Single decisions of the policy itself; an action is worth what is observed at its place."""
    rng = torch.Generator().manual_seed(seed)
    observations = torch.rand(T, 1, 3, generator=rng)
    with torch.no_grad():
        logarithms = made.network.actor(observations).log_softmax(dim=1)
    actions = torch.multinomial(logarithms.exp(), 1, generator=rng)[:, 0]
    batch = Batch(
        observations=observations, actions=actions,
        rewards=observations[torch.arange(T), 0, actions], discounts=torch.full((T,), 0.9),
        next_observations=observations, terminals=torch.ones(T, dtype=torch.bool),
        weights=torch.ones(T), frames=np.arange(T),
    )
    chosen = logarithms[torch.arange(T), actions]
    return Rollout(batch, chosen, torch.zeros(T, dtype=torch.bool))


@BOTH
def test_it_learns_what_to_do(name: str) -> None:
    made = make(name)
    update = SharedUpdate.private(made.network, learning(name, epochs=4))
    rng, rewards = np.random.default_rng(0), []
    for seed in range(60):
        update.refresh()
        played = rollout(update.algorithm, seed)  # type: ignore[arg-type]
        rewards.append(float(played.batch.rewards.mean()))
        whole = update.algorithm.prepare(played)
        for part in update.algorithm.updates_of(T, 20, rng):
            assert update.step(part_of(whole, part)).finite
    assert np.mean(rewards[:3]) < 0.6 < 0.68 < np.mean(rewards[-5:])
    # What is published is the policy.
    found = np.empty_like(networks.flattened(made.network.actor))
    assert update.weights.read(found) is not None


def test_an_epoch_has_every_decision_once() -> None:
    rng = np.random.default_rng(0)
    parts = make("ppo", epochs=3).updates_of(T, 16, rng)
    assert [len(part) for part in parts] == [14, 13, 13] * 3
    assert [sorted(np.concatenate(parts[i : i + 3])) for i in (0, 3, 6)] == [list(range(T))] * 3
    assert [len(part) for part in make("ppo", epochs=1).updates_of(T, 2 * T, rng)] == [T]
    (whole,) = make("a2c").updates_of(T, T, rng)
    assert whole.tolist() == list(range(T))


def test_how_long_a_rollout_is() -> None:
    assert make("ppo", rollout=64).rollout_length(16) == 64
    assert make("a2c", rollout=64).rollout_length(16) == 16


def test_no_pass_over_a_rollout_has_a_single_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch normalization refuses it."""
    monkeypatch.setattr(policy_gradient, "PASS", T - 1)
    assert passes(make("ppo", batch_size=T)) == [T // 2, T // 2]
    assert min(passes(make("ppo", batch_size=2))) >= 2


def test_no_pass_over_a_rollout_has_more_states_than_an_update() -> None:
    """The memory for more is not asked for."""
    assert passes(make("ppo", batch_size=16)) == [14, 13, 13]


def passes(made: PolicyGradient) -> list[int]:
    """The states of each pass of the actor over a rollout."""
    played, sizes = rollout(made, 5), list[int]()
    made.network.actor.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    made.prepare(played)
    return sizes


@pytest.mark.parametrize("reward", [0.3, -1.0, 100.0])
def test_where_every_decision_is_as_good_as_another_none_has_an_advantage(reward: float) -> None:
    made = make("ppo")
    played = rollout(made, 5)
    played.batch.observations.fill_(0.5)
    played.batch.rewards.fill_(reward)
    # V-trace cuts all of these ratios to 1.
    alike = Rollout(played.batch, played.log_probabilities - 20.0, played.continues)
    # The values of equal states may differ by rounding.
    assert abs(float(made.prepare(alike).advantages.mean())) < 0.01


@BOTH
def test_a_network_may_exclude_actions(name: str) -> None:
    made = make(name, entropy=0.3)
    actor, forward = made.network.actor, made.network.actor.forward
    excluded = torch.tensor([False, False, True])
    actor.forward = lambda *inputs: forward(*inputs).masked_fill(excluded, -torch.inf)
    played = rollout(made, 5)
    loss, _ = made.compute_gradient(made.prepare(played))
    assert np.isfinite(loss)
    assert all(bool(p.grad.isfinite().all()) for p in made.network.parameters())
    assert float(actor.values.weight.grad[2].abs().max()) == 0.0


@BOTH
def test_the_gradient_is_that_of_the_algorithm(name: str) -> None:
    made = make(name, entropy=0.3)
    played = rollout(made, 5)
    # Weights that acted and that learn are not the same.
    other = Rollout(played.batch, played.log_probabilities - 0.2, played.continues)
    batch = made.prepare(other)
    torch.testing.assert_close(batch.log_probabilities, played.log_probabilities)
    # The ratio is e^0.2, which V-trace cuts to 1.
    with torch.no_grad():
        values = made.network.value(played.batch.observations)[:, 0]
    torch.testing.assert_close(batch.targets, played.batch.rewards)
    plain = played.batch.rewards - values
    if name == "ppo":
        plain = (plain - plain.mean()) / plain.std(correction=0)
    torch.testing.assert_close(batch.advantages, plain)

    loss, errors = made.compute_gradient(batch)
    found = [p.grad.clone() for p in made.network.parameters() if p.grad is not None]
    made.network.zero_grad()
    probabilities = made.network.actor(batch.observations).softmax(dim=1)
    chosen = probabilities[torch.arange(T), batch.actions].log()
    entropy = -(probabilities * probabilities.log()).sum(dim=1).mean()
    values = made.network.value(batch.observations)[:, 0]
    policy = advantage_loss(chosen, plain)
    if name == "ppo":
        policy = clipped_loss(chosen, batch.log_probabilities, plain, 0.2)
    wanted = policy + (values - batch.targets).square().mean() - 0.3 * entropy
    wanted.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-5)
    torch.testing.assert_close(errors, (values - batch.targets).abs().detach())
    for one, two in zip(found, made.network.parameters(), strict=True):
        torch.testing.assert_close(one, two.grad, atol=1e-6, rtol=1e-4)
