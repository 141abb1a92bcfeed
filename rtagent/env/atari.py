"""The Arcade Learning Environment: its ids, and how fast an Atari 2600 really runs."""

from __future__ import annotations

import importlib
from numbers import Real
from typing import Any

import gymnasium as gym

from rtagent.errors import UserError

NAMESPACE = "ALE/"
CONSOLE_HZ = 60.0
SKIPS = ("frame_skip", "_skip")
"""Steps that a wrapper takes at once: of Gymnasium's AtariPreprocessing and MaxAndSkipObservation.
"""


def register(name: str) -> None:
    """If `name` is an Atari game's id, make these ids known to `gymnasium.make`.

    Raises:
        UserError: it is an Atari game's, and ale-py is not installed.
    """
    if not name.startswith(NAMESPACE):
        return
    try:
        # Importing it registers its ids.
        importlib.import_module("ale_py")
    except ImportError:
        raise UserError(
            f"env.id = {name}: ale-py is not installed; pip install 'rtagent[atari]'"
        ) from None


def rate_hz(env: gym.Env[Any, Any]) -> float | None:
    """Steps per second at which an Atari game runs as fast as on the console.

    The game's `render_fps` is another rate: it does not depend on the id's frame skip.

    Returns:
        The rate; None for other environments.
    """
    if not type(env.unwrapped).__module__.startswith("ale_py.") or env.spec is None:
        return None
    skip = env.spec.kwargs.get("frameskip", 1)
    # A pair is a range, its end excluded, from which each step draws its skip.
    mean = float(skip) if isinstance(skip, Real) else (skip[0] + skip[1] - 1) / 2
    for name in SKIPS:
        steps = env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else 1
        # In other wrappers these names may mean something else.
        mean *= steps if isinstance(steps, int) and steps > 0 else 1
    return CONSOLE_HZ / mean
