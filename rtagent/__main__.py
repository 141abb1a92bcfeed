"""The installed program, and `python -m rtagent`."""

from __future__ import annotations

import sys

from rtagent.processes.interrupts import hold_standard_streams, leave_at_ctrl_c


def main() -> int:
    """Run one command; the exit code."""
    leave_at_ctrl_c()
    hold_standard_streams()
    # Environments and networks of one's own are found beside the configuration, as with
    # `python -m rtagent`; last, so that no file there takes the place of an installed module.
    sys.path.append("")
    # Takes a moment.
    from rtagent.cli import main as run

    try:
        return run()
    finally:
        leave_at_ctrl_c()


if __name__ == "__main__":
    sys.exit(main())
