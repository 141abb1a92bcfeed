"""`rtagent set SECTION.KEY=VALUE ...`: change settings of the running daemon."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rtagent.cli.daemon import add_state_dir_option, find_daemon
from rtagent.cli.events import change_in_words
from rtagent.cli.options import add_json_option
from rtagent.cli.output import print_json
from rtagent.config_sources import unknown_key
from rtagent.errors import UserError
from rtagent.live_config import KEYS

PATH = "/v1/config"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "settings", metavar="SECTION.KEY=VALUE", nargs="+",
        help=f"the key is one of {', '.join(KEYS)}; the value none takes a limit away, and "
        "inference.processes=auto follows the inference time; all of them change, or none",
    )
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Change settings, all or none, and print their old and new values once they are in force."""
    changes = parse_settings(args.settings)
    daemon = find_daemon(args.state_dir)
    before = daemon.get(PATH)
    after = daemon.patch(PATH, changes)
    done = [
        {"key": f"{section}.{name}", "before": before[section].get(name),
         "after": after[section].get(name)}
        for section, values in changes.items() for name in values
    ]
    if args.json:
        print_json(done[0] if len(done) == 1 else done)
        return 0
    for each in done:
        print(f"{each['key']}: {change_in_words(each['before'], each['after'])}")
    return 0


def parse_settings(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The new values by section and name, in the order given.

    Raises:
        UserError: a setting is malformed, unknown or named twice.
    """
    changes: dict[str, dict[str, Any]] = {}
    for setting in settings:
        dotted, equals, text = (part.strip() for part in setting.partition("="))
        if not equals or not text:
            raise UserError(f"set {setting}: expected SECTION.KEY=VALUE")
        if not _is_utf8(setting):
            raise UserError(f"set {setting}: is not UTF-8")
        if dotted not in KEYS:
            raise UserError(unknown_key(dotted) or (
                f"{dotted} cannot be changed while the daemon runs; these can: {', '.join(KEYS)}"
            ))
        section, _, name = dotted.partition(".")
        values = changes.setdefault(section, {})
        if name in values:
            raise UserError(f"set {setting}: {dotted} is named twice")
        values[name] = _value(text)
    return changes


def _value(text: str) -> Any:
    """The text read as JSON, None for `none`; the text itself if it is no value of a setting.
    """
    if text in ("none", "null"):
        return None
    try:
        value = json.loads(text)
        # Python reads what JSON cannot hold: NaN, infinity, half a character.
        if not _is_utf8(json.dumps(value, allow_nan=False, ensure_ascii=False)):
            return text
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float | str | list) else text


def _is_utf8(text: str) -> bool:
    """Whether the text can be sent: an argument may be any bytes."""
    return text == text.encode("utf-8", "replace").decode()
