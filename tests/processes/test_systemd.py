"""systemd's notification protocol, against a real socket."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from rtagent.clock import VirtualClock
from rtagent.processes.systemd import Heartbeat, Notifier, Systemd, every_role_fresh


class Manager:
    """What systemd does: listens on a datagram socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)

    @property
    def heard(self) -> list[str]:
        """Everything that has been said since the last look."""
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


def systemd(manager: Manager, watchdog_s: float | None = None) -> Systemd:
    environ = {"NOTIFY_SOCKET": manager.address}
    if watchdog_s is not None:
        environ |= {"WATCHDOG_USEC": f"{watchdog_s * 1e6:.0f}", "WATCHDOG_PID": str(os.getpid())}
    return Systemd(Notifier.from_environment(environ))


def always(now: float) -> bool:
    return True


# ---- the protocol


def test_what_is_said(manager: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": manager.address})
    assert notifier.ready("running\nREADY=0")
    assert notifier.status("degraded")
    assert notifier.watchdog()
    assert notifier.stopping()
    assert manager.heard == [
        "READY=1\nSTATUS=running READY=0", "STATUS=degraded", "WATCHDOG=1",
        "STOPPING=1\nSTATUS=stopping",
    ]
    notifier.close()
    assert not notifier.status("afterwards")


@pytest.mark.parametrize(
    ("environ", "watchdog_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_watchdog_of_this_process(environ: dict[str, str], watchdog_s: float | None) -> None:
    environ = {"NOTIFY_SOCKET": "/run/systemd/notify", **environ}
    assert Notifier.from_environment(environ).watchdog_s == watchdog_s


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "relative"])
def test_nothing_is_said_where_nobody_listens(address: str | None) -> None:
    environ = {"WATCHDOG_USEC": "30000000"}
    if address is not None:
        environ["NOTIFY_SOCKET"] = address
    notifier = Notifier.from_environment(environ)
    assert notifier.watchdog_s is None
    assert not notifier.ready("running")
    notifier.close()


def test_a_full_socket_is_not_waited_for(at_path: Manager) -> None:
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": at_path.address})
    sent = 0
    while notifier.status("x" * 1000):
        sent += 1
        assert sent < 100_000
    assert len(at_path.heard) == sent
    assert notifier.status("again")


def test_a_socket_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    first = Manager(str(tmp_path / "notify"))
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": first.address})
    first.close()
    assert not notifier.watchdog()
    Path(first.address).unlink()
    assert not notifier.watchdog()
    second = Manager(first.address)
    assert notifier.watchdog()
    assert second.heard == ["WATCHDOG=1"]
    second.close()


# ---- step by step


def test_ready_once_and_the_status_when_it_changes(at_path: Manager) -> None:
    told = systemd(at_path)
    states = ["starting", "starting", "running", "running", "degraded", "running", "stopping",
              "stopping"]
    for now, state in enumerate(states):
        told.step(float(now), state, always)
    assert at_path.heard == [
        "STATUS=starting", "READY=1\nSTATUS=running", "STATUS=degraded", "STATUS=running",
        "STOPPING=1\nSTATUS=stopping",
    ]


def test_what_could_not_be_said_is_said_later(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    told = Systemd(Notifier.from_environment({"NOTIFY_SOCKET": address}))
    told.step(0.0, "running", always)
    manager = Manager(address)
    told.step(0.1, "running", always)
    told.step(0.2, "running", always)
    assert manager.heard == ["READY=1\nSTATUS=running"]
    manager.close()


def test_a_third_of_the_limit_between_signs_of_life(at_path: Manager) -> None:
    clock, told, pings = VirtualClock(1000.0), systemd(at_path, 30.0), []
    for _ in range(600):
        told.step(clock.now(), "running", always)
        pings += [clock.now()] * at_path.heard.count("WATCHDOG=1")
        clock.advance(0.1)
    gaps = [later - earlier for earlier, later in pairwise(pings)]
    assert pings[0] == 1000.0
    assert len(gaps) == 5
    assert all(10.0 - 1e-6 <= gap <= 10.2 for gap in gaps)


def test_no_sign_of_life_while_a_role_is_silent(at_path: Manager) -> None:
    clock, told, pings, asked = VirtualClock(0.0), systemd(at_path, 30.0), [], []

    def fresh(now: float) -> bool:
        asked.append(now)
        return not 5.0 <= now < 25.0

    for _ in range(400):
        told.step(clock.now(), "running", fresh)
        pings += [clock.now()] * at_path.heard.count("WATCHDOG=1")
        clock.advance(0.1)
    # Due at 10, given as soon as everybody beats again.
    assert pings == pytest.approx([0.0, 25.0, 35.0], abs=0.2)
    # The heartbeats are looked at when a sign of life is due, not at each step.
    assert not [now for now in asked if 0.2 < now < 9.8 or 25.2 < now < 34.8]


def test_heartbeats_are_not_looked_at_without_a_watchdog(at_path: Manager) -> None:
    def never(now: float) -> bool:
        raise AssertionError

    systemd(at_path).step(0.0, "running", never)


# ---- heartbeats


@pytest.mark.parametrize(
    ("heartbeats", "fresh"),
    [
        ([], True),
        ([("environment", 0.1), ("inference", 0.1), ("learner", 1.9), ("service", 2.0)], True),
        ([("environment", 2.1), ("inference", 0.1)], False),
        # One of several that hangs is replaced; all of them are not.
        ([("environment", 0.1), ("inference", 0.1), ("inference", math.inf)], True),
        ([("environment", 0.1), ("inference", 9.0), ("inference", math.inf)], False),
        ([("environment", 0.1), ("learner", math.inf)], False),
        ([("environment", 0.1), ("recorder", math.inf), ("evaluation", math.inf)], True),
    ],
)
def test_every_role_fresh(heartbeats: list[tuple[str, float]], fresh: bool) -> None:
    beats = [Heartbeat(role, age_s, 2.0) for role, age_s in heartbeats]
    assert every_role_fresh(beats) is fresh
