"""The memory that staggered inference processes share.

Why this is correct
-------------------
Layout: a membership block, a plan block, then four arrays.

* **Membership** (algorithm, processes, ring) is written by the owner alone (the supervisor), with
  `reset`, `join` and `leave`, while it holds the claim lock. Workers only read it.
* **Plan and arrays** are written by whichever worker holds the claim lock, and by the owner while
  it holds it. The lock is the kernel's: it is free again the moment its holder is killed.

A holder can be killed anywhere, so whatever it leaves must be recognisable:

* Each block is written in one copy and carries its CRC32. In place of a torn plan `load` returns a
  fresh one (no samples, no anchor), from which every algorithm starts as it does after `reset`.
  A torn membership block is ignored in favour of the last good one that this process has read.
* A sample enters its array before the plan that counts it is stored. After a kill between the two
  it does not count; where it has replaced an older one, the array's sum is not the plan's, and the
  window is forgotten. The comparison is exact because inference times are whole nanoseconds.
* Every index is taken modulo its array's length, and no loop runs over a number found here.

The membership may be read without the lock: a torn read is recognised, whatever the order in which
its words arrive. A fresh plan in place of a torn one would mislead an algorithm, so every algorithm
loads the plan under the lock, which orders loads and stores on every processor
(`memory/robust_lock.py`).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_PROCESSES = 256
WINDOW = 1024
"""Inference times and lateness flags remembered."""
BOUNDS = 512
"""Delay bounds remembered: D is their peak."""
MAX_SECONDS = 3600.0
"""No inference takes longer; a larger figure is damaged."""
MAX_BOUND = 4096
"""Longest delay bound in ticks."""

Ring = tuple[int, ...]
_CRC = struct.Struct("<I4x")
_PLAN = struct.Struct("<QdddqqqqqqqqQd")
_MASK = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Membership:
    """The algorithm and the workers that take part, as the owner decided.

    Attributes:
        changes: how many times the owner has written this block.
        algorithm: a name of `register.ALGORITHMS`.
        ring: worker numbers in the order of their slots.
    """

    changes: int
    algorithm: str
    ring: Ring

    @property
    def processes(self) -> int:
        """N."""
        return len(self.ring)


@dataclass(slots=True)
class Plan:
    """Everything the workers agree on, loaded and stored as a whole under the claim lock.

    Attributes:
        generation: slots; changes whenever (T, epoch, N), the algorithm or the membership does.
        epoch: seconds; the time of slot 0. adaptive: the newest look behind a ticket.
        period: T in seconds; 0 means nothing is known yet.
        next_frame: adaptive; the frame at which the next ticket falls due, a real number.
        base: slots; ring position that owns slot 0.
        bound: adaptive; D in ticks.
        samples: inference times recorded since the window was last cut.
        total_ns: sum of the inference times in the window.
        above: inference times in a row well above the usual one.
        below: inference times in a row well below the usual one.
        flags: lateness flags recorded since the window was last cut.
        bounds: delay bounds recorded since that window was last cut.
        actions: published-expected-time; a_tot.
        tau_total: published-expected-time; tau_tot in seconds.
    """

    generation: int = 0
    epoch: float = 0.0
    period: float = 0.0
    next_frame: float = 0.0
    base: int = 0
    bound: int = 1
    samples: int = 0
    total_ns: int = 0
    above: int = 0
    below: int = 0
    flags: int = 0
    bounds: int = 0
    actions: int = 0
    tau_total: float = 0.0

    @property
    def held(self) -> int:
        """Inference times the window holds."""
        return min(self.samples, WINDOW)

    @property
    def sane(self) -> bool:
        """Whether every value is one that the algorithms could have written."""
        return (
            math.isfinite(self.epoch)
            and 0.0 <= self.period <= MAX_SECONDS
            and math.isfinite(self.next_frame)
            and 1 <= self.bound <= MAX_BOUND
            and min(self.samples, self.total_ns, self.above, self.below) >= 0
            and min(self.flags, self.bounds, self.base) >= 0
            and math.isfinite(self.tau_total)
        )


_FIELDS = attrgetter(*(field.name for field in fields(Plan)))


class StaggerState:
    """A view of the shared memory; every process makes its own over the same buffer.

    Writers hold the claim lock: workers for the plan and the arrays, the owner for everything.

    Args:
        buffer: writable, at least `nbytes(most)` long (bytearray, mmap, memoryview). It stays
            exported to this view: release the view before closing a mmap.
        most: the most processes that may take part.
    """

    def __init__(self, buffer: WriteableBuffer, most: int = MAX_PROCESSES) -> None:
        self.memory = memoryview(buffer).cast("B")
        needed = self.nbytes(most)
        if len(self.memory) < needed:
            raise ValueError(f"buffer has {len(self.memory)} bytes, {needed} are needed")
        self._most, self._members = most, _members(most)
        self._plan_at = at = _CRC.size + self._members.size
        at += _CRC.size + _PLAN.size
        self.tau_ns: NDArray[np.int64] = np.frombuffer(self.memory, np.int64, WINDOW, at)
        at += self.tau_ns.nbytes
        self.delays: NDArray[np.float64] = np.frombuffer(self.memory, np.float64, most, at)
        at += self.delays.nbytes
        self.bounds: NDArray[np.uint16] = np.frombuffer(self.memory, np.uint16, BOUNDS, at)
        at += self.bounds.nbytes
        self.late: NDArray[np.uint8] = np.frombuffer(self.memory, np.uint8, WINDOW, at)
        self._known = Membership(0, "adaptive", (0,))
        self._known_crc = -1

    @staticmethod
    def nbytes(most: int = MAX_PROCESSES) -> int:
        """Bytes of shared memory for at most so many processes."""
        blocks = 2 * _CRC.size + _members(most).size + _PLAN.size
        return blocks + WINDOW * 8 + most * 8 + BOUNDS * 2 + WINDOW

    # ---- membership, written by the owner

    @property
    def membership(self) -> Membership:
        """The last membership that was written whole."""
        (crc,) = _CRC.unpack_from(self.memory, 0)
        if crc != self._known_crc:
            body = bytes(self.memory[_CRC.size : _CRC.size + self._members.size])
            if zlib.crc32(body) == crc:
                changes, name, processes, *ring = self._members.unpack(body)
                algorithm = name.rstrip(b"\0").decode()
                self._known = Membership(changes, algorithm, tuple(ring[:processes]))
                self._known_crc = crc
        return self._known

    @property
    def algorithm(self) -> str:
        """Name of the algorithm in force."""
        return self.membership.algorithm

    @property
    def processes(self) -> int:
        """N, the number of inference processes that take part."""
        return self.membership.processes

    def reset(self, algorithm: str, epoch_time: float, processes: int) -> None:
        """Start over with workers 0..processes-1 and no measurements; the owner repairs with this.

        Args:
            algorithm: a name of `register.ALGORITHMS`; the sequential ones force one process.
            epoch_time: seconds on the drivers' clock.
            processes: N, 1 to `most`.
        """
        if not 1 <= processes <= self._most:
            raise ValueError(f"processes: must be 1 to {self._most}, not {processes}")
        ring = range(1 if algorithm.startswith("sequential") else processes)
        generation = self.load().generation
        self.delays[:] = 0.0
        self._write_membership(algorithm, tuple(ring))
        self.store(Plan(generation=generation + 1, epoch=epoch_time))

    def join(self, worker: int, now: float) -> None:
        """Let worker `worker` take part from `now` (seconds) on.

        Only the newest inference times are kept, one for each worker: a start holds other processes
        up, and what was measured meanwhile says little about later times.
        """
        if not 0 <= worker < self._most:
            raise ValueError(f"worker: must be 0 to {self._most - 1}")
        if worker not in self.membership.ring:
            self._change_ring(now, lambda ring: (*ring, worker))
            plan = self.load()
            self.keep_last(plan, min(plan.held, self.processes))
            self.store(plan)

    def leave(self, worker: int, now: float) -> None:
        """Let worker `worker` take part no longer; the last worker stays."""
        ring = self.membership.ring
        if worker in ring and len(ring) > 1:
            self._change_ring(now, lambda ring: tuple(each for each in ring if each != worker))

    def record(self, plan: Plan, tau: float) -> int:
        """Add an inference time in seconds to the window and to `plan`, which the caller stores.

        The window is forgotten first if the array does not match the plan.

        Returns:
            The inference time in nanoseconds, within bounds.
        """
        if int(np.add.reduce(self.tau_ns[: plan.held])) != plan.total_ns:
            plan.samples = plan.total_ns = plan.above = plan.below = 0
        ns = int(min(max(tau, 1e-6), MAX_SECONDS) * 1e9) if tau == tau else 1000
        at = plan.samples % WINDOW
        replaced = int(self.tau_ns[at]) if plan.samples >= WINDOW else 0
        self.tau_ns[at] = ns
        plan.samples += 1
        plan.total_ns += ns - replaced
        return ns

    def keep_last(self, plan: Plan, count: int) -> None:
        """Forget all lateness flags, and all but the last `count` inference times."""
        newest = plan.samples + np.arange(-count, 0)
        self.tau_ns[:count] = self.tau_ns[newest % WINDOW]
        plan.samples = count
        plan.total_ns = int(self.tau_ns[:count].sum())
        plan.above = plan.below = plan.flags = 0

    def _change_ring(self, now: float, change: Callable[[Ring], Ring]) -> None:
        """Change the ring, rotated so that the owner of the next slot comes first."""
        old = self.membership
        plan = self.load()
        if plan.period > 0.0:
            anchor(plan, now, plan.period, old.processes)
        self._write_membership(old.algorithm, change(old.ring[plan.base:] + old.ring[:plan.base]))
        plan.base = 0
        plan.generation += 1
        self.store(plan)

    def _write_membership(self, algorithm: str, ring: Ring) -> None:
        padded = ring + (0,) * (self._most - len(ring))
        name = algorithm.encode()
        body = self._members.pack(self.membership.changes + 1, name, len(ring), *padded)
        self.memory[: _CRC.size + len(body)] = _CRC.pack(zlib.crc32(body)) + body

    # ---- plan, written by the holder of the claim lock

    def load(self) -> Plan:
        """The plan that was stored last; a fresh one if it is torn or just being stored."""
        (crc,) = _CRC.unpack_from(self.memory, self._plan_at)
        at = self._plan_at + _CRC.size
        body = bytes(self.memory[at : at + _PLAN.size])
        plan = Plan(*_PLAN.unpack(body))
        if zlib.crc32(body) != crc or not plan.sane:
            return Plan(generation=(plan.generation + 1) & _MASK)
        return plan

    def store(self, plan: Plan) -> None:
        """Write the plan that all processes read."""
        body = _PLAN.pack(*_FIELDS(plan))
        at = self._plan_at
        self.memory[at : at + _CRC.size + len(body)] = _CRC.pack(zlib.crc32(body)) + body


def _members(most: int) -> struct.Struct:
    return struct.Struct(f"<Q32sH6x{most}H")


def anchor(plan: Plan, now: float, period: float, processes: int) -> None:
    """Give the plan a new T without moving the next slot.

    The first slot of the old plan that is not before `now` becomes slot 0 of the new plan, and
    keeps its owner; so the next process acts neither earlier nor later than it expected.

    Args:
        plan: changed in place.
        now: seconds.
        period: T in seconds, of the new plan.
        processes: N, of the old plan.
    """
    spacing = plan.period / processes
    slots = max(0, int(-((plan.epoch - now) // spacing)))
    plan.epoch += slots * spacing
    plan.base = (plan.base + slots) % processes
    plan.period = period
    plan.generation += 1
