"""Adding a transition: one row and one 84x84 frame, beside Stable-Baselines3 and cpprb.

Our addition is what the environment process does on every tick: `Ledger.write` and
`FrameRing.publish`, which also wakes the processes that wait for the frame. The peers add the same
transition in their smallest layout: SB3 with `optimize_memory_usage`, cpprb with `next_of` and
`stack_compress`. They are given stacks of four frames, which are made outside the measured time.
Blocks of all three take turns, pinned to one core, so that all see the same machine. Three further
figures are of ours alone: on the first lap, when each page is touched for the first time; with a
process that sleeps until the frame comes; and at 60 ticks a second under realtime priority, when
caches have gone cold in between. Needs the extra `bench`.

    rtagent bench adding [--count N] [--seconds S] [--json]
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

from benchmarks.command import Result, at_least, command_line, report
from benchmarks.replay.replay_contenders import baselines_buffer, cpprb_buffer
from benchmarks.worlds.shapes import STACK, blueprint
from rtagent.cli.jitter import measure_jitter
from rtagent.clock import MonotonicClock
from rtagent.config_sources import load_config
from rtagent.memory.world import World, WorldHandles, WorldMemory
from rtagent.processes.scheduling import enter_realtime
from rtagent.staggering.arbiter import Source

LIMIT_US = 5.0
CAPACITY = 10_000
BLOCKS = 10
PICTURES = 64
EPISODE = 1000
WAITED_HZ = 1000.0
WAITED_COUNT = 2000


class Ours:
    """The environment's part of a tick, in shared memory as the supervisor lays it out."""

    def __init__(self, pictures: np.ndarray) -> None:
        settings = [f"replay.capacity={CAPACITY}", "learning.learning_starts=1000"]
        self._pictures = pictures
        self._memory = WorldMemory(load_config(overrides=settings), blueprint())
        self.handles = self._memory.handles
        self._world = World(self.handles)

    def prepare(self, number: int) -> None:
        """Reserve memory, as the supervisor does all the time."""
        if number % 100 == 0:
            self._memory.maintain(number, CAPACITY)

    def add(self, number: int) -> None:
        """Add the transition of one tick."""
        self._world.ledger.write(
            number, observed=number - 1, time_ns=number, registered_ns=number, lateness_ns=7,
            reward=1.0, weights_version=3, episode=0, worker=0, source=Source.AGENT, flags=0,
            action=number % 3,
        )
        self._world.frames.publish(number, self._pictures[number % PICTURES], 0)

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


class StableBaselines:
    """`ReplayBuffer(optimize_memory_usage=True)` of Stable-Baselines3."""

    def __init__(self, pictures: np.ndarray) -> None:
        self._stacks = _stacks(pictures)
        self._buffer = baselines_buffer(CAPACITY, small=True)
        self._reward, self._done = np.ones(1, np.float32), np.zeros(1, bool)

    def prepare(self, number: int) -> None:
        """Make the transition."""
        self._now = self._stacks[number % PICTURES][None]
        self._next = self._stacks[(number + 1) % PICTURES][None]
        self._action = np.array([number % 3])

    def add(self, number: int) -> None:
        """Add the transition."""
        self._buffer.add(self._now, self._next, self._action, self._reward, self._done, [{}])


class Cpprb:
    """`ReplayBuffer(next_of=..., stack_compress=...)` of cpprb; the stack is its last axis."""

    def __init__(self, pictures: np.ndarray) -> None:
        self._stacks = np.ascontiguousarray(_stacks(pictures).transpose(0, 2, 3, 1))
        self._buffer = cpprb_buffer(CAPACITY, small=True)

    def prepare(self, number: int) -> None:
        """Make the transition."""
        self._now = self._stacks[number % PICTURES]
        self._next = self._stacks[(number + 1) % PICTURES]

    def add(self, number: int) -> None:
        """Add the transition."""
        self._buffer.add(obs=self._now, act=number % 3, rew=1.0, next_obs=self._next, done=0)
        if number % EPISODE == EPISODE - 1:
            self._buffer.on_episode_end()


def _stacks(pictures: np.ndarray) -> np.ndarray:
    """The last four pictures at each place of the cycle: (PICTURES, 4, height, width)."""
    order = np.add.outer(np.arange(PICTURES), np.arange(1 - STACK[0], 1)) % PICTURES
    stacks: np.ndarray = pictures[order]
    return stacks


def timed(which: Any, numbers: range, wait: Callable[[], object] = lambda: None) -> np.ndarray:
    """Microseconds of each addition.

    Args:
        which: one of the contenders.
        numbers: of the transitions.
        wait: called before each addition.
    """
    spans = np.empty(len(numbers))
    clock = time.perf_counter_ns
    for index, number in enumerate(numbers):
        which.prepare(number)
        wait()
        before = clock()
        which.add(number)
        spans[index] = (clock() - before) / 1e3
    return spans


def paced(hz: float) -> Callable[[], object]:
    """A function that waits for the next tick, from now on."""
    clock, ticks = MonotonicClock(), count(1)
    begun = clock.now()
    return lambda: clock.sleep_until(begun + next(ticks) / hz)


def wait_for_frames(handles: WorldHandles, ready: Any) -> None:
    """Body of the process that waits for every frame, as an inference process does."""
    frames, clock = World(handles).frames, MonotonicClock()
    ready.set()
    while True:
        seen = frames.newest
        frames.bell.wait_for(lambda seen=seen: frames.newest > seen, clock, 1.0)  # type: ignore[misc]


def measure(additions: int, seconds: float) -> dict[str, np.ndarray]:
    """Microseconds of every addition, by case."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (PICTURES, *STACK[1:]), dtype=np.uint8)
    ours = Ours(pictures)
    contenders = {"ours": ours, "SB3": StableBaselines(pictures), "cpprb": Cpprb(pictures)}
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    spans: dict[str, list[np.ndarray]] = {name: [] for name in contenders}
    first_lap = timed(ours, range(CAPACITY))
    for name in ("SB3", "cpprb"):
        timed(contenders[name], range(CAPACITY))
    gc.collect()
    gc.disable()
    step = additions // BLOCKS
    for block in range(BLOCKS):
        numbers = range(CAPACITY + block * step, CAPACITY + (block + 1) * step)
        for name, which in contenders.items():
            spans[name].append(timed(which, numbers))
    found = {name: np.concatenate(each) for name, each in spans.items()}
    found["ours, first lap"] = first_lap
    newest = CAPACITY + BLOCKS * step - 1
    found |= _waited_for(ours, newest, min(cores), seconds)
    ours.close()
    return found


def _waited_for(ours: Ours, newest: int, core: int, seconds: float) -> dict[str, np.ndarray]:
    """Ours with a process that sleeps until each frame comes, then at the pace of a game."""
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    waiter = context.Process(target=wait_for_frames, args=(ours.handles, ready), daemon=True)
    waiter.start()
    os.sched_setaffinity(waiter.pid or 0, {core})
    ready.wait(60)
    numbers = range(newest + 1, newest + 1 + WAITED_COUNT)
    found = {"ours, waited for": timed(ours, numbers, paced(WAITED_HZ))}
    enter_realtime("auto")
    numbers = range(numbers.stop, numbers.stop + int(60 * seconds))
    found["ours, 60 Hz"] = timed(ours, numbers, paced(60.0))
    waiter.terminate()
    waiter.join()
    return found


def main() -> int:
    """Print p50 and p99; exit code 1 if our median is above the limit, 2 if a peer is missing."""
    parser = command_line(__doc__)
    parser.add_argument("--count", type=at_least(BLOCKS), default=100_000)
    parser.add_argument("--seconds", type=at_least(0.1), default=10.0, help="of the paced part")
    args = parser.parse_args()
    floor = measure_jitter(3.0)
    found = measure(args.count, args.seconds)
    figures = {
        name: dict(zip(("p50_us", "p99_us"), np.percentile(spans, (50, 99)).tolist(), strict=True))
        for name, spans in found.items()
    }
    result = {
        "machine_floor_us": floor,
        "additions": len(found["ours"]),
        "figures": figures,
        "passed": figures["ours"]["p50_us"] <= LIMIT_US,
    }
    return report(result, args.json, show)


def show(result: Result) -> None:
    """Print a table."""
    print(f"{'':18} {'p50 us':>8} {'p99 us':>8}")
    for name, each in result["figures"].items():
        print(f"{name:18} {each['p50_us']:8.2f} {each['p99_us']:8.2f}")
    print(f"machine's floor (wake-ups, us): {result['machine_floor_us']}")


if __name__ == "__main__":
    sys.exit(main())
