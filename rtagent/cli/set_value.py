"""`rtagent set SECTION.KEY=VALUE ...`: change settings of the running daemon."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rtagent.cli.daemon import Daemon, add_state_dir_option, find_daemon
from rtagent.cli.options import add_json_option, print_json
from rtagent.config_sources import all_keys, nearest_key
from rtagent.errors import UserError

SETTABLE = {
    "inference.processes": "/v1/inference",
    "inference.algorithm": "/v1/inference",
    "inference.action_deadline_ms": "/v1/inference",
    "inference.injected_latency_ms": "/v1/inference",
    "learning.processes": "/v1/learning",
    "learning.paused": "/v1/learning",
    "learning.batch_size": "/v1/learning",
    "learning.order": "/v1/learning",
    "r3.mode": "/v1/deadlines",
    "r3.deadline_s": "/v1/deadlines",
    "r3.data_budget": "/v1/deadlines",
    "r3.memory_budget_mb": "/v1/deadlines",
}
"""The call that changes each key."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "settings",
        metavar="SECTION.KEY=VALUE",
        nargs="+",
        help=f"the key is one of {', '.join(SETTABLE)}; the value none takes a limit away, and "
        "inference.processes=auto follows the inference time; those of one section change together",
    )
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Change settings and print their old and new values, once the new ones are in force.

    Raises:
        UserError: a key cannot change while running, or the daemon refuses a value. Of several
            sections, those before the refused one are in force then, and the message says so.
    """
    changes = parse_settings(args.settings)
    daemon = find_daemon(args.state_dir)
    done: list[dict[str, Any]] = []
    for path, values in changes.items():
        try:
            done += _change(daemon, path, values)
        except UserError as error:
            raise _refused(error, done) from None
    if args.json:
        print_json(done[0] if len(done) == 1 else done)
        return 0
    for each in done:
        print(f"{each['key']}: {_shown(each['before'])} -> {_shown(each['after'])}")
    return 0


def parse_settings(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The new values by dotted key, under the call that changes them, in the order given.

    Raises:
        UserError: a setting is malformed, unknown or named twice.
    """
    changes: dict[str, dict[str, Any]] = {}
    for setting in settings:
        dotted, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not text:
            raise UserError(f"set {setting}: expected SECTION.KEY=VALUE")
        if dotted not in SETTABLE:
            raise UserError(_unknown(dotted))
        values = changes.setdefault(SETTABLE[dotted], {})
        if dotted in values:
            raise UserError(f"set {setting}: {dotted} is named twice")
        values[dotted] = _value(text)
    return changes


def _change(daemon: Daemon, path: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    before = daemon.get(path)
    after = daemon.patch(path, {_name(key): value for key, value in values.items()})
    return [
        {"key": key, "before": before.get(_name(key)), "after": after.get(_name(key))}
        for key in values
    ]


def _refused(error: UserError, done: Sequence[dict[str, Any]]) -> UserError:
    if not done:
        return error
    in_force = ", ".join(f"{each['key']} = {_shown(each['after'])}" for each in done)
    return UserError(f"{error}; already in force: {in_force}")


def _unknown(dotted: str) -> str:
    if dotted not in all_keys() and (near := nearest_key(dotted)):
        return f"{dotted}: unknown key; did you mean {near}?"
    return f"{dotted} cannot be changed while the daemon runs; these can: {', '.join(SETTABLE)}"


def _name(dotted: str) -> str:
    return dotted.partition(".")[2]


def _value(text: str) -> Any:
    """A number or truth value where it reads as one, nothing for `none`, else a word."""
    if text in ("none", "null"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | str) else text


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
