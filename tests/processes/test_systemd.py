"""systemd's notification protocol, against a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest

from rtagent.clock import VirtualClock
from rtagent.processes.systemd import Systemd


class Manager:
    """What systemd does: listens on a datagram socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    @property
    def heard(self) -> list[str]:
        """The messages since the last call."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    named = str(tmp_path / "notify") if request.param == "path" else f"@rtagent-test-{os.getpid()}"
    manager = Manager(named)
    yield manager
    manager.close()


@pytest.fixture
def at_path(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


def systemd(address: str, watchdog_s: float | None = None) -> Systemd:
    environ = {"NOTIFY_SOCKET": address}
    if watchdog_s is not None:
        environ |= {"WATCHDOG_USEC": f"{watchdog_s * 1e6:.0f}", "WATCHDOG_PID": str(os.getpid())}
    return Systemd(environ)


def always(now: float) -> bool:
    return True


@pytest.mark.parametrize(("environ", "watchdog_s"), [
    ({"WATCHDOG_USEC": "30000000"}, 30.0),
    ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
    ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ({"WATCHDOG_USEC": "0"}, None),
    ({"WATCHDOG_USEC": "soon"}, None),
    ({}, None),
])
def test_watchdog_of_this_process(environ: dict[str, str], watchdog_s: float | None) -> None:
    assert Systemd({"NOTIFY_SOCKET": "/run/systemd/notify", **environ}).watchdog_s == watchdog_s


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "relative"])
def test_nothing_is_sent_without_a_socket(address: str | None) -> None:
    listens = {} if address is None else {"NOTIFY_SOCKET": address}
    told = Systemd({"WATCHDOG_USEC": "30000000", **listens})
    assert told.watchdog_s is None
    told.step(0.0, "running", always)
    told.close()


def test_a_full_socket_is_not_waited_for(at_path: Manager) -> None:
    told = systemd(at_path.address)
    for now in range(10_000):
        told.step(float(now), ("running", "degraded")[now % 2], always)
    assert 1 <= len(at_path.heard) < 10_000
    told.step(1e6, "stopping", always)
    assert at_path.heard == ["STOPPING=1\nSTATUS=stopping"]


def test_a_socket_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    first = Manager(str(tmp_path / "notify"))
    told = systemd(first.address, 3.0)
    first.close()
    told.step(0.0, "running", always)
    Path(first.address).unlink()
    told.step(0.1, "running", always)
    second = Manager(first.address)
    told.step(0.2, "running", always)
    told.step(0.3, "running", always)
    assert second.heard == ["READY=1\nSTATUS=running", "WATCHDOG=1"]
    second.close()


def test_ready_once_and_the_status_when_it_changes(manager: Manager) -> None:
    told = systemd(manager.address)
    states = ["starting", "starting", "running", "running", "degraded", "running", "stopping",
              "stopping"]
    for now, state in enumerate(states):
        told.step(float(now), state, always)
    assert manager.heard == [
        "STATUS=starting", "READY=1\nSTATUS=running", "STATUS=degraded", "STATUS=running",
        "STOPPING=1\nSTATUS=stopping",
    ]
    told.close()
    told.step(9.0, "running", always)
    assert manager.heard == []


def test_a_third_of_the_limit_between_signs_of_life(at_path: Manager) -> None:
    clock, told, pings = VirtualClock(1000.0), systemd(at_path.address, 30.0), []
    for _ in range(600):
        told.step(clock.now(), "running", always)
        pings += [clock.now()] * at_path.heard.count("WATCHDOG=1")
        clock.advance(0.1)
    gaps = [later - earlier for earlier, later in pairwise(pings)]
    assert pings[0] == 1000.0
    assert len(gaps) == 5
    assert all(10.0 - 1e-6 <= gap <= 10.2 for gap in gaps)


def test_no_sign_of_life_while_a_role_is_silent(at_path: Manager) -> None:
    clock, told, pings, asked = VirtualClock(0.0), systemd(at_path.address, 30.0), [], []

    def fresh(now: float) -> bool:
        asked.append(now)
        return not 5.0 <= now < 25.0

    for _ in range(400):
        told.step(clock.now(), "running", fresh)
        pings += [clock.now()] * at_path.heard.count("WATCHDOG=1")
        clock.advance(0.1)
    # Due at 10, and sent as soon as all heartbeats are fresh again.
    assert pings == pytest.approx([0.0, 25.0, 35.0], abs=0.2)
    # The heartbeats are checked when a sign of life is due, not at each step.
    assert not [now for now in asked if 0.2 < now < 9.8 or 25.2 < now < 34.8]


def test_heartbeats_are_not_checked_without_a_watchdog(at_path: Manager) -> None:
    systemd(at_path.address).step(0.0, "running", Mock(side_effect=AssertionError))
