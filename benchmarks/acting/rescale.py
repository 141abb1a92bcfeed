"""Change the number of inference processes of a running daemon, over HTTP.

1 to 8: seconds from the PATCH until all eight have made an inference. 8 to 3: what the clock did in
the second after the PATCH, by the rows of the ledger (no tick may begin a whole tick late).

    rtagent bench rescale [--rounds N] [--json]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.command import Result, command_line, report
from benchmarks.daemon import RunningDaemon
from benchmarks.recount.raw_ledger import Ledger
from rtagent.config.section import GAME_BOY_HZ

LIMIT_S = 1.0
TICK_MS = 1e3 / GAME_BOY_HZ


def grow(daemon: RunningDaemon, processes: int) -> tuple[float, float]:
    """Seconds until the PATCH answered, and until every process has made an inference.

    A process goes on with the counter of the one that had its number before: what it has done is
    the difference from the first look at it. So it may be noticed an inference late, never early.
    """
    first = {worker["pid"]: worker["inferences"] for worker in daemon.workers()}
    start = time.monotonic()
    daemon.patch_inference(processes=processes)
    answered = time.monotonic() - start
    while True:
        workers = [worker for worker in daemon.workers() if worker["pid"] is not None]
        for worker in workers:
            first.setdefault(worker["pid"], worker["inferences"])
        acted = [each for each in workers if each["inferences"] > first[each["pid"]]]
        if len(acted) == processes or time.monotonic() - start > 30:
            return answered, time.monotonic() - start
        time.sleep(0.01)


def shrink(daemon: RunningDaemon, ledger: Ledger, processes: int) -> dict[str, Any]:
    """What the clock did while the processes left."""
    before = daemon.stats()["clock"]["slips"]
    ledger.skip()
    start = time.monotonic()
    daemon.patch_inference(processes=processes)
    answered = time.monotonic() - start
    time.sleep(1.0)
    rows = ledger.read()
    return {
        "answered_s": answered, "ticks": len(rows),
        "slips": daemon.stats()["clock"]["slips"] - before,
        "lateness_max_ms": float(rows["lateness_ns"].max()) / 1e6,
    }


def main() -> int:
    """Print both figures; exit code 1 if a bar is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    grown, shrunk = [], []
    with RunningDaemon("inference.processes=1") as daemon:
        ledger = Ledger(daemon.process.pid, daemon.status()["config"]["replay"]["capacity"])
        time.sleep(3.0)
        for _ in range(args.rounds):
            grown.append(grow(daemon, 8))
            time.sleep(1.0)
            shrunk.append(shrink(daemon, ledger, 3))
            daemon.patch_inference(processes=1)
            time.sleep(1.0)
    acting = [seconds for _, seconds in grown]
    result = {
        "grow_answered_s": float(np.median([seconds for seconds, _ in grown])),
        "all_eight_acting_s": {"median": float(np.median(acting)), "max": max(acting)},
        "shrink": shrunk,
    }
    missed = any(each["slips"] or each["lateness_max_ms"] >= TICK_MS for each in shrunk)
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
