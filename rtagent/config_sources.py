"""Where the configuration comes from: TOML, then `RTAGENT_SECTION__KEY`, then `SECTION.KEY=VALUE`.

The later ones win. An error is one line that names the field and the value.
"""

from __future__ import annotations

import difflib
import json
import os
import sysconfig
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import date, time
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.files.toml_file import check_levels, parse_toml, read_toml
from rtagent.logs.shortening import LINE_CHARACTERS, short_text

ENVIRONMENT_PREFIX = "RTAGENT_"
_FORMS = {
    "policy.factory": "package.module:callable",
    "policy.device": "cpu or cuda:N",
    "learning.device": "auto, cpu or cuda:N",
    "service.allowed_hosts": "a host's name or address, with or without :PORT",
    "cluster.name": "1 to 64 letters, digits, dots, underscores and hyphens",
}
"""The form of settings that have to match a regular expression, in words."""


def load_config(
    path: str | Path | Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    Args:
        path: a TOML file, or its content as a mapping, `{"env": {"id": ...}}`, in which `env.id`,
            `env.default_action` and `policy.factory` may be the class or function itself, if it can
            be imported. If None, the defaults, which fit the built-in game.
        overrides: `SECTION.KEY=VALUE` strings, the strongest source.
        environ: where `RTAGENT_SECTION__KEY` is looked up; the process's environment if None.

    Returns:
        The validated configuration.

    Raises:
        UserError: names the field and the value that is not acceptable.
    """
    if isinstance(overrides, str):
        raise UserError(f"{overrides}: expected a list of SECTION.KEY=VALUE")
    values = _values_of(path)
    for name, text in sorted((os.environ if environ is None else environ).items()):
        if is_setting(name):
            section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
            _assign(values, [section, *key.split("__")], text)
    for item in overrides:
        dotted, equals, text = item.partition("=")
        if not equals or "." not in dotted:
            raise UserError(f"--set {item}: expected SECTION.KEY=VALUE")
        _assign(values, dotted.strip().split("."), text.strip())
    try:
        check_levels(values)
    except ValueError as error:
        raise UserError(f"the configuration is {error}") from None
    return parse_config(values)


def is_setting(name: str) -> bool:
    """Whether an environment variable of that name is a setting."""
    return name.startswith(ENVIRONMENT_PREFIX) and "__" in name


def quoted(text: str) -> str:
    """A text for the right side of `SECTION.KEY=VALUE`, so that it is taken as it is."""
    # JSON's strings are TOML's, but those with a character that is escaped as two halves, or with
    # DEL, which only TOML escapes.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def parse_config(values: Mapping[str, Any]) -> Config:
    """Validate a nested mapping of settings.

    Raises:
        UserError: names the field and the value that is not acceptable.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(_describe(error)) from None


def _describe(error: ValidationError) -> str:
    """The first problem of a validation error as one line: field, value, reason."""
    problems = error.errors()
    first = problems[0]
    # Beyond the field's name come the branches of a union, of which each says what it takes.
    field = ".".join(str(part) for part in first["loc"][:2]) or "configuration"
    reasons = [_reason(each) for each in problems if each["loc"][:2] == first["loc"][:2]]
    reason = ", or ".join(dict.fromkeys(reasons))
    others = len({each["loc"][:2] for each in problems}) - 1
    more = f" (and {others} more)" if others else ""
    if first["type"] == "extra_forbidden":
        return f"{field}: unknown key; {_hint(_unknown(first))}{more}"
    if isinstance(first["input"], dict | BaseModel):
        return f"{field}: {reason}{more}"
    return f"{field} = {short_text(repr(first['input']), LINE_CHARACTERS)}: {reason}{more}"


def _reason(problem: Mapping[str, Any]) -> str:
    """What is wrong with one value, in words."""
    kind, field = problem["type"], ".".join(str(part) for part in problem["loc"][:2])
    if kind == "string_pattern_mismatch" and field in _FORMS:
        return f"expected {_FORMS[field]}"
    if kind == "model_type":
        return f"expected a section with keys, [{field}]"
    return plain(problem["msg"])


def plain(message: str) -> str:
    """A message of pydantic in this project's words: what a value must be."""
    message = message.replace("Input should", "must").removeprefix("Value error, ")
    return message.partition(", unable to ")[0].replace("be a valid boolean", "be true or false")


def all_keys() -> list[str]:
    """Every `section.key`."""
    return [
        f"{section}.{key}"
        for section, field in Config.model_fields.items()
        for key in cast(type[BaseModel], field.annotation).model_fields
    ]


def nearest_key(dotted: str) -> str | None:
    """The key that was probably meant: of the same name in another section, else of a similar one.

    Args:
        dotted: `section.key`, which is unknown.
    """
    section, _, name = dotted.lower().rpartition(".")
    meant = difflib.get_close_matches(section, Config.model_fields, 1)
    by_name: dict[str, str] = {}
    # The keys of the section that was probably meant come first.
    for key in sorted(all_keys(), key=lambda key: key.partition(".")[0] not in meant):
        by_name.setdefault(key.partition(".")[2], key)
    if name in by_name:
        return by_name[name]
    own = [each for each, key in by_name.items() if key.partition(".")[0] in meant]
    # Names alone are compared: the section before them would make all its keys alike.
    near = difflib.get_close_matches(name, own, 1, 0.7)
    near = near or difflib.get_close_matches(name, by_name, 1, 0.75)
    return by_name[near[0]] if near else None


def unknown_key(dotted: str) -> str | None:
    """One line about a `section.key` that does not exist; None of one that does."""
    return None if dotted in all_keys() else f"{dotted}: unknown key; {_hint(dotted)}"


def _hint(dotted: str) -> str:
    """What an unknown key was probably meant to be, or where all keys are listed."""
    near = nearest_key(dotted)
    return f"did you mean {near}?" if near else "`rtagent config schema` lists all keys"


def _unknown(problem: Mapping[str, Any]) -> str:
    """The key, or the section, that is unknown."""
    path = [str(part) for part in problem["loc"][:2]]
    if len(path) == 1 and isinstance(problem["input"], Mapping):
        # The first key of a section that does not exist is the best hint.
        path += [str(key) for key in problem["input"]][:1]
    return ".".join(path)


def _values_of(source: str | Path | Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of a source, as a copy that may be changed."""
    if source is None:
        return {}
    if not isinstance(source, Mapping):
        try:
            return read_toml(_or_installed(Path(source)))
        except OSError as error:
            raise UserError(f"cannot read the configuration {source}: {error.strerror}") from None
        except ValueError as error:
            raise UserError(f"{source} is not valid TOML: {error}") from None
    return {
        section: {key: _by_name(f"{section}.{key}", value) for key, value in settings.items()}
        if isinstance(settings, Mapping) else settings
        for section, settings in deepcopy(dict(source)).items()
    }


def _or_installed(path: Path) -> Path:
    """The file, or the installed one for a path `examples/NAME` that does not exist."""
    if path.parent == Path("examples") and not path.exists():
        # The system's own Python and `pip install --user` have other folders than its prefix.
        for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
            installed = Path(sysconfig.get_path("data", scheme), "share", "rtagent", path)
            if installed.exists():
                return installed
    return path


def _by_name(key: str, value: Any) -> Any:
    """A class or function as `module:name`, by which every process imports it; others as they are.

    Raises:
        UserError: it cannot be imported by a name.
    """
    if not callable(value):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    try:
        # A method of an object, for one, is there another function.
        importable = module != "__main__" and resolve_name(f"{module}:{name}") == value
    except (ImportError, AttributeError, ValueError):
        importable = False
    if not importable:
        raise UserError(
            f"{key} = {value!r}: other processes cannot import it; put it at the top level of a "
            "module of its own, not of the script that is run"
        )
    return f"{module}:{name}"


def _assign(values: dict[str, Any], keys: Sequence[str], text: str) -> None:
    """Set one nested value; the text is TOML where it is one value in TOML, else a bare string."""
    try:
        tables = parse_toml(f"value = {text}")
        # Further lines may hold further keys: of these nothing would be taken.
        value: Any = tables["value"] if len(tables) == 1 else text
    except tomllib.TOMLDecodeError:
        value = text
    except ValueError as error:
        raise UserError(f"{'.'.join(keys)}: {error}") from None
    if isinstance(value, date | time):
        # No setting is a date, but the name of a folder may look like one.
        value = text
    table = values
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise UserError(f"{'.'.join(keys)}: {key} is a value, not a section")
    table[keys[-1]] = value
