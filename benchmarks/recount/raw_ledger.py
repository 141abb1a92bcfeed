"""The tick ledger of a running daemon, read and counted a second time, from outside.

Nothing of the program is used here: the layout of a row is written down a second time, the memory
is found through `/proc`, and every figure is computed from the rows alone. What `/v1/stats` says
can then be held against it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

ARENA = "/memfd:rtagent-"
CALL = "call"
"""What a new process is told to run is written to such a memory, too; it is open for a moment."""
HEAD_BYTES = 64
DEFAULT, AGENT, REUSED = 0, 1, 2
ROW = np.dtype(
    [
        ("tick", "<i8"), ("observed", "<i8"), ("time_ns", "<i8"), ("registered_ns", "<i8"),
        ("lateness_ns", "<i8"), ("reward", "<f4"), ("weights_version", "<i4"), ("episode", "<i4"),
        ("worker", "<i2"), ("source", "u1"), ("flags", "u1"), ("log_probability", "<f4"),
        ("position", "<i4"), ("crc", "<u4"), ("action", "<i4"),
    ],
    align=True,
)
"""A row of a world with discrete actions."""
SUMMED = slice(64)
"""The bytes of a row that its checksum covers, before the action."""
WINDOW_S = 60.0
KEPT_S = 70.0
EPISODES = 100
JUMP_NS = 1_000_000
"""If two due times are further apart than a tick and this, the clock was anchored anew."""
NANO = 1e9

Rows = npt.NDArray[np.void]


def arenas(folder: str) -> dict[str, str]:
    """The link to each arena, by its name, among the descriptors of the process that owns them.

    Args:
        folder: `/proc/PID/fd`, where descriptors come and go.

    Raises:
        FileNotFoundError: the ledger is not among them.
    """
    found: dict[str, str] = {}
    # A copy that is just being handed to a child has a higher number, and closes soon.
    for name in sorted(os.listdir(folder), key=int):
        path = f"{folder}/{name}"
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(path)
            arena = target.removeprefix(ARENA).partition(" ")[0]
            if target.startswith(ARENA) and arena != CALL:
                found.setdefault(arena, path)
    if "ledger" not in found:
        raise FileNotFoundError(f"no ledger in {folder}")
    return found


class Ledger:
    """Rows of a daemon's ledger, each read once, in order.

    Args:
        supervisor: pid of the daemon.
        capacity: `replay.capacity`.

    Attributes:
        lost: ticks that were overwritten before they were read.
        torn: rows whose checksum was wrong.
    """

    def __init__(self, supervisor: int, capacity: int) -> None:
        descriptor = os.open(arenas(f"/proc/{supervisor}/fd")["ledger"], os.O_RDONLY)
        try:
            size = HEAD_BYTES + capacity * ROW.itemsize
            self._map = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        self._newest = np.frombuffer(self._map, "<i8", 1)
        self._rows = np.frombuffer(self._map, ROW, capacity, HEAD_BYTES)
        self._capacity = capacity
        self._next = 0
        self.lost = 0
        self.torn = 0

    @property
    def newest(self) -> int:
        """Number of the newest tick; -1 before the first."""
        return int(self._newest[0])

    def skip(self) -> None:
        """Skip the rows that have not been read yet."""
        self._next = self.newest + 1

    def read(self) -> Rows:
        """The rows since the last call."""
        numbers = np.arange(self._next, self.newest + 1)
        # A reader that is too late finds newer rows in the slots.
        rows: Rows = self._rows[numbers % self._capacity]
        self.lost += int((rows["tick"] != numbers).sum())
        rows = rows[rows["tick"] == numbers]
        self.torn += sum(_checksum(row) != int(row["crc"]) for row in rows)
        self._next = int(numbers[-1]) + 1 if len(numbers) else self._next
        return rows


def _checksum(row: np.void) -> int:
    content = row.tobytes()
    return zlib.crc32(content[SUMMED] + content[68:72])


class Recount:
    """Counts, from the rows of a ledger, every figure that follows from them alone.

    Args:
        ledger: a ledger of which nothing was read yet.
        rate_hz: ticks per second.

    Attributes:
        deaths: how often the environment died.
    """

    def __init__(self, ledger: Ledger, rate_hz: float) -> None:
        self._ledger = ledger
        self._rate_hz = rate_hz
        self._sources = np.zeros(3, np.int64)
        self._recent = np.zeros(0, ROW)
        self._last_due: int | None = None
        self._slipped: list[tuple[int, float]] = []
        self._died_at: set[int] = set()
        self._total, self._length = 0.0, 0
        self._episodes = 0
        self._finished: list[tuple[float, int]] = []
        self.deaths = 0

    @property
    def slips(self) -> int:
        """Times the clock was anchored anew, those of a replaced environment included."""
        return len(self._slipped)

    @property
    def slipped(self) -> list[tuple[int, float]]:
        """At which ticks the clock was anchored anew, and by how many seconds."""
        return [(tick, late_ns / NANO) for tick, late_ns in self._slipped]

    @property
    def newest(self) -> int:
        """Number of the newest tick."""
        return self._ledger.newest

    @property
    def missed(self) -> float:
        """Ticks that the clock gave up while its environment process lived."""
        alive = [ns for tick, ns in self._slipped if tick - 1 not in self._died_at]
        return sum(alive) * self._rate_hz / NANO

    def follow(self) -> Rows:
        """Count the rows since the last call; returns them."""
        rows = self._ledger.read()
        for row in rows:
            self._take(row)
        recent = np.concatenate([self._recent, rows])
        newest_ns = recent["time_ns"][-1] if len(recent) else 0
        self._recent = recent[recent["time_ns"] >= newest_ns - KEPT_S * NANO]
        return rows

    def note_death(self) -> None:
        """Tell that the environment has just died: its episode was not finished."""
        self.follow()
        self.deaths += 1
        self._died_at.add(int(self._recent["tick"][-1]))
        self._total, self._length = 0.0, 0

    def _take(self, row: np.void) -> None:
        self._sources[row["source"]] += 1
        due = int(row["time_ns"]) - int(row["lateness_ns"])
        if self._last_due is not None:
            late = due - self._last_due - NANO / self._rate_hz
            if late > JUMP_NS:
                self._slipped.append((int(row["tick"]), late))
        self._last_due = due
        self._total += float(row["reward"])
        self._length += 1
        if row["flags"]:
            self._episodes += 1
            self._finished = [*self._finished, (self._total, self._length)][-EPISODES:]
            self._total, self._length = 0.0, 0

    def untrue(self, stats: dict[str, Any], asked: float, answered: float) -> list[str]:
        """Figures of `/v1/stats` that differ from the ledger, while the environment is stopped.

        Args:
            stats: the answer of `/v1/stats`.
            asked, answered: monotonic seconds before and after the call.
        """
        wrong = _differences(self._counters(), stats)
        if not self.slips <= stats["clock"]["slips"] <= self.slips + self.deaths:
            wrong.append(f"clock.slips: {stats['clock']['slips']}, counted {self.slips}")
        window_s = min(WINDOW_S, stats["clock"]["window_s"])
        for seconds, figures in ((window_s, _windowed), (WINDOW_S, _last_minute)):
            windows = self._windows(asked, answered, seconds)
            each = [_differences(figures(rows), stats) for rows in windows]
            fewest: list[str] = min(each, key=len)
            wrong += fewest
        return wrong

    def _counters(self) -> dict[str, float | None]:
        default, agent, reused = map(int, self._sources)
        ticks = default + agent + reused
        recent = self._finished
        return {
            "clock.ticks": ticks,
            "actions.agent": agent,
            "actions.reused": reused,
            "actions.default": default,
            "actions.inaction_fraction": default / ticks,
            "actions.strict_inaction_fraction": (default + reused) / ticks,
            "episodes.count": self._episodes,
            "episodes.last_return": recent[-1][0] if recent else None,
            "episodes.mean_return_100": _mean([each[0] for each in recent]),
            "episodes.mean_length_100": _mean([each[1] for each in recent]),
        }

    def _windows(self, asked: float, answered: float, seconds: float) -> list[Rows]:
        """Rows of the last seconds, for each instant between the two at which they may be taken."""
        rows = self._recent[-round(WINDOW_S * self._rate_hz) - 1 :]
        first, last = (
            int(np.searchsorted(rows["time_ns"], (at - seconds) * NANO))
            for at in (asked, answered)
        )
        return [rows[start:] for start in range(first, last + 1)]


def _windowed(rows: Rows) -> dict[str, float | None]:
    acted = rows["source"] != DEFAULT
    delays = (rows["tick"] - rows["observed"])[acted]
    late = rows["lateness_ns"] / 1e3
    span = (int(rows["time_ns"][-1]) - int(rows["time_ns"][0])) / NANO
    return {
        "clock.rate_hz": (len(rows) - 1) / span,
        "clock.lateness_us.p50": float(np.percentile(late, 50)),
        "clock.lateness_us.p99": float(np.percentile(late, 99)),
        "clock.lateness_us.max": float(late.max()),
        "actions.inaction_fraction_window": float((~acted).mean()),
        "actions.delay_ticks.mean": _mean(delays),
        "actions.delay_ticks.max": float(delays.max()) if len(delays) else None,
    }


def _last_minute(rows: Rows) -> dict[str, float | None]:
    return {"actions.inaction_fraction_60s": float((rows["source"] == DEFAULT).mean())}


def _differences(counted: dict[str, float | None], stats: dict[str, Any]) -> list[str]:
    wrong = []
    for name, value in counted.items():
        said: Any = stats
        for key in name.split("."):
            said = said[key]
        same = said == value
        if said is not None and value is not None:
            same = bool(np.isclose(said, value, rtol=1e-6, atol=1e-9))
        if not same:
            wrong.append(f"{name}: {said}, counted {value}")
    return wrong


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None
