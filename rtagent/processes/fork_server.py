"""The fork server: has imported torch once, and forks every child of a run.

Why it is correct. It has one thread and has run no torch operation, so a fork of it is whole. A
request is one packet of a socket whose other end its owner alone holds: the packet brings the
descriptor of what to run and a pipe for the answers, so a request arrives whole or not at all. A
refused fork, or a lack of descriptors, is an answer; nothing but the end of its owner ends the
loop. The server and its children arm the kernel's death signal: the server dies with the thread
that started it, and its children die with it. It ignores the signals that a terminal or a shell
sends to a whole group (SIGINT, SIGTERM, SIGHUP): its owner decides when the children end, and has
checkpoints written first.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Sequence

from rtagent.processes.scheduling import die_with_parent

MOST_DESCRIPTORS = 64
"""Most descriptors in one request."""
ANSWER = struct.Struct("q")
"""Two answers to each request: the pid, or minus the number of the error; later the exit code."""
FOR_THE_OWNER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_inherited: list[int] = []


class Inherited:
    """A descriptor that comes with a request, as `multiprocess` pickles one.

    Args:
        index: among those of the request.
    """

    def __init__(self, index: int) -> None:
        self._index = index

    def detach(self) -> int:
        """The descriptor, in the child."""
        return _inherited[self._index]


def main(descriptor: int, owner: int, preload: Sequence[str]) -> None:
    """The life of the fork server.

    Args:
        descriptor: of the socket that requests come from.
        owner: pid of the process that sends them.
        preload: modules to import first; those that cannot be imported are left out.
    """
    for number in FOR_THE_OWNER:
        signal.signal(number, signal.SIG_IGN)
    # The owner has blocked them, so that none could end this process until now.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_THE_OWNER)
    die_with_parent(owner)
    # Imports make hundreds of thousands of objects, and hardly any of them is garbage.
    gc.disable()
    for name in preload:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # The collector writes into every object that it visits: 30 MB of modules that all children
    # share would be copied, at some time or other.
    gc.freeze()
    gc.enable()
    _Server(socket.socket(fileno=descriptor)).serve()


class _Server:
    """The loop of the fork server."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._pid = os.getpid()
        self._pipes: dict[int, int] = {}
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Fork the children that are requested, and report their ends, until the owner is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        news = select.poll()
        news.register(self._requests, select.POLLIN)
        news.register(self._wake, select.POLLIN)
        while True:
            for descriptor, _ in news.poll():
                if descriptor == self._wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                    self._reap()
                elif not self._take():
                    return

    def _take(self) -> bool:
        """Carry out a request; false if the owner is gone."""
        packet, descriptors, _, _ = socket.recv_fds(self._requests, 1, MOST_DESCRIPTORS)
        if not packet:
            return False
        # With no descriptor free the kernel cuts the list short. The owner then finds that the pipe
        # for the answers is closed.
        if len(descriptors) == packet[0]:
            self._fork(*descriptors)
        for each in descriptors:
            if each not in self._pipes.values():
                os.close(each)
        return True

    def _fork(self, pipe: int, body: int, *inherited: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            _answer(pipe, -(error.errno or 1))
            return
        if pid == 0:
            self._become_child(pipe, body, inherited)
        if _answer(pipe, pid):
            self._pipes[pid] = pipe
        else:
            # The owner has given it up.
            os.kill(pid, signal.SIGKILL)

    def _become_child(self, pipe: int, body: int, inherited: Sequence[int]) -> None:
        """Run what was requested, and end."""
        code = 1
        try:
            die_with_parent(self._pid)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._requests.close()
            for each in (self._wake, self._waker, pipe, *self._pipes.values()):
                os.close(each)
            _inherited[:] = inherited
            with open(body, "rb") as file:
                file.seek(0)
                target, arguments = pickle.load(file)
            target(*arguments)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            with contextlib.suppress(Exception):
                traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            pipe = self._pipes.pop(pid, None)
            if pipe is not None:
                _answer(pipe, os.waitstatus_to_exitcode(status))
                os.close(pipe)


def _answer(pipe: int, number: int) -> bool:
    """Write an answer; whether the owner still holds its end of the pipe."""
    try:
        os.write(pipe, ANSWER.pack(number))
    except ConnectionError:
        return False
    return True
