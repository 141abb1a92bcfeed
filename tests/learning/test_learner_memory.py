"""A learner whose batches do not fit into memory learns on with smaller ones."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from rtagent.learning import learner
from rtagent.learning.device import Device
from rtagent.learning.replay.batch import empty_batch
from tests.learning.learner_run import SETTINGS, Start


def test_the_memory_of_a_batch_is_recorded_with_its_size(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What computing takes, and the batches: three that are ready, one in use, one being made."""
    monkeypatch.setattr(learner, "measure_peak", lambda run: 1000)
    run = start(ticks=0, prefetch=3, batch_size=8)
    run.begin()[0]._warm_up()
    horizon, frames = run.world.horizon.read(), empty_batch(run.blueprint, 8)
    each = frames.observations.nbytes + frames.next_observations.nbytes
    assert (horizon.base_bytes, horizon.base_size) == (1000 + 5 * each, 8)


def normalized(observations: Any, actions: Any) -> torch.nn.Module:
    count = math.prod(observations.shape)
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(count, 8), torch.nn.BatchNorm1d(8),
        torch.nn.Linear(8, int(actions.n)),
    )


@pytest.mark.parametrize("precision", ["float32", "auto"])
@pytest.mark.parametrize("size", [1, 4])
def test_a_network_that_normalizes_batches_learns(
    size: int, precision: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself it cannot compute a batch of one."""
    monkeypatch.setitem(SETTINGS, "policy", {"factory": f"{__name__}:normalized"})
    run = start(precision=precision, batch_size=size)
    run.learn(12)
    assert run.record.samples_consumed == 12 * size


def test_memory_of_large_batches_is_given_back_after_they_have_shrunk(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = start().begin()
    at: list[int] = []
    for size in (64, 32, 64, 16, 15, 32, 7, 8, 1):
        monkeypatch.setattr(learner, "release", lambda size=size: at.append(size))
        one._release_after(size)
    assert at == [15, 7, 1]


Limit = Callable[[Callable[[], int]], None]


@pytest.fixture
def limit_batches(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Sets the largest batch for which there is memory."""

    def arrange(largest: Callable[[], int]) -> None:
        compute = learner.SharedUpdate.compute

        def limited(self: Any, batch: Any, updates: int, **options: Any) -> Any:
            if len(batch.actions) > largest():
                raise MemoryError
            return compute(self, batch, updates, **options)

        monkeypatch.setattr(learner.SharedUpdate, "compute", limited)

    return arrange


def test_a_batch_that_does_not_fit_is_halved(start: Start, limit_batches: Limit) -> None:
    run = start(batch_size=16)
    limit_batches(lambda: 2 if run.updates >= 10 else 5)
    run.learn(20)
    assert run.record.out_of_memory == 3
    assert [each["next_batch_size"] for each in run.events_of("out_of_memory")] == [8, 4, 2]
    # What is safe grows again, slowly.
    assert 10 * 4 + 10 * 2 <= run.record.samples_consumed <= 10 * 5 + 10 * 2


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("when", ["measured", "learned"])
def test_what_a_failed_update_had_is_free_when_memory_is_given_back(
    when: str, prefetch: int, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(batch_size=16, prefetch=prefetch)
    compute = learner.SharedUpdate.compute
    had: list[weakref.ref[torch.Tensor]] = []
    left: list[int] = []

    def failing(self: Any, batch: Any, updates: int, *, whole: bool = False) -> Any:
        if len(batch.actions) > 8 and whole == (when == "measured"):
            half_done = torch.empty(1)
            had.extend(weakref.ref(each) for each in (half_done, batch.observations))
            raise MemoryError
        return compute(self, batch, updates, whole=whole)

    def note() -> None:
        gc.collect()
        left.append(sum(each() is not None for each in had))

    monkeypatch.setattr(learner.SharedUpdate, "compute", failing)
    monkeypatch.setattr(learner, "release", note)
    run.learn(2)
    assert len(had) == 2
    assert left == [0]


def test_a_rollout_of_a2c_that_does_not_fit_is_halved(start: Start, limit_batches: Limit) -> None:
    run = start(ticks=60, algorithm="a2c", rollout=16, batch_size=4)

    def on_beat(count: int) -> None:
        assert count < 20_000, "the loop does not get there"
        run.play(20)
        run.stopping = run.updates >= 10

    limit_batches(lambda: 10)
    run.learn(on_beat=on_beat)
    assert [each["batch_size"] for each in run.events_of("out_of_memory")] == [16]
    assert run.world.horizon.read().base_size == 8
    # What is safe grows again, slowly.
    assert 8 * run.updates <= run.record.samples_consumed <= 10 * run.updates


def test_a_batch_that_does_not_fit_on_the_device_is_halved(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(Device):
        def send(self, batch: Any) -> Any:
            if len(batch.actions) > 5:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().send(batch)

    small = Small(torch.device("cpu"), nullcontext)
    monkeypatch.setattr(Device, "of", lambda learning: small)
    run = start(batch_size=16, prefetch=1, device="cuda").learn(5)
    told = run.events_of("out_of_memory")
    assert [each["next_batch_size"] for each in told[:2]] == [8, 4]
    assert run.record.samples_consumed <= 5 * run.updates


def test_memory_is_asked_for_before_a_batch_of_a_new_size_is_taken(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start()
    took: list[int] = []
    take = learner.Prefetcher.take

    def note(self: Any, size: int, *others: Any) -> Any:
        took.append(size)
        return take(self, size, *others)

    def require(self: Any, size: int) -> None:
        if size > 4:
            raise MemoryError

    monkeypatch.setattr(learner.Prefetcher, "take", note)
    monkeypatch.setattr(learner.BatchMemory, "require", require)

    def on_beat(count: int) -> None:
        assert count < 2000, "the loop does not get there"
        if run.updates == 10:
            run.change_settings(learning={"batch_size": 32})
        run.stopping = run.updates >= 20

    run.learn(on_beat=on_beat)
    assert set(took) == {4}
    assert [each["batch_size"] for each in run.events_of("out_of_memory")] == [32, 16, 8]
