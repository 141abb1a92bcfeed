"""The emulated link, in virtual time."""

from __future__ import annotations

import random

import pytest

from rtagent.cluster.link import Direction, Emulation


def arrivals(direction: Direction, until: float) -> list[tuple[float, str]]:
    """What arrives, and when."""
    times = [index / 1000 for index in range(round(until * 1000) + 1)]
    return [(at, message) for at in times for message in direction.arrived(at)]


def test_without_emulation_messages_arrive_at_once() -> None:
    direction = Direction(Emulation(), random.random)
    direction.send(1.0, 10**9, "a")
    assert direction.arrived(1.0) == ["a"]
    assert not Emulation().active


def test_half_a_round_trip_each_way() -> None:
    direction = Direction(Emulation(rtt_s=0.2), random.random)
    direction.send(0.0, 100, "a")
    assert direction.next_arrival == pytest.approx(0.1)
    assert direction.arrived(0.099) == []
    assert direction.arrived(0.1) == ["a"]


def test_bandwidth_is_shared_in_order() -> None:
    # 1,000 bytes take 8 ms at 1 Mbit/s.
    direction = Direction(Emulation(bits_per_s=1e6), random.random)
    for name in "abc":
        direction.send(0.0, 1000, name)
    found = arrivals(direction, 0.03)
    assert [name for _, name in found] == ["a", "b", "c"]
    assert [at for at, _ in found] == pytest.approx([0.008, 0.016, 0.024], abs=0.0011)


def test_a_lost_message_never_arrives() -> None:
    direction = Direction(Emulation(loss=0.25), random.Random(0).random)
    for index in range(2000):
        direction.send(0.0, 1, index)
    there = direction.arrived(10.0)
    assert 1400 < len(there) < 1600
    assert there == sorted(there)
