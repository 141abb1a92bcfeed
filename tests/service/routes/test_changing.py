"""`/v1/inference`, `/v1/learning` and `/v1/deadlines`: read, changed, refused."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.live_config import live_values
from rtagent.memory.horizon import KINDS, MODES, Decision
from service.daemon.commands import BackendBusy, BackendGone, BackendLate
from service.routes import context
from tests.forked import eventually
from tests.service.conftest import problem, wrong_field

PATCH_TYPE = {"content-type": "application/merge-patch+json"}
CHANGES: dict[str, dict[str, Any]] = {
    "/v1/inference": {"processes": 4}, "/v1/learning": {"batch_size": 64},
    "/v1/deadlines": {"deadline_s": 30.0},
}
PATHS = tuple(CHANGES)


def patch(client: TestClient, path: str, body: Any, **headers: str) -> httpx.Response:
    answer: httpx.Response = client.patch(path, json=body, headers={**PATCH_TYPE, **headers})
    return answer


@pytest.mark.parametrize(
    ("path", "progress"),
    [("inference", {"ready": 2, "recommended_processes": 5}),
     ("learning", {"ready": 1, "updates": 4100, "updates_per_s": 41.3})],
)
def test_settings_and_progress_with_an_etag(
    client: TestClient, path: str, progress: dict[str, Any]
) -> None:
    answer = client.get(f"/v1/{path}")
    assert answer.json() == live_values(Config())[path] | progress
    assert answer.headers["etag"] == client.get(f"/v1/{path}").headers["etag"]


def test_deadlines_show_settings_progress_and_what_is_unknown(
    client: TestClient, backend: Any
) -> None:
    shown = client.get("/v1/deadlines").json()
    assert shown["mode"] == "off"
    assert shown["deadline_s"] is None
    assert shown["elapsed_s"] is None
    assert shown["horizons"] == {"met": None, "missed": None}
    assert shown["decisions"] == []
    backend.live["r3"].update(mode="step", deadline_s=30.0, data_budget=10_000)
    backend.figures["r3"].update(
        elapsed_s=12.0, consumed=5_000, time_ratio=0.4, data_ratio=0.5, batch_cap=256,
        horizons={"met": 3, "missed": 1},
    )
    shown = client.get("/v1/deadlines").json()
    assert (shown["time_ratio"], shown["data_ratio"]) == (0.4, 0.5)
    assert (shown["batch_size"], shown["batch_cap"]) == (32, 256)
    assert shown["horizons"] == {"met": 3, "missed": 1}


@pytest.mark.parametrize(
    ("path", "command", "change"),
    [
        ("/v1/inference", "inference", {"processes": 8}),
        (
            "/v1/inference", "inference",
            {"processes": "auto", "algorithm": "maximum-time", "action_deadline_ms": 12.5,
             "injected_latency_ms": 82},
        ),
        ("/v1/learning", "learning", {"processes": 0}),
        ("/v1/learning", "learning", {"processes": 64, "order": "first-come"}),
        ("/v1/learning", "learning", {"paused": True}),
        ("/v1/learning", "learning", {"batch_size": 65_536}),
        ("/v1/learning", "learning", {"batch_size": 64.0}),
        ("/v1/deadlines", "r3", {"deadline_s": 30}),
        ("/v1/deadlines", "r3", {"deadline_s": None, "data_budget": None}),
        (
            "/v1/deadlines", "r3",
            {"mode": "episode", "deadline_s": 0.5, "data_budget": 1, "memory_budget_mb": 900},
        ),
    ],
)
def test_a_patch_is_one_command_with_what_it_names(
    client: TestClient, backend: Any, path: str, command: str, change: dict[str, Any]
) -> None:
    before = client.get(path).json()
    answer = patch(client, path, change)
    assert answer.status_code == 200
    assert backend.commands == [(command, change)]
    after = answer.json()
    assert {name: after[name] for name in change} == change
    if "batch_size" in before:
        assert after["batch_size"] == {**before, **change}["batch_size"]


BAD: dict[str, dict[str, tuple[Any, ...]]] = {
    "/v1/inference": {
        "processes": (0, 257, 10_000, -1, 10**40, True, "4", 2.5, None, [1], "automatic", "AUTO"),
        "injected_latency_ms": (-1, 60_001, None, "82"), "algorithm": ("fastest", None, 1),
        "action_deadline_ms": (0, 60_001, True, "20"), "speed": (3,),
    },
    "/v1/learning": {
        "processes": (-1, 65, 10**40, True, "2", 1.5, None, [1]), "paused": (0, 1, "true", None),
        "batch_size": (0, -1, 65_537, True, "32", 32.5, None), "order": ("last", None, 1),
        "learning_rate": (0.0, 1.5, "0.1", None), "gamma": (0.1,),
    },
    "/v1/deadlines": {
        "mode": ("fast", None, 1, True), "deadline_s": (0, 0.0, -1, 1e12, True, "30", [30]),
        "data_budget": (0, -5, 10**16, 2.5, True, "100"),
        "memory_budget_mb": (0, -1, 2**31, 900.5, True, "900"), "horizon": (3,),
    },
}


@pytest.mark.parametrize(
    ("path", "field"), [(path, field) for path, fields in BAD.items() for field in fields]
)
def test_a_bad_value_is_named_and_nothing_changes(
    client: TestClient, backend: Any, path: str, field: str
) -> None:
    for value in BAD[path][field]:
        found = problem(patch(client, path, {field: value}), 422)
        (error,) = found["errors"]
        assert error["field"] == field, value
        assert "value" in error, value
        assert field in found["detail"]
    assert backend.commands == []


MANGLED = [
    b"{", b"", b"\xff", b"null", b"[" * 20_000, b'{"batch_size":' + b"9" * 6000 + b"}",
    b'{"processes":' + b"9" * 6000 + b"}", b'{"algorithm": "\\ud800"}',
    *(
        b'{"%s": %s}' % (name, value)
        for name in (b"deadline_s", b"action_deadline_ms")
        for value in (b"NaN", b"Infinity", b"1e400")
    ),
]


@pytest.mark.parametrize("path", PATHS)
def test_a_mangled_body_is_refused(client: TestClient, backend: Any, path: str) -> None:
    for raw in MANGLED:
        answer = client.patch(path, content=raw, headers=PATCH_TYPE)
        assert answer.status_code in (400, 422), raw[:40]
        assert answer.headers["content-type"] == "application/problem+json", raw[:40]
    assert backend.commands == []


@pytest.mark.parametrize(
    ("path", "raw"),
    [("/v1/inference", b'{"processes": 2, "processes": 64}'),
     ("/v1/config", b'{"learning": {"paused": true, "paused": false}}'),
     ("/v1/config", b'{"inference": {"processes": 2}, "inference": {"fill": 1}}')],
)
def test_a_setting_that_is_named_twice_is_refused(
    client: TestClient, backend: Any, path: str, raw: bytes
) -> None:
    answer = client.patch(path, content=raw, headers=PATCH_TYPE)
    assert problem(answer, 400)["detail"] == "the body names a setting twice"
    assert backend.commands == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", [[], "x", 3])
def test_what_is_no_object_is_named(client: TestClient, path: str, body: Any) -> None:
    assert wrong_field(patch(client, path, body)) == "body"


def test_a_bad_field_has_the_good_ones_refused_with_it(client: TestClient, backend: Any) -> None:
    answer = patch(client, "/v1/inference", {"processes": 4, "speed": 3})
    assert [each["field"] for each in answer.json()["errors"]] == ["speed"]
    assert backend.commands == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_media_types_are_refused(
    client: TestClient, backend: Any, path: str, kind: str
) -> None:
    assert problem(client.patch(path, content=b"{}", headers={"content-type": kind}), 415)
    assert backend.commands == []


@pytest.mark.parametrize("path", PATHS)
def test_an_empty_patch_changes_nothing(client: TestClient, backend: Any, path: str) -> None:
    assert patch(client, path, {}).json() == client.get(path).json()
    assert backend.commands == []


@pytest.mark.parametrize("path", PATHS)
def test_if_match(client: TestClient, backend: Any, path: str) -> None:
    change = CHANGES[path]
    etag = client.get(path).headers["etag"]
    backend.figures["learning"]["updates"] += 1
    backend.figures["r3"]["elapsed_s"] = 1.0
    assert client.get(path).headers["etag"] == etag, "progress is not a setting"
    answer = patch(client, path, change, **{"if-match": etag})
    assert answer.status_code == 200
    assert answer.headers["etag"] != etag
    stale = patch(client, path, change, **{"if-match": etag})
    assert problem(stale, 412)["type"].endswith("stale")
    assert stale.headers["etag"] == answer.headers["etag"]
    assert len(backend.commands) == 1
    assert patch(client, path, change, **{"if-match": "*"}).status_code == 200
    # As nginx passes it on where it compresses JSON.
    weak = f"W/{client.get(path).headers['etag']}"
    assert patch(client, path, change, **{"if-match": weak}).status_code == 200
    both = f'"other", {etag}'
    assert patch(client, path, change, **{"if-match": both}).status_code == 412


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("failure", "status", "kind"),
    [
        (UserError("r3.data_budget = 8 is smaller than one batch of 32"), 409, "refused"),
        (BackendBusy("the command was not sent"), 504, "no-answer"),
        (BackendLate("accepted and under way"), 504, "not-in-force"),
        (BackendGone("the supervisor is gone"), 503, "supervisor-gone"),
    ],
)
def test_a_refusal_is_told_with_its_reason(
    client: TestClient, backend: Any, path: str, failure: Exception, status: int, kind: str
) -> None:
    backend.failure = failure
    before = client.get(path).json()
    found = problem(patch(client, path, CHANGES[path]), status)
    assert found["detail"] == str(failure)
    assert found["type"] == f"urn:rtagent:problem:{kind}"
    assert client.get(path).json() == before


def test_of_two_writers_with_one_etag_one_wins(client: TestClient, backend: Any) -> None:
    etag = client.get("/v1/deadlines").headers["etag"]

    def write(seconds: float) -> int:
        headers = {"if-match": etag}
        return patch(client, "/v1/deadlines", {"deadline_s": seconds}, **headers).status_code

    with ThreadPoolExecutor(2) as writers:
        assert sorted(writers.map(write, (10.0, 20.0))) == [200, 412]
    assert len(backend.commands) == 1


def test_who_waits_too_long_for_another_change_is_told(
    client: TestClient, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CHANGE_WAIT_S", 0.05)
    backend.may_answer.clear()
    first = threading.Thread(target=patch, args=(client, "/v1/learning", {"paused": True}))
    first.start()
    assert eventually(lambda: backend.commands)
    other = patch(client, "/v1/deadlines", {"deadline_s": 30.0})
    assert "another change" in problem(other, 504)["detail"]
    backend.may_answer.set()
    first.join()
    assert client.get("/v1/learning").json()["paused"]
    assert patch(client, "/v1/deadlines", {"deadline_s": 30.0}).status_code == 200


def test_the_configuration_changes_in_several_sections_at_once(
    client: TestClient, backend: Any
) -> None:
    before = client.get("/v1/config")
    change = {"inference": {"processes": 4}, "learning": {"paused": True}}
    answer = patch(client, "/v1/config", change, **{"if-match": before.headers["etag"]})
    assert answer.status_code == 200
    assert backend.commands == [("inference", {"processes": 4}), ("learning", {"paused": True})]
    wanted = before.json()
    wanted["inference"]["processes"], wanted["learning"]["paused"] = 4, True
    assert answer.json() == client.get("/v1/config").json() == wanted
    assert patch(client, "/v1/config", change, **{"if-match": '"x"'}).status_code == 412


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"learning": {"batch_size": 8}, "inference": {"processes": 0}}, "inference.processes"),
        ({"learning": {"gamma": 0.5}}, "learning.gamma"),
        ({"run": {"seed": 1}}, "run"),
        ({"learning": None}, "learning"),
    ],
)
def test_a_change_of_the_configuration_is_refused_whole(
    client: TestClient, backend: Any, change: Any, field: str
) -> None:
    assert wrong_field(patch(client, "/v1/config", change)) == field
    assert backend.commands == []


def test_a_decision_is_described_in_full(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    decision = Decision(kind=KINDS.index("met"), mode=MODES.index("step")).describe()
    assert set(schemas["Decision"]["properties"]) == set(decision)
    assert set(schemas["Decision"]["properties"]["kind"]["enum"]) == set(KINDS)
    assert set(schemas["Decision"]["properties"]["mode"]["enum"]) == set(MODES)
