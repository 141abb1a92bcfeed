"""The calls under /v1, and health."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.live_config import live_values
from service.daemon.commands import BackendBusy, BackendGone

PATCH_TYPE = {"content-type": "application/merge-patch+json"}


def patch(client: TestClient, body: Any, **headers: str) -> httpx.Response:
    answer: httpx.Response = client.patch(
        "/v1/inference", json=body, headers={**PATCH_TYPE, **headers}
    )
    return answer


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


def test_inference_shows_settings_with_etag(client: TestClient) -> None:
    answer = client.get("/v1/inference")
    assert answer.json() == {
        **live_values(Config())["inference"], "ready": 2, "recommended_processes": 5,
    }
    assert answer.headers["etag"] == client.get("/v1/inference").headers["etag"]


def test_patch_changes_only_what_it_names(client: TestClient, backend: Any) -> None:
    before = client.get("/v1/inference").headers["etag"]
    answer = patch(client, {"processes": 8})
    assert answer.status_code == 200
    assert answer.json()["processes"] == 8
    assert answer.headers["etag"] != before
    assert backend.commands == [("inference", {"processes": 8})]


def test_patch_of_several_fields_is_one_command(client: TestClient, backend: Any) -> None:
    change = {
        "processes": "auto", "algorithm": "maximum-time", "action_deadline_ms": 12.5,
        "injected_latency_ms": 82,
    }
    assert patch(client, change).status_code == 200
    assert backend.commands == [("inference", change)]


def test_null_clears_the_action_deadline(client: TestClient, backend: Any) -> None:
    patch(client, {"action_deadline_ms": 20})
    assert client.get("/v1/inference").json()["action_deadline_ms"] == 20
    assert patch(client, {"action_deadline_ms": None}).json()["action_deadline_ms"] is None


def test_empty_patch_changes_nothing(client: TestClient, backend: Any) -> None:
    assert patch(client, {}).status_code == 200
    assert backend.commands == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"processes": 0}, "processes"),
        ({"processes": 257}, "processes"),
        ({"processes": 10_000}, "processes"),
        ({"processes": -1}, "processes"),
        ({"processes": 10**40}, "processes"),
        ({"processes": True}, "processes"),
        ({"processes": "4"}, "processes"),
        ({"processes": 2.5}, "processes"),
        ({"processes": None}, "processes"),
        ({"processes": [1]}, "processes"),
        ({"processes": "automatic"}, "processes"),
        ({"processes": "AUTO"}, "processes"),
        ({"injected_latency_ms": -1}, "injected_latency_ms"),
        ({"injected_latency_ms": 60_001}, "injected_latency_ms"),
        ({"injected_latency_ms": None}, "injected_latency_ms"),
        ({"injected_latency_ms": "82"}, "injected_latency_ms"),
        ({"algorithm": "fastest"}, "algorithm"),
        ({"algorithm": None}, "algorithm"),
        ({"algorithm": 1}, "algorithm"),
        ({"action_deadline_ms": 0}, "action_deadline_ms"),
        ({"action_deadline_ms": 60_001}, "action_deadline_ms"),
        ({"action_deadline_ms": True}, "action_deadline_ms"),
        ({"action_deadline_ms": "20"}, "action_deadline_ms"),
        ({"speed": 3}, "speed"),
        ({"processes": 4, "speed": 3}, "speed"),
        ([], "body"),
        ("x", "body"),
        (3, "body"),
    ],
)
def test_bad_patch_names_field_and_value_and_changes_nothing(
    client: TestClient, backend: Any, body: Any, field: str
) -> None:
    answer = patch(client, body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    error, *more = answer.json()["errors"]
    assert error["field"] == field
    assert more == []
    assert field in answer.json()["detail"]
    assert "value" in error
    assert backend.commands == []


@pytest.mark.parametrize(
    "raw",
    [b"{", b"\xff", b"", b"[" * 20_000, b'{"processes":' + b"9" * 6000 + b"}",
     b'{"action_deadline_ms": NaN}', b'{"action_deadline_ms": 1e400}', b'{"algorithm": "\\ud800"}'],
)
def test_mangled_body(client: TestClient, backend: Any, raw: bytes) -> None:
    answer = client.patch("/v1/inference", content=raw, headers=PATCH_TYPE)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    answer.json()
    assert backend.commands == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_media_types_are_refused(client: TestClient, backend: Any, kind: str) -> None:
    answer = client.patch(
        "/v1/inference", content=b'{"processes": 3}', headers={"content-type": kind}
    )
    assert answer.status_code == 415
    assert backend.commands == []


def test_if_match(client: TestClient, backend: Any) -> None:
    etag = client.get("/v1/inference").headers["etag"]
    assert patch(client, {"processes": 4}, **{"if-match": etag}).status_code == 200
    stale = patch(client, {"processes": 5}, **{"if-match": etag})
    assert stale.status_code == 412
    assert stale.json()["type"].endswith("stale")
    assert stale.headers["etag"] == client.get("/v1/inference").headers["etag"]
    assert backend.settings["processes"] == 4
    assert patch(client, {"processes": 6}, **{"if-match": "*"}).status_code == 200
    both = f'"other", {stale.headers["etag"]}'
    assert patch(client, {"processes": 7}, **{"if-match": both}).status_code == 412


def test_of_two_writers_with_one_etag_one_wins(client: TestClient, backend: Any) -> None:
    etag = client.get("/v1/inference").headers["etag"]
    answers: list[int] = []

    def write(processes: int) -> None:
        headers = {"if-match": etag}
        answers.append(patch(client, {"processes": processes}, **headers).status_code)

    writers = [threading.Thread(target=write, args=(n,)) for n in (3, 4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(answers) == [200, 412]
    assert len(backend.commands) == 1


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (UserError("256 processes need 12 GiB, 8 are free"), 409),
        (BackendBusy("the supervisor did not answer within 10 s"), 504),
        (BackendGone("the supervisor is gone"), 503),
    ],
)
def test_a_command_that_fails(
    client: TestClient, backend: Any, failure: Exception, status: int
) -> None:
    backend.failure = failure
    answer = patch(client, {"processes": 256})
    assert answer.status_code == status
    assert str(failure) in answer.json()["detail"]
    assert client.get("/v1/inference").json()["processes"] == 2


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
