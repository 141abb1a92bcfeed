"""Models for engines: whole or not at all, and never longer than their place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rtagent.memory.engine_models import COPIES, EngineModels, ModelInfo

PARAMETERS = 100


@pytest.fixture
def models(shared: Callable[[int], memoryview]) -> EngineModels:
    return EngineModels(shared(EngineModels.size(PARAMETERS)), PARAMETERS)


def model(seed: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def info(version: int) -> ModelInfo:
    return ModelInfo(version, 10 * version, 1, 2, 0, agreement=0.995)


def test_nothing_is_published(models: EngineModels) -> None:
    assert models.number == 0
    assert models.read() is None


@pytest.mark.parametrize("size", [0, 1, 5, 1024, 1027])
def test_read_as_published(models: EngineModels, size: int) -> None:
    for version in range(1, 2 * COPIES):
        models.publish(model(version, size), info(version))
        found = models.read()
        assert (found[0].version, found[0].updates, found[0].size) == (version, 10 * version, size)
        assert (found[0].engine, found[0].precision, found[0].agreement) == (1, 2, 0.995)
        np.testing.assert_array_equal(found[1], model(version, size))


def test_a_model_fills_its_place_and_no_more(models: EngineModels) -> None:
    models.publish(model(1, models.capacity), info(1))
    models.publish(model(2, models.capacity), info(2))
    found = models.read()
    np.testing.assert_array_equal(found[1], model(2, models.capacity))
    with pytest.raises(ValueError, match="a place of"):
        models.publish(model(3, models.capacity + 1), info(3))
    assert models.number == 2


def test_what_is_damaged_is_not_read(models: EngineModels) -> None:
    models.publish(model(1, 500), info(1))
    models._models[models.current][499] ^= 1
    assert models.read() is None
    models.publish(model(2, 500), info(2))
    assert models.read() is not None


def test_what_is_written_over_during_the_copy_is_read_again(
    models: EngineModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.publish(model(1, 500), info(1))
    copyto, times = np.copyto, iter(range(2, 19))

    def lapped(out: np.ndarray, values: np.ndarray) -> None:
        copyto(out[:100], values[:100])
        for version in times:
            models.publish(model(version, 500), info(version))
            if version % (2 * COPIES) == 0:
                break
        copyto(out[100:], values[100:])

    monkeypatch.setattr("rtagent.memory.engine_models.np.copyto", lapped)
    found = models.read()
    assert found[0].version == 18
    np.testing.assert_array_equal(found[1], model(18, 500))
