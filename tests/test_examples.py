"""The files under examples/ do what they say."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from rtagent.config_sources import load_config
from rtagent.env.adapter import open_environment
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.action_selection import greedy_action
from rtagent.policy.networks import head_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = sorted(EXAMPLES.glob("*.toml"))


@pytest.fixture
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of the examples can be imported, as with PYTHONPATH=examples."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield
    for name in ("custom_env", "custom_policy"):
        sys.modules.pop(name, None)
    gym.registry.pop("Pursuit-v0", None)


def test_all_are_here() -> None:
    assert {file.stem for file in FILES} >= {
        "paper", "cartpole", "pendulum", "injected_latency", "custom_policy", "custom_env",
        "long_haul",
    }


@pytest.mark.usefixtures("_importable")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_builds_its_world_and_acts_in_it(file: Path) -> None:
    config = load_config(file, (), {})
    with closing(open_environment(config.env)) as adapter:
        shape = (adapter.frame_stack, *adapter.frame_shape)
        space = gym.spaces.Box(0, 255, shape, np.dtype(adapter.frame_dtype).type)
        head = head_of(config.learning, adapter.action_space)
        policy = ActingPolicy(config.policy, space, adapter.action_space, head)
        frame = adapter.reset(seed=1)
        for _ in range(3):
            answer = policy.greedy(np.stack([frame] * adapter.frame_stack))
            action = greedy_action(answer, adapter.action_space)
            assert adapter.action_space.contains(action)
            frame = adapter.step(action).frame


@pytest.mark.usefixtures("_importable")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_says_how_far_in_seconds_its_discount_looks(file: Path) -> None:
    config = load_config(file, (), {})
    adapter = open_environment(config.env)
    adapter.close()
    said = re.search(
        r"^gamma = ([\d.]+) +#.* a horizon of (\d+) (ticks|decisions), ([\d.]+) s(.*)",
        file.read_text(), re.M,
    )
    gamma, ticks, seconds = (float(said[i]) for i in (1, 2, 4))
    assert (config.learning.gamma, config.learning.discount) == (gamma, said[3])
    assert (said[5] == " if each tick has one") == (said[3] == "decisions")
    assert ticks == round(1.0 / (1.0 - gamma))
    assert seconds == pytest.approx(ticks / adapter.rate_hz, rel=0.03)


def comments(file: Path) -> dict[str, str]:
    """What is said beside each key."""
    found, section = {}, ""
    for line in file.read_text().splitlines():
        if heading := re.fullmatch(r"\[(\w+)\]", line):
            section = heading[1]
        elif said := re.match(r"(\w+) = .*?# (.*)", line):
            found[f"{section}.{said[1]}"] = said[2]
    return found


IMPLEMENTATION = "Sec. 4, Implementation Details"
SIMULATION = "Sec. 4, Realtime Game Boy Simulation"
PAPER: dict[str, tuple[object, str]] = {
    "env.rate_hz": (59.7275, SIMULATION),
    "env.default_action": ("noop", SIMULATION),
    "env.frame_stack": (1, IMPLEMENTATION),
    "policy.network": ("resnet", IMPLEMENTATION),
    "policy.width": (1, IMPLEMENTATION),
    "policy.precision": ("float32", "not said"),
    "policy.epsilon_start": (1.0, "Sec. 4.1, Fig. 3"),
    "policy.epsilon_end": (0.05, "Sec. 4.1, Fig. 3"),
    "policy.epsilon_steps": (100_000, "Sec. 4.1, Fig. 3"),
    "policy.exploration_hold_ticks": (1, "not said"),
    "inference.processes": ("auto", "Sec. 4, Figs. 3 and 4"),
    "inference.algorithm": ("maximum-time", "Sec. 4, Figs. 4 and 5; Algorithm 1"),
    "inference.fill": (0, "Algorithm 1"),
    "learning.algorithm": ("dqn", IMPLEMENTATION),
    "learning.order": ("round-robin", "Appendix A"),
    "learning.learning_rate": (0.001, IMPLEMENTATION),
    "learning.gamma": (0.99, IMPLEMENTATION),
    "learning.batch_size": (16, IMPLEMENTATION),
    "learning.n_step": (1, IMPLEMENTATION),
    "learning.precision": ("float32", "not said"),
    "replay.capacity": (1_000_000, IMPLEMENTATION),
}
"""What the Realtime RL paper says, and where."""


def test_the_paper_s_values() -> None:
    """All of them, nothing else, and beside each the place."""
    file = EXAMPLES / "paper.toml"
    config, places = load_config(file, (), {}).model_dump(), comments(file)
    written = tomllib.loads(file.read_text())
    keys = {f"{section}.{key}" for section, values in written.items() for key in values}
    assert keys == set(places) == set(PAPER)
    for key, (value, place) in PAPER.items():
        section, name = key.split(".")
        assert config[section][name] == value, key
        assert places[key].startswith(place), key


LONG_HAUL: dict[str, object] = {
    "env.id": "ALE/Breakout-v5", "learning.algorithm": "double-dqn", "learning.dueling": True,
    "learning.n_step": 3, "learning.batch_size": 512, "learning.prioritized": True,
    "replay.capacity": 65_536, "cluster.weights_every": 16,
}
"""What the long-haul paper says."""


def test_the_long_haul_paper_s_values() -> None:
    """All of them; each line says whether its value is the paper's."""
    file = EXAMPLES / "long_haul.toml"
    config = load_config(file, (), {}).model_dump()
    papers = {key for key, said in comments(file).items() if said.startswith("paper, Sec")}
    assert papers == set(LONG_HAUL)
    for key, value in LONG_HAUL.items():
        section, name = key.split(".")
        assert config[section][name] == value, key
    assert (config["learning"]["where"], config["learning"]["discount"]) == ("cluster", "decisions")


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
