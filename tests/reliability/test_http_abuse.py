"""Malicious HTTP clients are refused, change nothing, and do not disturb acting."""

from __future__ import annotations

import base64
import os
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import resident_bytes
from benchmarks.recount.raw_ledger import DEFAULT, Ledger, Recount
from benchmarks.reliability.http_client import Client, Polls, request_text
from tests.conftest import eventually

pytestmark = pytest.mark.process

CAPACITY = 20_000
RATE_HZ = 60.0
SETTINGS = (
    "env.id=CartPole-v1", f"env.rate_hz={RATE_HZ}", f"replay.capacity={CAPACITY}",
    "learning.processes=0",
)
PHASE_S = 3.0
ROUNDS = 4
MEGABYTE = 1_000_000
CHANGE = '{"processes": 7}'
EVIL = "http://evil.example"


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with RunningDaemon(*SETTINGS) as running:
        yield running


def port_of(daemon: RunningDaemon) -> int:
    return int(urlsplit(daemon.url).port or 0)


def bad_requests(daemon: RunningDaemon) -> dict[str, str]:
    """Requests that must be refused, by what is wrong with them."""
    host, token = f"127.0.0.1:{port_of(daemon)}", daemon.token
    websocket = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": base64.b64encode(os.urandom(16)).decode(),
    }
    path = "/v1/inference"
    return {
        "foreign host": request_text("PATCH", path, "evil.example", token, CHANGE),
        "foreign origin": request_text("PATCH", path, host, token, CHANGE, Origin=EVIL),
        "cross-site websocket": request_text(
            "GET", "/v1/screen", host, token, Origin=EVIL, **websocket
        ),
        "cross-site form": request_text(
            "POST", "/v1/checkpoints", host, token, "{}", Origin="null"
        ),
        "no token": request_text("PATCH", path, host, None, CHANGE),
        "wrong token": request_text("PATCH", path, host, token[:-1] + "!", CHANGE),
        "wrong token of the right kind": request_text("PATCH", path, host, token[::-1], CHANGE),
        "a million bytes": request_text("PATCH", path, host, token, "7" * MEGABYTE),
    }


EXPECTED = {
    "foreign host": 421, "foreign origin": 403, "cross-site websocket": 403, "cross-site form": 403,
    "no token": 401, "wrong token": 401, "wrong token of the right kind": 401,
    "a million bytes": 413,
}


def state(daemon: RunningDaemon) -> dict[str, Any]:
    """Everything that a request could have changed."""
    inference = daemon.get("/v1/inference")
    return {
        "config": daemon.get("/v1/config"),
        "inference": [inference["processes"], inference["algorithm"]],
        "run": daemon.status()["run_id"],
        "pids": sorted(role["pid"] for role in daemon.status()["roles"]),
        "checkpoints": daemon.get("/v1/checkpoints"),
    }


@pytest.mark.parametrize("wrong", EXPECTED)
def test_a_bad_request_is_refused_and_changes_nothing(daemon: RunningDaemon, wrong: str) -> None:
    before = state(daemon)
    with closing(socket.create_connection(("127.0.0.1", port_of(daemon)), 60)) as client:
        request = bad_requests(daemon)[wrong].encode()
        # The answer to what is too long comes before all of it is sent.
        client.sendall(request[:60_000])
        answer = client.recv(65_536).decode()
    assert int(answer.split()[1]) == EXPECTED[wrong]
    assert "application/problem+json" in answer.lower()
    assert daemon.token not in answer
    assert state(daemon) == before


def test_of_two_writers_with_the_same_etag_one_is_refused(daemon: RunningDaemon) -> None:
    headers = {"authorization": f"Bearer {daemon.token}"}
    with httpx.Client(base_url=daemon.url, headers=headers, timeout=30, trust_env=False) as client:
        for base in (100, 200, 300):
            etag = client.get("/v1/inference").headers["etag"]

            def write(deadline_ms: int, etag: str = etag) -> tuple[int, int]:
                change = {"action_deadline_ms": deadline_ms}
                reply = client.patch("/v1/inference", json=change, headers={"if-match": etag})
                return reply.status_code, deadline_ms

            with ThreadPoolExecutor(2) as writers:
                answers = sorted(writers.map(write, (base, base + 1)))
            assert [code for code, _ in answers] == [200, 412]
            assert daemon.get("/v1/inference")["action_deadline_ms"] == answers[0][1]


@dataclass(frozen=True)
class Phase:
    """How the world fared for some seconds."""

    rate: float
    inaction: float
    lateness_p99_ms: float
    slips: int

    def as_good_as(self, quiet: Phase) -> bool:
        """Whether it fared as in the quiet seconds before, with wide margins."""
        return (
            abs(self.rate - quiet.rate) < 0.1 * RATE_HZ
            and self.inaction < quiet.inaction + 0.1
            and self.lateness_p99_ms < quiet.lateness_p99_ms + 10.0
            and self.slips == 0
        )


@contextmanager
def phase(recount: Recount) -> Iterator[list[Phase]]:
    """Watches the world through a block; the list then holds what was seen."""
    found: list[Phase] = []
    recount.follow()
    slips, start = recount.slips, time.monotonic()
    yield found
    rows = recount.follow()
    late = float(np.percentile(rows["lateness_ns"], 99)) / 1e6
    inaction = float((rows["source"] == DEFAULT).mean())
    rate = len(rows) / (time.monotonic() - start)
    found.append(Phase(rate, inaction, late, recount.slips - slips))


@pytest.mark.realtime
def test_a_thousand_requests_a_second_do_not_disturb_the_acting(daemon: RunningDaemon) -> None:
    before = state(daemon)
    requests = bad_requests(daemon)
    large = requests.pop("a million bytes")
    mixed = [*list(requests.values()) * 20, large]
    recount = Recount(Ledger(daemon.process.pid, CAPACITY), RATE_HZ)
    told = []
    # What others do on the machine spoils one round; what the requests do would spoil them all.
    for _ in range(ROUNDS):
        with phase(recount) as quiet:
            time.sleep(PHASE_S)
        with phase(recount) as flooded:
            polls: Polls = {"rate": 1000.0, "connections": 20, "requests": mixed}
            answers = Client(port_of(daemon), PHASE_S, [polls]).result()
        statuses = answers["statuses"]
        told.append((quiet, flooded, answers))
        refused = {int(status) for status in statuses if status != "failed"}
        # A wrong token is refused, and soon not even looked into.
        assert {421, 403, 401, 429} <= refused <= {429, *EXPECTED.values()}, told
        # What is too long may be cut off while it is sent, which is an answer too.
        assert statuses.get("failed", 0) <= 1 + 0.02 * sum(statuses.values()), told
        assert state(daemon) == before
        if flooded[0].as_good_as(quiet[0]):
            return
    raise AssertionError(told)


def test_clients_that_stop_reading_cost_no_memory(daemon: RunningDaemon) -> None:
    host, token = f"127.0.0.1:{port_of(daemon)}", daemon.token
    stream = request_text("GET", "/v1/stats/stream?hz=20", host, token).encode()
    figures_now = request_text("GET", "/v1/stats", host, token).encode()
    service = next(r["pid"] for r in daemon.status()["roles"] if r["role"] == "service")
    stalled = []
    try:
        for _ in range(20):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port_of(daemon)))
            client.sendall(stream)
            stalled.append(client)
        eventually(lambda: all(c.recv(1, socket.MSG_PEEK) for c in stalled), "all streams run")
        before = resident_bytes(service)
        # Some ask a thousand times, and take none of the answers: several MB each.
        for client in stalled[:5]:
            client.close()
        for at in range(5):
            stalled[at] = socket.create_connection(("127.0.0.1", port_of(daemon)))
            stalled[at].setblocking(False)
            stalled[at].send(figures_now * 1000)
        waits = []
        for _ in range(30):
            asked = time.monotonic()
            daemon.stats()
            waits.append(time.monotonic() - asked)
            time.sleep(0.1)
        assert resident_bytes(service) - before < 16 << 20
        assert statistics.median(waits) < 10.0
    finally:
        for client in stalled:
            client.close()
    assert all(role["restarts"] == 0 for role in daemon.status()["roles"])
