"""How the commands talk to the daemon: who they say they are."""

from __future__ import annotations

import httpx

from rtagent import __version__
from rtagent.cli.daemon import Daemon


def test_it_says_who_it_is() -> None:
    agents: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        agents.append(request.headers["user-agent"])
        return httpx.Response(200, json={})

    daemon = Daemon("http://127.0.0.1:1/", "t", httpx.MockTransport(answer))
    assert daemon.patch("/v1/inference", {}) == {}
    assert agents == [f"rtagent/{__version__}"]
