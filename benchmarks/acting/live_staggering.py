"""Staggering in the running system: inaction, evenness and delay with a padded inference time.

Each case runs the whole daemon (supervisor, environment, inference processes) on the wall clock,
with the built-in game; only the sequential cases have a learner. The figures are
recounted from the tick ledger over the seconds after the warm-up. The inference time is injected:
it is padded to the value shown. The machine's own floor, the lateness of a bare loop at the same
rate, is printed beside them.

    rtagent bench live_staggering [--quick] [--json] [CASE ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.command import add_names, command_line
from benchmarks.runs import acting_run, rows_of
from rtagent.cli.jitter import measure_jitter
from rtagent.cli.output import known, print_json
from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import interaction

WARM_UP_S = 5.0


@dataclass(frozen=True)
class Case:
    """One configuration and the bar it must pass.

    Attributes:
        name: its name on the command line.
        what: a short description.
        settings: overrides of the configuration, `SECTION.KEY=VALUE`.
        seconds: seconds that are measured, after the warm-up.
        low, high: accepted inaction, percent. If None, the case is shown for comparison only.
        most_cv: largest accepted CV (coefficient of variation) of the gaps. If None, any.
    """

    name: str
    what: str
    settings: tuple[str, ...]
    seconds: float = 30.0
    low: float | None = None
    high: float | None = None
    most_cv: float | None = None


def padded(ms: float, processes: int, algorithm: str, *more: str) -> tuple[str, ...]:
    """Settings of processes whose inferences are padded to a time."""
    return (
        f"inference.injected_latency_ms={ms}",
        f"inference.processes={processes}",
        f"inference.algorithm={algorithm}",
        *more,
    )


def _learning(algorithm: str) -> tuple[str, ...]:
    return padded(82, 1, algorithm, "learning.processes=1", "learning.learning_starts=64")


OUTLIERS = (
    "inference.injected_latency_distribution=outliers",
    "inference.injected_latency_spread=0.01",
)
CASES = (
    Case("adaptive", "x 4.9, N 5", padded(82, 5, "adaptive"), high=1.0, low=0.0, most_cv=0.10),
    Case("maximum", "x 4.9, N 5", padded(82, 5, "maximum-time"), high=1.0, low=0.0, most_cv=0.10),
    Case("expected", "x 4.9, N 5", padded(82, 5, "expected-time")),
    Case("unstaggered", "x 4.9, N 5", padded(82, 5, "unstaggered")),
    Case("published-maximum", "x 4.9, N 5", padded(82, 5, "published-maximum-time")),
    Case("published-expected", "x 4.9, N 5", padded(82, 5, "published-expected-time")),
    Case("one", "x 4.9, N 1", padded(82, 1, "maximum-time"), low=78.0, high=82.0),
    Case("sequential", "x 4.9, learns between", _learning("sequential-infer-learn")),
    Case("sequential-late", "x 4.9, learns before", _learning("sequential-learn-infer")),
    Case("one-adaptive", "x 4.9, N 1, re-uses", padded(82, 1, "adaptive")),
    Case("thirty", "x 30, N 34", padded(502, 34, "adaptive"), low=0.0, high=2.0),
    Case(
        "outliers", "x 5, 1 % x 10, N 9", padded(83.7, 9, "adaptive", *OUTLIERS),
        low=0.0, high=2.0, seconds=60.0,
    ),
    Case(
        "outliers-maximum", "x 5, 1 % x 10, N 9", padded(83.7, 9, "maximum-time", *OUTLIERS),
        seconds=60.0,
    ),
)


def measure(settings: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run the daemon with these settings and recount its ledger."""
    with acting_run("learning.processes=0", "replay.capacity=20000", *settings) as runtime:
        time.sleep(WARM_UP_S)
        overwritten_before = runtime.stats()["actions"]["overwritten"]
        rows = rows_of(runtime, seconds)
        actions, world = runtime.stats()["actions"], runtime.world
    default = rows["source"] == Source.DEFAULT
    reused = rows["source"] == Source.REUSED
    new = rows["source"] == Source.AGENT
    between = interaction(rows["time_ns"][new] * world.blueprint.rate_hz / 1e9)
    delays = (rows["tick"] - rows["observed"])[~default]
    return {
        "algorithm": world.config.inference.algorithm,
        "inaction_percent": 100.0 * float(default.mean()),
        "strict_inaction_percent": 100.0 * float((default | reused).mean()),
        "interaction_ticks": between.mean,
        "gap_cv": between.cv,
        "delay_mean": float(delays.mean()) if len(delays) else None,
        "overwritten": actions["overwritten"] - overwritten_before,
        "ticks": len(rows),
        "lateness_p99_us": float(np.percentile(rows["lateness_ns"], 99)) / 1e3,
    }


def passed(case: Case, result: dict[str, Any]) -> bool | None:
    """Whether the case meets its bar; None if it has no bar."""
    if case.high is None or case.low is None:
        return None
    good = case.low <= result["inaction_percent"] <= case.high
    return good and (case.most_cv is None or result["gap_cv"] <= case.most_cv)


def main() -> int:
    """Run the cases; exit code 1 if a bar is missed."""
    parser = command_line(__doc__)
    add_names(parser, "CASE", [case.name for case in CASES])
    parser.add_argument("--quick", action="store_true", help="a third of the time")
    args = parser.parse_args()
    chosen = [case for case in CASES if case.name in args.names]
    floor = measure_jitter(3.0)
    results = []
    print(f"machine floor (bare loop): {floor}", file=sys.stderr)
    for case in chosen:
        seconds = case.seconds / 3 if args.quick else case.seconds
        result = {"case": case.name, "what": case.what, **measure(case.settings, seconds)}
        result["passed"] = passed(case, result)
        results.append(result)
        if not args.json:
            verdict = {True: "ok", False: "MISSED", None: "shown"}[result["passed"]]
            print(
                f"{case.name:17} {case.what:20} {result['algorithm']:14} "
                f"inaction {result['inaction_percent']:6.2f} % "
                f"(strict {result['strict_inaction_percent']:6.2f} %)  "
                f"interaction {known(result['interaction_ticks'], '{:.2f}')} ticks "
                f"(CV {known(result['gap_cv'], '{:.3f}')})  "
                f"delay {known(result['delay_mean'], '{:.2f}')}  "
                f"overwritten {result['overwritten']:5d}  "
                f"lateness p99 {result['lateness_p99_us']:.0f} us  {verdict}",
                flush=True,
            )
    if args.json:
        print_json({"floor": floor, "cases": results})
    return int(any(result["passed"] is False for result in results))


if __name__ == "__main__":
    sys.exit(main())
