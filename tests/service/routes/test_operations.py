"""Changes and checkpoints that take longer than their answer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from rtagent.clock import VirtualClock
from rtagent.errors import UserError
from service.daemon.commands import BackendBusy, BackendGone
from service.http.problems import Problem
from service.routes import context
from service.routes.operating import KEPT, WAIT_S, Operations, Preference
from tests.service.conftest import FakeBackend, eventually

ASYNC = {"prefer": "respond-async"}


def change(client: TestClient, processes: Any = 4, **headers: str) -> httpx.Response:
    answer: httpx.Response = client.patch(
        "/v1/inference", json={"processes": processes}, headers=headers
    )
    return answer


def ended(client: TestClient, begun: httpx.Response) -> dict[str, Any]:
    """The operation, once it has ended."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found.append(client.get(begun.headers["location"]).json())
        return found[-1]["state"] != "running"

    assert eventually(look)
    return found[-1]


@pytest.mark.parametrize(
    ("header", "wait_s", "applied"),
    [
        (None, WAIT_S, ""),
        ("", WAIT_S, ""),
        ("respond-async", 0.0, "respond-async"),
        ("Respond-Async", 0.0, "respond-async"),
        ("wait=3", 3.0, "wait=3"),
        ("respond-async, wait=3", 3.0, "respond-async, wait=3"),
        ("return=minimal,wait=0", 0.0, "wait=0"),
        ("wait=100000", 60.0, "wait=60"),
        ("wait=x, wait=-1, wait", WAIT_S, ""),
        ("respond-async; foo=bar", 0.0, "respond-async"),
    ],
)
def test_preferences(header: str | None, wait_s: float, applied: str) -> None:
    assert Preference.parse(header) == Preference(wait_s, applied)


def test_a_change_asked_for_so_is_answered_at_once(
    client: TestClient, backend: FakeBackend
) -> None:
    backend.may_answer.clear()
    begun = change(client, **ASYNC)
    assert begun.status_code == 202
    assert begun.headers["preference-applied"] == "respond-async"
    operation = begun.json()
    assert begun.headers["location"] == f"/v1/operations/{operation['id']}"
    assert operation["command"] == "set_inference"
    assert operation["state"] == "running"
    assert operation["result"] is operation["problem"] is None
    assert client.get(begun.headers["location"]).json()["state"] == "running"
    backend.may_answer.set()
    operation = ended(client, begun)
    assert operation["state"] == "done"
    assert operation["result"] == client.get("/v1/inference").json()
    assert operation["result"]["processes"] == 4
    assert operation["age_s"] >= 0.0


def test_a_checkpoint_asked_for_so_is_answered_at_once(
    client: TestClient, backend: FakeBackend
) -> None:
    backend.may_write.clear()
    begun = client.post("/v1/checkpoints", headers=ASYNC)
    assert begun.status_code == 202
    refused = client.post("/v1/checkpoints", headers=ASYNC)
    assert refused.status_code == 409, "it is being written until the operation ends"
    assert change(client).status_code == 200
    backend.may_write.set()
    assert ended(client, begun)["result"]["file"].startswith("checkpoint-")
    assert client.post("/v1/checkpoints").status_code == 201


def test_what_takes_longer_than_the_client_waits_goes_on(
    client: TestClient, backend: FakeBackend
) -> None:
    backend.may_answer.clear()
    begun = change(client, prefer="wait=0")
    assert begun.status_code == 202
    assert begun.headers["preference-applied"] == "wait=0"
    backend.may_answer.set()
    assert ended(client, begun)["state"] == "done"


def test_what_takes_long_is_answered_without_being_asked(
    client: TestClient, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Preference, "parse", lambda header: Preference(0.05))
    backend.may_answer.clear()
    begun = change(client)
    assert begun.status_code == 202
    assert "preference-applied" not in begun.headers
    backend.may_answer.set()
    assert ended(client, begun)["state"] == "done"


def test_a_quick_change_is_answered_as_ever(client: TestClient) -> None:
    answer = change(client, prefer="wait=5")
    assert answer.status_code == 200
    assert "etag" in answer.headers
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (UserError("256 processes need 12 GiB, 8 are free"), 409),
        (BackendBusy("the supervisor did not answer within 32 s"), 504),
        (BackendGone("the supervisor is gone"), 503),
        (RuntimeError("secret place"), 500),
    ],
)
def test_a_refusal_is_the_problem_that_the_call_would_have_answered(
    client: TestClient, backend: FakeBackend, failure: Exception, status: int, caplog: Any
) -> None:
    backend.failure = failure
    direct = change(client, 256)
    assert direct.status_code == status
    backend.may_answer.clear()
    begun = change(client, 256, **ASYNC)
    backend.may_answer.set()
    operation = ended(client, begun)
    assert operation["state"] == "refused"
    assert operation["result"] is None
    assert operation["problem"] == direct.json()
    assert ("secret place" in caplog.text) is (status == 500)
    assert "secret place" not in str(operation)
    backend.failure = None
    assert change(client).status_code == 200, "the lock is free again"


def test_others_wait_until_the_operation_ends(client: TestClient, backend: FakeBackend) -> None:
    etag = client.get("/v1/inference").headers["etag"]
    backend.may_answer.clear()
    begun = change(client, 3, **ASYNC, **{"if-match": etag})
    answers: list[int] = []
    other = threading.Thread(
        target=lambda: answers.append(change(client, 5, **{"if-match": etag}).status_code)
    )
    other.start()
    other.join(0.3)
    assert answers == []
    backend.may_answer.set()
    other.join(5.0)
    assert answers == [412]
    assert ended(client, begun)["result"]["processes"] == 3
    assert len(backend.commands) == 1


def test_who_waits_too_long_for_another_change_is_told(
    client: TestClient, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CHANGE_WAIT_S", 0.05)
    backend.may_answer.clear()
    begun = change(client, 3, **ASYNC)
    other = change(client, 5)
    assert other.status_code == 504
    assert "another change" in other.json()["detail"]
    backend.may_answer.set()
    assert ended(client, begun)["state"] == "done"
    assert backend.settings["processes"] == 3


@pytest.mark.parametrize("body", [{"processes": 0}, {"speed": 3}])
def test_what_is_refused_at_once_is_no_operation(client: TestClient, body: Any) -> None:
    assert client.patch("/v1/inference", json=body, headers=ASYNC).status_code == 422
    stale = change(client, **ASYNC, **{"if-match": '"x"'})
    assert stale.status_code == 412
    assert client.get("/v1/operations").json() == {"operations": []}


def test_the_newest_are_listed_first(client: TestClient) -> None:
    for processes in (3, 4):
        change(client, processes)
    client.post("/v1/checkpoints")
    listed = client.get("/v1/operations").json()["operations"]
    assert [each["command"] for each in listed] == ["checkpoint", "set_inference", "set_inference"]
    assert [each["result"].get("processes") for each in listed] == [None, 4, 3]
    assert len({each["id"] for each in listed}) == 3
    assert client.get(f"/v1/operations/{listed[1]['id']}").json()["result"] == listed[1]["result"]


@pytest.mark.parametrize(("id", "status"), [("0" * 16, 404), ("x", 422), ("0" * 17, 422)])
def test_an_unknown_operation(client: TestClient, id: str, status: int) -> None:
    answer = client.get(f"/v1/operations/{id}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_only_so_many_are_kept_but_none_that_runs() -> None:
    async def main() -> None:
        backend, clock = FakeBackend(), VirtualClock(5.0)
        operations = Operations(backend, clock)

        async def same(result: dict[str, Any]) -> dict[str, Any]:
            return result

        async def run(name: str, arguments: dict[str, Any]) -> Any:
            lock = asyncio.Lock()
            await lock.acquire()
            return operations.begin(name, arguments, "test", lock, same), lock

        backend.may_write.clear()
        slow, slow_lock = await run("checkpoint", {"replay": False})
        for _ in range(KEPT + 10):
            quick, lock = await run("set_learning", {"paused": True})
            assert await operations.settle(quick, Preference()) is None
            assert not lock.locked()
        assert len(operations.newest()) == KEPT
        assert operations.newest()[-1]["id"] == slow.id
        assert slow_lock.locked()
        clock.sleep_until(7.0)
        assert operations.newest()[-1]["age_s"] == 2.0
        backend.may_write.set()
        assert await operations.settle(slow, Preference()) is None
        assert not slow_lock.locked()
        backend.failure = UserError("no")
        refused, _ = await run("set_learning", {})
        with pytest.raises(Problem, match="no"):
            await operations.settle(refused, Preference())

    asyncio.run(main())
