"""The replay beside Stable-Baselines3, cpprb and TorchRL: memory, and batches per second.

Transitions are stacks of four 84x84 uint8 frames; a batch is ready when states, actions, rewards,
successors and ends lie in memory of their own, as tensors, the frames as uint8. "small" is a
peer's smallest layout. A state and its successor share three of their four frames here: ours
copies these once and hands out two views of five frames, where a peer copies eight. "both stacks"
is ours without that: the same bytes as a peer.

Speed: every contender holds the same transitions, in a process of its own, for how fast a peer is
depends on the history of its allocator. Short blocks of each take turns, pinned to one core, so
that all see the same machine; a ratio is the median of the ratios of the rounds. Times are of the
processor, not of the wall: all contenders are single-threaded and never wait, and other programs
count less. `memcpy` copies the bytes of a whole batch, both stacks of each transition, and is
compared with those who copy as many; its spread is the noise of the machine.

Memory is measured from the outside: what the resident set of a fresh process has grown by (of ours,
the index of a prioritized learner), and what the kernel holds of the shared pages (frames, rows,
priorities).

    rtagent bench replay [--transitions N] [--rounds R] [--quick] [--json]
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.command import command_line
from benchmarks.process_figures import memory_of
from benchmarks.replay.replay_contenders import (
    BothStacks,
    Cpprb,
    Draw,
    Ours,
    StableBaselines,
    TorchRL,
    peer,
    pictures,
)
from benchmarks.worlds.shapes import STACK
from rtagent.cli.output import print_json
from rtagent.errors import UserError
from rtagent.learning.replay.prefetch import Prefetcher

BLOCK_S = 0.04
SIZES = (32, 512)
MEMORY_AT = 100_000
SMALL = 5_000
WARM_UP = 10
CONTENDERS = (
    "memcpy", "ours", "ours, both stacks", "SB3", "SB3 small", "cpprb", "cpprb small",
    "ours, 8 steps", "ours, prioritized", "cpprb, prioritized", "cpprb small, prioritized",
    "ours, without C", "TorchRL",
)
OPTIONAL = {"TorchRL": ("torchrl.data", "torchrl")}
"""Contenders that are left out where their package is missing."""
LIMITS = {
    "bytes per transition": 7200.0,
    "uniform / SB3": 2.5,
    "uniform / cpprb": 1.5,
    "both stacks / memcpy": 0.6,
    "prioritized / cpprb": 1.5,
}
SHOWN = (
    ("both stacks / SB3", "ours, both stacks", ("SB3", "SB3 small")),
    ("both stacks / cpprb", "ours, both stacks", ("cpprb", "cpprb small")),
    ("uniform / TorchRL", "ours", ("TorchRL",)),
    ("both stacks / TorchRL", "ours, both stacks", ("TorchRL",)),
    ("overlap saves", "ours", ("ours, both stacks",)),
)
"""Ratios without a target: with the same bytes on both sides, and what copying fewer saves."""


# ---- speed


def _copier() -> Draw:
    """Copies the bytes of a batch: both stacks of each transition."""
    memory = {size: np.ones((2, 2 * size, *STACK), np.uint8) for size in SIZES}

    def copy(size: int) -> None:
        np.copyto(memory[size][0], memory[size][1])

    return copy


def _contender(name: str, count: int) -> Draw:
    """A contender that holds `count` transitions."""
    if name == "memcpy":
        return _copier()
    if name.startswith("ours"):
        if name == "ours, without C":
            mock.patch("rtagent.memory.compiled._library", return_value=None).start()
        if name == "ours, both stacks":
            mock.patch("rtagent.learning.replay.replay.BatchBuffer", BothStacks).start()
        ours = Ours(pictures(), count)
        if name == "ours, prioritized":
            return ours.filled().draw_and_update
        return ours.draw(ours.steps8 if name == "ours, 8 steps" else ours.uniform)
    if name == "TorchRL":
        return TorchRL(pictures(), count).draw
    small = "small" in name
    if name.startswith("SB3"):
        return StableBaselines(pictures(), count, small=small).draw
    if "prioritized" in name:
        return Cpprb(pictures(), count, small=small, prioritized=True).draw_and_update
    return Cpprb(pictures(), count, small=small).draw


def _serve(name: str, count: int, pipe: Any) -> None:
    """Body of a process that holds one contender, and runs a block of it when it is told to."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    draw = _contender(name, count)
    gc.collect()
    gc.disable()
    pipe.send(None)
    while (order := pipe.recv()) is not None:
        pipe.send(_seconds(draw, *order))


def _seconds(draw: Draw, size: int, batches: int) -> float:
    """Processor time of some batches; each lives until the next is there, as with a learner."""
    started = time.process_time()
    for _ in range(batches):
        batch = draw(size)
    del batch
    return time.process_time() - started


def missing() -> dict[str, str]:
    """Contenders that cannot take part, and why."""
    found = {}
    for name, (module, package) in OPTIONAL.items():
        try:
            peer(module, package)
        except UserError as error:
            found[name] = str(error)
    return found


def measure_speed(
    count: int, rounds: int, contenders: Sequence[str]
) -> dict[str, dict[int, list[float]]]:
    """Transitions per second of the processor in each round, by contender and size of the batch."""
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for name in contenders:
        pipes[name], theirs = context.Pipe()
        context.Process(target=_serve, args=(name, count, theirs), daemon=True).start()
        theirs.close()
        pipes[name].recv()

    def seconds(name: str, size: int, batches: int) -> float:
        pipes[name].send((size, batches))
        return float(pipes[name].recv())

    found: dict[str, dict[int, list[float]]] = {name: {} for name in contenders}
    for size in SIZES:
        batches = {}
        for name in contenders:
            seconds(name, size, WARM_UP)
            batches[name] = max(3, round(BLOCK_S * WARM_UP / seconds(name, size, WARM_UP)))
        for _ in range(rounds):
            for name in contenders:
                took = seconds(name, size, batches[name])
                found[name].setdefault(size, []).append(size * batches[name] / took)
    for pipe in pipes.values():
        pipe.send(None)
    return found


def measure_taking(count: int) -> list[float]:
    """Wall-clock microseconds to get each batch that was made during a computation."""
    ours = Ours(pictures(), count)
    ours.draw(ours.uniform)
    matrix = torch.rand(512, 512)
    prefetcher = Prefetcher(ours.uniform, np.random.default_rng(0), depth=2)
    spans = []
    for _ in range(300):
        started = time.perf_counter()
        batch = prefetcher.take(SIZES[0], 1.0)
        spans.append((time.perf_counter() - started) * 1e6)
        assert batch is not None
        for _ in range(4):
            torch.mm(matrix, matrix)
    prefetcher.close()
    return spans


# ---- memory


def measure_memory(count: int) -> dict[str, float]:
    """Bytes per transition, by contender; each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for name in ("ours", "SB3 small", "cpprb small"):
        receiving, sending = context.Pipe(duplex=False)
        process = context.Process(target=_fill, args=(name, count, sending))
        process.start()
        sending.close()
        found[name] = receiving.recv()
        process.join()
    return found


def _fill(name: str, count: int, pipe: Any) -> None:
    """Body of a process that fills one replay and sends what a transition of it takes."""
    drawn = pictures()
    makers: dict[str, Callable[[int], Any]] = {
        "ours": lambda count: Ours(drawn, count).filled(),
        "SB3 small": lambda count: StableBaselines(drawn, count, small=True),
        "cpprb small": lambda count: Cpprb(drawn, count, small=True),
    }
    # A small one first: libraries, their code and working memory are no part of a transition.
    makers[name](SMALL)
    gc.collect()
    before = _own_bytes()
    made = makers[name](count)
    grown = _own_bytes() - before
    if isinstance(made, Ours):
        pipe.send((grown + made.shared_bytes()) / len(made.prioritized))
    else:
        pipe.send(grown / count)


def _own_bytes() -> int:
    """The resident set without shared memory."""
    found = memory_of(os.getpid(), "status")
    return found["RssAnon"] + found["RssFile"]


# ---- report


def _ratio(speeds: dict[str, dict[int, list[float]]], one: str, other: str, size: int) -> float:
    pairs = zip(speeds[one][size], speeds[other][size], strict=True)
    return statistics.median(a / b for a, b in pairs)


def judge(
    speeds: dict[str, dict[int, list[float]]], memory: dict[str, float]
) -> list[tuple[str, float, float, bool]]:
    """Rows of name, figure, target, and whether it is reached."""
    name = "bytes per transition"
    rows = [(name, memory["ours"], memory["ours"] <= LIMITS[name])]
    for size in SIZES:
        against = {
            peer: min(_ratio(speeds, "ours", each, size) for each in (peer, f"{peer} small"))
            for peer in ("SB3", "cpprb")
        }
        rows += [
            (f"uniform / {peer}, B={size}", ratio, ratio >= LIMITS[f"uniform / {peer}"])
            for peer, ratio in against.items()
        ]
    cpprb = ("cpprb, prioritized", "cpprb small, prioritized")
    for name, one, others, sizes in (
        ("both stacks / memcpy", "ours, both stacks", ("memcpy",), SIZES[-1:]),
        ("prioritized / cpprb", "ours, prioritized", cpprb, SIZES),
    ):
        for size in sizes:
            ratio = min(_ratio(speeds, one, other, size) for other in others)
            rows.append((f"{name}, B={size}", ratio, ratio >= LIMITS[name]))
    return [(name, figure, LIMITS[name.partition(",")[0]], good) for name, figure, good in rows]


def compare(speeds: dict[str, dict[int, list[float]]]) -> dict[str, float]:
    """The ratios of `SHOWN`, against the fastest of the others."""
    return {
        f"{name}, B={size}": min(_ratio(speeds, one, other, size) for other in others)
        for name, one, others in SHOWN
        if speeds.keys() >= {one, *others}
        for size in SIZES
    }


def main() -> int:
    """Print every figure beside its target; exit code 1 if one is missed, 2 without a peer."""
    parser = command_line(__doc__)
    parser.add_argument("--transitions", type=int, default=50_000, help="held, for the speed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="small, to see that it runs")
    args = parser.parse_args()
    count, rounds, held = args.transitions, args.rounds, MEMORY_AT
    if args.quick:
        count, rounds, held = 3_000, 3, 20_000
    for module, package in (("stable_baselines3", "stable-baselines3"), ("cpprb", "cpprb")):
        peer(module, package)
    torch.set_num_threads(1)
    memory = measure_memory(held)
    absent = missing()
    for name, reason in absent.items():
        print(f"{name} is missing: {reason}", file=sys.stderr)
    speeds = measure_speed(count, rounds, [each for each in CONTENDERS if each not in absent])
    waits = np.percentile(measure_taking(count), (50, 99)).tolist()
    rows = judge(speeds, memory)
    passed = all(good for *_, good in rows)
    if args.json:
        print_json({
            "held": count, "memory_at": held, "bytes_per_transition": memory, "speeds": speeds,
            "prefetched_us": waits, "missing": absent, "rows": rows, "compared": compare(speeds),
            "passed": passed,
        })
        return int(not passed)
    for name, figure in memory.items():
        print(f"{name:26} {figure:9,.0f} bytes per transition at {held:,}")
    print(f"{'transitions/cpu s, median':26} {'B=32':>9} {'least':>9} {'most':>9}"
          f" {'B=512':>11} {'least':>9} {'most':>9}")
    for name, by_size in speeds.items():
        cells = [
            f"{statistics.median(each):9,.0f} {min(each):9,.0f} {max(each):9,.0f}"
            for each in by_size.values()
        ]
        print(f"{name:26} {'   '.join(cells)}")
    print(f"a prefetched batch of {SIZES[0]}, beside a computation on the other core: "
          f"p50 {waits[0]:.0f} us, p99 {waits[1]:.0f} us")
    for name, figure in compare(speeds).items():
        print(f"{name:30} {figure:9,.2f}")
    for name, figure, target, good in rows:
        sign = "<=" if name.startswith("bytes") else ">="
        print(f"{name:30} {figure:9,.2f} {sign} {target:g}: {'reached' if good else 'MISSED'}")
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
