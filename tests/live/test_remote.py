"""A policy server and a whole daemon: no server, one that acts, one that was killed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from rtagent import Runtime
from rtagent.errors import UserError
from rtagent.memory.ledger import Rows
from rtagent.staggering.arbiter import Source
from tests.conftest import Runtimes, eventually
from tests.ports import free_port
from tests.remote.serving import openpi_like, policy_server, served

pytestmark = pytest.mark.process

TICK_S, COMPUTE_S = 0.02, 0.05


def slow(observations: np.ndarray) -> np.ndarray:
    """Pushes the cart to the right, after `COMPUTE_S`."""
    time.sleep(COMPUTE_S)
    return np.tile(np.array([0.0, 1.0], np.float32), (len(observations), 1))


def remote_events(runtime: Runtime) -> list[str]:
    """Kinds of the events about the policy server, oldest first."""
    events = reversed(runtime.status()["events"])
    return [each["kind"] for each in events if each["kind"].startswith("remote")]


def newest(runtime: Runtime, count: int) -> Rows:
    ledger = runtime.world.ledger
    return ledger.read(ledger.newest + 1 - count, ledger.newest + 1)


def executed(runtime: Runtime, count: int, least: int) -> Rows:
    """Those of so many ticks in succession, of which the server acted on at least so many."""
    found: list[Rows] = []

    def acts() -> bool:
        rows = newest(runtime, count)
        found[:] = [rows[rows["source"] != Source.DEFAULT]]
        return len(rows) == count and len(found[0]) >= least

    eventually(acts, "the server acts")
    return found[0]


def waits(runtime: Runtime) -> bool:
    rows = newest(runtime, 5)
    return len(rows) == 5 and (rows["source"] == Source.DEFAULT).all()


def test_a_daemon_acts_by_a_server_and_goes_on_without(run: Runtimes) -> None:
    policy = served(slow, shape=(4, 4), outputs=2)
    port = free_port()
    with run(
        "env.id=CartPole-v1", f"env.rate_hz={1 / TICK_S}", "env.frame_stack=4",
        f"policy.remote=ws://127.0.0.1:{port}", "policy.epsilon_end=0", "inference.processes=5",
        wait=False,
    ) as runtime:
        eventually(
            lambda: runtime.status().get("events") and remote_events(runtime), "a line says so"
        )
        eventually(lambda: waits(runtime), "the world runs without a server")
        for _ in range(2):
            with policy_server(policy, parallel=5, port=port):
                rows = executed(runtime, 20, 17)
                agent = rows[rows["source"] == Source.AGENT]
                assert (agent["action"] == 1).all()
                assert (agent["tick"] - agent["observed"]).min() >= COMPUTE_S / TICK_S
            eventually(lambda: waits(runtime), "the default behaviour")
            # Of a server that was there for a moment only, by the second attempt to connect.
            eventually(lambda: remote_events(runtime)[-1] == "remote_lost", "the loss is told")
        with pytest.raises(UserError, match=r"learning\.processes"):
            runtime.set_learning(processes=1)
        # In turns; once more where this process, which is the server, was held up for long.
        told = remote_events(runtime)
        assert len(told) >= 5
        assert told == ["remote_lost", *["remote_answers", "remote_lost"] * (len(told) // 2)]
        assert all(each["restarts"] == 0 for each in runtime.status()["roles"])


def test_chunks_of_a_server_like_openpis_cover_the_ticks_without_an_answer(run: Runtimes) -> None:
    def infer(question: dict[str, Any]) -> dict[str, Any]:
        time.sleep(COMPUTE_S)
        assert question["prompt"] == "hold the pole"
        return {"actions": np.ones((10, 1), np.int64)}

    with openpi_like(infer) as address, run(
        "env.id=CartPole-v1", f"env.rate_hz={1 / TICK_S}", f"policy.remote={address}",
        'policy.remote_inputs={prompt="hold the pole"}', "inference.processes=1",
    ) as runtime:
        # Nearly every tick is covered.
        acted = executed(runtime, 40, 36)
        assert (acted["action"] == 1).all()
        assert acted["position"].max() >= 1
        inference = runtime.stats()["inference"]
        assert inference["remote"]["compute_ms"] == pytest.approx(2.0)
        assert inference["workers"][0]["weights_version"] is None
