"""Real daemons that learn through a real Ray on this machine; its processes are killed.

Ray needs some seconds and many processes for each cluster: few tests, and each asks for much.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from benchmarks.cluster.ray_cluster import ENVIRON, Head
from benchmarks.daemon import RunningDaemon
from benchmarks.process_figures import gone
from rtagent.clock import MonotonicClock
from rtagent.cluster.held_folder import hold
from rtagent.processes.kernel_state import descendants
from rtagent.storage import checkpoint as checkpoints
from tests.conftest import eventually, started
from tests.ports import free_port

pytestmark = pytest.mark.process

SETTINGS = (
    "env.id=CartPole-v1", "env.rate_hz=30", "learning.where=cluster", "learning.processes=1",
    "learning.learning_starts=100", "learning.batch_size=16", "learning.prioritized=true",
    "learning.updates_per_tick=1", "cluster.weights_every=4", "replay.capacity=20000",
    "run.tensorboard=false",
)
# Ray starts within some ten seconds where two cores have little else to do.
SOON_S = 300.0
RAYS = ("\x1b[33m(raylet)", "(raylet)", "\t(2)")
"""How the two lines begin in which Ray tells of a node that is gone."""


class Daemon(Protocol):
    """A daemon, in this process or not."""

    def stats(self) -> dict[str, Any]:
        """Its figures."""
        ...

    def status(self) -> dict[str, Any]:
        """Its processes."""
        ...


def updates(daemon: Daemon) -> int:
    found: int = daemon.stats()["learning"]["updates"]
    return found


def link(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = daemon.stats()["cluster"]
    return found


def gateway(daemon: Daemon) -> dict[str, Any]:
    roles = daemon.status().get("roles", [])
    return next((each for each in roles if each["name"] == "learner 0"), {})


def told(daemon: Daemon, reason: str) -> None:
    """The status says why the link is cut."""
    eventually(lambda: reason in (link(daemon)["reason"] or ""), reason)
    assert not link(daemon)["connected"]


def goes_on(daemon: Daemon, what: str) -> None:
    """It learns again, and newer weights act."""
    version = daemon.stats()["learning"]["weights_version"]
    count = updates(daemon)

    def again() -> bool:
        learning = daemon.stats()["learning"]
        more = learning["updates"] != count and learning["weights_version"] > version
        return more and link(daemon)["connected"]

    eventually(again, what)


@contextlib.contextmanager
def learner_command(port: int, *options: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """`rtagent learner` as a shell with job control runs it: it leads a process group."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rtagent", "learner", f"--address=127.0.0.1:{port}", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        env=os.environ | environ,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for each in (process.stdout, process.stderr):
            each.close()


def named(title: str, family: set[int]) -> list[int]:
    """The processes of a family with such a title."""
    found = []
    for pid in family:
        with contextlib.suppress(OSError):
            if title in Path(f"/proc/{pid}/cmdline").read_text():
                found.append(pid)
    return found


def test_with_a_local_ray_it_learns_and_survives_everybody_and_leaves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At the learner, too, no file of the working directory takes an installed module's place.
    (tmp_path / "torch.py").write_text("raise ImportError('of the working directory')")
    monkeypatch.chdir(tmp_path)
    with RunningDaemon(*SETTINGS, environ={**os.environ, "PYTHONSAFEPATH": "1"}) as daemon:
        eventually(lambda: updates(daemon) > 10, "it learns")
        joined = {"connected": True, "reason": None, "emulated": None}
        eventually(lambda: joined.items() <= link(daemon).items(), "the status says so")
        eventually(lambda: daemon.stats()["learning"]["weights_version"] > 2, "weights come")
        eventually(lambda: (link(daemon)["cache_hits"] or 0) > 0.3, "frames travel once")
        eventually(lambda: link(daemon)["priority_sampled"] is not None, "priorities come back")
        # A busy machine may be slow now and then, but not in everything that is measured.
        eventually(lambda: 0.0 < (link(daemon)["round_trip_ms"] or 0.0) < 1000.0, "a round trip")
        eventually(
            lambda: 0.0 < (daemon.stats()["learning"]["workers"][0]["update_ms"] or 0.0) < 1000.0,
            "an update of less than a second",
        )
        written = daemon.post("/v1/checkpoints")["file"]
        saved = checkpoints.load(daemon.state_dir / "checkpoints" / written)
        assert saved.counters.updates > 0
        assert any(name.startswith("exp_avg.") for name in saved.tensors)

        def learners() -> list[int]:
            return named("ray::LearnerActor", descendants(daemon.process.pid))

        (actor,) = learners()
        os.kill(actor, signal.SIGKILL)
        eventually(lambda: actor not in learners(), "the learner is gone")
        goes_on(daemon, "the learner was started again")

        killed, before = gateway(daemon)["pid"], link(daemon)["nodes"][0]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: gateway(daemon).get("pid") not in (killed, None), "again")
        goes_on(daemon, "the gateway was started again")
        after = link(daemon)["nodes"][0]
        assert all(after[name] >= before[name] for name in ("generated", "shipped", "learned"))
        assert daemon.stats()["clock"]["ticks"] > 0

        family = descendants(daemon.process.pid)
        assert named("ray::LearnerActor", family)
        daemon.process.kill()
        eventually(lambda: all(map(gone, family)), "no process of Ray is left")


def test_a_cluster_whose_parts_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    head = Head()
    # One that nobody is given before the head begins, and while it is away.
    head.port = free_port()
    address = f"cluster.address={head.address}"
    with contextlib.ExitStack() as ends:
        ends.callback(head.kill)
        quick = ends.enter_context(started(
            tmp_path / "quick", *SETTINGS, address, own_fork_server=True
        ))
        told(quick, f"no Ray cluster at 127.0.0.1:{head.port}: [Errno 111] Connection refused")
        head.start()
        told(quick, "no node of the cluster has the resource learner")
        assert gateway(quick)["restarts"] == 0
        assert updates(quick) == 0
        with learner_command(head.port, "--resources=learner=1") as learner:
            eventually(lambda: link(quick)["connected"], "it has joined")
            refusals(head.port, tmp_path / "held")
            # Half as many ticks, and so half as many transitions; and its replay is at the learner.
            slower = ("env.rate_hz=15", "cluster.replay=learner")
            with started(
                tmp_path / "slow", *SETTINGS, address, *slower, own_fork_server=True
            ) as slow:
                for each in (quick, slow):
                    goes_on(each, "it learns")
                eventually(lambda: _shared(quick, slow), "shares follow what each generates")
            # By its folder a node is known again where the head has not answered for a while.
            own = [each for each in folders(head.port) if Path(each).name.startswith("rtagent-")]
            assert len(set(own)) == len(own) > 0
            family = descendants(learner.pid)
            node = named("raylet", family)
            learner.kill()
            eventually(lambda: not link(quick)["connected"], "it is cut")
        eventually(lambda: all(map(gone, node)), "its node ends with it")
        with learner_command(head.port, "--resources=learner=1") as learner:
            goes_on(quick, "a node of the learner was killed, another came")
            # The others use its node before the command itself has joined. Ray ends a process whose
            # head is lost during its first calls.
            assert learner.stdout.readline()
            head.kill()
            told(quick, "Connection refused")
            head.start()
            goes_on(quick, "the head came back")
            assert learner.poll() is None
        acted = quick.stats()["actions"]
        assert acted["agent"] > 100


def folders(port: int) -> list[str]:
    """Folders of the cluster's nodes here. A process of its own asks: Ray reads its token once."""
    ask = (
        "import sys; from rtagent.cluster.ray_checks import find_cluster; "
        "print(*(each.folder for each in find_cluster(sys.argv[1]).values()), sep='\\n')"
    )
    command = [sys.executable, "-c", ask, f"127.0.0.1:{port}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SOON_S, check=True)
    return done.stdout.split()


def refusals(port: int, folder: Path) -> None:
    """A token that is wrong, a learner for whom there is no room, and one whose folder another
    holds, each in one line."""
    wrong = learner_command(port, RAY_AUTH_TOKEN="0" * 64)
    taken = learner_command(port, "--name=another")
    with wrong as first, taken as second:
        _refused(first, "refuses the token")
        _refused(second, "takes its resource")
    held = hold(folder, MonotonicClock())
    assert held is not None
    # Ray keeps no learner that could not begin: its name is free for one with another folder.
    for _ in range(2):
        with learner_command(
            port, "--name=third", "--resources=learner=1", f"--checkpoint-dir={folder}"
        ) as third:
            _refused(third, "another learner writes its checkpoints into")
    os.close(held)


def _refused(process: subprocess.Popen[str], why: str) -> None:
    _, said = process.communicate(timeout=SOON_S)
    assert process.returncode == 2
    # Ray tells every process of a cluster which nodes it lost, as that of the one refused before.
    own = [line for line in said.splitlines() if not line.startswith(RAYS)]
    assert len(own) == 1, said
    assert why in own[0]


def _shared(quick: Daemon, slow: Daemon) -> bool:
    mine, others = (link(each)["nodes"][0]["share"] for each in (quick, slow))
    return mine + others == 16 and mine > others
