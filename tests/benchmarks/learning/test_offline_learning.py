"""Without a clock: actions come as late as told, and transitions are those of successive ticks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning.offline_learning import Offline
from rtagent.config_sources import load_config
from rtagent.staggering.arbiter import Source

TICKS = 200


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_decisions_come_as_late_as_told(delay: int) -> None:
    config = load_config(
        overrides=[
            "env.id=CartPole-v1", "env.default_action=repeat", "policy.network=mlp",
            "learning.n_step=1", "learning.gamma=0.9", "replay.capacity=2000",
        ]
    )
    offline = Offline(config, delay, 0.0)
    offline.run(TICKS)
    rows = offline.ledger.read(0, TICKS)
    starts = np.searchsorted(rows["episode"], rows["episode"])
    # The first frame of an episode is that of its first tick, which nobody has decided.
    own = (rows["observed"] >= starts) & (rows["source"] == Source.AGENT)
    assert (rows["tick"][own] - rows["observed"][own] == delay).all()
    assert own.sum() > 0.5 * TICKS
    idle = np.flatnonzero((rows["source"] == Source.DEFAULT) & (rows["tick"] > starts))
    assert (rows["action"][idle] == rows["action"][idle - 1]).all()
    offline.replay.refresh()
    index = offline.replay.index
    inner = index.get(np.arange(*index.span))
    inner_spans = inner.discount[(inner.next_frame - inner.frame == 1) & ~inner.terminal]
    np.testing.assert_allclose(inner_spans, 0.9, rtol=1e-6)
    assert len(inner_spans) > 10
