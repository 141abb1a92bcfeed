"""The supervisor's view of processes that do not exist."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from rtagent.config import EnvConfig
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.supervisor.children import Children
from rtagent.supervisor.status import Report
from tests.conftest import private
from tests.supervisor.test_child import FakeProcess

ENV = EnvConfig(step_limit_s=20.0, reset_limit_s=40.0)


def new_metrics() -> ProcessMetrics:
    return private(ProcessMetrics)


def children_of(metrics: ProcessMetrics, start: Any) -> Children:
    """Processes, each started by `start`."""
    report = Report("run", VirtualClock())
    return Children(metrics, lambda role, index: start, report, 0.02, 0, ENV)


class Watched:
    """One process, which never really exists, and what it was asked for.

    It is started at 100 s.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, role: str) -> None:
        self.metrics, self.process = new_metrics(), FakeProcess(4711)
        self.asked = self.process.asked
        self.stopped = self.computing = False
        module = "rtagent.supervisor.children"
        monkeypatch.setattr(f"{module}.is_stopped", lambda pid: self.stopped)
        monkeypatch.setattr(f"{module}.is_computing", lambda pid: self.computing)
        self.children = children_of(self.metrics, lambda pipe: self.process)
        self.children.add(role, 0, 100.0)
        (self.child,) = self.children
        self.record = self.metrics.record(role, 0)
        self.told: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(
            self.children._report, "event",
            lambda kind, **details: self.told.append((kind, details)),
        )

    def beat(self, at: float) -> None:
        self.record.heartbeat_ns = int(at * 1e9)

    def run(self) -> None:
        """It works, and has beaten at 200 s."""
        self.child.mark_ready(100.0)
        self.beat(200.0)

    def die(self, now: float, code: int = -signal.SIGKILL) -> None:
        self.process.exitcode = code
        self.look(now)

    def is_killed_at(self, when: float) -> None:
        self.look(when - 0.05)
        assert self.asked == []
        self.look(when + 0.05)
        assert self.asked == ["kill"]

    def look(self, now: float) -> None:
        list(self.children.check(self.child, now, stopping=False))

    def step(self, now: float) -> None:
        """One step of the supervisor."""
        self.children.detect_pause(now)
        self.look(now)


Watch = Callable[[str], Watched]
