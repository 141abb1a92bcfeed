"""The names under which clients may reach the service, which `Host` and `Origin` must be."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from service.http.settings import WILDCARDS, Settings, bracketed

DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


class Authorities:
    """Which `name:port` is ours, by the address that is bound and further names."""

    def __init__(self, settings: Settings) -> None:
        self._own = _own(settings)
        # Bound to every interface we do not know our addresses.
        self._any_address_at = settings.port if settings.host in WILDCARDS else None

    def host_is_ours(self, host: str) -> bool:
        """Whether a request with this `Host` means us.

        One without a port may have come over a proxy that speaks TLS for us.
        """
        return any(self._is_ours(host, port) for port in DEFAULT_PORTS.values())

    def origin_is_ours(self, origin: str) -> bool:
        """Whether a page of this origin is one of ours."""
        scheme, _, authority = origin.partition("://")
        port = DEFAULT_PORTS.get(scheme)
        return port is not None and self._is_ours(authority, port)

    def _is_ours(self, authority: str, default_port: int) -> bool:
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            return False
        host, port = match["host"].lower(), int(match["port"] or default_port)
        # An address, unlike a name, cannot be pointed at us by somebody else's DNS.
        return f"{host}:{port}" in self._own or (
            port == self._any_address_at and address_of(host.strip("[]")) is not None
        )


def _own(settings: Settings) -> frozenset[str]:
    names = {"127.0.0.1", "localhost", "[::1]"}
    if settings.host in WILDCARDS:
        names.add(socket.gethostname().lower())
    else:
        names.add(bracketed(settings.host).lower())
    own = {f"{name}:{settings.port}" for name in names}
    for name in settings.allowed_hosts:
        match = _AUTHORITY.fullmatch(name)
        if match is not None:
            ports = [match["port"]] if match["port"] else [settings.port, *DEFAULT_PORTS.values()]
            own.update(f"{match['host'].lower()}:{port}" for port in ports)
    return frozenset(own)


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    """The address that is written there, an IPv4 one also as IPv6; None if it is a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
