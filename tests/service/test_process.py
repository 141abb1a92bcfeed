"""The service on a real socket."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.http.binding import bind
from service.http.problems import STOPPING
from service.http.settings import Settings
from service.process import serve
from tests.forked import eventually
from tests.service.conftest import TOKEN, WITH_TOKEN, RunningService, problem

LONG_GRACE_S = 100


def open_stream(service: RunningService) -> socket.socket:
    """An event stream whose client does not read."""
    sock = service.connect()
    sock.sendall(service.request("GET /v1/stats/stream?hz=20", WITH_TOKEN))
    return sock


def test_stream_carries_the_figures(running: RunningService) -> None:
    began = time.monotonic()
    with running.client() as client, client.stream("GET", "/v1/stats/stream?hz=2") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = []
        for line in answer.iter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
            if len(events) == 3:
                break
        # At the default of five a second it would take 0.4 s.
        assert time.monotonic() - began > 0.8
    assert events[0]["clock"]["ticks"] == 18_000


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthens the grace of services that start from now on: no busy machine takes as long."""
    monkeypatch.setattr("service.process.GRACE_SECONDS", LONG_GRACE_S)


@pytest.mark.usefixtures("long_grace")
def test_stops_at_once_with_open_streams(running: RunningService) -> None:
    streams = [open_stream(running) for _ in range(10)]
    for stream in streams:
        assert stream.recv(1024).startswith(b"HTTP/1.1 200")
    began = time.monotonic()
    running.stop()
    assert time.monotonic() - began < LONG_GRACE_S / 2
    for stream in streams:
        stream.close()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the grace of services that start from now on."""
    monkeypatch.setattr("service.process.GRACE_SECONDS", 0.2)


@pytest.mark.usefixtures("short_grace")
def test_client_that_stops_reading(running: RunningService) -> None:
    running.backend.figures["padding"] = "x" * 500_000
    stalled = open_stream(running)
    collected = running.backend.collected
    assert eventually(lambda: running.backend.collected > collected)
    time.sleep(0.5)
    with running.client() as client:
        assert client.get("/v1/status").status_code == 200
    running.stop()
    stalled.close()


@pytest.mark.usefixtures("short_grace")
def test_stops_while_a_command_hangs(running: RunningService) -> None:
    begun, hanging = threading.Event(), threading.Event()

    def hang(name: str, arguments: dict[str, Any], by: str) -> dict[str, Any]:
        begun.set()
        hanging.wait(60.0)
        return {}

    running.backend.command = hang  # type: ignore[method-assign]
    with running.client() as client, ThreadPoolExecutor(1) as threads:
        changing = threads.submit(client.patch, "/v1/inference", json={"processes": 3})
        assert begun.wait(30.0)
        running.stop()
        hanging.set()
        assert problem(changing.result(30.0), 503)["detail"] == STOPPING


def test_beats(running: RunningService) -> None:
    before = running.beats
    assert eventually(lambda: running.beats - before >= 4)


def test_a_failing_heartbeat_stops_the_service(backend: Any) -> None:
    def beat() -> None:
        raise RuntimeError("no heart")

    sock = bind("127.0.0.1", 0, reachable=False)
    with pytest.raises(RuntimeError, match="no heart"):
        serve(sock, backend, Settings(TOKEN, port=sock.getsockname()[1]), lambda: False, beat)
