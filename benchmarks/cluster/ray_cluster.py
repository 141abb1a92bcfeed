"""A real Ray cluster: its head and a learner's node, both of which can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.process_figures import in_session
from benchmarks.waiting import until
from rtagent.processes.kernel_state import children

ENVIRON = {
    "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment variables for every process of the cluster."""


class Head:
    """The head of a cluster, without resources of its own.

    Args:
        host: its address.
        under: a command that runs the head.

    Attributes:
        port: the port on which it listens, also when it is started again.
    """

    def __init__(self, host: str = "127.0.0.1", under: Sequence[str] = ()) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port: int = server.getsockname()[1]
        self._host, self._under = host, under
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The address at which nodes join, `HOST:PORT`."""
        return f"{self._host}:{self.port}"

    def start(self) -> None:
        """Start the head, and wait until it listens.

        Raises:
            TimeoutError: it does not listen.
            RuntimeError: it has ended.
        """
        # While another node on its machine lives, Ray holds a head noted there to be alive, too.
        Path(self._folder.name, "ray_current_cluster").unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [*self._under, sys.executable, "-m", "ray.scripts.scripts", "start", "--head",
             "--block", f"--node-ip-address={self._host}", f"--port={self.port}", "--num-cpus=0",
             "--include-dashboard=false", "--disable-usage-stats",
             f"--temp-dir={self._folder.name}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        until(self._answers, "the head of the cluster answers")

    def kill(self) -> None:
        """Kill all processes of the head."""
        if self._process is not None:
            send(in_session(self._process.pid), signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError("the head of the cluster has ended")
        try:
            socket.create_connection((self._host, self.port), 1).close()
        except OSError:
            return False
        return True


class LearnerNode:
    """`rtagent learner` in a session of its own, with the node that it starts.

    Args:
        address: address of the cluster.
        under: a command that runs the learner in a child, on another machine.
    """

    def __init__(self, address: str, under: Sequence[str] = ()) -> None:
        self._command = [
            *under, sys.executable, "-m", "rtagent", "learner", f"--address={address}",
            "--resources=learner=1", "--json",
        ]
        self._under = under
        self._folder = tempfile.TemporaryDirectory()
        self._said = Path(self._folder.name) / "said"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the learner."""
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command, stdout=said, stderr=subprocess.DEVNULL, start_new_session=True
            )

    def kill(self) -> None:
        """Kill the learner; its node ends with it."""
        if self._process is not None:
            send([*self._leaders()], signal.SIGKILL)
            # `nsenter` stops itself when its child is stopped, and nothing lets it go on.
            self._process.kill()
            self._process.wait()
            self._process = None

    def processes(self) -> list[int]:
        """All processes of the learner and its node."""
        return [pid for leader in self._leaders() for pid in in_session(leader)]

    def actor(self) -> int:
        """The process that learns.

        Raises:
            StopIteration: there is no such process.
        """
        return next(pid for pid in self.processes() if title(pid).startswith("ray::LearnerActor"))

    def _leaders(self) -> set[int]:
        """The process of `rtagent learner`; empty if it does not run."""
        if self._process is None:
            return set()
        return children(self._process.pid) if self._under else {self._process.pid}

    def newest(self) -> dict[str, Any]:
        """The newest status of the learner that it printed; empty if it printed none."""
        lines = self._said.read_text().splitlines()
        told = [line for line in lines if line.startswith("{") and '"nodes"' in line]
        found: dict[str, Any] = json.loads(told[-1]) if told else {}
        return found


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to those of the processes that exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def program(pid: int) -> str:
    """The name of the program that a process runs; empty if the process is gone."""
    return Path(title(pid).partition("\0")[0]).name


def title(pid: int) -> str:
    """The command line of a process; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
