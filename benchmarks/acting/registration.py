"""From a published frame to the written action slot, without the forward pass.

The real inference driver (adaptive staggering, claim lock, stacked observation, action slot) runs
in its own process with a policy that answers at once. Beside it the same loop over
`multiprocessing.Queue`: the stacked frames one way, the action back. Frames come at 60 Hz, the two
take turns in short blocks, so that both see the same machine. The time begins when the call that
publishes the frame (or puts it into the queue) has returned, and, as the second figure, when that
call begins. Ours ends when the slot is written, since the environment reads it without a wait; the
peer's when the action is out of its queue.

Beside them stands the machine's floor, how late a bare sleep of one tick ends, with how long before
a frame the inference process chose to wake up for it, and what share of a core it spent awake so.

    rtagent bench registration [--frames N] [--realtime auto|off] [--json]
"""

from __future__ import annotations

import multiprocessing
import queue
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import Result, at_least, command_line, report
from benchmarks.worlds.shapes import STACK, blueprint
from rtagent.clock import MonotonicClock
from rtagent.config_sources import load_config
from rtagent.inference.driver import Driver
from rtagent.inference.weights import Weights
from rtagent.memory.control import DesiredState
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.memory.weights import WeightsInfo
from rtagent.memory.world import World, WorldHandles, WorldMemory
from rtagent.processes.pipe import Pipe
from rtagent.processes.scheduling import prefer_acting, sharpen_timers
from rtagent.processes.wake_ahead import WakeAhead
from rtagent.processes.worker import Assignment, WorkerContext
from rtagent.staggering.arbiter import Deposited

PERIOD_S = 1 / 60
LIMIT_US = 150.0
LEAST_RATIO = 5.0
BLOCKS = 6
SKIPPED = 20
ANSWER_S = 1.0
"""A frame without an action after so long is counted as unanswered."""
FLOOR_SLEEPS = 60
"""Bare sleeps measured before each block."""
POLL_S = 0.001


class InstantPolicy:
    """Answers without a forward pass, and ignores weights."""

    pieces = 1

    def fill(self, piece: int, values: Any) -> None:
        """Nothing is filled."""

    def swap(self) -> None:
        """Nothing is swapped."""

    def values(self, observation: np.ndarray) -> np.ndarray:
        """The same values for every observation."""
        return np.zeros(3, np.float32)


class NoPipe(Pipe):
    """A pipe that leads nowhere."""

    def __init__(self) -> None:
        """Of no socket."""

    def send(self, message: Any, wait_s: float = 0.0) -> bool:
        """Drop the message."""
        return True


def context_of(handles: WorldHandles, folder: str) -> WorkerContext[InferenceRecord]:
    """The context of an inference process without a supervisor."""
    world, assignment = World(handles), Assignment("inference", 0, "", handles, Path(folder))
    record = world.metrics.inference[0]
    return WorkerContext(assignment, world, record, MonotonicClock(), NoPipe())


def drive(handles: WorldHandles, folder: str, written: Any, realtime: str) -> None:
    """Body of the inference process; `written` gets the time of the action for each frame."""
    sharpen_timers()
    prefer_acting(realtime)
    context = context_of(handles, folder)
    world = context.world
    policy: Any = InstantPolicy()
    weights = Weights(world.weights, 1, policy, context.clock)
    driver = Driver(context, policy, weights)
    deposit = world.actions.deposit

    def timed(item: Deposited) -> None:
        deposit(item)
        written[item.frame] = time.monotonic()

    world.actions.deposit = timed  # type: ignore[method-assign]
    driver.run()


def answer(frames: Any, actions: Any, realtime: str) -> None:
    """Body of the peer's process: the same over queues, with the same priority and timers."""
    sharpen_timers()
    prefer_acting(realtime)
    policy = InstantPolicy()
    while (item := frames.get()) is not None:
        number, observation = item
        actions.put((number, int(policy.values(observation).argmax())))


Span = tuple[float, float]
"""Microseconds from the return of the publishing call, and from its beginning."""


@dataclass
class Measured:
    """Each frame's spans, and figures of the machine beside them.

    Attributes:
        ours, theirs: spans of the driver, and over queues.
        sleeps_us: lateness of bare sleeps of one tick.
        ahead_us: how long before a frame the driver chose to wake up in the end.
        share: share of a core that the driver spent awake before frames.
    """

    ours: list[Span]
    theirs: list[Span]
    sleeps_us: list[float]
    ahead_us: float = 0.0
    share: float = 0.0


def bare_sleeps() -> list[float]:
    """Microseconds by which sleeps of a tick end late, in this process."""
    late = []
    for _ in range(FLOOR_SLEEPS):
        wake = time.monotonic() + PERIOD_S
        time.sleep(PERIOD_S)
        late.append((time.monotonic() - wake) * 1e6)
    return late


def begun(memory: WorldMemory, weights: np.ndarray) -> World:
    """The world of a memory, in which inference may begin, with these weights."""
    world = World(memory.handles)
    world.control.write(DesiredState(memory.handles.config, go=True))
    world.weights.publish(weights, WeightsInfo(0, 0))
    world.stagger.reset("adaptive", time.monotonic(), 1)
    return world


def measure(count: int, realtime: str = "auto") -> Measured:
    """Run both, in turns.

    Args:
        count: frames for each.
        realtime: auto asks for the priority that an inference process gets; off does not.
    """
    context = multiprocessing.get_context("spawn")
    sharpen_timers()
    found = Measured([], [], [])
    awake_ns = waited = number = 0
    with tempfile.TemporaryDirectory() as folder:
        memory = WorldMemory(load_config(overrides=["replay.capacity=4096"]), blueprint())
        world = begun(memory, np.zeros(1, np.float32))
        frames, actions = context.Queue(), context.Queue()
        written = context.RawArray("d", 2 * count + BLOCKS * SKIPPED)
        driver = context.Process(
            target=drive, args=(memory.handles, folder, written, realtime), daemon=True
        )
        peer = context.Process(target=answer, args=(frames, actions, realtime), daemon=True)
        for process in (driver, peer):
            process.start()
        frames.put((-1, np.zeros(STACK, np.uint8)))
        actions.get(timeout=60)
        record = world.metrics.inference[0]
        for _ in range(BLOCKS):
            found.sleeps_us += bare_sleeps()
            ticks = Ticks()
            ticks.announce(world.metrics.environment, number)
            for index in range(SKIPPED + count // BLOCKS):
                took = _ours(world, number, ticks, written)
                number += 1
                if index == SKIPPED:
                    awake_ns -= record.awake_ns
                if index >= SKIPPED and took is not None:
                    found.ours.append(took)
            awake_ns += record.awake_ns
            waited += count // BLOCKS - 1
            for index in range(SKIPPED + count // BLOCKS):
                took = _over_queues(frames, actions, index, ticks)
                if index >= SKIPPED and took is not None:
                    found.theirs.append(took)
        found.ahead_us = record.ahead_ns / 1e3
        found.share = awake_ns / 1e9 / (waited * PERIOD_S)
        frames.put(None)
        peer.join()
        driver.kill()
        driver.join()
        memory.close()
    return found


class Ticks:
    """Due times without drift, waited for as the environment process does."""

    def __init__(self) -> None:
        self._clock = MonotonicClock(WakeAhead(PERIOD_S))
        self.due = self._clock.now()

    def announce(self, environment: Any, number: int) -> None:
        """Tell the metrics that the next tick has this number, and when it is due."""
        environment.anchor_tick = number
        environment.anchor_ns = round((self.due + PERIOD_S) * 1e9)

    def wait(self) -> float:
        """Wait for the next tick; returns the time then, seconds."""
        self.due += PERIOD_S
        self._clock.sleep_until(self.due)
        return self._clock.now()


def _ours(world: World, number: int, ticks: Ticks, written: Any) -> Span | None:
    """The span of one frame until its action slot is written; None if it was not."""
    frame = np.full(STACK[1:], number % 256, np.uint8)
    start = ticks.wait()
    world.metrics.environment.behind_ns = round((start - ticks.due) * 1e9)
    world.frames.publish(number, frame, 0)
    published = time.monotonic()
    # Meanwhile this process takes no time from the driver.
    time.sleep(0.5 * PERIOD_S)
    while not (end := written[number]) and time.monotonic() < start + ANSWER_S:
        time.sleep(POLL_S)
    return ((end - published) * 1e6, (end - start) * 1e6) if end else None


def _over_queues(frames: Any, actions: Any, number: int, ticks: Ticks) -> Span | None:
    """The span of one frame over queues; None if no action came."""
    observation = np.full(STACK, number % 256, np.uint8)
    start = ticks.wait()
    frames.put((number, observation))
    published = time.monotonic()
    try:
        # That of a frame which was given up comes late, and is not this one's.
        while actions.get(timeout=ANSWER_S)[0] != number:
            pass
    except queue.Empty:
        return None
    end = time.monotonic()
    return (end - published) * 1e6, (end - start) * 1e6


def main() -> int:
    """Print both distributions and their ratio; exit code 1 if a bar is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--frames", type=at_least(2 * BLOCKS), default=600)
    parser.add_argument("--realtime", choices=("auto", "off"), default="auto")
    args = parser.parse_args()
    measured = measure(args.frames, args.realtime)
    ours, theirs = np.array(measured.ours), np.array(measured.theirs)
    asked = BLOCKS * (args.frames // BLOCKS)
    result: dict[str, Any] = {
        "frames": asked, "unanswered": {"ours": asked - len(ours), "queue": asked - len(theirs)},
        "sleep_late_us": np.percentile(measured.sleeps_us, (50, 99)).tolist(),
        "ahead_us": measured.ahead_us,
        "awake_share": measured.share,
    }
    for column, name in enumerate(("from_return", "from_call")):
        result[name] = {
            "ours_us": np.percentile(ours[:, column], (50, 99)).tolist(),
            "queue_us": np.percentile(theirs[:, column], (50, 99)).tolist(),
            "ratio": float(np.median(theirs[:, column]) / np.median(ours[:, column])),
        }
    found = result["from_return"]
    result["passed"] = found["ours_us"][0] <= LIMIT_US and found["ratio"] >= LEAST_RATIO
    return report(result, args.json, show)


def show(result: Result) -> None:
    """Print both distributions for people."""
    p50, p99 = result["sleep_late_us"]
    print(
        f"a bare sleep of one tick ends p50 {p50:.0f}, p99 {p99:.0f} us late; awake "
        f"{result['ahead_us']:.0f} us ahead of a frame, {result['awake_share']:.1%} of a core"
    )
    for name in ("from_return", "from_call"):
        (p50, p99), (queue_p50, queue_p99) = result[name]["ours_us"], result[name]["queue_us"]
        print(
            f"{name:12} ours p50 {p50:6.1f} p99 {p99:7.1f} us   queue p50 {queue_p50:6.1f} "
            f"p99 {queue_p99:7.1f} us   ratio {result[name]['ratio']:.1f}"
        )
    unanswered = result["unanswered"]
    print(
        f"unanswered within {ANSWER_S:g} s, of {result['frames']} frames: ours "
        f"{unanswered['ours']}, queue {unanswered['queue']}"
    )
    print("ok" if result["passed"] else "MISSED")


if __name__ == "__main__":
    sys.exit(main())
