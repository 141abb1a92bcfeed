"""Recount: every figure of /v1/stats counted again from outside, in five configurations.

Each configuration runs the whole daemon on the wall clock. While it acts, learns, is rescaled and
has processes killed, a witness follows its ledger, its metrics, its processes and its memory
(`witness.py`). Several times the daemon is asked for its figures, between two looks of the witness;
a figure is true if a second count (`figures.py`, which knows nothing of how the program counts)
gives the same at a moment between the looks: within 0.5 %, or one count for what grows with ticks
and actions. So the world need not be stopped to be counted.

    rtagent bench recount [--json] [CONFIGURATION ...]
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.command import add_names, command_line
from benchmarks.daemon import RunningDaemon
from benchmarks.recount.agreement import Found, OneOf, agrees, merged
from benchmarks.recount.episodes import against_windows
from benchmarks.recount.figures import NOT_RECOUNTED, of_moment, of_rows
from benchmarks.recount.learning import evaluation, horizon_between, sizes_between
from benchmarks.recount.witness import EVERY_S, Witness
from benchmarks.waiting import LIMIT_S, until
from rtagent.cli.output import plain_table, print_json, stdout

CAPACITY = 20_000
WORLD = ("env.id=CartPole-v1", f"replay.capacity={CAPACITY}", "learning.learning_starts=100")
GROWING = re.compile(
    r"clock\.ticks|actions\.(agent|reused|default|overwritten)|regret\.inaction\.value"
    r"|inference\.workers.*\.inferences|replay\.(size|bytes)|episodes\.count"
)
"""Figures that may differ by one: the daemon reads them one after the other."""
ALONE_S = 0.1
"""The daemon repeats an answer for 45 ms: after this time it must be a new one."""
DIVIDED_S = 0.5
"""Longest time from the end of an episode until memory is divided anew."""
TRIALS = 3
"""Comparisons at most: a figure may change several times between two looks."""
LOSS_TRIALS = 10
"""Comparisons of the loss at most: it changes most often, and the witness may miss a value."""


@dataclass(frozen=True)
class Line:
    """The comparison of one figure.

    Attributes:
        figure: path of the figure.
        said: what the daemon says.
        counted: the second count. If it is two numbers, the figure must lie between them.
        verdict: `same`, `differs`, or why the figure was not counted.
    """

    figure: str
    said: Any
    counted: Any
    verdict: str


class Run:
    """A daemon and the witness that watches it."""

    def __init__(self, daemon: RunningDaemon, witness: Witness, rate_hz: float) -> None:
        self.daemon = daemon
        self.rate_hz = rate_hz
        self.witness = witness

    def kill(self, role: str, index: int) -> None:
        """Kill a process and wait until every process runs again."""
        until(lambda: self._kill(role, index), f"{role} {index} lives")
        killed = self.witness.lives[role, index][-1]
        # On a busy machine the daemon takes a moment to notice.
        until(
            lambda: killed not in [each["pid"] for each in self.daemon.status()["roles"]],
            f"the daemon notices that {role} {index} is dead",
        )
        self.settle()

    def _kill(self, role: str, index: int) -> bool:
        """Kill the process that was seen last; returns whether it still lived."""
        self.witness.view()
        try:
            os.kill(self.witness.lives[role, index][-1], signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def settle(self) -> None:
        """Wait until every process runs."""
        until(self._runs, "every process runs")

    def _runs(self) -> bool:
        status = self.daemon.status()
        states = {role["state"] for role in status["roles"]}
        return status["state"] == "running" and states == {"running"}

    def compare(self) -> list[Line]:
        """Compare what the daemon says now with the second count."""
        lines = self._compare()
        for trial in range(1, LOSS_TRIALS):
            wrong = {line.figure for line in lines if line.verdict == "differs"}
            if trial >= TRIALS:
                wrong &= {"learning.loss"}
            if not wrong:
                break
            again = {line.figure: line for line in self._compare()}
            lines = [again.get(line.figure, line) if line.figure in wrong else line
                     for line in lines]
        return lines

    def _compare(self) -> list[Line]:
        config = self._config()
        time.sleep(ALONE_S)
        before, told = self.witness.view(), [self._evaluations()]
        with self.witness.losses() as losses:
            stats = self.daemon.stats()
        after = self.witness.view()
        told.append(self._evaluations())
        # A tick may be run while the figures are read one after the other.
        ticks = stats["clock"]["ticks"]
        found = [of_rows(after.until(ticks + more), self.rate_hz) for more in (-1, 0, 1)]
        found += [
            of_moment(view, self.witness, config, self.rate_hz) for view in (before, after)
        ]
        found += told
        found.append(against_windows(after, config["r3"]["window"], before.at - DIVIDED_S))
        found.append(horizon_between(before, after, config["r3"]))
        found.append(sizes_between(before, after))
        found.append({"learning.loss": OneOf(tuple(losses))})
        # Sentences about the figures.
        stats.pop("verdicts", None)
        return [self._line(path, said, found) for path, said in leaves(stats)]

    def _line(self, path: str, said: Any, found: list[Found]) -> Line:
        reason = NOT_RECOUNTED.get(re.sub(r"\[\d+\]", "[]", path))
        counted = [each[path] for each in found if path in each]
        # What the daemon does not know yet, it need not say.
        if not counted or (said is None and reason):
            return Line(path, said, None, reason or "not counted")
        bounds = merged(counted)
        slack = 1 if GROWING.fullmatch(path) else 0
        return Line(path, said, bounds, "same" if agrees(said, counted, slack) else "differs")

    def _evaluations(self) -> Found:
        return evaluation(self.daemon.get("/v1/events?limit=1000")["events"])

    def _config(self) -> dict[str, Any]:
        config = self.daemon.get("/v1/config")
        config["learning"]["paused"] = self.daemon.get("/v1/learning")["paused"]
        return config


def leaves(figures: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure with its dotted path, which has an index where there is a list."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{path}{name}.")
        elif isinstance(value, list):
            for index, each in enumerate(value):
                yield from leaves(each, f"{path}{name}[{index}].")
        else:
            yield path + name, value


def steady(run: Run) -> Iterator[None]:
    """Two staggered processes, a learner, a checkpoint, evaluations."""
    time.sleep(3.0)
    yield
    run.daemon.post("/v1/checkpoints")
    time.sleep(2.0)
    yield


def in_step(run: Run) -> Iterator[None]:
    """Five processes without staggering: one action in five is executed."""
    time.sleep(5.0)
    yield


def killed(run: Run) -> Iterator[None]:
    """Processes are killed while slots are kept."""
    time.sleep(2.0)
    for role, index in (("inference", 1), ("learner", 0), ("inference", 1)):
        run.kill(role, index)
        time.sleep(0.5)
    yield


def rescaled(run: Run) -> Iterator[None]:
    """More and fewer processes and learners, and another algorithm, while it runs."""
    time.sleep(1.0)
    changes: list[tuple[dict[str, Any], int]] = [
        ({"processes": 5}, 2), ({"processes": 3}, 1), ({"algorithm": "maximum-time"}, 2),
    ]
    for inference, learners in changes:
        run.daemon.patch_inference(**inference)
        run.daemon.patch("/v1/learning", processes=learners)
        run.witness.dismiss("inference", inference.get("processes", 3))
        run.witness.dismiss("learner", learners)
        run.settle()
        time.sleep(1.5)
        yield


def horizons(run: Run) -> Iterator[None]:
    """Three learners in turn, with a deadline and a budget of data."""
    until(lambda: run.daemon.stats()["learning"]["updates"], "something is learned")
    time.sleep(4.0)
    yield
    time.sleep(2.0)
    yield


@dataclass(frozen=True)
class Configuration:
    """A daemon and what happens to it.

    Attributes:
        settings: overrides beside those of `WORLD`.
        script: disturbs the daemon; it yields where the figures are compared.
        rate_hz: ticks per second.
    """

    settings: tuple[str, ...]
    script: Callable[[Run], Iterator[None]]
    rate_hz: float = 100.0


CONFIGURATIONS = {
    "steady": Configuration(
        ("inference.processes=2", "learning.evaluation_every_s=2", "run.checkpoint_every_s=3600"),
        steady,
    ),
    "unstaggered": Configuration(
        (
            "inference.processes=5", "inference.algorithm=unstaggered", "learning.processes=0",
            f"inference.injected_latency_ms={4.9 * 1e3 / 60}",
        ),
        in_step,
        60.0,
    ),
    "killed": Configuration(("inference.processes=3", "inference.algorithm=maximum-time"), killed),
    "rescaled": Configuration(("inference.injected_latency_ms=25",), rescaled),
    "horizons": Configuration(
        (
            "learning.processes=3", "r3.mode=step", "r3.deadline_s=2", "r3.data_budget=40000",
            "r3.memory_budget_mb=2000",
        ),
        horizons,
    ),
}


def measure(name: str) -> list[list[Line]]:
    """Run a configuration: the lines of each comparison."""
    chosen = CONFIGURATIONS[name]
    settings = (*WORLD, f"env.rate_hz={chosen.rate_hz}", *chosen.settings)
    with (
        RunningDaemon(*settings, quiet=True, ready=False) as daemon,
        witness_of(daemon) as witness,
    ):
        run = Run(daemon, witness, chosen.rate_hz)
        run.settle()
        return [run.compare() for _ in chosen.script(run)]


def witness_of(daemon: RunningDaemon) -> Witness:
    """A witness of a daemon, as soon as the daemon has laid out its memory."""
    limit = time.monotonic() + LIMIT_S
    while True:
        try:
            return Witness(daemon.process.pid, CAPACITY)
        except (FileNotFoundError, ValueError):
            if time.monotonic() > limit:
                raise
            time.sleep(EVERY_S)


def show(name: str, lines: list[Line]) -> None:
    """Print one comparison."""
    table = plain_table("figure", "said", "counted", "verdict")
    for line in lines:
        counted = line.counted
        if isinstance(counted, list):
            counted = " to ".join(f"{each:.6g}" for each in counted)
        style = "red" if line.verdict == "differs" else None
        table.add_row(line.figure, _shown(line.said), _shown(counted), line.verdict, style=style)
    stdout().print(f"\n{name}", table)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "unknown" if value is None else str(value)


def main() -> int:
    """Recount; exit code 1 if a figure differs."""
    parser = command_line(__doc__)
    add_names(parser, "CONFIGURATION", CONFIGURATIONS)
    args = parser.parse_args()
    started = time.monotonic()
    found = {name: measure(name) for name in args.names}
    if args.json:
        answer = {
            name: [[asdict(line) for line in lines] for lines in each]
            for name, each in found.items()
        }
        print_json({"seconds": time.monotonic() - started, "configurations": answer})
    else:
        for name, comparisons in found.items():
            for number, lines in enumerate(comparisons, start=1):
                show(f"{name}, {number} of {len(comparisons)}", lines)
    verdicts = {line.verdict for each in found.values() for lines in each for line in lines}
    return int("differs" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
