"""What a network that carries a state along does not go with."""

from __future__ import annotations

from typing import Any

from rtagent.config.configuration import Config
from rtagent.errors import UserError


def check_recurrent(config: Config) -> None:
    """Refuse settings that do not fit a policy with a state.

    Raises:
        UserError: names the first of them.
    """
    policy, learning = config.policy, config.learning
    network = "policy.network = 'lstm'"
    if policy.factory is not None:
        network = f"policy.factory = {policy.factory!r}"
    checked: list[tuple[str, Any, Any]] = [("policy.engine", policy.engine, "torch")]
    if learning.processes:
        checked += [
            ("learning.where", learning.where, "here"),
            ("learning.prioritized", learning.prioritized, False),
            ("learning.demonstrations", learning.demonstrations, None),
            ("learning.transitions", learning.transitions, "decision"),
            ("learning.placement", learning.placement, "off"),
            ("r3.mode", config.r3.mode, "off"),
        ]
    for name, given, needed in checked:
        if given != needed:
            raise UserError(
                f"{name} = {given!r} does not fit {network}, which carries a state from one "
                f"inference to the next; use {needed!r}"
            )
