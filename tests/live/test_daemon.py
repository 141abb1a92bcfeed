"""The installed program as a user runs it: `rtagent serve` and what talks to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.daemon import RunningDaemon, options
from rtagent.cli.serve import PROTECTED
from rtagent.processes.scheduling import SERVICE_NICE, SUPERVISOR_NICE
from rtagent.processes.worker import OUT_OF_MEMORY
from tests.cli.conftest import rtagent
from tests.conftest import eventually

pytestmark = pytest.mark.process

CARTPOLE = ("env.id=CartPole-v1", "replay.capacity=20000", "learning.updates_per_tick=1")
LARGE_PICTURES = ("env.id=CarRacing-v3", "env.image_size=96", "env.grayscale=false")
"""Those of the longest replay are 1.3 TB."""


def refused(*arguments: str) -> str:
    """Run a command that must be refused in one line, which is returned."""
    done = rtagent(*arguments)
    # No address of what does not run.
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr


def test_a_port_in_use_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(
            "serve", "--port", str(port), "--state-dir", str(tmp_path), *options(*CARTPOLE)
        )
    assert f"port {port} is in use" in said
    assert not (tmp_path / "daemon.json").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "env.id=Nowhere-v7"], "Nowhere-v7"),
        (["--host", "0.0.0.0"], "--insecure"),
        (options(*LARGE_PICTURES, "replay.capacity=50000000"), "too little memory"),
    ],
)
def test_bad_input_ends_in_one_line(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    assert reason in refused("serve", "--port", "0", "--state-dir", str(tmp_path), *arguments)
    assert not (tmp_path / "daemon.json").exists()


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    """It learns as long as it runs, so the tests that need none come first."""
    with RunningDaemon(*CARTPOLE) as running:
        yield running


def test_it_answers_and_obeys(daemon: RunningDaemon) -> None:
    eventually(lambda: daemon.status()["state"] == "running", "running")
    answer = daemon.patch_inference(processes=4, algorithm="maximum-time")
    assert (answer["processes"], answer["ready"]) == (4, 4)
    eventually(lambda: all(w["inferences"] for w in daemon.workers()), "all four act")
    state_dir = str(daemon.state_dir)
    shown = rtagent("status", "--state-dir", state_dir)
    assert shown.returncode == 0
    assert "inference 3" in shown.stdout
    changed = rtagent("set", "inference.processes=2", "--state-dir", state_dir)
    assert changed.returncode == 0
    assert daemon.stats()["inference"]["processes"] == 2
    refused("set", "inference.processes=0", "--state-dir", state_dir)
    assert daemon.stats()["inference"]["processes"] == 2


def test_priorities_and_out_of_memory_scores(daemon: RunningDaemon) -> None:
    pids = {each["role"]: each["pid"] for each in daemon.status()["roles"]}

    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    def nice(pid: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, pid)

    def may(change: str) -> bool:
        tried = subprocess.run([sys.executable, "-c", change], capture_output=True, check=False)
        return tried.returncode == 0

    # To sacrifice oneself takes no right.
    assert score(pids["learner"]) == OUT_OF_MEMORY["learner"] > 0
    assert score(pids["recorder"]) == OUT_OF_MEMORY["recorder"] > 0
    if may(f"open('/proc/self/oom_score_adj', 'wb', 0).write(b'{PROTECTED}')"):
        assert score(daemon.process.pid) == PROTECTED
        assert {role: score(pid) for role, pid in pids.items()}.items() <= OUT_OF_MEMORY.items()
    if may(f"import os; os.setpriority(os.PRIO_PROCESS, 0, {SUPERVISOR_NICE})"):
        assert nice(daemon.process.pid) == SUPERVISOR_NICE
        assert nice(pids["service"]) == SERVICE_NICE


def test_the_figures_agree_with_each_other(daemon: RunningDaemon) -> None:
    eventually(lambda: daemon.stats()["clock"]["ticks"] > 200, "200 ticks")
    looks = [daemon.stats()]

    def total() -> int:
        actions = looks[-1]["actions"]
        return int(actions["agent"] + actions["reused"] + actions["default"])

    def agree() -> bool:
        looks.append(daemon.stats())
        return abs(total() - looks[-1]["clock"]["ticks"]) <= 1

    # The counters are read one after the other while the world goes on.
    eventually(agree, "every tick is counted once")
    stats = looks[-1]
    actions = stats["actions"]
    assert actions["inaction_fraction"] == pytest.approx(actions["default"] / total(), abs=0.01)
    assert stats["learning"]["weights_version"] >= 1
    assert stats["r3"]["deadline_s"] is None


def test_a_second_daemon_is_refused_the_directory(daemon: RunningDaemon) -> None:
    said = refused(
        "serve", "--port", "0", "--state-dir", str(daemon.state_dir), *options(*CARTPOLE)
    )
    assert "held by another daemon" in said
    eventually(lambda: daemon.status()["state"] == "running", "running")
