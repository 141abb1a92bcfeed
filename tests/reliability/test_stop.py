"""An orderly end in time, whatever the children and the clients do."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import gone
from rtagent.processes.kernel_state import descendants
from tests.conftest import eventually
from tests.reliability.conftest import Machine, holders, memfds, updates

pytestmark = [pytest.mark.process, pytest.mark.realtime]

FAULTY = Path(__file__).parent.parent / "faulty"
STREAMS = 10
LIMIT_S = 8.0
SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=60", "replay.capacity=20000", "inference.processes=2",
    "learning.learning_starts=100", "policy.factory=faulty:DeafWhenTold",
)


def open_stream(daemon: RunningDaemon) -> socket.socket:
    """An event stream whose client has begun to read."""
    address = urlsplit(daemon.url)
    stream = socket.create_connection((address.hostname, address.port), timeout=10)
    stream.sendall(
        f"GET /v1/stats/stream?hz=20 HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {daemon.token}\r\n\r\n".encode()
    )
    assert stream.recv(1024).startswith(b"HTTP/1.1 200")
    return stream


def deaf(pid: int) -> bool:
    """Whether a process has blocked SIGTERM."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    blocked = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
    return bool(blocked >> (signal.SIGTERM - 1) & 1)


def test_deaf_processes_and_open_streams(tmp_path: Path, machine: Machine) -> None:
    switch = tmp_path / "switch"
    environ = {"PYTHONPATH": f"{FAULTY}:{FAULTY.parents[1]}", "FAULTY_SWITCH": str(switch)}
    with (
        RunningDaemon(*SETTINGS, state_dir=tmp_path / "state", environ=environ) as daemon,
        contextlib.ExitStack() as streams,
    ):
        eventually(lambda: updates(daemon) > 0, "it learns")
        for _ in range(STREAMS):
            streams.enter_context(open_stream(daemon))
        actors = [each["pid"] for each in daemon.workers()]
        family, memory = descendants(daemon.process.pid), memfds(daemon.process.pid)
        switch.touch()
        eventually(lambda: all(map(deaf, actors)), "nobody who acts hears SIGTERM")
        start = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        eventually(lambda: daemon.process.poll() is not None, "stopped")
        took_s = time.monotonic() - start
        eventually(lambda: all(map(gone, family)), "every process is gone")
        assert holders(memory) == set()
    machine.measure()
    assert took_s <= machine.allows(LIMIT_S)
    assert daemon.process.returncode == 0
    assert not (daemon.state_dir / "daemon.json").exists()
    assert list((daemon.state_dir / "checkpoints").glob("*.safetensors"))
