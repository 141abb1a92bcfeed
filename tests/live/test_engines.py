"""Engines in a whole daemon: weights are converted while it acts and learns, and act."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import Runtimes, eventually, role

pytestmark = pytest.mark.process

POLE = (
    "env.id=CartPole-v1", "env.rate_hz=100", "inference.processes=2", "policy.engine_frames=50",
    "policy.engine_share=1", "policy.precision=float32",
)


def test_converted_weights_act(run: Runtimes) -> None:
    with run(
        *POLE, "policy.engine=openvino", "learning.processes=1", "learning.learning_starts=100",
        "learning.publish_every=1", "learning.updates_per_tick=0.2",
    ) as runtime:

        def inference() -> dict[str, Any]:
            found: dict[str, Any] = runtime.stats()["inference"]
            return found

        eventually(lambda: inference()["engine"] == "openvino", "a model acts")
        found = inference()
        assert found["engine_precision"] == "float32"
        assert found["engine_agreement"] >= 0.99
        version = max(each["weights_version"] for each in found["workers"])
        eventually(
            lambda: min(e["weights_version"] for e in inference()["workers"]) > version + 2,
            "newer weights act",
        )
        ledger = runtime.world.ledger

        def newest() -> int:
            rows = ledger.read(0, ledger.newest + 1)
            return int(rows["weights_version"].max())

        # What was registered just now is executed some ticks later.
        eventually(lambda: newest() > version, "the ledger names the weights that acted")
        assert role(runtime, "converter")["state"] == "running"
