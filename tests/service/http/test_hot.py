"""The calls that bypass the router answer as the router does."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

import service.app
from service.daemon.commands import BackendBusy
from service.http.settings import Settings
from tests.service.conftest import BEARER, client_of

HOT = ("/livez", "/readyz", "/v1/status", "/v1/stats")


@pytest.fixture
def routed(backend: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """A client for whom every call goes through the router."""
    monkeypatch.setattr(service.app, "hot_calls", lambda context: {})
    client = client_of(backend, settings, headers=BEARER)
    monkeypatch.undo()
    return client


def test_only_calls_that_the_router_has_are_hot(client: TestClient) -> None:
    calls = service.app.hot_calls(client.app.state.context)  # type: ignore[attr-defined]
    assert sorted(calls) == sorted(HOT)
    for path in calls:
        call = client.app.openapi()["paths"][path]["get"]  # type: ignore[attr-defined]
        assert "parameters" not in call


@pytest.mark.parametrize("path", HOT)
@pytest.mark.parametrize("trouble", [None, "not ready", "busy", "fault"])
def test_answers_are_those_of_the_router(
    backend: Any, settings: Settings, routed: TestClient, path: str, trouble: str | None
) -> None:
    if trouble == "not ready":
        backend.readiness = (False, "the daemon is stopping")
    elif trouble is not None:
        error = BackendBusy("no answer") if trouble == "busy" else RuntimeError("secret")
        backend.stats_failure = error
    hot = client_of(backend, settings, headers=BEARER).get(path)
    expected = routed.get(path)
    assert (hot.status_code, hot.content) == (expected.status_code, expected.content)
    assert hot.headers == expected.headers


@pytest.mark.parametrize("path", HOT)
def test_what_is_asked_for_otherwise_goes_to_the_router(client: TestClient, path: str) -> None:
    for method in ("POST", "PATCH"):
        answer = client.request(method, path)
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, HEAD"
    assert client.get(f"{path}/").status_code == 404
    assert client.get(f"{path}?").status_code == 200


@pytest.mark.parametrize("path", ["/v1/timeline?seconds=3", "/v1/events?limit=5", "/v1/config"])
def test_a_request_does_not_make_the_document_of_all_calls(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200
    assert client.app.openapi_schema is None  # type: ignore[attr-defined]
