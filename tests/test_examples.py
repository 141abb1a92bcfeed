"""The files under examples/ do what they say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from rtagent.config_reading import load_config
from rtagent.env.adapter import open_environment
from rtagent.explorers import greedy_action
from rtagent.networks import ActingPolicy, head_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = sorted(EXAMPLES.glob("*.toml"))


@pytest.fixture
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As with PYTHONPATH=examples."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    for name in ("custom_env", "custom_policy"):
        sys.modules.pop(name, None)
    gym.registry.pop("Pursuit-v0", None)


def test_all_are_here() -> None:
    assert {file.stem for file in FILES} >= {
        "paper", "cartpole", "pendulum", "injected_latency", "custom_policy", "custom_env"
    }


@pytest.mark.usefixtures("_importable")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_builds_its_world_and_acts_in_it(file: Path) -> None:
    config = load_config(file, (), {})
    adapter = open_environment(config.env)
    try:
        shape = (adapter.frame_stack, *adapter.frame_shape)
        space = gym.spaces.Box(0, 255, shape, np.dtype(adapter.frame_dtype).type)
        head = head_of(config.learning, adapter.action_space)
        policy = ActingPolicy(config.policy, space, adapter.action_space, head)
        frame = adapter.reset(seed=1)
        for _ in range(3):
            answer = policy.values(np.stack([frame] * adapter.frame_stack))
            action = greedy_action(answer, adapter.action_space)
            assert adapter.action_space.contains(action)
            frame = adapter.step(action).frame
    finally:
        adapter.close()


def test_the_paper_s_values() -> None:
    config = load_config(EXAMPLES / "paper.toml", (), {})
    assert (config.policy.network, config.policy.width) == ("resnet", 1)
    epsilon = config.policy
    assert (epsilon.epsilon_start, epsilon.epsilon_end, epsilon.epsilon_steps) == (1.0, 0.05, 10**5)
    assert config.policy.exploration_hold_ticks == 1
    learning = config.learning
    assert (learning.gamma, learning.learning_rate, learning.batch_size) == (0.99, 1e-3, 16)
    assert learning.n_step == 1
    assert config.replay.capacity == 10**6


def test_injected_latency_is_4_9_ticks() -> None:
    inference = load_config(EXAMPLES / "injected_latency.toml", (), {}).inference
    assert inference.injected_latency_ms * 59.7275 / 1e3 == pytest.approx(4.9, abs=0.01)
    assert inference.processes == 5


@pytest.mark.usefixtures("_importable")
def test_the_custom_world_pays_for_following() -> None:
    """Going after the target beats standing still."""
    returns = []
    for follow in (True, False):
        env = gym.make("custom_env:Pursuit-v0", disable_env_checker=True)
        observation, _ = env.reset(seed=3)
        total, ended = 0.0, False
        while not ended:
            own, target, _ = observation
            action = (1 if target < own else 2) if follow else 0
            observation, reward, _, ended, _ = env.step(action)
            total += float(reward)
        returns.append(total)
    assert returns[0] > 400.0 > returns[1]
