"""Clients of our server that say nothing, too much, or read nothing."""

from __future__ import annotations

import asyncio
import math
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import websockets
from websockets.server import ServerProtocol
from websockets.sync.client import connect

from rtagent.files.certificate import tls_context
from rtagent.remote import server as server_module
from rtagent.remote.protocol import encode
from rtagent.remote.server import LEAST_MESSAGE
from rtagent.remote.wire import LostError
from tests.conftest import eventually
from tests.remote.serving import Waiting, ask, dialled, policy_server, seen, served
from tests.service.certificates import make_certificate

TOKEN = "secret" * 8
PING = b"\x89\x80" + bytes(4)
LONG_PING = b"\x89\xfd" + bytes(4 + 125)


@pytest.mark.parametrize("by_tls", [False, True])
def test_connections_that_say_nothing_are_bounded_and_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_tls: bool
) -> None:
    """They need no token, and without a descriptor left asyncio writes tracebacks without end."""
    monkeypatch.setattr(server_module, "MOST_SILENT", 3)
    tls = None
    if by_tls:
        made = make_certificate(tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
        tls = tls_context(made.certificate, made.key)
    with policy_server(served(), TOKEN, tls=tls) as (address, _), ExitStack() as silent:
        host, port = address.removeprefix("ws://").split(":")
        address = address.replace("ws:", "wss:") if by_tls else address
        known = dialled(address, TOKEN)
        opened = [
            silent.enter_context(socket.create_connection((host, int(port)), 5.0))
            for _ in range(4)
        ]
        with suppress(ConnectionResetError):
            assert opened[0].recv(1) == b""
        dialled(address, TOKEN).close()
        assert ask(known, encode({"observation": seen(1)}))
        known.close()


def test_a_huge_question_is_not_read() -> None:
    with policy_server(served()) as (address, _):
        wire = dialled(address)
        # Not the limit of answers, which is ours.
        with pytest.raises(LostError, match="the question is larger than the server takes"):
            ask(wire, b"\0" * (LEAST_MESSAGE + 1))
        wire = dialled(address)
        with pytest.raises(LostError):
            ask(wire, b"\0" * (64 << 20))
        # Others are served.
        dialled(address).close()


def test_a_client_that_floods_with_pings_is_disconnected() -> None:
    """Nobody else is answered while they are."""
    with policy_server(served()) as (address, _), connect(address) as connection:
        connection.recv(30.0)
        connection.socket.sendall(PING * 20_000)
        with pytest.raises(websockets.ConnectionClosed):
            connection.recv(10.0)
        dialled(address).close()


def test_a_client_that_reads_no_pongs_is_not_read_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be kept for it without end."""
    monkeypatch.setattr(server_module, "MOST_FRAMES", math.inf)

    def flood() -> None:
        for _ in range(256):
            connection.socket.sendall(LONG_PING * 1000)

    with policy_server(served()) as (address, _), connect(address) as connection:
        connection.recv(30.0)
        connection.socket.settimeout(1.0)
        # The connection's own thread reads no more.
        with connection.recv_flow_control, pytest.raises(TimeoutError):
            flood()
        connection.close_socket()
        dialled(address).close()


def test_a_client_that_takes_no_answers_gives_up_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept it, and one whose machine was gone kept it for a quarter of an hour."""
    monkeypatch.setattr(server_module, "GONE_S", 1)
    # Each answer has a MiB: soon the kernel keeps no more.
    chunk = np.zeros((1, 1 << 17, 2), np.float32)
    policy = served(lambda _: chunk, outputs=2, discrete=False)
    with policy_server(policy) as (address, server), connect(
        address, max_size=None, max_queue=1
    ) as connection:
        connection.recv(30.0)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        with suppress(websockets.ConnectionClosed):
            for _ in range(64):
                connection.send(encode({"observation": seen(0)}))
        eventually(lambda: server.counts.clients == 0, "its place is free")
        assert server.counts.answers < 64
        connection.close_socket()


def test_what_is_asked_before_an_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The questions of many clients would take gigabytes."""
    kept = []

    class Counting(server_module._Connection):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            kept.append(len(self.recv_messages.frames))

    monkeypatch.setattr(server_module, "_Connection", Counting)
    policy = Waiting()
    question = encode({"observation": seen(1), "more": b"\0" * 300_000})
    with policy_server(served(policy)) as (address, _), connect(address) as connection:
        connection.recv(30.0)
        connection.socket.settimeout(0.3)
        with suppress(TimeoutError):
            for _ in range(10):
                connection.send(question)
        eventually(lambda: any(kept), "a question has come")
        connection.close_socket()
        policy.go.set()
    assert max(kept) <= 3


@pytest.mark.parametrize("crowded", [False, True])
def test_a_client_that_reads_again_is_read_from_if_its_questions_do_not_pile_up(
    crowded: bool,
) -> None:
    async def read_again() -> Mock:
        connection = server_module._Connection(ServerProtocol(), Mock())
        connection.transport, connection.recv_messages = Mock(), Mock(paused=crowded)
        connection.pause_writing()
        connection.resume_writing()
        return connection.transport

    transport = asyncio.run(read_again())
    transport.pause_reading.assert_called_once()
    assert transport.resume_reading.called is not crowded
