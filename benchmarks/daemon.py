"""A daemon of the installed program, for measurements from the outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

READY_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0


class RunningDaemon:
    """`rtagent serve` on a free port, with a state directory of its own.

    Args:
        arguments: further arguments of `rtagent serve`.
    """

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self.started = 0.0

    def __enter__(self) -> RunningDaemon:
        self._folder = tempfile.TemporaryDirectory()
        self.state_dir = Path(self._folder.name)
        self.started = time.monotonic()
        command = [
            sys.executable, "-m", "rtagent", "serve", "--port", "0",
            "--state-dir", str(self.state_dir), *self._arguments,
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ
        )
        self._client = self._connect()
        self._wait_ready()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
        self._folder.cleanup()

    def stats(self) -> dict[str, Any]:
        """`GET /v1/stats`."""
        return self._get("/v1/stats")

    def status(self) -> dict[str, Any]:
        """`GET /v1/status`."""
        return self._get("/v1/status")

    def workers(self) -> list[dict[str, Any]]:
        """The inference processes as `/v1/stats` describes them."""
        workers: list[dict[str, Any]] = self.stats()["inference"]["workers"]
        return workers

    def patch_inference(self, **changes: Any) -> dict[str, Any]:
        """`PATCH /v1/inference`; returns when the change is in force."""
        reply = self._client.patch("/v1/inference", json=changes)
        reply.raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def _get(self, path: str) -> dict[str, Any]:
        reply = self._client.get(path)
        reply.raise_for_status()
        answer: dict[str, Any] = reply.json()
        return answer

    def _connect(self) -> httpx.Client:
        announced, token = self.state_dir / "daemon.json", self.state_dir / "token"
        while not (announced.exists() and token.exists()):
            self._check_alive()
            time.sleep(0.01)
        return httpx.Client(
            base_url=json.loads(announced.read_text())["url"],
            headers={"authorization": f"Bearer {token.read_text().strip()}"},
            timeout=60.0,
            trust_env=False,
        )

    def _wait_ready(self) -> None:
        while True:
            self._check_alive()
            try:
                if self._client.get("/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.02)

    def _check_alive(self) -> None:
        if self.process.poll() is not None:
            error = self.process.stderr.read().decode() if self.process.stderr else ""
            raise RuntimeError(f"the daemon ended: {error}")
        if time.monotonic() - self.started > READY_LIMIT_S:
            self.process.kill()
            raise TimeoutError("the daemon is not ready")
