"""The DonkeyCar environment on the wall clock: telemetry used, its rate, and lost simulators.

    rtagent bench donkey_client [--seconds S] [--kills N] [--seed K] [--json]

The environment is stepped as the environment process does it, on a clock of its own, at 20 and at
60 Hz, against a simulator that ticks on another. Then a simulator in a process of its own is killed
and started again, at random moments, under a client that goes on stepping.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from benchmarks.command import at_least, command_line, from_zero, report
from rtagent.cli.jitter import measure_jitter
from rtagent.clock import MonotonicClock
from rtagent.env.donkey.environment import DonkeyCar
from rtagent.processes.wake_ahead import WakeAhead

RATES = (20.0, 60.0)
MOST_DEVIATION = 0.005
BACK_WITHIN_S = 15.0


class Ticks:
    """Steps an environment on an absolute schedule, so that its car follows the road.

    Args:
        env: the environment.
    """

    def __init__(self, env: DonkeyCar) -> None:
        self.env = env
        env.paced = True
        self.clock = MonotonicClock(WakeAhead(1.0 / env.rate_hz))
        _, self.info = env.reset(seed=0)
        self._start, self._tick = self.clock.now(), 0
        self.late: list[float] = []

    @property
    def due(self) -> float:
        """Time at which the last tick was due."""
        return self._start + self._tick / self.env.rate_hz

    def next(self) -> bool:
        """One tick; whether the episode went on."""
        self._tick += 1
        self.clock.sleep_until(self.due)
        self.late.append(self.clock.now() - self.due)
        steering = float(np.clip(-0.2 * (self.info.get("cte") or 0.0), -1.0, 1.0))
        _, _, terminated, truncated, self.info = self.env.step([steering, 0.3])
        if terminated or truncated:
            self.env.reset()
        return not (terminated or truncated)

    def run(self, seconds: float) -> None:
        """Step for this long."""
        for _ in range(round(seconds * self.env.rate_hz)):
            self.next()


def rate(rate_hz: float, seconds: float) -> dict[str, Any]:
    """Figures of a drive in the embedded simulator."""
    env = DonkeyCar(rate_hz=rate_hz, actions="continuous", max_seconds=0)
    try:
        while not env.reset(seed=0)[1]["connected"]:
            pass
        ticks = Ticks(env)
        ticks.run(2.0)
        before, began, ticks.late = env.figures, ticks.due, []
        ticks.run(seconds)
        span, after = ticks.due - began, env.figures
    finally:
        env.close()
    change = {name: after[name] - before.get(name, 0) for name in after}
    return {
        "rate_hz": change["used"] / span,
        "deviation": change["used"] / span / rate_hz - 1.0,
        "received": change["received"],
        "used": change["used"],
        "skipped": change.get("skipped", 0),
        "repeated": change["repeated"],
        "share_used": change["used"] / (change["used"] + change.get("skipped", 0)),
        "late_ms_p99": float(np.percentile(ticks.late, 99)) * 1e3,
    }


@contextmanager
def running_simulator(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A `donkey-sim` in a process of its own, and its port, when it listens there."""
    command = [sys.executable, "-m", "rtagent", "donkey-sim", "--port", str(port), "--fps", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline().split(":")[2].split(",")[0])
        finally:
            process.kill()


def kills(count: int, seed: int) -> dict[str, Any]:
    """Figures of a client that goes on while its simulator is killed and started again."""
    chance, clock = random.Random(seed), MonotonicClock()
    noticed, back = [], []
    with ExitStack() as stack:
        process, port = stack.enter_context(running_simulator())
        env = DonkeyCar(host="127.0.0.1", port=port, actions="continuous")
        ticks = Ticks(env)
        for _ in range(count):
            ticks.run(chance.uniform(0.5, 2.0))
            process.kill()
            process.wait()
            killed = clock.now()
            while ticks.info["connected"]:
                ticks.next()
            noticed.append(clock.now() - killed)
            ticks.run(chance.uniform(0.0, 1.0))
            process, _ = stack.enter_context(running_simulator(port))
            started, used = clock.now(), env.figures["used"]
            while clock.now() < started + BACK_WITHIN_S and env.figures["used"] == used:
                ticks.next()
            if env.figures["used"] > used:
                back.append(clock.now() - started)
        env.close()
    return {
        "kills": count,
        "survived": len(back),
        "noticed_after_s_max": max(noticed, default=0.0),
        "driving_again_after_s": {"median": float(np.median(back)), "max": max(back)}
        if back else None,
    }


def main() -> int:
    """Print the figures; exit code 1 if one is out of its limits."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=at_least(0.5), default=20.0)
    parser.add_argument("--kills", type=from_zero, default=10)
    parser.add_argument("--seed", type=from_zero, default=0)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine_floor_us": measure_jitter(3.0)}
    for rate_hz in RATES:
        result[f"{rate_hz:g} Hz"] = rate(rate_hz, options.seconds)
    result["restarts"] = kills(options.kills, options.seed)
    rates = [result[f"{rate_hz:g} Hz"] for rate_hz in RATES]
    result["passed"] = result["restarts"]["survived"] == options.kills and all(
        abs(each["deviation"]) <= MOST_DEVIATION and each["share_used"] == 1.0 for each in rates
    )
    return report(result, options.json)


if __name__ == "__main__":
    sys.exit(main())
