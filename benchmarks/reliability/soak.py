"""The daemon under random kills and changes for half an hour: does it grow, and does it lie?

Every ten seconds something is done to the built-in game's daemon: a process is killed or stopped,
the processes are rescaled, a setting is changed, a checkpoint is ordered. Once it has recovered and
the settings are as before, its memory, descriptors and threads are read from `/proc`. Meanwhile the
tick ledger is read from the outside; at the end every figure that it settles is counted anew and
compared with `/v1/stats`, while the environment is stopped for a moment.

Bars, after a warm-up: the memory of all processes together (proportional set sizes, medians of the
first and the last fifth) grows by less than 2 %, no more descriptors are open, no figure is untrue,
and no process has died that was not killed.

    rtagent bench soak [--minutes M] [--seed N] [--json]
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from benchmarks.command import long_run
from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import descriptors, gone, proportional_bytes, threads
from benchmarks.recount.raw_ledger import Ledger, Recount
from rtagent.cli.output import plain_table, progress_bar, stdout
from rtagent.processes.kernel_state import descendants

ROUND_S = 10.0
BETWEEN_DEATHS_S = 16.0
"""So that none counts as failed, as one does that keeps dying soon after its start."""
RECOVERY_LIMIT_S = 60.0
QUIET_S = 2.0
WARM_UP_S = 180.0
"""Or a fifth of the time, if that is less: the replay and the learner's caches fill up."""
POLL_S = 0.1
TRIALS = 3
MOST_GROWTH = 0.02
CAPACITY = 4096
"""Ticks: the replay is full before the first fifth of a long run is over."""
SETTINGS = (f"replay.capacity={CAPACITY}", "run.checkpoint_every_s=15")
USUAL: dict[str, dict[str, Any]] = {
    "/v1/inference": {"processes": 2, "algorithm": "adaptive"},
    "/v1/learning": {"processes": 1, "paused": False, "batch_size": 32},
    "/v1/deadlines": {"mode": "off"},
}
KILLINGS = {
    "kill inference": ("inference", 1),
    "kill all inference": ("inference", 9),
    "kill learner": ("learner", 1),
    "kill environment": ("environment", 1),
    "kill service": ("service", 1),
    "stop inference": ("inference", 1),
}
"""The role, and how many processes of it at most."""

Sample = dict[str, float]


class NotRecovered(Exception):
    """The daemon did not come back to its usual state."""


@dataclass
class Soak:
    """One run.

    Attributes:
        daemon: the daemon under test.
        recount: follows the ledger of the daemon.
        random: chooses what is done.
        done: how often each disturbance was done.
        samples: what was read after each recovery.
        recovered_s: how long each recovery took.
        killed: how often each process was killed or stopped, by its name.
        deaths: how often each died and came back, also because it was killed.
    """

    daemon: RunningDaemon
    recount: Recount
    random: random.Random
    done: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    recovered_s: list[float] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    _died: dict[str, float] = field(default_factory=dict)
    _restarts: dict[str, int] = field(default_factory=dict)

    # ---- what is done to it

    def disturb(self) -> None:
        """Do one thing, chosen at random among those whose victims have had time to recover."""
        changes: dict[str, Callable[[], None]] = {
            "rescale inference": self._rescale,
            "rescale learners": lambda: self._change(
                "/v1/learning", processes=self.random.choice([0, 2, 3])
            ),
            "algorithm": lambda: self._change("/v1/inference", algorithm="maximum-time"),
            "pause": lambda: self._change("/v1/learning", paused=True),
            "batch size": lambda: self._change("/v1/learning", batch_size=64),
            "deadline": lambda: self._change(
                "/v1/deadlines", mode="step", deadline_s=5.0, data_budget=4000
            ),
            "checkpoint": lambda: self._ask(self.daemon.post, "/v1/checkpoints"),
        }
        name = self.random.choice([*KILLINGS, *changes])
        victims = self._sample_roles(*KILLINGS[name]) if name in KILLINGS else []
        now = time.monotonic()
        if any(now - self._died.get(role["name"], 0.0) < BETWEEN_DEATHS_S for role in victims):
            name, victims = "rescale inference", []
        self.done[name] = self.done.get(name, 0) + 1
        for role in victims:
            self._died[role["name"]] = now
            self.kill(role, signal.SIGSTOP if name == "stop inference" else signal.SIGKILL)
        if name in changes:
            changes[name]()

    def _sample_roles(self, name: str, most: int) -> list[dict[str, Any]]:
        roles = [role for role in self.roles() if role["role"] == name and role["pid"]]
        return self.random.sample(roles, min(most, len(roles)))

    def kill(self, role: dict[str, Any], number: int = signal.SIGKILL) -> None:
        """Send a signal to a process; the death of an environment is noted."""
        os.kill(role["pid"], number)
        self.killed[role["name"]] += 1
        if role["role"] == "environment":
            while not gone(role["pid"]):
                time.sleep(0.001)
            self.recount.note_death()

    def _rescale(self) -> None:
        for _ in range(3):
            self._change("/v1/inference", processes=self.random.randint(1, 8))

    def _change(self, path: str, **changes: Any) -> None:
        self._ask(self.daemon.patch, path, **changes)

    def _ask(self, call: Callable[..., Any], path: str, **content: Any) -> Any:
        """Call the daemon; repeat the call while its service is being started again."""
        deadline = time.monotonic() + RECOVERY_LIMIT_S
        while True:
            try:
                return call(path, **content)
            except httpx.HTTPError as error:
                refused = isinstance(error, httpx.HTTPStatusError)
                if refused or time.monotonic() > deadline:
                    raise NotRecovered(f"{call.__name__} {path}: {error}") from error
                time.sleep(POLL_S)

    # ---- what is seen of it

    def roles(self) -> list[dict[str, Any]]:
        """Its processes, as its status shows them."""
        found: list[dict[str, Any]] = self._ask(self.daemon.get, "/v1/status")["roles"]
        return found

    def recover(self) -> None:
        """Restore the usual settings and wait until all is as usual."""
        start = time.monotonic()
        for path, usual in USUAL.items():
            self._change(path, **usual)
        while not self.usual():
            if time.monotonic() - start > RECOVERY_LIMIT_S:
                raise NotRecovered(f"after {self.done}: {self.roles()}")
            self._wait(POLL_S)
        self.recovered_s.append(time.monotonic() - start)
        self._count_deaths()

    def _count_deaths(self) -> None:
        """Count restarts."""
        for role in self.roles():
            name, restarts = role["name"], role["restarts"]
            self.deaths[name] += restarts - self._restarts.get(name, 0)
            self._restarts[name] = restarts

    @property
    def died_by_themselves(self) -> int:
        """Deaths of processes that were not killed so often.

        One that was killed and does not come back, as fewer are wanted, excuses no other's death.
        """
        return (self.deaths - self.killed).total()

    def usual(self) -> bool:
        """Whether the usual processes run, and no others."""
        roles = self.roles()
        count = {name: sum(r["role"] == name for r in roles) for name in ("inference", "learner")}
        return count == {"inference": 2, "learner": 1} and all(
            role["state"] == "running" for role in roles
        )

    def wait_until(self, when: float) -> None:
        """Follow the ledger until then, seconds on the monotonic clock."""
        while time.monotonic() < when:
            self._wait(POLL_S)

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)
        self.recount.follow()

    def sample(self) -> None:
        """Read memory, descriptors and threads."""
        supervisor = self.daemon.process.pid
        roles = {role["pid"]: role["role"] for role in self.roles()}
        found: Sample = {}
        for pid in (supervisor, *descendants(supervisor)):
            name = "supervisor" if pid == supervisor else roles.get(pid, "others")
            found[f"{name} MiB"] = found.get(f"{name} MiB", 0.0) + proportional_bytes(pid) / 2**20
            if name in ("supervisor", "service"):
                found[f"{name} descriptors"] = descriptors(pid)
                found[f"{name} threads"] = threads(pid)
        found["all MiB"] = sum(value for name, value in found.items() if name.endswith("MiB"))
        self.samples.append(found)

    def untrue_figures(self) -> list[str]:
        """Figures of `/v1/stats` that differ from the ledger.

        An environment that was stopped between a row and its count is compared again.
        """
        for _ in range(TRIALS):
            environment = self._sample_roles("environment", 1)[0]["pid"]
            os.kill(environment, signal.SIGSTOP)
            try:
                time.sleep(0.2)
                self.recount.follow()
                asked = time.monotonic()
                stats = self._ask(self.daemon.get, "/v1/stats")
                answered = time.monotonic()
            finally:
                os.kill(environment, signal.SIGCONT)
            untrue = self.recount.untrue(stats, asked, answered)
            if not untrue:
                break
            self._wait(QUIET_S)
        return untrue


def run(minutes: float, seed: int) -> dict[str, Any]:
    """Soak a daemon; returns every figure."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    running = RunningDaemon(*SETTINGS, quiet=True)
    with running as daemon, progress_bar(*columns) as progress:
        rate_hz = daemon.stats()["clock"]["target_rate_hz"]
        ledger = Ledger(daemon.process.pid, CAPACITY)
        soak = Soak(daemon, Recount(ledger, rate_hz), random.Random(seed))
        bar = progress.add_task("soak", total=minutes * 60)
        untrue, stuck = [], None
        try:
            # The agent acts before its learner is there.
            soak.recover()
            soak.recovered_s.clear()
            start = time.monotonic()
            while (since := time.monotonic() - start) < minutes * 60:
                progress.update(bar, completed=since, description=f"{len(soak.recovered_s)} rounds")
                soak.disturb()
                soak.recover()
                soak.wait_until(max(time.monotonic() + QUIET_S, start + since + ROUND_S))
                if since >= min(WARM_UP_S, minutes * 60 / 5):
                    soak.sample()
            untrue = soak.untrue_figures()
        except NotRecovered as error:
            stuck = str(error)
    found = {
        "minutes": minutes,
        "seed": seed,
        "rounds": len(soak.recovered_s),
        "done": dict(sorted(soak.done.items())),
        "killed": soak.killed.total(),
        "died_by_themselves": soak.died_by_themselves,
        "longest_recovery_s": max(soak.recovered_s, default=None),
        "slips": soak.recount.slips,
        "environment_deaths": soak.recount.deaths,
        "ticks_missed": soak.recount.missed,
        "rows_lost_or_torn": ledger.lost + ledger.torn,
        "untrue_figures": untrue,
        "not_recovered": stuck,
        **growth(soak.samples),
        "samples": soak.samples,
    }
    return found | {"passed": passed(found)}


def growth(samples: list[Sample]) -> dict[str, Any]:
    """Every figure's median over the first and over the last fifth, and what has grown.

    The growth of the memory is None where nothing was read.
    """
    part = max(1, len(samples) // 5)
    first, last = samples[:part], samples[-part:]
    fifths = {
        name: [statistics.median(s[name] for s in some if name in s) for some in (first, last)]
        for name in sorted({name for sample in first for name in sample})
        if any(name in sample for sample in last)
    }
    memory = fifths.get("all MiB")
    return {
        "first_and_last_fifth": fifths,
        "memory_growth": None if memory is None else memory[1] / memory[0] - 1.0,
        "more_descriptors": {
            name: b - a for name, (a, b) in fifths.items() if name.endswith("descriptors")
        },
    }


def passed(found: dict[str, Any]) -> bool:
    """Whether every bar is met."""
    bad = ("died_by_themselves", "rows_lost_or_torn", "untrue_figures", "not_recovered")
    return (
        not any(found[name] for name in bad)
        and found["memory_growth"] is not None and found["memory_growth"] < MOST_GROWTH
        and all(more <= 0 for more in found["more_descriptors"].values())
    )


def show(result: Mapping[str, Any]) -> None:
    """Print the result as a table."""
    table = plain_table("", "first fifth", "last fifth", "growth")
    for name, (first, last) in result["first_and_last_fifth"].items():
        share = f"{100 * (last / first - 1):+.1f} %" if first else ""
        table.add_row(name, f"{first:.1f}", f"{last:.1f}", share)
    console = stdout()
    console.print(table)
    console.print(f"{result['rounds']} rounds in {result['minutes']} minutes: {result['done']}")
    for name in (
        "killed", "died_by_themselves", "longest_recovery_s", "slips", "environment_deaths",
        "ticks_missed", "rows_lost_or_torn", "untrue_figures", "not_recovered",
    ):
        console.print(f"{name}: {result[name]}")
    if result["memory_growth"] is None:
        console.print("the growth of the memory is unknown: the run was too short to read it")
    console.print("ok" if result["passed"] else "MISSED")


if __name__ == "__main__":
    sys.exit(long_run(__doc__, run, show))
