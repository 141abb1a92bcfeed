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


def test_what_does_not_fit_waits() -> None:
    options = [word for each in SETTINGS for word in ("--set", each)]
    few = ("prlimit", f"--nofile={FEW}:{FEW}")
    with RunningDaemon(*options, under=few, ready=False) as daemon:

        def roles() -> list[dict[str, Any]]:
            # The service, too, has few descriptors, and may hang up.
            with contextlib.suppress(httpx.TransportError):
                return list(daemon.status()["roles"])
            return []

        def refused() -> set[str]:
            waiting = ("backoff", "failed")
            return {role["last_error"] for role in roles() if role["state"] in waiting}

        def works() -> int:
            return sum(role["state"] == "running" for role in roles())

        reason = "no process: Too many open files"
        eventually(lambda: reason in refused(), 60, "no room for all")
        eventually(lambda: 2 < works() < PROCESSES + 2, 60, "some work")
        ticks = daemon.stats()["clock"]["ticks"]
        eventually(lambda: daemon.stats()["clock"]["ticks"] > ticks + 30, 30, "the world goes on")
        assert daemon.process.poll() is None
