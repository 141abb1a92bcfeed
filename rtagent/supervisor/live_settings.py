"""Settings that change while the run goes on: checked as a whole, then put into the orders.

Pure functions: a change either gives new settings, or is refused and nothing has happened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rtagent.config import Config
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.memory.control import Orders

CHANGEABLE = {
    "inference": frozenset(
        {"processes", "algorithm", "action_deadline_ms", "injected_latency_ms"}
    ),
    "learning": frozenset({"processes", "paused", "batch_size", "order"}),
    "r3": frozenset({"mode", "deadline_s", "data_budget", "memory_budget_mb"}),
}


MOST_CONFIG_BYTES = 128 << 10
"""Of the configuration as JSON: a quarter of the status."""


@dataclass(frozen=True)
class Settings:
    """What is wanted.

    Attributes:
        config: the configuration with every change so far.
        orders: what the workers are told.
    """

    config: Config
    orders: Orders

    def value(self, section: str) -> dict[str, Any]:
        """The changeable settings of a section, as the HTTP interface shows them."""
        values = getattr(self.config, section).model_dump(mode="json")
        if section == "learning":
            values["paused"] = self.orders.learning_paused
        return {name: values[name] for name in sorted(CHANGEABLE[section])}


def first_orders(config: Config) -> Orders:
    """The orders that a run starts with; one inference process where their number is `auto`."""
    inference = config.inference
    processes = 1 if inference.processes == "auto" else inference.processes
    orders = Orders(
        processes=processes,
        rows=processes,
        algorithm=inference.algorithm,
        fill=inference.fill,
        injected_latency_ms=inference.injected_latency_ms,
        injected_latency_distribution=inference.injected_latency_distribution,
        injected_latency_spread=inference.injected_latency_spread,
    )
    return _ordered(config, orders)


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


def change(settings: Settings, section: str, arguments: dict[str, Any]) -> Settings:
    """The settings after a change.

    Args:
        settings: in force.
        section: `inference`, `learning` or `r3`.
        arguments: new values by name; what is absent stays.

    Raises:
        UserError: names what cannot be changed, or the value that is not acceptable.
    """
    if unknown := set(arguments) - CHANGEABLE[section]:
        raise UserError(f"{section}.{sorted(unknown)[0]}: cannot be changed while running")
    values = settings.config.model_dump()
    paused = arguments.get("paused", settings.orders.learning_paused)
    if not isinstance(paused, bool):
        raise UserError(f"learning.paused = {paused!r}: must be true or false")
    values[section].update({name: arguments[name] for name in arguments if name != "paused"})
    config = parse_config(values)
    orders = replace(_ordered(config, settings.orders), learning_paused=paused)
    return Settings(config, orders)


def scaled(settings: Settings, processes: int) -> Settings:
    """The settings with another number of inference processes, where that is `auto`."""
    orders = settings.orders
    return replace(
        settings, orders=replace(orders, processes=processes, rows=max(orders.rows, processes))
    )


def _ordered(config: Config, orders: Orders) -> Orders:
    inference, learning, r3 = config.inference, config.learning, config.r3
    wanted = inference.processes
    processes = orders.processes if wanted == "auto" else wanted
    return replace(
        orders,
        processes=processes,
        rows=max(orders.rows, processes),
        algorithm=inference.algorithm,
        injected_latency_ms=inference.injected_latency_ms,
        learners=learning.processes,
        learning_order=learning.order,
        batch_size=learning.batch_size,
        r3_mode=r3.mode,
        deadline_s=r3.deadline_s,
        data_budget=r3.data_budget,
    )
