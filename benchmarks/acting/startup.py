"""From `rtagent serve` to the first action of the agent, installed program, default configuration.

    rtagent bench startup [--rounds N] [--json]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.command import Result, command_line, report
from benchmarks.daemon import RunningDaemon

LIMIT_S = 6.0


def main() -> int:
    """Print the seconds of each round and their median; exit code 1 if the bar is missed."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    seconds = []
    for _ in range(args.rounds):
        with RunningDaemon() as daemon:
            while daemon.stats()["actions"]["agent"] == 0:
                time.sleep(0.01)
            seconds.append(time.monotonic() - daemon.started)
            message = f"first agent action after {seconds[-1]:.2f} s"
            print(message, file=sys.stderr, flush=True)
    passed = float(np.median(seconds)) <= LIMIT_S
    return report({"seconds": seconds, "passed": passed}, args.json, show)


def show(result: Result) -> None:
    """Print the median beside the limit."""
    verdict = "ok" if result["passed"] else "MISSED"
    print(f"median {np.median(result['seconds']):.2f} s, limit {LIMIT_S:.0f} s: {verdict}")


if __name__ == "__main__":
    sys.exit(main())
