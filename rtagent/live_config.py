"""The settings that can change while the daemon runs: the fields of `config` that are marked so.

Pure functions. The control cell, the PATCH models, the page's form and `rtagent set` are made from
`FIELDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rtagent.config import Config
from rtagent.config_sources import parse_config, unknown_key
from rtagent.errors import UserError

Values = Mapping[str, Mapping[str, Any]]
"""Values by section and name."""


def _marked(section: type[BaseModel]) -> dict[str, FieldInfo]:
    return {
        name: field
        for name, field in section.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and "live" in field.json_schema_extra
    }


FIELDS: dict[str, dict[str, FieldInfo]] = {
    section: marked
    for section, field in Config.model_fields.items()
    if (marked := _marked(cast(type[BaseModel], field.annotation)))
}
"""The fields by section and name, in the order of their declarations."""
KEYS = [f"{section}.{name}" for section, fields in FIELDS.items() for name in fields]
"""The names of these fields, dotted."""


def as_changes(given: Any) -> dict[str, dict[str, Any]]:
    """A copy of a change that a program has written, of which only the shape is checked.

    Raises:
        UserError: it does not have the shape of a change.
    """
    if not isinstance(given, Mapping):
        raise UserError(
            f"{given!r}: expected settings by section, as in {{'inference': {{'processes': 2}}}}"
        )
    for section, values in given.items():
        if not isinstance(section, str):
            raise UserError(f"{section!r}: no section is called so")
        if not isinstance(values, Mapping):
            raise UserError(
                f"{section} = {values!r}: expected settings by name, as in {{'processes': 2}}"
            )
        for name in values:
            if not isinstance(name, str):
                raise UserError(f"{section}.{name!r}: no setting is called so")
    return {section: dict(values) for section, values in given.items()}


def live_values(config: Config) -> dict[str, dict[str, Any]]:
    """The values of all live settings, as JSON has them."""
    return {
        section: getattr(config, section).model_dump(mode="json", include=set(fields))
        for section, fields in FIELDS.items()
    }


def with_values(config: Config, values: Values) -> Config:
    """A configuration with other values, which must be valid: they are not checked here."""
    sections = {
        section: getattr(config, section).model_copy(update=dict(changes))
        for section, changes in values.items()
    }
    return config.model_copy(update=sections)


def changed(config: Config, changes: Values) -> Config:
    """A configuration after a change, which is made whole or not at all.

    Args:
        config: the configuration in force.
        changes: new values; the other settings stay.

    Raises:
        UserError: names what cannot be changed, or the value that is not acceptable.
    """
    values = config.model_dump()
    for section, new in changes.items():
        live = FIELDS.get(section, {})
        if unknown := set(new) - set(live):
            dotted = f"{section}.{min(unknown)}"
            raise UserError(unknown_key(dotted) or f"{dotted}: cannot be changed while running")
        if not live:
            raise UserError(f"{section}: nothing in it can be changed while running")
        values.setdefault(section, {}).update(new)
    return parse_config(values)
