"""What a trial is asked to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gymnasium as gym

from rtagent.config import EnvConfig

MakeEnv: TypeAlias = "str | Callable[[], gym.Env[Any, Any]]"


@dataclass(frozen=True)
class Job:
    """Which environment, and how to try it. Picklable if what it names is.

    Attributes:
        make_env: an id, or a callable that makes the environment.
        kwargs: of the id's constructor.
        rate_hz: ticks per second; None: the environment's own.
        seconds: for how long it is stepped on the wall clock.
        seed: of actions and episodes.
        step_limit_s: a step that takes longer counts as hung.
        reset_limit_s: a reset that takes longer does.
    """

    make_env: MakeEnv
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    rate_hz: float | None = None
    seconds: float = 5.0
    seed: int = 0
    step_limit_s: float = EnvConfig().step_limit_s
    reset_limit_s: float = EnvConfig().reset_limit_s

    @property
    def name(self) -> str:
        """Of the environment, for people."""
        if isinstance(self.make_env, str):
            return self.make_env
        return str(getattr(self.make_env, "__qualname__", None) or repr(self.make_env))
