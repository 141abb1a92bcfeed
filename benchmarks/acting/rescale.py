"""Change the number of inference processes of a running daemon, over HTTP.

1 to 8: seconds from the PATCH until all eight have acted. 8 to 3: ticks that the clock missed
meanwhile (its longest lateness must stay below one tick, and no tick may be skipped).

    rtagent bench rescale [--rounds N] [--json]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.command import Result, command_line, report
from benchmarks.daemon import RunningDaemon
from rtagent.config.section import GAME_BOY_HZ

LIMIT_S = 1.0
TICK_MS = 1e3 / GAME_BOY_HZ


def grow(daemon: RunningDaemon, processes: int) -> tuple[float, float]:
    """Seconds until the PATCH answered, and until every process has acted."""
    before = {worker["id"]: worker["inferences"] for worker in daemon.workers()}
    start = time.monotonic()
    daemon.patch_inference(processes=processes)
    answered = time.monotonic() - start
    while True:
        workers = daemon.workers()
        acted = [w for w in workers if w["inferences"] > before.get(w["id"], 0)]
        if len(acted) == processes or time.monotonic() - start > 30:
            return answered, time.monotonic() - start
        time.sleep(0.01)


def shrink(daemon: RunningDaemon, processes: int) -> dict[str, Any]:
    """What the clock did while the processes left."""
    before = daemon.stats()["clock"]
    start = time.monotonic()
    daemon.patch_inference(processes=processes)
    answered = time.monotonic() - start
    time.sleep(1.0)
    after = daemon.stats()["clock"]
    return {
        "answered_s": answered,
        "slips": after["slips"] - before["slips"],
        "ticks_missed": round(
            (after["uptime_s"] - before["uptime_s"]) * after["target_rate_hz"]
            - (after["ticks"] - before["ticks"])
        ),
        "lateness_max_ms": after["lateness_us"]["max"] / 1e3,
    }


def main() -> int:
    """Print both figures; exit code 1 if a bar is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    grown, shrunk = [], []
    with RunningDaemon("--set", "inference.processes=1") as daemon:
        time.sleep(3.0)
        for _ in range(args.rounds):
            grown.append(grow(daemon, 8))
            time.sleep(1.0)
            shrunk.append(shrink(daemon, 3))
            daemon.patch_inference(processes=1)
            time.sleep(1.0)
    acting = [seconds for _, seconds in grown]
    result = {
        "grow_answered_s": float(np.median([seconds for seconds, _ in grown])),
        "all_eight_acting_s": {"median": float(np.median(acting)), "max": max(acting)},
        "shrink": shrunk,
    }
    missed = any(
        each["slips"] or each["ticks_missed"] > 0 or each["lateness_max_ms"] >= TICK_MS
        for each in shrunk
    )
    passed = float(np.median(acting)) <= LIMIT_S and not missed
    return report({**result, "passed": passed}, args.json, show)


def show(result: Result) -> None:
    """Print both figures for people."""
    acting = result["all_eight_acting_s"]
    print(f"1 to 8: answered after {result['grow_answered_s']:.2f} s (median)")
    print(f"1 to 8: all eight acting after {acting['median']:.2f} s (max {acting['max']:.2f} s)")
    for each in result["shrink"]:
        print(f"8 to 3: {each}")
    print("ok" if result["passed"] else "MISSED")


if __name__ == "__main__":
    sys.exit(main())
