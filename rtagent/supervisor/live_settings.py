"""The desired state that follows from the configuration and from its changes during the run.

Pure functions: a change either gives a new state, or is refused and nothing has happened.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_core import PydanticSerializationError

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.live_config import Values, changed
from rtagent.memory.control import DesiredState

MOST_CONFIG_BYTES = 128 << 10
"""Most bytes of the configuration as JSON: a quarter of the status."""


def first_state(config: Config) -> DesiredState:
    """The state that a run starts with; one inference process where their number is `auto`."""
    return _counted(DesiredState(config))


def check_size(config: Config) -> None:
    """Refuse a configuration that cannot be part of the status.

    Raises:
        UserError: it is too long, or has a text that is not UTF-8.
    """
    try:
        size = len(config.model_dump_json())
    except PydanticSerializationError:
        raise UserError(
            "a text of the configuration, such as the name of a folder, is not UTF-8, which the "
            "record of a run has to be; give it another name"
        ) from None
    if size > MOST_CONFIG_BYTES:
        raise UserError(
            f"the configuration takes {size} bytes as JSON, {MOST_CONFIG_BYTES} at most are "
            "possible; put long values of env.kwargs into a file"
        )


def change(desired: DesiredState, changes: Values) -> DesiredState:
    """The desired state after a change of live settings; what is absent stays.

    Raises:
        UserError: names what cannot be changed, or the value that is not acceptable.
    """
    default = changes.get("env", {}).get("default_action")
    if isinstance(default, str) and default not in ("noop", "repeat"):
        # A client that may change settings must not be able to import code.
        raise UserError(
            f"env.default_action = {default!r}: noop, repeat or an action; a function can be set "
            "before the start only"
        )
    return _counted(replace(desired, config=changed(desired.config, changes)))


def check_default_action(config: Config, actions: Any) -> None:
    """Refuse a default action that the environment does not have.

    Args:
        config: its `default_action`, if it is no action but a name, is not looked at.
        actions: of the environment, as `Blueprint.actions`. If None, they are not known.

    Raises:
        UserError: one line with the value and what is wrong with it.
    """
    value = config.env.default_action
    if actions is None or isinstance(value, str):
        return
    try:
        actions.accept(value, strict=True)
    except ValueError as error:
        raise UserError(f"env.default_action = {value}: {error}") from None


def scaled(desired: DesiredState, processes: int) -> DesiredState:
    """The state with another number of inference processes, where that is `auto`."""
    return replace(desired, processes=processes, rows=max(desired.rows, processes))


def _counted(desired: DesiredState) -> DesiredState:
    wanted = desired.inference.processes
    return desired if wanted == "auto" else scaled(desired, wanted)
