"""A second machine on this one, and a link to it that can be cut.

Linux namespaces (namespaces(7)) give it processes and a network of its own, so that Ray takes it
for another machine: it finds no raylet of the other side. A veth pair is the link; behind a cut
link there is no answer, not even a refusal. The benchmark itself first moves into a network
namespace of its own, so nothing of the real network is changed, and all is gone when it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from rtagent.processes.kernel_state import children
from rtagent.processes.scheduling import die_with_parent

NEAR, FAR = "10.77.0.1", "10.77.0.2"
BITS = 24
IN_OWN_NETWORK = "RTAGENT_BENCHMARK_IN_OWN_NETWORK"
LIMIT_S = 10.0


def in_own_network() -> bool:
    """Whether this program has a network namespace; where permitted, it restarts itself in one."""
    # As root without a user namespace, in which the kernel gives no realtime priority.
    own = ["unshare", "--net", *(["--user", "--map-root-user"] if os.geteuid() else [])]
    if IN_OWN_NETWORK not in os.environ and _permitted(own):
        os.environ[IN_OWN_NETWORK] = "1"
        begin = 'ip link set lo up && exec "$@"'
        os.execvp("unshare", [*own, "sh", "-c", begin, "sh", sys.executable, *sys.orig_argv[1:]])
    return IN_OWN_NETWORK in os.environ


class FarMachine:
    """The second machine.

    Attributes:
        under: a command that runs the command after it on the second machine.
    """

    def __init__(self) -> None:
        self.under: tuple[str, ...] = ()

    def __enter__(self) -> FarMachine:
        """Start it.

        Raises:
            TimeoutError: it does not start.
        """
        self._first = subprocess.Popen(
            ["unshare", "--net", "--pid", "--mount-proc", "--fork", "--kill-child", "sleep",
             "infinity"],
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        inside = self._inside()
        self.under = ("nsenter", f"--target={inside}", "--net", "--pid", "--mount")
        _do(f"ip link add near type veth peer name far netns {inside}")
        _do(f"ip addr add {NEAR}/{BITS} dev near")
        _do(f"ip addr add {FAR}/{BITS} dev far", self.under)
        _do("ip link set lo up", self.under)
        _do("ip link set near up")
        # From the default route Ray learns the address of this machine.
        _do(f"ip route add default via {FAR}")
        self.mend()
        # In this folder the processes of a machine look for each other.
        Path("/tmp/ray").mkdir(exist_ok=True)
        _do("mount -t tmpfs ray /tmp/ray", self.under)
        return self

    def __exit__(self, *_: object) -> None:
        self._first.kill()
        self._first.wait()

    def cut(self) -> None:
        """Pull the cable out."""
        _do("ip link set far down", self.under)

    def mend(self) -> None:
        """Plug it in again."""
        _do("ip link set far up", self.under)
        _do(f"ip route add default via {NEAR}", self.under)

    def _inside(self) -> int:
        """The first process of the second machine, by its number on this one."""
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            for found in children(self._first.pid):
                # Once it is `sleep`, its machine has a /proc of its own.
                if Path(f"/proc/{found}/comm").read_text().strip() == "sleep":
                    return found
            time.sleep(0.01)
        raise TimeoutError("the second machine does not start")


def _permitted(own: list[str]) -> bool:
    try:
        subprocess.run([*own, "ip", "link", "set", "lo", "up"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _do(command: str, under: tuple[str, ...] = ()) -> None:
    subprocess.run([*under, *command.split()], check=True)
