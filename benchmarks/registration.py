"""From a published frame to the written action cell, without the forward pass.

The real inference driver (adaptive staggering, claim lock, stacked observation, action cell) runs
in its own process with a policy that answers at once. Beside it the same loop over
`multiprocessing.Queue`: the stacked frames one way, the action back. Frames come at 60 Hz, the two
take turns in short blocks, so that both see the same machine. Ours ends when the cell is written,
since the environment reads it without a wait; the peer's when the action is out of its queue.

    python -m benchmarks.registration [--frames N] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rtagent.clock import MonotonicClock
from rtagent.config import load_config
from rtagent.inference.process import Driver, Weights
from rtagent.memory.blueprint import Blueprint, TensorSpec
from rtagent.memory.control import Orders
from rtagent.memory.weights import WeightsInfo
from rtagent.memory.world import World, WorldHandles, WorldMemory
from rtagent.realtime import sharpen_timers
from rtagent.staggering.arbiter import Deposited
from rtagent.worker import Assignment, WorkerContext

PERIOD_S = 1 / 60
LIMIT_US = 150.0
LEAST_RATIO = 5.0
BLOCKS = 6
SKIPPED = 20
STACK = (4, 84, 84)


class InstantPolicy:
    """Answers without a forward pass."""

    def load(self, values: Any) -> None:
        """Take no notice of weights."""

    def values(self, observation: np.ndarray) -> np.ndarray:
        """The same values for every observation."""
        return np.zeros(3, np.float32)


class Deaf:
    """A pipe to nobody."""

    def send(self, message: Any) -> None:
        """Take no notice."""


def blueprint() -> Blueprint:
    """Shapes of the built-in game."""
    return Blueprint(
        rate_hz=60.0,
        frame_shape=STACK[1:],
        frame_dtype="uint8",
        frame_stack=STACK[0],
        observation_space=gymnasium.spaces.Box(0, 255, STACK, np.uint8),
        action_space=gymnasium.spaces.Discrete(3),
        action_shape=(),
        action_dtype="int32",
        action_meanings=(),
        noop_action=0,
        network="none",
        tensors=(TensorSpec("none", (1,)),),
        screen=True,
    )


def drive(handles: WorldHandles, folder: str, written: Any) -> None:
    """Body of the inference process; notes in `written` when it wrote the action for each frame."""
    sharpen_timers()
    world = World(handles)
    assignment = Assignment("inference", 0, "", handles, Path(folder))
    record = world.board.record("inference", 0)
    context = WorkerContext(assignment, world, record, MonotonicClock(), Deaf())  # type: ignore[arg-type]
    policy = InstantPolicy()
    driver = Driver(context, policy, Weights(context, policy))  # type: ignore[arg-type]
    deposit = world.actions.deposit

    def timed(item: Deposited) -> None:
        deposit(item)
        written[item.frame] = time.monotonic()

    world.actions.deposit = timed  # type: ignore[method-assign]
    driver.run()


def answer(frames: Any, actions: Any) -> None:
    """Body of the peer's process: the same over queues."""
    policy = InstantPolicy()
    while (item := frames.get()) is not None:
        number, observation = item
        actions.put((number, int(policy.values(observation).argmax())))


def measure(count: int) -> tuple[list[float], list[float]]:
    """Microseconds per frame: ours, and over queues."""
    context = multiprocessing.get_context("spawn")
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        memory = WorldMemory(load_config(overrides=["replay.capacity=4096"]), blueprint())
        world = World(memory.handles)
        world.control.write(Orders(1, 1, "adaptive", 2, 0.0, "constant", 0.0, go=True))
        world.weights.publish(np.zeros(1, np.float32), WeightsInfo(1, 0))
        world.stagger.reset("adaptive", time.monotonic(), 1)
        frames, actions = context.Queue(), context.Queue()
        written = context.RawArray("d", 2 * count + BLOCKS * SKIPPED)
        driver = context.Process(
            target=drive, args=(memory.handles, folder, written), daemon=True
        )
        peer = context.Process(target=answer, args=(frames, actions), daemon=True)
        driver.start()
        peer.start()
        frames.put((-1, np.zeros(STACK, np.uint8)))
        actions.get(timeout=60)
        ticks = Ticks()
        number = 0
        for _ in range(BLOCKS):
            for index in range(SKIPPED + count // BLOCKS):
                took = _ours(world, number, ticks, written)
                number += 1
                if index >= SKIPPED and took is not None:
                    ours.append(took)
            for index in range(SKIPPED + count // BLOCKS):
                took = _over_queues(frames, actions, index, ticks)
                if index >= SKIPPED and took is not None:
                    theirs.append(took)
        frames.put(None)
        peer.join()
        driver.kill()
        driver.join()
        memory.close()
    return ours, theirs


class Ticks:
    """Due times without drift, waited for as the environment process does."""

    def __init__(self) -> None:
        self._clock = MonotonicClock(spin=True)
        self._due = self._clock.now()

    def wait(self) -> float:
        """Wait for the next tick; the time then, seconds."""
        self._due += PERIOD_S
        self._clock.sleep_until(self._due)
        return self._clock.now()


def _ours(world: World, number: int, ticks: Ticks, written: Any) -> float | None:
    """Microseconds until the action cell is written; takes one tick."""
    frame = np.full(STACK[1:], number % 256, np.uint8)
    start = ticks.wait()
    world.frames.publish(number, frame, 0)
    time.sleep(0.5 * PERIOD_S)
    return (written[number] - start) * 1e6 if written[number] else None


def _over_queues(frames: Any, actions: Any, number: int, ticks: Ticks) -> float | None:
    """The same over queues."""
    observation = np.full(STACK, number % 256, np.uint8)
    start = ticks.wait()
    frames.put((number, observation))
    try:
        actions.get(timeout=1.0)
    except queue.Empty:
        return None
    return (time.monotonic() - start) * 1e6


def main() -> int:
    """Print both distributions and their ratio; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=600)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours, theirs = measure(args.frames)
    result = {
        "frames": len(ours),
        "ours_us": dict(zip(("p50", "p99"), np.percentile(ours, (50, 99)), strict=True)),
        "queue_us": dict(zip(("p50", "p99"), np.percentile(theirs, (50, 99)), strict=True)),
        "ratio_p50": float(np.median(theirs) / np.median(ours)),
    }
    result["passed"] = bool(
        result["ours_us"]["p50"] <= LIMIT_US and result["ratio_p50"] >= LEAST_RATIO  # type: ignore[index, operator]
    )
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        for name in ("ours_us", "queue_us"):
            value: Any = result[name]
            print(f"{name:9} p50 {value['p50']:8.1f}  p99 {value['p99']:8.1f}")
        verdict = "ok" if result["passed"] else "MISSED"
        ratio = result["ratio_p50"]
        print(f"ratio of the medians {ratio:.1f} ({result['frames']} frames): {verdict}")
    return int(not result["passed"])


if __name__ == "__main__":
    sys.exit(main())
