"""A client process: prepared HTTP requests at steady rates, open streams, and their answers.

It reads one JSON object from stdin: port, seconds, streams (requests, each on a connection of its
own, whose answers never end) and groups of polls (rate: requests per second of the group;
connections; requests, which each connection sends in turn). A request without an answer delays the
next requests of its connection; those that were due meanwhile are then sent at once. The process
prints one JSON object: answers by status, failures, latency, and the streams' bytes.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, TypedDict

WAIT_S = 120.0
LARGE = 100_000
"""A request of this many bytes may be refused half-way; then the connection is useless."""


class Polls(TypedDict):
    """Requests at a steady rate, all connections together."""

    rate: float
    connections: int
    requests: list[str]


class Client:
    """The client process, started at once.

    Args:
        port: of the daemon, on 127.0.0.1.
        seconds: how long it sends requests.
        polls: requests at steady rates.
        streams: requests whose answers are read until the end.
    """

    def __init__(
        self, port: int, seconds: float, polls: list[Polls], streams: list[str] | None = None
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        wanted = {"port": port, "seconds": seconds, "groups": polls, "streams": streams or []}
        assert self._process.stdin is not None
        json.dump(wanted, self._process.stdin)
        self._process.stdin.close()
        self._process.stdin = None

    def result(self) -> dict[str, Any]:
        """Wait until the process is done; its counts."""
        out, _ = self._process.communicate(timeout=WAIT_S)
        found: dict[str, Any] = json.loads(out)
        return found


def request_text(
    method: str, path: str, host: str, token: str | None, body: str = "", **headers: str
) -> str:
    """One request, ready to send.

    Args:
        method, path, body: of the request.
        host: the Host header.
        token: bearer token, if any.
        headers: further headers, with `_` for `-`.
    """
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines) + "\r\n\r\n" + body


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers of an answer."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:] if line)


class _Connection:
    """A connection, opened again whenever it has been closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, request: bytes) -> int:
        """Send a request and read the whole answer; its status."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            self._writer.write(request)
            status, fields = await _head(self._reader)
            await self._reader.readexactly(int(fields.get("content-length", 0)))
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise
        if fields.get("connection") == "close" or len(request) > LARGE:
            self.close()
        return status

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


class _Load:
    """All requests of the process, and the counts of their answers."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._begun = time.monotonic()
        self._end = self._begun + seconds
        self._statuses: Counter[str] = Counter()
        self._latencies: list[float] = []
        self._streamed = 0

    async def poll(self, group: Polls, index: int) -> None:
        """Send the requests of one connection of a group."""
        connection = _Connection(self._port)
        requests = [text.encode() for text in group["requests"]]
        gap = group["connections"] / group["rate"]
        due, number = self._begun + gap * index / group["connections"], index
        while True:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent = time.monotonic()
            if sent > self._end:
                break
            try:
                self._statuses[str(await connection.ask(requests[number % len(requests)]))] += 1
                self._latencies.append(time.monotonic() - sent)
            except (OSError, asyncio.IncompleteReadError):
                self._statuses["failed"] += 1
            due, number = due + gap, number + 1
        connection.close()

    async def stream(self, request: str) -> None:
        """Read an answer that never ends."""
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(request.encode())
            status, _ = await _head(reader)
            self._statuses[str(status)] += 1
            async with asyncio.timeout(self._end - time.monotonic()):
                while content := await reader.read(65_536):
                    self._streamed += len(content)
            self._statuses["ended"] += 1
        except TimeoutError:
            return
        except (OSError, asyncio.IncompleteReadError):
            self._statuses["failed"] += 1
        finally:
            if writer is not None:
                writer.transport.abort()

    def found(self) -> dict[str, Any]:
        """The counts; latencies are infinite if nothing was answered."""
        latencies = sorted(self._latencies) or [math.inf]
        return {
            "statuses": dict(self._statuses),
            "per_s": len(self._latencies) / (time.monotonic() - self._begun),
            "latency_p50_ms": 1e3 * latencies[len(latencies) // 2],
            "latency_p99_ms": 1e3 * latencies[len(latencies) * 99 // 100],
            "latency_max_ms": 1e3 * latencies[-1],
            "streamed_bytes": self._streamed,
        }


async def _run(wanted: dict[str, Any]) -> dict[str, Any]:
    load = _Load(wanted["port"], wanted["seconds"])
    polls = [
        load.poll(group, index)
        for group in wanted["groups"] for index in range(group["connections"])
    ]
    await asyncio.gather(*polls, *(load.stream(text) for text in wanted["streams"]))
    return load.found()


def main() -> None:
    """Read the description of the load, send the requests, print the counts."""
    print(json.dumps(asyncio.run(_run(json.load(sys.stdin)))))
