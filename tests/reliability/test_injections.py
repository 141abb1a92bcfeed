"""What must not end or block the supervisor: one row each, injected into a live daemon.

Every row is done to the same daemon, whose log goes into a pipe that nobody reads. After each of
them the same must hold: the supervisor is the process that it was and answers, every process works,
and the world goes on. A row adds what it alone promises.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.daemon import RunningDaemon
from benchmarks.reliability.faults import mapped_bytes, open_descriptors
from rtagent.processes.kernel_state import descendants, fields_of
from tests.conftest import eventually

from .watching import await_ticks

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SETTINGS = (
    "env.id=benchmarks.reliability.injected:Injected-v0",
    "policy.factory=benchmarks.reliability.injected:Policy",
    "inference.processes=2", "learning.processes=0", "replay.capacity=20000",
    "run.tensorboard=false",
)
PAUSE_S = 2.5
"""Longer than a process may be silent: about 2 s."""
REFUSED_S = 1.0


class Victim:
    """The daemon into which everything is injected, and what the tests inspect."""

    def __init__(self, folder: Path) -> None:
        self.injected = folder / "injected"
        self.injected.mkdir()
        self.log = folder / "log"
        os.mkfifo(self.log)
        # Held open and never read.
        self._log = os.open(self.log, os.O_RDWR)
        self._environ = {"PYTHONPATH": str(ROOT), "INJECTED": str(self.injected)}
        self.daemon: RunningDaemon | None = None

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        if self.daemon is not None:
            self.daemon.__exit__(None, None, None)
        os.close(self._log)
        ended = self.daemon is None or self.daemon.process.returncode == 0
        assert ended, "it ends in order although nobody reads its log"

    def open(self) -> RunningDaemon:
        """The daemon; a new one if the row before has ended it: each row tells of itself."""
        if self.daemon is not None and self.daemon.process.poll() is not None:
            self.daemon.__exit__(None, None, None)
            self.daemon = None
        if self.daemon is None:
            silent = ("sh", "-c", 'log=$1; shift; exec "$@" 2>"$log"', "sh", str(self.log))
            self.daemon = RunningDaemon(*SETTINGS, environ=self._environ, under=silent)
            self.daemon.__enter__()
        return self.daemon

    def inject(self, role: str, code: str) -> None:
        """Have a worker of a role run code at its next step, and wait until it does."""
        draft, path = self.injected / "draft", self.injected / role
        draft.write_text(code)
        draft.rename(path)
        eventually(lambda: not path.exists(), f"{role} runs it")

    def pids(self) -> list[int]:
        """Every process of the daemon, itself included."""
        own = self.open().process.pid
        return [own, *descendants(own)]

    def fork_server(self) -> int:
        """The process that the workers are children of."""
        return int(fields_of(Path(f"/proc/{self.role('environment')['pid']}/stat"))[1])

    def role(self, name: str) -> dict[str, Any]:
        """A process as the status describes it."""
        roles = self.open().status()["roles"]
        found: dict[str, Any] = next(each for each in roles if each["name"] == name)
        return found

    def restarts(self) -> dict[str, int]:
        """Lives after the first, by process."""
        return {each["name"]: each["restarts"] for each in self.open().status()["roles"]}

    def replaced(self, names: frozenset[str], before: dict[str, int]) -> bool:
        """Whether these were restarted, as far as the service answers at the moment."""
        try:
            after = self.restarts()
        except httpx.TransportError:
            return False
        return all(after[name] > before[name] for name in names)

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Events of one kind, newest first."""
        found: list[dict[str, Any]] = self.open().get(f"/v1/events?kind={kind}&limit=500")["events"]
        return found

    def settled(self) -> bool:
        """Whether every process works."""
        try:
            status = self.open().status()
        except httpx.TransportError:
            return False
        return status["state"] == "running" and len(status["roles"]) == 4


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with Victim(tmp_path_factory.mktemp("victim")) as victim:
        yield victim


@dataclass(frozen=True)
class Row:
    """One fault.

    Attributes:
        what: is injected.
        inject: does it.
        dies: the processes that are replaced for it; the others must not be.
        holds: what this row promises beside what holds for all of them.
        refuses_supervisor: whether the supervisor itself may lack something; else no duty fails.
    """

    what: str
    inject: Callable[[Victim], object]
    dies: frozenset[str] = frozenset()
    holds: Callable[[Victim], object] = lambda victim: None
    refuses_supervisor: bool = False


def in_world(code: str) -> Callable[[Victim], object]:
    """Run code in the environment's process."""
    return lambda victim: victim.inject("environment", code)


def error_is_shown(text: str) -> Callable[[Victim], object]:
    """The status shows why the environment died, shortened."""

    def holds(victim: Victim) -> None:
        error = victim.role("environment")["last_error"]
        assert text in error
        assert len(error) < 12_000

    return holds


def told_shortly(kind: str) -> Callable[[Victim], object]:
    """There are events of this kind, each of bounded length."""

    def holds(victim: Victim) -> None:
        eventually(lambda: victim.told(kind), f"{kind} is told")
        assert max(len(str(each)) for each in victim.told(kind)) < 12_000

    return holds


def everybody_pauses(victim: Victim) -> None:
    """Stop the whole daemon, as a terminal or a freezer does, and let it go on."""
    pids = victim.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(PAUSE_S)
    # The supervisor last: no other is still stopped when it checks them again.
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: victim.told("paused"), "the supervisor has noticed")


def stopped(name: str) -> Callable[[Victim], object]:
    """Stop one process."""

    def inject(victim: Victim) -> None:
        pid = victim.fork_server() if name == "fork server" else victim.role(name)["pid"]
        os.kill(pid, signal.SIGSTOP)

    return inject


def refused(who: str, limit: int, value: Callable[[int], int]) -> Callable[[Victim], object]:
    """Limit what the supervisor or the fork server may have, while a process is missing."""

    def inject(victim: Victim) -> None:
        pid = victim.fork_server() if who == "fork server" else victim.open().process.pid
        _, hard = resource.prlimit(pid, limit)
        resource.prlimit(pid, limit, (value(pid), hard))
        try:
            os.kill(victim.role("inference 0")["pid"], signal.SIGKILL)
            time.sleep(REFUSED_S)
        finally:
            resource.prlimit(pid, limit, (hard, hard))

    return inject


def sent(number: signal.Signals, *, workers: bool = False) -> Callable[[Victim], object]:
    """Send a signal to the fork server, and to the workers, too."""

    def inject(victim: Victim) -> None:
        for pid in victim.pids()[1:] if workers else [victim.fork_server()]:
            os.kill(pid, number)

    return inject


def deaf_supervisor(victim: Victim) -> None:
    """Stop the supervisor alone; the world goes on, whatever it has to say."""
    supervisor = victim.open().process.pid
    os.kill(supervisor, signal.SIGSTOP)
    try:
        # However much the socket of this machine holds.
        victim.inject(
            "environment",
            "while context().dropped_events <= 100: context().event('unheard', news='x' * 1000)",
        )
        await_ticks(victim.open(), 60)
    finally:
        os.kill(supervisor, signal.SIGCONT)


def connected_anew(victim: Victim) -> None:
    """An empty packet ends the connection: the row after this finds a process with another one."""
    before, names = victim.restarts(), frozenset({"environment"})
    os.kill(victim.role("environment")["pid"], signal.SIGKILL)
    eventually(lambda: victim.replaced(names, before), "the environment has another connection")


def counts_what_was_dropped(victim: Victim) -> None:
    """The next event says how many were dropped."""
    victim.inject("environment", "context().event('heard')")
    eventually(lambda: victim.told("heard"), "it is heard again")
    assert victim.told("heard")[0]["events_dropped_before"] > 100


def refused_request(victim: Victim) -> None:
    """Ask for what no process can be given."""
    for path, change in (
        ("/v1/deadlines", {"data_budget": 10**300}),
        ("/v1/inference", {"action_deadline_ms": 1e308}),
        ("/v1/inference", {"processes": 10**30}),
    ):
        with pytest.raises(httpx.HTTPStatusError, match="422"):
            victim.open().patch(path, **change)


SAYS = "context().pipe.send"
ROWS = [
    Row(
        "an error of 2 MB in 200,000 lines that are no text",
        in_world(r"raise ValueError('\n\ud800\x00\x1b[31m' * 200_000 + 'x' * 600_000)"),
        frozenset({"environment"}), error_is_shown("Traceback"),
    ),
    Row(
        "60 events of 11 kB",
        in_world("for _ in range(60): context().event('world', news='x' * 11_000)"),
        holds=told_shortly("world"),
    ),
    Row(
        "an event of 20 MB with what JSON cannot hold",
        in_world("context().event('odd', news={1: {2: ['x' * 20_000_000]}, 'set': {object()}})"),
        holds=told_shortly("odd"),
    ),
    Row(
        "5,000 events at once",
        in_world("for number in range(5000): context().event('flood', number=number)"),
        holds=told_shortly("flood"),
    ),
    Row(
        "messages that make no sense",
        in_world(
            f"for each in (3, None, [], ['ready'], ['event', 3], ['event', {{'kind': 7}}], 'x',\n"
            f"             ['failed', {{'error': 5}}], {{'id': 'x'}}, ['what', {{}}]):\n"
            f"    {SAYS}(each)"
        ),
        holds=told_shortly("not_understood"),
    ),
    Row(
        "an event that claims to be another",
        in_world(f"{SAYS}(['event', {{'kind': 'fake', 'source': 'me', 'id': -1, 'at': 0}}])"),
        holds=told_shortly("fake"),
    ),
    Row(
        "a checkpoint that nobody asked for",
        in_world(f"{SAYS}(['event', {{'kind': 'checkpoint', 'request': [1]}}])"),
        holds=told_shortly("checkpoint"),
    ),
    Row(
        "bytes that are no message",
        in_world(r"for each in (b'\x80\x04junk', b'[' * 60_000, b'[1,'): say_raw(each)"),
    ),
    Row("an empty packet", in_world("say_raw(b'')"), holds=connected_anew),
    Row("a pause of every process", everybody_pauses),
    Row("a stopped environment", stopped("environment"), frozenset({"environment"})),
    Row("a stopped fork server", stopped("fork server")),
    Row("a supervisor that does not listen", deaf_supervisor, holds=counts_what_was_dropped),
    Row("a step of 2.5 s", in_world(f"nap({PAUSE_S})")),
    Row("requests out of bounds", refused_request),
    Row(
        "no descriptors for the fork server",
        refused("fork server", resource.RLIMIT_NOFILE, open_descriptors),
        frozenset({"inference 0"}),
    ),
    Row(
        "no descriptors for the supervisor",
        refused("supervisor", resource.RLIMIT_NOFILE, open_descriptors),
        frozenset({"inference 0"}), refuses_supervisor=True,
    ),
    Row(
        "no memory for the fork server", refused("fork server", resource.RLIMIT_AS, mapped_bytes),
        frozenset({"inference 0"}),
    ),
    Row("SIGTERM to the fork server", sent(signal.SIGTERM)),
    Row("SIGHUP to every child", sent(signal.SIGHUP, workers=True)),
    Row(
        "SIGKILL to the fork server", sent(signal.SIGKILL),
        frozenset({"environment", "inference 0", "inference 1", "service"}),
    ),
    Row(
        "a world that raises while the fork server is stopped",
        lambda victim: (stopped("fork server")(victim), victim.inject("environment", "1 / 0")),
        frozenset({"environment"}), error_is_shown("ZeroDivisionError"),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_the_supervisor_survives(victim: Victim, row: Row) -> None:
    daemon = victim.open()
    eventually(victim.settled, "every process works before")
    before = victim.restarts()
    wrong = len(victim.told("internal_error"))
    row.inject(victim)
    if row.dies:
        eventually(lambda: victim.replaced(row.dies, before), f"{sorted(row.dies)} replaced")
    eventually(victim.settled, "every process works again")
    # The same supervisor answers, and only once the processes follow it.
    assert daemon.process.poll() is None
    latency = 1.0 + daemon.get("/v1/inference")["injected_latency_ms"] % 2.0
    assert daemon.patch_inference(injected_latency_ms=latency)["injected_latency_ms"] == latency
    await_ticks(daemon, 20)
    after = victim.restarts()
    assert {name for name in after if after[name] > before[name]} == row.dies
    row.holds(victim)
    assert len(victim.told("internal_error")) == wrong or row.refuses_supervisor
