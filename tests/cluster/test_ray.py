"""A real daemon that learns through a real Ray on this machine; its processes are killed.

Ray needs some seconds and many processes for each cluster: few tests, and each asks for much.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.process_figures import descendants, gone
from rtagent import Runtime
from rtagent.storage import checkpoint as checkpoints
from tests.conftest import eventually, role, started

pytestmark = [pytest.mark.process, pytest.mark.alone]

SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=120", "learning.where=cluster", "learning.processes=1",
    "learning.learning_starts=100", "learning.batch_size=16", "learning.prioritized=true",
    "cluster.weights_every=4",
)
# A local Ray starts within some ten seconds where two cores have other things to do.
SOON_S = 90.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Runtime]:
    """A daemon with a local Ray, which has learned something."""
    with started(tmp_path / "state", *SETTINGS) as runtime:
        eventually(lambda: updates(runtime) > 10, SOON_S, "it learns")
        yield runtime
        family = descendants(os.getpid())
    eventually(lambda: all(map(gone, family)), 60, "no process of Ray is left")


def updates(runtime: Runtime) -> int:
    found: int = runtime.stats()["learning"]["updates"]
    return found


def link(runtime: Runtime) -> dict[str, Any]:
    found: dict[str, Any] = runtime.stats()["cluster"]
    return found


def named(title: str) -> list[int]:
    """The processes below this one with such a title."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            if title in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
        except OSError:
            continue
    return found


def goes_on(runtime: Runtime, what: str) -> None:
    """It learns again, and newer weights act."""
    version = runtime.stats()["learning"]["weights_version"]
    count = updates(runtime)

    def again() -> bool:
        learning = runtime.stats()["learning"]
        more = learning["updates"] != count and learning["weights_version"] > version
        return more and link(runtime)["connected"]

    eventually(again, SOON_S, what)


def test_it_learns_acts_on_what_was_learned_and_survives_everybody(cluster: Runtime) -> None:
    eventually(lambda: link(cluster)["connected"], 10, "the status says so")
    first = link(cluster)
    assert (first["connected"], first["reason"], first["emulated"]) == (True, None, None)
    eventually(lambda: cluster.stats()["learning"]["weights_version"] > 2, 60, "weights come")
    eventually(lambda: (link(cluster)["cache_hits"] or 0) > 0.3, 60, "frames travel once")
    assert link(cluster)["priority_sampled"] is not None
    assert 0.0 < cluster.stats()["learning"]["workers"][0]["update_ms"] < 1000.0
    saved = checkpoints.load(cluster.checkpoint()["path"])
    assert saved.counters.updates > 0
    assert any(name.startswith("exp_avg.") for name in saved.tensors)

    (actor,) = named("ray::LearnerActor")
    os.kill(actor, signal.SIGKILL)
    eventually(lambda: actor not in named("ray::LearnerActor"), 30, "the learner is gone")
    goes_on(cluster, "the learner was started again")

    gateway = role(cluster, "learner 0")["pid"]
    os.kill(gateway, signal.SIGKILL)
    eventually(lambda: role(cluster, "learner 0").get("pid") not in (gateway, None), 60, "again")
    goes_on(cluster, "the gateway was started again")
    assert cluster.stats()["clock"]["ticks"] > 0


def test_where_nobody_answers_acting_goes_on_and_the_status_says_why(tmp_path: Path) -> None:
    nowhere = ("cluster.address=127.0.0.1:1", "cluster.emulated_rtt_ms=20")
    with started(tmp_path / "state", *SETTINGS, *nowhere) as runtime:
        told = "no Ray cluster at 127.0.0.1:1: [Errno 111] Connection refused"
        eventually(lambda: link(runtime)["reason"] == told, 30, "the reason is told")
        assert not link(runtime)["connected"]
        before = runtime.stats()["actions"]["agent"]
        eventually(lambda: runtime.stats()["actions"]["agent"] > before + 60, 30, "it acts")
        assert runtime.stats()["learning"]["updates"] == 0
        assert role(runtime, "learner 0")["restarts"] == 0


def test_two_worlds_feed_the_learner_of_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray_start = [sys.executable, "-m", "ray.scripts.scripts"]
    port = free_port()
    head = subprocess.Popen(
        [*ray_start, "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}",
         "--num-cpus=1", '--resources={"learner": 1}', "--include-dashboard=false",
         "--disable-usage-stats"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )
    try:
        eventually(lambda: answers(port), SOON_S, "the head of the cluster is there")
        address = f"cluster.address=127.0.0.1:{port}"
        first = started(tmp_path / "first", *SETTINGS, address)
        # Half as many ticks, and so half as many transitions; and its replay is at the learner.
        slower = ("env.rate_hz=60", "cluster.replay=learner")
        second = started(tmp_path / "second", *SETTINGS, address, *slower)
        with first as quick, second as slow:
            for each in (quick, slow):
                eventually(lambda each=each: link(each)["connected"], SOON_S, "it has joined")
                goes_on(each, "it learns")
            eventually(
                lambda: link(quick)["nodes"][0]["share"] + link(slow)["nodes"][0]["share"] == 16
                and link(quick)["nodes"][0]["share"] > link(slow)["nodes"][0]["share"],
                60, "shares follow what each generates",
            )
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def test_nothing_is_left_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    options = [word for each in SETTINGS for word in ("--set", each)]
    daemon = subprocess.Popen(
        [sys.executable, "-m", "rtagent", "serve", *options,
         "--set", f"run.state_dir={tmp_path}", "--set", "service.port=0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: named("ray::LearnerActor"), SOON_S, "the learner is there")
        family = descendants(daemon.pid)
        daemon.kill()
        daemon.wait()
        eventually(lambda: all(map(gone, family)), 10, "no process of Ray is left")
    finally:
        daemon.kill()
        daemon.wait()
