"""A checkpoint's policy, in a process of a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rtagent.errors import UserError
from rtagent.evaluation.trained_policy import TrainedPolicy, configuration, load_checkpoint
from rtagent.storage.checkpoint import Checkpoint, Counters
from rtagent.storage.signature import Signature
from tests.refused import one_line
from tests.trained import leave_checkpoint

FILE = Path("theirs.safetensors")


def foreign(config: Any) -> Checkpoint:
    """A checkpoint with a configuration that another program has written."""
    return Checkpoint(Signature("", "", "", ""), Counters(), {}, None, {"config": config})


def make_cartpole(**kwargs: Any) -> gym.Env[Any, Any]:
    """A world that a function makes."""
    return gym.make("CartPole-v1", **kwargs)


def test_it_acts_on_one_thread(tmp_path: Path) -> None:
    """More of them wait for each other: on a busy machine most of the time."""
    path, saved = load_checkpoint(leave_checkpoint(tmp_path, "env.id=CartPole-v1"))
    policy = TrainedPolicy(configuration(saved, path, None, ()), saved, path)
    torch.set_num_threads(2)
    policy.acting()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("key", "value"), [
    ("env.id", "subprocess:Popen"), ("env.id", f"{__name__}:make_cartpole"),
    ("policy.pretrained", "theirs.pt2"), ("policy.remote", "ws://theirs.example:80"),
])
def test_what_a_checkpoint_would_have_called_or_asked_is_named_by_the_user(
    key: str, value: str
) -> None:
    """With its arguments it may start any program; a server is sent the user's token."""
    section, name = key.split(".")
    config: dict[str, Any] = {
        "env": {"id": "CartPole-v1", "kwargs": {"sutton_barto_reward": True}},
        "learning": {"processes": 0},
    }
    config.setdefault(section, {})[name] = value
    with pytest.raises(UserError, match="whoever made it") as refused:
        configuration(foreign(config), FILE, None, ("env.rate_hz=10",))
    named = str(refused.value).rpartition("--set ")[2]
    assert named == f"{key}={value}"
    taken = configuration(foreign(config), FILE, None, (named,))
    assert getattr(getattr(taken, section), name) == value


@pytest.mark.parametrize(("name", "kwargs"), [
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("gymnasium.envs.classic_control:CartPoleEnv", {"sutton_barto_reward": True}),
    (f"{__name__}:make_cartpole", {}),
])
def test_environments_of_a_checkpoint_need_no_word_of_the_user(
    name: str, kwargs: dict[str, Any]
) -> None:
    config = {"env": {"id": name, "kwargs": kwargs}, "policy": {"factory": "theirs:network"}}
    assert configuration(foreign(config), FILE, None, ()).env.id == name


@pytest.mark.parametrize("config", [
    ["env"], "theirs.toml", 5, True, {"env": {"kwargs": {"a": json.loads("[" * 50 + "]" * 50)}}},
])
def test_a_configuration_that_is_none_is_refused(config: Any) -> None:
    with pytest.raises(UserError, match=r"does not say how|nested too deeply"):
        configuration(foreign(config), FILE, None, ())


def test_a_setting_of_another_version_is_named_with_its_checkpoint(tmp_path: Path) -> None:
    """The line named the setting alone, as if the user had given it."""
    saved = foreign({"env": {"id": "CartPole-v1"}, "learning": {"novel": 3}})
    with one_line(r"theirs\.safetensors had a setting 'learning\.novel'", "--config FILE"):
        configuration(saved, FILE, None, ("learning.batch_size=8",))
    (tmp_path / "run.toml").write_text("[env]\nid = 'CartPole-v1'\n")
    assert configuration(saved, FILE, str(tmp_path / "run.toml"), ()).env.id == "CartPole-v1"


def normalizing(observation_space: Any, action_space: Any) -> nn.Module:
    """A network that keeps the means of what it has seen."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))


def masking(observation_space: Any, action_space: Any) -> nn.Module:
    """A network that keeps a mask, which it does not use."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    network.register_buffer("mask", torch.full((2, 2), -torch.inf).triu(1))
    return network


def test_a_factory_that_builds_another_network_than_it_did_is_told_so(tmp_path: Path) -> None:
    path, saved = load_checkpoint(leave_checkpoint(tmp_path, "env.id=CartPole-v1"))
    del saved.tensors["online.layers.0.weight"]  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"online\.layers\.0\.weight .*network was built otherwise"):
        TrainedPolicy(configuration(saved, path, None, ()), saved, path)


def test_a_mask_of_minus_infinity_is_no_weight(tmp_path: Path) -> None:
    made = "env.id=CartPole-v1", f"policy.factory={__name__}:masking"
    path, saved = load_checkpoint(leave_checkpoint(tmp_path, *made))
    loaded = TrainedPolicy(configuration(saved, path, None, ()), saved, path).network
    assert loaded.get_buffer("mask").isinf().any()


@pytest.mark.parametrize(("settings", "spoilt"), [
    (("env.id=Pendulum-v1",), ""),
    (("env.id=CartPole-v1", f"policy.factory={__name__}:normalizing"), "running_mean"),
])
def test_weights_that_are_not_finite_are_refused(
    tmp_path: Path, settings: tuple[str, ...], spoilt: str
) -> None:
    """A world of continuous actions refuses what they answer, with a traceback; others play it."""
    path, saved = load_checkpoint(leave_checkpoint(tmp_path, *settings))
    for name, each in saved.tensors.items():
        if spoilt in name:
            each.fill(np.nan)
    with pytest.raises(UserError, match="not finite"):
        TrainedPolicy(configuration(saved, path, None, ()), saved, path)
