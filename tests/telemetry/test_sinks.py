"""Sinks: what they write, and that none holds up another."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rtagent.config.operation import RunConfig
from rtagent.errors import UserError
from rtagent.telemetry import sinks
from rtagent.telemetry.libraries import MlflowRun, WandbRun
from rtagent.telemetry.points import Point
from rtagent.telemetry.sinks import WAITING, Background, EventFiles, check, open_sinks
from tests.forked import eventually

POINTS = [Point(1000.0, 7, {"a/b": 1.0}), Point(1001.0, 5, {"a/b": 2.0, "c": 3.0})]


class Stub:
    """A library that waits, fails or takes."""

    def __init__(self) -> None:
        self.taken: list[Point] = []
        self.free = threading.Event()
        self.fails = self.closed = False
        self.starts = 0

    def start(self) -> Stub:
        self.starts += 1
        return self

    def write(self, points: Sequence[Point]) -> None:
        self.free.wait(60.0)
        if self.fails:
            raise ConnectionError("nobody there\nat all")
        self.taken += points

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.free.set()


def test_a_library_that_blocks_delays_nothing_else(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sinks, "CLOSE_S", 0.01)
    slow = Background("slow", stub.start)
    files = EventFiles(tmp_path, 1 << 20, lambda: 1000.0)
    for _ in range(WAITING + 5):
        for sink in (slow, files):
            sink.write(POINTS)
    assert slow.problem is not None
    assert slow.dropped >= 2 * 4
    assert files.problem is None
    slow.close()
    assert not stub.closed
    stub.free.set()


def test_a_library_that_stays_behind_has_one_problem(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = [], threading.Semaphore(0)
    monkeypatch.setattr(
        stub, "write", lambda points: begun.append(points) or gate.acquire(timeout=60.0)
    )
    slow = Background("slow", stub.start)
    for _ in range(WAITING + 2):
        slow.write(POINTS)
    assert slow.problem is not None
    gate.release()
    assert eventually(lambda: len(begun) == 2)
    # Told again each time that it has taken one, it would be an event each time.
    assert slow.problem is not None
    gate.release(WAITING + 2)
    assert eventually(lambda: slow.problem is None)


def test_a_library_that_fails_is_started_again(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "CLOSE_S", 60.0)
    stub.fails = True
    stub.free.set()
    sink = Background("failing", stub.start)
    sink.write(POINTS)
    assert eventually(lambda: sink.problem == "nobody there")
    assert sink.dropped == 2
    stub.fails = False
    sink.write(POINTS)
    sink.close()
    assert (stub.taken, stub.starts, stub.closed) == (POINTS, 2, True)
    assert sink.problem is None


def test_points_that_both_threads_drop_at_once_are_all_counted(stub: Stub) -> None:
    class Failing(list[Point]):
        """While they are counted as failed, the queue fills and refuses some."""

        def __len__(self) -> int:
            if stub.starts and stub.fails:
                stub.fails = False
                for _ in range(WAITING + 1):
                    sink.write(POINTS)
            return super().__len__()

    stub.fails = True
    stub.free.set()
    sink = Background("failing", stub.start)
    sink.write(Failing(POINTS))
    assert eventually(lambda: sink.dropped == 2 + 2)
    sink.close()


def test_what_a_full_disk_refused_is_written_later(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    folder.write_text("a file where the folder should be")
    sink = EventFiles(folder, 1 << 20, lambda: 1000.0)
    sink.write(POINTS)
    assert sink.problem
    folder.unlink()
    sink.close()
    assert sink.problem is None
    (file,) = folder.iterdir()
    assert file.read_bytes().count(b"a/b") == 2


@pytest.mark.parametrize("restarted", [False, True])
def test_the_newest_files_stay_where_the_clock_was_set_back(
    tmp_path: Path, restarted: bool
) -> None:
    ahead = EventFiles(tmp_path, 4000, lambda: 90_000.0)
    for tick in range(100):
        ahead.write([Point(90_000.0, tick, {"a/b": 1.0})])
    before = set(tmp_path.iterdir())
    sink = EventFiles(tmp_path, 4000, lambda: 1000.0) if restarted else ahead
    for tick in range(100, 400):
        there = set(tmp_path.iterdir())
        sink.write([Point(1000.0, tick, {"a/b": 1.0})])
        for path in set(tmp_path.iterdir()) - there:
            os.utime(path, (1000.0, 1000.0))
    assert not before & set(tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) >= 2


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "find_spec", lambda _: None)
    check(RunConfig())
    with pytest.raises(UserError, match=rf"run\.{name} = true .*pip install 'rtagent\[{name}\]'"):
        check(RunConfig.model_validate({name: True}))


def test_only_what_is_configured_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sinks.LIBRARIES, "wandb", lambda *_: Stub())
    opened = open_sinks(RunConfig(tensorboard=False, wandb=True), tmp_path, {}, lambda: 0.0)
    assert [sink.name for sink in opened] == ["wandb"]
    opened[0].close()
    assert [s.name for s in open_sinks(RunConfig(), tmp_path, {}, lambda: 0.0)] == ["tensorboard"]


def test_wandb_is_offline_and_counts_in_ticks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    run = SimpleNamespace(
        define_metric=lambda *a, **k: calls.append(k), log=calls.append,
        finish=lambda: calls.append("finished"),
    )
    fake: Any = ModuleType("wandb")
    fake.Settings = dict
    fake.init = lambda **arguments: calls.append(arguments) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    sink = WandbRun(tmp_path / "run-1", {"env": {"id": "x"}})
    sink.write(POINTS)
    sink.close()
    begun, metric, first, second, last = calls
    assert (begun["mode"], begun["id"], begun["dir"]) == ("offline", "run-1", tmp_path / "run-1")
    assert metric == {"step_metric": "tick"}
    assert first == {"a/b": 1.0, "tick": 7, "_timestamp": 1000.0}
    assert (second["tick"], last) == (5, "finished")


@pytest.mark.slow
def test_the_packages_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs the extras `wandb` and `mlflow`."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    run_dir = tmp_path / "20260101T000000Z-1"
    config = {"env": {"id": "x", "kwargs": {}}, "run": {"seed": 0}}
    opened = [Background("wandb", lambda: WandbRun(run_dir, config)),
              Background("mlflow", lambda: MlflowRun(run_dir, config))]
    run_dir.mkdir()
    monkeypatch.setattr(sinks, "CLOSE_S", 60.0)
    for sink in opened:
        sink.write(POINTS)
        sink.close()
        assert sink.problem is None, sink.name
    assert list(run_dir.glob("wandb/offline-run-*/*.wandb"))
    client = mlflow.MlflowClient((run_dir / "mlflow").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("rtagent").experiment_id])
    history = client.get_metric_history(found.info.run_id, "a/b")
    assert [(each.step, each.value) for each in history] == [(7, 1.0), (5, 2.0)]
    assert MlflowRun(run_dir, config)._id == found.info.run_id
