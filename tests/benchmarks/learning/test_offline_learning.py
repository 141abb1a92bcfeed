"""Virtual time: who decides seldom acts seldom, and its transitions span the ticks in between."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning.offline_learning import Offline
from rtagent.clock import VirtualClock
from rtagent.config_sources import load_config
from rtagent.staggering.arbiter import Source

TICKS = 200


@pytest.mark.parametrize(("delay", "every"), [(1, 1), (2, 1), (3, 3), (5, 2)])
def test_decisions_come_at_their_interval_and_as_late_as_told(delay: int, every: int) -> None:
    config = load_config(
        overrides=[
            "env.id=CartPole-v1", "env.default_action=repeat", "policy.network=mlp",
            "learning.n_step=1", "learning.gamma=0.9", "replay.capacity=2000",
        ]
    )
    offline = Offline(config, delay, 0.0, "random", every=every)
    offline.run(TICKS, 0, VirtualClock(0.0))
    rows = offline.ledger.read(0, TICKS)
    starts = np.searchsorted(rows["episode"], rows["episode"])
    # The first frame of an episode is that of its first tick, which nobody has decided.
    own = (rows["observed"] >= starts) & (rows["source"] == Source.AGENT)
    assert (rows["tick"][own] - rows["observed"][own] == delay).all()
    assert ((rows["observed"][own] - starts[own]) % every == 0).all()
    assert own.sum() > 0.5 * TICKS / every
    idle = np.flatnonzero((rows["source"] == Source.DEFAULT) & (rows["tick"] > starts))
    assert (rows["action"][idle] == rows["action"][idle - 1]).all()
    offline.replay.refresh()
    index = offline.replay.index
    inner = index.get(np.arange(*index.span))
    inner_spans = inner.discount[(inner.next_frame - inner.frame == every) & ~inner.terminal]
    np.testing.assert_allclose(inner_spans, 0.9**every, rtol=1e-6)
    assert len(inner_spans) > 10
