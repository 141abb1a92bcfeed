"""Tiny, untrained policies of LeRobot (extra `lerobot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import make_pre_post_processors

STATE = 2
"""Leading numbers of an observation that are the state; the others are the environment's."""


def act(observation: int, actions: int, chunk: int) -> Any:
    """An ACT policy that observes a vector of `observation` numbers."""
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy

    return ACTPolicy(ACTConfig(
        **_features(observation, actions), chunk_size=chunk, n_action_steps=chunk, dim_model=64,
        n_heads=2, dim_feedforward=128, n_encoder_layers=2, use_vae=False, dropout=0.0,
        device="cpu", push_to_hub=False,
    ))


def diffusion(observation: int, actions: int) -> Any:
    """A diffusion policy that takes two observations and answers with 8 actions."""
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
    from lerobot.policies.diffusion.modeling_diffusion import DiffusionPolicy

    return DiffusionPolicy(DiffusionConfig(
        **_features(observation, actions), down_dims=(8, 16), n_groups=4,
        diffusion_step_embed_dim=8, num_inference_steps=2, device="cpu", push_to_hub=False,
    ))


def save(policy: Any, folder: Path) -> None:
    """Save a policy, with processors that leave numbers as they are."""
    config = policy.config
    stats = {
        name: {
            "mean": torch.zeros(each.shape), "std": torch.ones(each.shape),
            "min": -torch.ones(each.shape), "max": torch.ones(each.shape),
        }
        for name, each in (config.input_features | config.output_features).items()
    }
    policy.save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(folder)


def _features(observation: int, actions: int) -> dict[str, Any]:
    inputs = {
        "observation.state": PolicyFeature(FeatureType.STATE, (STATE,)),
        "observation.environment_state": PolicyFeature(FeatureType.ENV, (observation - STATE,)),
    }
    outputs = {"action": PolicyFeature(FeatureType.ACTION, (actions,))}
    return {"input_features": inputs, "output_features": outputs}
