"""The calls under /v1, and health."""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

PATCH_TYPE = {"content-type": "application/merge-patch+json"}


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
    answer = client.get("/v1/stats/stream", params={"hz": hz})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "hz"


def test_null_clears_the_action_deadline(client: TestClient) -> None:
    for value in (20, None):
        change = {"action_deadline_ms": value}
        client.patch("/v1/inference", json=change, headers=PATCH_TYPE)
        assert client.get("/v1/inference").json()["action_deadline_ms"] == value


@pytest.mark.parametrize(
    ("shape", "size"),
    [((84, 84), (336, 336)), ((144, 160, 3), (320, 288)), ((600, 400), (400, 600))],
)
def test_screen_is_enlarged_by_a_whole_factor(
    client: TestClient, backend: Any, shape: tuple[int, ...], size: tuple[int, int]
) -> None:
    backend.picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    answer = client.get("/v1/screen.png")
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["cache-control"] == "no-store"
    picture = Image.open(io.BytesIO(answer.content))
    assert picture.size == size
    step = size[0] // shape[1]
    assert (np.asarray(picture)[::step, ::step] == backend.picture).all()


def test_no_frame_yet(client: TestClient, backend: Any) -> None:
    backend.picture = None
    answer = client.get("/v1/screen.png")
    assert answer.status_code == 404
    assert answer.json()["type"].endswith("no-frame")


def test_health(stranger: TestClient, backend: Any) -> None:
    assert stranger.get("/livez").status_code == 200
    assert stranger.get("/readyz").status_code == 200
    backend.readiness = (False, "learner 0 has failed: ValueError: boom")
    answer = stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "learner 0 has failed: ValueError: boom"
    assert stranger.get("/livez").status_code == 200


def test_dashboard_is_served_with_a_strict_policy(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    for asset in ("main.js", "style.css", "icon.svg"):
        assert f"/static/{asset}" in page.text
        assert client.get(f"/static/{asset}").status_code == 200
