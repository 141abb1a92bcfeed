"""`rtagent config show|schema`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rtagent.cli.options import add_config_options, add_json_option, config_of
from rtagent.cli.output import plain_table, print_json, report, stdout
from rtagent.config import Config
from rtagent.config_sources import quoted
from rtagent.errors import UserError

LEAST_COLUMNS = 80
"""Columns of the narrowest terminal in which no key of the schema is broken."""
FORMATS = ("table", "json", "markdown")


class Key(NamedTuple):
    """One key of the configuration; its values are in words, its default is empty if not set."""

    section: str
    name: str
    values: str
    default: str
    meaning: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=("show", "schema"),
        help="show: the effective configuration as TOML; schema: every key with its values, "
        "default and meaning")
    add_config_options(parser)
    add("--format", choices=FORMATS,
        help="form of the schema: table (default), JSON schema, Markdown")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the configuration or its schema."""
    form = args.format or ("json" if args.json else "table")
    if args.json and form != "json":
        raise UserError(f"--format {form}: not together with --json")
    if args.action == "schema":
        if args.config or args.overrides:
            raise UserError("--config, --set: of `show` alone; the schema is the same for all")
        _show_schema(form)
        return 0
    if args.format:
        raise UserError(f"--format {args.format}: of the schema alone; `show` is TOML, or --json")
    values = config_of(args).model_dump(mode="json")
    report(args, values, lambda sections: print("\n".join(_toml_lines(sections))))
    return 0


def keys() -> Iterator[Key]:
    """Every key of the configuration, in its order."""
    schema = Config.model_json_schema()
    for section, reference in schema["properties"].items():
        table = schema["$defs"][reference["$ref"].rpartition("/")[2]]
        for name, entry in table["properties"].items():
            default = entry.get("default")
            yield Key(
                section, name, _values(entry), "" if default is None else _toml(default),
                entry["description"],
            )


def _show_schema(form: str) -> None:
    if form == "json":
        print_json(Config.model_json_schema())
    elif form == "markdown":
        print("\n".join(markdown_lines()))
    else:
        table = plain_table("key", "values", "default", "meaning", rows=(
            (f"{section}.{name}", *rest) for section, name, *rest in keys()
        ))
        console = stdout()
        # Else nothing would be left for the other columns.
        table.columns[0].no_wrap = console.width >= LEAST_COLUMNS
        console.print(table)


def markdown_lines() -> Iterator[str]:
    """The schema in Markdown: a table for each section."""
    section = ""
    for key in keys():
        if key.section != section:
            yield from ["", f"## {key.section}", ""] if section else [f"## {key.section}", ""]
            yield from ["| Key | Values | Default | Meaning |", "| --- | --- | --- | --- |"]
            section = key.section
        default = f"`{key.default}`" if key.default else "not set"
        cells = (f"`{key.name}`", key.values, default, key.meaning)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _values(entry: Mapping[str, Any]) -> str:
    """The values that an entry of a JSON schema allows, in words."""
    if "anyOf" in entry:
        words = [_values(each) for each in entry["anyOf"] if each.get("type") != "null"]
        return ", or ".join(words)
    if "enum" in entry:
        return " | ".join(map(str, entry["enum"]))
    if "const" in entry:
        return str(entry["const"])
    kind: str = entry["type"]
    if kind == "boolean":
        return "true | false"
    if kind == "array":
        return f"list of {_values(entry.get('items') or entry['prefixItems'][0])}"
    if kind == "object":
        return "table"
    if kind == "string":
        kind = entry.get("format", "text")
    return ", ".join([kind, *_bounds(entry)])


def _bounds(entry: Mapping[str, Any]) -> Iterator[str]:
    least, most = entry.get("minimum"), entry.get("maximum")
    if least is not None and most is not None:
        yield f"{_number(least)} to {_number(most)}"
        return
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most",
             "exclusiveMaximum": "below"}
    for name, word in words.items():
        if name in entry:
            yield f"{word} {_number(entry[name])}"


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _toml_lines(sections: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A configuration as TOML that `--config` reads back; an absent value is a comment."""
    for number, (name, table) in enumerate(sections.items()):
        if number:
            yield ""
        yield f"[{name}]"
        for key, value in table.items():
            yield f"# {key}: not set" if value is None else f"{key} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        items = (f"{quoted(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {', '.join(items)} }}" if value else "{}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's numbers and booleans are TOML's too.
    return quoted(value) if isinstance(value, str) else json.dumps(value)
