"""`rtagent train`."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.daemon import options
from rtagent.cli import train
from rtagent.cli.stop_signal import StopSignal
from rtagent.cli.train import Goal, live_figures
from rtagent.clock import VirtualClock
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.telemetry.event_log import EVENTS_FILE, EventLog
from rtagent.telemetry.learning_curve import History
from tests.cli.conftest import Refused, Run
from tests.conftest import eventually

STATS: dict[str, Any] = {
    "clock": {"uptime_s": 12.5, "ticks": 2500},
    "actions": {"inaction_fraction": 0.01, "inaction_fraction_60s": 0.0125},
    "learning": {"updates": 700, "updates_per_s": 50.25, "samples_consumed": 6400,
                 "batch_size": 32, "loss": 0.5},
    "r3": {"time_ratio": None, "data_ratio": None, "horizons": {"met": None, "missed": None}},
    "replay": {"size": 2500},
    "episodes": {"mean_return_100": 21.5, "count": 2},
}


class FakeRuntime:
    """Applies an update every tenth of a second, on a clock of the test's own.

    Attributes:
        clock: the time.
        at: what happens at the n-th look at the figures.
        roles: of the status.
        left: whether it was left in an orderly way.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.at: dict[int, Callable[[], None]] = {}
        self.roles: list[dict[str, Any]] = []
        self.ready = True
        self.left = False
        self.run_id = "r1"
        self.looks = 0
        self.tick_s = 0.0
        self.config = Config()

    def __call__(self, config: Config) -> FakeRuntime:
        self.config = config
        return self

    def __enter__(self) -> FakeRuntime:
        return self

    def __exit__(self, *details: object) -> None:
        self.left = True

    @property
    def run_dir(self) -> Path:
        return self.config.state_dir / "runs" / self.run_id

    @property
    def world(self) -> Any:
        learners = [SimpleNamespace(applied=each) for each in (0, round(self.clock.now() * 10))]
        return SimpleNamespace(
            metrics=SimpleNamespace(learners=learners),
            blueprint=SimpleNamespace(tick_seconds=self.tick_s),
            control=SimpleNamespace(desired=SimpleNamespace(processes=3)),
        )

    def wait_ready(self, timeout: float) -> None:
        if not self.ready:
            self.clock.advance(timeout)
            raise TimeoutError("not ready after 0.25 s: 1 process is starting: inference 0")

    def stats(self) -> dict[str, Any]:
        self.looks += 1
        now = self.clock.now()
        learning = STATS["learning"] | {"updates": 670 + round(now * 10)}
        self.at.get(self.looks, lambda: None)()
        return STATS | {"learning": learning, "clock": STATS["clock"] | {"uptime_s": 12.5 + now}}

    def status(self) -> dict[str, Any]:
        return {"roles": self.roles}


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> FakeRuntime:
    """Takes the place of the real one; it has recorded two episodes and a checkpoint."""
    fake = FakeRuntime()
    monkeypatch.setattr(train, "Runtime", fake)
    monkeypatch.setattr(train, "MonotonicClock", lambda: fake.clock)
    run_dir = state_dir / "runs" / "r1"
    (run_dir / "tensorboard").mkdir(parents=True)
    (run_dir / "tensorboard" / "events.out.tfevents.1").write_bytes(b"events")
    (run_dir / "episodes.csv").write_text(
        "tick,length,return,seconds\n59,60,1.0,1.0\n119,60,4.0,2.0\n"
    )
    (state_dir / "checkpoints").mkdir()
    (state_dir / "checkpoints" / f"checkpoint-{700:012d}.safetensors").write_bytes(b"w")
    return fake


@pytest.fixture
def handlers() -> Iterator[None]:
    """Fails if a signal handler was left behind."""
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(("options", "reason"), [
    ([], "one of the arguments --seconds --updates is required"),
    (["--seconds", "3", "--updates", "5"], "not allowed with"),
    (["--seconds", "0"], "--seconds 0: must be above 0, at most 31622400"),
    (["--seconds", "inf"], "--seconds inf: must be above 0"),
    (["--updates", "0"], "--updates 0: must be above 0"),
    (["--seconds", "3", "--set", "learning.batch_size=0"], "learning.batch_size = 0"),
    (["--seconds", "3", "--set", "learning.processes=0"], "nothing would learn"),
    (["--updates", "3", "--set", "learning.paused=true"], "learning.paused = true: nothing would"),
    (["--seconds", "3", "--set", "run.tensorboard=false"], "run.tensorboard = false"),
    (["--seconds", "3", "--out", "/proc/nowhere"], "--out /proc/nowhere: "),
    (["--seconds", "3", "--out", "/proc"], "--out /proc: the folder is not empty"),
])
def test_bad_options_are_one_line(
    refused: Refused, runtime: FakeRuntime, options: list[str], reason: str
) -> None:
    assert reason in refused("train", *options)
    assert not runtime.left, "nothing was started"


@pytest.mark.usefixtures("handlers")
def test_it_ends_after_the_seconds_and_says_where_everything_is(
    run: Run, runtime: FakeRuntime
) -> None:
    done = run("train", "--seconds", "3")
    assert done.code == 0
    assert not done.err, "the bar is for a terminal"
    assert runtime.left
    assert runtime.clock.now() == pytest.approx(3.0)
    shown = " ".join(done.out.split())
    for text in ("30 in this run, 700 in all", "episodes 2", "2.50", "1.00%"):
        assert text in shown, text
    for path in (runtime.run_dir / "learning.png", runtime.run_dir / "episodes.csv",
                 runtime.run_dir / "tensorboard", runtime.config.state_dir / "checkpoints"):
        assert str(path) in done.out, path
    assert (runtime.run_dir / "learning.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("held", "applied", "reason"), [
    (999, 0, "; learning.learning_starts = 1000 ticks were not reached"), (1000, 0, ""),
    (999, 1, ""),
])
def test_a_run_too_short_to_learn_says_so(held: int, applied: int, reason: str) -> None:
    """The ticks of a restored replay, or of demonstrations, count."""
    summary = {
        "updates_in_this_run": applied, "updates": 5, "ticks": 300, "replay_ticks": held,
        "learning_starts": 1000,
    }
    assert train.updates_line(summary) == f"{applied} in this run, 5 in all{reason}"


@pytest.mark.usefixtures("runtime")
def test_the_updates_are_those_of_the_checkpoint(run: Run, state_dir: Path) -> None:
    log = EventLog(state_dir / "runs" / "r1" / EVENTS_FILE, lambda reason: None)
    for number, updates in enumerate((500, 754)):
        log.put({"id": number, "at": "2030-01-01T12:00:00+00:00", "uptime_s": 1.0,
                 "kind": "checkpoint", "source": "learner 0", "updates": updates})
    log.close(5.0)
    done = run("train", "--seconds", "3", "--json").document()
    assert (done["updates"], done["updates_in_this_run"]) == (754, 30 + 54)


def test_an_update_between_two_looks_is_not_counted_twice(run: Run, runtime: FakeRuntime) -> None:
    runtime.at = {5: lambda: runtime.clock.advance(0.2)}
    done = run("train", "--seconds", "0.9", "--json").document()
    assert done["updates"] == 670 + done["updates_in_this_run"]


def test_it_ends_after_the_updates(run: Run, runtime: FakeRuntime) -> None:
    done = run("train", "--updates", "45", "--json").document()
    assert done["updates_in_this_run"] >= 45
    assert runtime.clock.now() == pytest.approx(4.5, abs=0.26)
    assert done["episodes"] == 2
    assert done["mean_return_last_20"] == 2.5
    assert done["run_id"] == "r1"


def test_the_curves_begin_where_the_episodes_do(runtime: FakeRuntime) -> None:
    """At the first tick of the run: it may be long until all processes act."""
    outcome = train.follow(runtime, Goal(seconds=1.0), runtime.clock, StopSignal())
    assert outcome.history.series("loss")[0].tolist() == [12.5, 13.5]


@pytest.mark.usefixtures("runtime")
def test_the_mean_return_is_said_to_be_of_as_many_episodes_as_there_were(run: Run) -> None:
    said = run("train", "--updates", "45").out
    assert "mean return of the last 2 " in said
    assert "of the last 20" not in said


def test_results_go_where_they_are_wanted(run: Run, runtime: FakeRuntime, tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    done = run("train", "--seconds", "1", "--out", str(out), "--json").document()
    assert {path.name for path in out.iterdir()} == {
        "learning.png", "episodes.csv", "tensorboard", "checkpoint-000000000700.safetensors",
    }
    assert {Path(done[name]).parent for name in ("picture", "episodes_file", "checkpoint")} == {out}
    assert not (runtime.run_dir / "learning.png").exists()


def test_results_may_go_where_the_run_writes_its_checkpoints(
    runtime: FakeRuntime, state_dir: Path
) -> None:
    config = load_config(overrides=[f"run.state_dir={state_dir}"])
    out = state_dir / "checkpoints"
    found = train.write_results(config, runtime(config).run_dir, out, History(1.0))
    assert Path(found["checkpoint"]) == out / "checkpoint-000000000700.safetensors"
    assert Path(found["checkpoint"]).read_bytes() == b"w"


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_a_second_one_does_not_keep_the_results_from_being_written(
    run: Run, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    write = train.write_results

    def impatient(*arguments: Any) -> Any:
        os.kill(os.getpid(), number)
        return write(*arguments)

    monkeypatch.setattr(train, "write_results", impatient)
    runtime.at[5] = lambda: os.kill(os.getpid(), number)
    assert run("train", "--seconds", "1000").code == 0
    assert runtime.left
    assert runtime.clock.now() < 5.0
    assert (runtime.run_dir / "learning.png").exists()


def test_a_signal_before_it_acts_leaves_nothing(run: Run, runtime: FakeRuntime) -> None:
    runtime.ready = False
    runtime.wait_ready = lambda timeout: os.kill(  # type: ignore[method-assign]
        os.getpid(), signal.SIGINT
    ) or (_ for _ in ()).throw(TimeoutError)
    assert run("train", "--seconds", "3").code == 130
    assert runtime.left
    assert not (runtime.run_dir / "learning.png").exists()


def test_an_agent_that_never_acts(run: Run, runtime: FakeRuntime) -> None:
    runtime.ready = False
    said = run("train", "--seconds", "3").err
    assert "the agent does not act after 120 s: 1 process is starting: inference 0\n" in said


def test_what_is_tried_out_before_the_processes_begin_has_a_limit_of_its_own(
    run: Run, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that was downloaded for longer than two minutes was never trained."""
    built = FakeRuntime.world.fget
    assert built is not None
    wait, start = runtime.wait_ready, runtime.clock.now()
    world = property(lambda fake: built(fake) if fake.clock.now() >= start + 500 else None)
    monkeypatch.setattr(FakeRuntime, "world", world)

    def wait_ready(timeout: float) -> None:
        runtime.ready = runtime.clock.now() >= start + 600
        wait(timeout)

    runtime.wait_ready = wait_ready  # type: ignore[method-assign]
    assert run("train", "--seconds", "3").code == 0


def test_a_world_of_long_ticks_is_waited_for(run: Run, runtime: FakeRuntime) -> None:
    """Every process of three acts when frames 0 to 2 are there, and the first tick is 2 ahead."""
    runtime.tick_s = 50.0
    wait, start = runtime.wait_ready, runtime.clock.now()

    def wait_ready(timeout: float) -> None:
        runtime.ready = runtime.clock.now() >= start + 4.0 * runtime.tick_s + 60.0
        wait(timeout)

    runtime.wait_ready = wait_ready  # type: ignore[method-assign]
    assert run("train", "--seconds", "3").code == 0


def test_an_agent_that_fails_before_it_acts(run: Run, runtime: FakeRuntime) -> None:
    runtime.ready = False
    learner_failed(runtime)
    assert "rtagent: learner 0 has failed: ValueError: boom" in run("train", "--seconds", "3").err


def broken(runtime: FakeRuntime) -> None:
    raise UserError("the memory is gone")


def learner_failed(runtime: FakeRuntime) -> None:
    runtime.roles.append({"name": "learner 0", "role": "learner", "state": "failed",
                          "last_error": "Traceback\nValueError: boom\n"})


@pytest.mark.parametrize(("happens", "said"), [
    (learner_failed, "learner 0 has failed: ValueError: boom"), (broken, "the memory is gone"),
])
def test_what_cannot_go_on_leaves_the_results_so_far(
    run: Run, runtime: FakeRuntime, happens: Callable[[FakeRuntime], None], said: str
) -> None:
    # That the recorder has failed does not end it.
    runtime.roles.append({"name": "recorder", "role": "recorder", "state": "failed"})
    runtime.at[3] = lambda: happens(runtime)
    done = run("train", "--seconds", "1000")
    assert done.code == 2
    assert f"training ended early: {said}" in done.err
    assert runtime.looks in (3, 4)
    assert (runtime.run_dir / "learning.png").exists()


def test_nothing_recorded_is_no_reason_to_fail(run: Run, runtime: FakeRuntime) -> None:
    (runtime.config.state_dir).mkdir(parents=True, exist_ok=True)
    runtime.run_id = "r2"
    done = run("train", "--seconds", "1", "--json").document()
    assert (done["episodes"], done["episodes_kept"]) == (2, 0)
    assert done["mean_return_last_20"] is None


def test_live_figures() -> None:
    assert live_figures(STATS) == ("50.2 updates/s, return 21.50, inaction 1.25%, batch 32")
    r3 = {"time_ratio": 0.5, "data_ratio": 0.4, "horizons": {"met": 3, "missed": 1}}
    unknown = {**STATS, "r3": r3, "learning": {**STATS["learning"], "updates_per_s": None}}
    assert live_figures(unknown) == (
        "unknown updates/s, return 21.50, inaction 1.25%, batch 32, "
        "time 50%, data 40%, 3 of 4 met"
    )
    r3["data_ratio"] = float("nan")
    assert "time 50%, data unknown" in live_figures(unknown)


def test_a_goal_is_never_overdone() -> None:
    assert Goal(seconds=3.0).done(5.0, 1000) == 3.0
    assert Goal(updates=10).done(5.0, 4) == 4.0
    assert Goal(updates=10).done(5.0, 14) == 10.0


@contextmanager
def _rtagent(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process of its own, as a shell starts it; it ends with the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "rtagent", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def _cartpole(folder: Path) -> list[str]:
    settings = options(
        "env.id=CartPole-v1", "env.rate_hz=200", "inference.processes=1", "replay.capacity=20000",
        "learning.learning_starts=100", "learning.updates_per_tick=1",
    )
    return [*settings, "--state-dir", str(folder)]


@pytest.mark.process
def test_a_real_training(tmp_path: Path) -> None:
    out = tmp_path / "results"
    with _rtagent(
        "train", "--updates", "60", *_cartpole(tmp_path / "state"), "--out", str(out), "--json"
    ) as trained:
        text, errors = trained.communicate(timeout=300)
    assert trained.returncode == 0, errors
    done = json.loads(text)
    assert done["updates_in_this_run"] >= 60
    assert Path(done["checkpoint"]).parent == out
    assert Path(done["checkpoint"]).stem.endswith(f"{done['updates']:012d}")
    with open(out / "episodes.csv", newline="") as file:
        episodes = list(csv.DictReader(file))
    assert len(episodes) == done["episodes"] > 0
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("episode/return")] == [
        int(row["tick"]) for row in episodes
    ]
    assert events.Scalars("learning/updates")[-1].value >= 60
    assert (out / "learning.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.process
def test_ctrl_c_on_a_real_training(tmp_path: Path) -> None:
    state = tmp_path / "state"
    often = ("--set", "run.checkpoint_every_s=1")
    settings = *_cartpole(state), *often
    with _rtagent("train", "--seconds", "1000", *settings, "--json") as trained:
        eventually(lambda: list(state.glob("runs/*/episodes.csv")), "an episode has ended")
        eventually(lambda: list(state.glob("checkpoints/*.safetensors")), "it has a checkpoint")
        # As a terminal does it: to the whole group, and by an impatient hand.
        for _ in range(2):
            os.killpg(trained.pid, signal.SIGINT)
            time.sleep(0.1)
        text, errors = trained.communicate(timeout=300)
    assert trained.returncode == 0, errors
    done = json.loads(text)
    assert Path(done["picture"]).exists()
    assert Path(done["checkpoint"]).exists()

