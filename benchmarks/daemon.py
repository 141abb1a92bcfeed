"""A daemon in a process of its own, for measurements from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx

from benchmarks.waiting import until

STOP_LIMIT_S = 60.0


def options(*settings: str) -> list[str]:
    """Settings, `SECTION.KEY=VALUE`, as options of the command line."""
    return [word for each in settings for word in ("--set", each)]


class RunningDaemon:
    """`rtagent serve` on a free port, with a state directory of its own.

    Args:
        settings: overrides of its configuration, `SECTION.KEY=VALUE`.
        quiet: whether its log has warnings alone.
        state_dir: folder of its state. If None, one that is removed at the end.
        environ: further variables of its environment.
        ready: whether to wait at the start until the daemon acts.
        stderr: descriptor of its log. If None, a file, which `said` reads.
        under: a command that takes the daemon's command as its arguments, and executes it.
    """

    def __init__(
        self,
        *settings: str,
        quiet: bool = False,
        state_dir: Path | None = None,
        environ: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
        ready: bool = True,
        stderr: int | None = None,
    ) -> None:
        self._arguments = ["--quiet"] * quiet + options(*settings)
        self._under = under
        self._state_dir = state_dir
        self._environ = {**os.environ, **(environ or {})}
        self._ready = ready
        self._stderr = stderr
        self.started = 0.0

    def __enter__(self) -> RunningDaemon:
        # A signal may come before it is ready.
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            self.state_dir = self._state_dir or Path(folder)
            # Not a pipe: one that nobody reads fills up, and then the daemon drops its log lines.
            self._said = stack.enter_context(tempfile.TemporaryFile())
            self.started = time.monotonic()
            command = [
                *self._under, sys.executable, "-m", "rtagent", "serve", "--port", "0",
                "--state-dir", str(self.state_dir), *self._arguments,
            ]
            self.process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=self._stderr or self._said,
                env=self._environ,
            )
            stack.callback(self._end)
            self._client = stack.enter_context(self._connect())
            if self._ready:
                until(self._is_ready, "the daemon is ready", 0.02)
            self._held = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return str(self._client.base_url).rstrip("/")

    @property
    def token(self) -> str:
        """Its bearer token."""
        return (self.state_dir / "token").read_text().strip()

    def said(self) -> str:
        """What it has written to stderr so far."""
        # The daemon writes at the offset of this descriptor, so reading must not move it.
        descriptor = self._said.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()

    def stats(self) -> dict[str, Any]:
        """`GET /v1/stats`."""
        return self.get("/v1/stats")

    def status(self) -> dict[str, Any]:
        """`GET /v1/status`."""
        return self.get("/v1/status")

    def workers(self) -> list[dict[str, Any]]:
        """The inference processes as `/v1/stats` describes them."""
        workers: list[dict[str, Any]] = self.stats()["inference"]["workers"]
        return workers

    def patch_inference(self, **changes: Any) -> dict[str, Any]:
        """`PATCH /v1/inference`; returns when the change is in force."""
        return self.patch("/v1/inference", **changes)

    def patch(self, path: str, **changes: Any) -> dict[str, Any]:
        """`PATCH` a path; returns the daemon's answer."""
        return self._call("PATCH", path, json=changes)

    def post(self, path: str, **content: Any) -> dict[str, Any]:
        """`POST` to a path; returns the daemon's answer."""
        return self._call("POST", path, json=content)

    def get(self, path: str) -> dict[str, Any]:
        """The JSON document at a path."""
        return self._call("GET", path)

    def _call(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        try:
            reply = self._client.request(method, path, **arguments)
        except httpx.RemoteProtocolError:
            # The server closes idle connections, perhaps just as this one is used again.
            if method != "GET":
                raise
            reply = self._client.request(method, path, **arguments)
        reply.raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def _connect(self) -> httpx.Client:
        announced, token = self.state_dir / "daemon.json", self.state_dir / "token"
        until(
            lambda: self._lives() and announced.exists() and token.exists(),
            "the daemon says where it is", 0.01,
        )
        return httpx.Client(
            base_url=json.loads(announced.read_text())["url"],
            headers={"authorization": f"Bearer {token.read_text().strip()}"},
            timeout=60.0,
            trust_env=False,
        )

    def _is_ready(self) -> bool:
        with suppress(httpx.TransportError):
            return self._lives() and self._client.get("/readyz").status_code == 200
        return False

    def _lives(self) -> bool:
        """True; one that has ended is an error."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the daemon ended: {self.said()}")
        return True
