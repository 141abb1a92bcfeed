"""HEAD answers as GET does, without the body."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.service.conftest import WITH_TOKEN, RunningService


@pytest.mark.parametrize(
    "path",
    [
        "/", "/login", "/figures", "/docs", "/openapi.json", "/static/main.js", "/livez", "/readyz",
        "/metrics", "/v1/status", "/v1/stats", "/v1/config", "/v1/screen.png",
        "/v1/timeline?seconds=1", "/v1/events?limit=0", "/nothing", "/v1/screen",
    ],
)
def test_head_is_get_without_the_body(client: TestClient, path: str) -> None:
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code
    assert head.headers == got.headers
    assert head.content == b""


def test_a_probe_by_head_learns_that_the_agent_does_not_act(
    stranger: TestClient, backend: Any
) -> None:
    assert stranger.head("/readyz").status_code == 200
    backend.readiness = (False, "starting")
    assert stranger.head("/readyz").status_code == 503
    assert stranger.head("/v1/status").status_code == 401


def test_head_does_not_use_up_an_address(client: TestClient) -> None:
    address = client.post("/v1/logins").json()["url"]
    del client.headers["authorization"]
    assert client.head(address).status_code == 401
    assert client.get(address).status_code == 303


def test_a_browser_is_answered_alike_by_get_and_head(stranger: TestClient) -> None:
    headers = {"accept": "text/html"}
    assert stranger.head("/", headers=headers).headers == stranger.get("/", headers=headers).headers


def test_the_head_of_a_stream_comes_alone_and_leaves_the_connection_open(
    running: RunningService,
) -> None:
    with running.connect() as sock, sock.makefile("rb") as answers:
        for asked in ("HEAD /v1/stats/stream", "HEAD /v1/stats", "GET /livez"):
            sock.sendall(running.request(asked, WITH_TOKEN))
            assert answers.readline() == b"HTTP/1.1 200 OK\r\n"
            while answers.readline() != b"\r\n":
                pass
        assert answers.read(len('{"status":"alive"}')) == b'{"status":"alive"}'
