"""The published weights and the arrays below them: a reader has one publication, whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rtagent.memory import array_buffer
from rtagent.memory.array_buffer import checksum
from rtagent.memory.double_buffer import READ_ATTEMPTS
from rtagent.memory.weights import BUFFERS, WeightBuffers, WeightsInfo

PARAMETERS = 101


def pattern(version: int) -> np.ndarray:
    return np.arange(PARAMETERS, dtype=np.float32) + 1000 * version


def read(buffers: WeightBuffers) -> int | None:
    """The version that was read, whose every value must be its own."""
    out = np.zeros(PARAMETERS, np.float32)
    info = buffers.read(out)
    if info is None:
        return None
    assert out.tolist() == pattern(info.version).tolist()
    assert info.updates == 10 * info.version
    return info.version


def publish(buffers: WeightBuffers, version: int) -> None:
    buffers.publish(pattern(version), WeightsInfo(version, 10 * version))


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(WeightBuffers.size(PARAMETERS))


@pytest.fixture
def buffers(memory: memoryview) -> WeightBuffers:
    return WeightBuffers(memory, PARAMETERS)


def test_nothing_is_published_yet(buffers: WeightBuffers) -> None:
    assert buffers.number == 0
    assert buffers.info() is None
    assert buffers.begin_reading(np.zeros(PARAMETERS, np.float32)) is None
    assert read(buffers) is None


def test_newest_publication(buffers: WeightBuffers, memory: memoryview) -> None:
    other = WeightBuffers(memory, PARAMETERS)
    # Versions go on from an earlier run's; publications count from 1.
    for number, version in enumerate(range(50, 50 + 2 * BUFFERS + 1), 1):
        publish(buffers, version)
        assert other.number == number
        assert other.info() == buffers.header == WeightsInfo(version, 10 * version)
        assert read(other) == version
        assert buffers.copies[buffers.current][0].tolist() == pattern(version).tolist()


def test_copies_do_not_overlap(buffers: WeightBuffers) -> None:
    for version in range(1, BUFFERS + 1):
        publish(buffers, version)
    for version in range(1, BUFFERS + 1):
        assert buffers.copies[version % BUFFERS][0].tolist() == pattern(version).tolist()


@pytest.mark.parametrize("at", [0, PARAMETERS // 2, PARAMETERS - 1])
def test_a_damaged_value_is_not_believed(
    buffers: WeightBuffers, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(buffers, 1)
    buffers.copies[1][0].view(np.uint32)[at] ^= 1
    looked = []
    monkeypatch.setattr(
        array_buffer, "checksum", lambda *given: looked.append(1) or checksum(*given)
    )
    assert read(buffers) is None
    assert len(looked) == READ_ATTEMPTS
    buffers.copies[1][0].view(np.uint32)[at] ^= 1
    assert read(buffers) == 1


def test_another_publications_header_is_not_believed(buffers: WeightBuffers) -> None:
    publish(buffers, 1)
    words = buffers._headers.cast("q")
    for field in range(2):
        words[2 + field] += 1
        assert read(buffers) is None
        words[2 + field] -= 1
    assert read(buffers) == 1


def test_checksum_sees_one_bit() -> None:
    values = pattern(3)
    assert len(values) % 2 == 1
    for index in (0, 7, len(values) - 1):
        before = checksum(values)
        values.view(np.uint32)[index] ^= 1
        assert checksum(values) != before


def test_checksum_of_nan_and_of_zero() -> None:
    pair = 0x7FC00000_7FC00000
    assert checksum(np.full(5, np.nan, np.float32)) == (2 * pair + 0x7FC00000) % 2**64
    assert checksum(np.full(1, np.nan, np.float32)) == 0x7FC00000
    assert checksum(np.zeros(5, np.float32)) == 0


def test_checksum_sees_the_header(buffers: WeightBuffers) -> None:
    headers = WeightsInfo(1, 2), WeightsInfo(2, 1), WeightsInfo(2, 2), WeightsInfo(0, 0)
    found = {buffers._with_header(checksum(pattern(3)), header) for header in headers}
    assert len(found) == 4
