"""Which connections may stay."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from service.http.connections import Connections, RequestTracking, counted_address, descriptor_limit


class Client:
    """One connection as the service sees it, and the client's end of it."""

    def __init__(self, address: str, port: int) -> None:
        self.peer = (address, port)
        self.sock, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)

    @property
    def ended(self) -> bool:
        try:
            return self.theirs.recv(1) == b""
        except BlockingIOError:
            return False


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        client.sock.close()
        client.theirs.close()


def connect(
    connections: Connections, clients: list[Client], now: float, address: str = "192.0.2.1"
) -> Client:
    client = Client(address, 1000 + len(clients))
    clients.append(client)
    assert connections.admit(client.sock, client.peer, now)
    return client


def mark_asked(connections: Connections, client: Client, *, waiting_since: float | None) -> None:
    connection = connections.find(client.peer)
    connection.has_asked, connection.waiting_since = True, waiting_since


def test_the_oldest_that_has_never_asked_makes_room(clients: list[Client]) -> None:
    connections = Connections(4, 4, 10.0)
    known = connect(connections, clients, 0.0)
    silent = [connect(connections, clients, now) for now in (1.0, 2.0, 3.0)]
    mark_asked(connections, known, waiting_since=0.5)
    new = connect(connections, clients, 4.0)
    assert [each.ended for each in (known, *silent, new)] == [False, True, False, False, False]
    assert len(connections) == 4


def test_among_those_that_have_asked_the_one_idle_for_longest_makes_room(
    clients: list[Client],
) -> None:
    connections = Connections(3, 3, 10.0)
    old = [connect(connections, clients, 0.0) for _ in range(3)]
    for client, since in zip(old, (5.0, None, 4.0), strict=True):
        mark_asked(connections, client, waiting_since=since)
    connect(connections, clients, 6.0)
    assert [each.ended for each in old] == [False, False, True]


def test_who_is_being_answered_is_never_ended(clients: list[Client]) -> None:
    connections = Connections(2, 2, 10.0)
    for _ in range(2):
        mark_asked(connections, connect(connections, clients, 0.0), waiting_since=None)
    new = Client("192.0.2.1", 9)
    clients.append(new)
    assert not connections.admit(new.sock, new.peer, 1.0)
    connections.end_silent(1e9)
    assert not any(each.ended for each in clients[:2])


def test_who_has_said_something_that_is_not_read_yet_is_not_silent(clients: list[Client]) -> None:
    connections = Connections(2, 2, 10.0)
    speaks, silent = (connect(connections, clients, now) for now in (0.0, 1.0))
    speaks.theirs.send(b"G")
    connect(connections, clients, 2.0)
    assert (speaks.ended, silent.ended) == (False, True)
    # Its data has been read, and was not a complete request.
    speaks.sock.recv(1)
    connect(connections, clients, 3.0)
    assert speaks.ended


def test_one_address_cannot_take_all_places(clients: list[Client]) -> None:
    connections = Connections(8, 4, 10.0)
    other = connect(connections, clients, 0.0, "198.51.100.7")
    crowd = [connect(connections, clients, 1.0 + number) for number in range(20)]
    assert len(connections) == 5
    assert not other.ended
    assert [each.ended for each in crowd] == [True] * 16 + [False] * 4


def test_a_closed_connection_frees_its_place(clients: list[Client]) -> None:
    connections = Connections(2, 2, 10.0)
    first, second = (connect(connections, clients, 0.0) for _ in range(2))
    first.sock.close()
    connect(connections, clients, 1.0)
    assert not second.ended
    assert len(connections) == 2


def test_who_waits_for_too_long_is_ended(clients: list[Client]) -> None:
    connections = Connections(9, 9, 10.0)
    silent, idle, busy = (connect(connections, clients, 0.0) for _ in range(3))
    mark_asked(connections, idle, waiting_since=1.0)
    mark_asked(connections, busy, waiting_since=None)
    connections.end_silent(10.0)
    assert not any(each.ended for each in clients)
    connections.end_silent(10.5)
    assert [each.ended for each in (silent, idle, busy)] == [True, False, False]
    connections.end_silent(11.5)
    assert idle.ended
    assert not busy.ended


def test_who_takes_its_answer_slowly_is_not_ended(clients: list[Client]) -> None:
    connections = Connections(9, 9, 10.0)
    slow, stuck = (connect(connections, clients, 0.0) for _ in range(2))
    for client in (slow, stuck):
        client.sock.setblocking(False)
        for _ in range(8):
            client.sock.send(bytes(8_192))
        mark_asked(connections, client, waiting_since=0.0)
    connections.end_silent(1.0)
    for now in (9.0, 18.0, 27.0):
        assert slow.theirs.recv(8_192)
        connections.end_silent(now)
    assert connections.find(slow.peer) is not None
    assert connections.find(stuck.peer) is None
    connections.end_silent(37.5)
    assert connections.find(slow.peer) is None


def test_room_is_made_for_a_lack_of_descriptors(clients: list[Client]) -> None:
    connections = Connections(9, 9, 10.0)
    connections.make_room()
    old, new = (connect(connections, clients, now) for now in (0.0, 1.0))
    connections.make_room()
    assert (old.ended, new.ended) == (True, False)


def test_a_request_is_noticed_from_its_head_to_its_answer(clients: list[Client]) -> None:
    connections, clock = Connections(9, 9, 10.0), VirtualClock(5.0)
    client = connect(connections, clients, 0.0)
    connection = connections.find(client.peer)
    seen = []

    async def answers(scope: Any, receive: Any, send: Any) -> None:
        seen.append((connection.has_asked, connection.waiting_since))
        clock.advance(2.0)
        if scope["path"] == "/fails":
            raise RuntimeError

    noticing = RequestTracking(answers, connections, clock)

    async def call(path: str, peer: Any) -> None:
        await noticing({"client": peer, "path": path}, None, None)  # type: ignore[arg-type]

    asyncio.run(call("/", client.peer))
    assert (seen, connection.waiting_since) == ([(True, None)], 7.0)
    with pytest.raises(RuntimeError):
        asyncio.run(call("/fails", client.peer))
    assert connection.waiting_since == 9.0
    for stranger in (None, ("192.0.2.9", 1)):
        asyncio.run(call("/", stranger))


@pytest.mark.parametrize(("length", "complete"), [(b"6", False), (b"6", True), (b"0", True)])
def test_a_body_that_is_not_complete_makes_room(
    clients: list[Client], length: bytes, complete: bool
) -> None:
    """Whoever has no token may begin a body, too: that of the login's form.

    Nobody reads an empty one, and the answer may take long: that of a stream.
    """
    connections = Connections(1, 1, 10.0)
    client, new = connect(connections, clients, 0.0), Client("192.0.2.1", 9)
    clients.append(new)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"s", "more_body": not complete}

    async def answers(scope: Any, receive: Any, send: Any) -> None:
        if length != b"0":
            await receive()
        assert connections.admit(new.sock, new.peer, 1.0) is not complete

    noticing = RequestTracking(answers, connections, VirtualClock(0.0))
    scope = {"client": client.peer, "path": "/login", "headers": [(b"content-length", length)]}
    asyncio.run(noticing(scope, receive, None))  # type: ignore[arg-type]
    assert client.ended is not complete


def test_one_port_of_a_client_may_be_connected_to_several_of_our_addresses() -> None:
    """A service on every interface has several, and a port of a client is free for each of them."""
    connections = Connections(9, 9, 10.0)
    with socket.create_server(("0.0.0.0", 0)) as listening, ExitStack() as opened:
        port, source, accepted = listening.getsockname()[1], 0, []
        for ours in ("127.0.0.1", "127.0.0.2"):
            client = opened.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client.bind(("127.0.0.1", source))
            client.connect((ours, port))
            source = client.getsockname()[1]
            sock, peer = listening.accept()
            opened.enter_context(sock)
            assert connections.admit(sock, peer, 0.0)
            accepted.append((sock, peer))
        assert len({peer for _, peer in accepted}) == 1
        assert len(connections) == 2
        for sock, peer in accepted:
            found = connections.find(peer, sock.getsockname())
            assert found.sock is sock


@pytest.mark.parametrize(
    ("host", "counts_for"),
    [
        ("192.0.2.7", "192.0.2.7"), ("::ffff:192.0.2.7", "192.0.2.7"), ("::1", "::1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("2001:db8:1:2:f::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"), ("testclient", "testclient"),
    ],
)
def test_whom_an_address_counts_for(host: str, counts_for: str) -> None:
    assert counted_address(host) == counts_for


@pytest.mark.parametrize(
    ("soft", "hard", "after"), [(256, 256, 256), (256, 512, 512), (1024, 10**6, 65_536)]
)
def test_the_limit_of_descriptors_is_raised(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    limits = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda which, given: limits.__setitem__(0, given[0]))
    assert descriptor_limit() == after
    assert limits == [after, hard]
