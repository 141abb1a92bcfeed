"""`rtagent watch`, against the real service on an imitated daemon."""

from __future__ import annotations

import errno
import io
import signal
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from rtagent.cli import watch
from tests.cli.conftest import Run
from tests.forked import eventually
from tests.service.conftest import RunningService


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("arguments", [(), ("--once",)])
def test_one_frame_where_stdout_is_no_terminal(run: Run, arguments: tuple[str, ...]) -> None:
    shown = run("watch", *arguments)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.count("In time") == 1
    assert "inference 1" in shown.out
    assert "●" in shown.out
    assert "\x1b" not in shown.out


@pytest.mark.usefixtures("service")
def test_one_frame_where_nothing_can_be_overwritten(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rich shows no live picture there, so it would be an empty one for ever."""
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, _environ={"TERM": "dumb"})
    monkeypatch.setattr(watch, "stdout", lambda: terminal)
    monkeypatch.setattr(watch, "sleep", lambda seconds: signal.raise_signal(signal.SIGINT))
    assert run("watch").code == 0
    assert out.getvalue().count("In time") == 1


def test_as_json(run: Run, service: RunningService) -> None:
    shown = run("watch", "--json").document()
    assert shown["stats"].pop("verdicts")["acting"]["level"] == "good"
    assert shown["stats"] == service.backend.figures
    assert shown["status"]["run_id"] == "20250101-abcd"
    assert shown["events"] == []


def shown_inaction(service: RunningService) -> float:
    """The service answers with figures that are a moment old."""
    with service.client() as client:
        return float(client.get("/v1/stats").json()["actions"]["inaction_fraction_60s"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_live_until_a_signal_ends_it(
    run: Run, service: RunningService, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    out = io.StringIO()
    terminal = Console(file=out, force_terminal=True, width=80, height=24, color_system=None)
    monkeypatch.setattr(watch, "stdout", lambda: terminal)
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(out.getvalue())
        out.seek(0)
        out.truncate()
        if len(looks) == 1:
            for name in ("60s", "window"):
                service.backend.figures["actions"][f"inaction_fraction_{name}"] = 0.5
            assert eventually(lambda: shown_inaction(service) == 0.5)
        elif len(looks) == 2:
            service.stop()
        elif len(looks) == 3:
            service.start()
        elif len(looks) == 4:
            signal.raise_signal(number)

    monkeypatch.setattr(watch, "sleep", sleep)
    assert run("watch", "--interval", "0.2").code == 0
    for shown, said in zip(looks, ("In time", "Too late", "CONNECTION LOST", "Too late"),
                           strict=True):
        assert said in shown
    assert "\x1b[?1049h" in looks[0], "the alternate screen"
    assert "\x1b[?1049l" in out.getvalue(), "the terminal as it was"
    assert "\x1b[?25h" in out.getvalue(), "and its cursor"


class Terminal(io.StringIO):
    """One that can go away; what is written then fails, as far as a program notices."""

    gone, fails = False, False

    def isatty(self) -> bool:
        return not self.gone

    def flush(self) -> None:
        if self.gone and self.fails:
            raise OSError(errno.EIO, "Input/output error")


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("fails", [False, True])
def test_it_ends_when_its_terminal_is_gone(
    run: Run, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Without a SIGHUP it went on asking the daemon, and nobody saw the answers."""
    terminal = Terminal()
    terminal.fails = fails
    waits = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > 1:
            signal.raise_signal(signal.SIGINT)
        terminal.gone = True

    monkeypatch.setattr(watch, "sleep", sleep)
    console = Console(file=terminal, width=80, height=24, _environ={"TERM": "xterm"})
    monkeypatch.setattr(watch, "stdout", lambda: console)
    assert run("watch").code == 0
    assert len(waits) == 1


def test_returns_of_episodes_that_end_while_it_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {"/v1/inference": {}}
    daemon = SimpleNamespace(url="", get=answers.__getitem__, get_if_known=lambda path: None)
    monkeypatch.setattr(watch, "find_daemon", lambda *_: daemon)
    watcher = watch.Watcher(None)

    def look(run_id: str, count: int, last: float | None) -> Sequence[float]:
        answers["/v1/status"] = {"run_id": run_id}
        answers["/v1/stats"] = {"episodes": {"count": count, "last_return": last}}
        return watcher.look().snapshot.returns

    for count, last in ((0, None), (0, None), (1, -2.0), (1, -2.0), (2, -2.0)):
        look("r1", count, last)
    assert look("r1", 5, 3.0) == [-2.0, -2.0, 3.0]
    assert look("r2", 0, None) == []


@pytest.mark.parametrize(("rate_hz", "seconds"), [(60.0, "2"), (4.0, "3"), (0.5, "10")])
def test_of_a_slow_world_more_seconds_are_shown(
    monkeypatch: pytest.MonkeyPatch, rate_hz: float, seconds: str
) -> None:
    asked: list[str] = []
    answers = {"/v1/stats": {"clock": {"target_rate_hz": rate_hz}}}
    daemon = SimpleNamespace(
        url="", get=lambda path: answers.get(path, {}), get_if_known=asked.append
    )
    monkeypatch.setattr(watch, "find_daemon", lambda *_: daemon)
    watch.Watcher(None).look()
    assert f"/v1/timeline?seconds={seconds}" in asked


def test_what_the_daemon_does_not_know_is_none(service: RunningService) -> None:
    daemon = watch.find_daemon(None)
    assert daemon.get_if_known("/v1/nothing") is None
    assert daemon.get_if_known("/v1/status") == daemon.get("/v1/status")
