"""Gymnasium's own checker on every environment of rtagent, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import gymnasium as gym
import pytest

from rtagent.env.registry import register

CHECK = """
import sys, warnings
import gymnasium as gym
from gymnasium.utils.env_checker import check_env
from rtagent.env.registry import register

register()
env = gym.make(sys.argv[1], render_mode="rgb_array", disable_env_checker=True).unwrapped
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    # Its checks of render and close make a second environment; a process runs one Game Boy.
    check_env(env, skip_render_check=True, skip_close_check=True)
    env.reset(seed=0)
    picture = env.render()
    env.close()
    env.close()
assert picture.dtype == "uint8" and picture.ndim == 3 and picture.shape[2] == 3
told = [str(each.message) for each in told if issubclass(each.category, UserWarning)]
print("\\n".join(told))
sys.exit(4 if told else 0)
"""
NEED_A_ROM = {"rtagent.env.gameboy.game:Game", "rtagent.env.gameboy.paper_games:PaperGame"}
"""Checked in their own tests, with cartridges made for them."""


def ours() -> list[str]:
    """One id of each class of rtagent's."""
    register()
    by_class = {
        str(spec.entry_point): name
        for name, spec in sorted(gym.registry.items(), reverse=True)
        if str(spec.entry_point).startswith("rtagent.")
        and str(spec.entry_point) not in NEED_A_ROM
    }
    return sorted(by_class.values())


def test_the_built_in_game_is_among_them() -> None:
    assert "rtagent/Starfall-v0" in ours()


@pytest.mark.process
@pytest.mark.parametrize("name", ours())
def test_gymnasium_finds_nothing_wrong(name: str) -> None:
    command = [sys.executable, "-c", CHECK, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
