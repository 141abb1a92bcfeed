"""Every error is problem+json, and none reveals internals."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from service.http.problems import ProblemMiddleware
from tests.service.conftest import problem, wrong_field

MEMBERS = {"type", "title", "status", "detail"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404), ("GET", "/v1/", 404), ("GET", "/v1/status/", 404),
        ("GET", "/static/nothing.js", 404), ("GET", "/static/../app.py", 404),
        ("GET", "/static/%2e%2e/app.py", 404), ("POST", "/v1/stats", 405),
        ("DELETE", "/v1/inference", 405), ("POST", "/static/main.js", 405),
        ("OPTIONS", "/v1/status", 405), ("GET", "/redoc", 404),
        ("GET", "/v1/stats/stream?hz=99", 422),
    ],
)
def test_errors_are_problems(client: TestClient, method: str, path: str, status: int) -> None:
    assert set(problem(client.request(method, path), status)) >= MEMBERS


@pytest.mark.parametrize("wanted", [
    f"bytes={'9' * 5000}-", "bytes=999999999-", "bytes=0-9", "bytes=9-0", "lines=1-2", "nonsense",
])
def test_a_file_is_sent_whole_whatever_part_of_it_is_asked_for(
    client: TestClient, wanted: str
) -> None:
    """RFC 9110 allows it. So no range has to be refused, which Starlette does in plain text."""
    whole, answer = client.get("/static/main.js"), client.get(
        "/static/main.js", headers={"range": wanted}
    )
    assert answer.status_code == 200
    assert answer.content == whole.content
    assert answer.headers["accept-ranges"] == "none"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/stats/stream", "GET, HEAD"), ("/v1/checkpoints", "GET, HEAD, POST"),
        ("/v1/screen", "GET, HEAD"), ("/v1/inference", "GET, HEAD, PATCH"), ("/livez", "GET, HEAD"),
        ("/", "GET, HEAD"), ("/static/main.js", "GET, HEAD"), ("/v1/logins", "POST"),
        ("/login", "GET, HEAD, POST"), ("/logout", "POST"),
    ],
)
def test_405_names_what_is_possible(client: TestClient, path: str, allowed: str) -> None:
    answer = client.put(path)
    assert answer.status_code == 405
    assert answer.headers.get_list("allow") == [allowed]


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/json;q=0", "nonsense"])
def test_what_a_client_accepts_is_no_reason_to_refuse(client: TestClient, accept: str) -> None:
    """RFC 9110 lets a server send the only representation it has."""
    assert client.get("/v1/status", headers={"accept": accept}).status_code == 200
    assert client.get("/nothing", headers={"accept": accept}).status_code == 404


@pytest.mark.parametrize(
    ("path", "unknown", "possible"),
    [
        ("/v1/timeline?second=5", "second", "there are seconds"),
        ("/v1/stats?hz=5", "hz", "there is none"),
        ("/v1/stats/stream?hz=5&rate=3", "rate", "there are hz"),
        ("/v1/screen?x=1", "x", "there are hz"),
        ("/v1/events?kinds=set", "kinds", "before, kind, limit"),
    ],
)
def test_a_parameter_that_does_not_exist_is_refused(
    client: TestClient, path: str, unknown: str, possible: str
) -> None:
    answer = client.get(path)
    assert wrong_field(answer) == unknown
    assert possible in answer.json()["detail"]


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 20_000, b"9" * 6000])
def test_every_body_that_is_no_json_is_refused_alike(client: TestClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    found = problem(client.patch("/v1/config", content=body, headers=headers), 400)
    assert found["type"] == "urn:rtagent:problem:malformed"
    assert found["detail"] == "the body is not valid JSON"


def test_a_path_is_logged_without_control_characters(caplog: Any) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("boom")

    assert TestClient(ProblemMiddleware(fails)).get("/%1b%5b2J").status_code == 500
    assert "GET / [2J failed" in caplog.text


@pytest.mark.parametrize("path", ["/v1/stats", "/metrics"])
def test_500_does_not_leak(client: TestClient, backend: Any, path: str, caplog: Any) -> None:
    backend.stats_failure = RuntimeError("secret place /root/x.py")
    answer = client.get(path)
    assert problem(answer, 500)
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "secret place" in caplog.text
    assert "content-security-policy" in answer.headers


def test_a_failure_does_not_stick(client: TestClient, backend: Any) -> None:
    backend.stats_failure = RuntimeError("once")
    assert client.get("/v1/stats").status_code == 500
    backend.stats_failure = None
    assert client.get("/v1/stats").status_code == 200


def test_a_long_value_is_not_repeated_whole(client: TestClient) -> None:
    answer = client.patch("/v1/inference", json={"algorithm": "a" * 10_000})
    assert answer.status_code == 422
    assert len(answer.content) < 1000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"processes": 999}, "must be less than or equal to 256, or must be 'auto'"),
        ({"injected_latency_ms": None}, "must be a valid number"),
        ({"injected_latency_ms": "long"}, "must be a valid number"),
    ],
)
def test_a_reason_is_told_in_the_words_of_the_command_line(
    client: TestClient, body: dict[str, Any], reason: str
) -> None:
    """As `rtagent serve --set` tells it for the same mistake."""
    assert client.patch("/v1/inference", json=body).json()["errors"][0]["reason"] == reason


def test_a_reason_is_told_once_however_many_numbers_are_wrong(client: TestClient) -> None:
    answer = client.patch("/v1/config", json={"env": {"default_action": ["a", "b", "c"]}})
    assert answer.json()["errors"][0]["reason"].count("must be a valid number") == 1
