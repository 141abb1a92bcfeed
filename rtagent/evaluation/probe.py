"""The probe: builds environment and network once, in a process of its own, to learn their shapes.

The supervisor must not import torch, and must know the size of a frame and of the weights before
it can lay out the shared memory. An environment or network that cannot be built at all is refused
here, before anything runs.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rtagent.config import Config, PolicyConfig
from rtagent.config.recurrent import check_recurrent
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.default_action import DefaultBehaviour
from rtagent.errors import UserError
from rtagent.inference.engines import registry
from rtagent.learning.beginning import build_network
from rtagent.learning.state import restore_network
from rtagent.memory.actions import LONGEST_CHUNK
from rtagent.memory.blueprint import Blueprint
from rtagent.policy.actor_critic import acting_part, build_learned
from rtagent.policy.device import usable_device
from rtagent.policy.heads import OutputHead
from rtagent.policy.inputs import input_space, zeros
from rtagent.policy.networks import check_rebuilt, chunk_length, describe, head_of, tensor_specs
from rtagent.policy.precision import acting_precision
from rtagent.policy.pretrained import PretrainedPolicy
from rtagent.policy.recurrent import state_size_of
from rtagent.processes.worker import start_life
from rtagent.storage import checkpoint
from rtagent.storage.signature import signature
from rtagent.telemetry import sinks


def probe(config: Config, doing: Callable[[str], object] = lambda what: None) -> Blueprint:
    """Find the shapes of a run.

    Args:
        config: of the run.
        doing: told what is tried out next, since that may never come back.

    Raises:
        UserError: the environment or the network cannot be built as configured.
    """
    environment = f"the environment of env.id = {config.env.id!r}"
    doing(environment)
    adapter = open_environment(config.env)
    try:
        DefaultBehaviour(config.env, adapter).try_out()
        try:
            head = head_of(config.learning, adapter.action_space)
        except UserError as error:
            raise UserError(f"env.id = {config.env.id!r}: {error}") from None
        doing("the policy")
        world = replace(
            world_of(adapter), network=_finished(config.policy, adapter),
            pending_actions=config.env.pending_actions,
        )
        if config.policy.chunk == "ensemble" and not world.action_shape:
            raise UserError(
                "policy.chunk = 'ensemble': discrete actions have no mean, and those of env.id = "
                f"{config.env.id!r} are discrete; use 'newest'"
            )
        if not config.policy.learns:
            return replace(world, state_size=config.policy.remote_state)
        return _with_network(config, world, head)
    finally:
        doing(environment)
        adapter.close()


def probe_with_weights(
    config: Config, doing: Callable[[str], object] = lambda what: None
) -> Blueprint:
    """As `probe`, of a run whose processes share the weights of its network.

    Raises:
        UserError: as well if the network has no weights.
    """
    blueprint = probe(config, doing)
    if config.policy.learns and not blueprint.tensors:
        raise UserError(
            f"policy.factory = {config.policy.factory!r}: the module has no parameters, and "
            "without weights there is nothing to learn or to keep; a policy that only acts is "
            "named by policy.pretrained"
        )
    return blueprint


def world_of(adapter: Adapter) -> Blueprint:
    """The shapes of an environment, without a network."""
    return Blueprint(
        rate_hz=adapter.rate_hz, frame_shape=adapter.frame_shape,
        frame_dtype=adapter.frame_dtype, frame_stack=adapter.frame_stack,
        observation_space=_stacked(adapter), action_space=adapter.action_space,
        action_shape=adapter.action_shape, action_dtype=adapter.action_dtype,
        action_meanings=adapter.action_meanings, network="", tensors=(),
        screen=adapter.screen, reward_range=adapter.reward_range, sight=adapter.sight,
        cartridge=adapter.cartridge, actions=adapter.actions,
    )


def _with_network(config: Config, world: Blueprint, head: OutputHead) -> Blueprint:
    """The shapes of a world, and of the run's own network."""
    policy, inputs, actions = config.policy, input_space(world), world.action_space
    learned = build_learned(policy, inputs, actions, config.learning)
    # The tensors of the actor come first, see `policy/actor_critic.py`.
    actor = acting_part(learned)
    chunk = chunk_length(actor, policy, inputs, actions, head)
    _check_chunk(config, chunk)
    if state_size_of(actor):
        check_recurrent(config)
    tensors, acting = tensor_specs(learned), len(tensor_specs(actor))
    blank = tuple(torch.from_numpy(each) for each in zeros(inputs, 1))
    precision = acting_precision(policy, actor, blank)
    if precision == "bfloat16" and policy.factory is not None:
        _check_in_bfloat16(policy, actor, inputs, actions, head)
    if policy.factory is not None and acting:
        check_rebuilt(actor, policy, inputs, actions, head)
    return replace(
        world, network=describe(policy, inputs, head), tensors=tensors[:acting],
        critics=tensors[acting:], precision=precision, chunk=chunk,
        state_size=state_size_of(actor),
    )


def _resumed(
    config: Config, blueprint: Blueprint, folder: Path
) -> tuple[Path | None, list[str]]:
    """The checkpoint to go on from, and why newer ones were passed over.

    Raises:
        CheckpointError: there are checkpoints, and none can be used.
    """
    try:
        found, passed = checkpoint.newest_usable(folder, signature(config, blueprint))
    except checkpoint.CheckpointError as error:
        raise checkpoint.CheckpointError(
            f"{error}; use another --state-dir (run.state_dir), or start with --set "
            "run.resume=false"
        ) from None
    if found is None:
        return None, passed
    # The signature has the name of a factory, and not what it builds.
    restore_network(build_network(config, blueprint), found[1])
    return found[0], passed


def run_probe(
    config: Config, checkpoint_dir: Path, doing: Callable[[str], object]
) -> tuple[Blueprint, Path | None, list[tuple[str, dict[str, Any]]]]:
    """Body of the probe process: the fields of `startup.Found`.

    Args:
        config: of the run.
        checkpoint_dir: where a checkpoint may be.
        doing: told what is tried out next, since that may never come back.

    Raises:
        UserError: something cannot be built or used as configured.
    """
    start_life("probe")
    torch.set_num_threads(1)
    registry.check(config.policy)
    if config.policy.remote is not None:
        # Raises a UserError if its packages are missing.
        importlib.import_module("rtagent.remote.protocol")
    sinks.check(config.run)
    if config.learning.where == "here" and config.learning.processes:
        usable_device(config.learning.device, "learning.device")
    blueprint = probe_with_weights(config, doing)
    doing(f"the state directory {config.state_dir}")
    resume: Path | None = None
    events: list[tuple[str, dict[str, Any]]] = []
    if config.run.resume and config.policy.learns:
        resume, passed = _resumed(config, blueprint, checkpoint_dir)
        events += [("checkpoint_corrupt", {"reason": reason}) for reason in passed]
    events.append(("observations", {"seen": blueprint.sight}))
    return blueprint, resume, events


def _check_in_bfloat16(
    policy: PolicyConfig, actor: nn.Module, inputs: spaces.Space[Any],
    actions: spaces.Space[Any], head: OutputHead,
) -> None:
    """Run a factory's network as it will act: the network is in bfloat16, its inputs are not."""
    low = copy.deepcopy(actor).to(torch.bfloat16)
    try:
        chunk_length(low, policy, inputs, actions, head)
    except UserError as error:
        raise UserError(f"policy.precision = 'bfloat16': {error}") from error


def _check_chunk(config: Config, chunk: int | None) -> None:
    """Refuse settings that do not go with chunks of actions."""
    if chunk is None:
        return
    actions = "1 action" if chunk == 1 else f"{chunk} actions"
    network = f"policy.factory = {config.policy.factory!r} answers with chunks of {actions}"
    if not 1 <= chunk <= LONGEST_CHUNK:
        raise UserError(f"{network}: 1 to {LONGEST_CHUNK} are possible")
    if config.learning.processes:
        raise UserError(
            f"learning.processes = {config.learning.processes}: {network}, (B, {chunk}, outputs), "
            "and learners learn from (B, outputs); set learning.processes = 0 or, if no chunks are "
            "meant, flatten the frames of an observation before the first linear layer"
        )
    if config.policy.engine != "torch":
        raise UserError(
            f"policy.engine = {config.policy.engine!r}: {network}, which engines do not; set "
            "policy.engine = 'torch'"
        )


def _finished(policy: PolicyConfig, adapter: Adapter) -> str:
    """A finished policy in words, after one trial; empty if the run has its own network.

    Raises:
        UserError: it cannot be loaded, or does not fit the environment.
    """
    if policy.pretrained is not None:
        PretrainedPolicy(policy, _stacked(adapter), adapter.action_space)
        return f"pretrained {policy.pretrained}"
    return "" if policy.remote is None else f"policy server {policy.remote}"


def _stacked(adapter: Adapter) -> gymnasium.spaces.Box:
    """The space of a stacked observation."""
    shape = (adapter.frame_stack, *adapter.frame_shape)
    if adapter.frame_dtype == "uint8":
        return gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
