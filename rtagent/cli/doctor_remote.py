"""The checks of `rtagent doctor` of a remote policy."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from rtagent.cli.output import own_stdout
from rtagent.clock import Clock, MonotonicClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.testing.report import Check

NAMES = ("policy server", "its round trip", "its policy")
ANSWER_S = 10.0
TRIES = 5
PORTS = {"ws": 80, "wss": 443}


def remote_policy(config: Config) -> list[Check]:
    """Whether the server answers by the protocol, how far away it is, and what it serves.

    Args:
        config: names the server and the environment.
    """
    if config.policy.remote is None:
        return []
    clock = MonotonicClock()
    server, metadata = _server(config.policy.remote, clock)
    return [server, _round_trip(config.policy.remote, clock), _policy(config, metadata)]


def _server(address: str, clock: Clock) -> tuple[Check, dict[str, object] | None]:
    try:
        from rtagent.remote.wire import LostError, WebsocketDialer, token_of

        dialer = WebsocketDialer(address, token_of(os.environ), clock)
    except UserError as error:
        return Check(NAMES[0], "bad", "cannot be asked", str(error)), None
    dialer.dial()
    try:
        wire = dialer.outcome(ANSWER_S)
    except LostError as error:
        wire, reason = None, str(error)
    else:
        reason = "no answer"
    if wire is None:
        advice = "until it answers, the world goes on with its default behaviour"
        return Check(NAMES[0], "warn", f"{address}: {reason}", advice), None
    wire.close()
    return Check(NAMES[0], "ok", f"{address} answers, and keeps to the protocol"), wire.metadata


def _round_trip(address: str, clock: Clock) -> Check:
    """The shortest of a few TCP handshakes, each of which takes a round trip."""
    url, took = urlsplit(address), list[float]()
    try:
        for _ in range(TRIES):
            began = clock.now()
            address_and_port = url.hostname or "", url.port or PORTS[url.scheme]
            socket.create_connection(address_and_port, ANSWER_S).close()
            took.append(clock.now() - began)
    except (OSError, ValueError):
        return Check(NAMES[1], "skip", "unknown")
    return Check(NAMES[1], "ok", f"{1e3 * min(took):.1f} ms, without computing")


def _policy(config: Config, metadata: dict[str, object] | None) -> Check:
    if metadata is None:
        return Check(NAMES[2], "skip", "unknown")
    from rtagent.evaluation.probe import probe
    from rtagent.remote.answers import OUTPUTS, Terms
    from rtagent.remote.protocol import ProtocolError

    try:
        with own_stdout():
            Terms.of(probe(config)).agreed(metadata)
    except ProtocolError as error:
        advice = f"serve a policy for env.id = {config.env.id!r}, or set its environment here"
        return Check(NAMES[2], "warn", str(error), advice)
    except UserError as error:
        return Check(NAMES[2], "skip", f"unknown: {error}")
    if OUTPUTS not in metadata:
        return Check(NAMES[2], "skip", "unknown: the server does not say what it answers with")
    return Check(NAMES[2], "ok", f"fits env.id = {config.env.id!r}")
