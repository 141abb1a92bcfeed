import sys
from pathlib import Path

import pytest

from rtagent.env.gameboy.rom import BUNDLED, read_manifest
from rtagent.env.gameboy.starfall import Starfall

# `stub_worlds:World-v0` names a module, so the module must be importable.
sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def rom():
    return read_manifest(BUNDLED / "starfall")


@pytest.fixture(scope="module")
def starfall():
    env = Starfall(render_mode="rgb_array")
    yield env
    env.close()
