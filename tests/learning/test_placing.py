"""Plans of a learner, made while it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe
from rtagent.learning import placing
from rtagent.learning.beginning import build_network
from rtagent.learning.placing import Placing
from rtagent.learning.profiling import random_batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.placement.layers import StepRunner
from rtagent.placement.profile import Profile
from rtagent.placement.trial import FIRST_STEPS, WINDOW
from tests.placement.steps import made_actor_critic, made_profile

SIZE = 4
LAYERS = ("layers.0", "layers.2", "values")


class Bench:
    """A learner's plans, with an update that is really made.

    Attributes:
        profiles: sizes that were measured.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *overrides: str) -> None:
        self.config = load_config(None, [
            "env.id=CartPole-v1", f"run.state_dir={folder}", "learning.placement=auto",
            "learning.precision=float32", *overrides,
        ], {})
        self.blueprint = probe(self.config)
        self.update = SharedUpdate.private(
            build_network(self.config, self.blueprint), self.config.learning
        )
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.profiles: list[int] = []
        self.beside, self.bfloat16 = 1.0, 3.0
        self.error: Exception | None = None
        monkeypatch.setattr(placing, "take_profile", self._profile)
        monkeypatch.setattr(placing, "usable_cores", lambda: 2)
        self.placing = Placing(
            self.update, self.config, self.blueprint, VirtualClock(), self._ask, lambda: None,
            lambda kind, **details: self.events.append((kind, details)),
        )

    def _ask(self, size: int) -> None:
        if self.error is not None:
            raise self.error

    def _profile(self, config: Any, blueprint: Any, size: int, *_: Any) -> Any:
        self.profiles.append(size)
        return made_profile(LAYERS, bfloat16=self.bfloat16, beside=self.beside)

    def learn(self, steps: int, planned_s: float, plain_s: float, size: int = SIZE) -> None:
        """Updates that take so long, by the clock, with the plan and without."""
        batch = random_batch(self.blueprint, size, 0)
        for _ in range(steps):
            self.placing.prepare(size)
            self.placing.begin(size)
            self.update.step(batch)
            self.placing.end(plain_s if self.plain else planned_s)

    @property
    def plain(self) -> bool:
        return type(self.update.algorithm.runner) is StepRunner


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = Bench(tmp_path, monkeypatch)
    yield made
    made.placing.close()
    assert made.plain


def test_a_plan_is_made_once_for_a_batch_size_and_kept(bench: Bench) -> None:
    assert bench.placing.state == "measuring"
    bench.learn(5, 0.5, 1.0)
    bench.learn(5, 0.5, 1.0, size=16)
    bench.learn(5, 0.5, 1.0)
    assert bench.profiles == [SIZE, 16]
    assert [kind for kind, _ in bench.events] == ["placement", "placement"]
    assert bench.events[0][1]["cores"] == 2
    assert bench.placing.state == "two cores"
    bench.placing.close()
    again = Placing(
        bench.update, bench.config, bench.blueprint, VirtualClock(), lambda size: None,
        lambda: None, lambda kind, **details: None,
    )
    assert again.prepare(SIZE)
    assert bench.profiles == [SIZE, 16], "a later learner finds the profile"
    again.close()


def test_the_precision_is_that_of_the_plan_while_it_is_followed(bench: Bench) -> None:
    bench.bfloat16 = 0.3
    assert bench.placing.precision == "float32"
    bench.learn(1, planned_s=0.5, plain_s=1.0)
    assert bench.plain, "the first step is one without the plan"
    assert bench.placing.precision == "bfloat16"
    bench.learn(2 * (WINDOW + FIRST_STEPS) + 1, planned_s=1.2, plain_s=1.0)
    assert bench.placing.state == "taken back"
    assert bench.placing.precision == "float32"


def test_a_plan_for_one_core_that_mixes_precisions_is_followed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made, and told, and the learner went on without it."""
    monkeypatch.setattr(placing, "take_profile", lambda *_: mixed_profile())
    bench.learn(2, planned_s=0.5, plain_s=1.0)
    (_, told), = bench.events
    assert told["cores"] == 1
    assert not bench.plain
    assert bench.placing.state == "one core"
    assert bench.placing.precision == "bfloat16"
    bench.learn(2 * (WINDOW + FIRST_STEPS) + 2, planned_s=1.2, plain_s=1.0)
    assert bench.placing.state == "taken back"


def mixed_profile() -> Profile:
    """Only the first layer is faster in bfloat16; a second core is of no use."""
    profile = made_profile(LAYERS, bfloat16=0.3, beside=3.0)
    times = {"float32": 1000.0, "bfloat16": 3000.0}
    shared = {each: 3.0 * us for each, us in times.items()}
    parts = tuple(
        replace(part, alone_us=times, beside_us=shared)
        if part.layer == LAYERS[1] else part for part in profile.parts
    )
    steps = {
        each: sum(part.alone_us.get(each, 100.0) for part in parts)
        for each in ("float32", "bfloat16")
    }
    return replace(profile, parts=parts, step_us=steps, split_us=steps)


def test_similar_sizes_share_a_profile_but_not_the_verdict_on_its_plan(bench: Bench) -> None:
    steps = 2 * (WINDOW + FIRST_STEPS) + 2
    bench.learn(steps, planned_s=0.5, plain_s=1.0)
    for size in (5, 2 * SIZE):
        bench.learn(steps, planned_s=1.2, plain_s=1.0, size=size)
    # 8 is similar, but has no profile of its own.
    bench.learn(steps, planned_s=0.5, plain_s=1.0, size=9)
    assert bench.profiles == [SIZE, 9]
    assert bench.placing.state == "two cores"
    bench.learn(1, planned_s=1.2, plain_s=1.0, size=5)
    assert bench.placing.state == "taken back"


def test_a_plan_that_is_slower_is_taken_back(bench: Bench) -> None:
    bench.learn(2 * (WINDOW + FIRST_STEPS) + 2, planned_s=1.2, plain_s=1.0)
    assert bench.placing.state == "taken back"
    assert bench.events[-1] == ("placement_taken_back", {"batch_size": SIZE})


def test_with_a_policy_delay_only_whole_steps_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(
        tmp_path, monkeypatch, "env.id=Pendulum-v1", "learning.algorithm=td3",
        "learning.policy_delay=2",
    )
    monkeypatch.setattr(placing, "take_profile", lambda *_: made_actor_critic())
    batch = random_batch(bench.blueprint, SIZE, 0)
    ways: list[tuple[bool, bool]] = []
    for _ in range(2 * (2 * (WINDOW + FIRST_STEPS) + 2)):
        bench.placing.prepare(SIZE)
        bench.update.refresh()
        bench.placing.begin(SIZE)
        whole, planned = bench.update.whole, not bench.plain
        ways.append((whole, planned))
        bench.update.apply(bench.update.compute(batch, bench.update.state.progress.updates))
        # A step of the critics alone takes half as long; the plan gains nothing.
        bench.placing.end((1.2 if planned else 1.0) if whole else 0.5)
    assert {planned for whole, planned in ways if whole} == {True, False}
    assert {planned for whole, planned in ways[:20] if not whole} == {True}
    assert bench.placing.state == "taken back"
    bench.placing.close()


def test_a_plan_for_one_core_is_no_plan(bench: Bench) -> None:
    bench.beside = 10.0
    bench.learn(3, 1.0, 1.0)
    assert bench.placing.state == "one core"
    assert bench.plain


@pytest.mark.parametrize(("error", "said"), [
    (MemoryError("refused"), "refused"), (MemoryError(), "MemoryError"),
    (RuntimeError("a network that\nfails"), "a network that fails"),
])
def test_learning_goes_on_without_a_profile(bench: Bench, error: Exception, said: str) -> None:
    bench.error = error
    bench.learn(3, 1.0, 1.0)
    assert bench.placing.state == "failed"
    assert bench.events == [("placement_failed", {"batch_size": SIZE, "error": said})]
    assert bench.plain
    assert bench.update.state.progress.updates == 3


def test_one_core_alone_is_not_measured(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "usable_cores", lambda: 1)
    bench.learn(3, 1.0, 1.0)
    assert not bench.profiles
    assert bench.placing.state == "one core"


def test_nothing_is_measured_unless_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Bench(tmp_path, monkeypatch, "learning.placement=off")
    off.learn(3, 1.0, 1.0)
    assert off.placing.state == "off"
    assert not off.events
    off.placing.close()
