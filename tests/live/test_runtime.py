"""The whole daemon without the HTTP service, with real processes and faults from the outside."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.process_figures import gone
from rtagent import Runtime, UserError
from rtagent.memory.ledger import Rows, checksum
from rtagent.processes import restart_policy
from rtagent.processes.restart_policy import MOST_RESTARTS
from rtagent.staggering.arbiter import Source
from rtagent.storage import checkpoint
from rtagent.telemetry import run_record
from tests.conftest import Runtimes, eventually, role, started
from tests.desired import with_changes
from tests.reliability.conftest import PATIENT_CLOCK, Machine
from tests.test_runtime import ASKED

pytestmark = pytest.mark.process


def ticks(runtime: Runtime) -> int:
    return int(runtime.world.ledger.newest)


def acted(runtime: Runtime, index: int) -> int:
    return runtime.world.metrics.inference[index].inferences


def test_it_acts_on_a_game_boy_while_processes_come_and_go(run: Runtimes) -> None:
    # What holds a busy machine up for a second is no slip here, and what stops it is excused.
    with closing(Machine()) as machine, run("inference.processes=3", PATIENT_CLOCK) as runtime:
        start = ticks(runtime)
        eventually(lambda: ticks(runtime) > start + 120, "120 ticks")

        def newest() -> Rows:
            return runtime.world.ledger.read(ticks(runtime) - 119, ticks(runtime) + 1)

        # Not for every two seconds of a machine with other things to do.
        eventually(lambda: (newest()["source"] != Source.DEFAULT).mean() > 0.9, "it acts")
        rows, stats = newest(), runtime.stats()
        assert len(rows) >= 120
        assert all(checksum(row) == row["crc"] for row in rows)
        agent = rows[rows["source"] == Source.AGENT]
        assert set(agent["worker"]) <= {0, 1, 2}
        assert (agent["observed"] < agent["tick"]).all()
        assert stats["clock"]["target_rate_hz"] == 59.7275
        assert stats["inference"]["ready"] == 3

        assert runtime.set_inference(processes=5)["processes"] == 5
        eventually(lambda: all(acted(runtime, i) for i in range(5)), "all five act")
        slips = runtime.stats()["clock"]["slips"]
        runtime.set_inference(processes=2)
        names = [each["name"] for each in runtime.status()["roles"]]
        assert names.count("inference 1") == 1
        assert "inference 2" not in names
        start = ticks(runtime)
        eventually(lambda: ticks(runtime) > start + 60, "the world goes on")
        rows = runtime.world.ledger.read(start + 20, start + 60)
        assert set(rows["worker"]) <= {-1, 0, 1}
        slips = runtime.stats()["clock"]["slips"] - slips
        assert machine.excuses(slips, stats["clock"]["target_rate_hz"])


def test_a_policy_that_can_be_built_and_cannot_run_is_shown_as_failed(
    run: Runtimes, switch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE_S", 0.1)
    settings = ("env.id=CartPole-v1", "policy.factory=faulty:BatchesOnly", "inference.processes=2")
    with run(*settings, wait=False) as runtime:
        names = ("inference 0", "inference 1")

        def failed() -> bool:
            return all(role(runtime, name).get("state") == "failed" for name in names)

        eventually(failed, "both have failed")
        eventually(lambda: runtime.status()["state"] == "failed", "so has the run")
        for name in names:
            found = role(runtime, name)
            assert found["restarts"] >= MOST_RESTARTS
            assert "Traceback" in found["last_error"]
            assert "nobody can act with this" in found["last_error"]
        # Each of the two once, and as often as it is started again.
        restarts = sum(role(runtime, name)["restarts"] for name in names)
        assert len(switch.read_text().splitlines()) >= 2 + restarts


def test_a_policy_that_keeps_raising_is_shown_as_failed_until_it_is_mended(
    run: Runtimes, switch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restart_policy, "FIRST_PAUSE_S", 0.05)
    settings = ("env.id=CartPole-v1", "policy.factory=faulty:RaisesWhenTold")
    with run(*settings, "inference.processes=1") as runtime:
        switch.touch()
        eventually(lambda: role(runtime, "inference 0")["state"] == "failed", "failed")
        found = role(runtime, "inference 0")
        assert found["restarts"] >= MOST_RESTARTS
        assert "Traceback" in found["last_error"]
        assert "the policy was told to fail" in found["last_error"]
        start = ticks(runtime)
        eventually(lambda: ticks(runtime) > start + 20, "the world goes on")
        rows = runtime.world.ledger.read(start + 5, ticks(runtime))
        assert (rows["source"] == Source.DEFAULT).all()
        switch.unlink()
        eventually(lambda: role(runtime, "inference 0")["state"] == "running", "tried again")
        before = acted(runtime, 0)
        eventually(lambda: acted(runtime, 0) > before, "acts again")


def test_an_environment_that_raises_or_hangs_is_restarted(run: Runtimes, switch: Path) -> None:
    settings = ("env.id=faulty:Faulty-v0", "inference.processes=1", "env.step_limit_s=2")
    with run(*settings) as runtime:
        switch.write_text("raise")
        eventually(lambda: role(runtime, "environment")["restarts"] >= 1, "restarted")
        assert "the world was told to fail" in role(runtime, "environment")["last_error"]
        switch.unlink()
        start = ticks(runtime)
        eventually(lambda: ticks(runtime) > start + 20, "ticks again")
        restarts = role(runtime, "environment")["restarts"]
        switch.write_text("hang")
        eventually(lambda: role(runtime, "environment")["restarts"] > restarts, "replaced")
        assert "step has not come back for 2 s" in role(runtime, "environment")["last_error"]
        switch.unlink()
        start = ticks(runtime)
        eventually(lambda: ticks(runtime) > start + 20, "ticks again")


def test_a_slow_world_is_named_and_waited_for(run: Runtimes, switch: Path) -> None:
    settings = ("env.id=faulty:Faulty-v0", "inference.processes=1")
    with run(*settings) as runtime:
        for call, busy in (("step", "stepping"), ("reset", "resetting")):
            slips = runtime.stats()["clock"]["slips"]
            switch.write_text(f"pause {call}")
            eventually(lambda told=busy: role(runtime, "environment")["busy"] == told, "seen")
            assert runtime.status()["state"] == "running"
            eventually(lambda: role(runtime, "environment")["busy"] is None, "it is over")
            start = ticks(runtime)
            eventually(lambda since=start: ticks(runtime) > since + 20, "the world goes on")
            assert role(runtime, "environment")["restarts"] == 0
            assert runtime.stats()["clock"]["slips"] > slips


@pytest.mark.usefixtures("switch")
def test_what_only_fails_in_its_own_process_is_refused(run: Runtimes) -> None:
    settings = ("env.id=faulty:OnceOnly-v0", "inference.processes=1")
    refused = pytest.raises(UserError, match=r"environment: .*there is only one such world")
    with run(*settings, wait=False) as runtime, refused:
        runtime.wait_ready(180)


LEARNING = (
    "env.id=CartPole-v1", "env.rate_hz=200", "inference.processes=1", "learning.processes=1",
    "learning.learning_starts=100", "learning.updates_per_tick=0.25",
)


def test_a_corrupt_checkpoint_is_refused_and_kept(run: Runtimes, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "checkpoints"
    folder.mkdir(parents=True)
    broken = folder / "checkpoint-000000000007.safetensors"
    broken.write_bytes(b"not a checkpoint")
    refused = pytest.raises(UserError, match="corrupt")
    with run("env.id=CartPole-v1", wait=False) as runtime, refused as refusal:
        runtime.wait_ready(180)
    assert "run.resume=false" in str(refusal.value)
    assert broken.read_bytes() == b"not a checkpoint"
    with run(*LEARNING, "run.resume=false") as runtime:
        assert ticks(runtime) >= 0
        eventually(lambda: role(runtime, "learner 0").get("state") == "running", "it learns")
        assert runtime.wait(updates=3)["learning"]["updates"] >= 3
        assert runtime.wait(seconds=0.1)["clock"]["ticks"] > 0
        with pytest.raises(UserError, match="how many updates, or how many seconds"):
            runtime.wait()
        written = runtime.checkpoint()
        whole = written["file"]
        assert written["path"] == folder / whole
    # A newer one that is not whole does not hide it.
    for later in checkpoint.listing(folder):
        if later["file"] > whole:
            (folder / later["file"]).unlink()
    (folder / "checkpoint-000900-000000000009.safetensors").write_bytes(b"not a checkpoint")
    with run(*LEARNING) as runtime:
        told = {event["kind"]: event for event in runtime.status()["events"]}
        assert "checkpoint-000900" in told["checkpoint_corrupt"]["reason"]
        assert told["observations"]["seen"]
        assert told["started"]["resumed"] == whole
        record = run_record.read(runtime.run_dir)
    assert record["config"]["env"]["id"] == "CartPole-v1"


def test_nothing_is_left_behind_and_whoever_asks_then_is_told(
    run: Runtimes, tmp_path: Path
) -> None:
    segments = set(os.listdir("/dev/shm"))
    descriptors = []
    runs = tmp_path / "state" / "runs"
    for name in ("0000000a", "kept by its owner"):
        (runs / name).mkdir(parents=True)
    for _ in range(2):
        with run("env.id=CartPole-v1", "inference.processes=3", "run.keep_runs=1") as runtime:
            pids = [each["pid"] for each in runtime.status()["roles"]]
            # A start removes the folder of the run before it, and says so.
            assert {path.name for path in runs.iterdir()} == {runtime.run_id, "kept by its owner"}
            [event] = [each for each in runtime.status()["events"] if each["kind"] == "pruned"]
            assert (event["source"], event["runs"]) == ("record", 1)
        eventually(lambda pids=pids: all(map(gone, pids)), "every process is gone")
        for ask in ASKED:
            with pytest.raises(UserError, match="the run has ended"):
                ask(runtime)
        assert runtime.run_dir.is_dir()
        with pytest.raises(UserError, match="runs once"), runtime:
            pass
        del runtime
        gc.collect()
        descriptors.append(len(os.listdir("/proc/self/fd")))
    # Other programs' have a name for a moment.
    eventually(lambda: set(os.listdir("/dev/shm")) <= segments, "nothing with a name is left")
    assert descriptors[1] <= descriptors[0]


@pytest.mark.parametrize("block", ["with runtime as rt", "if rt := runtime.__enter__()"])
def test_a_script_without_a_main_guard_works_even_if_it_does_not_leave_the_block(
    tmp_path: Path, block: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import rtagent\n"
        "print('once')\n"
        f"settings = ['env.id=CartPole-v1', 'run.state_dir={tmp_path}', 'replay.capacity=5000']\n"
        "runtime = rtagent.Runtime(rtagent.load_config(overrides=settings))\n"
        f"{block}:\n"
        "    rt.wait_ready(timeout=180)\n"
        "    print(rt.stats()['inference']['processes'])\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.split() == ["once", "2"], done.stderr
    assert done.returncode == 0
    # Also in the end, a learner writes what it has learned.
    assert len(checkpoint.listing(tmp_path / "checkpoints")) == 1


@pytest.fixture(scope="module")
def pole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A run that several tests change; none depends on what another has left."""
    settings = ("env.id=CartPole-v1", "inference.processes=2")
    with started(tmp_path_factory.mktemp("pole"), *settings) as runtime:
        yield runtime


REFUSED = [
    ("inference", {"processes": 10_000}, "inference.processes = 10000"),
    ("inference", {"processes": 2, "algorithm": "fastest"}, "inference.algorithm = 'fastest'"),
    ("inference", {"injected_latency_ms": 99.0, "processs": 1}, "did you mean inference.processes"),
    ("learning", {"paused": 1}, "learning.paused = 1"),
    ("learning", {"batch_size": 8, "gamma": 0.5}, "learning.gamma: cannot be changed"),
]


def test_a_refused_change_leaves_everything_as_it_was(pole: Runtime) -> None:
    for number, (section, change, reason) in enumerate(REFUSED, 1):
        desired, config = pole.world.control.desired, pole.status()["config"]
        with pytest.raises(UserError, match=reason):
            getattr(pole, f"set_{section}")(**change)
        # The status follows a step later; what comes after shows what is in force by then.
        pole.set_inference(injected_latency_ms=float(number))
        # The change that was accepted also lets the figures begin anew.
        injected = {"injected_latency_ms": float(number)}
        assert replace(pole.world.control.desired, inference_since=0.0) == with_changes(
            desired, inference=injected, inference_since=0.0
        )
        config["inference"]["injected_latency_ms"] = float(number)
        assert pole.status()["config"] == config
    with pytest.raises(UserError, match=r"r3\.memory_budget_mb = 1 "):
        pole.set_deadlines(memory_budget_mb=1)
    pole.set_inference(injected_latency_ms=0.0)
    assert pole.status()["config"]["r3"]["memory_budget_mb"] is None
    assert role(pole, "inference 2") == {}


def test_two_runs_in_one_program_do_not_end_each_other(pole: Runtime, run: Runtimes) -> None:
    pids = {each["pid"] for each in pole.status()["roles"]}
    with run("env.id=CartPole-v1", "inference.processes=1", own_fork_server=True):
        pass
    before = ticks(pole)
    eventually(lambda: ticks(pole) > before + 30, "the first one goes on")
    assert {each["pid"] for each in pole.status()["roles"]} == pids
    assert sum(each["restarts"] for each in pole.status()["roles"]) == 0


@pytest.mark.parametrize("algorithm", ["expected-time", "maximum-time", "adaptive"])
def test_every_algorithm_acts_and_can_be_changed_to(pole: Runtime, algorithm: str) -> None:
    answer = pole.set_inference(algorithm=algorithm)
    assert answer["algorithm"] == algorithm
    before = [acted(pole, index) for index in range(2)]
    eventually(lambda: all(acted(pole, i) > before[i] + 5 for i in range(2)), "both act")
    assert pole.stats()["inference"]["algorithm"] == algorithm
