"""What children of a fork server do in tests; imports next to nothing."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from typing import Any

from rtagent.errors import UserError


def sleep(pipe: Any) -> None:
    """Says that it lives, and lives on."""
    pipe.send(os.getpid())
    time.sleep(3600)


def start_simulator(pipe: Any, *ignored: Any) -> None:
    """Starts a process that starts another, says which they are, and lives on."""
    command = ["sh", "-c", "sleep 600 & echo $!; wait"]
    shell = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    pipe.send([shell.pid, int(shell.stdout.readline())])
    time.sleep(3600)


def leave(code: int | None) -> None:
    """Ends in order."""
    sys.exit(code)


def fail() -> None:
    """Ends with a traceback."""
    raise ValueError("on purpose")


def tell_signals(pipe: Any) -> None:
    """Says what this child does on SIGINT, SIGTERM and SIGHUP."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    pipe.send([signal.getsignal(number) for number in numbers])


def tell_modules(pipe: Any) -> None:
    """Says what it has imported."""
    pipe.send(sorted(sys.modules))


def tell_collector(pipe: Any) -> None:
    """Says whether garbage is collected, and how many objects the collector leaves alone."""
    pipe.send((gc.isenabled(), gc.get_freeze_count()))


def answer(value: Any, doing: Any) -> Any:
    """Answers the supervisor that starts."""
    return value


def refuse(reason: str, doing: Any) -> None:
    """Refuses to go on."""
    raise UserError(reason)


def fail_at_once(doing: Any) -> None:
    """Ends with an error that nobody foresaw."""
    raise RuntimeError("no such\nkernel")


def get_signal_while_answering(number: int, doing: Any) -> list[Any]:
    """Gets a signal when half of the answer is written."""
    return [bytes(1 << 20), _Signalled(number)]


class _Signalled:
    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), self._number)
        return bytes, ()


def end_silently(code: int, doing: Any) -> None:
    """Ends without an answer."""
    sys.exit(code)


def hang_somewhere(what: str, doing: Any) -> None:
    """Says what it does next, and never answers."""
    doing(what)
    hang()


def hang(*ignored: Any) -> None:
    """Never answers."""
    time.sleep(3600)
