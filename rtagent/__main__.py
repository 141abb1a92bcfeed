"""The installed program, and `python -m rtagent`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from rtagent.processes.interrupts import hold_standard_streams, leave_at_ctrl_c


def main() -> int:
    """Run one command; the exit code."""
    leave_at_ctrl_c()
    hold_standard_streams()
    # A character that stdout's encoding lacks is escaped, as on stderr, and ends no command.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # The user's environments and networks are found beside the configuration, as with
    # `python -m rtagent`; last, so that no file there takes the place of an installed module.
    if _nobody_else_writes_here():
        sys.path.append("")
    # This import takes a moment, in which Ctrl-C is heard already.
    from rtagent.cli import main as run

    try:
        return run()
    finally:
        leave_at_ctrl_c()


def _nobody_else_writes_here() -> bool:
    """Whether the modules of the working directory are this user's, or root's."""
    try:
        found = os.stat(".")
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


if __name__ == "__main__":
    sys.exit(main())
