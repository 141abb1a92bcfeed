"""The search in a Game Boy's memory, against the reading of a reward file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtagent.env.gameboy.ram_search import RELATIONS, Look, Place, memory_of, search
from rtagent.env.gameboy.rewards import HIGHEST, LOWEST, TYPES, Variable

SIZE = HIGHEST - LOWEST + 1


def memory(**bytes_at: int) -> np.ndarray:
    """A memory in which only some bytes can be read: xOFFSET=value, from the lowest address."""
    found = np.full(SIZE, -1, np.int16)
    for name, value in bytes_at.items():
        found[int(name[1:], 16)] = value
    return found


def test_only_what_agrees_with_every_state_is_left() -> None:
    states = [memory(x10=5, x20=5, x30=5), memory(x10=7, x20=7, x30=9), memory(x10=7, x20=8, x30=9)]
    looks = [Look(states[0], 5), Look(states[1], None, "increased"), Look(states[2], None, None)]
    places = search(looks, ["u1"])
    assert [place.address - LOWEST for place in places] == [0x10, 0x20, 0x30]
    looks[1] = Look(states[1], 7, "changed")
    looks[2] = Look(states[2], None, "unchanged")
    assert search(looks, ["u1"]) == [Place(LOWEST + 0x10, "u1", (5, 7, 7))]


@settings(max_examples=30)
@given(st.sampled_from(sorted(TYPES)), st.integers(0, SIZE - 8), st.data())
def test_numbers_are_those_of_a_reward_file(name: str, at: int, data: st.DataObject) -> None:
    """A place's number is that of `rewards.Variable`, and the search finds the place by it."""
    content = data.draw(st.lists(st.integers(0, 255), min_size=8, max_size=8))
    if name.startswith("bcd"):
        content = [byte // 26 * 16 + byte % 10 for byte in content]
    dump = np.full(SIZE, -1, np.int16)
    dump[at : at + 8] = content
    shape = TYPES[name]
    variable = Variable(LOWEST + at, shape.size, shape.bcd, shape.big_endian)
    (value,) = variable.read(lambda address: int(dump[address - LOWEST]))
    places = search([Look(dump, value)], [name])
    assert Place(LOWEST + at, name, (value,)) in places
    assert all(place.values == (value,) for place in places)


def test_what_cannot_be_read_is_no_place() -> None:
    def byte_at(address: int) -> int:
        if address % 2:
            raise IndexError
        return 1

    dump = memory_of(byte_at)
    assert len(search([Look(dump, 1)], ["u1"])) == SIZE // 2
    assert search([Look(dump)], ["u2le"]) == []


@pytest.mark.parametrize(("name", "now"), [
    ("changed", [1, 3]), ("unchanged", [2]), ("increased", [3]), ("decreased", [1]),
])
def test_relations(name: str, now: list[int]) -> None:
    before = np.full(3, 2)
    assert (np.flatnonzero(RELATIONS[name](before, np.array([1, 2, 3]))) + 1).tolist() == now
