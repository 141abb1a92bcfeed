"""Virtual time and the wall clock tell the same, within bounds that a busy machine keeps."""

from __future__ import annotations

import time

import pytest

from rtagent import virtual
from rtagent.virtual.result import figures_since
from tests.conftest import Runtimes

pytestmark = [pytest.mark.process, pytest.mark.realtime]

SECONDS = 6.0
WARM_UP_S = 2.0


def test_inaction_delay_and_return_agree_with_a_live_run(run: Runtimes) -> None:
    # Random weights, which are those of the seed on both sides.
    settings = (
        "env.id=CartPole-v1", "env.rate_hz=25", "inference.processes=4",
        "inference.injected_latency_ms=100",
    )

    def attempt() -> str:
        with run(*settings, "run.resume=false") as runtime:
            time.sleep(SECONDS)
            ledger = runtime.world.ledger
            rows, config = ledger.read(0, ledger.newest + 1), runtime.world.config
        rows["time_ns"] -= rows["time_ns"][0]
        live = figures_since(rows, WARM_UP_S)
        found = virtual.run(config, seconds=SECONDS).figures(WARM_UP_S)
        least, most = 0.7 * live["mean_return"], 1.4 * live["mean_return"]
        agrees = (
            abs(live["inaction_fraction"] - found["inaction_fraction"]) < 0.1
            # A busy machine makes inferences longer, and none shorter.
            and -0.2 < live["delay_mean"] - found["delay_mean"] < 1.5
            and least < found["mean_return"] < most
        )
        return "" if agrees else f"live {live}, virtual {found}"

    complaints = []
    # The machine may be held up, and a single action that comes later makes other episodes.
    for _ in range(2):
        complaints.append(attempt())
        if not complaints[-1]:
            return
    pytest.fail("; ".join(complaints))
