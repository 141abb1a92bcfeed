"""Orders as a supervisor would give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rtagent.config_sources import parse_config
from rtagent.live_config import with_values
from rtagent.memory.control import Orders


def make_orders(**changes: Any) -> Orders:
    """The orders of a run without learners, and with these changes."""
    return ordered(Orders(parse_config({"learning": {"processes": 0}})), **changes)


def ordered(orders: Orders, **changes: Any) -> Orders:
    """Orders with changes: of settings by section, unchecked, and of what else they say."""
    settings = {name: new for name, new in changes.items() if isinstance(new, Mapping)}
    state = {name: new for name, new in changes.items() if name not in settings}
    return replace(orders, config=with_values(orders.config, settings), **state)
