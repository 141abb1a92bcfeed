"""The orders that follow from the configuration, and from its changes while the run goes on.

Pure functions: a change either gives new orders, or is refused and nothing has happened.
"""

from __future__ import annotations

from dataclasses import replace

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.live_config import Values, changed
from rtagent.memory.control import Orders

MOST_CONFIG_BYTES = 128 << 10
"""Of the configuration as JSON: a quarter of the status."""


def first_orders(config: Config) -> Orders:
    """The orders that a run starts with; one inference process where their number is `auto`."""
    return _ordered(Orders(config))


def check_size(config: Config) -> None:
    """Refuse a configuration that would leave no room for anything else in the status.

    Raises:
        UserError: it is too long.
    """
    size = len(config.model_dump_json())
    if size > MOST_CONFIG_BYTES:
        raise UserError(
            f"the configuration takes {size} bytes as JSON, {MOST_CONFIG_BYTES} at most are "
            "possible; put long values of env.kwargs into a file"
        )


def change(orders: Orders, changes: Values) -> Orders:
    """The orders after a change.

    Args:
        orders: in force.
        changes: new values of live settings; what is absent stays.

    Raises:
        UserError: names what cannot be changed, or the value that is not acceptable.
    """
    return _ordered(replace(orders, config=changed(orders.config, changes)))


def scaled(orders: Orders, processes: int) -> Orders:
    """The orders with another number of inference processes, where that is `auto`."""
    return replace(orders, processes=processes, rows=max(orders.rows, processes))


def _ordered(orders: Orders) -> Orders:
    wanted = orders.inference.processes
    return orders if wanted == "auto" else scaled(orders, wanted)
