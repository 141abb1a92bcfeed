"""The installed program as a user runs it: `rtagent serve` and what talks to it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.daemon import RunningDaemon

from .conftest import eventually

pytestmark = pytest.mark.process

CARTPOLE = ("--set", "env.id=CartPole-v1", "--set", "replay.capacity=20000")


def rtagent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the installed program."""
    return subprocess.run(
        [sys.executable, "-m", "rtagent", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environment},
    )


def children(pid: int) -> set[int]:
    """All living descendants of a process."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            new = set(map(int, task.read_text().split())) - found
            found |= new
            waiting += new
    return found


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie waits for its parent, and runs no more)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with RunningDaemon(*CARTPOLE) as running:
        yield running


def test_it_answers_and_obeys(daemon: RunningDaemon) -> None:
    eventually(lambda: daemon.status()["state"] == "running", 20, "running")
    answer = daemon.patch_inference(processes=4, algorithm="maximum-time")
    assert (answer["processes"], answer["ready"]) == (4, 4)
    eventually(lambda: all(w["inferences"] for w in daemon.workers()), 5, "all four act")
    state_dir = str(daemon.state_dir)
    shown = rtagent("status", "--state-dir", state_dir)
    assert shown.returncode == 0
    assert "inference 3" in shown.stdout
    changed = rtagent("set", "inference.processes=2", "--state-dir", state_dir)
    assert changed.returncode == 0
    assert daemon.stats()["inference"]["processes"] == 2
    refused = rtagent("set", "inference.processes=0", "--state-dir", state_dir)
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) == 1
    assert daemon.stats()["inference"]["processes"] == 2


def test_the_figures_agree_with_each_other(daemon: RunningDaemon) -> None:
    eventually(lambda: daemon.stats()["clock"]["ticks"] > 200, 10, "200 ticks")
    stats = daemon.stats()
    actions = stats["actions"]
    total = actions["agent"] + actions["reused"] + actions["default"]
    # The counters are read one after the other while the world goes on.
    assert abs(total - stats["clock"]["ticks"]) <= 1
    assert actions["inaction_fraction"] == pytest.approx(actions["default"] / total, abs=0.01)
    assert stats["learning"]["weights_version"] >= 1
    assert stats["r3"]["deadline_s"] is None


def test_a_second_daemon_is_refused_its_directory_and_its_port(daemon: RunningDaemon) -> None:
    same = rtagent("serve", "--port", "0", "--state-dir", str(daemon.state_dir), *CARTPOLE)
    assert same.returncode == 2
    assert "held by another daemon" in same.stderr
    assert len(same.stderr.strip().splitlines()) == 1
    eventually(lambda: daemon.status()["state"] == "running", 20, "running")


def test_a_port_in_use_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = rtagent("serve", "--port", str(port), "--state-dir", str(tmp_path), *CARTPOLE)
    assert refused.returncode == 2
    assert f"port {port} is in use" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "daemon.json").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "env.id=Nowhere-v7"], "Nowhere-v7"),
        (["--set", "policy.network=brain"], "policy.network = 'brain'"),
        (["--set", "inference.processes=0"], "inference.processes = 0"),
        (["--set", "env.rate_hz=0"], "env.rate_hz = 0"),
        (["--config", "/nowhere/rtagent.toml"], "/nowhere/rtagent.toml"),
        (["--host", "0.0.0.0"], "--insecure"),
        (["--set", "policy.factory=nowhere:policy"], "nowhere"),
        (["--set", "replay.capacity=50000000"], "too little memory"),
    ],
)
def test_bad_input_ends_in_one_line(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    refused = rtagent("serve", "--port", "0", "--state-dir", str(tmp_path), *arguments)
    assert refused.returncode == 2
    assert reason in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "daemon.json").exists()


def test_a_killed_supervisor_takes_everything_with_it() -> None:
    with RunningDaemon(*CARTPOLE) as daemon:
        family = children(daemon.process.pid)
        assert len(family) >= 5
        daemon.process.kill()
        daemon.process.wait()
        eventually(lambda: all(map(gone, family)), 1.0, "every process is gone")
        assert not any("rtagent" in name for name in os.listdir("/dev/shm"))


def test_a_killed_service_comes_back_and_the_world_does_not_notice(daemon: RunningDaemon) -> None:
    before = daemon.stats()["clock"]
    service = next(r for r in daemon.status()["roles"] if r["role"] == "service")
    os.kill(service["pid"], signal.SIGKILL)

    def back() -> bool:
        try:
            roles = daemon.status()["roles"]
        except Exception:
            return False
        return any(r["role"] == "service" and r["restarts"] == 1 for r in roles)

    eventually(back, 5.0, "the service is back")
    after = daemon.stats()["clock"]
    assert after["slips"] == before["slips"]
    assert after["ticks"] > before["ticks"]


def test_it_stops_in_time_and_keeps_its_weights() -> None:
    with RunningDaemon(*CARTPOLE, "--set", "inference.processes=6") as daemon:
        eventually(lambda: _learns(daemon), 30, "the learner runs")
        daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: daemon.process.poll() is not None, 8.0, "stopped")
        assert daemon.process.returncode == 0
        assert list((daemon.state_dir / "checkpoints").glob("*.safetensors"))
        assert not (daemon.state_dir / "daemon.json").exists()


def _learns(daemon: RunningDaemon) -> bool:
    return any(r["role"] == "learner" and r["state"] == "running" for r in daemon.status()["roles"])
