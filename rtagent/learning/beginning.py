"""The beginning of learning: the network of a run, its first weights, the first shared state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from rtagent.config import Config
from rtagent.learning import state as states
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.weights import WeightsInfo
from rtagent.memory.world import World
from rtagent.policy import networks
from rtagent.policy.actor_critic import build_learned
from rtagent.policy.inputs import input_space
from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.signature import signature

if TYPE_CHECKING:
    from rtagent.memory.process_metrics import LearnerRecord
    from rtagent.processes.worker import WorkerContext


def build_network(config: Config, blueprint: Blueprint) -> nn.Module:
    """The network that a run learns, with the same random weights in every process."""
    torch.manual_seed(config.run.seed)
    return build_learned(
        config.policy, input_space(blueprint), blueprint.action_space, config.learning
    )


def publish_initial(world: World, config: Config, resume: Path | None) -> None:
    """Publish the first weights to act with: those of a checkpoint, or random ones.

    Args:
        world: the shared memory whose weight buffers are filled.
        config: names the network and the seed.
        resume: the checkpoint. If None, the weights are random.

    Raises:
        CheckpointError: the checkpoint cannot be used.
    """
    network = build_network(config, world.blueprint)
    counters = checkpoints.Counters()
    if resume is not None:
        saved = checkpoints.check(resume, signature(config, world.blueprint))
        states.restore_network(network, saved)
        counters = saved.counters
    acting = networks.flattened(network)[: world.blueprint.parameters]
    world.weights.publish(acting, WeightsInfo(counters.weights_version + 1, counters.updates))


def publish_if_nobody_has(context: WorkerContext[LearnerRecord]) -> None:
    """Publish the first weights unless another process has; acting waits for nothing else."""
    world = context.world
    if not world.weights.number:
        with world.turns.hold(context.clock, context.beat):
            if not world.weights.number:
                publish_initial(world, context.config, context.resume)


def first_state(
    network: nn.Module, world: World, config: Config, resume: Path | None
) -> states.Snapshot:
    """The shared state that belongs to the published weights.

    Args:
        network: as `build_network` gives it; the initial values of parameters that are not
            published.
        world: the shared memory with the published weights.
        config: of the run.
        resume: the checkpoint that the run resumes from. Its moments and target are taken over if
            its weights are those that are published.
    """
    flat = networks.flattened(network)
    published = world.weights.read(flat[: world.blueprint.parameters])
    if published is None:
        raise RuntimeError("no weights could be read: they are published before this")
    if resume is not None:
        saved = checkpoints.check(resume, signature(config, world.blueprint))
        if saved.counters.updates == published.updates:
            return states.from_checkpoint(saved, world.blueprint.learned_tensors)
    return states.begin(flat, published.updates)
