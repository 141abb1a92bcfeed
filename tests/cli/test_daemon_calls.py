"""How the commands talk to the daemon: who they say they are, and changes that take long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rtagent import __version__
from rtagent.cli.daemon import TIMEOUT_S, Daemon
from rtagent.clock import VirtualClock
from rtagent.errors import UserError

PLACE = "/v1/operations/0123456789abcdef"


class Slow:
    """A daemon whose change is an operation that looks so, one look after the other."""

    def __init__(self, looks: Iterator[dict[str, Any]]) -> None:
        self.looks = looks
        self.requests: list[httpx.Request] = []
        self.clock = VirtualClock(0.0)
        self.calls = Daemon(
            "http://127.0.0.1:1/", "t", httpx.MockTransport(self.answer), self.clock
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.method == "PATCH":
            return httpx.Response(202, json={}, headers={"location": PLACE})
        assert request.url.path == PLACE
        return httpx.Response(200, json=next(self.looks))


def running() -> dict[str, Any]:
    return {"state": "running", "result": None, "problem": None}


def test_it_says_who_it_is() -> None:
    daemon = Slow(iter([{"state": "done", "result": {}}]))
    daemon.calls.patch("/v1/inference", {})
    assert daemon.requests[0].headers["user-agent"] == f"rtagent/{__version__}"


def test_a_change_that_takes_long_is_followed_to_its_end() -> None:
    daemon = Slow(iter([running(), running(), {"state": "done", "result": {"processes": 4}}]))
    assert daemon.calls.patch("/v1/inference", {"processes": 4}) == {"processes": 4}
    assert len(daemon.requests) == 4
    assert daemon.clock.now() > 0.0


def test_a_refusal_at_the_end_is_told() -> None:
    problem = {"detail": "inference 3 failed: boom", "status": 409}
    daemon = Slow(iter([running(), {"state": "refused", "result": None, "problem": problem}]))
    with pytest.raises(UserError, match="inference 3 failed: boom"):
        daemon.calls.patch("/v1/inference", {"processes": 4})


def test_it_is_not_followed_for_ever() -> None:
    daemon = Slow(running() for _ in iter(int, 1))
    with pytest.raises(UserError, match="not in force after"):
        daemon.calls.patch("/v1/inference", {"processes": 4})
    assert daemon.clock.now() >= TIMEOUT_S
