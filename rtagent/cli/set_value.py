"""`rtagent set SECTION.KEY=VALUE`: change a setting of the running daemon."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rtagent.cli.daemon import add_state_dir_option, find_daemon
from rtagent.cli.options import add_json_option, print_json
from rtagent.errors import UserError

SETTABLE = {
    "inference.processes": "/v1/inference",
    "inference.algorithm": "/v1/inference",
    "inference.action_deadline_ms": "/v1/inference",
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
        "setting",
        metavar="SECTION.KEY=VALUE",
        help=f"the key is one of {', '.join(SETTABLE)}; the value none takes a limit away",
    )
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Change one setting and print its old and new value, once the new one is in force.

    Raises:
        UserError: the key cannot change while running, or the daemon refuses the value.
    """
    dotted, equals, text = args.setting.partition("=")
    dotted = dotted.strip()
    if not equals:
        raise UserError(f"set {args.setting}: expected SECTION.KEY=VALUE")
    if dotted not in SETTABLE:
        raise UserError(
            f"{dotted} cannot be changed while the daemon runs; these can: {', '.join(SETTABLE)}"
        )
    path, key = SETTABLE[dotted], dotted.partition(".")[2]
    daemon = find_daemon(args.state_dir)
    before = daemon.get(path).get(key)
    after = daemon.patch(path, {key: _value(text.strip())}).get(key)
    if args.json:
        print_json({"key": dotted, "before": before, "after": after})
    else:
        print(f"{dotted}: {_shown(before)} -> {_shown(after)}")
    return 0


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
