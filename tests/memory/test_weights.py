"""The weight buffers: a reader has one publication, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.memory import weights as weights_module
from rtagent.memory.weights import (
    BUFFERS,
    READ_ATTEMPTS,
    WeightBuffers,
    WeightsInfo,
    checksum,
)

PARAMETERS = 101
Images = Callable[..., list[bytes]]


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
    found = shared(WeightBuffers.size(PARAMETERS))
    WeightBuffers.format(found)
    return found


@pytest.fixture
def buffers(memory: memoryview) -> WeightBuffers:
    return WeightBuffers(memory, PARAMETERS)


def test_nothing_is_published_yet(buffers: WeightBuffers) -> None:
    assert buffers.publication == -1
    assert buffers.info() is None
    assert read(buffers) is None


def test_newest_publication(buffers: WeightBuffers, memory: memoryview) -> None:
    other = WeightBuffers(memory, PARAMETERS)
    # Versions go on from an earlier run's; publications count from 0.
    for publication, version in enumerate(range(50, 50 + 2 * BUFFERS + 1)):
        publish(buffers, version)
        assert other.publication == publication
        assert other.info() == WeightsInfo(version, 10 * version)
        assert read(other) == version


def test_published_values_are_a_copy(buffers: WeightBuffers) -> None:
    values = pattern(1)
    buffers.publish(values, WeightsInfo(1, 10))
    values[:] = 0
    assert read(buffers) == 1


def test_buffers_do_not_overlap(memory: memoryview, buffers: WeightBuffers) -> None:
    for version in range(BUFFERS):
        publish(buffers, version)
    for index, values in enumerate(buffers._buffers):
        assert values.tolist() == pattern(index).tolist()
    assert len(memory) >= WeightBuffers.size(PARAMETERS)


def test_writer_killed_anywhere(memory: memoryview, images: Images) -> None:
    buffers = WeightBuffers(memory, PARAMETERS)
    for version in range(BUFFERS):
        publish(buffers, version)
    left = images(
        memory, WeightBuffers.publish.__code__, lambda: publish(buffers, BUFFERS)
    )
    assert len(left) > 10
    seen = set()
    for image in left:
        memory[:] = image
        reader = WeightBuffers(memory, PARAMETERS)
        seen.add(read(reader))
        assert reader.info() is not None
        # Another learner takes over.
        publish(reader, BUFFERS + 1)
        assert read(reader) == BUFFERS + 1
    assert seen == {BUFFERS - 1, BUFFERS}


def test_reader_that_is_lapped_tries_again(
    buffers: WeightBuffers, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(buffers, 0)
    laps = [BUFFERS, 2 * BUFFERS]
    copy = np.copyto

    def lapped(out: Any, values: Any) -> None:
        copy(out, values)
        while laps:
            for _ in range(laps.pop()):
                version = buffers.publication + 1
                monkeypatch.setattr(weights_module.np, "copyto", copy)
                publish(buffers, version)

    monkeypatch.setattr(weights_module.np, "copyto", lapped)
    assert read(buffers) == 3 * BUFFERS


def test_reader_gives_up_on_damage(buffers: WeightBuffers, memory: memoryview) -> None:
    publish(buffers, 0)
    copies = 0
    memory[weights_module.CONTROL_BYTES + 4] ^= 1
    out = np.zeros(PARAMETERS, np.float32)
    original = weights_module.checksum

    def counted(values: Any, *header: int) -> int:
        nonlocal copies
        copies += 1
        return original(values, *header)

    weights_module.checksum = counted
    try:
        assert buffers.read(out) is None
    finally:
        weights_module.checksum = original
    assert copies == READ_ATTEMPTS


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


def test_checksum_sees_the_header() -> None:
    found = {checksum(pattern(3), *header) for header in ((1, 2, 3), (1, 3, 2), (2, 2, 3), ())}
    assert len(found) == 4
