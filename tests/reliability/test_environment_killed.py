"""The environment is killed again and again; what it leaves must be true and whole."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from rtagent.clock import NANO
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Rows
from rtagent.memory.world import World
from tests.conftest import Runtimes, eventually, role
from tests.reliability.conftest import Machine, hit, pid_of, wait_for_true_inaction, whole_rows

pytestmark = [pytest.mark.process, pytest.mark.realtime]

KILLS = 4
"""Each pause before a restart is twice the one before."""
LIMIT_S = 2.0
HELD_UP_S = 4.0
"""A machine that is busy with other things may be so much later, now and then."""
SETTINGS = (
    "env.id=faulty:Faulty-v0", "policy.factory=benchmarks.reliability.injected:Policy",
    "inference.processes=2",
)
ENDS_EVERY = 200
"""Ticks of an episode of this world; picture n of a life shows n."""


def test_killed_at_random(run: Runtimes, machine: Machine) -> None:
    chance = random.Random(11)
    with run(*SETTINGS) as runtime:
        ledger = runtime.world.ledger
        lives, took_s = [0], []
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.3, 0.8))
            pid = pid_of(runtime, "environment")
            died_ns = hit(pid)
            eventually(
                lambda old=pid: pid_of(runtime, "environment") not in (old, None), "replaced"
            )
            # No other process writes rows: those that are there now are its predecessor's.
            eventually(
                lambda since=died_ns: whole_rows(runtime.world)["time_ns"][-1] > since, "ticks"
            )
            rows = whole_rows(runtime.world)
            again = rows[rows["time_ns"] > died_ns][0]
            machine.measure()
            lives.append(int(again["tick"]))
            took_s.append((int(again["time_ns"]) - died_ns) / NANO)
        start = ledger.newest
        eventually(lambda: ledger.newest > start + 20, "the world goes on")
        rows = whole_rows(runtime.world)
        assert np.median(took_s) <= machine.allows(LIMIT_S), took_s
        assert max(took_s) <= machine.allows(HELD_UP_S), took_s
        assert role(runtime, "environment")["restarts"] == KILLS
        # The time without a world is no secret.
        assert runtime.stats()["clock"]["slips"] >= KILLS
        check_episodes(rows, lives)
        check_frames(runtime.world, rows, lives)
        check_transitions(rows, runtime.world)
        wait_for_true_inaction(runtime)


def check_episodes(rows: Rows, lives: list[int]) -> None:
    """Each life begins an episode, and its predecessor's last one is truncated, not terminal."""
    ends = np.flatnonzero(rows["flags"])
    expected = dict.fromkeys((first - 1 for first in lives[1:]), TRUNCATED)
    for first, last in zip(lives, [*lives[1:], len(rows)], strict=True):
        expected |= dict.fromkeys(range(first + ENDS_EVERY - 1, last, ENDS_EVERY), TERMINATED)
    assert {int(tick): int(rows["flags"][tick]) for tick in ends} == expected
    # A new number after each of them, and at no other tick.
    numbers = np.concatenate([[0], np.cumsum(rows["flags"][:-1] != 0)])
    np.testing.assert_array_equal(rows["episode"], numbers)


def check_frames(world: World, rows: Rows, lives: list[int]) -> None:
    """Each frame shows the picture of its own tick, and knows where its episode began."""
    starts = np.concatenate([[0], np.flatnonzero(rows["flags"]) + 1])
    absent = 0
    for first, last in zip(lives, [*lives[1:], len(rows)], strict=True):
        for tick in range(first, last):
            frame = world.frames.frame(tick)
            if frame is None:
                # Killed after the row and before the frame; the number is not given again.
                assert tick == last - 1
                absent += 1
                continue
            assert (frame == (tick - first + 1) % 256).all()
            begun = world.frames.episode_starts[tick % world.frames.capacity]
            assert begun == starts[np.searchsorted(starts, tick, "right") - 1]
    assert absent <= len(lives)


def check_transitions(rows: Rows, world: World) -> None:
    """What learners make of the rows stays within an episode; truncation is no end of value."""
    learning = world.config.learning
    index = DecisionIndex(len(rows), rows.dtype["action"], learning.gamma, learning.n_step)
    index.feed(rows)
    made = index.get(np.arange(*index.span))
    episodes = rows["episode"]
    assert len(made.frame) > KILLS
    np.testing.assert_array_equal(episodes[made.frame], episodes[made.next_frame])
    truncated = set(episodes[rows["flags"] == TRUNCATED])
    assert not truncated & set(episodes[made.frame[made.terminal]])
    assert truncated & set(episodes[made.frame])
