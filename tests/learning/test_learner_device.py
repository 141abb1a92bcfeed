"""When a learner on a GPU stores what it has learned; the processor stands in for it."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch

from rtagent.learning import state as states
from rtagent.learning.device import Device
from rtagent.learning.replay.batch import empty_batch
from rtagent.memory.weights import WeightsInfo
from tests.learning.learner_run import Start


class Killed(BaseException):
    """The learner ends at once."""


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor in the place of a GPU."""
    device = Device(torch.device("cpu"), nullcontext)
    monkeypatch.setattr(Device, "of", lambda learning: device)


@pytest.mark.gpu
def test_a_learner_on_a_gpu_learns_and_publishes(start: Start) -> None:
    run = start(device="cuda", prefetch=2).learn(23)
    assert run.world.weights.info() == WeightsInfo(version=6, updates=23)
    assert np.isfinite(run.published()).all()


@pytest.mark.usefixtures("apart")
def test_a_learner_on_a_gpu_that_leaves_stores_its_updates(start: Start) -> None:
    run = start(publish_every=1000)

    def on_beat(count: int) -> None:
        if run.updates == 13:
            assert run.world.learner.progress.updates == 10
            # Another learner goes on, and writes the checkpoints.
            run.index, run.stopping = 1, True

    run.learn(on_beat=on_beat)
    assert run.world.learner.progress.updates == 13
    assert not run.events_of("checkpoint")


@pytest.mark.usefixtures("apart")
def test_updates_of_a_learner_on_a_gpu_that_are_lost_are_counted(start: Start) -> None:
    run = start(publish_every=1000)
    state, at = run.world.learner, []

    def on_beat(count: int) -> None:
        if run.updates == 13 and not at:
            at.append(count)
            # Another learner has stored its own.
            states.put(states.take(state), state)
        run.stopping = bool(at) and count > at[0] + 20

    run.learn(on_beat=on_beat)
    assert run.record.dropped == 3
    assert state.progress.updates == run.record.applied - 3


@pytest.mark.usefixtures("apart")
def test_counts_do_not_go_back_when_a_learner_on_a_gpu_is_killed(start: Start) -> None:
    run, counts = start(publish_every=1000), []

    def on_beat(count: int) -> None:
        counts.append((run.updates, run.record.samples_consumed))
        if run.updates == 17 and counts.count((17, 68)) == 1:
            raise Killed
        run.stopping = run.updates == 20

    with pytest.raises(Killed):
        run.learn(on_beat=on_beat)
    assert run.world.learner.progress.updates == 10
    run.learn(on_beat=on_beat)
    assert counts == sorted(counts)
    assert counts[-1] == (20, 80)


@pytest.mark.usefixtures("apart")
@pytest.mark.parametrize(("ring", "stored"), [([0], 0), ([0, 1], 1), ([1], 1), ([], 1)])
def test_only_a_learner_on_a_gpu_that_is_alone_keeps_its_updates(
    ring: list[int], stored: int, start: Start
) -> None:
    run = start(ticks=0, publish_every=1000)
    one, update = run.begin()
    update.refresh()
    gradient = update.compute(empty_batch(run.blueprint, 4), 0)
    run.change_settings(learner_ring=ring)
    one._finish(gradient)
    assert (update.progress.updates, update.state.progress.updates) == (1, stored)
