"""`/v1/events`, and where the events come from."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from rtagent.config_sources import parse_config
from rtagent.telemetry.event_log import EVENTS_FILE, EventLog
from service.routes import context
from service.routes.context import DISK_CALLS
from tests.service.conftest import BEARER, FakeBackend, RunningService, Serving, wrong_field
from tests.service.shared_memory import Daemon

RUN = "a1b2c3d4"


def event(number: int, kind: str = "restarted", **details: Any) -> dict[str, Any]:
    return {"id": number, "at": "2025-01-01T12:00:00.000+00:00", "uptime_s": number * 0.5,
            "kind": kind, "source": "inference 0", **details}


def ids(answer: dict[str, Any]) -> list[int]:
    return [each["id"] for each in answer["events"]]


def test_newest_first_with_their_details(client: TestClient, backend: Any) -> None:
    change = event(2, "set", by="http", before={"processes": 2}, after={"processes": 4})
    died = event(1, "died")
    backend.history = [change, died]
    answer = client.get("/v1/events")
    shown = [{**change, "level": "info"}, {**died, "level": "warning"}]
    assert answer.json() == {"uptime_s": 301.5, "events": shown}
    assert answer.headers["cache-control"] == "no-store"


def test_pages_and_kinds(client: TestClient, backend: Any) -> None:
    backend.history = [
        event(number, ("set", "failed", "restarted")[number % 3]) for number in range(200, 0, -1)
    ]
    assert ids(client.get("/v1/events").json()) == list(range(200, 100, -1))
    page = client.get("/v1/events", params={"limit": 2, "before": 101}).json()
    assert ids(page) == [100, 99]
    some = client.get("/v1/events?limit=3&kind=set&kind=failed").json()
    assert ids(some) == [199, 198, 196]


def test_a_disk_that_hangs_leaves_threads_to_the_other_calls(
    serving: Serving, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "DISK_WAIT_S", 0.2)
    answers = threading.Event()

    def hang(*wanted: Any) -> dict[str, Any]:
        answers.wait(120.0)
        return {"uptime_s": 1.0, "events": []}

    backend.events = hang  # type: ignore[method-assign]

    async def ask(service: RunningService) -> list[int]:
        # As many as there are threads for all calls, and some more.
        limits = httpx.Limits(max_connections=60)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{service.port}", limits=limits, timeout=120.0,
            headers=BEARER,
        ) as client:
            asked = [asyncio.create_task(client.get("/v1/events")) for _ in range(50)]
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=60.0)
            try:
                assert (await client.get("/v1/status", timeout=60.0)).status_code == 200
            finally:
                answers.set()
            return [(await each).status_code for each in asked]

    with serving(backend) as service:
        found = asyncio.run(ask(service))
    assert set(found) == {200, 503}
    assert found.count(200) >= DISK_CALLS


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("limit=", "limit"),
        ("limit=1.5", "limit"), ("before=0", "before"), ("before=-1", "before"),
        ("before=99999999999999999999", "before"), ("kind=", "kind.0"), ("kind=Set", "kind.0"),
        ("kind=set&kind=a%20b", "kind.1"), (f"kind={'k' * 41}", "kind.0"),
        ("kind=set%0A", "kind.0"),
        ("&".join(["kind=set"] * 21), "kind"), ("kinds=set", "kinds"), ("since=3", "since"),
    ],
)
def test_bounds(client: TestClient, query: str, field: str) -> None:
    assert wrong_field(client.get(f"/v1/events?{query}")) == field


class Run:
    """A daemon whose supervisor is the test."""

    def __init__(self, state_dir: Path) -> None:
        config = parse_config({"run": {"state_dir": str(state_dir)}, "replay": {"capacity": 2048}})
        self.daemon = Daemon(config)
        self.backend = self.daemon.backend
        self.path = state_dir / "runs" / RUN / EVENTS_FILE

    def keep(self, *events: dict[str, Any]) -> None:
        """Write events into the run's file."""
        told: list[str | None] = []
        log = EventLog(self.path, told.append)
        for each in events:
            log.put(each)
        log.close(20.0)
        assert told == []

    def report(self, *events: dict[str, Any]) -> None:
        """Write events into the status."""
        self.daemon.world.status.write(
            {"run_id": RUN, "started_s": time.monotonic() - 100.0, "events": list(events)}
        )


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.daemon.close()


def test_before_the_first_report_nothing_is_known(started: Run) -> None:
    assert started.backend.events(10) == {"uptime_s": None, "events": []}


def test_uptime_is_now_s(started: Run) -> None:
    started.report()
    uptime_s = started.backend.events(10)["uptime_s"]
    assert 100.0 <= uptime_s < 130.0


def test_the_file_and_the_newest_of_the_status(started: Run) -> None:
    started.keep(*(event(number, "set" if number % 2 else "failed") for number in range(1, 101)))
    newest = [event(number, "set" if number % 2 else "failed") for number in range(103, 53, -1)]
    started.report(*newest)
    backend = started.backend
    assert ids(backend.events(1000)) == list(range(103, 0, -1))
    assert ids(backend.events(5)) == [103, 102, 101, 100, 99]
    assert ids(backend.events(5, before=102)) == [101, 100, 99, 98, 97]
    assert ids(backend.events(5, before=40)) == [39, 38, 37, 36, 35]
    assert ids(backend.events(3, kinds=("failed",))) == [102, 100, 98]
    assert ids(backend.events(3, before=100, kinds=("failed",))) == [98, 96, 94]
    assert backend.events(1)["events"] == [event(103, "set")]


@pytest.mark.parametrize("damage", ["absent", "damaged", "folder"])
def test_without_the_file_the_newest_still_come(started: Run, damage: str) -> None:
    if damage == "folder":
        started.path.mkdir(parents=True)
    elif damage == "damaged":
        started.path.parent.mkdir(parents=True)
        started.path.write_bytes(b"no events " * 200)
    started.report(event(9), event(8))
    assert ids(started.backend.events(10)) == [9, 8]


def test_many_readers_while_it_is_written(started: Run) -> None:
    started.report()
    log = EventLog(started.path, lambda reason: None)

    def read() -> None:
        for _ in range(40):
            found = ids(started.backend.events(1000))
            assert found == list(range(len(found), 0, -1))

    with ThreadPoolExecutor(4) as readers:
        reading = [readers.submit(read) for _ in range(4)]
        for number in range(1, 501):
            log.put(event(number))
            time.sleep(0.0005)
    log.close(20.0)
    for each in reading:
        each.result()
    assert len(started.backend.events(1000)["events"]) == 500
