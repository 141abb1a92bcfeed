"""The one place that starts processes.

Why it is correct. Every child is forked by a fork server (`fork_server.py`), which has one thread
and has run no torch operation. Each run has its own, so the end of one run does not affect another
in the same program. The death signal is armed per *thread*: the fork server dies when the thread
that started it ends, so `ForkServer` belongs to the supervisor's thread, which lives as long as the
supervisor does.

Nothing here waits but `join` and `stop`. `spawn` leaves a request in a socket; the pid, a refusal
and the exit code come through a pipe of the child's own, which is read when they are asked for. So
a fork server that is still importing, is stopped, or dies delays no other process: its children
count as ended when the pipe closes, and `tend` wakes it or starts another. The pipe is a pair of
sockets, which can refuse further answers and give those that have come: either the owner finds the
pid of a child that it gives up, or the fork server finds that nobody wants this child.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from multiprocess import connection, reduction, util
from multiprocess.context import set_spawning_popen

from rtagent.clock import Clock, MonotonicClock
from rtagent.errors import LIMITS, UserError
from rtagent.processes.fork_server import ANSWER, FOR_THE_OWNER, MOST_DESCRIPTORS, Inherited
from rtagent.processes.kernel_state import descendants
from rtagent.processes.restart_policy import RestartPolicy
from rtagent.processes.scheduling import leave_idle

PRELOAD = "rtagent.processes.preload"
CHILD_ENV = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
}
"""Environment variables of every child, unless the user has set them.

torch would use two threads per worker. glibc's malloc gives the free end of its heap back to the
system for its first arena alone, and a thread whose allocation fails moves to another arena: what a
learner frees would then stay with it, just when memory is short.
"""
MOST_OPEN = 65_536
"""Limit of descriptors that is wanted: enough for hundreds of processes and connections."""
STOP_LIMIT_S = 10.0
"""How long a killed fork server may take to end."""
REFUSED = 71
"""Exit code of a process that could not be started (`EX_OSERR` of sysexits.h)."""


def module_command(name: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment variables that run a module, with the modules of this process.

    With `-m` alone a file of the working directory would take the place of an installed module.
    """
    return [sys.executable, "-P", "-m", name], {**os.environ, "PYTHONPATH": module_path()}


def module_path() -> str:
    """`PYTHONPATH` of a process that is to find the modules of this process."""
    return os.pathsep.join(entry or os.getcwd() for entry in _searched())


def _searched() -> list[str]:
    """The entries of `sys.path` that count: Python ignores what is no text, such as a `Path`."""
    return [entry for entry in sys.path if isinstance(entry, str)]


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL; a realtime signal may have only its number."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def exit_code(code: int | None) -> str:
    """The exit code of a process that has ended by itself, with what SIGKILL mostly means then."""
    killed = code == -signal.SIGKILL
    return f"exit code {code}" + ": killed, as by the kernel where memory runs out" * killed


class Process:
    """A child of the fork server, as its owner sees it.

    Args:
        answers: descriptor of our end of the pipe that the fork server answers through.

    Attributes:
        failure: why it could not be started, or that it ended with the fork server; else None.
    """

    def __init__(self, answers: int) -> None:
        self.failure: str | None = None
        self._answers = answers
        self._pid: int | None = None
        self._exitcode: int | None = None
        os.set_blocking(answers, False)

    @property
    def pid(self) -> int | None:
        """Its process id; None as long as the fork server has not answered."""
        self._listen()
        return self._pid

    @property
    def exitcode(self) -> int | None:
        """Minus the signal that ended it; None while it lives."""
        self._listen()
        return self._exitcode

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable when `pid` or `exitcode` may have changed."""
        return self._answers

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.exitcode is None

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self, *, whole_tree: bool = False) -> None:
        """End it.

        Args:
            whole_tree: whether to end the processes that it has started, too.
        """
        self.leave_idle()
        # Once it has ended, nothing tells whose they are.
        pid = self._pid if whole_tree and self.is_alive() else None
        started = [] if pid is None else descendants(pid)
        self._signal(signal.SIGKILL)
        for each in started:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)

    def leave_idle(self) -> None:
        """Let it run like others, for it is to end soon."""
        if self.is_alive() and self._pid is not None:
            leave_idle(self._pid)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended; at most `timeout` seconds for each answer, if that is given."""
        while self.is_alive() and connection.wait([self._answers], timeout):
            pass

    def close(self) -> None:
        """Give up the pipe; `exitcode` stays as it is."""
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1

    def _signal(self, number: int) -> None:
        if not self.is_alive():
            return
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)
        else:
            self._give_up()
            self._exitcode = -number

    def _give_up(self) -> None:
        """End a process whose pid is not known: most probably it does not exist yet."""
        with socket.socket(fileno=self._answers) as answers:
            self._answers = -1
            answers.shutdown(socket.SHUT_RD)
            told = answers.recv(2 * ANSWER.size)
        # The fork server ends a process whose pid it cannot tell. This one it has told just now.
        if len(told) == ANSWER.size and (pid := ANSWER.unpack(told)[0]) > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _listen(self) -> None:
        """Read the answers of the fork server."""
        while self._exitcode is None:
            try:
                said = os.read(self._answers, ANSWER.size)
            except BlockingIOError:
                return
            if not said:
                # The fork server is gone, and its children with it; or it had no descriptor free.
                self._exitcode = -signal.SIGKILL if self._pid else REFUSED
                self.failure = "the fork server has ended, or ran out of descriptors"
                return
            (number,) = ANSWER.unpack(said)
            if self._pid is not None:
                self._exitcode = number
            elif number > 0:
                self._pid = number
            else:
                self._exitcode, self.failure = REFUSED, f"no process: {os.strerror(-number)}"


class ForkServer:
    """Forks children that have everything imported. To be used by one thread alone, see above.

    Args:
        preload: further modules to import once.
        clock: for the pauses between starts. If None, the real one.
    """

    def __init__(self, preload: Sequence[str] = (), clock: Clock | None = None) -> None:
        self._preload = (PRELOAD, *preload)
        self._clock = clock or MonotonicClock()
        self._policy = RestartPolicy()
        self._started_at = self._clock.now()
        self._start_at: float | None = None
        raise_descriptor_limit()
        try:
            self._start()
        except OSError as error:
            raise UserError(f"no process can be started: {error.strerror}; {LIMITS}") from None

    @property
    def pid(self) -> int:
        """Pid of the process that forks the children."""
        return self._process.pid

    def spawn(self, target: Callable[..., None], *args: Any) -> Process:
        """Start a child process: a function at module level, with picklable arguments.

        Raises:
            OSError: there are too few descriptors, or the fork server does not keep up.
        """
        if self._start_at is not None:
            raise OSError(errno.EPIPE, "the fork server has ended, and is started again soon")
        descriptors: list[int] = []
        body = os.memfd_create("rtagent-call", os.MFD_CLOEXEC)
        try:
            with open(body, "wb", closefd=False) as file:
                set_spawning_popen(_Sending(descriptors))
                try:
                    reduction.dump((target, args), file)
                finally:
                    set_spawning_popen(None)
            answers, pipe = (end.detach() for end in socket.socketpair())
            try:
                self._send([pipe, body, *descriptors])
            except BaseException:
                os.close(answers)
                raise
            finally:
                os.close(pipe)
        finally:
            os.close(body)
        return Process(answers)

    def tend(self) -> None:
        """Wake the fork server if it was stopped; start another if it has died.

        Those that die soon are started further and further apart. If the system refuses a start,
        the next call tries again.
        """
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                # This does nothing to a process that is not stopped.
                os.kill(self._process.pid, signal.SIGCONT)
            return
        now = self._clock.now()
        if self._start_at is None:
            self._socket.close()
            ran_s = now - self._started_at
            self._start_at = self._policy.next_start(self._started_at, ran_s, jitter=0.0)
        if now >= self._start_at:
            with contextlib.suppress(OSError):
                self._start()
                self._started_at, self._start_at = now, None

    def stop(self) -> None:
        """End the fork server, and with it all children that are left."""
        # It has nothing to save, and an orderly exit would take seconds to unload torch.
        self._process.kill()
        # One that hangs in the kernel, while it imports over a network, is left behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT_S)
        self._socket.close()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        """Start the server; it goes on importing while this process does other things."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        program = (
            f"import sys; sys.path[:] = {_searched()!r}; "
            "from rtagent.processes.fork_server import main; "
            f"main({theirs.fileno()}, {os.getpid()}, {self._preload!r})"
        )
        command = [sys.executable, *util._args_from_interpreter_flags(), "-c", program]
        # Python prints a traceback for a Ctrl-C that comes before its first line is run.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_OWNER)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                env={**CHILD_ENV, **os.environ},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._socket = ours

    def _send(self, descriptors: Sequence[int]) -> None:
        if len(descriptors) > MOST_DESCRIPTORS:
            raise OSError(errno.EMFILE, "too many descriptors for one process")
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        self._socket.sendmsg([bytes([len(descriptors)])], [rights])


class _Sending:
    """Collects the descriptors of the objects that are being pickled.

    This is the interface that `multiprocess` expects of what starts a process.
    """

    DupFd = Inherited

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors

    def duplicate_for_child(self, descriptor: int) -> int:
        """The number by which the child finds it: the argument of `DupFd`."""
        self._descriptors.append(descriptor)
        return len(self._descriptors) - 1


def raise_descriptor_limit() -> None:
    """Raise the descriptor limit of this process and its children as far as permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
