"""`rtagent config show|schema`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from rtagent.cli.options import add_config_options, add_json_option, config_of, print_json
from rtagent.config import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "action",
        choices=("show", "schema"),
        help="show: the effective configuration as TOML; schema: every key, as JSON schema",
    )
    add_config_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the configuration or its schema."""
    if args.action == "schema":
        print_json(Config.model_json_schema())
        return 0
    values = config_of(args).model_dump(mode="json")
    if args.json:
        print_json(values)
    else:
        print("\n".join(toml_lines(values)))
    return 0


def toml_lines(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A configuration as TOML that `--config` reads back; an absent value is a comment.

    Args:
        sections: tables of plain values by name.
    """
    for number, (name, table) in enumerate(sections.items()):
        if number:
            yield ""
        yield f"[{name}]"
        for key, value in table.items():
            yield f"# {key}: not set" if value is None else f"{key} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        items = (f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {', '.join(items)} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's strings, numbers and booleans are TOML's too.
    return json.dumps(value, ensure_ascii=False)
