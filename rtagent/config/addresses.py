"""Addresses of other machines, as a user writes them."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

_HOST_AND_PORT = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_WEBSOCKET = re.compile(r"wss?://[^\s/?#@]+(/[^\s?#]*)?")


def _cluster_address(text: str) -> str:
    """The address; raises ValueError if Ray cannot join a cluster by it."""
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= 65_535:
        raise ValueError(
            "must be HOST:PORT of the cluster's head, such as 10.0.0.1:6379 or [fd00::1]:6379; "
            "without an address a Ray of this machine alone is started"
        )
    return text


def _policy_address(text: str) -> str:
    """The address; raises ValueError if it is no websocket's."""
    if _WEBSOCKET.fullmatch(text) is None or not _has_host_and_port(text):
        raise ValueError("must be ws://HOST:PORT or wss://HOST:PORT, as a policy server prints")
    return text


def _has_host_and_port(url: str) -> bool:
    """Whether it names a host, and a port from 1 to 65535 or none."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


ClusterAddress = Annotated[str, Field(max_length=256), AfterValidator(_cluster_address)]
PolicyAddress = Annotated[str, AfterValidator(_policy_address)]
