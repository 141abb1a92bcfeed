"""`Runtime` in a program, without processes; with them: `live/test_runtime.py`."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rtagent import Runtime, UserError, load_config
from rtagent.supervisor.supervisor import Supervisor

from .conftest import eventually, open_descriptors

ASKED: tuple[Callable[[Runtime], object], ...] = (
    Runtime.stats, Runtime.status, Runtime.wait_ready, Runtime.checkpoint,
    lambda runtime: runtime.set_inference(processes=2),
)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """A run that has not begun."""
    return Runtime(load_config(overrides=[f"run.state_dir={tmp_path}"]))


def test_before_its_block_a_run_says_so(runtime: Runtime) -> None:
    for ask in (*ASKED, lambda runtime: runtime.run_dir, lambda runtime: runtime.world):
        with pytest.raises(UserError, match="has not begun: write `with"):
            ask(runtime)


def test_the_state_directory_is_held_until_the_run_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(Supervisor, "run", lambda self: may_end.wait(60))
    monkeypatch.setattr("rtagent.runtime.STOP_LIMIT_S", 0.05)
    config = load_config(overrides=[f"run.state_dir={tmp_path}"])
    runtime = Runtime(config)
    with pytest.raises(TimeoutError, match="still holds"), runtime:
        pass
    with pytest.raises(UserError, match="held by another daemon"), Runtime(config):
        pass
    may_end.set()
    eventually(lambda: not runtime._run()[1].is_alive(), "it has ended")
    with Runtime(config):
        pass


@pytest.mark.parametrize("free", range(4))
def test_a_run_without_a_thread_leaves_nothing_open(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """Its state directory and the supervisor's pipe, whichever of its threads there is none for."""
    monkeypatch.setattr(Supervisor, "run", lambda self: None)
    start, left, before = threading.Thread.start, [None] * free, open_descriptors()
    with monkeypatch.context() as patch:

        def scarce(self: threading.Thread) -> None:
            if not left:
                raise RuntimeError("can't start new thread")
            left.pop()
            start(self)

        patch.setattr(threading.Thread, "start", scarce)
        with pytest.raises(RuntimeError, match="new thread"), runtime:
            pass
    assert open_descriptors().items() <= before.items()
    with runtime:
        pass


def test_a_run_that_cannot_start_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "run", Mock(side_effect=UserError("no such world")))
    config = load_config(overrides=[f"run.state_dir={tmp_path}"])
    with pytest.raises(UserError, match="no such world"), Runtime(config):
        pass
    with Runtime(config) as runtime, pytest.raises(UserError, match="no such world"):
        runtime.wait_ready()
    with pytest.raises(ZeroDivisionError), Runtime(config):
        1 / 0  # noqa: B018


def test_what_is_not_ready_is_named(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_acting", lambda: False)
    error = "Traceback (most recent call last):\n  ...\nRuntimeError: no robot"
    status: dict[str, Any] = {"roles": [{"name": "environment", "state": "failed"}]}
    monkeypatch.setattr(runtime, "status", lambda: status)
    status["roles"][0]["last_error"] = error
    with pytest.raises(TimeoutError) as late:
        runtime.wait_ready(0.0)
    assert str(late.value) == "not ready after 0 s: environment has failed: RuntimeError: no robot"
    status["roles"][0]["state"] = "running"
    with pytest.raises(TimeoutError, match="not every inference process has acted"):
        runtime.wait_ready(0.0)


@pytest.mark.parametrize(("command", "ask"), [
    ("set", lambda runtime: runtime.set_inference(timeout=0.0625, processes=2)),
    ("checkpoint", lambda runtime: runtime.checkpoint(timeout=0.0625)),
])
def test_an_answer_that_does_not_come_in_time_is_named(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, command: str,
    ask: Callable[[Runtime], object],
) -> None:
    silent = SimpleNamespace(submit=lambda name, arguments: Future())
    monkeypatch.setattr(runtime, "_running", lambda: silent)
    with pytest.raises(TimeoutError) as late:
        ask(runtime)
    assert str(late.value) == f"{command}: no answer after 0.0625 s; it may still be carried out"


@pytest.mark.parametrize("change", [
    Runtime.set_inference, Runtime.set_learning, Runtime.set_deadlines,
])
def test_a_number_without_a_name_is_no_change(
    runtime: Runtime, change: Callable[..., object]
) -> None:
    with pytest.raises(TypeError, match="positional"):
        change(runtime, 4)


def test_a_run_stays_in_its_folder_when_the_program_goes_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "run", lambda self: None)
    monkeypatch.chdir(tmp_path)
    with Runtime(load_config(overrides=["run.state_dir=state"])) as runtime:
        monkeypatch.chdir("/")
        assert runtime.run_dir == tmp_path / "state" / "runs" / runtime.run_id
        supervisor, _ = runtime._run()
        assert supervisor.checkpoint_dir == tmp_path / "state" / "checkpoints"


def test_updates_that_will_not_come_are_not_waited_for(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = {"name": "learner 0", "role": "learner", "state": "failed", "last_error": "no memory"}
    monkeypatch.setattr(runtime, "_applied", lambda: 0)
    monkeypatch.setattr(runtime, "status", lambda: {"roles": [role]})
    monkeypatch.setattr(runtime, "stats", dict)
    with pytest.raises(UserError, match="learner 0 has failed: no memory"):
        runtime.wait(updates=5, seconds=0.1)
    assert runtime.wait(seconds=0.1) == {}


@pytest.mark.parametrize("ask", [
    lambda runtime, nan: runtime.wait_ready(nan),
    lambda runtime, nan: runtime.wait(seconds=nan),
    lambda runtime, nan: runtime.wait(updates=nan),
    lambda runtime, nan: runtime.set_inference(timeout=nan, processes=2),
    lambda runtime, nan: runtime.checkpoint(timeout=nan),
])
def test_a_limit_that_is_no_number_is_refused(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Runtime, float], object],
) -> None:
    monkeypatch.setattr(runtime, "_acting", lambda: True)
    monkeypatch.setattr(runtime, "_applied", lambda: 0)
    monkeypatch.setattr(runtime, "stats", dict)
    silent = SimpleNamespace(submit=lambda name, arguments: Future())
    monkeypatch.setattr(runtime, "_running", lambda: silent)
    with pytest.raises(UserError, match="= nan: must be a number"):
        ask(runtime, math.nan)


def test_an_answer_may_be_waited_for_without_limit(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def result(limit_s: float) -> dict[str, Any]:
        # What takes longer is an OverflowError.
        assert limit_s <= threading.TIMEOUT_MAX
        return {"inference": {"processes": 2}}

    answering = SimpleNamespace(submit=lambda name, arguments: SimpleNamespace(result=result))
    monkeypatch.setattr(runtime, "_running", lambda: answering)
    assert runtime.set_inference(timeout=math.inf, processes=2) == {"processes": 2}


class OneAtATime:
    """Figures for one thread at a time; it notices when another comes in."""

    made = 0

    def __init__(self, world: Any) -> None:
        type(self).made += 1
        self._inside = threading.Lock()

    def collect(self) -> dict[str, Any]:
        alone = self._inside.acquire(blocking=False)
        # Long enough for the other threads to be given the processor in the midst of it.
        for _ in range(2000):
            pass
        if alone:
            self._inside.release()
        return {"alone": alone}


def test_figures_may_be_asked_for_from_several_threads(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rtagent.runtime.StatsReader", OneAtATime)
    monkeypatch.setattr(runtime, "_running", lambda: SimpleNamespace(world=object()))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: runtime.stats(), range(200)))
    finally:
        sys.setswitchinterval(interval)
    assert all(each["alone"] for each in answers)
    assert OneAtATime.made == 1
