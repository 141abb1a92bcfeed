"""What the kernel grants a process on the wall clock. In children: none of it is undone easily."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rtagent.errors import UserError
from rtagent.processes import scheduling
from rtagent.processes.scheduling import (
    ACTING_NICE,
    FIFO_PRIORITY,
    LEAST_NICE,
    SERVICE_NICE,
    STEP_BACK_NICE,
    SUPERVISOR_NICE,
    die_with_parent,
    enter_idle,
    enter_realtime,
    fifo_permitted,
    leave_idle,
    leave_realtime,
    prefer_acting,
    prefer_service,
    prefer_supervisor,
    sharpen_timers,
    spare_or_sacrifice,
    step_back,
)
from tests.forked import LIMIT_S, Forked
from tests.refused import one_line

pytestmark = pytest.mark.process
NOBODY = 65534
PR_GET_TIMERSLACK = 30
PR_SET_DUMPABLE = 4

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def _this_process_stays_as_it_is() -> Iterator[None]:
    before = os.sched_getscheduler(0)
    yield
    assert os.sched_getscheduler(0) == before


def unprivileged(body: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for each in (resource.RLIMIT_RTPRIO, resource.RLIMIT_NICE):
            resource.setrlimit(each, (0, 0))
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        body()

    return run


@pytest.fixture
def fifo(forked: Forked) -> None:
    """Skips a test where the machine refuses SCHED_FIFO even to root."""

    def take() -> None:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))

    if forked.run(take):
        pytest.skip("this machine refuses SCHED_FIFO even to root")


@as_root
@pytest.mark.parametrize("mode", ["auto", "on"])
def test_root_gets_realtime_priority(forked: Forked, fifo: None, mode: str) -> None:
    def enter() -> None:
        assert fifo_permitted()
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        assert enter_realtime(mode)
        assert os.sched_getscheduler(0) == os.SCHED_FIFO
        assert os.sched_getparam(0).sched_priority == FIFO_PRIORITY

    assert forked.run(enter) == 0


@as_root
def test_realtime_on_needs_the_permission_and_auto_goes_on_without(forked: Forked) -> None:
    def enter() -> None:
        assert not fifo_permitted()
        assert not enter_realtime("auto")
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        with one_line("realtime priority is not permitted", "--realtime auto"):
            enter_realtime("on")

    assert forked.run(unprivileged(enter)) == 0


@as_root
@pytest.mark.parametrize(("lock", "capable"), [
    (Mock(return_value=-1), True),
    # Up to a limit the kernel would lock what there is, and refuse what is mapped later.
    (Mock(side_effect=AssertionError("locked")), False),
])
def test_realtime_on_needs_locked_memory_too_and_auto_goes_on_without(
    forked: Forked, fifo: None, lock: Mock, capable: bool
) -> None:
    def enter() -> None:
        # Grants everything else.
        kernel = SimpleNamespace(mlockall=lock, prctl=lambda *arguments: 0)
        scheduling._libc = lambda: kernel  # type: ignore[assignment,return-value]
        scheduling._capable = lambda capability: capable
        with pytest.raises(UserError, match=r"locking memory is not permitted.* the memlock limit"):
            enter_realtime("on")
        assert enter_realtime("auto")

    assert forked.run(enter) == 0


def test_realtime_off_asks_for_nothing(forked: Forked) -> None:
    def enter() -> None:
        assert not enter_realtime("off")
        assert os.sched_getscheduler(0) == os.SCHED_OTHER

    assert forked.run(enter) == 0


@pytest.mark.parametrize("as_nobody", [False, pytest.param(True, marks=as_root)])
def test_idle_priority_needs_no_permission(forked: Forked, as_nobody: bool) -> None:
    def enter() -> None:
        enter_idle()
        assert os.sched_getscheduler(0) == os.SCHED_IDLE

    assert forked.run(unprivileged(enter) if as_nobody else enter) == 0


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.ENOSYS])
def test_what_a_sandbox_refuses_is_not_used(forked: Forked, number: int) -> None:
    """Every learner died of it, again and again."""

    def refuse(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    def without_policies() -> None:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        os.sched_setscheduler = refuse
        assert not fifo_permitted()
        assert not enter_realtime("auto")
        with one_line("realtime priority is not permitted"):
            enter_realtime("on")
        # Children would inherit a nice value that no policy keeps from them.
        assert not prefer_supervisor()
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
        leave_realtime()
        enter_idle()
        assert os.getpriority(os.PRIO_PROCESS, 0) == LEAST_NICE

    def without_any() -> None:
        os.sched_setscheduler = os.setpriority = refuse
        assert not prefer_acting("auto")
        assert not prefer_service()
        assert not prefer_supervisor()
        step_back()
        enter_idle()

    assert [forked.run(body) for body in (without_policies, without_any)] == [0, 0]


@as_root
def test_a_process_leaves_realtime_priority(forked: Forked, fifo: None) -> None:
    def leave() -> None:
        enter_realtime("auto")
        leave_realtime()
        assert os.sched_getscheduler(0) == os.SCHED_OTHER

    assert forked.run(leave) == 0


@pytest.mark.parametrize("permitted", [pytest.param(True, marks=as_root), False])
def test_who_is_to_end_leaves_idle_priority_where_that_is_permitted(
    forked: Forked, permitted: bool
) -> None:
    def leave() -> None:
        over = threading.Event()
        enter_idle()
        thread = threading.Thread(target=over.wait)
        thread.start()
        leave_idle(os.getpid())
        policy = os.SCHED_OTHER if permitted else os.SCHED_IDLE
        assert os.sched_getscheduler(0) == policy
        assert os.sched_getscheduler(thread.native_id or 0) == policy
        over.set()

    assert forked.run(leave if permitted else unprivileged(leave)) == 0


def test_others_have_no_idle_priority_to_leave(forked: Forked) -> None:
    def leave() -> None:
        before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
        leave_idle(os.getpid())
        assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before

    assert forked.run(leave) == 0
    gone = forked.start(lambda: None)
    forked.wait(gone)
    leave_idle(gone)


def test_timers_are_sharpened(forked: Forked) -> None:
    def look() -> None:
        sharpen_timers()
        slack = ctypes.CDLL(None).prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)
        assert slack == 1000

    assert forked.run(look) == 0


def test_dies_with_its_parent(forked: Forked) -> None:
    reader, writer = os.pipe()

    def parent() -> None:
        own = os.getpid()
        if os.fork() == 0:
            die_with_parent(own)
            os.write(writer, b"x")
            signal.pause()
        signal.pause()

    pid = forked.start(parent)
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    forked.kill(pid)
    # The pipe's other end was the dead processes'; else there is nothing to read.
    assert select.select([reader], [], [], LIMIT_S)[0]
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_parent_that_is_gone_already(forked: Forked) -> None:
    assert forked.run(lambda: die_with_parent(os.getpid())) == 1


@as_root
def test_acting_is_preferred_where_that_is_permitted(forked: Forked) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)

    def preferred() -> None:
        assert prefer_acting("auto")
        assert os.getpriority(os.PRIO_PROCESS, 0) == ACTING_NICE

    def left_alone() -> None:
        assert not prefer_acting("off")
        assert os.getpriority(os.PRIO_PROCESS, 0) == before

    def refused() -> None:
        assert not prefer_acting("auto")
        assert os.getpriority(os.PRIO_PROCESS, 0) == before

    bodies = (preferred, left_alone, unprivileged(refused))
    assert [forked.run(body) for body in bodies] == [0, 0, 0]


def test_a_thread_steps_back_alone(forked: Forked) -> None:
    def step() -> None:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        found: list[int] = []

        def back() -> None:
            step_back(threading.get_native_id())
            found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

        thread = threading.Thread(target=back)
        thread.start()
        thread.join()
        assert found == [min(before + STEP_BACK_NICE, 19)]
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
        step_back()
        assert os.getpriority(os.PRIO_PROCESS, 0) == found[0]

    assert forked.run(unprivileged(step)) == 0


def test_the_out_of_memory_score(forked: Forked) -> None:
    def scored() -> None:
        assert spare_or_sacrifice(300)
        with open("/proc/self/oom_score_adj") as file:
            assert int(file.read()) == 300

    def refused() -> None:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        assert spare_or_sacrifice(300)
        # Back to what it was given: that is permitted; beyond that it is not.
        assert not spare_or_sacrifice(-900)

    assert [forked.run(body) for body in (scored, refused)] == [0, 0]


@as_root
def test_the_supervisor_goes_first_and_what_it_starts_does_not_inherit(forked: Forked) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)

    def child_s_nice() -> int:
        command = [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    def supervisor() -> None:
        assert prefer_supervisor()
        assert os.getpriority(os.PRIO_PROCESS, 0) == SUPERVISOR_NICE < ACTING_NICE
        assert child_s_nice() == 0

    def service() -> None:
        assert prefer_service()
        assert os.getpriority(os.PRIO_PROCESS, 0) == SERVICE_NICE < ACTING_NICE

    def permitted_as_much_as_acting() -> None:
        really = os.setpriority

        def limited(which: int, who: int, nice: int) -> None:
            if nice < ACTING_NICE:
                raise PermissionError
            really(which, who, nice)

        os.setpriority = limited
        assert prefer_supervisor()
        assert os.getpriority(os.PRIO_PROCESS, 0) == ACTING_NICE

    def refused() -> None:
        assert not prefer_supervisor()
        assert not prefer_service()
        assert os.getpriority(os.PRIO_PROCESS, 0) == before

    bodies = (supervisor, service, permitted_as_much_as_acting, unprivileged(refused))
    assert [forked.run(body) for body in bodies] == [0, 0, 0, 0]
