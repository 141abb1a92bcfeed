"""The calls under /v1, and health."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from tests.service.conftest import problem, wrong_field


def test_status_and_config(client: TestClient, backend: Any) -> None:
    assert client.get("/v1/status").json() == backend.report
    assert client.get("/v1/config").json()["env"]["id"] == "rtagent/Starfall-v0"


def test_stats_are_the_figures_and_unknown_stays_null(client: TestClient, backend: Any) -> None:
    backend.figures["learning"]["loss"] = float("nan")
    stats = client.get("/v1/stats").json()
    assert stats["clock"] == backend.figures["clock"]
    assert stats["r3"]["deadline_s"] is None
    assert stats["learning"]["loss"] is None


def test_numpy_figures_are_plain_numbers(client: TestClient, backend: Any) -> None:
    backend.figures["clock"]["ticks"] = np.int64(7)
    backend.figures["clock"]["rate_hz"] = np.float32("inf")
    clock = client.get("/v1/stats").json()["clock"]
    assert clock["ticks"] == 7
    assert clock["rate_hz"] is None


def test_many_readers_cost_one_collection(client: TestClient, backend: Any) -> None:
    began = time.monotonic()
    for _ in range(30):
        client.get("/v1/stats")
    assert backend.collected <= 2 + (time.monotonic() - began) / 0.045


@pytest.mark.parametrize("hz", ["0", "21", "x", "", "1.5"])
def test_stream_rate_out_of_bounds(client: TestClient, hz: str) -> None:
    assert wrong_field(client.get("/v1/stats/stream", params={"hz": hz})) == "hz"


def test_screen_is_the_enlarged_picture(client: TestClient, backend: Any) -> None:
    answer = client.get("/v1/screen.png")
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["cache-control"] == "no-store"
    picture = np.asarray(Image.open(io.BytesIO(answer.content)))
    assert (picture[::4, ::4] == backend.picture).all()


def test_no_frame_yet(client: TestClient, backend: Any) -> None:
    backend.picture = None
    assert problem(client.get("/v1/screen.png"), 404)["type"].endswith("no-frame")


def test_health(stranger: TestClient, backend: Any) -> None:
    assert stranger.get("/livez").status_code == 200
    assert stranger.get("/readyz").status_code == 200
    backend.readiness = (False, "learner 0 has failed: ValueError: boom")
    assert problem(stranger.get("/readyz"), 503)["detail"] == backend.readiness[1]
    assert stranger.get("/livez").status_code == 200


def test_dashboard_is_served_with_a_strict_policy(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    links = set(re.findall(r'(?:href|src)="([^"#]+)', page.text))
    assert links > {"/figures", "/docs", "/static/main.js", "/static/style.css"}
    assert {client.get(link).status_code for link in links} == {200}
