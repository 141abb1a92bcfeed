"""The fastest candidate that agrees acts; one that disagrees, or cannot act, does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from rtagent.inference.engines.agreement import agreement
from rtagent.inference.engines.choice import Choice
from rtagent.inference.engines.interface import Unsupported
from rtagent.inference.engines.registry import Candidate

ACTIONS = gymnasium.spaces.Discrete(3)
OBSERVATIONS = [np.full(4, seed, np.float32) for seed in range(100)]
RIGHT = [np.array([0.0, 1.0, 0.5], np.float32)] * len(OBSERVATIONS)
WEIGHTS = np.zeros(3, np.float32)
INT8, FLOAT32 = Candidate("one", "int8"), Candidate("one", "float32")
OTHER, TORCH = Candidate("other", "float32"), Candidate("torch", "float32")


class Fake:
    """An engine with a given inference time, which is wrong on some frames."""

    def __init__(self, bench: Bench, name: str) -> None:
        self._bench, self._name = bench, name

    def translate(self, network: Any) -> Callable[..., np.ndarray]:
        self._bench.translated.append(self._name)
        if self._name in self._bench.unsupported:
            raise Unsupported("aten::nonzero")
        return self._convert

    def _convert(self, values: Any, precision: str, observations: Any) -> np.ndarray:
        self._bench.converted.append((self._name, precision))
        if {self._name, Candidate(self._name, precision)} & self._bench.broken:
            raise RuntimeError("first\nlast")
        if Candidate(self._name, precision) in self._bench.without_memory:
            raise MemoryError
        return np.zeros(3, np.uint8)

    def open(self, model: np.ndarray, precision: Any) -> Callable[[np.ndarray], np.ndarray]:
        candidate = Candidate(self._name, precision)

        def answer(observation: np.ndarray) -> np.ndarray:
            self._bench.cpu_s += self._bench.seconds[candidate]
            if candidate in self._bench.infinite:
                return np.full(3, np.nan, np.float32)
            wrong = observation[0] < self._bench.wrong.get(candidate, 0)
            return np.array([2.0, 1.0, 0.5] if wrong else RIGHT[0], np.float32)

        return answer


class Bench:
    """A choice among three candidates of two engines."""

    def __init__(self, must_beat: float = 0.0, threshold: float = 0.99) -> None:
        self.cpu_s = 0.0
        self.seconds = {INT8: 1.0, FLOAT32: 2.0, OTHER: 3.0, TORCH: must_beat}
        self.wrong: dict[Candidate, int] = {}
        self.unsupported: set[str] = set()
        self.broken: set[str | Candidate] = set()
        self.without_memory: set[Candidate] = set()
        self.infinite: set[Candidate] = set()
        self.converted: list[tuple[str, str]] = []
        self.translated: list[str] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.choice = Choice(
            {"one": Fake(self, "one"), "other": Fake(self, "other")},  # type: ignore[dict-item]
            [OTHER, FLOAT32, INT8], None, ACTIONS, threshold,  # type: ignore[arg-type]
            Fake(self, "torch").open(WEIGHTS, "float32") if must_beat else None,
            lambda kind, **said: self.told.append((kind, said)), lambda: None, lambda: self.cpu_s,
        )

    def convert(self) -> Candidate | None:
        found = self.choice.convert(WEIGHTS, OBSERVATIONS, RIGHT)
        return None if found is None else found.candidate


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_fastest(bench: Bench) -> None:
    assert bench.convert() == INT8
    kind, said = bench.told[0]
    assert kind == "engines_timed"
    assert (said["one_int8_ms"], said["other_float32_ms"]) == (1000.0, 3000.0)
    # Candidates are timed and translated once; after that only the chosen one is converted.
    bench.converted.clear()
    assert bench.convert() == INT8
    assert bench.converted == [("one", "int8")]
    assert sorted(bench.translated) == ["one", "other"]


def test_the_fastest_that_agrees(bench: Bench) -> None:
    bench.wrong = {INT8: 2}
    assert bench.convert() == FLOAT32
    assert [(each.candidate, each.agreement) for each in bench.choice.refused] == [(INT8, 0.98)]
    # For the next snapshot the fastest one is tried first again.
    bench.wrong = {INT8: 1}
    assert bench.convert() == INT8
    assert bench.choice.refused == []


def test_nothing_agrees(bench: Bench) -> None:
    bench.wrong = dict.fromkeys((INT8, FLOAT32, OTHER), 50)
    assert bench.convert() is None
    assert len(bench.choice.refused) == 3
    assert not bench.choice.exhausted


def test_what_answers_no_numbers_does_not_act_whatever_the_threshold() -> None:
    bench = Bench(threshold=0.0)
    bench.infinite, bench.wrong = {INT8}, {FLOAT32: len(OBSERVATIONS)}
    assert bench.convert() == FLOAT32
    assert [each.candidate for each in bench.choice.refused] == [INT8]


def test_what_is_slower_than_torch_is_left_out() -> None:
    bench = Bench(must_beat=2.5)
    bench.wrong = {INT8: 50, FLOAT32: 50}
    assert bench.convert() is None
    bench = Bench(must_beat=0.5)
    assert bench.convert() is None
    assert bench.choice.exhausted


def test_an_operator_that_an_engine_has_not(bench: Bench) -> None:
    bench.unsupported = {"one"}
    assert bench.convert() == OTHER
    assert bench.told[0] == ("engine_unusable", {"engine": "one", "reason": "aten::nonzero"})
    assert [kind for kind, _ in bench.told].count("engine_unusable") == 1
    assert bench.convert() == OTHER
    assert bench.translated.count("one") == 1


def test_an_engine_that_fails(bench: Bench) -> None:
    bench.broken = {"one", "other"}
    assert bench.convert() is None
    assert bench.choice.exhausted
    assert bench.told[0][1]["reason"] == "RuntimeError: last"


def test_a_precision_that_fails_leaves_the_others_of_its_engine(bench: Bench) -> None:
    bench.broken, bench.wrong = {INT8}, {}
    assert bench.convert() == FLOAT32
    assert bench.told[0] == ("engine_unusable", {
        "engine": "one", "precision": "int8", "reason": "RuntimeError: last",
    })


def test_a_model_that_fails_later_does_not_act(bench: Bench) -> None:
    assert bench.convert() == INT8
    bench.broken = {INT8}
    assert bench.convert() == FLOAT32
    bench.converted.clear()
    assert bench.convert() == FLOAT32
    assert ("one", "int8") not in bench.converted


def test_a_lack_of_memory_leaves_no_candidate_out(bench: Bench) -> None:
    for _ in range(2):
        bench.without_memory = {INT8}
        with pytest.raises(MemoryError):
            bench.convert()
        bench.without_memory.clear()
        assert bench.convert() == INT8
    assert [kind for kind, _ in bench.told] == ["engines_timed"]


def test_agreement_of_actions() -> None:
    values = [np.array([0.0, 1.0]), np.array([1.0, 0.0])]
    other = [np.array([0.4, 0.5]), np.array([0.4, 0.5])]
    assert agreement(values, values, ACTIONS) == 1.0
    assert agreement(values, other, ACTIONS) == 0.5
    assert agreement(values, [np.array([0.0, np.nan])] * 2, ACTIONS) == 0.0
    box = gymnasium.spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32))
    first = [np.array([0.5, 2.0])] * 4
    near = [np.array([0.5 + step, 2.0 - step]) for step in (0.0, 0.019, 0.021, 0.05)]
    assert agreement(first, near, box) == 0.5


def test_agreement_of_a_random_actor() -> None:
    box = gymnasium.spaces.Box(-5.0, 5.0, (1,), np.float32)
    first = [np.array([0.0, -1.0])] * 4
    near = [np.array(each) for each in ([0.019, -1.0], [0.03, -1.0], [0.0, -0.96], [0.0, -0.9])]
    assert agreement(first, near, box) == 0.5


def test_agreement_of_a_policy_that_draws_its_actions() -> None:
    """The share of draws for which both distributions give the same action."""

    def share(*chances: list[float]) -> float:
        first, second = ([np.log(np.array(each))] for each in chances)
        return agreement(first, second, ACTIONS, draws=True)

    assert share([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]) == pytest.approx(1.0)
    # The likeliest action is the same, and one of five draws is another one.
    assert share([0.5, 0.3, 0.2], [0.7, 0.1, 0.2]) == pytest.approx(0.8)
    # The likeliest one differs, and hardly any draw does.
    assert share([0.334, 0.333, 0.333], [0.333, 0.334, 0.333]) == pytest.approx(0.999)
    # A number is drawn, and the intervals of the actions have moved.
    assert share([0.4, 0.2, 0.4], [0.2, 0.4, 0.4]) == pytest.approx(0.8)
    assert share([0.4, 0.2, 0.4], [0.4, 0.4, 0.2]) == pytest.approx(0.8)
    assert share([0.2, 0.4, 0.4], [0.4, 0.4, 0.2]) == pytest.approx(0.6)
    assert agreement([np.zeros(3)], [np.array([0.0, np.nan, 0.0])], ACTIONS, draws=True) == 0.0
    excluding = [np.array([0.0, 0.0, -np.inf])]
    assert agreement(excluding, excluding, ACTIONS, draws=True) == pytest.approx(1.0)
    assert agreement([np.zeros(3)], excluding, ACTIONS, draws=True) == pytest.approx(0.5)
    assert agreement([np.zeros(3)], [np.full(3, -np.inf)], ACTIONS, draws=True) == 0.0
