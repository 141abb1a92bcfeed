"""The reference as Markdown, made from the code's declarations whenever the pages are built."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from html import escape
from unittest.mock import Mock, patch

from rtagent import cli
from rtagent.cli.config import markdown_lines
from service.app import create_app
from service.http.settings import Settings
from service.routes.docs import calls, inputs
from service.routes.metrics import series_name
from service.routes.pages import SECTIONS, kind_and_unit, meaning

WIDTH = "96"


def pages() -> dict[str, str]:
    """Every page by its name."""
    return {
        "command-line": command_line(), "configuration": configuration(), "http": http(),
        "figures": figures(),
    }


def configuration() -> str:
    """Every key, with its values, default and meaning."""
    text = """\
# Configuration

A TOML file (`--config`), then `RTAGENT_SECTION__KEY` in the environment, then
`--set SECTION.KEY=VALUE`; the later ones win ([how](../how-to/configure.md)). This page is
`rtagent config schema --format markdown`.
"""
    return "\n".join([text, *markdown_lines(), ""])


def command_line() -> str:
    """The help of every command, and of those within it."""
    text = "# Command line\n\nWhat `--help` says of each command.\n"
    # argparse wraps its lines to the width of the terminal.
    with patch.dict(os.environ, COLUMNS=WIDTH):
        parts = [part for name in cli.COMMANDS for part in _help(cli.command_parser(name))]
    return "\n".join([text, *parts])


def _help(parser: argparse.ArgumentParser) -> Iterator[str]:
    level = "#" * len(parser.prog.split())
    yield f"{level} {parser.prog}\n\n```text\n{parser.format_help().rstrip()}\n```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _help(inner)


def http() -> str:
    """Every call of the OpenAPI document."""
    document = create_app(Mock(), Settings(token="t" * 43)).openapi()
    intro = f"{document['info']['description']} The whole contract is `/openapi.json`."
    parts = [f"# HTTP\n\n{intro}\n"]
    for tag in document["tags"]:
        rows = [
            (f"`{method} {path}`", f"**{call['summary']}.** {_cell(call.get('description', ''))}",
             "<br>".join(f"`{name}` {_cell(text)}"
                         for name, text in inputs(document, call).items()))
            for method, path, call in calls(document, tag["name"])
        ]
        if rows:
            parts.append(f"## {tag['name'].capitalize()}\n\n{tag['description']}\n")
            parts.append(_table(("Call", "What it does", "Takes"), rows))
    return "\n".join(parts)


def figures() -> str:
    """Every figure of `GET /v1/stats`, with its name in Prometheus."""
    text = """\
# Figures and metrics

What `GET /v1/stats` and `/metrics` tell ([where it comes from](../explanations/figures.md)). Kinds:
a *measured* figure is the present value; a *counter* only grows; a *setting* is what was asked for;
an *estimate* is computed by a model or a test; a *bound* is the most that the value can be.
"""
    parts = [text]
    for section in SECTIONS:
        rows = [
            (f"`{each.path}`", _cell(meaning(each.figure)), kind_and_unit(each),
             f"`{series_name(each.figure)}`" if each.figure.metric else "")
            for each in section.figures
        ]
        if rows:
            parts.append(f"## {section.title}\n\n{section.text}\n")
            parts.append(_table(("Figure", "Meaning", "Kind, unit", "Prometheus"), rows))
    return "\n".join(parts)


def _cell(text: str) -> str:
    return escape(" ".join(text.split()), quote=False).replace("|", r"\|")


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [head := list(head), ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
