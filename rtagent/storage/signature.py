"""Signatures: which environment, network and shapes stored weights or a stored replay fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rtagent.config import Config
from rtagent.memory.blueprint import Blueprint


@dataclass(frozen=True)
class Signature:
    """What weights or a replay fit.

    Attributes:
        environment: its id.
        network: name and width, or the factory.
        observation: shape and type of a stacked observation.
        action: the action space.
    """

    environment: str
    network: str
    observation: str
    action: str


def signature(config: Config, blueprint: Blueprint) -> Signature:
    """What the weights of this run fit."""
    shape = (blueprint.frame_stack, *blueprint.frame_shape)
    observation = f"{'x'.join(map(str, shape))} {blueprint.frame_dtype}"
    if blueprint.pending_actions:
        observation += f" and {blueprint.pending_actions} pending actions"
    return Signature(
        config.env.id, blueprint.network, observation,
        " ".join(str(blueprint.action_space).split()),
    )


def replay_signature(config: Config, blueprint: Blueprint) -> Signature:
    """What the replay of this run fits. Weights may go on with another cartridge, it may not; and
    its rows hold the states of a recurrent policy."""
    fits = signature(config, blueprint)
    if blueprint.state_size:
        seen = f"{fits.observation} and a state of {blueprint.state_size} numbers"
        fits = replace(fits, observation=seen)
    if blueprint.cartridge:
        fits = replace(fits, environment=f"{fits.environment} with {blueprint.cartridge}")
    return fits
