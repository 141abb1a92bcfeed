"""A daemon whose policy is given pending actions: those in the ledger are executed later."""

from __future__ import annotations

import pytest

from rtagent.memory.ledger import Rows
from tests.conftest import Runtimes, eventually

pytestmark = pytest.mark.process


def test_a_daemon_learns_with_pending_actions(run: Runtimes) -> None:
    with run(
        "env.id=CartPole-v1", "env.rate_hz=100", "env.pending_actions=4", "inference.processes=3",
        "inference.injected_latency_ms=15", "learning.processes=1", "learning.learning_starts=32",
        "learning.batch_size=16",
    ) as runtime:
        ledger = runtime.world.ledger
        eventually(lambda: runtime.stats()["learning"]["updates"] > 20, "twenty updates")

        def comes_true() -> bool:
            """Most of what was pending lately: the rest is unknown, or a promise that was broken.

            Many are broken while a machine holds the processes up.
            """
            between, kept = known(ledger.read(ledger.newest - 299, ledger.newest + 1))
            return between > 100 and kept > 0.5 * between

        eventually(comes_true, "what is said to be pending happens")


def known(rows: Rows) -> tuple[int, int]:
    """How many actions were pending between a frame and its decision, and how many were executed.
    """
    action_of = dict(zip(rows["tick"].tolist(), rows["action"].tolist(), strict=True))
    decided = rows[(rows["source"] == 1) & (rows["observed"] >= 0)]
    between = kept = 0
    for tick, frame, seen in zip(
        decided["tick"].tolist(), decided["observed"].tolist(), decided["pending"].tolist(),
        strict=True,
    ):
        for place, action in enumerate(seen[: tick - frame - 1]):
            between += 1
            kept += action == action_of.get(frame + 1 + place)
    return between, kept
