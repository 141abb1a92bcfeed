"""The probe: builds environment and network once, in a process of its own, to learn their shapes.

The supervisor must not import torch, and must know the size of a frame and of the weights before
it can lay out the shared memory. What cannot be built at all is found here, before anything runs.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from multiprocess.connection import Connection

from rtagent.config import Config
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.default_action import DefaultBehaviour
from rtagent.errors import UserError
from rtagent.files.pruning import MIB, prune, run_folders
from rtagent.inference.engines import registry
from rtagent.memory.blueprint import Blueprint
from rtagent.policy.actor_critic import acting_part, build_learned
from rtagent.policy.networks import describe, head_of, tensor_specs
from rtagent.processes.worker import start_life
from rtagent.storage import checkpoint
from rtagent.telemetry import run_record


def probe(config: Config) -> Blueprint:
    """Find the shapes of a run.

    Raises:
        UserError: the environment or the network cannot be built as configured.
    """
    adapter = open_environment(config.env)
    try:
        DefaultBehaviour(config.env, adapter)
        observation_space, learning = _stacked(adapter), config.learning
        try:
            head = head_of(learning, adapter.action_space)
        except UserError as error:
            raise UserError(f"env.id = {config.env.id!r}: {error}") from None
        learned = build_learned(config.policy, observation_space, adapter.action_space, learning)
        # What acts comes first, see `policy/actor_critic.py`.
        tensors, acting = tensor_specs(learned), len(tensor_specs(acting_part(learned)))
        return Blueprint(
            rate_hz=adapter.rate_hz, frame_shape=adapter.frame_shape,
            frame_dtype=adapter.frame_dtype, frame_stack=adapter.frame_stack,
            observation_space=observation_space, action_space=adapter.action_space,
            action_shape=adapter.action_shape, action_dtype=adapter.action_dtype,
            action_meanings=adapter.action_meanings,
            noop_action=np.asarray(adapter.noop_action).tolist(),
            network=describe(config.policy, observation_space, head), tensors=tensors[:acting],
            screen=adapter.screen, critics=tensors[acting:], reward_range=adapter.reward_range,
            sight=adapter.sight,
        )
    finally:
        adapter.close()


def run_probe(config: Config, checkpoint_dir: Path, run_dir: Path, pipe: Connection) -> None:
    """Body of the probe process: sends ("found", and what `boot.Found` has) or ("failed", text)."""
    start_life("probe")
    torch.set_num_threads(1)
    answer: tuple[Any, ...]
    try:
        registry.check(config.policy)
        blueprint = probe(config)
        resume: Path | None = None
        events: list[tuple[str, dict[str, Any]]] = []
        if config.run.resume:
            wanted = checkpoint.signature(config, blueprint)
            resume, passed = checkpoint.newest_usable(checkpoint_dir, wanted)
            events += [("checkpoint_corrupt", {"reason": reason}) for reason in passed]
        events.append(("observations", {"seen": blueprint.sight}))
        if removed := prune_runs(config, run_dir):
            events.append(("pruned", {"runs": removed}))
        try:
            run_record.write(run_dir, run_record.describe_run(config))
        except OSError as error:
            events.append(("run_record_failed", {"reason": str(error)}))
        answer = ("found", blueprint, resume, events)
    except UserError as error:
        answer = ("failed", str(error))
    except Exception:
        answer = ("failed", traceback.format_exc())
    pipe.send(answer)
    pipe.close()
    os._exit(0)


def prune_runs(config: Config, run_dir: Path) -> int:
    """Remove the folders of the oldest runs, never that of this one; returns how many."""
    earlier = [path for path in run_folders(run_dir.parent) if path != run_dir]
    return len(prune([run_dir, *earlier], config.run.keep_runs, config.run.runs_mb * MIB))


def _stacked(adapter: Adapter) -> gymnasium.spaces.Box:
    """The space of a stacked observation."""
    shape = (adapter.frame_stack, *adapter.frame_shape)
    if adapter.frame_dtype == "uint8":
        return gymnasium.spaces.Box(0, 255, shape, np.uint8)
    return gymnasium.spaces.Box(-np.inf, np.inf, shape, np.float32)
