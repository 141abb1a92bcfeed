"""A policy that can be built and cannot run: it is shown as failed, and says why."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from benchmarks.daemon import RunningDaemon
from rtagent.processes.restart_policy import MOST_RESTARTS
from tests.conftest import eventually

pytestmark = pytest.mark.process

FAULTY = Path(__file__).parent.parent / "faulty"
QUIET_S = 2.0
SETTINGS = (
    "--set", "env.id=CartPole-v1", "--set", "replay.capacity=20000", "--set",
    "learning.processes=0", "--set", "inference.processes=2", "--set",
    "policy.factory=faulty:BatchesOnly", "--set", "run.tensorboard=false",
)


def test_a_policy_that_crashes_on_start_is_shown_as_failed(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    starts.touch()
    environ = {"PYTHONPATH": str(FAULTY), "FAULTY_SWITCH": str(starts)}

    def count() -> int:
        return len(starts.read_text().splitlines())

    with RunningDaemon(*SETTINGS, environ=environ, ready=False) as daemon:

        def failed() -> bool:
            try:
                roles = [r for r in daemon.status()["roles"] if r["role"] == "inference"]
            except httpx.TransportError:
                return False
            return len(roles) == 2 and all(r["state"] == "failed" for r in roles)

        eventually(failed, 60, "both have failed")
        roles = [r for r in daemon.status()["roles"] if r["role"] == "inference"]
        for each in roles:
            assert each["restarts"] == MOST_RESTARTS
            assert "Traceback" in each["last_error"]
            assert "nobody can act with this" in each["last_error"]
        assert daemon.status()["state"] == "failed"
        assert httpx.get(f"{daemon.url}/readyz", trust_env=False).status_code == 503
        assert httpx.get(f"{daemon.url}/livez", trust_env=False).status_code == 200
        # Each of the two once, and as often as it is started again within the first seconds.
        assert count() == 2 * (1 + MOST_RESTARTS)
        time.sleep(QUIET_S)
        assert count() == 2 * (1 + MOST_RESTARTS)
        assert daemon.process.poll() is None
