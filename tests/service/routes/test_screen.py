"""`/v1/screen`: pictures pushed through a WebSocket, on a real socket."""

from __future__ import annotations

import io
import itertools
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient, WebSocketDenialResponse
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from service.app import create_app
from service.http import binding
from service.routes import context
from service.routes.context import Context
from tests.forked import eventually
from tests.service.conftest import (
    BEARER,
    PORT,
    TOKEN,
    WITH_TOKEN,
    FakeBackend,
    RunningService,
    Serving,
    problem,
    session_cookie,
)

HOST = {"host": f"127.0.0.1:{PORT}"}


class Moving(FakeBackend):
    """A daemon with a new picture each time."""

    def __init__(self, size: int = 84) -> None:
        super().__init__()
        self.size = size
        self.seed = itertools.count()
        self.taken = 0

    def screen(self) -> Any:
        self.taken += 1
        noise = np.random.default_rng(next(self.seed))
        return noise.integers(0, 256, (self.size, self.size)).astype(np.uint8)


@pytest.fixture
def moving(serving: Serving) -> Iterator[RunningService]:
    with serving(Moving()) as service:
        yield service


def open_screen(service: RunningService, query: str = "hz=30", **options: Any) -> ClientConnection:
    headers = options.pop("headers", BEARER)
    return connect(
        f"ws://127.0.0.1:{service.port}/v1/screen?{query}", additional_headers=headers,
        proxy=None, max_size=None, **options,
    )


def read_on(screen: ClientConnection) -> None:
    while True:
        screen.recv(timeout=30.0)


def context_of(monkeypatch: pytest.MonkeyPatch) -> list[Context]:
    """A list that gets the context of each service that starts from now on."""
    found: list[Context] = []

    def create(*arguments: Any) -> Any:
        app = create_app(*arguments)
        found.append(app.state.context)
        return app

    monkeypatch.setattr("service.process.create_app", create)
    return found


def test_pictures_come_at_most_so_often(moving: RunningService) -> None:
    began = time.monotonic()
    with open_screen(moving, "hz=20") as screen:
        screen.recv(timeout=30.0)
        # However late they are received, so much time lies between the first and the last.
        pictures = [screen.recv(timeout=30.0) for _ in range(6)]
        assert time.monotonic() - began >= 6 / 20 * 0.9
    assert len(set(pictures)) == len(pictures)
    for picture in pictures:
        assert isinstance(picture, bytes)
        assert Image.open(io.BytesIO(picture)).size == (336, 336)


def test_a_picture_is_sent_once(running: RunningService) -> None:
    with open_screen(running) as screen:
        first = screen.recv(timeout=30.0)
        with pytest.raises(TimeoutError):
            screen.recv(timeout=0.3)
        running.backend.picture = np.zeros((84, 84), np.uint8)
        assert screen.recv(timeout=30.0) != first


def test_nothing_is_sent_before_the_first_frame(running: RunningService) -> None:
    picture, running.backend.picture = running.backend.picture, None
    with open_screen(running) as screen:
        with pytest.raises(TimeoutError):
            screen.recv(timeout=0.2)
        running.backend.picture = picture
        assert screen.recv(timeout=30.0)


def test_what_the_client_says_is_ignored(moving: RunningService) -> None:
    with open_screen(moving) as screen:
        for message in ("hello", b"\x00" * 100):
            screen.send(message)
        pictures = {screen.recv(timeout=30.0) for _ in range(5)}
        assert len(pictures) == 5


def test_many_clients_see_the_same_encoded_picture(moving: RunningService) -> None:
    with open_screen(moving, "hz=10") as one, open_screen(moving, "hz=10") as other:
        began, before = time.monotonic(), moving.backend.taken
        seen = [{screen.recv(timeout=30.0) for _ in range(5)} for screen in (one, other)]
        made = moving.backend.taken - before
        assert made <= 1 + (time.monotonic() - began) / context.PICTURE_AGE_S
    assert all(len(pictures) == 5 for pictures in seen)


def test_the_cookie_opens(moving: RunningService) -> None:
    with moving.client() as client:
        client.post("/login", data={"secret": TOKEN})
        cookie = session_cookie(client, moving.settings)
    origin = f"http://127.0.0.1:{moving.port}"
    with open_screen(moving, headers=cookie, origin=origin) as screen:
        assert screen.recv(timeout=30.0)
    with pytest.raises(InvalidStatus) as refusal:
        open_screen(moving, headers=cookie, origin="http://evil.example")
    assert refusal.value.response.status_code == 403


def test_it_ends_with_the_service(moving: RunningService) -> None:
    with open_screen(moving, "hz=1") as screen:
        screen.recv(timeout=30.0)
        moving.stop()
        with pytest.raises(ConnectionClosed):
            read_on(screen)
        assert screen.close_code in (1001, 1012)


def test_the_last_place_is_free_again(
    serving: Serving, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "MOST_OPEN", 2)
    contexts = context_of(monkeypatch)
    url = "/v1/stats/stream?hz=20"
    with (
        serving(backend) as service, open_screen(service) as screen, service.client() as client
    ):
        places = contexts[0].places
        with client.stream("GET", url) as stream:
            assert stream.status_code == 200
            assert eventually(lambda: places.taken == 2)
            assert problem(client.get(url), 503)["type"] == "urn:rtagent:problem:too-many"
            with pytest.raises(InvalidStatus) as refusal:
                open_screen(service)
            assert refusal.value.response.status_code == 503
            assert b"too-many" in refusal.value.response.body
        assert eventually(lambda: places.taken == 1)
        screen.close()
        assert eventually(lambda: places.taken == 0)


def test_what_a_session_has_opened_ends_with_it(moving: RunningService) -> None:
    with moving.client() as owner, moving.client() as browser:
        del browser.headers["authorization"]
        browser.get(owner.post("/v1/logins").json()["url"])
        cookie = session_cookie(browser, moving.settings)
        with (
            open_screen(moving, headers=cookie) as screen, open_screen(moving) as owners,
            browser.stream("GET", "/v1/stats/stream?hz=20") as stream,
        ):
            lines = stream.iter_lines()
            assert next(lines).startswith("retry")
            assert screen.recv(timeout=30.0)
            assert owner.delete("/v1/sessions").json() == {"ended": 1}
            assert len(list(itertools.islice(lines, 500))) < 500
            # The iteration ends when the service has closed the socket.
            assert len(list(itertools.islice(screen, 500))) < 500
            for _ in range(50):
                assert owners.recv(timeout=30.0)


@pytest.mark.parametrize("path", ["/v1/screen?hz=30", "/v1/stats/stream?hz=20"])
def test_a_client_that_stops_reading_is_dropped(
    serving: Serving, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "STALLED_MS", 800)
    backend = Moving(size=336)
    backend.figures["padding"] = "x" * 200_000
    contexts = context_of(monkeypatch)
    with serving(backend) as service, socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(("127.0.0.1", service.port))
        upgrade = (
            "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
        lines = upgrade if "screen" in path else ()
        stalled.sendall(service.request(f"GET {path}", WITH_TOKEN, *lines))
        assert eventually(lambda: contexts and contexts[0].places.taken == 1)
        with open_screen(service) as screen:
            # Other clients are served meanwhile.
            assert eventually(lambda: screen.recv(timeout=30.0) and contexts[0].places.taken == 1)
        assert eventually(lambda: contexts[0].places.taken == 0)


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v1/screen?hz=0", 422, "invalid-value"), ("/v1/screen?hz=31", 422, "invalid-value"),
        ("/v1/screen?hz=x", 422, "invalid-value"), ("/v1/nothing", 404, "about:blank"),
        ("/", 404, "about:blank"), ("/static/main.js", 404, "about:blank"),
        ("/v1/stats", 404, "about:blank"),
    ],
)
def test_a_socket_that_is_not_there_is_refused_with_a_problem(
    client: TestClient, path: str, status: int, kind: str
) -> None:
    with (
        pytest.raises(WebSocketDenialResponse) as refusal,
        client.websocket_connect(path, headers=HOST),
    ):
        pass
    assert problem(refusal.value, status)["type"].endswith(kind)


def test_without_an_upgrade_it_says_what_it_is(client: TestClient) -> None:
    answer = client.get("/v1/screen")
    assert "WebSocket" in problem(answer, 426)["detail"]
    assert answer.headers["upgrade"] == "websocket"


def test_a_failure_inside_ends_the_socket_and_is_logged(
    client: TestClient, backend: FakeBackend, caplog: Any
) -> None:
    def fail() -> Any:
        raise RuntimeError("no picture today")

    backend.screen = fail  # type: ignore[method-assign]
    with (
        pytest.raises(RuntimeError, match="no picture today"),
        client.websocket_connect("/v1/screen", headers=HOST) as screen,
    ):
        screen.receive()
    assert "no picture today" in caplog.text
