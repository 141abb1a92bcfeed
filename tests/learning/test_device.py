"""Learning apart from the host's memory: the processor stands in for a GPU, where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning import adam
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.device import HOST, Device
from rtagent.learning.replay.sequences import SequenceBatch, blank
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy.actor_critic import build_learned
from tests.conftest import make_blueprint
from tests.learning.test_precision import CASES, IMAGES, actions_of, batch
from tests.learning.test_shared_update import beside

MODES: dict[str, dict[str, Any]] = {**CASES, "td3": {"target_noise": 0.0}}


class FakeStream:
    """Stands in for a GPU's stream: counts the contexts of copies that have ended."""

    def __init__(self) -> None:
        self.done = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        yield
        self.done += 1


@pytest.fixture(autouse=True)
def same_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam as torch has it on every device, for the compiled one rounds differently; and no
    convolutions in TF32, which has 10 bits of a float32's 23."""
    monkeypatch.setattr(adam, "_ADAM", None)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture(params=["stand-in", pytest.param("cuda", marks=pytest.mark.gpu)])
def apart(request: Any) -> Device:
    if request.param == "cuda":
        return Device.of(LearningConfig(device="cuda"))
    return Device(torch.device("cpu"), FakeStream())


def learning_of(case: str) -> LearningConfig:
    return LearningConfig(precision="float32", publish_every=1, **MODES[case])


def network(case: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_learned(PolicyConfig(network="nature"), IMAGES, actions_of(case),
                         learning_of(case))


def update(case: str, device: Device) -> SharedUpdate:
    return SharedUpdate.private(network(case), learning_of(case), device.generator(1), device)


def close(mine: Any, theirs: Any, device: Device) -> None:
    """Equal to the bit where the processor stands in for a GPU."""
    tolerance = 0.0 if device.device.type == "cpu" else 2e-3
    np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", [case for case in MODES if case != "double-dqn"])
def test_updates_are_those_of_the_processor(case: str, apart: Device) -> None:
    if case == "sac" and apart.device.type == "cuda":
        pytest.skip("draws other numbers there")
    here, there = update(case, HOST), update(case, apart)
    for seed in range(3):
        found = [each.step(batch(case, seed)) for each in (here, there)]
        assert [each.updates for each in found] == [seed, seed]
        close(found[1].loss, found[0].loss, apart)
        close(there.gradient.cpu(), here.gradient, apart)
        close(found[1].errors.cpu(), found[0].errors.cpu(), apart)
    there.store()
    close(there.state.current.weights, here.state.current.weights, apart)


def test_the_weights_of_the_device_are_published(apart: Device) -> None:
    one = update("dqn", apart)
    one.step(batch("dqn"))
    published = np.empty_like(one.state.current.weights)
    assert one.weights.read(published) is not None
    one.refresh()
    there = torch.cat([each.flatten().cpu() for each in one.algorithm.network.parameters()])
    np.testing.assert_array_equal(there.detach().numpy(), published)
    assert not np.array_equal(published, update("dqn", HOST).state.current.weights)


def test_two_learners_on_one_device_learn_what_one_learns(apart: Device) -> None:
    first, alone = update("dqn", apart), update("dqn", HOST)
    other = beside(first, network("dqn").to(apart.device), apart)
    for seed in range(4):
        (first, other)[seed % 2].step(batch("dqn", seed))
        alone.step(batch("dqn", seed))
    close(first.state.current.weights, alone.state.current.weights, apart)


def test_a_batch_is_copied_once_and_is_its_own(apart: Device) -> None:
    made = batch("dqn")
    strided = torch.arange(4.0)[::2]
    made = replace(made, rewards=torch.from_numpy(strided.numpy()), targets=strided)
    kept = made.observations.clone()
    sent = apart.send(made)
    assert sent.sent
    assert apart.send(sent) is sent
    assert sent.observations.data_ptr() != made.observations.data_ptr()
    # States and successors are views of one array, here and there.
    step = made.next_observations.data_ptr() - made.observations.data_ptr()
    assert sent.next_observations.data_ptr() - sent.observations.data_ptr() == step > 0
    made.observations.zero_()
    assert torch.equal(sent.observations.cpu(), kept)
    assert sent.rewards.tolist() == sent.targets.tolist() == [0.0, 2.0]
    assert sent.frames is made.frames
    if isinstance(apart._copying, FakeStream):
        assert apart._copying.done == 1


def test_a_batch_of_sequences_is_copied_once(apart: Device) -> None:
    made = blank(make_blueprint(state_size=4), LearningConfig(burn_in=2, sequence=3, n_step=1), 6)
    sent = apart.send(made)
    assert isinstance(sent, SequenceBatch)
    assert apart.send(sent) is sent
    assert torch.equal(sent.parents.cpu(), made.parents)
    if isinstance(apart._copying, FakeStream):
        assert apart._copying.done == 1


def test_the_processor_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = batch("dqn")
    assert Device.of(LearningConfig()) is HOST
    assert HOST.send(made) is made
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert Device.of(LearningConfig(device="auto")) is HOST


def test_precisions_are_measured_on_the_device(apart: Device) -> None:
    one = update("dqn", apart)
    one.refresh()
    measured = one.measure_precisions(lambda count: batch("dqn"), 2, lambda: None)
    assert measured.seconds["float32"] > 0.0


@pytest.mark.parametrize("case", MODES)
def test_no_tensor_is_left_behind_on_the_processor(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch does not mix the device `meta`, which has shapes and no values, with the processor."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)
    monkeypatch.setattr(torch.Tensor, "__float__", lambda _: 0.5)
    made = algorithm_for(network(case).to("meta"), learning_of(case))
    tensors = {k: v.to("meta") for k, v in vars(batch(case)).items() if torch.is_tensor(v)}
    _, errors = made.compute_gradient(replace(batch(case), **tensors))
    assert errors.device.type == "meta"
    gradients = [each.grad for each in made.network.parameters() if each.grad is not None]
    assert {each.device.type for each in gradients} == {"meta"}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """A machine with two GPUs, as torch sees it; returns those on which a context has begun."""
    thread, found = threading.local(), set[int]()

    def current() -> int:
        return getattr(thread, "gpu", 0)

    def move(gpu: int) -> int:
        before, thread.gpu = current(), gpu
        return before

    def begin(gpu: int) -> int:
        # As CUDA's `cudaSetDevice` does, unless the GPU is the current one.
        if gpu != current():
            found.add(gpu)
        return move(gpu)

    def stream(device: Any = None) -> Any:
        return SimpleNamespace(device=device or torch.device("cuda", current()))

    event = SimpleNamespace(record=lambda stream: None, synchronize=lambda: None)
    for name, value in {
        "device_count": lambda: 2, "current_device": current, "Stream": stream,
        "current_stream": stream, "set_device": lambda device: begin(device.index),
        "set_stream": lambda given: begin(given.device.index), "_exchange_device": begin,
        "_maybe_exchange_device": move, "Event": lambda blocking: event,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    return found


def test_a_thread_that_sends_to_the_second_gpu_uses_no_memory_of_the_first(
    begun: set[int],
) -> None:
    device = Device.of(LearningConfig(device="cuda:1"))

    def send() -> None:
        assert device._copying is not None
        with device._copying():
            assert torch.cuda.current_device() == 1

    with ThreadPoolExecutor(1) as sender:
        sender.submit(send).result()
        assert sender.submit(torch.cuda.current_device).result() == 0
    assert begun == {1}
