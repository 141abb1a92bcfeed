"""What Ray leaves behind when the process that started it is killed.

Some of Ray's processes notice that their cluster is gone after a minute only, and nobody removes
their files. So a small process waits for the end of the one that starts Ray, and then kills and
removes whatever it has left.

Why it is correct. The process that starts Ray makes a session of its own (setsid(2)). Where it may
not, as a shell with job control has made it the leader of a process group, that group is as good:
descendants inherit both, and Ray's own keep one of them, or end with the process that started them.
Whoever was in the group before, as the other end of a shell's pipe, is left alone. The process that
waits is forked before that, and stays in the group that the other leaves: what a terminal sends to
that group, as Ctrl-C, it hands on, until the other has ended. The wait is for the end of a pipe,
whose other end the kernel closes however its holder dies; that end is not handed on to programs
that are started. Processes that are born while others are being killed are found in the next round.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from functools import partial
from pathlib import Path

ROUNDS = 100
"""Looks for who is left, at most: a process that cannot be killed must not keep this one."""
FOR_THE_GROUP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""What a terminal or a shell sends to a group so that it ends."""
_watched: dict[int, Path] = {}
"""The process for which somebody waits, and its folder: this one, or the one that it was forked
from."""


def end_descendants_with_this_process() -> Path:
    """Have every process that is started from here on killed when this one ends.

    Called while this process has a single thread; a second call does nothing.

    Returns:
        A new folder for their files, which is removed after them; at a second call the same.
    """
    owner = os.getpid()
    if owner in _watched:
        return _watched[owner]
    folder = _watched[owner] = Path(tempfile.mkdtemp(prefix="rtagent-"))
    spared = set(_members(owner))
    waits, held = os.pipe()
    # What comes before somebody hands it on waits until then.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_THE_GROUP)
    if os.fork() == 0:
        try:
            os.close(held)
            _wait(waits, owner, before)
            _kill_all(owner, spared | {os.getpid()})
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os._exit(0)
    os.close(waits)
    with contextlib.suppress(PermissionError):
        os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return folder


def _wait(pipe: int, owner: int, mask: set[int]) -> None:
    """Wait for the end of a pipe, and so of its owner; nothing else ends or stops this process."""
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    for number in FOR_THE_GROUP:
        signal.signal(number, partial(_hand_on, owner))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    while os.read(pipe, 1):
        pass
    for number in FOR_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)


def _hand_on(owner: int, number: int, _: object) -> None:
    """Send the owner a signal, unless it was sent to its own group."""
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
    """The processes of the session or the group that a process leads, or has led."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in numbers if owner in _group_and_session(pid)]


def _group_and_session(pid: int) -> tuple[int, ...]:
    """Of a process; nothing: it is gone, or has ended and waits to be reaped."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return () if words[0] == "Z" else (int(words[2]), int(words[3]))
    except (OSError, ValueError, IndexError):
        return ()
