"""What the tests of learning share: shapes, memory, and a way to write rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.staggering.arbiter import Source
from tests.conftest import make_blueprint


def _make_blueprint(
    frame_shape: tuple[int, ...] = (3,), dtype: str = "float32", stack: int = 1
) -> Blueprint:
    low, high = (0, 255) if dtype == "uint8" else (-10, 10)
    space = spaces.Box(low, high, (stack, *frame_shape), np.dtype(dtype).type)
    return make_blueprint(
        frame_shape=frame_shape, frame_dtype=dtype, frame_stack=stack, observation_space=space,
        action_space=spaces.Discrete(4), action_meanings=(), network="mlp k=1", tensors=(),
        screen=False,
    )


def _memory(size: int) -> memoryview:
    return memoryview(np.zeros(-(-size // 8), np.int64).view(np.uint8))


def _make_rings(blueprint: Blueprint, capacity: int) -> tuple[FrameRing, Ledger]:
    sizes = FrameRing.size(blueprint, capacity), Ledger.size(blueprint, capacity)
    frames, ledger = (_memory(size) for size in sizes)
    FrameRing.format(frames)
    Ledger.format(ledger)
    return FrameRing(frames, blueprint, capacity), Ledger(ledger, blueprint, capacity)


def _write(ledger: Ledger, tick: int, **values: Any) -> None:
    unimportant = {
        "time_ns": tick, "registered_ns": 0, "lateness_ns": 0, "weights_version": 0, "worker": 0,
    }
    usual = {
        "observed": tick - 1, "reward": 0.0, "episode": 0, "flags": 0, "action": 0,
        "source": Source.AGENT,
    }
    ledger.write(tick, **{**unimportant, **usual, **values})


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session", name="make_blueprint")
def _shapes() -> Callable[..., Blueprint]:
    """Shapes of a small run."""
    return _make_blueprint


@pytest.fixture
def make_rings() -> Callable[[Blueprint, int], tuple[FrameRing, Ledger]]:
    """An empty frame ring and ledger."""
    return _make_rings


@pytest.fixture
def write_row() -> Callable[..., None]:
    """Writes a row as the environment process does; what is not given does not matter."""
    return _write


@pytest.fixture
def shared_bytes() -> Callable[[int], memoryview]:
    """Memory as a world is made of."""
    return _memory
