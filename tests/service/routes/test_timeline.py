"""`/v1/timeline`."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from service.routes.context import Context
from tests.service.conftest import FakeBackend, example_timeline, wrong_field


def test_it_is_what_the_daemon_draws(client: TestClient) -> None:
    answer = client.get("/v1/timeline")
    assert answer.json() == example_timeline()
    assert answer.headers["cache-control"] == "no-store"


def test_all_who_ask_for_the_same_seconds_share_one(
    client: TestClient, backend: FakeBackend
) -> None:
    asked: list[float] = []

    def drawn(seconds: float) -> dict[str, Any]:
        asked.append(seconds)
        return example_timeline()

    backend.timeline = drawn  # type: ignore[method-assign]
    for seconds in ("2.04", "1.96", "2", "10", "0.5"):
        assert client.get("/v1/timeline", params={"seconds": seconds}).status_code == 200
    assert set(asked) == {2.0, 10.0, 0.5}


def test_timelines_of_eight_lengths_are_kept_at_most(client: TestClient) -> None:
    for tenths in range(5, 25):
        assert client.get("/v1/timeline", params={"seconds": tenths / 10}).status_code == 200
    context: Context = client.app.state.context  # type: ignore[attr-defined]
    assert context.timeline_json.cache_info().currsize == 8


@pytest.mark.parametrize("seconds", ["0.4", "10.1", "-1", "x", "", "nan", "inf", "1e400"])
def test_out_of_bounds(client: TestClient, seconds: str) -> None:
    assert wrong_field(client.get("/v1/timeline", params={"seconds": seconds})) == "seconds"
