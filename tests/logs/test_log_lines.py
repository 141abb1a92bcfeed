"""The log for people, where nobody reads it."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from rtagent.logs.log_format import TextLines
from rtagent.logs.log_lines import CAPACITY, LogLines, StderrHandler
from tests.forked import eventually

PATIENCE_S = 60.0


class Gate:
    """Takes lines once it is open, and how many were dropped before each."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.lines: list[str] = []
        self.dropped: list[int] = []

    def write(self, line: str, dropped: int) -> None:
        self.reached.set()
        self.open.wait()
        self.lines.append(line)
        self.dropped.append(dropped)


def test_nobody_waits_for_a_log_that_hangs_and_what_is_dropped_is_counted() -> None:
    gate = Gate()
    lines = LogLines(gate.write)
    lines.put("line 0")
    assert gate.reached.wait(PATIENCE_S)
    began = time.monotonic()
    for number in range(1, CAPACITY + 100):
        lines.put(f"line {number}")
    lines.close(0.1)
    assert time.monotonic() - began < PATIENCE_S
    gate.open.set()
    taken = 1 + CAPACITY
    assert eventually(lambda: len(gate.lines) == taken)
    lines.put("next")
    lines.close(PATIENCE_S)
    assert gate.lines == [*(f"line {number}" for number in range(taken)), "next"]
    assert gate.dropped == [*[0] * taken, 99]


def test_close_writes_what_waits() -> None:
    gate = Gate()
    gate.open.set()
    lines = LogLines(gate.write)
    for number in range(200):
        lines.put(str(number))
    lines.close(PATIENCE_S)
    assert len(gate.lines) == 200


@pytest.fixture
def full_pipe() -> Iterator[tuple[int, int]]:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while os.write(theirs, b"x" * 4096):
            pass
    os.set_blocking(theirs, True)
    yield ours, theirs
    for each in (ours, theirs):
        os.close(each)


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("rtagent", logging.INFO, "", 0, text, None, None)


def test_a_pipe_that_nobody_reads_costs_lines_and_not_time(full_pipe: tuple[int, int]) -> None:
    ours, theirs = full_pipe
    handler = StderrHandler(theirs, wait_s=0.01)
    handler.setFormatter(TextLines())
    began = time.monotonic()
    for _ in range(3):
        handler.handle(record("lost"))
    assert time.monotonic() - began < PATIENCE_S
    os.read(ours, 1 << 20)
    handler.handle(record("y" * 100_000))
    assert select.select([ours], [], [], PATIENCE_S)[0], "dropped, too"
    said = os.read(ours, 65_536).decode().splitlines()
    assert len(said) == 1
    assert said[0].endswith("(3 lines before this were dropped)")
    assert len(said[0]) < 4096


def test_many_lines_wait_for_room_no_longer_than_one(full_pipe: tuple[int, int]) -> None:
    """At its end a program waits for all of them: the logging module takes the handler's lock."""
    handler = StderrHandler(full_pipe[1], wait_s=0.1)
    began = time.monotonic()
    for _ in range(300):
        handler.handle(record("lost"))
    assert time.monotonic() - began < 15.0


def test_a_terminal_that_nobody_reads_costs_lines_and_not_time() -> None:
    """It says that it has room where it has less than a line takes."""
    ours, theirs = os.openpty()
    handler = StderrHandler(theirs, wait_s=0.01)
    handler.setFormatter(TextLines())
    writing = threading.Thread(
        target=lambda: [handler.handle(record("x" * 3000)) for _ in range(100)], daemon=True
    )
    writing.start()
    writing.join(PATIENCE_S)
    stuck = writing.is_alive()
    # The kernel passes on in the background what was written; then there is room for a line.
    said = b""
    while select.select([ours], [], [], 0.5)[0]:
        said += os.read(ours, 65_536)
    assert not stuck
    handler.handle(record("and now"))
    while b"and now (" not in said or not said.endswith(b"\n"):
        assert select.select([ours], [], [], PATIENCE_S)[0], "dropped, too"
        said += os.read(ours, 65_536)
    lines = said.decode().splitlines()
    dropped = int(lines[-1].partition("and now (")[2].split()[0])
    whole = [line for line in lines if line.endswith("x" * 3000)]
    assert len(whole) + dropped == 100
    for each in (ours, theirs):
        os.close(each)


def test_a_stderr_that_is_gone_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    handler = StderrHandler(theirs, wait_s=0.01)
    handler.handle(record("nobody"))
    os.close(theirs)
    handler.handle(record("nobody"))


@pytest.mark.process
def test_a_program_ends_although_its_log_is_stuck(full_pipe: tuple[int, int]) -> None:
    program = (
        "import logging; from rtagent.logs.log_lines import LogLines, StderrHandler\n"
        "logging.basicConfig(level=logging.INFO, handlers=[StderrHandler()])\n"
        "lines = LogLines(lambda line, dropped: logging.getLogger().info(line))\n"
        "for _ in range(50): lines.put('x' * 4000)\n"
        "lines.close(0.1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], stderr=full_pipe[1], timeout=300, check=False
    )
    assert done.returncode == 0
