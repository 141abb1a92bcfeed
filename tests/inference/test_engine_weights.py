"""Torch acts until there is a model, then the model, and torch when the converter says so."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from rtagent.inference.engine_weights import EnginePolicy, EngineWeights, Opened, OpeningThread
from rtagent.inference.weights import Weights
from rtagent.memory.engine_models import EngineModels, ModelInfo
from rtagent.memory.process_metrics import InferenceRecord
from tests.conftest import eventually, private
from tests.forked import at_each_line
from tests.inference.test_weights import PARAMETERS, PIECE_S
from tests.inference.test_weights import Bench as WeightsBench

OBSERVATION = np.zeros((4, 6, 5), np.uint8)


class ByHand:
    """Stands in for `OpeningThread`: the test opens the models."""

    def __init__(self) -> None:
        self.asked = 0
        self.opened: Opened | None = None

    def ask(self) -> None:
        self.asked += 1

    def take(self) -> Opened | None:
        opened, self.opened = self.opened, None
        return opened


class Torch:
    """Answers by the version of the weights that act."""

    def __init__(self, bench: WeightsBench) -> None:
        self._bench = bench

    def values(self, observation: np.ndarray) -> np.ndarray:
        return np.array([0.0, self._bench.acting()], np.float32)


class Bench(WeightsBench):
    """Weights that act through an engine; the test publishes weights and models."""

    def __init__(self) -> None:
        super().__init__()
        self.models = private(EngineModels, PARAMETERS)
        self.record = private(InferenceRecord)
        self.opening = ByHand()
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.policy = EnginePolicy(Torch(self))  # type: ignore[arg-type]
        self.publish(1)
        torch: Weights = self.weights
        torch.take_over()
        self.engine = EngineWeights(
            torch, self.policy, self.models, self.opening,  # type: ignore[arg-type]
            self.record, lambda kind, **details: self.told.append((kind, details)),
        )

    def convert(self, version: int, engine: int = 1, error: str | None = None) -> None:
        """Publish a model, and open it."""
        info = ModelInfo(version, 10 * version, engine, 2 if engine else 0, 4, agreement=0.997)
        self.models.publish(np.zeros(4 * (engine > 0), np.uint8), info)

        def answer(observation: np.ndarray) -> np.ndarray:
            return np.array([1.0, version], np.float32)

        self.opening.opened = Opened(info, answer if engine and not error else None, error)

    def acts(self) -> tuple[str, int]:
        """What answers, and by which version; the figures of the process must say the same."""
        kind, version = self.policy.values(OBSERVATION)
        assert self.engine.version == version
        assert self.engine.updates == 10 * version
        assert self.record.engine == kind
        return ("torch", "engine")[int(kind)], int(version)

    def wait(self, seconds: float = 1.0) -> None:
        self.engine.prepare(self.clock.now() + seconds)
        self.engine.adopt()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_torch_acts_by_the_newest_weights_until_a_model_is_there(bench: Bench) -> None:
    assert bench.acts() == ("torch", 1)
    bench.publish(2)
    bench.wait()
    assert bench.acts() == ("torch", 2)
    assert bench.opening.asked == 0


def test_a_model_acts_between_two_inferences_only(bench: Bench) -> None:
    bench.convert(1)
    bench.engine.prepare(bench.clock.now() + 1.0)
    assert bench.opening.asked == 1
    assert bench.acts() == ("torch", 1)
    bench.engine.adopt()
    assert bench.acts() == ("engine", 1)
    assert (bench.record.precision, bench.record.agreement) == (2, 0.997)


def test_the_version_is_that_of_the_model_not_of_newer_weights(bench: Bench) -> None:
    bench.convert(1)
    bench.wait()
    bench.publish(5)
    bench.wait()
    bench.engine.hurry(1.0)
    bench.engine.adopt()
    assert bench.acts() == ("engine", 1)
    # Torch's weights are not prepared while they do not act.
    assert bench.clock.now() <= 10 * PIECE_S
    bench.convert(5)
    bench.wait()
    assert bench.acts() == ("engine", 5)


def test_torch_acts_again_with_weights_that_are_as_new(bench: Bench) -> None:
    bench.publish(3)
    bench.convert(3)
    bench.engine.adopt()
    bench.publish(6)
    bench.convert(6, engine=0)
    bench.wait(0.0)
    # The model acts on while torch's network, at version 1, is brought up to date.
    assert bench.acts() == ("engine", 3)
    while bench.record.engine:
        bench.wait(3.5 * PIECE_S)
    assert bench.acts() == ("torch", 6)
    assert bench.record.agreement == 1.0
    bench.convert(7)
    bench.wait()
    assert bench.acts() == ("engine", 7)


def test_the_model_acts_on_while_newer_ones_cannot_be_opened_and_it_is_told_once(
    bench: Bench
) -> None:
    told = ("engine_failed", {"reason": "RuntimeError: no"})
    bench.convert(1)
    for version in (2, 3):
        bench.wait()
        bench.convert(version, error="RuntimeError: no")
    bench.wait()
    assert bench.acts() == ("engine", 1)
    assert bench.told == [told]
    for error in (None, "RuntimeError: no"):
        bench.convert(4, error=error)
        bench.wait()
    assert bench.acts() == ("engine", 4)
    assert bench.told == [told, told]


def test_the_thread_opens_what_is_published(bench: Bench) -> None:
    seen = []

    def open_model(info: ModelInfo, model: np.ndarray) -> Any:
        seen.append((info.version, model.tolist()))
        if info.version == 2:
            raise RuntimeError("one line\nthe last line")
        return lambda observation: np.zeros(2, np.float32)

    thread = OpeningThread(bench.models, open_model)
    opened: list[Opened] = []

    def arrived() -> bool:
        found = thread.take()
        opened.extend([] if found is None else [found])
        return found is not None

    for version, model in ((1, [1, 2, 3]), (2, [4]), (3, [])):
        info = ModelInfo(version, 0, 1, 0, 0)
        bench.models.publish(np.array(model, np.uint8), info)
        thread.ask()
        eventually(arrived, "it is opened")
    assert seen == [(1, [1, 2, 3]), (2, [4])]
    assert opened[0].answer is not None
    assert opened[1].error == "RuntimeError: the last line"
    assert (opened[2].answer, opened[2].error, opened[2].info.version) == (None, None, 3)


@pytest.mark.parametrize("of", ["read", "open"])
def test_a_model_for_which_there_is_no_memory_is_tried_again_if_no_other_comes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    tries, read = count(), bench.models.read

    def refuse_once(what: str) -> None:
        if what == of and not next(tries):
            raise MemoryError

    def open_model(info: ModelInfo, model: np.ndarray) -> Any:
        refuse_once("open")
        return lambda observation: np.zeros(2, np.float32)

    monkeypatch.setattr(bench.models, "read", lambda: refuse_once("read") or read())
    monkeypatch.setattr("rtagent.inference.engine_weights.AGAIN_S", 0.001)
    thread = OpeningThread(bench.models, open_model)
    # In place of a queue of length one: the test may look after both attempts.
    monkeypatch.setattr(thread, "_opened", taken := [])
    bench.models.publish(np.ones(4, np.uint8), ModelInfo(1, 0, 1, 0, 0))
    thread.ask()
    eventually(lambda: len(taken) == 2, "it is opened")
    assert taken[0].error == "MemoryError"
    assert (taken[1].info.version, taken[1].error) == (1, None)


@pytest.mark.parametrize("line", range(4))
def test_a_model_that_is_opened_while_another_one_is_taken_is_not_lost(
    bench: Bench, line: int
) -> None:
    opened: list[int] = []
    thread = OpeningThread(bench.models, lambda info, model: opened.append(info.version))  # type: ignore[arg-type,func-returns-value]

    def open_a_newer_one() -> None:
        version = len(opened) + 1
        bench.models.publish(np.ones(4, np.uint8), ModelInfo(version, 0, 1, 0, 0))
        thread.ask()
        handed_over = thread._opened
        eventually(lambda: [each.info.version for each in [*handed_over]] == [version], "opened")

    def reached() -> None:
        if next(lines) == line:
            open_a_newer_one()

    open_a_newer_one()
    lines = count()
    with at_each_line(lambda code: code is OpeningThread.take.__code__, reached):
        taken = [thread.take()]
    taken.append(thread.take())
    assert opened[-1] in [each.info.version for each in taken if each is not None]
