"""Plays an environment, tick by tick, for a person or a script.

While a tape records, a reset follows each end of an episode, as in the daemon. Otherwise the game
runs on past the ends that its reward file defines, so that a person can reach a state worth saving.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.config import EnvConfig
from rtagent.env.gameboy.game import FREE_PLAY, Game
from rtagent.env.making import closed_if_unusable, make
from rtagent.env.observers import to_rgb
from rtagent.env.registry import PAPER_GAMES
from rtagent.env.reporting_adapter import ReportingAdapter
from rtagent.errors import UserError, reason_of
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.recording.buttons import Buttons, every_combination
from rtagent.recording.tape import Tape

GAMES = ("gameboy", *PAPER_GAMES)
"""Ids of environments with saved states and configurable actions."""


class Player:
    """Plays one environment; the seed decides its starts.

    Attributes:
        tape: records the episodes. If None, the game runs on past their ends.
        ticks, total: number of ticks and sum of their rewards since the last reset.
        last_reward: the last reward that was not 0, since the last reset.
        ended: how the episode ended, in the environment's words; empty if it goes on.

    Raises:
        UserError: its actions are no buttons.
    """

    def __init__(self, env: gym.Env[Any, Any], config: EnvConfig, seed: int) -> None:
        self._adapter = ReportingAdapter(env, config)
        self.environment = config.id
        self.action_meanings = self._adapter.action_meanings
        self.cartridge = self._adapter.cartridge
        self.buttons = Buttons(self.action_meanings, self._adapter.noop_action)
        self.rate_hz = self._adapter.rate_hz
        inner = env.unwrapped
        self._game = inner if isinstance(inner, Game) else None
        self.tape: Tape | None = None
        self._seed: int | None = seed
        self.restart()

    @property
    def values(self) -> dict[str, Any]:
        """The environment's newest `info`; {} where it gives none."""
        return self._adapter.info or {}

    @property
    def has_states(self) -> bool:
        """Whether the environment's state can be saved."""
        return self._game is not None

    def restart(self) -> None:
        """Begin a new episode.

        Raises:
            UserError: the environment fails; or a tape records, and the episode is over before it
                begins; `tape` is None now.
        """
        frame = self._adapter.reset(self._seed)
        self._seed = None
        self.ticks, self.total, self.last_reward, self.ended = 0, 0.0, 0.0, ""
        if self.tape is None:
            return
        if self._game is not None:
            try:
                self._game.check_begun()
            except UserError:
                self.tape = None
                raise
        self.tape.begin(frame, int(self._adapter.noop_action))

    def step(self, action: int) -> None:
        """Play one tick.

        Raises:
            UserError: as in `restart`.
        """
        if self.ended and self.tape is not None:
            self.restart()
        step = self._adapter.step(action)
        self.ticks += 1
        self.total += step.reward
        self.last_reward = step.reward or self.last_reward
        self.ended = ""
        if step.terminated or step.truncated:
            kind = "terminated" if step.terminated else "truncated"
            self.ended = str(self.values.get("ended_by") or kind)
        if self.tape is not None:
            flags = TERMINATED * step.terminated | TRUNCATED * step.truncated
            self.tape.add(step.frame, action, step.reward, flags)

    def screen(self) -> NDArray[np.uint8]:
        """The environment's picture: uint8 RGB (height, width, 3).

        Raises:
            UserError: it shows nothing.
        """
        picture = self._adapter.picture()
        if picture is None:
            raise UserError(
                f"{self.environment} shows nothing: its render() gives no picture, and its "
                "observations are none; it can be played by a script: --keys SCRIPT.keys"
            )
        return to_rgb(picture)

    def save_state(self, path: Path) -> None:
        """Write the game's state, for `env.kwargs.start`; only where there are states.

        Raises:
            UserError: it cannot be written.
        """
        assert self._game is not None
        try:
            self._game.save_state(path)
        except OSError as error:
            raise UserError(f"cannot write the state {path}: {reason_of(error)}") from None

    def close(self) -> None:
        """Close the environment."""
        self._adapter.close()


def open_player(config: EnvConfig, seed: int, *, demonstrates: bool) -> Player:
    """Make the environment that the configuration names, for play.

    Args:
        config: the environment.
        seed: decides its starts.
        demonstrates: whether actions are to be recorded. Otherwise a game takes every combination
            of buttons, unless actions are given, for its states do not depend on its actions.

    Raises:
        UserError: one line that says why it cannot be played.
    """
    kwargs = dict(config.kwargs)
    if demonstrates and config.id == "gameboy" and not kwargs.get("rewards"):
        raise UserError(
            "a demonstration has rewards: give a reward file, --set env.kwargs.rewards=FILE.toml"
        )
    if config.id in GAMES and not demonstrates:
        kwargs.setdefault("actions", every_combination())
    config = config.model_copy(update={"kwargs": kwargs})
    token = FREE_PLAY.set(True)
    try:
        env = _made(config)
    finally:
        FREE_PLAY.reset(token)
    with closed_if_unusable(env, config.id):
        return Player(env, config, seed)


def _made(config: EnvConfig) -> gym.Env[Any, Any]:
    """The environment; it renders, if it has a `render_mode`."""
    kwargs = {"render_mode": "rgb_array", **config.kwargs}
    # An environment without one is made as the user says.
    with suppress(UserError):
        return make(config.model_copy(update={"kwargs": kwargs}))
    return make(config)
