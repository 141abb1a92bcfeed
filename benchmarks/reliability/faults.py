"""Random faults in every process of a daemon: does the supervisor live, does the clock go on?

Every few seconds one random fault is done to one random process: a signal, no descriptors, no
processes, no memory, no room on the disk, an error of a megabyte, a slow step, a log whose reader
goes away. Then every process must come back. The tick ledger is read from outside meanwhile.

Limits: the supervisor lives; no tick is missed except through faults of the environment itself, or
of the fork server, from which it is started (up to 100 ticks that are late are made up for by the
default behaviour, and are not missed); every process comes back; at the end nothing is left
behind (processes, shared memory, temporary files), and the last checkpoint loads.

    rtagent bench faults [--minutes M] [--seed N] [--json]
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.command import long_run, print_lines
from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import gone
from benchmarks.recount.raw_ledger import Ledger, Recount
from rtagent.processes.kernel_state import descendants
from rtagent.storage import checkpoint as checkpoints

CAPACITY = 20_000
RATE_HZ = 60.0
SETTINGS = (
    "env.id=benchmarks.reliability.injected:Injected-v0",
    "policy.factory=benchmarks.reliability.injected:Policy",
    f"replay.capacity={CAPACITY}", "inference.processes=2", "learning.processes=2",
    "learning.learning_starts=100", "learning.evaluation_every_s=5", "run.checkpoint_every_s=5",
    # A machine that stalls all processes for a moment must not look like a missed tick.
    "env.max_catch_up_ticks=100",
)
HELD_S = (0.2, 4.0)
"""Shortest and longest duration of a fault that can be taken back, seconds."""
RECOVERY_LIMIT_S = 100.0
"""The longest pause before a restart is 30 s; on a busy machine the start itself takes long."""
NOTICED_S = 1.0
END_LIMIT_S = 30.0
POLL_S = 0.1
WORKERS = ("environment", "inference", "learner", "evaluation", "recorder", "service")
EVERYBODY = (*WORKERS, "fork server", "supervisor")
DISK_BYTES = 16 << 20
PIDS = Path("/sys/fs/cgroup/pids")
EXCUSED = ("environment", "fork server")
"""Faults of these may cost ticks: the environment is a fork of the fork server."""


class Broken(Exception):
    """A limit is broken, so the run cannot go on."""


@dataclass
class Watch:
    """One run.

    Attributes:
        daemon: under test.
        folder: where `injected` finds its code.
        recount: follows the daemon's ledger.
        random: chooses faults and processes.
        log: the reading end of the daemon's stderr; None once it is closed.
        done: number of faults, by fault and process.
        recovered_s: duration of each recovery.
        missed: ticks that were missed without an excuse.
    """

    daemon: RunningDaemon
    folder: Path
    recount: Recount
    random: random.Random
    log: int | None
    done: dict[str, int] = field(default_factory=dict)
    recovered_s: list[float] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    # ---- the processes

    def roles(self) -> list[dict[str, Any]]:
        """The processes as the status shows them; none while the service does not answer."""
        self.check_alive()
        try:
            found: list[dict[str, Any]] = self.daemon.status()["roles"]
        except (httpx.HTTPError, OSError):
            return []
        return found

    def pid(self, name: str) -> int | None:
        """A process of a role, or None."""
        supervisor = self.daemon.process.pid
        if name == "supervisor":
            return supervisor
        if name == "fork server":
            children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
            return int(children[0]) if children else None
        pids = [role["pid"] for role in self.roles() if role["role"] == name and role["pid"]]
        return self.random.choice(pids) if pids else None

    def check_alive(self) -> None:
        """Refuse to go on without a supervisor."""
        if self.daemon.process.poll() is not None:
            raise Broken(f"the supervisor has ended: {self.daemon.process.returncode}")

    # ---- the faults

    def disturb(self) -> None:
        """Do one fault, and wait until all have recovered."""
        name = self.random.choice([*FAULTS])
        if name == "closed stderr" and self.log is None:
            return
        roles, inject = FAULTS[name]
        role = self.random.choice(roles)
        pid = self.pid(role)
        if pid is None:
            return
        what = f"{name} {role}"
        self.done[what] = self.done.get(what, 0) + 1
        before = self.recount.slips
        inject(self, pid, role)
        self.recover(what)
        if role not in EXCUSED:
            late = [f"{seconds:.2f} s at tick {tick}" for tick, seconds in self.recount.slipped]
            self.missed += [f"{what}: {each}" for each in late[before:]]

    def hold(self) -> None:
        """Let a fault last for a random time."""
        self.wait(self.random.uniform(*HELD_S))

    def wait(self, seconds: float) -> None:
        """Wait, and go on reading the ledger meanwhile."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.check_alive()
            self.recount.follow()
            time.sleep(POLL_S)

    def recover(self, what: str) -> None:
        """Wait until every process works and the world goes on."""
        start = time.monotonic()
        # The status does not show a death at once.
        self.wait(NOTICED_S)
        newest = self.recount.newest
        while not (self.all_running() and self.recount.newest > newest):
            if time.monotonic() - start > RECOVERY_LIMIT_S:
                raise Broken(f"after {what}, tick {newest}: {self.roles()}")
            self.wait(POLL_S)
        # The newest rows show what the fault has cost.
        self.wait(POLL_S)
        self.recovered_s.append(time.monotonic() - start)

    def all_running(self) -> bool:
        """Whether every process runs."""
        roles = self.roles()
        return len(roles) == 8 and all(role["state"] == "running" for role in roles)

    def kill_inference(self) -> None:
        """Kill a process, so that one must be started while the fault lasts."""
        pid = self.pid("inference")
        if pid is not None:
            send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    """Send a signal, if the process is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def signalled(number: signal.Signals) -> Callable[[Watch, int, str], None]:
    """The fault of a signal."""
    return lambda watch, pid, role: send(pid, number)


def stopped(watch: Watch, pid: int, role: str) -> None:
    """Stop a process for a while."""
    send(pid, signal.SIGSTOP)
    try:
        watch.hold()
    finally:  # A stopped supervisor hears no signal that would end it.
        send(pid, signal.SIGCONT)


def limited(limit: int, value: Callable[[int], int]) -> Callable[[Watch, int, str], None]:
    """The fault that a resource, `resource.RLIMIT_*`, is limited for a while."""

    def inject(watch: Watch, pid: int, role: str) -> None:
        with suppress(ProcessLookupError, FileNotFoundError):
            former = resource.prlimit(pid, limit)
            resource.prlimit(pid, limit, (value(pid), former[1]))
            if role in ("supervisor", "fork server"):
                watch.kill_inference()
            watch.hold()
            resource.prlimit(pid, limit, former)

    return inject


def open_descriptors(pid: int) -> int:
    """One more than the highest descriptor; with it as the limit, no other can be opened."""
    return max(map(int, os.listdir(f"/proc/{pid}/fd"))) + 1


def mapped_bytes(pid: int) -> int:
    """Address space that a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def no_processes(watch: Watch, pid: int, role: str) -> None:
    """Refuse every fork for a while."""
    group = PIDS / f"rtagent-faults-{watch.daemon.process.pid}"
    if not group.exists():
        limited(resource.RLIMIT_NPROC, lambda _: 1)(watch, pid, role)
        return
    (group / "pids.max").write_text("1")
    watch.kill_inference()
    watch.hold()
    (group / "pids.max").write_text("max")


def no_room(watch: Watch, pid: int, role: str) -> None:
    """Fill the disk for a while."""
    filler = watch.daemon.state_dir / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.tell() < 2 * DISK_BYTES:
            file.write(bytes(1 << 16))
    with suppress(httpx.HTTPError):
        watch.daemon.post("/v1/checkpoints")
    watch.hold()
    filler.unlink()


def asked(what: Callable[[Watch], str]) -> Callable[[Watch, int, str], None]:
    """The fault of code that the world or the policy runs at its next step."""

    def inject(watch: Watch, pid: int, role: str) -> None:
        draft = watch.folder / "draft"
        draft.write_text(what(watch))
        draft.rename(watch.folder / role)
        watch.hold()

    return inject


def close_log(watch: Watch, pid: int, role: str) -> None:
    """Close the reading end of stderr."""
    if watch.log is not None:
        os.close(watch.log)
        watch.log = None


CHILDREN = (*WORKERS, "fork server")
FAULTS: dict[str, tuple[tuple[str, ...], Callable[[Watch, int, str], None]]] = {
    "SIGKILL": (CHILDREN, signalled(signal.SIGKILL)),
    "SIGSTOP": (EVERYBODY, stopped),
    "SIGTERM": (CHILDREN, signalled(signal.SIGTERM)),
    "SIGHUP": (CHILDREN, signalled(signal.SIGHUP)),
    "EMFILE": (EVERYBODY, limited(resource.RLIMIT_NOFILE, open_descriptors)),
    "EAGAIN": (("fork server",), no_processes),
    "ENOMEM": (EVERYBODY, limited(resource.RLIMIT_AS, mapped_bytes)),
    "ENOSPC": (("learner",), no_room),
    "error of 1 MB": (
        ("environment", "inference", "learner"),
        asked(lambda watch: "raise ValueError('x' * 1_000_000)"),
    ),
    "slow step": (
        ("environment", "inference", "learner"),
        asked(lambda watch: f"nap({watch.random.uniform(0.1, 4.0):.2f})"),
    ),
    "closed stderr": (("supervisor",), close_log),
}
"""Faults by name: the processes that each may be done to, and how it is done."""


@contextmanager
def small_disk() -> Iterator[Path]:
    """A folder, on a small disk of its own where mounting is permitted."""
    with tempfile.TemporaryDirectory() as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "none", name]
        mounted = not subprocess.run(command, capture_output=True, check=False).returncode
        try:
            yield Path(name)
        finally:
            if mounted:
                subprocess.run(["umount", "-l", name], check=True)


@contextmanager
def counted_processes(supervisor: int) -> Iterator[None]:
    """Put a daemon into a control group that can refuse forks, where that is permitted."""
    group = PIDS / f"rtagent-faults-{supervisor}"
    try:
        group.mkdir()
    except OSError:
        yield
        return
    for pid in (supervisor, *descendants(supervisor)):
        (group / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            (PIDS / "cgroup.procs").write_text(line)
        group.rmdir()


def run(minutes: float, seed: int) -> dict[str, Any]:
    """Inject faults for a while; all figures."""
    broken: str | None = None
    reader, writer = os.pipe()
    with small_disk() as state_dir, tempfile.TemporaryDirectory() as folder:
        daemon = RunningDaemon(
            *SETTINGS, state_dir=state_dir, environ={"INJECTED": folder}, stderr=writer
        )
        with daemon, counted_processes(daemon.process.pid):
            os.close(writer)
            ledger = Ledger(daemon.process.pid, CAPACITY)
            watch = Watch(
                daemon, Path(folder), Recount(ledger, RATE_HZ), random.Random(seed), reader
            )
            start = time.monotonic()
            try:
                watch.recover("the start")
                watch.recovered_s.clear()
                while time.monotonic() - start < minutes * 60:
                    watch.disturb()
                watch.recover("everything")
            except Broken as error:
                broken = str(error)
            left = end(daemon)
        found = {
            "minutes": minutes,
            "seed": seed,
            "faults": sum(watch.done.values()),
            "done": dict(sorted(watch.done.items())),
            "broken": broken,
            "missed_ticks_after": watch.missed,
            "ticks": watch.recount.newest + 1,
            "rows_lost_or_torn": ledger.lost + ledger.torn,
            "longest_recovery_s": round(max(watch.recovered_s, default=0.0), 1),
            "left_behind": left,
            "last_checkpoint": last_checkpoint(state_dir),
        }
        if watch.log is not None:
            os.close(watch.log)
    return found | {"passed": passed(found)}


def end(daemon: RunningDaemon) -> list[str]:
    """Stop the daemon; list what it leaves behind."""
    family = descendants(daemon.process.pid)
    daemon.process.send_signal(signal.SIGTERM)
    left = []
    try:
        code = daemon.process.wait(END_LIMIT_S)
        left += [] if code == 0 else [f"exit code {code}"]
    except subprocess.TimeoutExpired:
        left.append("the supervisor")
    until = time.monotonic() + END_LIMIT_S
    while not all(map(gone, family)) and time.monotonic() < until:
        time.sleep(POLL_S)
    left += [f"process {pid}" for pid in family if not gone(pid)]
    left += [str(path) for path in daemon.state_dir.rglob(".*") if path.name != ".checkpoint"]
    if (daemon.state_dir / "daemon.json").exists():
        left.append("daemon.json")
    return left


def last_checkpoint(state_dir: Path) -> str:
    """Updates of the last checkpoint, or what is wrong with it."""
    newest = checkpoints.newest(state_dir / "checkpoints")
    if newest is None:
        return "none"
    try:
        return f"{checkpoints.load(newest).counters.updates} updates"
    except checkpoints.CheckpointError as error:
        return f"bad: {error}"


def passed(found: dict[str, Any]) -> bool:
    """Whether every limit is kept."""
    bad = ("broken", "missed_ticks_after", "rows_lost_or_torn", "left_behind")
    return not any(found[name] for name in bad) and found["last_checkpoint"].endswith("updates")


if __name__ == "__main__":
    sys.exit(long_run(__doc__, run, print_lines))
