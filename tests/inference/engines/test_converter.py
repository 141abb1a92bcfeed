"""The converter takes the newest weights when its share allows, and reports what it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config import Config, PolicyConfig
from rtagent.inference.engines.choice import Converted
from rtagent.inference.engines.process import Converter
from rtagent.inference.engines.registry import Candidate
from rtagent.memory.engine_models import EngineModels
from rtagent.memory.frames import FrameRing
from rtagent.memory.process_metrics import ConverterRecord
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.processes.worker import Leaving
from tests.conftest import make_blueprint, private

FRAMES = 10
SPENT_S = 2.0
SHARE = 0.1
INT8 = Candidate("openvino", "int8")


class FakeChoice:
    """Makes a model with a given agreement, in `SPENT_S` of a core."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.exhausted = False
        self.refused: list[Converted] = []
        self.agreement = 1.0
        self.size = 3
        self.compared = 0
        self.lacks_memory = False

    def convert(self, values: Any, observations: Any, expected: Any) -> Converted | None:
        assert len(observations) == len(expected)
        self.compared = len(observations)
        self._bench.cpu_s += SPENT_S
        self._bench.clock.advance(SPENT_S)
        if self.lacks_memory:
            raise MemoryError
        made = Converted(INT8, np.full(self.size, values[0], np.uint8), self.agreement)
        self.refused = [made] if self.agreement < 0.99 else []
        return None if self.refused else made


class Bench:
    """A converter and everything that it needs."""

    def __init__(self, engine: str, frames: int = FRAMES) -> None:
        blueprint = make_blueprint()
        count = blueprint.parameters
        policy = PolicyConfig(engine=engine, engine_frames=FRAMES, engine_share=SHARE)
        self.clock, self.cpu_s = VirtualClock(), 0.0
        self.weights = private(WeightBuffers, count)
        self.models = private(EngineModels, count)
        self.frames = FrameRing.private(blueprint, 64)
        self.record = private(ConverterRecord)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.choice = FakeChoice(self)
        context = SimpleNamespace(
            config=Config(policy=policy), blueprint=blueprint, clock=self.clock,
            record=self.record, beat=lambda: None, stopping=False,
            set_idle_priority=lambda: None,
            world=SimpleNamespace(weights=self.weights, frames=self.frames),
            event=lambda kind, **said: self.events.append((kind, said)),
        )
        self.context = context
        torch = SimpleNamespace(load=lambda flat: None, values=lambda seen: np.zeros(3))
        self.converter = Converter(
            context, self.models, torch, self.choice,  # type: ignore[arg-type]
            lambda: self.cpu_s,
        )
        self.show(frames)
        self.publish(1)

    def show(self, count: int) -> None:
        first = self.frames.newest + 1
        for number in range(first, first + count):
            self.frames.publish(number, np.zeros((6, 5), np.uint8), 0)

    def publish(self, version: int) -> None:
        values = np.full(100, version, np.float32)
        self.weights.publish(values, WeightsInfo(version, 10 * version))

    def step(self) -> bool:
        return self.converter._step()

    def published(self) -> tuple[int, int, int]:
        """Version, engine and bytes of the newest model."""
        found = self.models.read()
        return found[0].version, found[0].engine, found[0].size


@pytest.fixture
def bench() -> Bench:
    return Bench("openvino")


def test_the_newest_weights_within_the_share(bench: Bench) -> None:
    assert bench.step()
    assert bench.published() == (1, 1, 3)
    assert bench.record.conversions == 1
    assert bench.record.conversion_ns == SPENT_S * 1e9
    assert not bench.step(), "nothing is new"
    for version in range(2, 6):
        bench.publish(version)
        assert not bench.step(), "it is not time yet"
    bench.clock.advance(SPENT_S / SHARE - SPENT_S + 1e-6)
    assert bench.step()
    assert bench.published() == (5, 1, 3)


def test_without_enough_frames_nothing_is_checked() -> None:
    bench = Bench("openvino", FRAMES - 1)
    assert not bench.step()
    bench.show(1)
    assert bench.step()
    assert bench.choice.compared == FRAMES


def test_a_ring_that_keeps_fewer_frames_has_all_of_them_compared() -> None:
    """Like the ring of a small replay, or one whose memory is limited."""
    bench = Bench("openvino", FRAMES - 1)
    bench.frames.raise_floor(1)
    assert bench.step()
    # The first three frames that are left lack a part of their stacks.
    assert bench.choice.compared == FRAMES - 2 - 3


def test_however_long_it_runs_a_small_ring_has_enough_frames_to_compare() -> None:
    bench = Bench("openvino", 1000)
    assert bench.step()
    assert bench.choice.compared == FRAMES


@pytest.mark.parametrize("engine", ["openvino", "auto"])
def test_torch_acts_instead_of_a_snapshot_that_does_not_agree_and_it_is_told_once(
    engine: str
) -> None:
    bench = Bench(engine)
    bench.step()
    bench.choice.agreement = 0.9
    for version in (2, 3):
        bench.publish(version)
        bench.clock.advance(100.0)
        assert bench.step()
        assert bench.published() == (version, 0, 0)
    assert bench.record.refused == 2
    assert [kind for kind, _ in bench.events] == ["engine_refused"]
    said = bench.events[0][1]
    assert (said["agreement"], said["threshold"], said["weights_version"]) == (0.9, 0.99, 2)
    bench.choice.agreement = 1.0
    bench.publish(4)
    bench.clock.advance(100.0)
    bench.step()
    assert bench.published() == (4, 1, 3)


def test_where_no_engine_can_take_the_network_torch_acts(bench: Bench) -> None:
    bench.choice.exhausted, bench.choice.agreement = True, 0.0
    bench.step()
    assert bench.published() == (1, 0, 0)


def test_a_model_that_is_too_large(bench: Bench) -> None:
    bench.choice.size = bench.models.capacity + 1
    bench.step()
    assert bench.published() == (1, 0, 0)
    assert bench.events[0][0] == "engine_unusable"
    assert "too large" in bench.events[0][1]["reason"]


def test_without_memory_torch_acts_until_there_is_some_again(bench: Bench) -> None:
    assert bench.step()
    bench.publish(2)
    bench.choice.lacks_memory = True
    for _ in range(2):
        bench.clock.advance(SPENT_S / SHARE)
        assert not bench.step()
        assert bench.published() == (2, 0, 0)
    assert bench.models.number == 2
    assert bench.events == [("engine_unusable", {"engine": "openvino", "reason": "MemoryError"})]
    bench.choice.lacks_memory = False
    assert not bench.step(), "the share counts what was in vain"
    bench.clock.advance(SPENT_S / SHARE)
    assert bench.step()
    assert bench.published() == (2, 1, 3)


def test_told_to_go(bench: Bench) -> None:
    bench.context.stopping = True
    bench.converter.run()
    with pytest.raises(Leaving):
        bench.step()


def test_it_waits_for_new_weights(bench: Bench) -> None:
    bench.step()
    looks = iter(range(5))
    bench.context.beat = lambda: setattr(bench.context, "stopping", next(looks) == 4)
    before = bench.clock.now()
    bench.converter.run()
    assert bench.clock.now() - before == pytest.approx(0.2)
