"""The pipe to the supervisor, and what is read from shared memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.memory.horizon import KINDS, MODES, Decision
from rtagent.processes.pipe import open_pipe
from service.daemon.backend import DECISIONS_SHOWN, TIMEOUTS_S
from service.daemon.commands import (
    MOST_UNANSWERED,
    BackendBusy,
    BackendGone,
    BackendLate,
    CommandChannel,
)
from tests.desired import with_changes
from tests.forked import eventually
from tests.service.shared_memory import Daemon


class Supervisor:
    """The supervisor's end of the pipe, which the test operates."""

    def __init__(self) -> None:
        self.end, theirs = open_pipe()
        self.channel = CommandChannel(theirs)

    def call(
        self, name: str, arguments: dict[str, Any], timeout_s: float = 60.0
    ) -> dict[str, Any]:
        return self.channel.call(name, arguments, "http", timeout_s)

    def receive(self) -> dict[str, Any]:
        assert self.end.poll(30.0), "no command came"
        message: dict[str, Any] = self.end.recv()
        return message


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.end.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(MOST_UNANSWERED + 2) as pool:
        yield pool


def test_what_is_told_is_sent_as_an_event_and_never_to_a_supervisor_that_hangs(
    supervisor: Supervisor, pool: ThreadPoolExecutor
) -> None:
    supervisor.channel.send_event("login_failed", {"error": "x"})
    message: Any = supervisor.receive()
    assert message == ["event", {"kind": "login_failed", "error": "x"}]
    calls = [pool.submit(supervisor.call, "n", {}) for _ in range(MOST_UNANSWERED)]
    commands = [supervisor.receive() for _ in calls]
    supervisor.channel.send_event("login_failed", {"error": "y"})
    assert not supervisor.end.poll(0.1)
    for command in commands:
        supervisor.end.send({"id": command["id"], "result": {}})
    assert [call.result(30.0) for call in calls] == [{}] * MOST_UNANSWERED
    supervisor.end.close()
    assert eventually(lambda: supervisor.channel._gone)
    supervisor.channel.send_event("login_failed", {"error": "z"})


@pytest.mark.parametrize(("key", "raised"), [("refused", UserError), ("late", BackendLate)])
def test_a_change_that_is_refused_or_not_in_force_in_time(
    supervisor: Supervisor, pool: ThreadPoolExecutor, key: str, raised: type[Exception]
) -> None:
    answer = pool.submit(supervisor.call, "set_inference", {"processes": 256})
    supervisor.end.send({"id": supervisor.receive()["id"], key: "and why"})
    with pytest.raises(raised, match="and why"):
        answer.result(30.0)


def test_replies_in_any_order(supervisor: Supervisor, pool: ThreadPoolExecutor) -> None:
    answers = [pool.submit(supervisor.call, "n", {"n": n}) for n in range(5)]
    messages = [supervisor.receive() for _ in answers]
    for message in reversed(messages):
        supervisor.end.send({"id": message["id"], "result": message["arguments"]})
    assert [answer.result(30.0) for answer in answers] == [{"n": n} for n in range(5)]


def test_late_reply_is_nobody_elses(supervisor: Supervisor, pool: ThreadPoolExecutor) -> None:
    with pytest.raises(BackendLate, match="did not answer within 0"):
        supervisor.call("first", {}, timeout_s=0.2)
    late = supervisor.receive()
    answer = pool.submit(supervisor.call, "second", {})
    second = supervisor.receive()
    supervisor.end.send({"id": late["id"], "result": {"of": "first"}})
    supervisor.end.send({"id": second["id"], "result": {"of": "second"}})
    assert answer.result(30.0) == {"of": "second"}


def test_a_reply_to_nothing_is_ignored(supervisor: Supervisor, pool: ThreadPoolExecutor) -> None:
    supervisor.end.send({"id": 999, "result": {}})
    answer = pool.submit(supervisor.call, "n", {})
    supervisor.end.send({"id": supervisor.receive()["id"], "result": {"n": 1}})
    assert answer.result(30.0) == {"n": 1}


def test_a_hung_supervisor_is_not_flooded(
    supervisor: Supervisor, pool: ThreadPoolExecutor
) -> None:
    answers = [pool.submit(supervisor.call, "n", {}, 0.2) for _ in range(MOST_UNANSWERED)]
    for answer in answers:
        with pytest.raises(BackendBusy, match="did not answer"):
            answer.result(30.0)
    with pytest.raises(BackendBusy, match="was not sent"):
        supervisor.call("n", {})
    for _ in range(MOST_UNANSWERED):
        supervisor.end.send({"id": supervisor.receive()["id"], "result": {}})

    def recovered() -> bool:
        # Refused until the channel has taken one of the replies off the pipe.
        answers.append(pool.submit(supervisor.call, "n", {"after": True}))
        assert eventually(lambda: answers[-1].done() or supervisor.end.poll(0))
        return not answers[-1].done()

    assert eventually(recovered)
    message = supervisor.receive()
    assert message["arguments"] == {"after": True}
    supervisor.end.send({"id": message["id"], "result": {}})
    assert answers[-1].result(30.0) == {}


def test_supervisor_gone(supervisor: Supervisor, pool: ThreadPoolExecutor) -> None:
    answer = pool.submit(supervisor.call, "n", {})
    supervisor.receive()
    supervisor.end.close()
    with pytest.raises(BackendGone):
        answer.result(30.0)
    with pytest.raises(BackendGone):
        supervisor.call("n", {})


@pytest.fixture
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon with grey pictures, or frames of a test's parameter: shape, whether a picture."""
    shape, screen = getattr(request, "param", ((8, 6), True))
    config = parse_config({"replay": {"capacity": 2048}, "learning": {"learning_starts": 100}})
    dtype = "uint8" if screen else "float32"
    daemon = Daemon(config, frame_shape=shape, frame_dtype=dtype, screen=screen)
    yield daemon
    daemon.close()


@pytest.mark.parametrize(
    "daemon", [((8, 6), True), ((8, 6, 3), True), ((4,), False)], indirect=True
)
def test_screen_is_the_newest_frame(daemon: Daemon) -> None:
    backend, shape = daemon.backend, daemon.world.blueprint.frame_shape
    assert backend.screen() is None
    frame = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    daemon.tick(frame)
    picture = backend.screen()
    if not daemon.world.blueprint.screen:
        # A plot has the same size however few vectors there are.
        assert picture.shape == (252, 336, 3)
        return
    assert picture.shape[:2] == (8, 6)
    assert (picture == frame.reshape(picture.shape)).all()


def test_ready_from_the_first_tick_until_a_role_fails(daemon: Daemon) -> None:
    backend, status = daemon.backend, daemon.world.status
    assert backend.ready() == (False, "starting: the environment has not ticked yet")
    daemon.tick(np.zeros(daemon.world.blueprint.frame_shape))
    status.write({"state": "running", "roles": [{"name": "learner 0", "state": "running"}]})
    assert backend.ready()[0]
    failed = {"name": "learner 0", "state": "failed", "last_error": "Traceback\nValueError: x\n"}
    status.write({"state": "failed", "roles": [failed]})
    assert backend.ready() == (False, "learner 0 has failed")
    status.write({"state": "stopping", "roles": []})
    assert backend.ready() == (False, "the daemon is stopping")


def test_ready_while_the_policy_server_that_acts_answers() -> None:
    config = parse_config({
        "replay": {"capacity": 2048}, "policy": {"remote": "ws://127.0.0.1:1"},
        "learning": {"processes": 0, "learning_starts": 100},
    })
    daemon = Daemon(config, frame_shape=(4,), frame_dtype="float32", screen=False)
    daemon.tick(np.zeros(4))
    daemon.world.status.write({"state": "running", "roles": []})
    assert daemon.backend.ready() == (False, "no policy server answers")
    daemon.world.metrics.inference[1].connected = 1
    assert daemon.backend.ready()[0]
    daemon.close()


def test_the_version_of_the_status_changes_with_it(daemon: Daemon) -> None:
    backend, versions = daemon.backend, set()
    for state in ("starting", "running", "running"):
        daemon.world.status.write({"state": state, "roles": []})
        versions.add(backend.status_version())
        assert backend.status()["state"] == state
        assert backend.status_version() in versions
    assert len(versions) == 3


@pytest.mark.parametrize(("section", "call", "wanted"), [
    # An automatic number is what is wanted, not what it has led to.
    ("inference", "inference", {"action_deadline_ms": 12.0, "algorithm": "maximum-time",
                                "processes": "auto", "injected_latency_ms": 82.0}),
    ("learning", "learning", {"processes": 2, "batch_size": 64, "order": "first-come",
                              "paused": True}),
    ("r3", "deadlines", {"mode": "step", "deadline_s": 30.0, "data_budget": 1000,
                         "memory_budget_mb": 900}),
])
def test_settings_in_force(
    daemon: Daemon, section: str, call: str, wanted: dict[str, Any]
) -> None:
    backend, control = daemon.backend, daemon.world.control
    before = backend.config()
    control.write(with_changes(control.desired, processes=5, rows=5, **{section: wanted}))
    assert wanted.items() <= getattr(backend, call)().items()
    assert backend.config() == {**before, section: {**before[section], **wanted}}


def test_figures_come_from_shared_memory(daemon: Daemon) -> None:
    assert daemon.backend.stats()["clock"]["rate_hz"] is None
    assert daemon.backend.stats()["clock"]["target_rate_hz"] == 60.0


def test_the_timeline_counts_from_the_daemon_s_start(daemon: Daemon) -> None:
    daemon.tick(np.zeros(daemon.world.blueprint.frame_shape))
    daemon.world.status.write({"started_s": time.monotonic() - 100.0, "roles": []})
    drawn = daemon.backend.timeline(10.0)
    assert 100_000 <= drawn["now_ms"] < 160_000
    assert drawn["ticks"]["source"] == ["default"]
    assert 95_000 <= drawn["ticks"]["at_ms"][0] <= drawn["now_ms"]
    assert drawn["bars"]["tick"] == drawn["workers"] == []


def test_settings_come_with_their_progress(daemon: Daemon) -> None:
    backend, world = daemon.backend, daemon.world
    roles = [
        {"name": f"learner {index}", "role": "learner", "index": index, "pid": 7, "restarts": 0,
         "state": state}
        for index, state in enumerate(("running", "starting"))
    ]
    world.status.write({"roles": roles})
    world.control.write(with_changes(world.control.desired, learning={"processes": 2}))
    assert backend.learning()["ready"] == 1
    assert backend.inference()["recommended_processes"] is None
    state = backend.deadlines()
    assert set(state) >= {"elapsed_s", "consumed", "time_ratio", "data_ratio", "batch_cap"}
    assert state["decisions"] == []


def test_decisions_are_shown_newest_first_with_their_inputs(daemon: Daemon) -> None:
    for number in range(DECISIONS_SHOWN + 10):
        daemon.world.horizon.add(
            Decision(kind=KINDS.index("step"), mode=MODES.index("step"), consumed=number,
                     time_ratio=0.5, before=32, after=64)
        )
    shown = daemon.backend.deadlines()["decisions"]
    assert [each["consumed"] for each in shown] == list(range(59, 9, -1))
    assert (shown[0]["kind"], shown[0]["before"], shown[0]["after"]) == ("step", 32, 64)
    assert shown[0]["time_ratio"] == 0.5
    assert shown[0]["data_ratio"] is None, "what is not known is null"


def test_a_checkpoint_may_take_longer_than_a_change(
    daemon: Daemon, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TIMEOUTS_S, "set", 0.05)
    with pytest.raises(BackendLate):
        daemon.backend.command("set", {}, "dashboard")
    assert daemon.pipe.poll(30.0)
    assert daemon.pipe.recv()["by"] == "dashboard"
    answer = pool.submit(daemon.backend.command, "checkpoint", {"replay": False}, "http")
    assert daemon.pipe.poll(30.0)
    message = daemon.pipe.recv()
    assert message["name"] == "checkpoint"
    daemon.pipe.send({"id": message["id"], "result": {"file": "x"}})
    assert answer.result(30.0) == {"file": "x"}


def test_checkpoints_are_listed_by_name(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse_config({"run": {"state_dir": str(tmp_path)}})
    monkeypatch.setattr(daemon.backend, "_world", SimpleNamespace(config=config))
    assert daemon.backend.checkpoints() == []
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for number, updates, modified in ((1, 200, 1_000), (2, 100, 2_000)):
        path = folder / f"checkpoint-{number:06d}-{updates:012d}.safetensors"
        path.write_bytes(b"x" * updates)
        os.utime(path, (modified, modified))
    (folder / ".checkpoint-draft").touch()
    listed = daemon.backend.checkpoints()
    assert [(each["updates"], each["bytes"]) for each in listed] == [(100, 100), (200, 200)]
    assert listed[0]["file"] == "checkpoint-000002-000000000100.safetensors"
    assert listed[1]["age_s"] == pytest.approx(listed[0]["age_s"] + 1_000, abs=60.0)
