"""`rtagent rerun`, against the real service on an imitated daemon."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rtagent.cli.rerun_stream import SETTLED_MS, Stream
from tests.cli.conftest import Refused, Run


class Recording:
    """Stands in for Rerun's: keeps what is logged, with its tick."""

    def __init__(self, *_: object, **__: object) -> None:
        self.logged: dict[str, list[tuple[int, Any]]] = {}
        self.tick, self.calls = -1, []

    def set_time(self, timeline: str, *, sequence: int | None = None, duration: float = 0) -> None:
        self.tick = self.tick if sequence is None else sequence

    def log(self, name: str, value: Any) -> None:
        self.logged.setdefault(name, []).append((self.tick, value))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)


def package(stream: Callable[..., Any]) -> Any:
    """Stands in for the package Rerun, whose recordings a function makes."""
    return SimpleNamespace(
        RecordingStream=stream, Scalars=lambda value: value, TextLog=str,
        EncodedImage=lambda contents, media_type: contents,
    )


def timeline(*ticks: int, continuous: bool = False) -> dict[str, Any]:
    """A timeline of ticks of 10 ms, each of which took 4 ms to compute."""
    name, numbers = (None, [0.5, -1.0]) if continuous else ("left", None)
    return {
        "now_ms": 10.0 * ticks[-1] + SETTLED_MS,
        "ticks": {
            "tick": list(ticks), "at_ms": [10.0 * each for each in ticks],
            "source": ["agent"] * len(ticks), "worker": [0] * len(ticks),
            "delay": [1] * len(ticks), "action": [name] * len(ticks),
            "components": [numbers] * len(ticks),
        },
        "bars": {
            "worker": [0] * len(ticks), "start_ms": [10.0 * each - 5 for each in ticks],
            "end_ms": [10.0 * each - 1 for each in ticks], "tick": list(ticks),
        },
    }


def streamed(*answers: dict[str, Any]) -> tuple[Stream, Recording]:
    """What becomes of the timelines that a daemon answers with."""
    left = list(answers)
    daemon: Any = SimpleNamespace(
        get=lambda path: left.pop(0) if "timeline" in path else {"actions": {"agent": 5}},
        get_bytes_if_known=lambda path: b"png",
    )
    recording = Recording()
    stream = Stream(daemon, package(Recording), recording)
    for _ in answers:
        stream.look()
    stream.close()
    return stream, recording


def test_continuous_actions_are_drawn() -> None:
    _, recording = streamed(timeline(1, 2, continuous=True))
    assert recording.logged["tick/action"] == [(1, [0.5, -1.0]), (2, [0.5, -1.0])]


def test_every_tick_is_passed_on_once() -> None:
    stream, recording = streamed(timeline(1, 2, 3), timeline(2, 3, 4), timeline(7, 8))
    logged = recording.logged
    assert [tick for tick, _ in logged["tick/delay"]] == [1, 2, 3, 4, 7, 8]
    assert logged["inference/0/ms"] == [(tick, 4.0) for tick in (1, 2, 3, 4, 7, 8)]
    assert logged["tick/action"] == [(1, "left")]
    assert logged["stats/actions/agent"] == [(3, 5.0), (4, 5.0), (8, 5.0)]
    assert [tick for tick, _ in logged["screen"]] == [3, 4, 8]
    assert (stream.ticks, stream.missed, stream.pictures) == (6, 2, 3)
    assert recording.calls == ["flush", "disconnect"]


def test_the_inferences_of_a_slow_world_are_passed_on_before_its_next_tick() -> None:
    """Once that was there, they lay too long ago for the answer."""
    slow, later = timeline(1), timeline(2)
    slow["bars"] = {"worker": [0], "start_ms": [12.0], "end_ms": [14.0], "tick": [2]}
    slow["now_ms"] = 14.0 + SETTLED_MS
    later["bars"] = {name: [] for name in slow["bars"]}
    _, recording = streamed(slow, slow, later)
    assert recording.logged["inference/0/ms"] == [(2, 2.0)]


@pytest.mark.usefixtures("service")
def test_a_missing_package_is_one_line(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    assert "pip install 'rtagent[rerun]'" in refused("rerun", "--seconds", "1")


class Viewer(Recording):
    """Is open for so many flushes; of none, it could not open at all."""

    flushes = 0

    def flush(self) -> None:
        if self.calls.count("flush") == self.flushes:
            raise RuntimeError("no connection")
        self.calls.append("flush")


@pytest.mark.usefixtures("service")
def test_a_viewer_that_cannot_open_is_one_line(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", package(Viewer))
    said = refused("rerun", "--seconds", "2")
    assert "the viewer: no connection" in said
    assert "--save FILE.rrd" in said


@pytest.mark.usefixtures("service")
def test_a_viewer_that_is_closed_ends_the_stream(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Viewer, "flushes", 2)
    monkeypatch.setattr("rtagent.cli.rerun_stream.PERIOD_S", 0.01)
    monkeypatch.setitem(sys.modules, "rerun", package(Viewer))
    told = run("rerun", "--json", "--seconds", "2").document()
    assert (told["ticks"] > 0, told["pictures"]) == (True, 2)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("free", [[], [1 << 40]])
def test_a_disk_that_is_nearly_full_ends_the_stream(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: list[int]
) -> None:
    # Rerun hung for ever, deaf to Ctrl-C; or the exit code was 0, and half of the file was missing.
    def usage(folder: Path) -> Any:
        assert folder == tmp_path
        return SimpleNamespace(free=free.pop() if free else 1000)

    recordings: list[Recording] = []
    monkeypatch.setattr("shutil.disk_usage", usage)
    monkeypatch.setattr("rtagent.cli.rerun_stream.PERIOD_S", 0.01)
    monkeypatch.setitem(sys.modules, "rerun", package(
        lambda *_, **__: recordings.append(Recording()) or recordings[-1]
    ))
    seen = len(free)
    said = refused("rerun", "--save", str(tmp_path / "run.rrd"), "--seconds", "2")
    assert "MiB are free" in said
    assert len(recordings[0].logged.get("screen", [])) == seen
    assert recordings[0].calls == ["save", "flush", "disconnect"] * seen


@pytest.mark.slow
@pytest.mark.usefixtures("service")
def test_rerun_itself_writes_a_file(run: Run, tmp_path: Path) -> None:
    """Needs the extra `rerun`."""
    pytest.importorskip("rerun")
    path = tmp_path / "run.rrd"
    assert run("rerun", "--save", str(path), "--seconds", "1", "--json").document()["ticks"] > 0
    assert path.read_bytes()[:3] == b"RRF"
