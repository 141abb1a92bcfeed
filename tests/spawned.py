"""What children of a fork server do in tests; imports next to nothing."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any


def sleep(voice: Any) -> None:
    """Says that it lives, and lives on."""
    voice.send(os.getpid())
    time.sleep(3600)


def leave(code: int | None) -> None:
    """Ends in order."""
    sys.exit(code)


def fail() -> None:
    """Ends with a traceback."""
    raise ValueError("on purpose")


def tell_signals(voice: Any) -> None:
    """Says what this child does on SIGINT, SIGTERM and SIGHUP."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    voice.send([signal.getsignal(number) for number in numbers])


def tell_modules(voice: Any) -> None:
    """Says what it has imported."""
    voice.send(sorted(sys.modules))


def answer(value: Any, voice: Any) -> None:
    """Answers, as a child of `boot` does."""
    voice.send(value)


def end_silently(code: int, voice: Any) -> None:
    """Ends without an answer."""
    sys.exit(code)


def hang(*ignored: Any) -> None:
    """Never answers."""
    time.sleep(3600)
