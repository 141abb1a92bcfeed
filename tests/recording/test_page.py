"""Access to the page, and a game through its WebSocket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.sync.client import ClientConnection, connect

from rtagent.clock import MonotonicClock
from rtagent.errors import UserError
from rtagent.recording.page import PROTOCOL, STATIC, TAKEN_OVER, address, create_app, listen, serve
from rtagent.recording.recorder import Recorder
from rtagent.recording.session import Session
from rtagent.storage.demonstration_file import load_demonstration
from tests.forked import LIMIT_S, eventually
from tests.recording.conftest import PLAYING
from tests.service.dashboard.conftest import PATIENCE_MS

PORT, TOKEN = 8123, "t" * 43
BASE = f"http://127.0.0.1:{PORT}"
PLAY = f"ws://127.0.0.1:{PORT}/play"
PROTOCOLS = [PROTOCOL, TOKEN]


@pytest.fixture
def client(session: Session) -> Iterator[TestClient]:
    with TestClient(create_app(session, PORT, TOKEN)[0], base_url=BASE) as client:
        yield client


def test_the_page_is_small_strict_and_all_its_own(client: TestClient) -> None:
    answer = client.get("/")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    files = list(STATIC.iterdir())
    assert sum(file.stat().st_size for file in files) < 15_000
    for file in files:
        assert client.get(f"/{file.name}").status_code == 200
        outside = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http" not in outside
        assert "<style" not in outside
    assert client.get("/../page.py").status_code == 404
    assert client.post("/").status_code == 405


@pytest.mark.parametrize(("headers", "status"), [
    ({"host": f"localhost:{PORT}"}, 200),
    ({"host": f"LOCALHOST:{PORT}"}, 200),
    ({"host": f"evil.example:{PORT}"}, 421),
    ({"host": "127.0.0.1"}, 421),
    ({"host": f"127.0.0.1:{PORT + 1}"}, 421),
    ({"origin": BASE}, 200),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": f"https://127.0.0.1:{PORT}"}, 403),
    ({"origin": "null"}, 403),
])
def test_only_this_machine_and_its_own_page(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    assert client.get("/", headers=headers).status_code == status
    if status != 200:
        with (
            pytest.raises(WebSocketDenialResponse) as refused,
            client.websocket_connect(PLAY, subprotocols=PROTOCOLS, headers=headers),
        ):
            pass
        assert refused.value.status_code == status


def test_two_hosts_are_none(client: TestClient) -> None:
    hosts = [("host", f"127.0.0.1:{PORT}"), ("host", f"localhost:{PORT}")]
    assert client.get("/", headers=hosts).status_code == 421


@pytest.mark.parametrize("protocols", [
    [], [PROTOCOL], [PROTOCOL, ""], [PROTOCOL, TOKEN + "x"], [PROTOCOL, TOKEN[:-1]], [TOKEN],
    [PROTOCOL, "x", TOKEN],
])
def test_a_wrong_token_is_refused(
    client: TestClient, session: Session, protocols: list[str]
) -> None:
    with (
        pytest.raises(WebSocketDisconnect) as refused,
        client.websocket_connect(PLAY, subprotocols=protocols),
    ):
        pass
    # Closed by the game's own code, before it was accepted.
    assert type(refused.value) is WebSocketDisconnect
    assert session.page == 0


def news(socket: Any) -> tuple[bytes, dict[str, Any]]:
    return socket.receive_bytes(), socket.receive_json()


def test_each_message_is_answered_with_what_is_shown(client: TestClient, session: Session) -> None:
    with client.websocket_connect(PLAY, subprotocols=PROTOCOLS) as socket:
        assert socket.accepted_subprotocol == PROTOCOL
        picture, shown = news(socket)
        assert len(picture) == 4 + 160 * 144 * 4
        assert (shown["environment"], shown["running"]) == ("gameboy", False)
        socket.send_json({"focus": True})
        assert news(socket)[1]["running"]
        socket.send_json({"do": "save"})
        assert news(socket)[1]["states"] == ["starfall-0001.state"]
        socket.send_json({"do": "finish"})
        assert news(socket)[1]["finished"]
        with pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_bytes()
        assert closed.value.code == 1000
    assert session.page == 0


@pytest.mark.parametrize(
    "said", ["", "{", "[]", '{"do": "quit"}', '{"keys": ["C"]}', "[" * 1000, b"{}"]
)
def test_nonsense_ends_the_connection(
    client: TestClient, session: Session, said: str | bytes
) -> None:
    with client.websocket_connect(PLAY, subprotocols=PROTOCOLS) as socket:
        news(socket)
        if isinstance(said, bytes):
            socket.send_bytes(said)
        else:
            socket.send_text(said)
        with pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_bytes()
        assert closed.value.code == 1008
    assert session.page == 0


def test_a_second_page_takes_over(client: TestClient) -> None:
    with client.websocket_connect(PLAY, subprotocols=PROTOCOLS) as first:
        news(first)
        with client.websocket_connect(PLAY, subprotocols=PROTOCOLS) as second:
            news(second)
            with pytest.raises(WebSocketDisconnect) as closed:
                first.receive_bytes()
            assert closed.value.code == TAKEN_OVER
            second.send_json({"focus": True})
            assert news(second)[1]["running"]


def test_a_port_that_cannot_be_had_is_one_line() -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        assert taken.getsockname()[0] == "127.0.0.1"
        with pytest.raises(UserError, match=f"cannot listen on port {port}: .*--port"):
            listen(port)
    with pytest.raises(UserError, match="cannot listen on port 70000"):
        listen(70_000)


class Running:
    """The page on a real socket, in a thread of this process."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.sock = listen(0)
        self.port = int(self.sock.getsockname()[1])
        self.wish = threading.Event()
        session = Session(recorder, MonotonicClock())
        self._thread = threading.Thread(
            target=serve, args=(self.sock, session, TOKEN, self.wish.is_set), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return address(self.port, TOKEN)

    def page(self) -> ClientConnection:
        """The connection of a page that has been opened."""
        url = f"ws://127.0.0.1:{self.port}/play"
        return connect(url, subprotocols=PROTOCOLS)  # type: ignore[arg-type]

    def join(self) -> None:
        self._thread.join(30.0)
        assert not self._thread.is_alive(), "the game did not end"


@pytest.fixture
def running(recorder: Recorder) -> Iterator[Running]:
    running = Running(recorder)
    yield running
    running.wish.set()
    running.join()


def until(socket: ClientConnection, **wanted: Any) -> dict[str, Any]:
    """Receive until what is shown, and the game's own values, are these."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        message = socket.recv(timeout=LIMIT_S)
        if isinstance(message, str):
            shown: dict[str, Any] = json.loads(message)
            told = shown["values"] | shown
            if all(told[name] == value for name, value in wanted.items()):
                return shown
    raise AssertionError(f"never shown: {wanted}")


def test_a_game_on_the_wall_clock(running: Running, tmp_path: Path) -> None:
    with running.page() as socket:
        for message in ({"focus": True}, {"do": "record"}, {"keys": ["START"]}):
            socket.send(json.dumps(message))
        until(socket, recording=True, screen=PLAYING)
        # A wish to finish, as when the terminal closes, keeps what was recorded.
        running.wish.set()
        assert until(socket, finished=True)["episodes"] == 1
    running.join()
    assert 3 in load_demonstration(tmp_path / "fight.demo").actions


def test_a_file_whose_name_is_no_utf_8_is_shown(running: Running) -> None:
    # The page lost its connection, and each one after it.
    running.recorder.demonstration = Path("fight\udce9.demo")
    with running.page() as socket:
        assert until(socket)["demonstration"] == "fight\udce9.demo"


def test_a_page_that_is_slow_is_told_that_the_game_is_over(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = WebSocket.send_bytes

    async def slowly(websocket: WebSocket, data: bytes) -> None:
        await asyncio.sleep(0.3 * running.wish.is_set())
        await send(websocket, data)

    monkeypatch.setattr(WebSocket, "send_bytes", slowly)
    with running.page() as socket:
        socket.send(json.dumps({"focus": True}))
        until(socket, running=True)
        running.wish.set()
        until(socket, finished=True)


@pytest.mark.browser
def test_a_game_in_a_browser(blank: Any, running: Running, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    blank.goto(running.url)
    expect(blank.locator("#state")).to_have_text("playing")
    variable = blank.locator("#values dd").first
    expect(variable).to_have_text("0")

    def picture() -> str:
        return str(blank.evaluate("document.querySelector('#screen').toDataURL()"))

    title = picture()
    blank.keyboard.press("r")
    expect(blank.locator("#state")).to_have_text("recording")
    blank.keyboard.down("Enter")
    expect(blank.locator("#keys .held")).to_have_text("Enter START")
    expect(variable).to_have_text(PLAYING)
    blank.keyboard.up("Enter")
    expect(blank.locator("#keys .held")).to_have_count(0)
    assert eventually(lambda: picture() != title)
    blank.keyboard.press("s")
    expect(blank.locator("#told")).to_have_text("Saved starfall-0001.state.")
    blank.keyboard.press("p")
    expect(blank.locator("#state")).to_have_text("recording paused")
    blank.keyboard.press("q")
    expect(blank.locator("#state")).to_have_text("finished")
    running.join()
    taken = load_demonstration(tmp_path / "fight.demo")
    assert {0, 3} <= set(taken.actions.tolist())
    assert (tmp_path / "states" / "starfall-0001.state").is_file()
