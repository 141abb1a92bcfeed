"""A Game Boy game's rewards and ends of episodes, read from its memory.

A reward file is TOML and defines them in three tables:

    [variables]
    score = { address = 0xC0A0, type = "bcd3le" }
    own_hp = { address = 0xD16C, type = "u2be", count = 6, stride = 44 }

    [reward]
    points = { increase = "score", weight = 0.01 }
    fainted = { equals = "own_hp", value = 0, weight = -1 }

    [done]
    beaten = { equals = "own_hp", value = 0 }

A type is `u` or `bcd` (two decimal digits per byte), then 1 to 4 bytes, and `le` or `be` if there
are several. A variable with `count` is an array, `stride` bytes from one element to the next.

| expression | as a reward, per frame | as an end: the episode is done when |
|---|---|---|
| increase | by how much, over all elements | an element has grown |
| decrease | by how much, over all elements | an element has shrunk |
| bits | how many bits are newly set | a bit is newly set |
| equals, value | how many elements have become it | all elements are it |
| differs, value | how many elements have ceased to be it | an element is not it |

A term counts `weight` times (default 1). With `unless = ["other"]` it counts only while none of
those terms has given a reward in this episode, earlier terms of the same frame included.

Everything in this module is pure: values in, reward out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rtagent.errors import UserError
from rtagent.files.toml_file import read_toml

LOWEST, HIGHEST = 0x8000, 0xFFFF
"""Lower addresses hold the cartridge's program."""

MAX_FILE_BYTES = 1 << 18
MAX_COUNT = 256
"""Most elements of an array, each of which is read on every frame."""

EXPRESSIONS = ("increase", "decrease", "bits", "equals", "differs")
_WITH_VALUE = ("equals", "differs")

Values = Mapping[str, tuple[int, ...]]
"""The elements of each variable, by the variable's name."""


@dataclass(frozen=True)
class Variable:
    """A variable's place in memory, and how its bytes encode a number.

    Attributes:
        address: of its first byte.
        size: bytes of an element.
        bcd: whether each byte holds two decimal digits.
        big_endian: whether the first byte is the highest.
        count: number of elements.
        stride: bytes from one element to the next.
    """

    address: int
    size: int = 1
    bcd: bool = False
    big_endian: bool = False
    count: int = 1
    stride: int = 1

    @property
    def last(self) -> int:
        """Address of its last byte."""
        return self.address + (self.count - 1) * self.stride + self.size - 1

    @property
    def maximum(self) -> int:
        """The largest number an element can be."""
        return int((100 if self.bcd else 256) ** self.size) - 1

    def read(self, byte_at: Callable[[int], int]) -> tuple[int, ...]:
        """The elements, by a function that gives the byte at an address."""
        return tuple(
            self._element([byte_at(start + offset) for offset in range(self.size)])
            for start in range(self.address, self.address + self.count * self.stride, self.stride)
        )

    def _element(self, content: list[int]) -> int:
        if not self.bcd:
            return int.from_bytes(content, "big" if self.big_endian else "little")
        number = 0
        for byte in content if self.big_endian else reversed(content):
            number = number * 100 + (byte >> 4) * 10 + (byte & 15)
        return number


TYPES = {
    kind + size + order: Variable(0, int(size), kind == "bcd", order == "be")
    for kind in ("u", "bcd")
    for size in "1234"
    for order in (("",) if size == "1" else ("le", "be"))
}
"""The types by name, each as a variable whose address has no meaning."""


@dataclass(frozen=True)
class Term:
    """One line of `[reward]`; or one of `[done]`, without `weight` and `unless`."""

    expression: str
    variable: str
    value: int = 0
    weight: float = 1.0
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rules:
    """A reward file.

    Attributes:
        variables: by name, in the order of the file.
        reward: terms by name, in the order of the file.
        done: conditions by name.
    """

    variables: Mapping[str, Variable]
    reward: Mapping[str, Term]
    done: Mapping[str, Term]

    def read(self, byte_at: Callable[[int], int]) -> dict[str, tuple[int, ...]]:
        """The elements of all variables, by a function that gives the byte at an address."""
        return {name: variable.read(byte_at) for name, variable in self.variables.items()}


class Judge:
    """Computes the rewards of one episode after the other."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._before: Values = {}
        self._given: set[str] = set()

    def begin(self, values: Values) -> None:
        """Begin an episode with the values at its start."""
        self._before = values
        self._given = set()

    def step(self, values: Values) -> tuple[float, str]:
        """Judge one frame by the variables after it.

        Returns:
            The frame's reward, and what `ended_by` gives.
        """
        reward = 0.0
        for name, term in self._rules.reward.items():
            if not self._given.isdisjoint(term.unless):
                continue
            amount = _amount(term, self._before[term.variable], values[term.variable])
            if amount:
                self._given.add(name)
                reward += term.weight * amount
        before, self._before = self._before, values
        return reward, ended_by(self._rules, before, values)


def ended_by(rules: Rules, before: Values, now: Values) -> str:
    """The name of the condition that ends an episode between two frames, empty if none does."""
    for name, term in rules.done.items():
        if _holds(term, before[term.variable], now[term.variable]):
            return name
    return ""


def load_rules(path: Path) -> Rules:
    """Read a reward file, or raise a UserError that names file, key and value."""
    try:
        return parse_rules(read_toml(path, MAX_FILE_BYTES))
    except OSError as error:
        raise UserError(f"cannot read the reward file {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def parse_rules(tables: Mapping[str, Any]) -> Rules:
    """Check the three tables; a ValueError names the key and the value that are wrong."""
    _known("", tables, ("variables", "reward", "done"))
    variables = {
        name: _variable(f"variables.{name}", entry)
        for name, entry in _table("variables", tables).items()
    }
    reward = _table("reward", tables)
    if not reward:
        raise ValueError("reward: at least one term is needed")
    done = _table("done", tables)
    return Rules(
        variables,
        {name: _term(f"reward.{name}", each, variables, reward) for name, each in reward.items()},
        {name: _term(f"done.{name}", each, variables, None) for name, each in done.items()},
    )


def _amount(term: Term, before: tuple[int, ...], now: tuple[int, ...]) -> int:
    pairs = zip(before, now, strict=True)
    if term.expression == "increase":
        return sum(max(0, new - old) for old, new in pairs)
    if term.expression == "decrease":
        return sum(max(0, old - new) for old, new in pairs)
    if term.expression == "bits":
        return sum((new & ~old).bit_count() for old, new in pairs)
    if term.expression == "equals":
        return sum(old != term.value == new for old, new in pairs)
    return sum(old == term.value != new for old, new in pairs)


def _holds(term: Term, before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    if term.expression == "equals":
        return all(each == term.value for each in now)
    if term.expression == "differs":
        return any(each != term.value for each in now)
    return _amount(term, before, now) > 0


def _variable(key: str, entry: Any) -> Variable:
    if not isinstance(entry, dict):
        raise ValueError(f'{key} = {entry!r}: expected {{ address = ..., type = "u1" }}')
    _known(key, entry, ("address", "type", "count", "stride"))
    kind = entry.get("type", "u1")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(
            f"{key}.type = {kind!r}: expected u1, u2le, u2be, ... u4be, bcd1, bcd2le, ... bcd4be"
        )
    if "address" not in entry:
        raise ValueError(f"{key}.address is missing")
    shape = TYPES[kind]
    variable = replace(
        shape,
        address=_whole(f"{key}.address", entry["address"], LOWEST, HIGHEST),
        count=_whole(f"{key}.count", entry.get("count", 1), 1, MAX_COUNT),
        stride=_whole(f"{key}.stride", entry.get("stride", shape.size), 1, HIGHEST),
    )
    if variable.last > HIGHEST:
        raise ValueError(
            f"{key}: its last byte would be at {variable.last:#x}, outside "
            f"{LOWEST:#x} to {HIGHEST:#x}"
        )
    return variable


def _term(
    key: str, entry: Any, variables: Mapping[str, Variable], terms: Mapping[str, Any] | None
) -> Term:
    """A line of `[reward]`, whose names are `terms`; or one of `[done]`, if `terms` is None."""
    if not isinstance(entry, dict):
        raise ValueError(f'{key} = {entry!r}: expected {{ increase = "variable" }} or the like')
    extra = () if terms is None else ("weight", "unless")
    _known(key, entry, (*EXPRESSIONS, "value", *extra))
    found = [each for each in EXPRESSIONS if each in entry]
    if len(found) != 1:
        raise ValueError(f"{key}: expected exactly one of {', '.join(EXPRESSIONS)}")
    expression, name = found[0], entry[found[0]]
    if not isinstance(name, str) or name not in variables:
        known = ", ".join(variables) or "none"
        raise ValueError(f"{key}.{expression} = {name!r}: unknown variable; there are: {known}")
    if (expression in _WITH_VALUE) != ("value" in entry):
        needs = "needs" if expression in _WITH_VALUE else "takes no"
        raise ValueError(f"{key}: {expression} {needs} value")
    value = _whole(f"{key}.value", entry.get("value", 0), 0, variables[name].maximum)
    weight, unless = entry.get("weight", 1), entry.get("unless", [])
    if type(weight) not in (int, float) or not abs(weight) <= sys.float_info.max:
        raise ValueError(f"{key}.weight = {weight!r}: expected a finite number")
    if not isinstance(unless, list):
        raise ValueError(f"{key}.unless = {unless!r}: expected a list of names out of reward")
    for each in unless:
        if not isinstance(each, str) or each not in (terms or {}):
            raise ValueError(f"{key}.unless: {each!r} is not in reward")
    return Term(expression, name, value, float(weight), tuple(unless))


def _whole(key: str, value: Any, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        shown = f"{value:#x}" if type(value) is int and low == LOWEST else repr(value)
        bounds = f"{low:#x} to {high:#x}" if low == LOWEST else f"{low} to {high}"
        raise ValueError(f"{key} = {shown}: expected a whole number from {bounds}")
    return value


def _table(name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{name} = {table!r}: expected a table [{name}]")
    return table


def _known(key: str, entry: Mapping[str, Any], names: tuple[str, ...]) -> None:
    for each in entry:
        if each not in names:
            full = f"{key}.{each}" if key else each
            raise ValueError(f"{full}: unknown key; expected {', '.join(names)}")
