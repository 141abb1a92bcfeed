"""Child processes for tests: forked, so that a test's functions and shared memory are at hand."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from rtagent.processes.scheduling import die_with_parent

LIMIT_S = 180.0


class Forked:
    """The children of one test; none outlives it."""

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def start(self, body: Callable[[], object]) -> int:
        """Fork; the child runs `body` and leaves with 0, or with 1 and a traceback."""
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self._pids.add(pid)
            return pid
        code = 1
        try:
            die_with_parent(parent)
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def start_ready(self, body: Callable[[Callable[[], object]], object]) -> int:
        """Start, and wait until the child calls what its body is given. Fails if it ends before."""
        heard, said = os.pipe()
        pid = self.start(lambda: body(lambda: os.write(said, b"!")))
        # Now the child alone has this end, which is closed when it ends.
        os.close(said)
        ready = select.select([heard], [], [], LIMIT_S)[0] and os.read(heard, 1)
        os.close(heard)
        assert ready, f"child {pid} has ended, or takes more than {LIMIT_S} s"
        return pid

    def wait(self, pid: int, limit_s: float = LIMIT_S) -> int:
        """Exit code of a child, minus the signal that ended it."""
        descriptor = os.pidfd_open(pid)
        try:
            ended, _, _ = select.select([descriptor], [], [], limit_s)
        finally:
            os.close(descriptor)
        if not ended:
            raise TimeoutError(f"child {pid} still runs after {limit_s} s")
        _, status = os.waitpid(pid, 0)
        self._pids.discard(pid)
        return os.waitstatus_to_exitcode(status)

    def run(self, body: Callable[[], object]) -> int:
        """Start and wait."""
        return self.wait(self.start(body))

    def kill(self, pid: int) -> int:
        """SIGKILL and wait."""
        os.kill(pid, signal.SIGKILL)
        return self.wait(pid)

    def close(self) -> None:
        """Kill who is left."""
        for pid in list(self._pids):
            with contextlib.suppress(ProcessLookupError):
                self.kill(pid)


@contextlib.contextmanager
def forked_children() -> Iterator[Forked]:
    """Children that end with the block."""
    children = Forked()
    try:
        yield children
    finally:
        children.close()


def eventually(condition: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
    """Whether the condition holds within the time limit; looked at every half millisecond.

    For what a few processes of one test do. For whole daemons: `tests.conftest.eventually`.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0005)
    return True


@contextlib.contextmanager
def at_each_line(traced: Callable[[CodeType], bool], reached: Callable[[], None]) -> Iterator[None]:
    """Calls `reached` before each line of the functions whose code is traced."""

    def inside(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            reached()
        return inside

    def outside(frame: FrameType, event: str, arg: Any) -> Any:
        return inside if traced(frame.f_code) else None

    before = sys.gettrace()
    sys.settrace(outside)
    try:
        yield
    finally:
        sys.settrace(before)
