"""From 1 to 16 inference processes and back, again and again: nothing is left over."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import gone, memory_of
from rtagent.processes.kernel_state import descendants
from tests.conftest import eventually
from tests.reliability.conftest import held_bytes

pytestmark = pytest.mark.process

MANY = 16
WARM_UP = 2
MOST_GROWTH = 2 << 20
"""Bytes. One leaked process object, pipe or page per start would be more, 100 times over."""
RINGS = {"/memfd:rtagent-frames", "/memfd:rtagent-ledger"}
SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=60", "replay.capacity=20000", "learning.processes=0",
    "inference.processes=1", "run.tensorboard=false",
)


def actors(supervisor: int) -> list[str]:
    """The names of the living inference processes, as the kernel knows them."""
    names = []
    for pid in descendants(supervisor):
        with suppress(OSError):
            names += [] if gone(pid) else [Path(f"/proc/{pid}/comm").read_text().strip()]
    return sorted(name for name in names if name.startswith("rt-inference"))


def descriptors(pid: int) -> int:
    """Open descriptors, but for what the memory meter reads at this moment."""
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return sum(not name.startswith("/proc/") for name in found)


def own(pid: int) -> int:
    """Bytes of memory of a process alone: pages of the rings and of libraries come with time."""
    return memory_of(pid, "status")["RssAnon"]


def held(supervisor: int) -> int:
    """Bytes of shared memory, but for the rings, which grow with the ticks."""
    return sum(size for name, size in held_bytes(supervisor).items() if name not in RINGS)


@pytest.mark.parametrize("rounds", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_from_1_to_16_processes_and_back(rounds: int) -> None:
    with RunningDaemon(*SETTINGS) as daemon:
        supervisor = daemon.process.pid
        (fork_server,) = (pid for pid in descendants(supervisor) if is_fork_server(pid))
        family = None
        for number in range(WARM_UP + rounds):
            for count in (MANY, 1):
                answer = daemon.patch_inference(processes=count)
                assert (answer["processes"], answer["ready"]) == (count, count)
                names = sorted(f"rt-inference {index}"[:15] for index in range(count))
                assert actors(supervisor) == names
            if number == WARM_UP - 1:
                family = len(descendants(supervisor))
                open_before = descriptors(supervisor), descriptors(fork_server)
                held_before, own_before = held(supervisor), own(supervisor)
        # What somebody uses just at this moment is not left over.
        eventually(
            lambda: descriptors(supervisor) <= open_before[0]
            and descriptors(fork_server) <= open_before[1],
            "no descriptor is left over",
        )
        eventually(lambda: len(descendants(supervisor)) <= family, "no process is left over")
        eventually(lambda: held(supervisor) <= held_before, "no shared memory is left over")
        growth = own(supervisor) - own_before
        print(f"{rounds} rounds: the supervisor grew by {growth >> 10} KiB")
        assert growth <= MOST_GROWTH
        start = daemon.stats()["clock"]["ticks"]
        eventually(lambda: daemon.stats()["clock"]["ticks"] > start + 10, "it goes on")


def is_fork_server(pid: int) -> bool:
    """Whether this is the process that all the others are forked from."""
    own = Path(f"/proc/{pid}/comm").read_text()
    return not own.startswith("rt-") and "fork_server" in Path(f"/proc/{pid}/cmdline").read_text()
