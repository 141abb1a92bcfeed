"""Fewer descriptors than the processes need: those that fit work, the others wait."""

from __future__ import annotations

import contextlib
from typing import Any

import httpx
import pytest

from benchmarks.daemon import RunningDaemon
from tests.conftest import eventually

pytestmark = pytest.mark.process

FEW = 60
PROCESSES = 24
SETTINGS = (
    "env.id=CartPole-v1", "replay.capacity=20000", f"inference.processes={PROCESSES}",
    "learning.processes=0", "run.tensorboard=false",
)


def test_processes_without_descriptors_wait() -> None:
    few = ("prlimit", f"--nofile={FEW}:{FEW}")
    with RunningDaemon(*SETTINGS, under=few, ready=False) as daemon:

        # The service, too, has few descriptors, and may hang up.
        def roles() -> list[dict[str, Any]]:
            with contextlib.suppress(httpx.TransportError):
                return list(daemon.status()["roles"])
            return []

        def ticks() -> int:
            with contextlib.suppress(httpx.TransportError):
                return int(daemon.stats()["clock"]["ticks"])
            return 0

        def refused() -> set[str]:
            waiting = ("backoff", "failed")
            return {role["last_error"] for role in roles() if role["state"] in waiting}

        def works() -> int:
            return sum(role["state"] == "running" for role in roles())

        reason = "no process: Too many open files"
        eventually(lambda: reason in refused(), "no room for all")
        eventually(lambda: 2 < works() < PROCESSES + 2, "some work")
        eventually(ticks, "the world runs")
        before = ticks()
        eventually(lambda: ticks() > before + 30, "the world goes on")
        assert daemon.process.poll() is None
