"""Removes the processes and files of Ray when the process that started Ray has ended.

If that process is killed, some of Ray's processes notice only after a minute that their cluster is
gone, and their files stay. So a small process, the *watcher*, waits for the end of the process that
starts Ray, the *owner*, and then kills Ray's processes and removes their files.

Why it is correct. The owner makes a session of its own (setsid(2)). A shell with job control makes
the owner the leader of a process group; a leader may not make a session, and then the group serves
as well. Descendants inherit session and group, and Ray's processes keep one of the two, or end with
the process that started them. Processes that were in the group before, such as the other commands
of a shell's pipe, are left alone. The watcher is forked before the owner makes its session, and
stays in the old group: it forwards the signals that a terminal sends to that group, such as Ctrl-C,
until the owner has ended. It waits for the end of a pipe, whose other end the kernel closes however
the owner dies; programs that the owner starts do not inherit that end. Python runs the handler of a
signal between two of its instructions, so one that comes just before a read would wait until the
read returns: the C part of a handler therefore writes to a second pipe, and the watcher waits for
both. Processes that are forked while others are being killed are found in the next round.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path

from rtagent.processes.kernel_state import fields_of

ROUNDS = 100
"""Rounds of killing, at most: a process that cannot be killed must not keep the watcher."""
GROUP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""Signals that a terminal or a shell sends to a group to end it."""
_folders: dict[int, Path] = {}
"""Folder by owner. A process that is forked from an owner inherits the entry, and is no owner."""


def end_descendants_with_this_process() -> Path:
    """Have the processes that this one starts from now on killed when it ends.

    Called while this process has a single thread; a second call does nothing.

    Returns:
        A folder for their files, which is removed after them; at a second call the same folder.

    Raises:
        OSError: there is no room for the folder, or for one more process.
    """
    owner = os.getpid()
    if owner not in _folders:
        folder = Path(tempfile.mkdtemp(prefix="rtagent-"))
        try:
            _start_watcher(owner, folder)
        except OSError:
            folder.rmdir()
            raise
        _folders[owner] = folder
    return _folders[owner]


def _start_watcher(owner: int, folder: Path) -> None:
    """Fork the watcher, and begin a session; raises OSError if there is no room for a process."""
    spared = set(_members(owner))
    read_end, write_end = os.pipe()
    # Signals wait until the watcher forwards them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        if os.fork() == 0:
            try:
                os.close(write_end)
                _wait(read_end, owner, before)
                _kill_all(owner, spared | {os.getpid()})
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os._exit(0)
    except OSError:
        os.close(write_end)
        raise
    else:
        with contextlib.suppress(PermissionError):
            os.setsid()
    finally:
        os.close(read_end)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(pipe: int, owner: int, mask: set[int]) -> None:
    """Wait for the end of the pipe, and so of the owner; signals do not end or stop the watcher."""
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    both = select.poll()
    both.register(pipe, select.POLLHUP)
    both.register(woken, select.POLLIN)
    for number in GROUP_SIGNALS:
        signal.signal(number, partial(_forward, owner))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    while pipe not in dict(both.poll()):
        os.read(woken, 1)
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _forward(owner: int, number: int, _: object) -> None:
    """Send a signal to the owner, unless the owner is in this group and has it already."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(owner) != os.getpgrp():
            os.kill(owner, number)


def _kill_all(owner: int, spared: set[int]) -> None:
    for _ in range(ROUNDS):
        found = [pid for pid in _members(owner) if pid not in spared]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _members(owner: int) -> list[int]:
    """The processes of the session or the group whose leader the owner is, or was."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in numbers if owner in _group_and_session(pid)]


def _group_and_session(pid: int) -> tuple[int, ...]:
    """Group and session of a process; empty if it is gone, or has ended and waits to be reaped."""
    fields = fields_of(Path(f"/proc/{pid}/stat"))
    return () if fields[:1] in ([], ["Z"]) else (int(fields[2]), int(fields[3]))
