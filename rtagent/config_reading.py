"""Where the configuration comes from: TOML, then `RTAGENT_SECTION__KEY`, then `SECTION.KEY=VALUE`.

The later ones win. What is wrong is said in one line that names the field and the value.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rtagent.config import Config
from rtagent.errors import UserError

ENVIRONMENT_PREFIX = "RTAGENT_"


def load_config(
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    Args:
        path: a TOML file; none: the defaults, which fit the built-in game.
        overrides: `SECTION.KEY=VALUE` strings, the strongest source.
        environ: where `RTAGENT_SECTION__KEY` is looked up; the process's environment if none.

    Returns:
        The validated configuration.

    Raises:
        UserError: names the field and the value that is not acceptable.
    """
    values: dict[str, Any] = _read_toml(Path(path)) if path is not None else {}
    for name, text in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENVIRONMENT_PREFIX) and "__" in name:
            section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
            _assign(values, [section, *key.split("__")], text)
    for item in overrides:
        dotted, equals, text = item.partition("=")
        if not equals or "." not in dotted:
            raise UserError(f"--set {item}: expected SECTION.KEY=VALUE")
        _assign(values, dotted.strip().split("."), text.strip())
    return parse_config(values)


def parse_config(values: Mapping[str, Any]) -> Config:
    """Validate a nested mapping of settings.

    Raises:
        UserError: names the field and the value that is not acceptable.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(describe_validation_error(error)) from None


def describe_validation_error(error: ValidationError) -> str:
    """The first problem of a validation error as one line: field, value, reason."""
    first = error.errors()[0]
    # Beyond the field's name come the branches of a union, which say nothing to the user.
    field = ".".join(str(part) for part in first["loc"][:2]) or "configuration"
    reason = first["msg"].removeprefix("Value error, ")
    others = len({each["loc"][:2] for each in error.errors()}) - 1
    more = f" (and {others} more)" if others else ""
    if first["type"] == "extra_forbidden":
        return f"{field}: unknown key; `rtagent config schema` lists all keys{more}"
    if isinstance(first["input"], dict | BaseModel):
        return f"{field}: {reason}{more}"
    return f"{field} = {first['input']!r}: {reason}{more}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def _assign(values: dict[str, Any], keys: Sequence[str], text: str) -> None:
    """Set one nested value; the text is TOML where it parses as TOML, else a bare string."""
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    table = values
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise UserError(f"{'.'.join(keys)}: {key} is a value, not a section")
    table[keys[-1]] = value
