import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from rtagent.config import EnvConfig
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.gameboy.rom import BUNDLED, read_manifest
from rtagent.env.gameboy.starfall import Starfall
from tests.refused import one_line

# `stub_worlds:World-v0` names a module, so the module must be importable.
sys.path.append(str(Path(__file__).parent))

PICTURE = gym.spaces.Box(0, 255, (96, 128, 3), np.uint8)


def wrap(config=None, **kwargs):
    """An adapter of a stub, and the stub."""
    import stub_worlds

    world = stub_worlds.World(**kwargs)
    return Adapter(world, config or EnvConfig()), world


def refusal(**settings):
    """The line that refuses an environment with these settings."""
    with one_line() as caught:
        # Not validated: a configuration holds no functions, but these worlds are made of some.
        open_environment(EnvConfig().model_copy(update=settings))
    return str(caught.value)


@pytest.fixture(scope="session")
def rom():
    return read_manifest(BUNDLED / "starfall")


@pytest.fixture
def starfall():
    env = Starfall(render_mode="rgb_array")
    yield env
    env.close()
