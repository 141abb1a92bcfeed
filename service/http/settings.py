"""Settings of the HTTP service, which are fixed at its start."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Settings of the HTTP service.

    Attributes:
        token: the bearer token; see `http/token.py`.
        host: address the service is bound to.
        port: port the service is bound to, never 0.
        allowed_hosts: further names under which clients may reach the service: `name:port`, or
            `name` for `port` and the ports of HTTP and HTTPS.
        certificate: PEM file with the certificate and its chain. If None, there is no TLS.
        private_key: PEM file with its key. If None, the key is in the certificate's file.
        sessions_file: where the sessions of browsers are stored. If None, they are not.
        max_body_bytes: longest request body.
        most_connections: connections at once, if there are descriptors for them.
        most_per_address: connections of one client's address, so that no client can take them all;
            behind a reverse proxy all clients have the proxy's address.
        patience_s: how long a connection may take to send a whole request.
    """

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 8008
    allowed_hosts: frozenset[str] = frozenset()
    certificate: Path | None = None
    private_key: Path | None = None
    sessions_file: Path | None = None
    max_body_bytes: int = 64 << 10
    most_connections: int = 512
    most_per_address: int = 384
    patience_s: float = 10.0

    @property
    def url(self) -> str:
        """The address for a browser."""
        host = "127.0.0.1" if self.host in WILDCARDS else self.host
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{bracketed(host)}:{self.port}/"

    def login_url(self, code: str) -> str:
        """The address that opens a session, with a code of `http/sessions.py`."""
        return f"{self.url}?code={code}"


WILDCARDS = frozenset({"0.0.0.0", "::"})
"""Addresses that stand for every interface; clients cannot use them."""


def bracketed(host: str) -> str:
    """A host as it is written before a port: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host
