"""The names under which clients may reach the service; `Host` and `Origin` must be among them."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

from service.http.settings import WILDCARDS, Settings, bracketed

DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


class Authorities:
    """Decides which `name:port` is ours, from the bound address and the allowed names."""

    def __init__(self, settings: Settings) -> None:
        self._own = _own(settings)
        # A service that is bound to every interface does not know its addresses.
        self._any_address_at = settings.port if settings.host in WILDCARDS else None

    def host_is_ours(self, host: str) -> bool:
        """Whether this `Host` of a request is ours.

        Without a port it may be that of a proxy which terminates TLS for us.
        """
        return any(self._is_ours(host, port) for port in DEFAULT_PORTS.values())

    def origin_is_ours(self, origin: str) -> bool:
        """Whether a page of this origin is ours."""
        scheme, _, authority = origin.partition("://")
        port = DEFAULT_PORTS.get(scheme)
        return port is not None and self._is_ours(authority, port)

    def _is_ours(self, authority: str, default_port: int) -> bool:
        match = _AUTHORITY.fullmatch(authority)
        if match is None:
            return False
        host, port = match["host"].lower(), int(match["port"] or default_port)
        # Unlike a name, an address cannot be made to lead here by somebody else's DNS.
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
    """The address in a text, IPv4 also if it is mapped to IPv6; None if the text is a name."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
