"""A desired state as a supervisor would put it in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rtagent.config_sources import parse_config
from rtagent.live_config import with_values
from rtagent.memory.control import DesiredState


def make_desired(**changes: Any) -> DesiredState:
    """The state of a run without learners, and with these changes."""
    return with_changes(DesiredState(parse_config({"learning": {"processes": 0}})), **changes)


def with_changes(desired: DesiredState, **changes: Any) -> DesiredState:
    """A state with changes: of settings by section, unchecked, and of its other fields."""
    settings = {name: new for name, new in changes.items() if isinstance(new, Mapping)}
    state = {name: new for name, new in changes.items() if name not in settings}
    return replace(desired, config=with_values(desired.config, settings), **state)
