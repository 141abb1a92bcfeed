"""Ticks of the default configuration over a minute, counted by the machine's monotonic clock.

    python benchmarks/clock.py [--seconds S]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time

import numpy as np

import rtagent
from rtagent.cli.jitter import measure_jitter

MOST_DEVIATION = 0.0002


def main() -> int:
    """Print rate, drift and lateness; exit code 1 if the rate is off by more than 0.02 %."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    print(f"machine floor (bare loop): {measure_jitter(3.0)}")
    with tempfile.TemporaryDirectory() as folder:
        config = rtagent.load_config(overrides=[f"run.state_dir={folder}"])
        with rtagent.Runtime(config) as runtime:
            runtime.wait_ready(60)
            time.sleep(2.0)
            ledger = runtime.world.ledger
            first = ledger.newest
            time.sleep(args.seconds)
            rows = ledger.read(first, ledger.newest + 1)
            clock = runtime.stats()["clock"]
    span = (int(rows["time_ns"][-1]) - int(rows["time_ns"][0])) / 1e9
    rate = (len(rows) - 1) / span
    deviation = rate / clock["target_rate_hz"] - 1.0
    p50, p99 = np.percentile(rows["lateness_ns"] / 1e3, (50, 99))
    print(f"{len(rows) - 1} ticks in {span:.4f} s: {rate:.5f} Hz, {100 * deviation:+.5f} %")
    print(
        f"drift {clock['drift_ms']:.4f} ms (slips {clock['slips']}), last lateness "
        f"{rows['lateness_ns'][-1] / 1e6:.4f} ms; lateness p50 {p50:.1f} us, p99 {p99:.1f} us, "
        f"max {rows['lateness_ns'].max() / 1e3:.1f} us"
    )
    passed = abs(deviation) <= MOST_DEVIATION and clock["slips"] == 0
    print("ok" if passed else "MISSED")
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
