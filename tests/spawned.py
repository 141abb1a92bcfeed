"""What children of a fork server do in tests; imports next to nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any


def sleep(pipe: Any) -> None:
    """Says that it lives, and lives on."""
    pipe.send(os.getpid())
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


def answer(value: Any, pipe: Any) -> None:
    """Answers, as a child of `boot` does."""
    pipe.send(value)


def end_silently(code: int, pipe: Any) -> None:
    """Ends without an answer."""
    sys.exit(code)


def hang_somewhere(what: str, pipe: Any) -> None:
    """Says what it does next, and never answers."""
    pipe.send(("doing", what))
    hang()


def hang(*ignored: Any) -> None:
    """Never answers."""
    time.sleep(3600)
