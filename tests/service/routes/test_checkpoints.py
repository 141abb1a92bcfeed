"""`/v1/checkpoints`."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from starlette.testclient import TestClient

from rtagent.errors import UserError
from service.daemon.commands import BackendBusy
from tests.forked import eventually
from tests.service.conftest import problem

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("content", "replay"),
    [(b"", False), (b"{}", False), (b'{"replay": false}', False), (b'{"replay": true}', True)],
)
def test_one_is_written_now(client: TestClient, backend: Any, content: bytes, replay: bool) -> None:
    answer = client.post("/v1/checkpoints", content=content, headers=JSON if content else {})
    assert answer.status_code == 201
    assert backend.commands == [("checkpoint", {"replay": replay})]
    assert answer.json() == {
        "file": "checkpoint-000000004100.safetensors", "updates": 4100, "replay": replay,
        "seconds": 0.4,
    }


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"replay": 1}', "application/json", 422),
        (b'{"replay": "yes"}', "application/json", 422),
        (b'{"replay": null}', "application/json", 422),
        (b'{"path": "/etc/passwd"}', "application/json", 422), (b"[]", "application/json", 422),
        (b"{", "application/json", 400), (b'{"replay": true}', "text/plain", 415),
        (b'{"replay": true}', "", 415),
    ],
)
def test_a_bad_request_writes_nothing(
    client: TestClient, backend: Any, content: bytes, kind: str, status: int
) -> None:
    answer = client.post("/v1/checkpoints", content=content, headers={"content-type": kind})
    assert problem(answer, status)
    assert backend.commands == []


@pytest.mark.parametrize(
    ("failure", "status"),
    [(UserError("no learner runs: there is nothing to save"), 409), (BackendBusy("late"), 504)],
)
def test_a_refusal_is_told(
    client: TestClient, backend: Any, failure: Exception, status: int
) -> None:
    backend.failure = failure
    assert problem(client.post("/v1/checkpoints"), status)["detail"] == str(failure)


def test_one_at_a_time_and_settings_can_change_meanwhile(client: TestClient, backend: Any) -> None:
    backend.may_write.clear()
    answers: list[int] = []
    first = threading.Thread(
        target=lambda: answers.append(client.post("/v1/checkpoints").status_code)
    )
    first.start()
    assert eventually(lambda: backend.commands)
    assert "is being written" in problem(client.post("/v1/checkpoints"), 409)["detail"]
    assert client.patch("/v1/learning", json={"paused": True}).status_code == 200
    backend.may_write.set()
    first.join()
    assert answers == [201]
    assert [name for name, _ in backend.commands] == ["checkpoint", "learning"]
    assert client.post("/v1/checkpoints").status_code == 201


def test_the_list_names_files_and_no_folders(client: TestClient, backend: Any) -> None:
    assert client.get("/v1/checkpoints").json() == {"checkpoints": []}
    backend.files = [
        {"file": "checkpoint-000000000200.safetensors", "updates": 200, "bytes": 7, "age_s": 1.5}
    ]
    assert client.get("/v1/checkpoints").json() == {"checkpoints": backend.files}
