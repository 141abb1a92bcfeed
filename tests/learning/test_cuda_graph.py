"""When computations are recorded as graphs, and when not; and on a GPU, what the graphs compute."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning.cuda_graph import MOST, GraphedCompute, Outputs, gpu_recorder
from rtagent.learning.device import Device
from rtagent.learning.out_of_memory import release
from rtagent.learning.precision import PrecisionTimes
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from tests.learning.test_device import learning_of, network
from tests.learning.test_precision import batch
from tests.learning.test_shared_update import batch as vectors


class Computation:
    """The sum of a batch's rewards and its negative, recorded as a GPU would record it."""

    def __init__(self) -> None:
        self.runs = self.recordings = self.repeats = 0
        self.error: Exception | None = None

    def compute(self, given: Batch, acting: bool) -> Outputs:
        self.runs += 1
        return given.rewards.sum(), -given.rewards

    def record(self, run: Callable[[], Outputs]) -> tuple[Callable[[], object], Outputs]:
        self.recordings += 1
        if self.error is not None:
            raise self.error
        outputs = tuple(torch.empty_like(each) for each in run())

        def repeat() -> None:
            self.repeats += 1
            for out, value in zip(outputs, run(), strict=True):
                out.copy_(value)

        return repeat, (outputs[0], outputs[1])


@pytest.fixture
def computation() -> Computation:
    return Computation()


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
def graphed(computation: Computation, reasons: list[str]) -> GraphedCompute:
    return GraphedCompute(computation.compute, computation.record, reasons.append)


def rewarded(*rewards: float) -> Batch:
    return replace(batch("dqn"), rewards=torch.tensor(rewards))


def test_from_the_second_time_on_the_graph_is_run(
    graphed: GraphedCompute, computation: Computation
) -> None:
    for number in range(5):
        total, negative = graphed(rewarded(number, 1.0), True, "float32")
        assert float(total) == number + 1.0
        assert negative.tolist() == [-number, -1.0]
        assert computation.recordings == min(number, 1)
        assert computation.repeats == number


def test_what_was_given_is_not_what_is_kept(graphed: GraphedCompute) -> None:
    given = [rewarded(1.0, 2.0) for _ in range(3)]
    for each in given:
        graphed(each, True, "float32")
    given[1].rewards.fill_(9.0)
    assert float(graphed(rewarded(3.0, 4.0), True, "float32")[0]) == 7.0
    assert given[2].rewards.tolist() == [1.0, 2.0]


def test_whatever_decides_what_is_computed_has_its_own_graph(
    graphed: GraphedCompute, computation: Computation
) -> None:
    cases = [
        (rewarded(1.0, 2.0), True, "float32"), (rewarded(1.0, 2.0), False, "float32"),
        (rewarded(1.0, 2.0), True, "bfloat16"), (rewarded(1.0, 2.0, 3.0), True, "float32"),
    ]
    for _ in range(2):
        for case in cases:
            graphed(*case)
    assert computation.recordings == len(cases)


def test_only_so_many_are_kept(graphed: GraphedCompute, computation: Computation) -> None:
    for _ in range(3):
        for size in range(1, MOST + 2):
            graphed(rewarded(*[1.0] * size), True, "float32")
    assert computation.recordings == 0
    for _ in range(2):
        graphed(rewarded(1.0), True, "float32")
    assert computation.recordings == 1


@pytest.mark.parametrize(("error", "reason"), [
    (RuntimeError("operation not permitted when stream is capturing\nmore"),
     "operation not permitted when stream is capturing"),
    (AssertionError(), "AssertionError"),
])
def test_what_cannot_be_recorded_is_run_without(
    graphed: GraphedCompute, computation: Computation, reasons: list[str],
    error: Exception, reason: str,
) -> None:
    computation.error = error
    for _ in range(4):
        assert float(graphed(rewarded(1.0, 2.0), True, "float32")[0]) == 3.0
    assert computation.recordings == 1
    assert reasons == [reason]


def test_without_memory_all_graphs_are_given_up(
    graphed: GraphedCompute, computation: Computation, reasons: list[str]
) -> None:
    for _ in range(2):
        graphed(rewarded(1.0), True, "float32")
    computation.error = torch.OutOfMemoryError("CUDA out of memory")
    graphed(rewarded(1.0, 2.0), True, "float32")
    with pytest.raises(torch.OutOfMemoryError):
        graphed(rewarded(1.0, 2.0), True, "float32")
    computation.error = None
    assert not reasons
    for _ in range(2):
        graphed(rewarded(1.0), True, "float32")
    assert computation.recordings == 3


def test_recording_is_no_part_of_an_update_that_is_measured(
    monkeypatch: pytest.MonkeyPatch, reasons: list[str]
) -> None:
    """It takes far longer than a short update, in which no other precision is tried."""
    device, now = Device(torch.device("cpu"), nullcontext), 0.0
    monkeypatch.setattr(device, "now", lambda: now)
    update = SharedUpdate.private(network("dqn"), learning_of("dqn"), device=device)

    def record(run: Callable[[], Outputs]) -> tuple[Callable[[], object], Outputs]:
        nonlocal now
        now += 1.0
        return lambda: None, run()

    update._graphed = GraphedCompute(update._compute_gradient, record, reasons.append)
    update.refresh()
    measured = update.measure_precisions(lambda size: batch("dqn"), 1, lambda: None)
    assert measured == PrecisionTimes("float32", 1, {"float32": 0.0})
    assert now == 1.0


GPU = torch.device("cuda", 0)


class FakeGraph:
    """Records nothing; its recording fails in the end if `fails`."""

    fails = False
    pools: ClassVar[list[int]] = []

    def register_generator_state(self, generator: Any) -> None:
        assert not generator.recording

    def capture_begin(self, pool: int, capture_error_mode: str) -> None:
        self.pools.append(pool)

    def capture_end(self) -> None:
        if self.fails:
            raise RuntimeError("operation failed due to a previous error during capture")

    def replay(self) -> None:
        pass


class FakeGenerator:
    """Before torch 2.13 a generator stays in a recording that failed."""

    recording = False

    def clone_state(self) -> FakeGenerator:
        return FakeGenerator()

    def graphsafe_set_state(self, state: FakeGenerator) -> None:
        self.recording = state.recording


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> list[FakeGenerator]:
    """A GPU whose recordings are of no consequence; returns its default generators."""
    generators = [FakeGenerator()]
    monkeypatch.setattr(FakeGraph, "pools", [])
    for name, value in {
        "CUDAGraph": FakeGraph, "graph_pool_handle": itertools.count().__next__,
        "Stream": lambda device: SimpleNamespace(device=device), "device": nullcontext,
        "stream": nullcontext, "default_generators": generators, "current_device": lambda: 0,
        "synchronize": lambda device: None, "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return generators


def outputs() -> Outputs:
    return torch.zeros(()), torch.zeros(1)


@pytest.mark.usefixtures("fake_gpu")
def test_graphs_share_memory_while_there_is_any() -> None:
    """torch takes no graph into memory whose graphs are all gone."""
    record = gpu_recorder(GPU, None)
    kept = [record(outputs), record(outputs)]
    kept.pop(0)
    kept.append(record(outputs))
    first, *others = FakeGraph.pools
    assert others == [first, first]
    kept.clear()
    kept.append(record(outputs))
    assert FakeGraph.pools[-1] != first


def test_numbers_are_drawn_after_a_recording_that_failed(
    fake_gpu: list[FakeGenerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeGraph, "fails", True)
    generators: list[Any] = [*fake_gpu, FakeGenerator()]
    record = gpu_recorder(GPU, generators[1])

    def run() -> Outputs:
        for each in generators:
            each.recording = True
        return outputs()

    with pytest.raises(RuntimeError, match="during capture"):
        record(run)
    assert [each.recording for each in generators] == [False, False]
    assert gc.isenabled()


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", ["dqn", "double-dqn", "c51", "td3", "ddpg", "sac", "ppo", "a2c"])
def test_graphs_compute_the_same_gradients(case: str, precision: str) -> None:
    device = Device.of(LearningConfig(device="cuda"))
    learning = learning_of(case).model_copy(update={"precision": precision})
    refused: list[object] = []
    updates = [
        SharedUpdate.private(network(case), learning, device.generator(1), device)
        for _ in range(2)
    ]
    graphed, plain = updates
    graphed._graphed._refused = refused.append
    plain._graphed = None
    for seed in range(6):
        gradients = [each.step(batch(case, seed)) for each in updates]
        assert gradients[0].loss == pytest.approx(gradients[1].loss, rel=1e-3, abs=1e-3)
        torch.testing.assert_close(graphed.gradient, plain.gradient, rtol=5e-3, atol=5e-3)
    assert not refused
    assert graphed.progress == plain.progress


@pytest.mark.gpu
def test_graphs_are_recorded_anew_after_all_were_given_up() -> None:
    device = Device.of(LearningConfig(device="cuda"))
    update = SharedUpdate.private(network("dqn"), learning_of("dqn"), device.generator(1), device)
    refused: list[object] = []
    update._graphed._refused = refused.append
    for _ in range(2):
        update._graphed._known.clear()
        for seed in range(3):
            update.step(batch("dqn", seed))
        assert any(update._graphed._known.values())
    assert not refused


class Waiting(torch.nn.Module):
    """A layer that asks the GPU for a number."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * float(inputs.detach().abs().max() >= 0.0)


@pytest.mark.gpu
def test_what_waits_for_the_gpu_is_refused_and_learns_on() -> None:
    device = Device.of(LearningConfig(device="cuda"))
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3, 4), torch.nn.Dropout(0.1), Waiting()
    )
    update = SharedUpdate.private(module, LearningConfig(precision="float32"), device=device)
    refused: list[str] = []
    update._graphed._refused = refused.append
    for seed in range(5):
        assert update.step(vectors(seed)).finite
    assert update.progress.updates == 5
    assert len(refused) == 1
    assert "captur" in refused[0]
    # Memory is freed as before.
    reserved = torch.cuda.memory_reserved()
    del update
    large = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    del large
    release()
    assert torch.cuda.memory_reserved() <= reserved
