"""The supervisor is killed: nothing outlives it, and what it had learned is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.daemon import RunningDaemon, options
from benchmarks.process_figures import gone, in_session
from rtagent.processes.kernel_state import descendants
from tests.conftest import eventually
from tests.reliability.conftest import Machine, held_bytes, holders, memfds, shared_bytes, updates
from tests.reliability.watching import (
    LEADING_A_GROUP,
    check_group_ends_in_order,
    newest_checkpoint,
)

pytestmark = pytest.mark.process

LIMIT_S = 1.0
# A sum tree of this size is reserved at the start: shared memory that is seen to go.
CAPACITY = 4_000_000
SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=120", f"replay.capacity={CAPACITY}",
    "learning.prioritized=true", "learning.learning_starts=100", "learning.updates_per_tick=0.25",
    "inference.processes=3",
)


@pytest.mark.realtime
def test_everything_ends_with_it_and_the_next_one_goes_on_until_sighup(
    tmp_path: Path, machine: Machine
) -> None:
    named = set(os.listdir("/dev/shm"))
    with RunningDaemon(*SETTINGS, state_dir=tmp_path) as daemon:
        eventually(lambda: updates(daemon) > 10, "it learns")
        written = daemon.post("/v1/checkpoints")
        version = daemon.stats()["learning"]["weights_version"]
        pid = daemon.process.pid
        family = descendants(pid)
        roles = {each["pid"] for each in daemon.status()["roles"]}
        assert roles < family
        commands = [Path(f"/proc/{each}/cmdline").read_text() for each in family - roles]
        assert any("fork_server" in command for command in commands)
        memory, held, before = memfds(pid), sum(held_bytes(pid).values()), shared_bytes()
        assert holders(memory) >= roles
        daemon.process.kill()
        took_s = eventually(lambda: all(map(gone, [pid, *family])), "every process is gone")
        machine.measure()
        assert took_s <= machine.allows(LIMIT_S)
        daemon.process.wait()
        assert holders(memory) == set()
        assert held > 50 << 20
        eventually(lambda: before - shared_bytes() > 0.8 * held, "the memory is the system's again")
        # Other programs' have a name for a moment.
        eventually(lambda: set(os.listdir("/dev/shm")) <= named, "nothing with a name is left")
    newest = newest_checkpoint(tmp_path)
    saved = newest.counters.updates
    assert saved >= written["updates"] > 10
    # It could not take back what it had announced.
    (tmp_path / "daemon.json").unlink()
    with RunningDaemon(*SETTINGS, state_dir=tmp_path, under=LEADING_A_GROUP) as daemon:
        assert daemon.stats()["learning"]["weights_version"] >= version
        eventually(lambda: updates(daemon) > 0, "a learner has taken over")
        assert updates(daemon) >= saved
        eventually(lambda: updates(daemon) > saved, "learning goes on")
        check_group_ends_in_order(daemon, signal.SIGHUP)


@pytest.mark.parametrize("processes", [2, 3, 6])
def test_killed_while_it_starts(tmp_path: Path, processes: int) -> None:
    """At the moment when so many processes exist, of which the newest has just begun."""
    command = [
        sys.executable, "-m", "rtagent", "serve", "--port", "0", "--state-dir", str(tmp_path)
    ]
    daemon = subprocess.Popen(
        [*command, *options(*SETTINGS)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        eventually(lambda: len(in_session(daemon.pid)) >= processes, "they are there")
        daemon.kill()
        daemon.wait()
        # A process that has just begun ends when it checks whether its parent lives.
        eventually(lambda: not in_session(daemon.pid), "every process is gone")
    finally:
        for pid in in_session(daemon.pid):
            os.kill(pid, signal.SIGKILL)
