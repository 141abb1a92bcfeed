"""A checkpoint outside a run: its file, the configuration of its run, and its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from rtagent.config import Config
from rtagent.config_sources import all_keys, load_config, parse_config
from rtagent.env.making import class_or_function
from rtagent.errors import UserError
from rtagent.evaluation.probe import probe
from rtagent.files.toml_file import check_levels
from rtagent.learning.state import restore_network
from rtagent.memory.blueprint import Blueprint
from rtagent.policy import networks
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.actor_critic import acting_part, build_learned
from rtagent.policy.heads import Head, OutputHead, expected_values
from rtagent.policy.inputs import input_space
from rtagent.policy.networks import head_of
from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.checkpoint import BEST, Checkpoint
from rtagent.storage.signature import signature

FOLDER = "checkpoints"
GREEDY: dict[str, dict[str, Any]] = {
    "policy": {"epsilon_start": 0.0, "epsilon_end": 0.0, "epsilon_schedule": "linear"},
    "learning": {
        "processes": 0, "where": "here", "evaluation_every_s": 0.0, "demonstrations": None,
    },
    "r3": {"mode": "off", "memory_budget_mb": None},
    "run": {
        "resume": True, "checkpoint_replay": False,
        "tensorboard": False, "wandb": False, "mlflow": False,
    },
}
"""Settings of a run that plays greedily by a checkpoint, and learns nothing."""


def load_checkpoint(given: Path) -> tuple[Path, Checkpoint]:
    """The checkpoint that a user means, read and checked.

    Args:
        given: a checkpoint, or a folder of checkpoints, or a state directory; of a folder, the best
            one if there is one, else the newest.

    Raises:
        UserError: there is none, or it is corrupt.
    """
    path = _in_folder(given.expanduser())
    if not path.is_file():
        raise UserError(
            f"{given}: no such checkpoint; give the path of one, or train one: "
            "rtagent train --seconds 600"
        )
    return path, checkpoints.load(path)


def _in_folder(path: Path) -> Path:
    if not path.is_dir():
        return path
    for folder in (path, path / FOLDER):
        best = folder / BEST
        if found := best if best.is_file() else checkpoints.newest(folder):
            return found
    raise UserError(f"{path}: no checkpoint in it; train one: rtagent train --seconds 600")


def configuration(
    saved: Checkpoint, path: Path, file: str | None, overrides: Sequence[str]
) -> Config:
    """The configuration of a checkpoint's run, with changes.

    `file` takes the place of the checkpoint's own configuration; overrides are stronger still.

    Raises:
        UserError: the checkpoint has none, a setting is not acceptable, or the checkpoint wants
            something called or asked that the user has not named.
    """
    if file is not None:
        return load_config(file, overrides)
    base = saved.run.get("config")
    if not base or not isinstance(base, dict):
        raise UserError(
            f"the checkpoint {path} does not say how its run was configured; say it: --config FILE"
        )
    try:
        check_levels(base)
    except ValueError as error:
        raise UserError(f"the configuration in {path} is {error}") from None
    named = {
        f"{section}.{key}" for section, settings in base.items() if isinstance(settings, dict)
        for key in settings
    }
    if unknown := sorted(named.difference(all_keys())):
        raise UserError(
            f"the run of the checkpoint {path} had a setting {unknown[0]!r:.80}, which this "
            "version of rtagent does not know; use the version that wrote it, or say how the run "
            "was configured: --config FILE"
        )
    config = load_config(base, overrides)
    said = {each.partition("=")[0].strip() for each in overrides}
    for key, value in _called(config).items():
        section, _, name = key.partition(".")
        if key not in said and base.get(section, {}).get(name) == value:
            raise UserError(
                f"the checkpoint {path} wants {key} = {value!r}, and whoever made it may have "
                f"chosen any function or server: if you trust it, say --set {key}={value}"
            )
    return config


def _called(config: Config) -> dict[str, str]:
    """Settings by which a run calls functions with arguments, loads programs or asks servers.

    Classes of environments, and functions without arguments of the checkpoint's, are not among
    them: nothing makes them do something else than they are for.
    """
    policy = config.policy
    named = {"policy.pretrained": policy.pretrained, "policy.remote": policy.remote}
    # What cannot be imported is refused where the environment is made.
    with suppress(Exception):
        found = class_or_function(config.env.id) if config.env.kwargs else None
        if found is not None and not (isinstance(found, type) and issubclass(found, gym.Env)):
            named["env.id"] = config.env.id
    return {key: value for key, value in named.items() if value is not None}


def playing(config: Config, **more: Mapping[str, Any]) -> Config:
    """The same run, which plays greedily and learns nothing; `more` are settings by section.

    Raises:
        UserError: other settings of the run do not go with these.
    """
    values = config.model_dump()
    for section, settings in (*GREEDY.items(), *more.items()):
        values[section] |= settings
    return parse_config(values)


class TrainedPolicy:
    """The network of a checkpoint, in float32; its configuration is that of its run.

    Attributes:
        blueprint: the shapes of the run.
        network: the acting part; maps observations (B, stack, ...) to the output of its head.

    Raises:
        UserError: environment or network cannot be built, or are not those of the checkpoint; or
            its weights are not finite.
    """

    def __init__(self, config: Config, saved: Checkpoint, path: Path) -> None:
        self._config = config
        self.blueprint: Blueprint = probe(config)
        checkpoints.match(saved, signature(config, self.blueprint), path)
        spaces = input_space(self.blueprint), self.blueprint.action_space
        learned = build_learned(config.policy, *spaces, config.learning)
        restore_network(learned, saved)
        finite = all(bool(each.isfinite().all()) for each in learned.parameters())
        # What a network keeps beside its parameters may be a mask of -inf.
        if not finite or any(bool(each.isnan().any()) for each in learned.buffers()):
            raise UserError(f"the checkpoint {path} has weights that are not finite; use another")
        self.network: nn.Module = acting_part(learned).eval().requires_grad_(False)

    def acting(self) -> ActingPolicy:
        """The policy of an inference process: in its precision, and with one thread of torch."""
        torch.set_num_threads(1)
        policy = ActingPolicy.of(self._config, self.blueprint)
        policy.load(networks.flattened(self.network))
        return policy

    def answering(self) -> nn.Module:
        """A module from observations to action values, or to actions where they are continuous.

        It takes the same further inputs as the network; a recurrent one also returns the new
        states.
        """
        head = head_of(self._config.learning, self.blueprint.action_space)
        return Answering(self.network, head).eval()


class Answering(nn.Module):
    """A network, then the mean of a stochastic actor or of value distributions.

    Args:
        network: the acting part.
        head: of the network.
    """

    support: Tensor | None

    def __init__(self, network: nn.Module, head: OutputHead) -> None:
        super().__init__()
        self.network, self.mean = network, networks.mean_of(head) or nn.Identity()
        support = head.support if isinstance(head, Head) else None
        self.register_buffer("support", None if support is None else support.values())

    def forward(self, observation: Tensor, *beside: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """(B, stack, ...) to (B, actions) values or (B, n) actions, and the new states if any."""
        found = self.network(observation, *beside)
        output, *states = found if isinstance(found, tuple) else (found,)
        output = self.mean(output)
        if self.support is not None:
            output = expected_values(output, self.support)
        return (output.float(), states[0]) if states else output.float()
