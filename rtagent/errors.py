"""Errors that a user can mend: one clear line each, never a traceback."""

from __future__ import annotations

LIMITS = "look at `ulimit -u`, `ulimit -n`, `ulimit -v` and the limits of the control group"
"""What to do where the system gives no process, no thread or no descriptor."""


class UserError(Exception):
    """Bad input or a machine that cannot do what was asked.

    The message is one line that names the cause and what to do about it. The command line prints
    it and exits with code 2; the HTTP service answers it as a 4xx problem.
    """


def remedy_of(error: Exception) -> str:
    """The end of a line about an import: what to do if a module is not found; else empty."""
    missing = isinstance(error, ModuleNotFoundError)
    return "; install it, or put its folder on PYTHONPATH" if missing else ""
