"""The calls on a real daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from benchmarks.daemon import RunningDaemon
from tests.conftest import eventually
from tests.service.conftest import problem, role

pytestmark = pytest.mark.process

SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=100", "replay.capacity=20000", "inference.processes=1",
    "learning.learning_starts=100", "run.max_processes=4",
)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of one daemon for all tests of this module."""
    with RunningDaemon(*SETTINGS) as daemon:
        note = json.loads((daemon.state_dir / "daemon.json").read_text())
        token = (daemon.state_dir / "token").read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(
            base_url=note["url"], headers=headers, timeout=60.0, trust_env=False
        ) as client:
            eventually(lambda: client.get("/v1/learning").json()["updates"], "it learns")
            yield client


def test_learners_are_changed_and_the_answer_is_the_truth(client: httpx.Client) -> None:
    etag = client.get("/v1/learning").headers["etag"]
    change = {"processes": 2, "batch_size": 16}
    answer = client.patch("/v1/learning", json=change, headers={"if-match": etag})
    if answer.status_code == 504:
        # At idle priority a learner may need long until it works, beside other tests.
        eventually(lambda: client.get("/v1/learning").json()["ready"] == 2, "two work")
        answer = client.patch("/v1/learning", json=change)
    assert answer.status_code == 200, answer.text
    shown = client.get("/v1/learning").json()
    assert (shown["processes"], shown["batch_size"], shown["ready"]) == (2, 16, 2)
    learners = [each for each in client.get("/v1/status").json()["roles"]
                if each["role"] == "learner"]
    assert len(learners) == 2
    assert set(learners[0]) == set(role("learner", 0))
    stale = client.patch("/v1/learning", json={"paused": True}, headers={"if-match": etag})
    assert stale.status_code == 412
    assert client.patch("/v1/learning", json={"paused": True}).json()["paused"]
    assert not client.patch("/v1/learning", json={"paused": False}).json()["paused"]


def test_the_status_has_the_members_that_the_document_tells(client: httpx.Client) -> None:
    told = client.get("/openapi.json").json()["components"]["schemas"]["Status"]["properties"]
    assert client.get("/v1/status").json().keys() == told.keys()


def test_a_horizon_begins_and_its_decisions_are_shown(client: httpx.Client) -> None:
    wanted = {"mode": "step", "deadline_s": 3.0, "data_budget": 2000}
    answer = client.patch("/v1/deadlines", json=wanted)
    assert answer.status_code == 200, answer.text
    assert {name: answer.json()[name] for name in wanted} == wanted

    def decided() -> bool:
        return bool(client.get("/v1/deadlines").json()["decisions"])

    eventually(decided, "a decision")
    decision = client.get("/v1/deadlines").json()["decisions"][0]
    assert {"kind", "time_ratio", "data_ratio", "before", "after"} <= set(decision)
    eventually(lambda: client.get("/v1/deadlines").json()["consumed"], "samples are counted")
    assert client.patch("/v1/deadlines", json={"mode": "off"}).status_code == 200


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mode": "step", "deadline_s": None, "data_budget": None}, "needs r3.deadline_s"),
        ({"data_budget": 1}, "smaller than one batch"),
        ({"memory_budget_mb": 1}, "memory"),
    ],
)
def test_the_supervisor_s_reason_reaches_the_client(
    client: httpx.Client, change: dict[str, object], reason: str
) -> None:
    before = client.get("/v1/deadlines").headers["etag"]
    assert reason in problem(client.patch("/v1/deadlines", json=change), 409)["detail"]
    assert client.get("/v1/deadlines").headers["etag"] == before


@pytest.mark.parametrize(
    ("path", "change"), [("/v1/learning", {"processes": 64}), ("/v1/inference", {"processes": 4})]
)
def test_more_processes_than_the_machine_bears_are_refused(
    client: httpx.Client, path: str, change: dict[str, int]
) -> None:
    before = client.get("/v1/status").json()["roles"]
    told = problem(client.patch(path, json=change), 409)["detail"]
    assert "run.max_processes in the configuration file" in told
    assert client.get("/v1/status").json()["roles"] == before


def test_a_checkpoint_is_written_and_listed(client: httpx.Client) -> None:
    written = client.post("/v1/checkpoints")
    assert written.status_code == 201, written.text
    newest = client.get("/v1/checkpoints").json()["checkpoints"][0]
    assert newest["file"] == written.json()["file"]
    assert newest["updates"] == written.json()["updates"]
    assert newest["age_s"] < 120.0
    assert "/" not in newest["file"]
