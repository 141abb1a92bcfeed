"""What OpenVINO's int8 needs of the processor, and how it computes products of vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import pytest
from openvino import opset13

from rtagent.inference.engines.openvino_engine import (
    is_vector_product,
    replace_by_convolution,
    sums_can_overflow,
)


@pytest.mark.parametrize(("line", "expected"), [
    ("flags : avx2 avx512f", True),
    ("flags : avx2 avx_vnni", False),
    ("flags : avx2 avx512_vnni", False),
    ("Features : asimd asimddp", False),
])
def test_sums_overflow_only_on_x86_without_vnni(tmp_path: Path, line: str, expected: bool) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor : 0\n{line}\n\nprocessor : 1\n{line}\n")
    assert sums_can_overflow(info) is expected


def product(shape: tuple[int, ...], matrix: np.ndarray) -> tuple[openvino.Model, openvino.Node]:
    """A model that multiplies its input by a transposed matrix and adds one; and the product."""
    entering = opset13.parameter(shape, np.float32)
    layer = opset13.matmul(entering, opset13.constant(matrix), False, True)
    return openvino.Model([opset13.add(layer, np.float32(1))], [entering]), layer


def test_a_convolution_of_one_pixel_is_the_product_of_a_vector_and_a_matrix() -> None:
    numbers = np.random.default_rng(0)
    matrix, vector = numbers.random((3, 5), np.float32), numbers.random((1, 5), np.float32)
    model, layer = product((1, 5), matrix)
    assert is_vector_product(layer)
    replace_by_convolution(layer)
    kinds = {each.get_type_name() for each in model.get_ops()}
    assert "Convolution" in kinds
    assert "MatMul" not in kinds
    found = openvino.Core().compile_model(model, "CPU")([vector])[0]
    np.testing.assert_allclose(found, vector @ matrix.T + 1, rtol=1e-2)


@pytest.mark.parametrize("shape", [(2, 5), (1, 4, 5), (5,)])
def test_other_products_stay_as_they_are(shape: tuple[int, ...]) -> None:
    assert not is_vector_product(product(shape, np.ones((3, 5), np.float32))[1])
