"""One DQN update against a plain textbook implementation: its time, or what is learned with it.

Our side is a learner's whole update as the daemon does it, on the shared state with its two copies.
It takes bytes, computes in the precision that is measured to be the fastest on this machine, with
convolutions in the channels-last layout and Adam in one kernel, and keeps freed memory. The naive
side takes float32 observations in torch's default layout, its Adam goes through the parameters one
by one, and malloc keeps its defaults. Each side has a process of its own, because malloc's settings
are those of a process. Rounds of both alternate, so that both see the same machine; times are CPU
time.

    rtagent bench dqn_update [--rounds 12] [--precision auto] [--json]
    rtagent bench dqn_update --learning [--games cartpole starfall] [--seeds 5]
        [--ticks N] [--picture FILE] [--json]

The second call compares learning curves instead, game by game, in virtual time: the final returns
(mean of the last 20 episodes) of the seeds of both sides, with the interval of their mean
(Student's t, 95 %) and a permutation test, which needs four seeds. `starfall` takes about a quarter
of an hour per seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from benchmarks.command import command_line, new_picture
from benchmarks.learning.dqn_curves import GAMES, draw, learn, report_learning
from benchmarks.learning.dqn_sides import SIDES, DaemonUpdate, NaiveUpdate, as_floats, random_batch
from rtagent.cli.output import print_json
from rtagent.config import LEARNING_PRECISIONS, LearningConfig, PolicyConfig
from rtagent.policy import networks
from rtagent.processes.freed_memory import keep_freed_memory

UPDATES_PER_ROUND = 8
CASES = {
    "resnet k=1, B=16": ("resnet", 16, 3.0), "resnet k=1, B=64": ("resnet", 64, 3.3),
    "nature, B=32": ("nature", 32, 0.0),
}
"""Network, batch size, and how many times as fast ours should be."""


@dataclass(frozen=True)
class Side:
    """A side in its process.

    Attributes:
        step: makes one update.
        precision: in which it computes.
    """

    step: Callable[[], object]
    precision: str


_measured: list[Side] = []
"""The side of this process, set once, before the first round."""


def _prepare(side: str, name: Any, count: int, precision: Any) -> None:
    """Make the side. Runs in its process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    space, batch = spaces.Box(0, 255, (4, 84, 84), np.uint8), random_batch(count)
    network = networks.build(PolicyConfig(network=name), space, spaces.Discrete(6))
    learning = LearningConfig(batch_size=count, precision=precision)
    if side == "naive":
        # As if its replay held floats: the conversion of bytes is not counted against it.
        naive, floats = NaiveUpdate(network, learning), as_floats(batch)
        _measured.append(Side(lambda: naive.step(floats), "float32"))
        return
    keep_freed_memory()
    ours = DaemonUpdate(network, learning)
    chosen = ours.choose_precision(random_batch, count) if precision == "auto" else precision
    _measured.append(Side(lambda: ours.step(batch), chosen))


def _time_round() -> tuple[float, str]:
    """Median milliseconds of CPU time for one update, and the precision. Runs in the process."""
    spans = []
    for _ in range(UPDATES_PER_ROUND):
        began = time.process_time()
        _measured[0].step()
        spans.append(1e3 * (time.process_time() - began))
    return float(np.median(spans)), _measured[0].precision


def time_updates(
    name: str, count: int, rounds: int, precision: str
) -> tuple[dict[str, npt.NDArray[np.float64]], str]:
    """Time both sides.

    Returns:
        Milliseconds of one update of each side, median of each round: (rounds,); and the precision
        of our side.
    """
    spent: dict[str, list[float]] = {side: [] for side in SIDES}
    computed_in: dict[str, str] = {}
    with ExitStack() as stack:
        workers = {
            side: stack.enter_context(ProcessPoolExecutor(
                1, get_context("spawn"), _prepare, (side, name, count, precision)
            ))
            for side in SIDES
        }
        for turn in range(rounds + 1):
            for side, worker in workers.items():
                milliseconds, computed_in[side] = worker.submit(_time_round).result()
                if turn:  # The first round warms up.
                    spent[side].append(milliseconds)
    return {side: np.array(values) for side, values in spent.items()}, computed_in["ours"]


def report_speed(rounds: int, precision: str, *, as_json: bool) -> bool:
    """Time every case and print the figures; whether the targets are met."""
    report: dict[str, dict[str, Any]] = {}
    for case, (name, count, target) in CASES.items():
        spent, chosen = time_updates(name, count, rounds, precision)
        ratios = spent["naive"] / spent["ours"]
        low, high = np.percentile(ratios, [10, 90])
        ratio = float(np.median(ratios))
        report[case] = {
            **{f"{side}_ms": float(np.median(spent[side])) for side in SIDES},
            **{f"{side}_noise": noise(spent[side]) for side in SIDES},
            "ratio": ratio, "ratio_p10": float(low), "ratio_p90": float(high),
            "precision": chosen, "target": target, "met": ratio >= target,
        }
    met = all(row["met"] for row in report.values())
    if as_json:
        print_json({"cases": report, "met": met})
        return met
    print(f"{'milliseconds per update':26}{'naive':>14}{'ours':>14}{'ratio':>8}   10 to 90 %")
    for case, row in report.items():
        cells = "".join(
            f"{row[f'{side}_ms']:8.1f} ±{100 * row[f'{side}_noise']:2.0f} %" for side in SIDES
        )
        verdict = "met" if row["met"] else "MISSED"
        said = f"   target {row['target']:g}: {verdict}" if row["target"] else ""
        print(f"{case:28}{cells}{row['ratio']:8.2f}   {row['ratio_p10']:.2f} to "
              f"{row['ratio_p90']:.2f}   {row['precision']}{said}")
    return met


def noise(values: npt.NDArray[np.float64]) -> float:
    """Half the distance of the 10th and 90th percentile, as a share of the median."""
    low, middle, high = np.percentile(values, [10, 50, 90])
    return float((high - low) / 2 / middle)


def main() -> int:
    """Measure and print; exit code 1 if a target is missed or the curves differ."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--precision", choices=["auto", *LEARNING_PRECISIONS], default="auto")
    parser.add_argument("--learning", action="store_true", help="compare learning curves instead")
    parser.add_argument("--games", nargs="+", choices=list(GAMES), default=list(GAMES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ticks", type=int, help="per seed (default: those of the game)")
    parser.add_argument("--picture", type=new_picture, metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.learning:
        return int(not report_speed(options.rounds, options.precision, as_json=options.json))
    games = {}
    for name in options.games:
        print(name, file=sys.stderr)
        games[name] = learn(GAMES[name], options.seeds, options.ticks or GAMES[name].ticks)
        if options.picture:
            draw(games, options.picture)
    return int(not report_learning(games, as_json=options.json))


if __name__ == "__main__":
    sys.exit(main())
