"""What R3's controller costs: its share of the learning time, updates per second, memory.

The world of CartPole on the wall clock, 200 ticks a second, with the controller on and off in
alternating rounds of one run (Tables VI and VII of Li et al., R3). What it achieves is shown by
`rtagent experiment r3`.

    rtagent bench r3 [--rounds N] [--json]
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np

from benchmarks.command import Result, command_line, report
from benchmarks.experiments.r3 import ENDLESS, ENDLESS_S, WARM_UP_S, WORLDS, running
from rtagent.memory.horizon import HorizonRecord

LIMIT = 0.01
ROUND_S = 10.0


def overhead(rounds: int) -> dict[str, Any]:
    """What the controller costs, against the same daemon with it switched off."""
    rates: dict[str, list[float]] = {"off": [], "max-a": []}
    shares = []
    with running(*WORLDS["cartpole"], "learning.algorithm=double-dqn") as runtime:
        record = runtime.world.metrics.learners[0]
        time.sleep(WARM_UP_S)
        for number in range(rounds):
            # In both orders: the rate falls a little as the replay grows.
            for mode in list(rates)[:: 1 if number % 2 else -1]:
                runtime.set_deadlines(mode=mode, deadline_s=ENDLESS_S, data_budget=ENDLESS)
                start, applied = time.monotonic(), record.applied
                controlled = record.control_ns
                time.sleep(ROUND_S)
                seconds = time.monotonic() - start
                rates[mode].append((record.applied - applied) / seconds)
                if mode != "off":
                    shares.append((record.control_ns - controlled) / 1e9 / seconds)
        used = runtime.stats()["r3"]["used_bytes"]
    ratios = np.array(rates["max-a"]) / np.array(rates["off"])
    result: dict[str, Any] = {
        "updates_per_s": {mode: float(np.median(found)) for mode, found in rates.items()},
        "ratio": float(np.median(ratios)),
        "ratio_spread": [float(ratios.min()), float(ratios.max())],
        "time_share": float(np.median(shares)),
        "memory_bytes": HorizonRecord.size(),
        "used_bytes": used,
        "memory_share": HorizonRecord.size() / used,
    }
    passed = result["time_share"] <= LIMIT and result["memory_share"] <= LIMIT
    return {**result, "passed": passed}


def main() -> int:
    """Print the figures; exit code 1 if a bar is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    load = os.getloadavg()
    return report({"load": load, **overhead(args.rounds)}, args.json, show)


def show(result: Result) -> None:
    """Print the figures for people."""
    rates, (low, high) = result["updates_per_s"], result["ratio_spread"]
    print("load of the machine at the start:", ", ".join(f"{each:.2f}" for each in result["load"]))
    print(
        f"updates/s off {rates['off']:.0f}, max-a {rates['max-a']:.0f}: {result['ratio']:.3f} "
        f"times (rounds {low:.3f} to {high:.3f})"
    )
    print(f"controller: {result['time_share']:.2%} of the learner's time (at most {LIMIT:.0%})")
    print(
        f"memory: {result['memory_bytes'] / 1024:.0f} KiB of {result['used_bytes'] / 2**20:.0f} "
        f"MiB, {result['memory_share']:.3%} (at most {LIMIT:.0%})"
    )
    print("ok" if result["passed"] else "MISSED")


if __name__ == "__main__":
    sys.exit(main())
