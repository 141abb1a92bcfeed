"""Profiles of real steps, and steps that follow a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe
from rtagent.learning.algorithms.value_learning import ValueLearning
from rtagent.learning.beginning import build_network
from rtagent.learning.placed import PlacedUpdate, measure_placement
from rtagent.learning.profiling import (
    NoProfile,
    precisions_of,
    profile_key,
    random_batch,
    take_profile,
)
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.blueprint import Blueprint
from rtagent.placement.layers import InTurn
from rtagent.placement.problem import Placed, Plan
from rtagent.placement.profile import Profile
from rtagent.placement.second_core import SecondCore
from rtagent.placement.step import Placement, place, step_problem
from tests.placement.steps import made_profile

SIZE = 4


def _config(*overrides: str) -> Config:
    return load_config(None, ["env.id=CartPole-v1", f"learning.batch_size={SIZE}", *overrides], {})


def _shapes(config: Config) -> Blueprint:
    return probe(config)


def _profile(config: Config, blueprint: Blueprint) -> Profile:
    return take_profile(config, blueprint, SIZE, 0.02, lambda done: None)


def _everything_beside(profile: Profile) -> Placement:
    """All that may move is on the second core, however long that takes."""
    problem = step_problem(profile, beside=True)
    placed = []
    for number, part in enumerate(profile.parts):
        usable = [
            unit for unit in problem.usable(number) if problem.units[unit].precision == "float32"
        ]
        moves = part.kind in ("target", "successors", "weights")
        placed.append(Placed(usable[-1] if moves else usable[0], float(number), number + 1.0))
    return Placement(profile, problem, Plan(tuple(placed)), 1.0)


@contextmanager
def _plain_and_planned(
    config: Config, blueprint: Blueprint, placement: Placement, precision: Any = None
) -> Iterator[tuple[SharedUpdate, SharedUpdate]]:
    """The same update twice; the second, if need be set to a precision, follows a plan."""
    plain, planned = (
        SharedUpdate.private(build_network(config, blueprint), config.learning) for _ in range(2)
    )
    planned.algorithm.precision = precision or planned.algorithm.precision
    core = SecondCore()
    placed = PlacedUpdate(planned, placement, core)
    placed.put_in_force()
    yield plain, planned
    placed.take_back()
    core.close()


def _assert_same_step(plain: SharedUpdate, planned: SharedUpdate, batch: Batch) -> None:
    expected, found = plain.step(batch), planned.step(batch)
    assert found.loss == expected.loss
    assert torch.equal(found.errors, expected.errors)
    assert torch.equal(planned.slope, plain.slope)


GAMES: list[tuple[str, ...]] = [
    (), ("learning.algorithm=double-dqn", "learning.dueling=true"),
    ("learning.algorithm=c51",),
    ("env.id=rtagent/Starfall-v0", "policy.network=nature"),
    ("env.id=rtagent/Starfall-v0", "policy.network=resnet", "learning.algorithm=double-dqn"),
]


@pytest.mark.parametrize("overrides", GAMES, ids=lambda each: ",".join(each) or "mlp")
def test_a_placed_step_has_the_same_gradient_to_the_last_bit(overrides: tuple[str, ...]) -> None:
    config = _config("learning.precision=float32", *overrides)
    blueprint = _shapes(config)
    batch = random_batch(blueprint, SIZE, 0)
    placement = _everything_beside(_profile(config, blueprint))
    assert placement.uses_second
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        for _ in range(3):
            _assert_same_step(plain, planned, batch)
            slopes = [each.grad for each in planned.algorithm.network.parameters()]
            assert not any(each.requires_grad for each in slopes)
        assert (planned.state.current.weights == plain.state.current.weights).all()
    assert isinstance(planned.algorithm, ValueLearning)
    assert isinstance(planned.algorithm.runner, InTurn)
    _assert_same_step(plain, planned, batch)


def test_the_parts_of_a_profile_are_those_of_the_step() -> None:
    config = _config("learning.precision=float32")
    profile = _profile(config, _shapes(config))
    assert [part.name for part in profile.parts] == [
        "takeover", "layers.0 forward", "layers.2 forward", "values forward", "layers.0 target",
        "layers.2 target", "values target", "loss", "values weights", "values inputs",
        "layers.2 weights", "layers.2 inputs", "layers.0 weights", "gradient", "apply",
    ]
    assert profile.precisions == ("float32",)
    assert profile.steps >= 3
    total = sum(part.alone_us["float32"] for part in profile.parts)
    assert total == pytest.approx(profile.step_us["float32"], rel=0.5)


def test_the_head_is_measured_in_float32_alone() -> None:
    config = _config("learning.precision=bfloat16")
    profile = _profile(config, _shapes(config))
    by_name = {part.name: set(part.alone_us) for part in profile.parts}
    assert by_name["layers.0 forward"] == {"bfloat16"}
    assert by_name["values forward"] == by_name["values weights"] == {"float32"}
    precisions = {part.name: place(profile).unit(n).precision
                  for n, part in enumerate(profile.parts)}
    assert precisions["layers.2 inputs"] == "bfloat16"
    assert precisions["values inputs"] == "float32"


def test_a_step_in_the_precision_of_its_plan_is_that_of_the_learner() -> None:
    config = _config("learning.precision=bfloat16")
    blueprint = _shapes(config)
    placement = place(_profile(config, blueprint))
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        _assert_same_step(plain, planned, random_batch(blueprint, SIZE, 0))


def test_a_plan_in_float32_is_float32_from_the_first_layer_on() -> None:
    config = _config("learning.precision=float32")
    blueprint = _shapes(config)
    slow = place(made_profile(("layers.0", "layers.2", "values"), bfloat16=3.0))
    with _plain_and_planned(config, blueprint, slow, "bfloat16") as (plain, planned):
        _assert_same_step(plain, planned, random_batch(blueprint, SIZE, 0))
    assert planned.algorithm.precision == "bfloat16"


def test_a_failed_step_leaves_nothing_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    config = _config("learning.precision=float32")
    blueprint = _shapes(config)
    batch = random_batch(blueprint, SIZE, 0)
    placement = _everything_beside(_profile(config, blueprint))
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        runner: Any = planned.algorithm.runner  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(type(runner), "inputs", lambda *args: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                planned.step(batch)
        assert not runner._pending
        _assert_same_step(plain, planned, batch)


def test_a_plan_is_measured_beside_that_for_one_core() -> None:
    config = _config("learning.precision=float32")
    blueprint = _shapes(config)
    placement = place(_profile(config, blueprint))
    told: list[float] = []
    measured = measure_placement(config, blueprint, placement, 0.02, told.append, MonotonicClock())
    assert min(measured.planned_ms, measured.single_ms) > 0.0
    assert len(measured.planned) == len(measured.single) >= 3
    assert told[-1] == 1.0


def test_an_algorithm_without_a_graph_is_told() -> None:
    config = _config("env.id=Pendulum-v1")
    with pytest.raises(NoProfile, match="a step of td3 cannot be placed so far"):
        _profile(config, _shapes(config))


def test_the_key_follows_the_network_and_the_batch_size() -> None:
    config, wider = _config(), _config("policy.width=2")
    blueprint = _shapes(config)
    keys = {profile_key(config, blueprint, 4), profile_key(config, blueprint, 8),
            profile_key(wider, blueprint, 4)}
    assert len(keys) == 3
    assert profile_key(config, blueprint, 4) in keys


def test_precision_is_what_is_configured() -> None:
    learning = _config().learning
    fixed = learning.model_copy(update={"precision": "bfloat16"})
    assert precisions_of(fixed) == ("bfloat16",)
    assert precisions_of(learning)[0] == "float32"
