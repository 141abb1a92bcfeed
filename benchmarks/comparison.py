"""What benchmarks of learning share: contenders, runs side by side, intervals, kept results.

Each run is a whole daemon in a process of its own, which is killed with the program that began it:
nothing goes on playing after an interruption. Discount and n-step count ticks, so staggered and
sequential inference have the same horizon in seconds, and differ in what they do alone.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rtagent.config import GAME_BOY_HZ
from rtagent.errors import UserError
from rtagent.files.atomic_write import appearing
from rtagent.processes.scheduling import die_with_parent
from rtagent.staggering.figures import processes_needed

COLOURS = {"sequential": "tab:red", "staggered": "tab:blue"}
"""The contenders, as pictures show them."""
TICK_S = 1.0 / GAME_BOY_HZ
SPREAD = 1.01
"""No real inference takes exactly the injected time; one process more absorbs that."""
STUDENT_95 = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}
"""Two-sided 95 % quantile of Student's t, by number of seeds."""

Result = TypeVar("Result")


def processes_of(contender: str, ticks: float) -> int:
    """Inference processes of a contender at a latency in ticks of a Game Boy."""
    if contender == "sequential":
        return 1
    latency = ticks * TICK_S
    return processes_needed(latency, latency * SPREAD, TICK_S, "adaptive")


def settings_of(contender: str, ticks: float) -> list[str]:
    """What makes a contender at a latency in ticks of a Game Boy, as `SECTION.KEY=VALUE`."""
    algorithm = "unstaggered" if contender == "sequential" else "adaptive"
    return [
        f"inference.injected_latency_ms={1e3 * ticks * TICK_S:.3f}",
        f"inference.processes={processes_of(contender, ticks)}",
        f"inference.algorithm={algorithm}",
    ]


def half_interval(values: NDArray[Any]) -> NDArray[Any]:
    """Half of the 95 % interval of a mean over seeds.

    Args:
        values: (seeds, ...).

    Returns:
        (...); 0 for a single seed.
    """
    seeds = len(values)
    if seeds < 2:
        return np.zeros(values.shape[1:])
    half: NDArray[Any] = STUDENT_95.get(seeds, 1.96) * values.std(axis=0, ddof=1)
    return half / math.sqrt(seeds)


def side_by_side(
    runs: Mapping[str, Callable[[], Result]], at_once: int | None = None
) -> Iterator[Result]:
    """Carry out runs in processes of their own; gives each result as soon as it is there.

    A run that fails is told and left out: what the others have taken half an hour for is kept.

    Args:
        runs: by name; they are pickled.
        at_once: how many. If None, all.
    """
    # The main thread of each process starts the daemon, and lives as long as it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        at_once or len(runs), context, initializer=die_with_parent, initargs=(os.getpid(),)
    ) as pool:
        names = {pool.submit(run): name for name, run in runs.items()}
        for future in as_completed(names):
            error = future.exception()
            if error is None:
                yield future.result()
            else:
                reason = f"{type(error).__name__}: {error}"
                print(f"{names[future]}: failed: {reason}", file=sys.stderr)


def add_output(parser: argparse.ArgumentParser) -> None:
    """What every benchmark of learning takes for its results."""
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--save", type=Path, help="every run, as JSON, after each")
    parser.add_argument("--resume", action="store_true", help="skip the runs that --save holds")
    parser.add_argument("--json", action="store_true")


def save(path: Path | None, record: Mapping[str, Any]) -> None:
    """Replace the file as a whole, if there is to be one: an interruption leaves the old one."""
    if path is not None:
        with appearing(path, f".{path.name}-") as write:
            write(json.dumps(record).encode())


def saved_runs(args: argparse.Namespace, conditions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The runs of an earlier call, if they are to be gone on with.

    Args:
        args: with `save` and `resume`.
        conditions: under which a run can be compared with others, as they are saved beside `runs`.

    Raises:
        UserError: `--resume` without `--save`, or the runs were made under other conditions.
    """
    if not args.resume:
        return []
    if args.save is None:
        raise UserError("--resume needs --save")
    if not args.save.exists():
        return []
    record = json.loads(args.save.read_text())
    theirs = {name: record.get(name) for name in conditions}
    if theirs != dict(conditions):
        raise UserError(f"{args.save} holds runs with {theirs}, not with {dict(conditions)}")
    runs: list[dict[str, Any]] = record["runs"]
    return runs
