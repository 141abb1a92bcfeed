"""Mixed precision: the loss scale against the paper's algorithm, gradients, and what is fastest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rtagent.config import LEARNING_PRECISIONS, LearningConfig, PolicyConfig, Precision
from rtagent.learning import state as states
from rtagent.learning.precision import (
    LEAST_EXPONENT,
    LONG_S,
    LossScale,
    fastest,
    is_usable,
)
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import Gradient, SharedUpdate, loss_scale_of
from rtagent.memory.learner_state import Progress
from rtagent.policy.actor_critic import build_learned

B = 2
IMAGES = spaces.Box(0, 255, (2, 36, 36), np.uint8)
CASES: dict[str, dict[str, Any]] = {
    "dqn": {}, "double-dqn": {"algorithm": "double-dqn"}, "dueling": {"dueling": True},
    "c51": {"algorithm": "c51", "atoms": 11}, "td3": {},
    "ddpg": {"algorithm": "ddpg"}, "sac": {"algorithm": "sac"}, "ppo": {"algorithm": "ppo"},
    "a2c": {"algorithm": "a2c"},
}
DISCRETE, CONTINUOUS = spaces.Discrete(4), spaces.Box(-1.0, 1.0, (2,), np.float32)


def actions_of(case: str) -> spaces.Space[Any]:
    return CONTINUOUS if case in ("td3", "ddpg", "sac") else DISCRETE


def update(case: str, precision: str, **settings: Any) -> SharedUpdate:
    learning = LearningConfig(
        **{"precision": precision, "gradient_clip": 0.0, **CASES[case], **settings}
    )
    torch.manual_seed(0)
    policy = PolicyConfig(network="nature")
    network = build_learned(policy, IMAGES, actions_of(case), learning)
    return SharedUpdate.private(network, learning, torch.Generator().manual_seed(1))


def batch(case: str, seed: int = 0, reward: float = 1.0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (2, B, 2, 36, 36), dtype=torch.uint8, generator=generator)
    discrete = actions_of(case) is DISCRETE
    return Batch(
        observations=pixels[0],
        actions=torch.randint(0, 4, (B,), generator=generator) if discrete
        else torch.rand(B, 2, generator=generator),
        rewards=reward * torch.randn(B, generator=generator), discounts=torch.full((B,), 0.9),
        next_observations=pixels[1], terminals=torch.zeros(B, dtype=torch.bool),
        weights=torch.ones(B),
    )


def steep() -> Batch:
    """A batch whose gradient overflows float16 a few times."""
    return replace(batch("dqn"), weights=torch.full((B,), 100.0))


# ---- the loss scale


def transcription(overflows: list[bool]) -> list[float]:
    """AP-DRL, Fig. 9, word for word: scale, backward, check for NaN or Inf, / 2 or update."""
    scale_factor, stable, found = 2.0**16, 0, []
    for nan_or_inf in overflows:
        if nan_or_inf:
            scale_factor = scale_factor / 2 if scale_factor > 2.0**-24 else scale_factor
            stable = 0
        else:
            stable = stable + 1
            if stable == 2000:
                scale_factor = scale_factor * 2 if scale_factor < 2.0**24 else scale_factor
                stable = 0
        found.append(scale_factor)
    return found


@pytest.mark.parametrize("rate", [0.0, 0.0002, 0.002, 0.6])
def test_the_loss_scale_is_that_of_the_paper(rate: float) -> None:
    overflows = list(np.random.default_rng(3).random(30_000) < rate)
    scale, found = LossScale(), []
    for overflowed in overflows:
        scale = scale.after(overflowed=overflowed)
        found.append(scale.value)
    assert found == transcription(overflows)


# ---- gradients


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("precision", "limit"), [("bfloat16", 0.1), ("float16", 0.02)])
def test_a_lower_precision_gives_nearly_the_same_gradient(
    case: str, precision: str, limit: float
) -> None:
    found = []
    for each in ("float32", precision):
        made = update(case, each)
        made.refresh()
        gradient = made.compute(batch(case), 0, whole=True)
        assert gradient.finite
        found.append((made.gradient.clone(), gradient.loss, gradient.norm))
    (full, loss, norm), (low, low_loss, low_norm) = found
    assert low.dtype == torch.float32
    assert float((low - full).norm()) < limit * float(full.norm())
    assert low_loss == pytest.approx(loss, rel=limit)
    assert low_norm == pytest.approx(norm, rel=limit)


def test_backward_runs_in_the_precision_of_forward_and_the_head_in_float32() -> None:
    made = update("dqn", "float16")
    network, dtypes = made.algorithm.network, {}

    def note(name: str) -> Callable[..., None]:
        def forward(module: nn.Module, given: Any, output: torch.Tensor) -> None:
            before = dtypes.setdefault(name, (output.dtype, []))[1]
            if output.requires_grad:
                output.register_hook(lambda gradient: before.append(gradient.dtype))
        return forward

    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(note(name))
    made.refresh()
    made.compute(batch("dqn"), 0)
    assert dtypes.pop("values") == (torch.float32, [torch.float32])
    assert set(map(str, dtypes.values())) == {str((torch.float16, [torch.float16]))}
    assert {each.dtype for each in network.parameters()} == {torch.float32}


@pytest.mark.parametrize("case", ["double-dqn", "td3", "sac"])
def test_every_pass_runs_in_the_precision(case: str) -> None:
    made, dtypes = update(case, "bfloat16"), set()
    for network in made.algorithm.networks:
        for name, layer in network.named_modules():
            if isinstance(layer, nn.Conv2d) or name.endswith("hidden"):
                layer.register_forward_hook(lambda *call: dtypes.add(call[2].dtype))
    made.refresh()
    made.compute(batch(case), 0, whole=True)
    assert dtypes == {torch.bfloat16}


def test_small_gradients_survive_float16() -> None:
    """Without the scale they are less than the least number of float16, and become 0."""
    data, errors = replace(batch("dqn"), weights=torch.full((B,), 1e-6)), []
    full = update("dqn", "float32")
    full.refresh()
    full.compute(data, 0)
    for exponent in (0, 16):
        made = update("dqn", "float16")
        scaled = replace(states.take(made.state), progress=Progress(scale_exponent=exponent))
        states.put(scaled, made.state)
        made.refresh()
        made.compute(data, 0)
        errors.append(float((made.gradient - full.gradient).norm() / full.gradient.norm()))
    assert errors[0] > 0.2
    assert errors[1] < 0.02


@pytest.mark.parametrize("case", ["dqn", "double-dqn", "td3"])
def test_a_pass_without_gradient_keeps_no_cast_weights(case: str) -> None:
    made, kept = update(case, "bfloat16"), list[bool]()
    for layer in made.algorithm.target.modules():
        layer.register_forward_pre_hook(
            lambda *_: kept.append(torch.is_autocast_cache_enabled())
        )
    made.step(batch(case))
    assert kept
    assert not any(kept)


def test_an_overflow_halves_the_scale_and_leaves_everything_else() -> None:
    made, data = update("dqn", "float16"), steep()
    weights = made.state.current.weights.copy()
    gradients = []
    while not gradients or gradients[-1].overflowed:
        assert len(gradients) < 20
        np.testing.assert_array_equal(made.state.current.weights, weights)
        gradients.append(made.step(data))
        assert made.state.progress.updates == gradients[-1].finite
    halved = len(gradients) - 1
    assert halved > 0
    assert gradients[-1].finite
    assert made.state.progress.scale_exponent == 16 - halved
    assert made.state.progress.updates == 1
    assert not np.array_equal(made.state.current.weights, weights)


def test_gradients_of_large_returns_are_learned_from_in_float16() -> None:
    made, data = update("td3", "float16"), batch("td3", reward=1e7)
    while made.state.progress.updates < 3:
        assert made.state.progress.scale_exponent > LEAST_EXPONENT
        made.step(data)
    assert made.state.progress.scale_exponent < 0


def test_of_two_learners_that_overflow_together_one_halves_the_scale() -> None:
    one = update("dqn", "float16")
    one.refresh()
    first, second = one.compute(steep(), 0), one.compute(steep(), 0)
    assert first.overflowed
    assert one.lower_scale(first) == one.lower_scale(second) == LossScale(15)
    assert loss_scale_of(one.state.progress) == LossScale(15)


@pytest.mark.parametrize(("above", "overflowed"), [(0, False), (1, True)])
def test_a_gradient_that_is_not_finite_at_the_smallest_scale_is_no_overflow(
    above: int, overflowed: bool
) -> None:
    """No smaller scale would make it finite, so it is reported as skipped."""
    gradient = Gradient(
        1.0, float("inf"), torch.zeros(B), 0, B, scale=LossScale(LEAST_EXPONENT + above)
    )
    assert gradient.overflowed is overflowed


@pytest.mark.parametrize("precision", LEARNING_PRECISIONS)
def test_a_reward_that_is_not_finite_is_no_overflow(precision: str) -> None:
    made = update("dqn", precision)
    gradient = made.step(batch("dqn", reward=float("inf")))
    assert not gradient.finite
    assert not gradient.overflowed
    assert made.state.progress.scale_exponent == 16


def test_the_scale_grows_with_updates_in_float16_only() -> None:
    for precision, stable in (("float16", 2), ("bfloat16", 0)):
        made = update("dqn", precision)
        for seed in range(2):
            assert made.step(batch("dqn", seed)).finite
        assert made.state.progress.scale_stable == stable


# ---- which is fastest


class Machine:
    """Computes for so many milliseconds per transition, in each precision, beside a constant."""

    def __init__(self, constant: float = 0.0, **each: float) -> None:
        self.time, self.calls = 0.0, []
        self._constant, self._each = constant, each

    def run(self, precision: Precision, size: int) -> None:
        self.calls.append((precision, size))
        self.time += (self._constant + size * self._each[precision]) / 1e3

    def measure(self, size: int, usable: bool = True) -> Any:
        return fastest(self.run, size, now=lambda: self.time, usable=lambda each: usable)


@pytest.mark.parametrize(
    ("times", "chosen"),
    [((1.0, 0.5, 2.0), "bfloat16"), ((1.0, 0.5, 0.4), "float16"), ((1.0, 2.0, 2.0), "float32"),
     ((1.0, 0.95, 1.0), "float32")],
)
def test_the_fastest_is_chosen_if_it_gains_enough(
    times: tuple[float, ...], chosen: Precision
) -> None:
    machine = Machine(**dict(zip(LEARNING_PRECISIONS, times, strict=True)))
    found = machine.measure(32)
    assert (found.chosen, found.batch_size) == (chosen, 32)
    assert found.seconds["bfloat16"] == pytest.approx(32e-3 * times[1])


def test_other_programs_do_not_decide_which_is_the_fastest() -> None:
    # Now and then an update takes twice as long, in whichever precision.
    class Busy(Machine):
        def run(self, precision: Precision, size: int) -> None:
            for _ in range(1 + (rng.random() < 0.25)):
                super().run(precision, size)

    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert Busy(float32=0.2, bfloat16=0.22, float16=0.23).measure(32).chosen == "float32"


def test_a_precision_that_is_slow_for_a_layer_is_not_tried() -> None:
    machine = Machine(float32=1.0, bfloat16=0.5, float16=0.1)
    assert machine.measure(32, usable=False).seconds.keys() == {"float32"}
    assert {each for each, _ in machine.calls} == {"float32"}


def test_where_an_update_is_short_nothing_else_is_tried() -> None:
    machine = Machine(float32=0.01, bfloat16=0.001, float16=0.001)
    assert machine.measure(64).chosen == "float32"
    assert {each for each, _ in machine.calls} == {"float32"}


def test_where_an_update_is_long_a_smaller_batch_is_measured() -> None:
    machine = Machine(float32=100.0, bfloat16=50.0, float16=500.0)
    found = machine.measure(64)
    assert found.batch_size == 8
    assert found.seconds["float32"] > LONG_S
    assert found.chosen == "bfloat16"


def test_measuring_changes_nothing() -> None:
    made = update("dqn", "auto")
    made.refresh()
    before = made.state.current.weights.copy()
    found = made.measure_precisions(lambda size: batch("dqn"), 1, lambda: None)
    assert found.chosen in LEARNING_PRECISIONS
    assert made.algorithm.precision == "float32"
    np.testing.assert_array_equal(made.state.current.weights, before)


def test_a_layer_says_whether_a_precision_is_usable() -> None:
    times = iter([0.0, 1.0, 1.0, 9.0, 9.0, 17.0, 17.0, 18.0])
    assert is_usable("float16", convolves=True, now=lambda: next(times))
    times = iter([0.0, 1.0, 1.0, 20.0, 20.0, 39.0, 39.0, 40.0])
    assert not is_usable("float16", convolves=False, now=lambda: next(times))
    assert not torch.is_autocast_enabled("cpu")
