"""How a figure is declared: its description, beside the type of its value.

A section of `GET /v1/stats` is a frozen dataclass whose fields are annotated with their `Figure`.
The reader returns the same class, so nothing is reported that is not declared. JSON, the OpenAPI
schema, the lines for Prometheus, the page `/figures` and the dashboard's names follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Kind = Literal["measured", "counter", "setting", "estimate", "bound"]
MS, US = "ms", "µs"
RATIO, SHARE = "ratio", "ratio, 0 to 1"
BASE_UNITS = {MS: 1e-3, US: 1e-6}
"""Factor to seconds, in which Prometheus tells times."""

S = TypeVar("S")


@dataclass(frozen=True)
class Figure:
    """The description of a figure.

    Attributes:
        meaning: one sentence; for a group of quantiles without its full stop.
        example: a value; for a group one value per part.
        unit: of the value; empty for a text, a count, or a number without unit.
        metric: its name in Prometheus without the prefix. If None, it is a text, or a number that
            only identifies.
        kind: measured: at present; counter: only grows; setting: what a user wants; estimate: by a
            model or a test; bound: the value is not larger.
        names: what the dashboard calls it; a small label stands after the large one of its group
            and a comma.
        none: when the value is None; empty if it never is.
        labels: in Prometheus, to distinguish it from other figures of the same metric.
        family: what the figures of one metric have in common, one sentence; if empty, `meaning`.
        parts: for a group, the dashboard's names of its parts.
    """

    meaning: str
    example: Any
    unit: str = ""
    metric: str | None = None
    kind: Kind = "measured"
    names: tuple[str, ...] = ()
    none: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    family: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Factor from the figure's unit to Prometheus' base unit; a count times 1 stays whole."""
        return BASE_UNITS.get(self.unit, 1)

    def part(self, name: str, part: Part, example: Any) -> Figure:
        """The figure of a part of this group."""
        quantile = part.label == "quantile"
        return replace(
            self, example=example, labels={part.label: part.value}, parts={},
            meaning=f"{self.meaning} ({name})." if quantile else self.meaning,
            family=f"{self.meaning}; quantiles, at most of the last 60 s." if quantile else "",
            names=tuple(filter(None, [self.parts.get(name)])),
        )


@dataclass(frozen=True)
class Part:
    """A figure of a group, with name and value of the label that Prometheus distinguishes it by."""

    label: str
    value: str


counter = partial(Figure, kind="counter")
setting = partial(Figure, kind="setting")
estimate = partial(Figure, kind="estimate")


@dataclass(frozen=True)
class Field:
    """A field of a section: a value with its figure, or a section of its own, or a list (`many`)
    of sections. `type` is without None, which the value may be if it is `optional`. A field whose
    default is None (`absent`) is left out of JSON while it is None.
    """

    name: str
    figure: Figure | Part | None
    section: type[Any] | None
    many: bool
    type: Any
    optional: bool
    absent: bool = False


@dataclass(frozen=True)
class Entry:
    """A figure at its place, a dotted path, and the field that declares it."""

    path: str
    figure: Figure
    field: Field

    @property
    def flag(self) -> bool:
        """Whether it is true or false; 1 and 0 in Prometheus."""
        return self.field.type is bool

    def value(self, document: Mapping[str, Any]) -> Any:
        """The value in a JSON document; None where it is unknown."""
        value: Any = document
        for key in self.path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


_FIELDS: dict[type[Any], tuple[Field, ...]] = {}
"""Fields of the sections that have been read once, since reading type hints is slow."""


def fields_of(section: type[Any]) -> tuple[Field, ...]:
    """The fields of a section, in order."""
    if section not in _FIELDS:
        hints = get_type_hints(section, include_extras=True)
        _FIELDS[section] = tuple(
            replace(_field(each.name, hints[each.name]), absent=each.default is None)
            for each in fields(section)
        )
    return _FIELDS[section]


def _field(name: str, hint: Any) -> Field:
    said = None
    if get_origin(hint) is Annotated:
        hint, said = get_args(hint)
    many = get_origin(hint) is list
    kinds = get_args(hint) if many or NoneType in get_args(hint) else (hint,)
    optional = NoneType in kinds
    kind = next(each for each in kinds if each is not NoneType)
    section = kind if isinstance(kind, type) and is_dataclass(kind) else None
    return Field(name, said, section, many, kind, optional)


def entries(section: type[Any], path: str = "") -> tuple[Entry, ...]:
    """Every figure of a section and of the sections in it, in order; without those in lists."""
    found: list[Entry] = []
    for each in fields_of(section):
        place = f"{path}{each.name}"
        if each.many:
            continue
        if each.section is None or (each.figure and not _parts(each.section)):
            assert isinstance(each.figure, Figure), place
            found.append(Entry(place, each.figure, each))
        elif isinstance(each.figure, Figure):
            found += _group(each.figure, each.section, place)
        else:
            found += entries(each.section, f"{place}.")
    return tuple(found)


def _parts(section: type[Any]) -> list[str]:
    return [each.name for each in fields_of(section) if isinstance(each.figure, Part)]


def _group(group: Figure, section: type[Any], path: str) -> list[Entry]:
    examples = dict(zip(_parts(section), group.example, strict=True))
    found = []
    for each in fields_of(section):
        figure = each.figure
        if isinstance(figure, Part):
            figure = group.part(each.name, figure, examples[each.name])
        assert figure is not None, path
        found.append(Entry(f"{path}.{each.name}", figure, each))
    return found


def text_of(section: type[Any]) -> str:
    """The docstring of a section, in one line."""
    return " ".join((section.__doc__ or "").split())


def as_json(section: Any) -> Any:
    """A section, or a value in it, as plain values."""
    if isinstance(section, list):
        return [as_json(each) for each in section]
    if hasattr(section, "__dataclass_fields__"):
        known = section.__dataclass_fields__
        return {
            name: as_json(value) for name, value in vars(section).items()
            if value is not None or known[name].default is not None
        }
    return section


def from_json(section: type[S], document: Any) -> S:
    """A section from the answer of a daemon.

    Figures that a daemon of another version does not tell are None, even if they are never None by
    their declaration.
    """
    known = document if isinstance(document, Mapping) else {}

    def value_of(each: Field) -> Any:
        value = known.get(each.name)
        if each.section is None:
            return value
        if each.many:
            return [from_json(each.section, item) for item in value or ()]
        if value is None and each.optional:
            return None
        return from_json(each.section, value)

    return section(**{each.name: value_of(each) for each in fields_of(section)})


def example(section: type[Any]) -> dict[str, Any]:
    """A section as JSON, made of the examples of its figures; lists have one element."""
    found: dict[str, Any] = {}
    for each in fields_of(section):
        if each.section is not None and not each.figure:
            inner = example(each.section)
            found[each.name] = [inner] if each.many else inner
    for entry in entries(section):
        *parents, name = entry.path.split(".")
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = entry.figure.example
    return {each.name: found[each.name] for each in fields_of(section)}
