"""Binding the address."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

import pytest

from rtagent.errors import UserError
from service.http.binding import RECEIVED_BYTES, bind
from tests.refused import one_line


def test_port_in_use() -> None:
    with bind("127.0.0.1", 0, reachable=False) as first:
        port = first.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is in use on 127.0.0.1: .*--port"):
            bind("127.0.0.1", port, reachable=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_not_loopback(host: str) -> None:
    with pytest.raises(UserError, match=r"needs TLS .* or --insecure"):
        bind(host, 0, reachable=False)


def test_insecure() -> None:
    with bind("0.0.0.0", 0, reachable=True) as sock:
        assert sock.getsockname()[0] == "0.0.0.0"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2"])
def test_loopback(host: str) -> None:
    with bind(host, 0, reachable=False) as sock:
        assert ipaddress.ip_address(sock.getsockname()[0]).is_loopback


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "", "a" * 300])
def test_no_address_of_ours(host: str) -> None:
    with one_line():
        bind(host, 0, reachable=host != "")


def test_an_address_of_a_family_that_the_kernel_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """There was a traceback."""

    def refuse(*arguments: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    monkeypatch.setattr(socket, "socket", refuse)
    with one_line("::1 is no address of this machine: choose another --host"):
        bind("::1", 0, reachable=False)


def test_a_client_cannot_hand_over_much_at_once() -> None:
    with (
        bind("127.0.0.1", 0, reachable=False) as sock,
        socket.create_connection(sock.getsockname()) as client,
        sock.accept()[0] as accepted,
    ):
        client.setblocking(False)
        client.send(bytes(100 * RECEIVED_BYTES))
        assert 0 < len(accepted.recv(100 * RECEIVED_BYTES)) <= 4 * RECEIVED_BYTES
