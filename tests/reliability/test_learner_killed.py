"""Learners are killed in their turn, inside a publication, and anywhere else.

A learner is stopped first. If it then holds the apply lock by the kernel's own account, it cannot
leave it any more, and is killed there; otherwise it goes on, and another moment is tried.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import signal
import struct
import time
import zlib
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from rtagent import Runtime
from rtagent.clock import NANO
from rtagent.memory.arena import Arena
from rtagent.memory.array_buffer import into
from rtagent.memory.weights import BUFFERS
from rtagent.memory.world import World
from rtagent.processes.kernel_state import is_stopped
from tests.conftest import Runtimes, eventually, role
from tests.forked import Forked, forked_children
from tests.reliability.conftest import PATIENT_CLOCK, Machine, hit, pid_of, slips, whole_rows

pytestmark = [pytest.mark.process, pytest.mark.realtime]

RATE_HZ = 200.0
LEARNERS = 3
KILLS = 9
MOST_DEATHS = 4
"""Each pause before a restart is twice the one before."""
READERS = 2
LIMIT_S = 1.0
HELD_UP_S = 3.0
"""A machine that is busy with other things may be so much later, now and then."""
READER_NICE = 5
SETTINGS = (
    "env.id=CartPole-v1", f"env.rate_hz={RATE_HZ}", PATIENT_CLOCK, "inference.processes=1",
    f"learning.processes={LEARNERS}", "learning.learning_starts=100", "learning.n_step=1",
    # Large enough that copying the weights takes a while.
    "policy.network=mlp", "policy.width=8", "learning.publish_every=1",
)
FLOCK = "hhqqi4x"
"""The kernel's `struct flock`: type, whence, start, length, pid."""
_SLOTS = 1 << 16


class Readers:
    """Processes that read weights as fast as they can, and compare what they see.

    Weights with one name must be the same in every process and at every time. What was seen first
    under a name is noted in shared memory, in one word: checksum and name.
    """

    def __init__(self, forked: Forked, world: World) -> None:
        self._world = world
        count = 2 * _SLOTS + READERS + 1
        self._arena = Arena("seen", 8 * count)
        self._words = np.frombuffer(memoryview(self._arena.handle.map()), "<u8", count)
        self._forked = forked
        self._pids = [forked.start(partial(self._read, which)) for which in range(READERS)]

    def _read(self, which: int) -> None:
        os.nice(READER_NICE)
        flat = np.empty(self._world.blueprint.parameters, np.float32)
        published, learned = self._words[:_SLOTS], self._words[_SLOTS : 2 * _SLOTS]
        while not self._words[-1]:
            info = self._world.weights.read(flat)
            if info is not None:
                _compare(published, info.version, flat)
                self._words[2 * _SLOTS + which] += 1
            progress = self._world.learner.read_weights(into(flat))
            if progress is not None:
                _compare(learned, progress.updates, flat)

    @property
    def reads(self) -> list[int]:
        """How often each of them has read published weights."""
        return [int(each) for each in self._words[2 * _SLOTS : -1]]

    def end(self) -> None:
        """Let them go; raises if any has seen torn weights."""
        self._words[-1] = 1
        assert [self._forked.wait(pid) for pid in self._pids] == [0] * READERS
        self._arena.close()


def _compare(seen: np.ndarray, name: int, flat: np.ndarray) -> None:
    word = zlib.crc32(flat.tobytes()) << 32 | name
    before = int(seen[name % _SLOTS])
    same_name = before and before & 0xFFFFFFFF == name
    assert not same_name or before == word, f"torn weights {name}"
    seen[name % _SLOTS] = word


class Victims:
    """The learners of a run, and how often each has been killed."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.deaths = [0] * LEARNERS
        self._dead: set[int] = set()

    def running(self) -> dict[int, int]:
        """Index of each learner that runs, by its pid."""
        pids = {pid_of(self.runtime, f"learner {index}"): index for index in range(LEARNERS)}
        return {pid: index for pid, index in pids.items() if pid and pid not in self._dead}

    def hurry(self) -> bool:
        """Give learners normal priority: on a busy machine those of idle priority do not run.

        Returns:
            Whether all of them run.
        """
        for index in range(LEARNERS):
            pid = role(self.runtime, f"learner {index}").get("pid")
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
        return len(self.running()) == LEARNERS

    def in_its_turn(self) -> int | None:
        """The process that holds the apply lock, by the kernel's account."""
        asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(self.runtime.world.turns.lock._descriptor, fcntl.F_GETLK, asked)
        kind, _, _, _, pid = struct.unpack(FLOCK, answer)
        return None if kind == fcntl.F_UNLCK else pid

    def in_a_publication(self) -> int | None:
        """The process that has begun to publish weights, and has not finished."""
        weights = self.runtime.world.weights
        return self.in_its_turn() if -1 in weights._marks else None

    def stop_inside(self, inside: Callable[[], int | None]) -> int:
        """Stop a learner at a moment when `inside` names it; its pid."""
        candidates = {
            pid for pid, index in self.running().items() if self.deaths[index] < MOST_DEATHS
        }
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            pid = inside()
            if pid not in candidates:
                continue
            hit(pid, signal.SIGSTOP)
            eventually(lambda who=pid: is_stopped(who), "it is stopped")
            if inside() == pid:
                return pid
            hit(pid, signal.SIGCONT)
        raise AssertionError("nobody could be stopped there")

    def kill(self, pid: int) -> float:
        """Kill a learner; seconds until another one has applied a gradient."""
        self.deaths[self.running()[pid]] += 1
        self._dead.add(pid)
        state = self.runtime.world.learner
        died_ns, before = hit(pid), state.progress.updates
        eventually(lambda: state.progress.updates > before, "the turn is handed on")
        took_s = (time.monotonic_ns() - died_ns) / NANO
        assert self.in_its_turn() != pid
        return took_s


def test_killed_in_its_turn_and_in_a_publication(run: Runtimes, machine: Machine) -> None:
    chance = random.Random(7)
    with run(*SETTINGS) as runtime, forked_children() as forked:
        world, victims = runtime.world, Victims(runtime)
        eventually(victims.hurry, "all of them run")
        readers = Readers(forked, world)
        took_s = []
        for kill in range(KILLS):
            eventually(lambda: victims.hurry() or len(victims.running()) > 1, "there is a next one")
            if kill % 3 == 2:
                time.sleep(chance.uniform(0.0, 0.2))
                pids = [p for p, i in victims.running().items() if victims.deaths[i] < MOST_DEATHS]
                pid = chance.choice(pids)
            else:
                # What a victim has left in the buffers must be overwritten, or would look new.
                published = world.weights.number + BUFFERS
                eventually(lambda n=published: world.weights.number > n, "they publish")
                pid = victims.stop_inside((victims.in_its_turn, victims.in_a_publication)[kill % 3])
            took_s.append(victims.kill(pid))
            machine.measure()
        eventually(victims.hurry, "all of them are back")
        learners = world.metrics.learners[:LEARNERS]
        before = {each: each.applied for each in learners}
        eventually(
            lambda: all(each.applied > before[each] + 3 for each in learners),
            "all of them apply",
        )
        eventually(lambda: min(readers.reads) > 100, "the readers have read")
        readers.end()
        assert np.percentile(took_s, 80) <= machine.allows(LIMIT_S), sorted(took_s)
        assert max(took_s) <= machine.allows(HELD_UP_S), sorted(took_s)
        rows = whole_rows(world)
        assert machine.excuses(slips(rows, RATE_HZ), RATE_HZ)
        flat = np.empty(world.blueprint.parameters, np.float32)
        assert world.weights.read(flat) is not None
        assert np.isfinite(flat).all()
