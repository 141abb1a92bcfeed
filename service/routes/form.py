"""The dashboard's form: a control for every live setting, made from the declaration of its field.

The kind of value decides the kind of control; the label is the key in words; the help is the
description of the field with its bounds. The page's script knows no setting by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from inspect import getdoc
from typing import Any

from rtagent.config import Config
from rtagent.live_config import FIELDS
from service.routes.settings import CHANGES

UNITS = {"ms": "ms", "s": "s", "mb": "MiB"}
"""How the label writes the unit that a key ends with."""


def settings_form() -> str:
    """The sections of the form, as HTML."""
    return "\n".join(map(_section, FIELDS))


def _section(section: str) -> str:
    schema = CHANGES[section].model_json_schema()["properties"]
    fields = "\n".join(_field(f"{section}.{name}", field) for name, field in schema.items())
    about = getdoc(Config.model_fields[section].annotation) or ""
    return (
        f'<div role="group" aria-labelledby="{section}-group"><h3 id="{section}-group">'
        f"{section.title()}</h3> <p>{escape(about.partition(chr(10))[0])}</p>"
        f'<div class="fields">\n{fields}\n</div></div>'
    )


def _field(key: str, schema: Mapping[str, Any]) -> str:
    kinds = schema.get("anyOf", [schema])
    named = f'id="{key}" name="{key}" aria-describedby="{key}-help"'
    control = _control(named, kinds)
    if kinds[0]["type"] == "boolean":
        shown = f'<label class="check">{control} {_in_words(key)}</label>'
    else:
        shown = f'<label for="{key}">{_in_words(key)}</label><span class="control">{control}</span>'
    help_text, bounds = schema["description"], _bounds(kinds[0])
    if bounds not in help_text:
        help_text += f" {bounds}."
    help_text += f" In force {schema['live']}."
    return (
        f'<div class="field">{shown}<span class="now"></span><small class="help" '
        f'id="{key}-help" hidden><code>{key}</code> {escape(help_text)}</small></div>'
    )


def _in_words(key: str) -> str:
    *words, last = key.rpartition(".")[2].split("_")
    text = " ".join(words) + f", {UNITS[last]}" if last in UNITS else " ".join([*words, last])
    return text[0].upper() + text[1:]


def _control(named: str, kinds: list[dict[str, Any]]) -> str:
    """The control of a value; alternatives to the first of its kinds are words or null."""
    kind = kinds[0]
    if "enum" in kind:
        options = "".join(f"<option>{escape(each)}</option>" for each in kind["enum"])
        return f"<select {named}>{options}</select>"
    if kind["type"] == "boolean":
        return f'<input {named} type="checkbox" role="switch">'
    if kind["type"] not in ("integer", "number"):
        return f'<input {named} type="text" spellcheck="false">'
    whole = kind["type"] == "integer"
    least = kind.get("minimum", kind.get("exclusiveMinimum", 0) + whole)
    empty = ' placeholder="none"' if {"type": "null"} in kinds else ""
    number = (
        f'<input {named} type="number" min="{least:g}" max="{kind["maximum"]:.0f}" '
        f'step="{1 if whole else "any"}" inputmode="{"numeric" if whole else "decimal"}"{empty}>'
    )
    words = [each["const"] for each in kinds if "const" in each]
    return number + "".join(
        f'<label class="check"><input type="checkbox" value="{word}"> {word}</label>'
        for word in words
    )


def _bounds(kind: Mapping[str, Any]) -> str:
    """The bounds of a number in words; empty for other kinds of values."""
    if "maximum" not in kind:
        return ""
    if "minimum" in kind:
        return f"{kind['minimum']:g} to {kind['maximum']:,.0f}"
    return f"Above {kind['exclusiveMinimum']:g}, at most {kind['maximum']:,.0f}"
