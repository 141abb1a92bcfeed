"""One interface to every environment.

The adapter decides once how the environment's observations become frames, how actions reach it,
how fast it ticks and which action does nothing; after that each tick is one `step`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.config import EnvConfig
from rtagent.env.actions import Action, actions_for
from rtagent.env.declarations import (
    action_meanings,
    declared,
    noop_action,
    rate_hz,
    reward_range,
)
from rtagent.env.making import close, closed_if_unusable, make
from rtagent.env.observer_choice import observer_for, sight
from rtagent.env.observers import EnvironmentFault, NotFinite
from rtagent.errors import UserError

MOST_REWARD = float(np.finfo(np.float32).max)
"""The ledger keeps rewards as float32."""
OF_RESET = ("observation", "info")
OF_STEP = ("observation", "reward", "terminated", "truncated", "info")
PICTURE_CHANNELS = ((), (1,), (3,), (4,))
"""Shapes of a pixel of a rendered picture."""
RESETS = 3
"""Resets tried in a row while an environment's first observation is not finite."""


class Step(NamedTuple):
    """The result of one tick of the environment.

    Attributes:
        frame: the frame after the action; valid until the next call of the adapter.
        reward: the tick's reward, finite.
        terminated: the episode ended in a terminal state.
        truncated: the episode was cut short; its last state is not terminal.
    """

    frame: NDArray[Any]
    reward: float
    terminated: bool
    truncated: bool


class Adapter:
    """A Gymnasium environment behind fixed shapes.

    Actions are indices from 0 (Discrete, whatever its `start`) or flat float32 vectors (Box).

    Attributes:
        frame_shape: (84, 84) for pictures, or what `env.image_size` and `env.grayscale` say; (n,)
            for vectors.
        frame_dtype: "uint8" for pictures, "float32" for vectors.
        frame_stack: frames per observation.
        actions: converts actions between the agent and the environment.
        action_space, action_shape, action_dtype: Discrete(n), () and "int32"; or a flat Box, (n,)
            and "float32".
        action_meanings: a word for each discrete action; empty if unknown.
        noop_action: the action that does nothing, an index or a vector.
        rate_hz: ticks per second.
        reward_range: least and largest reward of a tick, widened to include 0, as the environment
            declares them by an attribute `reward_range` or in its metadata. If None, it declares
            none.
        picture_lag: ticks from a change of the world until a frame shows it, as the environment
            declares them by an attribute of this name; else 0.
        cartridge: what is played where the id does not say it, as the environment declares it by an
            attribute of this name; else empty.
        screen: whether a frame can be shown as a picture.
        sight: what the agent sees, in words.
        info: what the environment said with the newest observation.
        faults: how often a reward or an observation was not finite.
        cuts: how many of the faults cut an episode short. Such a tick truncates its episode, with
            reward 0 and the previous frame; the world goes on.
        last_fault: the message of the last fault.
    """

    def __init__(self, env: gym.Env[Any, Any], config: EnvConfig) -> None:
        """Wrap an environment.

        Raises:
            UserError: its spaces, rate or noop cannot be used; the line says which and why.
        """
        self._env = env
        size = config.image_size
        size = (size, size) if isinstance(size, int) else size
        self._observe = observer_for(
            env.observation_space, config.observation_key, size, grayscale=config.grayscale
        )
        self.actions = actions_for(env.action_space)
        self.frame_shape = self._observe.shape
        self.frame_dtype = self._observe.dtype
        self.screen = self._observe.screen
        self.sight = sight(env.observation_space, self._observe)
        self.action_space = self.actions.agent_space
        self.action_shape = self.actions.shape
        self.action_dtype = self.actions.dtype
        self.action_meanings = action_meanings(env, self.action_space)
        self.noop_action = self._noop()
        self.rate_hz = rate_hz(env, config)
        self.reward_range = reward_range(env)
        self.picture_lag = int(declared(env, "picture_lag") or 0)
        cartridge = declared(env, "cartridge")
        self.cartridge = cartridge if isinstance(cartridge, str) else ""
        self.faults = self.cuts = 0
        self.last_fault = ""
        self.info: Any = None
        self._frame: NDArray[Any] = np.zeros(self.frame_shape, self.frame_dtype)
        self._take_news: Callable[[], list[str]] | None = declared(env, "take_news")
        usual = 4 if self.screen else 1
        self.frame_stack = usual if config.frame_stack == "auto" else config.frame_stack

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        """Begin an episode.

        Args:
            seed: makes this and the following episodes repeatable. If None, the environment's
                random numbers go on where they are.

        Returns:
            The first frame; valid until the next call of the adapter.

        Raises:
            EnvironmentFault: the observation is not of the declared space.
            TypeError: the answer is not `OF_RESET`.
        """
        for attempt in range(1, RESETS + 1):
            observation, self.info = _parts("reset", self._env.reset(seed=seed), OF_RESET)
            try:
                self._frame = self._observe(observation)
                break
            except NotFinite as fault:
                self._note_fault(fault)
                if attempt == RESETS:
                    raise
                seed = None
        return self._frame

    def step(self, action: Any) -> Step:
        """Execute one action for one tick.

        Args:
            action: an index from 0, or a vector, clipped to the bounds.

        Raises:
            EnvironmentFault: the observation is not of the declared space, the reward is no
                number, or it cannot be told whether the episode is over.
            TypeError: the answer is not `OF_STEP`.
            ValueError: the environment has no such action.
        """
        given = self.actions.for_environment(action)
        observation, reward, *flags, self.info = _parts("step", self._env.step(given), OF_STEP)
        terminated, truncated = map(_checked_flag, OF_STEP[2:4], flags)
        try:
            frame, value = self._observe(observation), _checked_reward(reward)
        except NotFinite as fault:
            self._note_fault(fault)
            self.cuts += 1
            return Step(self._frame, 0.0, terminated=False, truncated=True)
        self._frame = frame
        return Step(frame, value, terminated, truncated)

    def save(self) -> Any:
        """The world as it is now, for `restore`.

        An environment may have `clone_state()` and `restore_state(state)`, as those of ALE have;
        any other is copied as a whole. Wrappers are always copied: one may count the ticks of the
        episode. The caller must check that the restored world does the same again.
        """
        own: Any = self._env.unwrapped
        if _saves_itself(own):
            return own.clone_state(), _copied_around(own, self._env)
        return copy.deepcopy(self._env)

    def restore(self, saved: Any) -> None:
        """Go back to what `save` gave; it may be used again."""
        own: Any = self._env.unwrapped
        if _saves_itself(own):
            state, wrapped = saved
            own.restore_state(state)
            self._env = _copied_around(own, wrapped)
        else:
            self._env = copy.deepcopy(saved)

    def perturb(self, rng: np.random.Generator) -> bool:
        """Change the random numbers of the coming ticks.

        An environment may have `perturb(rng)`. Where `save` copies the environment, all of Python's
        and NumPy's generators in it get new seeds.

        Returns:
            False if the environment can do neither.
        """
        own: Any = self._env.unwrapped
        if hasattr(own, "perturb"):
            own.perturb(rng)
        elif _saves_itself(own):
            return False
        else:
            copies: dict[int, Any] = {}
            self._env = copy.deepcopy(self._env, copies)
            for each in copies.values():
                if isinstance(each, np.random.BitGenerator):
                    each.state = type(each)(int(rng.integers(1 << 62))).state
                elif isinstance(each, random.Random):
                    each.seed(int(rng.integers(1 << 62)))
        return True

    def picture(self) -> NDArray[np.uint8] | None:
        """The environment's picture now: what it renders, else its newest frame, else None.

        Returns:
            uint8, (height, width) grey, or (height, width, channels): grey, RGB or RGBA.

        Raises:
            EnvironmentFault: what it renders is no picture.
        """
        shown: Any = self._env.render() if self._env.render_mode == "rgb_array" else None
        if shown is None:
            return self._frame if self.screen else None
        picture = np.asarray(shown, np.uint8)
        if picture.ndim < 2 or not picture.size or picture.shape[2:] not in PICTURE_CHANNELS:
            raise EnvironmentFault(f"an array of shape {picture.shape} is no picture")
        return picture

    def keep_time(self) -> None:
        """Tell an environment with a clock of its own that this program decides when it steps.

        Such an environment has the attribute `paced`. Once it is true, no step may last a whole
        tick.
        """
        if hasattr(self._env.unwrapped, "paced"):
            self._env.unwrapped.paced = True

    def take_news(self) -> list[str]:
        """What the environment reports since the last call, a line each.

        An environment that reports has a method of this name.
        """
        return [] if self._take_news is None else self._take_news()

    def close(self) -> None:
        """Close the environment; an exception on the way is only logged."""
        close(self._env)

    def _note_fault(self, fault: NotFinite) -> None:
        self.faults += 1
        self.last_fault = str(fault)

    def _noop(self) -> Action:
        named = noop_action(self._env)
        if named is not None:
            try:
                return self.actions.accept(named, strict=True)
            except ValueError as error:
                raise UserError(f"the environment's noop_action: {error}") from None
        words = [word.upper() for word in self.action_meanings]
        return words.index("NOOP") if "NOOP" in words else self.actions.zero


def open_environment(config: EnvConfig, adapter: type[Adapter] = Adapter) -> Adapter:
    """Build the environment that the configuration names.

    Args:
        config: `id` is a registered Gymnasium id, `package.module:EnvId-v0`, or
            `package.module:name` of a class or function; `kwargs` go to its constructor.
        adapter: its type.

    Returns:
        The adapter; no episode has begun yet.

    Raises:
        UserError: one line that says why it cannot be built or used.
    """
    env = make(config)
    with closed_if_unusable(env, config.id):
        return adapter(env, config)


def _saves_itself(env: gym.Env[Any, Any]) -> bool:
    return hasattr(env, "clone_state") and hasattr(env, "restore_state")


def _copied_around(own: gym.Env[Any, Any], env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A copy of the wrappers of an environment, around the same environment."""
    return copy.deepcopy(env, {id(own): own})


def _parts(method: str, answer: Any, names: tuple[str, ...]) -> Sequence[Any]:
    """The answer of an environment, which has these parts."""
    if not isinstance(answer, tuple | list):
        given = f"a {type(answer).__name__}"
    elif len(answer) != len(names):
        given = f"{len(answer)} values"
    else:
        return answer
    raise TypeError(f"{method}() returns {given}, not ({', '.join(names)}) as Gymnasium has it")


def _checked_flag(name: str, flag: Any) -> bool:
    try:
        return bool(flag)
    except ValueError:
        shape = np.shape(flag)
        raise EnvironmentFault(
            f"the environment's {name} is not one bool, but of shape {shape}"
        ) from None


def _checked_reward(reward: Any) -> float:
    try:
        value = float(np.asarray(reward).item())
    except (TypeError, ValueError):
        raise EnvironmentFault(f"the environment's reward is not a number: {reward!r}") from None
    if not abs(value) <= MOST_REWARD:
        raise NotFinite(f"the environment's reward is {value}")
    return value
