"""Profiles of real steps, and steps that follow a plan."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from benchmarks.learning.ap_drl import ddpg
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.evaluation.probe import probe
from rtagent.learning.beginning import build_network
from rtagent.learning.placed import PlacedUpdate, measure_placement
from rtagent.learning.profiling import Build, random_batch, take_profile
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.blueprint import Blueprint
from rtagent.placement.layers import StepRunner
from rtagent.placement.problem import Placed, Plan
from rtagent.placement.profile import PASSES, Profile
from rtagent.placement.second_core import SecondCore
from rtagent.placement.step import Placement, place, step_problem
from tests.placement.steps import made_profile

SIZE = 4


def _config(*overrides: str) -> Config:
    return load_config(None, ["env.id=CartPole-v1", f"learning.batch_size={SIZE}", *overrides], {})


def _step(*overrides: str) -> tuple[Config, Blueprint, Batch]:
    """A run in float32, unless it is set otherwise, and a batch to learn from."""
    config = _config("learning.precision=float32", *overrides)
    blueprint = probe(config)
    return config, blueprint, random_batch(blueprint, SIZE, 0)


def _profile(config: Config, blueprint: Blueprint, build: Build = build_network) -> Profile:
    return take_profile(config, blueprint, SIZE, 0.02, lambda done: None, build=build)


def _everything_beside(profile: Profile) -> Placement:
    """All that may move is on the second core, however long that takes."""
    problem = step_problem(profile, profile.precisions, beside=True)
    placed = []
    for number, part in enumerate(profile.parts):
        usable = [
            unit for unit in problem.usable(number) if problem.units[unit].precision == "float32"
        ]
        moves = part.own_pass is not None or part.kind == "weights"
        placed.append(Placed(usable[-1] if moves else usable[0], float(number), number + 1.0))
    return Placement(profile, problem, Plan(tuple(placed)))


def _only_passes_beside(profile: Profile, passes: tuple[str, ...] = PASSES) -> Placement:
    """These passes are on the second core, and torch runs all layers itself."""
    problem = step_problem(profile, ("float32",), beside=True, weights=False)
    placed = [
        Placed(problem.usable(n)[-1 if part.own_pass in passes else 0], float(n), n + 1.0)
        for n, part in enumerate(profile.parts)
    ]
    return Placement(profile, problem, Plan(tuple(placed)))


@contextmanager
def _plain_and_planned(
    config: Config, blueprint: Blueprint, placement: Placement, precision: Any = None,
    build: Build = build_network,
) -> Iterator[tuple[SharedUpdate, SharedUpdate]]:
    """The same update twice; the second, if need be set to a precision, follows a plan."""
    plain, planned = (
        SharedUpdate.private(
            build(config, blueprint), config.learning, torch.Generator().manual_seed(3)
        ) for _ in range(2)
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
    assert torch.equal(planned.gradient, plain.gradient)


GAMES: list[tuple[str, ...]] = [
    (), ("learning.algorithm=double-dqn", "learning.dueling=true"),
    ("learning.algorithm=c51",),
    ("env.id=rtagent/Starfall-v0", "policy.network=nature"),
    ("env.id=rtagent/Starfall-v0", "policy.network=resnet", "learning.algorithm=double-dqn"),
]


@pytest.mark.parametrize("overrides", GAMES, ids=lambda each: ",".join(each) or "mlp")
def test_a_placed_step_has_the_same_gradient_to_the_last_bit(overrides: tuple[str, ...]) -> None:
    config, blueprint, batch = _step(*overrides)
    placement = _everything_beside(_profile(config, blueprint))
    assert placement.uses_second
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        for _ in range(3):
            _assert_same_step(plain, planned, batch)
            gradients = [each.grad for each in planned.algorithm.network.parameters()]
            assert not any(each.requires_grad for each in gradients)
        assert (planned.state.current.weights == plain.state.current.weights).all()
    assert type(planned.algorithm.runner) is StepRunner
    _assert_same_step(plain, planned, batch)


PENDULUM = "env.id=Pendulum-v1"
ACTORS: dict[str, tuple[str, ...]] = {
    "ddpg": (PENDULUM, "learning.algorithm=ddpg"),
    "ddpg of Table III": ("env.id=MountainCarContinuous-v0", "learning.algorithm=ddpg"),
    "td3": (PENDULUM, "learning.algorithm=td3"),
    "sac": (PENDULUM, "learning.algorithm=sac"),
    "sac over images": ("env.id=CarRacing-v3", "env.rate_hz=50", "learning.algorithm=sac"),
}


@pytest.mark.parametrize(
    ("name", "where"),
    # Where torch runs whole passes, the kinds of layers are its own affair.
    [*((name, _everything_beside) for name in ACTORS),
     *((name, _only_passes_beside) for name in ("ddpg", "td3", "sac"))],
)
def test_a_placed_step_of_actor_and_critics_has_the_same_gradient(name: str, where: Any) -> None:
    config, blueprint, batch = _step(*ACTORS[name])
    build = ddpg if "Table" in name else build_network
    placement = where(_profile(config, blueprint, build))
    assert placement.uses_second
    assert bool(placement.split_layers) == (where is _everything_beside)
    with _plain_and_planned(config, blueprint, placement, build=build) as (plain, planned):
        for _ in range(4):
            _assert_same_step(plain, planned, batch)
        assert (planned.state.current.weights == plain.state.current.weights).all()
        assert (planned.state.target == plain.state.target).all()
        assert plain.state.progress == planned.state.progress
    _assert_same_step(plain, planned, batch)


class Keeping(nn.Module):
    """A network that keeps what it has computed half way, and averages of it.

    Attributes:
        waits: the pass that waits there until others have kept theirs: that with gradient, or that
            without. If None, no pass waits.
        others: for how many it waits.
        waiting: set when it waits; the others begin then.
        kept: released by each of the others.
    """

    waits: ClassVar[bool | None] = None
    others: ClassVar[int] = 0
    waiting: ClassVar[threading.Event]
    kept: ClassVar[threading.Semaphore]

    def __init__(self, observations: Any, actions: Any) -> None:
        super().__init__()
        outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else 2 * len(actions.low)
        self.first = nn.Linear(observations.shape[-1], 8)
        self.last = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, outputs))

    def forward(self, observations: Tensor) -> Tensor:
        waits = self.waits is torch.is_grad_enabled()
        if self.waits is not None and not waits:
            assert self.waiting.wait(10.0)
        self.hidden = self.first(observations.flatten(1)).relu()
        if waits:
            self.waiting.set()
            assert all(self.kept.acquire(timeout=10.0) for _ in range(self.others))
        elif self.waits is not None:
            self.kept.release()
        answer: Tensor = self.last(self.hidden)
        return answer


@pytest.mark.parametrize(("settings", "beside", "waits", "others"), [
    # The target pass ends before that over successors.
    (("learning.algorithm=double-dqn",), ("target", "successors"), True, 2),
    (ACTORS["sac"], ("policy",), False, 1),
])
def test_passes_at_once_through_a_network_that_keeps_something(
    monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], beside: tuple[str, ...],
    waits: bool, others: int,
) -> None:
    config, blueprint, batch = _step(f"policy.factory={__name__}:Keeping", *settings)
    batch = replace(
        batch, next_observations=batch.observations + 1.0, discounts=torch.ones(SIZE),
        terminals=torch.zeros(SIZE, dtype=torch.bool),
    )
    placement = _only_passes_beside(_profile(config, blueprint), beside)
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        expected = plain.step(batch)
        monkeypatch.setattr(Keeping, "kept", threading.Semaphore(0), raising=False)
        monkeypatch.setattr(Keeping, "waiting", threading.Event(), raising=False)
        monkeypatch.setattr(Keeping, "others", others)
        monkeypatch.setattr(Keeping, "waits", waits)
        found = planned.step(batch)
        assert found.loss == expected.loss
        assert torch.equal(planned.gradient, plain.gradient)
        # Averages of a normalization, too: they were updated in the order of the threads.
        buffers = [dict(each.algorithm.network.named_buffers()) for each in (plain, planned)]
        torch.testing.assert_close(*buffers, rtol=0.0, atol=0.0)


def test_the_parts_of_a_step_of_ddpg_wait_for_what_they_need() -> None:
    config = _config("learning.precision=float32", *ACTORS["ddpg"])
    parts = _profile(config, probe(config)).parts
    after = {
        part.name: tuple(parts[each].name for each in part.after) for part in parts
    }
    assert after["critics.heads.0.0 forward"] == ("takeover",)
    assert after["actor.layers.0 target"] == after["actor.layers.0 policy"] == ("takeover",)
    assert after["critics.heads.0.0 target"] == ("actor.values.0 target",)
    assert after["critics.heads.0.0 policy"] == ("actor.values.0 policy",)
    assert after["loss"] == ("critics.heads.0.4 forward", "critics.heads.0.4 target")
    assert after["critics.heads.0.4 weights"] == ("loss",)
    assert after["policy loss"] == ("critics.heads.0.4 policy",)
    assert after["critics.heads.0.2 policy inputs"] == ("critics.heads.0.4 policy inputs",)
    assert after["actor.values.0 policy weights"] == ("critics.heads.0.0 policy inputs",)
    assert set(after["gradient"]) == {
        "actor.layers.0 policy weights", "critics.heads.0.2 inputs", "critics.heads.0.0 weights",
        "critics.heads.0.2 weights", "critics.heads.0.4 weights",
    }
    assert not any(part.layer.startswith("critics") and part.kind == "policy weights"
                   for part in parts)


def test_with_a_policy_delay_a_step_with_the_actor_is_measured() -> None:
    config = _config("learning.policy_delay=3", *ACTORS["td3"])
    assert any(part.kind == "policy" for part in _profile(config, probe(config)).parts)


@pytest.mark.realtime
def test_the_parts_of_a_profile_are_those_of_the_step() -> None:
    config = _config("learning.precision=float32")
    blueprint = probe(config)
    profile = _profile(config, blueprint)
    assert [part.name for part in profile.parts] == [
        "takeover", "layers.0 forward", "layers.2 forward", "values forward", "layers.0 target",
        "layers.2 target", "values target", "loss", "values weights", "values inputs",
        "layers.2 weights", "layers.2 inputs", "layers.0 weights", "gradient", "apply",
    ]
    assert profile.precisions == ("float32",)
    assert profile.steps >= 3
    told = []

    def adds_up(profile: Profile) -> bool:
        total = sum(part.alone_us["float32"] for part in profile.parts)
        split_us, step_us = profile.split_us["float32"], profile.step_us["float32"]
        told.append((total, split_us, step_us))
        return bool(total == pytest.approx(split_us, rel=0.5)) and 0.0 < step_us < 1.5 * total

    # A core that becomes faster or slower meanwhile spoils one.
    assert adds_up(profile) or adds_up(_profile(config, blueprint)), told


def test_the_head_is_measured_in_float32_alone() -> None:
    config = _config("learning.precision=bfloat16")
    profile = _profile(config, probe(config))
    by_name = {part.name: set(part.alone_us) for part in profile.parts}
    assert by_name["layers.0 forward"] == {"bfloat16"}
    assert by_name["values forward"] == by_name["values weights"] == {"float32"}
    precisions = {part.name: place(profile).unit(n).precision
                  for n, part in enumerate(profile.parts)}
    assert precisions["layers.2 inputs"] == "bfloat16"
    assert precisions["values inputs"] == "float32"


def test_a_step_in_the_precision_of_its_plan_is_that_of_the_learner() -> None:
    config, blueprint, batch = _step("learning.precision=bfloat16")
    placement = place(_profile(config, blueprint))
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        _assert_same_step(plain, planned, batch)


def test_a_plan_in_float32_is_float32_from_the_first_layer_on() -> None:
    config, blueprint, batch = _step()
    slow = place(made_profile(("layers.0", "layers.2", "values"), bfloat16=3.0))
    with _plain_and_planned(config, blueprint, slow, "bfloat16") as (plain, planned):
        _assert_same_step(plain, planned, batch)
    assert planned.algorithm.precision == "bfloat16"


def test_a_failed_step_leaves_nothing_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    config, blueprint, batch = _step()
    placement = _everything_beside(_profile(config, blueprint))
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        runner: Any = planned.algorithm.runner  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setattr(type(runner), "inputs", lambda *args: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                planned.step(batch)
        assert not runner._pending
        _assert_same_step(plain, planned, batch)


def test_a_failed_step_waits_for_the_policy_s_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    config, blueprint, batch = _step(*ACTORS["ddpg"])
    placement = _only_passes_beside(_profile(config, blueprint))
    with _plain_and_planned(config, blueprint, placement) as (plain, planned):
        algorithm: Any = planned.algorithm
        ended: list[bool] = []
        policy_pass = algorithm._policy_pass

        def late(*args: Any) -> Any:
            failed.wait(10.0)
            result = policy_pass(*args)
            ended.append(True)
            return result

        failed = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(algorithm, "_policy_pass", late)
            patch.setattr(algorithm.network.critics, "values", lambda *_: (failed.set(), 1 // 0))
            with pytest.raises(ZeroDivisionError):
                planned.step(batch)
        assert ended, "else it would write into the gradient of the next step"
        _assert_same_step(plain, planned, batch)


def test_a_plan_is_measured_beside_that_for_one_core() -> None:
    config = _config("learning.precision=float32")
    blueprint = probe(config)
    placement = place(_profile(config, blueprint))
    told: list[float] = []
    measured = measure_placement(config, blueprint, placement, 0.02, told.append)
    assert min(measured.planned_ms, measured.single_ms) > 0.0
    assert len(measured.planned) == len(measured.single) >= 3
    assert told[-1] == 1.0


@pytest.mark.parametrize(("setting", "message"), [
    ("learning.algorithm=a2c", "a step of a2c cannot be placed: those of dqn, "),
    ("policy.network=lstm", "policy.network = 'lstm': a step of a recurrent network cannot be"),
    ("policy.factory=tests.faulty.carrying:LastSeen", "policy.factory = 'tests.faulty.carrying:"),
])
def test_a_step_that_cannot_be_placed_is_refused(setting: str, message: str) -> None:
    config = _config(setting)
    with pytest.raises(UserError, match=message):
        _profile(config, probe(config))
