"""The robust lock: exact under contention, and never held by the dead."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from rtagent.memory.arena import Arena
from rtagent.memory.robust_lock import RobustLock
from tests.forked import Forked

pytestmark = pytest.mark.process
CONTENDERS = 4
CLAIMS = 3000


@pytest.fixture
def arena(make_arena: Callable[..., Arena]) -> Arena:
    return make_arena(1)


@pytest.fixture
def words(shared: Callable[[int], memoryview]) -> np.ndarray:
    return np.frombuffer(shared(4096), np.int64)


@pytest.fixture
def lock(arena: Arena) -> Iterator[RobustLock]:
    found = RobustLock(arena.handle)
    yield found
    found.close()


def test_exact_count(arena: Arena, words: np.ndarray, forked: Forked) -> None:
    def claim() -> None:
        own = RobustLock(arena.handle)
        while not words[1]:
            pass
        for _ in range(CLAIMS):
            with own:
                words[0] = words[0] + 1

    pids = [forked.start(claim) for _ in range(CONTENDERS)]
    words[1] = 1
    assert [forked.wait(pid) for pid in pids] == [0] * CONTENDERS
    assert words[0] == CONTENDERS * CLAIMS


@pytest.mark.parametrize("stopped", [False, True])
def test_nobody_waits_for_a_holder_whose_lock_is_free_once_it_is_killed(
    arena: Arena, lock: RobustLock, forked: Forked, stopped: bool
) -> None:
    def hold(ready: Callable[[], object]) -> None:
        with RobustLock(arena.handle):
            ready()
            signal.pause()

    pid = forked.start_ready(hold)
    if stopped:
        os.kill(pid, signal.SIGSTOP)
    assert not any(lock.try_enter() for _ in range(100))
    os.kill(pid, signal.SIGKILL)
    with lock:
        pass
    assert forked.wait(pid) == -signal.SIGKILL


def test_try_enter_holds_until_exit_or_until_its_holder_raises(
    arena: Arena, lock: RobustLock, is_free: Callable[[Arena], bool]
) -> None:
    assert lock.try_enter()
    # As the supervisor does: the lock is its own already.
    with lock:
        assert not is_free(arena)
    assert is_free(arena)
    with pytest.raises(ZeroDivisionError), lock:
        _ = 1 / 0
    assert is_free(arena)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_lock_that_is_taken_is_not_an_error(
    lock: RobustLock, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """POSIX leaves both to the system."""

    def refuse(*arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    assert not lock.try_enter()
