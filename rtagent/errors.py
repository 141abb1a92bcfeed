"""Errors that a user can mend: one clear line each, never a traceback."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

LIMITS = "look at `ulimit -u`, `ulimit -n`, `ulimit -v` and the limits of the control group"
"""What to do where the system gives no process, thread, descriptor or address space."""


class UserError(Exception):
    """Bad input or a machine that cannot do what was asked.

    The message is one line that names the cause and what to do about it. The command line prints
    it and exits with code 2; the HTTP service answers it as a 4xx problem.
    """


def remedy_of(error: Exception) -> str:
    """The end of a line about an import: what to do if a module is not found; else empty."""
    missing = isinstance(error, ModuleNotFoundError)
    return "; install it, or put its folder on PYTHONPATH" if missing else ""


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its type if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def typed_line(error: BaseException) -> str:
    """The type of an error, and the first line of what it says if it says anything."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"


def reason_of(error: BaseException) -> str:
    """What the system says of an error, without number and file; of any other its first line."""
    return str(getattr(error, "strerror", None) or first_line(error))


_PACKAGES = tuple(f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib"))
_PYTHON = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_OURS = tuple(
    f"{Path(__file__).parents[1] / name}/" for name in ("rtagent", "service", "benchmarks")
)


def place_of(error: BaseException) -> str:
    """Where an error was raised, as " (file.py:11)"; empty if in Python or rtagent alone.

    That is the innermost call of the user's own code. If there is none, and the error says nothing,
    it is that of an installed package.
    """
    places = {False: "", True: ""}
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        installed = file.startswith(_PACKAGES)
        if not file.startswith(("<", *_OURS)) and (installed or not file.startswith(_PYTHON)):
            places[installed] = f" ({file}:{line})"
    return places[False] or (places[True] if not str(error) else "")
