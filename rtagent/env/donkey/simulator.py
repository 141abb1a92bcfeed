"""The embedded simulator's process: `python -m rtagent.env.donkey.simulator`.

It serves the process that started it, on a listening Unix socket that it inherits, and dies with
that process.
"""

from __future__ import annotations

import argparse
import signal
import socket

import cv2

from rtagent.clock import MonotonicClock
from rtagent.env.donkey.camera import MOST_PIXELS
from rtagent.env.donkey.server import Simulator
from rtagent.processes.scheduling import (
    die_with_parent,
    leave_realtime,
    name_process,
    prefer_acting,
    sharpen_timers,
)


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="The embedded DonkeyCar simulator.")
    parser.add_argument("--fd", type=int, required=True, help="of the listening socket")
    parser.add_argument("--parent", type=int, required=True, help="pid of the one process served")
    parser.add_argument("--fps", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    die_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_realtime()
    prefer_acting("auto")
    name_process("rt-donkey-sim")
    sharpen_timers()
    cv2.setNumThreads(1)
    with socket.socket(fileno=options.fd) as listener:
        Simulator(
            listener, MonotonicClock(), fps=options.fps, seed=options.seed,
            most_pixels=2 * MOST_PIXELS, only_for=options.parent,
        ).run()


if __name__ == "__main__":
    main()
