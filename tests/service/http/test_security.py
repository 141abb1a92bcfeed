"""Who may use the service."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse

from service.app import create_app
from service.http.attempts import BURST
from service.http.settings import Settings
from tests.service.conftest import (
    BASE,
    BEARER,
    PORT,
    TOKEN,
    RunningService,
    client_of,
    problem,
    session_cookie,
)

BODY = {"processes": 9}
ALIKE = [
    f"{name}:{PORT}"
    for own in ("localhost", "127.0.0.1")
    for name in (f"evil-{own}", f"evil.{own}", f"x{own}", f"{own}-evil", f"{own}.evil", f"{own}x")
]
"""Foreign names that begin or end like ours."""


@pytest.mark.parametrize("path", ["/", "/v1/stats", "/metrics", "/openapi.json", "/static/main.js",
                                  "/nothing", "/livez/", "//livez"])
def test_without_token(stranger: TestClient, path: str) -> None:
    answer = stranger.get(BASE + path)
    assert problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "value",
    ["Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN,
     "Bearer \u00e4"],
)
def test_wrong_token(stranger: TestClient, backend: Any, value: str) -> None:
    headers = {"authorization": value.encode("latin-1")}
    kind = "wrong-token" if value.startswith("Bearer") else "unauthorized"
    for answer in (
        stranger.get("/v1/stats", headers=headers),
        stranger.patch("/v1/inference", json=BODY, headers=headers),
    ):
        assert problem(answer, 401)["type"] == f"urn:rtagent:problem:{kind}"
    assert backend.commands == []


def test_the_credentials_of_a_proxy_leave_a_session_as_it_is(
    stranger: TestClient, backend: Any
) -> None:
    """A browser sends its Basic credentials for a proxy with every request, and so to us."""
    stranger.headers["authorization"] = "Basic b3duZXI6c2VjcmV0"
    for _ in range(BURST + 1):
        assert problem(stranger.get("/v1/stats"), 401)
    assert stranger.post("/login", data={"secret": TOKEN}).status_code == 303
    assert stranger.get("/v1/stats").status_code == 200
    assert stranger.patch("/v1/inference", json=BODY).status_code == 200
    assert backend.reported == []
    wrong = {"authorization": "Bearer wrong"}
    assert problem(stranger.get("/v1/stats", headers=wrong), 401)


def test_scheme_is_case_insensitive(stranger: TestClient) -> None:
    headers = {"authorization": f"bearer {TOKEN}"}
    assert stranger.get("/v1/stats", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_own_hosts(client: TestClient, host: str) -> None:
    assert client.get("/v1/status", headers={"host": f"{host}:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"127.0.0.2:{PORT}",
     f"localhost.evil.example:{PORT}", f"127.0.0.1:{PORT}@evil.example", f"127.0.0.1:{PORT}/",
     "", f"10.0.0.1:{PORT}", "127.0.0.1:99999999", *ALIKE,
     f"127.0.0.1:{PORT}0", f"127.0.0.1:1{PORT}", f"127.0.0.1:{PORT}:{PORT}", f"127.0.0.1:+{PORT}",
     f"[::1]x:{PORT}", f"x[::1]:{PORT}", f"::1:{PORT}", f"localhost.:{PORT}"],
)
def test_foreign_host(client: TestClient, backend: Any, host: str) -> None:
    assert problem(client.get("/livez", headers={"host": host}), 421)
    assert problem(client.patch("/v1/inference", json=BODY, headers={"host": host}), 421)
    assert backend.commands == []


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "", f"http://127.0.0.1:{PORT + 1}", "http://127.0.0.1",
     f"file://127.0.0.1:{PORT}", f"http://127.0.0.1:{PORT}.evil.example",
     f"http://127.0.0.1:{PORT}0", f"http://127.0.0.1:{PORT}/", f"127.0.0.1:{PORT}",
     f"xhttp://127.0.0.1:{PORT}", f"http://http://127.0.0.1:{PORT}",
     f"http://user@127.0.0.1:{PORT}", f"http://evil-localhost:{PORT}"],
)
def test_foreign_origin(client: TestClient, backend: Any, origin: str) -> None:
    assert problem(client.patch("/v1/inference", json=BODY, headers={"origin": origin}), 403)
    assert problem(client.get("/v1/stats", headers={"origin": origin}), 403)
    assert backend.commands == []


def test_own_origin(client: TestClient) -> None:
    headers = {"origin": f"http://localhost:{PORT}"}
    assert client.patch("/v1/inference", json=BODY, headers=headers).status_code == 200


def test_cross_site_request_with_a_cookie(stranger: TestClient, settings: Settings) -> None:
    stranger.post("/login", data={"secret": TOKEN})
    headers = session_cookie(stranger, settings)
    stranger.cookies.clear()
    assert stranger.get("/v1/stats", headers=headers).status_code == 200
    headers["sec-fetch-site"] = "cross-site"
    assert problem(stranger.get("/v1/stats", headers=headers), 403)
    # A link on a page elsewhere leads to the login, whatever other servers of this host have set.
    headers["cookie"] = "username-127-0-0-1-8888=x"
    assert stranger.get("/login", headers=headers).status_code == 200
    assert problem(stranger.get("/v1/stats", headers=headers), 401)


@pytest.mark.parametrize(
    ("bound", "allowed", "host", "status"),
    [
        ("0.0.0.0", (), f"192.168.1.5:{PORT}", 200),
        ("0.0.0.0", (), f"[fe80::1]:{PORT}", 200),
        ("0.0.0.0", (), f"{socket.gethostname()}:{PORT}", 200),
        ("0.0.0.0", (), "192.168.1.5:80", 421),
        ("0.0.0.0", (), f"evil.example:{PORT}", 421),
        ("192.168.1.5", (), f"192.168.1.5:{PORT}", 200),
        ("192.168.1.5", (), f"192.168.1.6:{PORT}", 421),
        ("127.0.0.1", ("robot.local", "hub.example:443"), f"robot.local:{PORT}", 200),
        ("127.0.0.1", ("robot.local", "hub.example:443"), "robot.local", 200),
        ("127.0.0.1", ("robot.local", "hub.example:443"), "robot.local:9000", 421),
        ("127.0.0.1", ("robot.local", "hub.example:443"), "hub.example", 200),
        ("127.0.0.1", ("robot.local", "hub.example:443"), "hub.example:80", 421),
        ("127.0.0.1", ("127.0.0.1:9000",), "127.0.0.1:9000", 200),
        ("127.0.0.1", ("robot.local",), f"evil-robot.local:{PORT}", 421),
        ("127.0.0.1", ("robot.local",), f"robot.local.evil:{PORT}", 421),
        ("127.0.0.1", ("robot.local", "hub.example:443"), "hub.example:443", 200),
        ("127.0.0.1", ("robot.local", "hub.example:443"), f"hub.example:{PORT}", 421),
    ],
)
def test_hosts_of_other_binds(
    backend: Any, bound: str, allowed: tuple[str, ...], host: str, status: int
) -> None:
    settings = Settings(TOKEN, bound, PORT, frozenset(allowed))
    with client_of(backend, settings) as client:
        assert client.get("/livez", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    ("allowed", "origin", "status"),
    [
        ("hub.example:443", "https://hub.example", 200),
        ("hub.example:443", "http://hub.example", 403),
        ("hub.example:443", "https://hub.example:8443", 403),
        ("hub.example:443", "https://evil-hub.example", 403),
        ("hub.example:443", "https://hub.example.evil", 403),
        ("hub.example", "https://hub.example", 200),
        ("hub.example", f"http://hub.example:{PORT}", 200),
        ("hub.example", "http://hub.example:9000", 403),
    ],
)
def test_origins_of_further_hosts(backend: Any, allowed: str, origin: str, status: int) -> None:
    settings = Settings(TOKEN, port=PORT, allowed_hosts=frozenset({allowed}))
    with client_of(backend, settings, headers=BEARER) as client:
        assert client.get("/v1/status", headers={"origin": origin}).status_code == status


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 401), ({**BEARER, "origin": "http://evil.example"}, 403),
        ({**BEARER, "host": "evil.example"}, 421),
    ],
)
def test_websocket_is_refused(stranger: TestClient, headers: dict[str, str], code: int) -> None:
    headers = {"host": f"127.0.0.1:{PORT}", **headers}
    with (
        pytest.raises(WebSocketDenialResponse) as refusal,
        stranger.websocket_connect("/v1/screen", headers=headers),
    ):
        pass
    assert problem(refusal.value, code)


def test_websocket_is_closed_where_the_server_cannot_answer(backend: Any) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "scheme": "ws", "path": "/v1/screen", "headers": []}
    app = create_app(backend, Settings(TOKEN))
    asyncio.run(app(scope, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize("hosts", [[], [f"127.0.0.1:{PORT}"] * 2, ["evil.example"] * 2])
def test_exactly_one_host_is_ours(backend: Any, settings: Settings, hosts: list[str]) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "scheme": "http", "path": "/livez", "method": "GET",
             "query_string": b"", "headers": [(b"host", host.encode()) for host in hosts]}
    asyncio.run(create_app(backend, settings)(scope, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 421


LIMIT = Settings(TOKEN).max_body_bytes


def test_long_body(client: TestClient, backend: Any) -> None:
    body = b'{"processes": 3}'.ljust(LIMIT)
    headers = {"content-type": "application/json"}
    assert problem(client.patch("/v1/inference", content=body + b" ", headers=headers), 413)
    assert backend.commands == []
    assert client.patch("/v1/inference", content=body, headers=headers).status_code == 200


def test_long_body_without_a_length(running: RunningService) -> None:
    def chunks(total: int) -> Iterator[bytes]:
        yield b'{"proce'
        yield b'sses": 3}'.ljust(1024 - 7)
        yield from [b" " * 1024] * (total // 1024 - 1)
        yield b" " * (total % 1024)

    headers = {"content-type": "application/json"}
    with running.client() as client:
        answer = client.patch("/v1/inference", content=chunks(LIMIT + 1), headers=headers)
        assert problem(answer, 413)
        assert running.backend.commands == []
        assert client.get("/livez").status_code == 200
        answer = client.patch("/v1/inference", content=chunks(LIMIT), headers=headers)
        assert answer.json()["processes"] == 3


def test_secrets_are_not_shown(settings: Settings) -> None:
    assert TOKEN not in repr(settings)
    assert settings.login_url("abc") == f"{BASE}/?code=abc"


@pytest.mark.parametrize(
    ("client_address", "headers", "by"),
    [
        ("127.0.0.1", BEARER, "http"),
        ("127.0.0.1", {**BEARER, "user-agent": "curl/8"}, "http"),
        ("127.0.0.1", {**BEARER, "user-agent": "rtagent/0.1.0"}, "rtagent set"),
        ("127.0.0.1", {}, "dashboard"),
        ("127.0.0.1", {"user-agent": "rtagent/0.1.0"}, "dashboard"),
        ("::1", BEARER, "http"),
        ("::ffff:127.0.0.1", BEARER, "http"),
        ("192.168.1.5", {}, "dashboard from 192.168.1.5"),
        ("fe80::1", BEARER, "http from fe80::1"),
    ],
)
def test_who_asks_is_told_to_the_daemon(
    backend: Any, settings: Settings, client_address: str, headers: dict[str, str], by: str
) -> None:
    with client_of(backend, settings, client=(client_address, 5000)) as client:
        if "authorization" not in headers:
            client.post("/login", data={"secret": TOKEN})
        assert client.patch("/v1/inference", json=BODY, headers=headers).status_code == 200
        assert client.post("/v1/checkpoints", headers=headers).status_code == 201
    assert backend.askers == [by, by]
