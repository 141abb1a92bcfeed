"""Rate of the default configuration's ticks over a minute, by the machine's monotonic clock.

    rtagent bench clock [--seconds S] [--json]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from benchmarks.command import at_least, command_line, report
from benchmarks.runs import acting_run, rows_of
from rtagent.cli.jitter import measure_jitter
from rtagent.staggering.arbiter import Source

MOST_DEVIATION = 0.0002


def main() -> int:
    """Print rate, drift and lateness; exit code 1 if the rate is off by more than 0.02 %."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=at_least(0.1), default=60.0)
    args = parser.parse_args()
    floor = measure_jitter(3.0)
    with acting_run() as runtime:
        time.sleep(2.0)
        rows = rows_of(runtime, args.seconds)
        clock = runtime.stats()["clock"]
    span = (int(rows["time_ns"][-1]) - int(rows["time_ns"][0])) / 1e9
    rate = (len(rows) - 1) / span
    deviation = rate / clock["target_rate_hz"] - 1.0
    p50, p99 = np.percentile(rows["lateness_ns"] / 1e3, (50, 99)).tolist()
    result = {
        "machine_floor_us": floor,
        "ticks": len(rows) - 1,
        "seconds": span,
        "rate_hz": rate,
        "deviation_percent": 100.0 * deviation,
        "drift_ms": clock["drift_ms"],
        "slips": clock["slips"],
        "last_lateness_ms": int(rows["lateness_ns"][-1]) / 1e6,
        "lateness_us": {"p50": p50, "p99": p99, "max": int(rows["lateness_ns"].max()) / 1e3},
        "inaction_percent": 100.0 * float((rows["source"] == Source.DEFAULT).mean()),
        "passed": abs(deviation) <= MOST_DEVIATION and clock["slips"] == 0,
    }
    return report(result, args.json)


if __name__ == "__main__":
    sys.exit(main())
