"""The crew: what its own functions say; its life is tested with the daemon's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rtagent.child import State
from rtagent.clock import VirtualClock
from rtagent.crew import BOOT_LIMIT_S, SERVICE_LIMIT_S, Crew, is_stopped
from rtagent.memory.board import Board
from rtagent.report import Report

from .conftest import eventually


@pytest.mark.process
def test_a_stopped_process_is_told_from_one_that_sleeps() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not is_stopped(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(child.pid), 5, "it is stopped")
        os.kill(child.pid, signal.SIGCONT)
        eventually(lambda: not is_stopped(child.pid), 5, "it goes on")
    finally:
        child.kill()
        child.wait()


def test_nobody_is_not_stopped() -> None:
    assert not is_stopped(None)


def test_fresh_while_every_role_has_a_process_that_beats() -> None:
    board = Board(memoryview(bytearray(Board.size())))
    processes = SimpleNamespace(pid=os.getpid(), exitcode=None)
    report = Report("run", VirtualClock())
    crew = Crew(board, lambda role, index: lambda voice: processes, report, 0.02, seed=0)
    workers = [("environment", 0), ("inference", 0), ("inference", 1), ("recorder", 0)]
    for role, index in workers:
        crew.add(role, index, 100.0)
    # Whoever starts has time.
    assert crew.fresh(100.0 + BOOT_LIMIT_S)
    assert not crew.fresh(101.0 + BOOT_LIMIT_S)

    def beat(role: str, index: int, at: float) -> None:
        board.record(role, index)["heartbeat_ns"] = np.int64(at * 1e9)

    for child in crew:
        child.mark_ready(100.0)
        beat(child.role, child.index, 200.0)
    assert crew.fresh(201.0)
    assert not crew.fresh(210.0)
    beat("environment", 0, 209.0)
    beat("inference", 1, 209.0)
    assert crew.fresh(210.0)
    second = crew.of("inference")[1]
    for state, fresh in ((State.FAILED, False), (State.BACKOFF, False), (State.RUNNING, True)):
        second.state = state
        assert crew.fresh(210.0) is fresh
    # Nobody misses those who have been sent away.
    crew.stop(210.0)
    assert crew.fresh(500.0)


@pytest.mark.parametrize(("stopped", "silent_s"), [(True, 1.0), (False, 6.0)])
def test_a_stopped_inference_process_is_given_up_before_a_slow_one(
    monkeypatch: pytest.MonkeyPatch, stopped: bool, silent_s: float
) -> None:
    board = Board(memoryview(bytearray(Board.size())))
    process = SimpleNamespace(pid=4711, exitcode=None)
    report = Report("run", VirtualClock())
    crew = Crew(board, lambda role, index: lambda voice: process, report, 0.02, seed=0)
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    monkeypatch.setattr("rtagent.crew.is_stopped", lambda pid: stopped and pid == 4711)
    crew.add("inference", 0, 100.0)
    (child,) = crew
    child.mark_ready(100.0)
    board.inference["heartbeat_ns"][0] = np.int64(200e9)
    board.inference["estimate_s"][0] = 0.5
    list(crew.look_after(child, 200.0 + silent_s - 0.1, stopping=False))
    assert signals == []
    list(crew.look_after(child, 200.0 + silent_s + 0.1, stopping=False))
    assert signals == [(4711, signal.SIGKILL)]


def test_the_service_may_be_silent_while_the_machine_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = Board(memoryview(bytearray(Board.size())))
    process = SimpleNamespace(pid=4711, exitcode=None)
    report = Report("run", VirtualClock())
    crew = Crew(board, lambda role, index: lambda voice: process, report, 0.02, seed=0)
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    crew.add("service", 0, 100.0)
    (child,) = crew
    child.mark_ready(100.0)
    board.record("service", 0)["heartbeat_ns"] = np.int64(200e9)
    list(crew.look_after(child, 200.0 + SERVICE_LIMIT_S - 0.1, stopping=False))
    assert signals == []
    list(crew.look_after(child, 200.0 + SERVICE_LIMIT_S + 0.1, stopping=False))
    assert signals == [(4711, signal.SIGKILL)]
