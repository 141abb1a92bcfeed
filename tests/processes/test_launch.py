"""The fork server and its children: refused, killed, stopped, and sent a terminal's signals."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import multiprocess
import pytest

from benchmarks.process_figures import gone
from rtagent.clock import VirtualClock
from rtagent.processes import fork_server as server_side
from rtagent.processes import launch
from rtagent.processes.launch import REFUSED, ForkServer, Process
from tests.conftest import eventually, open_descriptors
from tests.limited import limited
from tests.spawned import (
    fail,
    leave,
    sleep,
    start_simulator,
    tell_collector,
    tell_modules,
    tell_signals,
)

LIMIT_S = 180.0


def test_the_descriptor_limit_is_raised_before_a_fork_server_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(launch, "raise_descriptor_limit", lambda: done.append("limit"))
    monkeypatch.setattr(ForkServer, "_start", lambda server: done.append("start"))
    ForkServer()
    assert done == ["limit", "start"]


def test_a_module_is_run_without_those_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('not the one that is installed')\n")
    command, variables = launch.module_command("json.tool")
    done = subprocess.run(
        [*command, "--help"], cwd=tmp_path, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_what_python_ignores_in_its_path_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = list(sys.path)
    monkeypatch.setattr(sys, "path", [Path("folder"), *texts])
    started: list[str] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.extend(command))
    ForkServer()._socket.close()
    assert f"sys.path[:] = {texts!r};" in started[-1]
    assert "folder" not in launch.module_path()


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork servers that need not import torch."""
    monkeypatch.setattr(launch, "PRELOAD", "json")


@pytest.fixture
def server(light: None) -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


def ended(process: Process) -> int | None:
    process.join(LIMIT_S)
    return process.exitcode


def start(server: ForkServer, body: Any) -> tuple[Process, Any, Any]:
    """A child, our end of its pipe, and the first that it says."""
    ours, theirs = multiprocess.Pipe()
    process = server.spawn(body, theirs)
    theirs.close()
    assert ours.poll(LIMIT_S)
    return process, ours, ours.recv()


def start_sleeper(server: ForkServer) -> tuple[Process, Any]:
    """A child, and our end of its pipe once it lives."""
    process, ours, pid = start(server, sleep)
    assert pid == process.pid
    return process, ours


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_who_is_killed_leaves_idle_priority_first(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, _ = start_sleeper(server)
    os.sched_setscheduler(process.pid or 0, os.SCHED_IDLE, os.sched_param(0))
    told: list[tuple[int, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "kill", lambda pid, number: told.append((number, os.sched_getscheduler(pid)))
        )
        process.kill()
    assert told == [(signal.SIGKILL, os.SCHED_OTHER)]
    process.kill()
    assert ended(process) == -signal.SIGKILL


@pytest.mark.process
def test_life_and_end_of_a_child(server: ForkServer) -> None:
    assert ended(server.spawn(leave, None)) == 0
    assert ended(server.spawn(leave, 3)) == 3
    assert ended(server.spawn(fail)) == 1
    process, pipe = start_sleeper(server)
    assert process.is_alive()
    process.kill()
    assert ended(process) == -signal.SIGKILL
    process.close()
    pipe.close()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.process
@pytest.mark.parametrize("whole_tree", [True, False])
def test_what_a_process_has_started_is_killed_with_it_where_that_is_wanted(
    server: ForkServer, whole_tree: bool
) -> None:
    """A simulator that hangs kept its port, its memory and its GPU from the next one."""
    process, _, started = start(server, start_simulator)
    try:
        process.kill(whole_tree=whole_tree)
        assert ended(process) == -signal.SIGKILL
        if whole_tree:
            eventually(lambda: all(map(gone, started)), "they are gone, too")
        assert [gone(pid) for pid in started] == [whole_tree] * 2
    finally:
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_dead_process_is_sent_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, pipe = os.pipe()
    process, sent = Process(answers), []

    def gone(pid: int, number: int) -> None:
        sent.append((pid, number))
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", gone)
    os.write(pipe, server_side.ANSWER.pack(4711))
    process.terminate()
    os.write(pipe, server_side.ANSWER.pack(0))
    process.kill()
    assert (sent, process.exitcode) == ([(4711, signal.SIGTERM)], 0)
    process.close()
    os.close(pipe)


def test_a_process_that_begins_while_it_is_given_up_is_killed(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, pipe = socket.socketpair()
    process, sent = Process(answers.detach()), []

    def look(self: Process) -> bool:
        alive = self.exitcode is None
        pipe.send(server_side.ANSWER.pack(4711))
        return alive

    monkeypatch.setattr(Process, "is_alive", look)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    process.terminate()
    assert (sent, process.exitcode) == ([(4711, signal.SIGKILL)], -signal.SIGTERM)
    assert not server_side._answer(pipe.fileno(), 0)
    pipe.close()


def test_an_owner_that_has_not_read_an_answer_may_close_the_pipe() -> None:
    answers, pipe = socket.socketpair()
    process = Process(answers.detach())
    assert server_side._answer(pipe.fileno(), 4711)
    process.close()
    assert not server_side._answer(pipe.fileno(), 0)
    pipe.close()


@pytest.mark.process
def test_each_child_costs_two_descriptors_and_no_file(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = open_descriptors()
    children = [start_sleeper(server) for _ in range(3)]
    assert len(open_descriptors().items() - before.items()) == 6
    assert not any(tmp_path.iterdir())
    for process, pipe in children:
        process.kill()
        process.join()
        process.close()
        pipe.close()
    assert open_descriptors().items() <= before.items()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_refused_fork_is_an_answer(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    answers, pipe = os.pipe()
    process = Process(answers)
    monkeypatch.setattr(os, "fork", Mock(side_effect=OSError(number, os.strerror(number))))
    server = server_side._Server(theirs)
    before = open_descriptors()
    socket.send_fds(ours, [bytes([2])], [pipe, pipe])
    os.close(pipe)
    assert server._take()
    assert (process.exitcode, process.failure) == (REFUSED, f"no process: {os.strerror(number)}")
    assert process.pid is None
    # It goes on, has kept nothing, and ends when its owner is gone.
    assert open_descriptors().items() < before.items()
    ours.close()
    assert not server._take()
    process.close()
    for each in (server._wake, server._waker):
        os.close(each)
    theirs.close()


@pytest.mark.process
def test_a_fork_server_without_descriptors_goes_on(server: ForkServer) -> None:
    ended(server.spawn(leave, 0))
    limit = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    for most in range(3, 12):
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (most, limit[1]))
        process = server.spawn(leave, 0)
        assert ended(process) in (0, 1, REFUSED)
        process.close()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limit)
    assert ended(server.spawn(leave, 0)) == 0


@pytest.mark.process
def test_an_owner_without_descriptors_gets_an_error_and_leaks_none(server: ForkServer) -> None:
    before = open_descriptors()
    highest = max(map(int, os.listdir("/proc/self/fd")))
    for spare in range(4):
        try:
            refused = None
            with limited("NOFILE", highest + spare):
                process = server.spawn(leave, 0)
        except OSError as error:
            refused = error.errno
        if refused is None:
            ended(process)
            process.close()
        else:
            assert refused == errno.EMFILE
        assert open_descriptors().items() <= before.items()
    assert ended(server.spawn(leave, 0)) == 0


@pytest.mark.process
def test_a_dead_fork_server_is_replaced(server: ForkServer) -> None:
    process, pipe = start_sleeper(server)
    first = server.pid
    os.kill(first, signal.SIGKILL)
    assert ended(process) == -signal.SIGKILL
    assert pipe.poll(LIMIT_S)
    eventually(lambda: server._process.poll() is not None, "it is gone")
    eventually(lambda: server.tend() or server.pid != first, "there is another")
    second, pipe = start_sleeper(server)
    second.kill()
    assert ended(second) == -signal.SIGKILL


def test_a_fork_server_that_dies_at_once_is_started_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, starts = VirtualClock(), list[float]()

    class Dead:
        pid = 1

        def __init__(self, *_: Any, **__: Any) -> None:
            starts.append(clock.now())

        def poll(self) -> int:
            return 1

    monkeypatch.setattr(subprocess, "Popen", Dead)
    server = ForkServer(clock=clock)
    for _ in range(1200):
        clock.advance(0.1)
        server.tend()
    assert 8 < len(starts) < 16
    assert starts[-1] - starts[-2] > 14.0
    with pytest.raises(OSError, match="the fork server has ended"):
        server.spawn(leave, 0)


@pytest.mark.process
def test_a_stopped_fork_server_delays_no_caller_and_is_woken(server: ForkServer) -> None:
    ended(server.spawn(leave, 0))
    os.kill(server.pid, signal.SIGSTOP)
    start = time.monotonic()
    process, unwanted = server.spawn(leave, 0), server.spawn(leave, 0)
    assert (process.pid, process.exitcode) == (None, None)
    unwanted.kill()
    assert unwanted.exitcode == -signal.SIGKILL
    assert time.monotonic() - start < LIMIT_S
    server.tend()
    assert ended(process) == 0


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_fork_server_ignores_the_signals_of_a_terminal(
    light: None, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    for pause_s in (0.0, 0.01, 0.05):
        with ForkServer() as server:
            time.sleep(pause_s)
            os.kill(server.pid, number)
            assert ended(server.spawn(leave, 0)) == 0
            os.kill(server.pid, number)
            assert ended(server.spawn(leave, 0)) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.process
def test_children_ignore_sigint_and_sighup(server: ForkServer) -> None:
    *_, told = start(server, tell_signals)
    assert told == [signal.SIG_IGN, signal.SIG_DFL, signal.SIG_IGN]


@pytest.mark.process
def test_shared_objects_are_frozen_for_the_collector(shared_fork_server: ForkServer) -> None:
    *_, (enabled, frozen) = start(shared_fork_server, tell_collector)
    assert enabled
    assert frozen > 10_000


@pytest.mark.process
def test_the_end_of_a_fork_server_does_not_affect_another(light: None) -> None:
    with ForkServer() as one:
        with ForkServer() as other:
            mine, my_pipe = start_sleeper(one)
            theirs, _ = start_sleeper(other)
        assert ended(theirs) == -signal.SIGKILL
        assert mine.is_alive()
        assert not my_pipe.poll(0)


@pytest.mark.process
def test_children_end_with_the_thread_that_started_them(light: None) -> None:
    found: list[Process] = []

    def live() -> None:
        server = ForkServer()
        found.append(start_sleeper(server)[0])

    thread = threading.Thread(target=live)
    thread.start()
    thread.join()
    assert ended(found[0]) == -signal.SIGKILL


def test_the_descriptor_limit_is_raised_to_what_is_permitted() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with limited("NOFILE", min(256, hard)):
        launch.raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, launch.MOST_OPEN), hard)


@pytest.mark.process
def test_children_import_from_the_path_of_the_program(
    light: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with ForkServer(("only_here",)) as server:
        *_, told = start(server, tell_modules)
        assert "only_here" in told


@pytest.mark.process
@pytest.mark.parametrize("error", ["ImportError", "OSError"])
def test_a_module_that_cannot_be_imported_is_left_out(
    light: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: str
) -> None:
    # As torch where a library is missing: the server ended, and a run was told to look at ulimit.
    (tmp_path / "broken.py").write_text(f"raise {error}('libcudart.so: cannot open shared object')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with ForkServer(("broken",)) as server:
        assert ended(server.spawn(leave, 0)) == 0
