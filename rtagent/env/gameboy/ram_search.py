"""The search for the place of a number in a Game Boy's memory.

Of each of several saved states it is known what the number was, or how it compares with the state
before. A place that disagrees with one of these facts is excluded. Pure: memory in, places out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtagent.env.gameboy.rewards import HIGHEST, LOWEST, TYPES, Variable

Numbers = NDArray[np.int64]

RELATIONS: dict[str, Callable[[Numbers, Numbers], NDArray[np.bool_]]] = {
    "changed": lambda before, now: now != before,
    "unchanged": lambda before, now: now == before,
    "increased": lambda before, now: now > before,
    "decreased": lambda before, now: now < before,
}


@dataclass(frozen=True)
class Look:
    """One state, and what is known of the number in it.

    Attributes:
        memory: (HIGHEST - LOWEST + 1,) the bytes; -1 where none can be read.
        value: the number. If None, it is not known.
        relation: a name of `RELATIONS`, to the state before. If None, it is not known.
    """

    memory: NDArray[np.int16]
    value: int | None = None
    relation: str | None = None


class Place(NamedTuple):
    """A place that agrees with all that is known: its address, type, and value in each state."""

    address: int
    type: str
    values: tuple[int, ...]


def search(looks: Sequence[Look], types: Sequence[str]) -> list[Place]:
    """The places that agree with every look.

    Args:
        looks: in the order in which the states were saved.
        types: to try, of `rewards.TYPES`.

    Returns:
        By size, then address.
    """
    found: list[Place] = []
    for name in sorted(types, key=lambda name: TYPES[name].size):
        numbers = [_numbers(look.memory, TYPES[name]) for look in looks]
        fits = np.logical_and.reduce([each >= 0 for each in numbers])
        for before, look, now in zip([None, *numbers], looks, numbers, strict=False):
            if look.value is not None:
                fits &= now == look.value
            if look.relation is not None and before is not None:
                fits &= RELATIONS[look.relation](before, now)
        found.extend(
            Place(LOWEST + at, name, tuple(int(each[at]) for each in numbers))
            for at in np.flatnonzero(fits).tolist()
        )
    return found


def _numbers(memory: NDArray[np.int16], kind: Variable) -> Numbers:
    """The number that begins at each address; -1 where there is none."""
    count = len(memory) - kind.size + 1
    total, valid = np.zeros(count, np.int64), np.ones(count, bool)
    order = range(kind.size) if kind.big_endian else reversed(range(kind.size))
    for offset in order:
        byte = memory[offset : offset + count].astype(np.int64)
        valid &= byte >= 0
        if kind.bcd:
            valid &= (byte >> 4 <= 9) & (byte & 15 <= 9)
            total = total * 100 + (byte >> 4) * 10 + (byte & 15)
        else:
            total = total << 8 | byte
    return np.where(valid, total, -1)


def memory_of(byte_at: Callable[[int], int]) -> NDArray[np.int16]:
    """The memory of a `Look`, by a function that gives a byte, or IndexError where there is none.
    """
    memory = np.full(HIGHEST - LOWEST + 1, -1, np.int16)
    for at in range(len(memory)):
        with suppress(IndexError):
            memory[at] = byte_at(LOWEST + at)
    return memory
