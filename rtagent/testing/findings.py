"""The job of a trial of an environment, and its findings, before they are judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import gymnasium as gym

from rtagent.config import EnvConfig

MakeEnv: TypeAlias = "str | Callable[..., gym.Env[Any, Any]]"


@dataclass(frozen=True)
class Job:
    """Which environment, and how to try it; see `check_realtime`. Picklable if its fields are."""

    make_env: MakeEnv
    kwargs: Mapping[str, Any]
    rate_hz: float | None
    seconds: float
    seed: int
    step_limit_s: float
    reset_limit_s: float
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the environment, for people."""
        if isinstance(self.make_env, str):
            return self.make_env
        return str(getattr(self.make_env, "__qualname__", None) or repr(self.make_env))


@dataclass
class Findings:
    """Facts, as far as the trial has come; None if it has not come so far. Picklable.

    Attributes:
        rate_hz: ticks per second.
        max_catch_up_ticks: missed ticks that are made up for, as the settings say.
        sight: what the agent sees of it, in words.
        refusal: why rtagent cannot use the environment.
        error: the call that raised, and what; it ended the trial.
        steps_s: seconds of each step, the frame's preprocessing included.
        late_s: seconds that the machine woke up late before a step, where there was time to sleep.
        resets_s: seconds of each reset without a seed; the daemon seeds only the first.
        spaces, rewards, flags: problems, and how often each was found.
        outside_bounds: observations that were wrong only in the size of a value.
        ended: lengths of the episodes of random actions, ticks.
        nondeterministic: whether its registration says so.
        repeats: whether the same seed and actions gave the same episode, in the same environment.
        repeats_afresh: the same, in a new environment.
        noop_declared: whether the environment names its noop, or the settings what is done instead.
        noop: the action taken for it, in words.
        noop_ticks, noop_return, noop_ended, noop_faults: an episode of noops alone.
        closed: processes, threads and descriptors held after the first close, less those held
            before the environment was made.
        closed_again: the same, after the close of the next environment.
    """

    rate_hz: float | None = None
    max_catch_up_ticks: int = EnvConfig().max_catch_up_ticks
    sight: str = ""
    refusal: str | None = None
    error: str | None = None
    steps_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    resets_s: list[float] = field(default_factory=list)
    spaces: Counter[str] = field(default_factory=Counter)
    rewards: Counter[str] = field(default_factory=Counter)
    outside_bounds: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    ended: list[int] = field(default_factory=list)
    nondeterministic: bool = False
    repeats: bool | None = None
    repeats_afresh: bool | None = None
    noop_declared: bool | None = None
    noop: str = ""
    noop_ticks: int = 0
    noop_return: float = 0.0
    noop_ended: bool = False
    noop_faults: int = 0
    closed: dict[str, int] | None = None
    closed_again: dict[str, int] | None = None
