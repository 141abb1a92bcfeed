"""The simulator that an environment starts for itself, in a process that dies with it.

Why it is correct. The environment binds the listening socket and keeps it; the simulator inherits
it. So the address is known before the simulator runs, a client may connect before it is up, and a
simulator that was killed is followed by another one at the same address. The death signal is armed
per thread: the environment steps, and so starts simulators, on one thread that lives as long as
the environment's process does.

The address is a Unix socket's, whose name the kernel chooses: no file is left behind, and no other
machine reaches it. Other users of this machine could find it; the simulator asks the kernel who
connects, and serves the environment's process alone.
"""

from __future__ import annotations

import os
import socket
import subprocess

from rtagent.env.donkey.wire import Address
from rtagent.processes.launch import module_command

ENTRY = "rtagent.env.donkey.simulator"
STOP_S = 2.0


class EmbeddedSimulator:
    """A simulator for this process: `fps` telemetry frames per second, generated roads of `seed`.
    """

    def __init__(self, fps: float, seed: int) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        # Linux chooses a name where none is given.
        self._listener.bind("")
        self._listener.listen()
        self._options = ["--fps", repr(fps), "--seed", str(seed)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        """Address at which it listens."""
        return socket.AF_UNIX, self._listener.getsockname()

    def ensure_running(self) -> None:
        """Start the simulator if none runs; OSError if no process can be started."""
        if self._process is not None and self._process.poll() is None:
            return
        fd = self._listener.fileno()
        command, variables = module_command(ENTRY)
        self._process = subprocess.Popen(
            [*command, "--fd", str(fd), "--parent", str(os.getpid()), *self._options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(fd,), env=variables,
        )

    def close(self) -> None:
        """End the simulator; may be called twice."""
        self._listener.close()
        if self._process is not None:
            # It has nothing to save.
            self._process.kill()
            self._process.wait(STOP_S)
