"""The simulator that an environment starts for itself, in a process that dies with it.

Why it is correct. The environment binds the listening socket and keeps it; the simulator inherits
it. So the address is known before the simulator runs, a client may connect before it is up, and a
simulator that was killed is followed by another one at the same address. The death signal is armed
per thread: the environment steps, and so starts simulators, on one thread that lives as long as
the environment's process does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

ENTRY = "rtagent.env.donkey.simulator"
STOP_S = 2.0


class EmbeddedSimulator:
    """A simulator on a free port of 127.0.0.1.

    Args:
        fps: telemetry frames per second.
        seed: of the generated road.
    """

    def __init__(self, fps: float, seed: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._options = ["--fps", repr(fps), "--seed", str(seed)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()
        return str(host), int(port)

    @property
    def pid(self) -> int | None:
        """Of the simulator's process; none before it is started."""
        return None if self._process is None else self._process.pid

    def ensure_running(self) -> None:
        """Start the simulator if none runs.

        Raises:
            OSError: no process can be started.
        """
        if self._process is not None and self._process.poll() is None:
            return
        fd = self._listener.fileno()
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", ENTRY, "--fd", str(fd), "--parent", str(os.getpid()),
                *self._options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
        )

    def close(self) -> None:
        """End the simulator; may be called twice."""
        self._listener.close()
        if self._process is not None:
            # It holds nothing that would have to be put away.
            self._process.kill()
            self._process.wait(STOP_S)
