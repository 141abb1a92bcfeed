"""Ports that stay free until a test listens on them."""

from __future__ import annotations

import itertools
import os
import socket
from pathlib import Path

# Those from 10,000 on Ray gives to its workers.
_LOWEST, _FEW = 20_000, 1000


def _handed_out() -> int:
    """The lowest port that the kernel gives to a connection, or to who asks for any."""
    return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])


# Tests that run side by side begin far from each other, whose process numbers differ little: what
# one was told a moment ago and does not use yet, another must not be told.
_numbers = itertools.count(os.getpid() * 14_071)


def free_port() -> int:
    """A port that nobody listens on, and that no connection of another test is given.

    Where the kernel gives away nearly all of them, it is one that nobody has at the moment.
    """
    count = _handed_out() - _LOWEST
    for number in _numbers:
        port = _LOWEST + number % (count if count >= _FEW else 2**16 - _LOWEST)
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise AssertionError
