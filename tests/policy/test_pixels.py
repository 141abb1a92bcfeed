"""Pixels as inputs of a network: the compiled conversion against torch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rtagent.policy import pixels
from rtagent.policy.pixels import laid_out, scaled
from tests.installed import needs

pytestmark = needs(pixels._PIXELS, "what is compiled")
LAST = torch.channels_last


def pictures(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each call of the compiled function."""
    assert pixels._PIXELS is not None
    counted: list[int] = []
    monkeypatch.setattr(pixels, "_PIXELS", lambda at, run=pixels._PIXELS: counted.append(run(at)))
    return counted


@pytest.mark.parametrize("channels", [1, 3, 4, 12])
@pytest.mark.parametrize("scale", [1.0, 1.0 / 255.0])
def test_the_numbers_are_torch_s_to_the_last_bit(
    channels: int, scale: float, calls: list[int]
) -> None:
    given = pictures(2, channels, 36, 20)
    found = laid_out(given, torch.bfloat16, scale)
    assert torch.equal(found, scaled(given, torch.bfloat16, scale))
    assert found.is_contiguous(memory_format=LAST)
    assert calls == [0]


@pytest.mark.parametrize("other", [
    lambda given: (given, torch.float32),
    lambda given: (given.float(), torch.bfloat16),
    lambda given: (given.transpose(2, 3), torch.bfloat16),
])
def test_everything_else_is_torch_s(
    other: Callable[[Tensor], tuple[Tensor, torch.dtype]], calls: list[int]
) -> None:
    given, dtype = other(pictures(2, 4, 8, 8))
    found = laid_out(given, dtype, 1.0 / 255.0)
    assert torch.equal(found, scaled(given, dtype, 1.0 / 255.0))
    assert found.is_contiguous(memory_format=LAST)
    assert calls == []


def test_numbers_beyond_float16_stay_finite() -> None:
    given = torch.tensor([101_325.0, -1e9, 0.5])
    assert scaled(given, torch.float16, 1.0).tolist() == [65_504.0, -65_504.0, 0.5]
    assert torch.equal(scaled(given, torch.bfloat16, 1.0), given.to(torch.bfloat16))


def test_without_a_compiler_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = pictures(1, 4, 84, 84)
    found = laid_out(given, torch.bfloat16, 0.5)
    monkeypatch.setattr(pixels, "_PIXELS", None)
    assert torch.equal(laid_out(given, torch.bfloat16, 0.5), found)
