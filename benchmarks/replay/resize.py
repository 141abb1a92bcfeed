"""Resizing the replay while two processes sample it: torn batches, pauses, memory given back.

A ring of 1 GiB (84x84 frames, stacks of four) is filled. One process goes on adding ticks under
realtime priority with its memory locked, as the environment does but faster, so that growing shows;
two processes draw batches of 32 through `Replay` and compare every byte of each batch with what
the frames of these numbers must show. The owner halves the ring and lets it grow again, ten slices
a second. Then the same time passes without a resize: the longest pause between two samples in it
is the floor of the machine (four processes on its cores, and the batches being compared). Each
pause is also given without the time that the process, ready to run, waited for a core.

    rtagent bench resize [--mib M] [--hz TICKS_PER_SECOND] [--json]
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.command import command_line
from benchmarks.worlds.shapes import STACK, blueprint
from rtagent.cli.output import print_json
from rtagent.clock import MonotonicClock
from rtagent.config import LearningConfig
from rtagent.config_sources import load_config
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.replay import Replay
from rtagent.memory.usage import meminfo
from rtagent.memory.world import World, WorldHandles, WorldMemory
from rtagent.processes.scheduling import enter_realtime, sharpen_timers
from rtagent.staggering.arbiter import Source

BATCH = 32
SAMPLERS = 2
EPISODE = 500
PATTERNS = 251
PIXELS = STACK[1] * STACK[2]
STEP_S = 0.1
LIMIT_MS = 20.0
IDLE, RESIZE, FLOOR, STOP = range(4)
PHASE, WRITER_READY = 0, 1
BATCHES, TORN, EMPTY, READY = range(4)
LONGEST, LONGEST_RUNNING = 4, 8
"""The first of four words, one for each phase."""


def pictures() -> np.ndarray:
    """(PATTERNS, PIXELS) uint8: frame n shows picture n mod PATTERNS behind its own number."""
    return np.random.default_rng(7).integers(0, 256, (PATTERNS, PIXELS), dtype=np.uint8)


class Writer:
    """Adds ticks whose content follows from their number."""

    def __init__(self, handles: WorldHandles) -> None:
        self._world = World(handles)
        self._pictures = pictures()
        self._number = self._world.ledger.newest

    def add(self) -> None:
        """One tick."""
        self._number = number = self._number + 1
        start = number - number % EPISODE
        frame = self._pictures[number % PATTERNS]
        frame[:8].view(np.int64)[0] = number
        self._world.ledger.write(
            number, observed=number - 1 if number > start else -1, time_ns=number,
            registered_ns=0, lateness_ns=0, reward=float(number % 99), weights_version=0,
            episode=number // EPISODE, worker=0, source=Source.AGENT, flags=0,
            action=number % 3,
        )
        self._world.frames.publish(number, frame.reshape(STACK[1:]), start)


def write(handles: WorldHandles, shared: Any, hz: float) -> None:
    """Body of the writing process: a burst of ticks every few milliseconds."""
    sharpen_timers()
    writer, clock = Writer(handles), MonotonicClock()
    enter_realtime("auto")
    shared[WRITER_READY] = 1
    begun, added = clock.now(), 0
    while shared[PHASE] != STOP:
        clock.sleep_until(clock.now() + 0.002)
        while added < (clock.now() - begun) * hz:
            writer.add()
            added += 1


class Checker:
    """Compares batches with what the frames must show.

    It keeps its memory, so that no page fault of the comparison counts as a pause.
    """

    def __init__(self) -> None:
        self._pictures = pictures()
        self._expected = np.zeros((BATCH, STACK[0], PIXELS), np.uint8)
        self._same = np.zeros(self._expected.shape, np.bool_)

    def torn(self, batch: Batch) -> bool:
        """Whether any byte of the batch is not as it was written."""
        return not (
            self._as_written(batch.observations.numpy())
            and self._as_written(batch.next_observations.numpy())
        )

    def _as_written(self, stacks: np.ndarray) -> bool:
        flat = stacks.reshape(*stacks.shape[:2], PIXELS)
        numbers = np.ascontiguousarray(flat[..., :8]).view(np.int64)[..., 0]
        newest = numbers[:, -1:]
        wanted = np.maximum(newest + np.arange(1 - STACK[0], 1), newest - newest % EPISODE)
        if not (numbers == wanted).all():
            return False
        np.take(self._pictures, numbers % PATTERNS, 0, out=self._expected, mode="clip")
        self._expected[..., :8] = flat[..., :8]
        return bool(np.equal(flat, self._expected, out=self._same).all())


def sample(handles: WorldHandles, shared: Any, index: int) -> None:
    """Body of a sampling process; it records its counts and the longest pause of each phase."""
    torch.set_num_threads(1)
    world, rng, checker = World(handles), np.random.default_rng(index), Checker()
    replay = Replay(world.frames, world.ledger, LearningConfig(n_step=1))
    mine = np.frombuffer(shared, np.float64)[8 + 16 * index :]
    replay.catch_up()
    before, waited = moment()
    while (phase := int(shared[PHASE])) != STOP:
        replay.refresh()
        batch = replay.sample(BATCH, rng)
        if batch is None:
            mine[EMPTY] += 1
            continue
        mine[TORN] += checker.torn(batch)
        mine[BATCHES] += 1
        now, waited_now = moment()
        pause, waiting = now - before, waited_now - waited
        mine[LONGEST + phase] = max(mine[LONGEST + phase], pause)
        mine[LONGEST_RUNNING + phase] = max(mine[LONGEST_RUNNING + phase], pause - waiting)
        before, waited = now, waited_now
        mine[READY] = 1


def moment() -> tuple[float, float]:
    """The time, and how long this thread has been ready to run while others ran: seconds."""
    while True:
        now = time.monotonic()
        waited = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        # If another thread ran between the two readings, they do not belong together.
        if time.monotonic() - now < 0.0005:
            return now, waited


class Owner:
    """The supervisor's part: one step of maintenance every 0.1 s."""

    def __init__(self, memory: WorldMemory, capacity: int) -> None:
        self._memory = memory
        self._frames = World(memory.handles).frames
        self.limit = capacity
        self.longest_step_s = 0.0

    def step(self) -> bool:
        """Do one step of maintenance; returns whether nothing was left to do."""
        begun, waited = moment()
        done = self._memory.maintain(self._frames.newest, self.limit)
        ended, waited_then = moment()
        took = ended - begun - (waited_then - waited)
        self.longest_step_s = max(self.longest_step_s, took)
        time.sleep(STEP_S)
        return done

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Do steps until a condition holds; returns the seconds that they took."""
        begun = time.monotonic()
        while not condition():
            self.step()
            if time.monotonic() - begun > 120.0:
                raise TimeoutError(f"not within two minutes: {what}")
        return time.monotonic() - begun

    def held(self) -> dict[str, int]:
        """Bytes that the rings hold, and the memory figures of the machine."""
        pages, machine = self._memory.pages(), meminfo()
        ring = pages["frames"] + pages["ledger"]
        return {"ring": ring, **{name: machine[name] for name in ("Shmem", "MemAvailable")}}

    def full(self) -> bool:
        """Whether the ring keeps as many ticks as the limit allows, without those of its guard."""
        kept = self._frames.newest - self._frames.oldest + 1
        return kept >= 0.999 * self.limit - 64


def resize(owner: Owner, shared: Any) -> dict[str, Any]:
    """Halve the ring, let it grow again, then wait as long without a resize."""
    capacity, before = owner.limit, owner.held()
    shared[PHASE] = RESIZE
    begun = time.monotonic()
    owner.limit = capacity // 2
    owner.step()
    shrinking = owner.until(owner.step, "the memory goes back")
    half = owner.held()
    owner.limit = capacity
    growing = owner.until(owner.full, "the ring grows")
    whole = owner.held()
    seconds = time.monotonic() - begun
    shared[PHASE] = FLOOR
    end = time.monotonic() + seconds
    owner.until(lambda: time.monotonic() > end, "the floor is measured")
    shared[PHASE] = STOP
    return {
        "seconds": {"shrinking": shrinking, "growing": growing, "floor": seconds},
        "mib": {
            name: {key: value / 2**20 for key, value in each.items()}
            for name, each in (("before", before), ("half", half), ("after", whole))
        },
        "longest_step_ms": {"without waiting for a core": 1e3 * owner.longest_step_s},
    }


def measure(mib: int, hz: float) -> dict[str, Any]:
    """Run everything; figures of the owner and of each sampler."""
    per_tick = PIXELS + 16 + 64
    capacity = (mib << 20) // per_tick
    settings = [f"replay.capacity={capacity}", "learning.learning_starts=64"]
    memory = WorldMemory(load_config(overrides=settings), blueprint())
    owner, filler = Owner(memory, capacity), Writer(memory.handles)
    for number in range(capacity + 64):
        filler.add()
        if number % 1000 == 0:
            memory.maintain(number, capacity)
    context = multiprocessing.get_context("spawn")
    shared = context.RawArray("d", 8 + 16 * SAMPLERS)
    words = np.frombuffer(shared, np.float64)[8:].reshape(SAMPLERS, 16)
    processes = [context.Process(target=write, args=(memory.handles, shared, hz), daemon=True)]
    processes += [
        context.Process(target=sample, args=(memory.handles, shared, index), daemon=True)
        for index in range(SAMPLERS)
    ]
    for process in processes:
        process.start()
    try:
        owner.until(lambda: bool(words[:, READY].all() and shared[WRITER_READY]), "all are ready")
        result = resize(owner, shared)
        for process in processes:
            process.join(10)
    finally:
        for process in processes:
            process.terminate()
        memory.close()
    result["ticks"] = capacity
    result["batches"] = int(words[:, BATCHES].sum())
    result["torn"] = int(words[:, TORN].sum())
    result["without_batch"] = int(words[:, EMPTY].sum())
    result["longest_pause_ms"] = {
        name: {
            "all": 1e3 * float(words[:, LONGEST + phase].max()),
            "without waiting for a core": 1e3 * float(words[:, LONGEST_RUNNING + phase].max()),
        }
        for name, phase in (("resize", RESIZE), ("floor", FLOOR))
    }
    result["within_limit"] = bool(words[:, LONGEST + RESIZE].max() <= LIMIT_MS / 1e3)
    return result


def main() -> int:
    """Print a table; exit code 1 if a batch was torn."""
    parser = command_line(__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--hz", type=float, default=6000.0, help="ticks added per second")
    args = parser.parse_args()
    result = measure(args.mib, args.hz)
    if args.json:
        print_json(result)
        return int(result["torn"] > 0)
    print(f"{'MiB':8} {'ring':>8} {'Shmem':>8} {'MemAvailable':>14}")
    for name, each in result.pop("mib").items():
        print(f"{name:8} {each['ring']:8.0f} {each['Shmem']:8.0f} {each['MemAvailable']:14.0f}")
    for name, value in result.items():
        print(f"{name:18} {value}")
    return int(result["torn"] > 0)


if __name__ == "__main__":
    sys.exit(main())
