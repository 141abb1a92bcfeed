"""Binds the service's address before anything is started.

Imports nothing heavy, for `rtagent serve` uses it in the supervisor's process.
"""

from __future__ import annotations

import errno
import ipaddress
import socket

from rtagent.errors import UserError

BACKLOG = 2048
"""Waiting connections cost no descriptor; a client that finds the queue full retries after 1 s."""
STALLED_MS = 10_000
"""The kernel cuts the connection of a client that has accepted no data for so long."""
UNSENT_BYTES = 16 << 10
"""The most that the kernel buffers beyond what it can send: a client that reads slowly gets newer
pictures instead of a queue of old ones."""
RECEIVED_BYTES = 4 << 10
"""The kernel takes about as much from a client before the event loop has read it. The loop parses
all that is there at once, which takes it seconds for some 100 KiB of the smallest pieces of a body
or frames of a socket: many such clients could stop its heartbeat."""


def bind(host: str, port: int, reachable: bool) -> socket.socket:
    """Bind the address that the service will listen on.

    Args:
        host: address or name.
        port: 0 takes a free one; `getsockname()[1]` says which.
        reachable: allow an address other than loopback, because of TLS or `--insecure`.

    Returns:
        A listening socket.

    Raises:
        UserError: the address is in use, not of this machine, or not loopback.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise UserError(_not_ours(host)) from None
    family, kind, protocol, _, address = found[0]
    if not reachable and not ipaddress.ip_address(address[0]).is_loopback:
        raise UserError(
            f"{host} can be reached from other machines: it needs TLS (service.certificate) or "
            f"--insecure; or bind 127.0.0.1 and forward the port with ssh"
        )
    try:
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        # A kernel may have no IPv6.
        if error.errno != errno.EAFNOSUPPORT:
            raise
        raise UserError(_not_ours(host)) from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these options.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_MS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise UserError(_bind_failure(error, host, port)) from None
    return sock


def is_loopback(sock: socket.socket) -> bool:
    """Whether only this machine can reach a bound socket."""
    return ipaddress.ip_address(sock.getsockname()[0].partition("%")[0]).is_loopback


def _bind_failure(error: OSError, host: str, port: int) -> str:
    return {
        errno.EADDRINUSE: f"port {port} is in use on {host}: stop the other program or choose "
        "another with --port",
        errno.EACCES: f"port {port} needs privileges: choose one above 1023 with --port",
        errno.EADDRNOTAVAIL: _not_ours(host),
    }.get(error.errno or 0, f"cannot listen on {host} port {port}: {error.strerror}")


def _not_ours(host: str) -> str:
    return f"{host} is no address of this machine: choose another --host"
