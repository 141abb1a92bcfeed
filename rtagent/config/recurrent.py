"""The settings that do not go with a network that carries a state along."""

from __future__ import annotations

from typing import Any

from rtagent.config.configuration import Config
from rtagent.errors import UserError


def check_recurrent(config: Config) -> None:
    """Refuse settings that do not fit a policy with a state.

    Raises:
        UserError: names the first of them.
    """
    network = "policy.network = 'lstm'"
    if config.policy.factory is not None:
        network = f"policy.factory = {config.policy.factory!r}"
    needed: dict[str, list[Any]] = {"policy.engine": ["torch"]}
    if config.learning.processes:
        needed |= {
            "learning.where": ["here"], "learning.prioritized": [False],
            "learning.demonstrations": [None], "learning.transitions": ["decision"],
            "learning.placement": ["off"], "r3.mode": ["off"],
        }
    try:
        config.require(f"{network}, which carries a state from one inference to the next", needed)
    except ValueError as error:
        raise UserError(str(error)) from None
    capacity, sequence = config.replay.capacity, config.learning.whole_sequence
    # Each decision takes a tick, or more.
    if config.learning.processes and sequence * 2 > capacity:
        raise UserError(
            f"learning.burn_in + sequence + n_step = {sequence} is more than half of "
            f"replay.capacity = {capacity}: sequences of so many decisions might never fit"
        )
