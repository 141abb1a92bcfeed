"""Checkpoints as a run leaves them, without a run."""

from __future__ import annotations

from pathlib import Path

import torch

from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe
from rtagent.policy.actor_critic import build_learned
from rtagent.policy.inputs import input_space
from rtagent.storage import checkpoint as checkpoints
from rtagent.storage.checkpoint import Checkpoint, Counters
from rtagent.storage.signature import signature


def leave_checkpoint(state_dir: Path, *settings: str, with_config: bool = True) -> Path:
    """A checkpoint of random weights, as these settings make them."""
    config = load_config(None, [f"run.state_dir={state_dir}", *settings], {})
    blueprint = probe(config)
    torch.manual_seed(0)
    spaces = input_space(blueprint), blueprint.action_space
    network = build_learned(config.policy, *spaces, config.learning)
    tensors = {f"online.{name}": each.numpy() for name, each in network.state_dict().items()}
    run = {"config": config.model_dump(mode="json")} if with_config else {}
    saved = Checkpoint(signature(config, blueprint), Counters(7, 224, 1), tensors, None, run)
    return checkpoints.save(state_dir / "checkpoints", saved)
