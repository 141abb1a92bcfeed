"""What the HTTP service must be told before it can listen."""

from __future__ import annotations

from dataclasses import dataclass, field

KIB = 1024


@dataclass(frozen=True)
class Settings:
    """Settings of the HTTP service.

    Attributes:
        token: the bearer token; see `service.token`.
        host: address the service is bound to.
        port: port the service is bound to (the real one where 0 was asked for).
        allowed_hosts: further names under which clients may reach the service, `name` (at our
            port) or `name:port` (behind a proxy or a port forwarding).
        max_body_bytes: longest request body.
    """

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8008
    allowed_hosts: frozenset[str] = frozenset()
    max_body_bytes: int = 64 * KIB

    @property
    def url(self) -> str:
        """The address for a browser, without the token."""
        host = "127.0.0.1" if self.host in WILDCARDS else self.host
        return f"http://{bracketed(host)}:{self.port}/"

    @property
    def login_url(self) -> str:
        """The address to print: it carries the token, once."""
        return f"{self.url}?token={self.token}"


WILDCARDS = frozenset({"0.0.0.0", "::"})
"""Addresses that mean every interface; no client calls the service by them."""


def bracketed(host: str) -> str:
    """A host as it is written before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
