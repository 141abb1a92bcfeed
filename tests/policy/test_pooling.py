"""Max pooling: the compiled one against torch's, values and gradients."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from rtagent.policy import pooling
from rtagent.policy.pooling import SIDE, STRIDE, MaxPool
from tests.installed import needs, require

pytestmark = needs(pooling._FORWARD, "what is compiled")
SHAPES = [(1, 16, 3, 3), (2, 32, 8, 5), (3, 16, 7, 12), (1, 48, 11, 4)]
SOURCE = Path(pooling.__file__).with_suffix(".c")


def laid_out(values: Tensor) -> Tensor:
    return values.bfloat16().contiguous(memory_format=torch.channels_last)


def random_values(shape: tuple[int, ...], most: int = 1000) -> Tensor:
    """Random whole numbers up to `most`; where that is small, many are equal."""
    generator = torch.Generator().manual_seed(0)
    return laid_out(torch.randint(-most, most + 1, shape, generator=generator).float())


@pytest.fixture(scope="module")
def in_small_registers(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The same source, compiled for a processor whose registers hold eight channels."""
    require(shutil.which("gcc"), "gcc")
    built = tmp_path_factory.mktemp("pooling") / "pooling.so"
    command = ["gcc", "-std=c11", "-O2", "-DLANES=8", "-shared", "-fPIC", SOURCE, "-o", built]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(built))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_size_of_a_register_makes_no_difference(
    shape: tuple[int, ...], in_small_registers: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> tuple[Tensor, Tensor]:
        inputs = random_values(shape, 20).requires_grad_()
        pooled = MaxPool()(inputs)
        slope = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(4)).bfloat16()
        return pooled, torch.autograd.grad(pooled, inputs, slope)[0]

    wanted = found()
    for name, symbol in ("_FORWARD", "max_pool"), ("_BACKWARD", "max_pool_backward"):
        function = in_small_registers[f"rtagent_{symbol}"]
        function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_int64
        monkeypatch.setattr(pooling, name, function)
    for one, other in zip(wanted, found(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("most", [2, 1000])
def test_the_values_are_torch_s(shape: tuple[int, ...], most: int) -> None:
    inputs = random_values(shape, most)
    pooled = MaxPool()(inputs)
    assert pooled.dtype == torch.bfloat16
    assert pooled.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(
        pooled, functional.max_pool2d(inputs, SIDE, STRIDE), rtol=0, atol=0
    )


def test_infinities_zeros_and_what_is_not_a_number() -> None:
    odd = [float(each) for each in ("inf", "-inf", "nan", "-nan", "0", "-0", "1e-40", "-3e38")]
    chosen = torch.randint(len(odd), (4, 32, 9, 9), generator=torch.Generator().manual_seed(1))
    inputs = laid_out(torch.tensor(odd)[chosen])
    alone = laid_out(torch.full((1, 16, 3, 3), float("-inf")))
    for each in (inputs, inputs.nan_to_num(nan=-1.0, posinf=2.0, neginf=-2.0), alone):
        torch.testing.assert_close(
            MaxPool()(each), functional.max_pool2d(each, SIDE, STRIDE), rtol=0, atol=0,
            equal_nan=True,
        )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("most", [2, 1000])
def test_gradients_are_those_of_float32_rounded_once(shape: tuple[int, ...], most: int) -> None:
    """Among equal values the first one of a window gets the gradient, as with torch."""
    inputs = random_values(shape, most).requires_grad_()
    exact = inputs.detach().float().requires_grad_()
    pooled, wanted = MaxPool()(inputs), functional.max_pool2d(exact, SIDE, STRIDE)
    slope = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(2)).bfloat16()
    pooled.backward(slope)
    wanted.backward(slope.float())
    assert inputs.grad.dtype == torch.bfloat16
    torch.testing.assert_close(inputs.grad, exact.grad.bfloat16(), rtol=0, atol=0)


def test_a_gradient_in_another_layout_is_the_same() -> None:
    inputs = random_values((2, 16, 7, 7)).requires_grad_()
    slope = torch.randn(2, 16, 3, 3, generator=torch.Generator().manual_seed(3)).bfloat16()
    found = [
        torch.autograd.grad(MaxPool()(inputs), inputs, each)[0]
        for each in (slope, slope.contiguous(memory_format=torch.channels_last))
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param(random_values((1, 16, 8, 8)).float(), id="float32"),
        pytest.param(random_values((1, 16, 8, 8)).contiguous(), id="layout"),
        pytest.param(random_values((1, 24, 8, 8)), id="channels"),
        pytest.param(random_values((1, 16, 8, 8))[0], id="no batch"),
    ],
)
def test_torch_does_the_rest(inputs: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: Any) -> Tensor:
        raise AssertionError("not for this")

    monkeypatch.setattr(pooling._Compiled, "apply", unwanted)
    assert torch.equal(MaxPool()(inputs), functional.max_pool2d(inputs, SIDE, STRIDE))


def test_torch_does_all_where_nothing_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = random_values((2, 16, 8, 8))
    wanted = MaxPool()(inputs)
    monkeypatch.setattr(pooling, "_FORWARD", None)
    assert torch.equal(MaxPool()(inputs), wanted)


@pytest.mark.parametrize("shape", [(1, 16, 2, 8), (1, 16, 8, 2)])
def test_what_is_smaller_than_a_window_is_refused_as_by_torch(shape: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="too small"):
        MaxPool()(random_values(shape))


def test_nothing_is_remembered_without_gradients() -> None:
    inputs = random_values((2, 16, 8, 8))
    with torch.inference_mode():
        pooled = MaxPool()(inputs)
    assert not pooled.requires_grad
    assert torch.equal(pooled, functional.max_pool2d(inputs, SIDE, STRIDE))
