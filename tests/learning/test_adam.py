"""Adam on flat arrays against a slow transcription, and against torch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rtagent.learning import adam
from rtagent.learning.adam import FlatAdam, clip_
from rtagent.memory.learner_state import Arrays
from tests.installed import require

WHOLE = slice(None)


@pytest.fixture(params=["compiled", "by torch"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of a step."""
    if request.param == "by torch":
        monkeypatch.setattr(adam, "_ADAM", None)
    else:
        require(adam._ADAM, "what is compiled")


def arrays(count: int) -> Arrays:
    rng = np.random.default_rng(0)
    return Arrays(
        rng.normal(size=count).astype(np.float32),
        (0.1 * rng.normal(size=count)).astype(np.float32),
        rng.random(count, np.float32),
    )


def transcription(
    weight: float, mean: float, square: float, gradient: float, step: int, rate: float
) -> tuple[float, float, float]:
    """Algorithm 1 of Kingma and Ba (2015), one parameter."""
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient * gradient
    corrected_mean, corrected_square = mean / (1 - 0.9**step), square / (1 - 0.999**step)
    return weight - rate * corrected_mean / (math.sqrt(corrected_square) + 1e-8), mean, square


def blank(count: int) -> Arrays:
    return Arrays(*(np.full(count, np.nan, np.float32) for _ in range(3)))


@pytest.mark.parametrize("step", [1, 2, 1000])
def test_follows_the_equation(step: int) -> None:
    old, new, gradient = arrays(37), blank(37), torch.randn(37)
    FlatAdam(new, WHOLE).step(FlatAdam(old, WHOLE), gradient, step - 1, 0.01)
    np.testing.assert_equal(vars(old), vars(arrays(37)))
    for i in range(37):
        wanted = transcription(
            float(old.weights[i]), float(old.mean[i]), float(old.square[i]), float(gradient[i]),
            step, 0.01,
        )
        found = float(new.weights[i]), float(new.mean[i]), float(new.square[i])
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("size", [1e-9, 1e-8, 1e-7])
def test_tiny_gradients_are_damped_by_epsilon(size: float) -> None:
    zeros = np.zeros(3, np.float32)
    new, gradient = blank(3), torch.full((3,), size)
    FlatAdam(new, WHOLE).step(FlatAdam(Arrays(zeros, zeros, zeros), WHOLE), gradient, 0, 0.01)
    wanted, _, _ = transcription(0.0, 0.0, 0.0, size, 1, 0.01)
    np.testing.assert_allclose(new.weights, wanted, rtol=1e-3)


def test_two_copies_taking_turns_are_one_optimizer() -> None:
    parameter = torch.nn.Parameter(torch.randn(50))
    optimizer = torch.optim.Adam([parameter], lr=3e-3)
    zeros = np.zeros(50, np.float32)
    first = Arrays(parameter.detach().numpy().copy(), zeros.copy(), zeros.copy())
    copies = [first, blank(50)]
    adams = [FlatAdam(each, WHOLE) for each in copies]
    for step in range(30):
        gradient = torch.randn(50)
        parameter.grad = gradient.clone()
        optimizer.step()
        adams[1].step(adams[0], gradient, step, 3e-3)
        copies.reverse()
        adams.reverse()
    assert np.allclose(copies[0].weights, parameter.detach().numpy(), atol=1e-6)


def test_a_part_is_stepped_and_another_one_copied() -> None:
    old, new = arrays(10), blank(10)
    for part, steps in (slice(0, 4), True), (slice(4, 10), False):
        before, after = FlatAdam(old, part), FlatAdam(new, part)
        if steps:
            after.step(before, torch.ones(4), 0, 0.01)
        else:
            after.copy(before)
    for name, values in vars(new).items():
        assert (values[:4] != vars(old)[name][:4]).all()
        np.testing.assert_equal(values[4:], vars(old)[name][4:])


def test_clipping() -> None:
    gradient = torch.tensor([3.0, 4.0])
    for norm, limit in ((5.0, 10.0), (5.0, 0.0), (math.nan, 1.0), (math.inf, 1.0)):
        clip_(gradient, norm, limit)
        assert gradient.tolist() == [3.0, 4.0]
    clip_(gradient, 5.0, 1.0)
    assert gradient.tolist() == pytest.approx([0.6, 0.8])
