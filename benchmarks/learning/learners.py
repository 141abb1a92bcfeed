"""Two learners in round-robin against one: updates per second, staleness, and what play notices.

Compute-bound: the learners have all the data that they want and nearly the machine for themselves;
inference mostly waits. Shared: the default game is played at full rate beside them, and its
inaction is counted with one learner and with two. One and two alternate within one run of the
program, so that both see the same machine.

    rtagent bench learners [--rounds N] [--seconds S] [--json]
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from benchmarks.command import at_least, command_line
from benchmarks.runs import acting_run, rows_of, wait_learning
from rtagent import Runtime
from rtagent.cli.output import plain_table, print_json, stdout
from rtagent.staggering.arbiter import Source

TARGET_RATIO = 1.7
SETTLE_S = 3.0


def measure(runtime: Runtime, seconds: float) -> dict[str, Any]:
    """Updates per second and inaction over some seconds; the most staleness of the run so far."""
    before, started = runtime.stats()["learning"]["updates"], time.monotonic()
    rows = rows_of(runtime, seconds)
    learning, elapsed = runtime.stats()["learning"], time.monotonic() - started
    return {
        "updates_per_s": (learning["updates"] - before) / elapsed,
        "staleness_max_so_far": learning["staleness"]["max"],
        "inaction": float((rows["source"] == Source.DEFAULT).mean()),
    }


def alternate(settings: list[str], rounds: int, seconds: float) -> dict[int, list[dict[str, Any]]]:
    """Rounds with one learner and with two, in one run of the program."""
    found: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    with acting_run(*settings) as runtime:
        wait_learning(runtime)
        for _ in range(rounds):
            for learners in (1, 2):
                runtime.set_learning(processes=learners)
                time.sleep(SETTLE_S)
                found[learners].append(measure(runtime, seconds))
    return found


def median(rounds: list[dict[str, Any]], name: str) -> float:
    """Median of a figure over the rounds."""
    return float(statistics.median(each[name] for each in rounds))


def main() -> None:
    """Parse the command line and run."""
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=at_least(0.5), default=8.0, help="per round")
    options = parser.parse_args()
    common = ["learning.learning_starts=256", "replay.capacity=20000", "run.tensorboard=false"]
    alone = [*common, "env.rate_hz=60", "inference.processes=1", "policy.network=resnet",
             "learning.batch_size=16", "inference.injected_latency_ms=500"]
    cases = {"compute-bound (resnet k=1, B=16)": alone, "beside play (default game)": common}
    report: dict[str, dict[str, Any]] = {}
    columns = ("1 learner", "2 learners", "ratio", "most staleness", "inaction 1", "inaction 2")
    table = plain_table("", *columns)
    for name, settings in cases.items():
        found = alternate(settings, options.rounds, options.seconds)
        one, two = (median(found[n], "updates_per_s") for n in (1, 2))
        inaction = [median(found[n], "inaction") for n in (1, 2)]
        report[name] = {"one": one, "two": two, "ratio": two / one, "rounds": found}
        table.add_row(
            name, f"{one:.1f}/s", f"{two:.1f}/s", f"{two / one:.2f}",
            str(found[2][-1]["staleness_max_so_far"]),
            *(f"{100 * each:.2f} %" for each in inaction),
        )
    if options.json:
        print_json(report)
        return
    stdout().print(table)
    ratio = report["compute-bound (resnet k=1, B=16)"]["ratio"]
    verdict = "holds" if ratio >= TARGET_RATIO else "missed"
    print(f"compute-bound: {ratio:.2f} times as many updates; target {TARGET_RATIO}: {verdict}")


if __name__ == "__main__":
    main()
