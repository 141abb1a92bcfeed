"""An environment with nothing wrong, and some with one thing wrong each."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np


class Honest(gym.Env[Any, Any]):
    """A point that wanders at random for 20 ticks."""

    metadata = {"render_fps": 50}  # noqa: RUF012 - as Gymnasium declares it
    noop_action: Any = 0

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-100.0, 100.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self.ticks = 0

    def see(self) -> Any:
        return self.np_random.normal(0.0, 1.0, 3).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.ticks = 0
        return self.see(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self.ticks += 1
        return self.see(), float(action), self.ticks == 20, False, {}


class TwoCameras(Honest):
    """Shows two pictures, neither with a usual name."""

    def __init__(self) -> None:
        super().__init__()
        picture = gym.spaces.Box(0, 255, (48, 64, 3), np.uint8)
        self.observation_space = gym.spaces.Dict({"front": picture, "rear": picture})

    def see(self) -> Any:
        return {each: self.np_random.integers(0, 256, (48, 64, 3), np.uint8)
                for each in ("front", "rear")}


class Hanging(Honest):
    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        if self.ticks == 3:
            time.sleep(3600)
        return super().step(action)


class Dying(Honest):
    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        os.write(2, b"the driver has no more cores\n")
        os.abort()


class Leaking(Honest):
    """Each leaves a process and a pipe behind."""

    def __init__(self) -> None:
        super().__init__()
        self.left = subprocess.Popen(["sleep", "3607"])
        self.pipe = os.pipe()


class NanReward(Honest):
    worst = float("nan")

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        shown, reward, *rest = super().step(action)
        return shown, self.worst if self.ticks == 7 else reward, *rest  # type: ignore[return-value]


class HugeReward(NanReward):
    worst = 1e39


class Endless(Honest):
    """Infinity is within its bounds, and so is what no float32 holds; the no-op meets neither."""

    worst = np.inf

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def see(self) -> Any:
        return super().see().astype(np.float64)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        shown, *rest = super().step(action)
        if action and self.ticks == 7:
            shown[1] = self.worst
        return shown, *rest  # type: ignore[return-value]


class TooLarge(Endless):
    worst = 1e300


class WrongTypeAndNan(Endless):
    worst = np.nan

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)


class Unseeded(Honest):
    def see(self) -> Any:
        return np.random.default_rng().normal(0.0, 1.0, 3).astype(np.float32)


class Numbered(Honest):
    """The same seed means something else to each of them."""

    numbers = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.number = next(self.numbers)

    def see(self) -> Any:
        return np.float32([self.number, 0, 0])


class WrongShape(Honest):
    def see(self) -> Any:
        return np.zeros(4, np.float32)


class Outside(Honest):
    def see(self) -> Any:
        return np.full(3, 200.0, np.float32)


class OutsideInADict(Outside):
    def __init__(self) -> None:
        super().__init__()
        inner = gym.spaces.Tuple([gym.spaces.Discrete(2), self.observation_space])
        self.observation_space = gym.spaces.Dict({"inner": inner})

    def see(self) -> Any:
        return {"inner": (1, super().see())}


class WrongShapeInADict(OutsideInADict):
    def see(self) -> Any:
        return {"inner": (1, np.zeros(4, np.float32))}


class NumbersAsFlags(Honest):
    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        shown, reward, terminated, _, info = super().step(action)
        return shown, reward, terminated, 0, info


class OneTick(Honest):
    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        shown, reward, _, _, info = super().step(action)
        return shown, reward, True, False, info


class OldStep(Honest):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class Lists(Honest):
    """Answers with lists, which rtagent takes as well as tuples."""

    def reset(self, **options: Any) -> Any:
        return list(super().reset(**options))

    def step(self, action: Any) -> Any:
        return list(super().step(action))


class NoStep(Honest):
    def step(self, action: Any) -> Any:
        return None


class Raising(Honest):
    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        raise ValueError("\nno such road\nand more")


class Undeclared(Honest):
    noop_action = None


class HarmfulNoop(Honest):
    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        shown, reward, *rest = super().step(action)
        return shown, reward if action else float("inf"), *rest  # type: ignore[return-value]


class BadSpace(Honest):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Text(3)  # type: ignore[assignment]


class Boundless(Honest):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (2,))  # type: ignore[assignment]


class Leaves(Honest):
    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        sys.exit("no robot")


class CloseRaises(Honest):
    def close(self) -> None:
        raise OSError("the port is gone")


for world in (Honest, Hanging, Dying, Leaking):
    gym.register(f"bad/{world.__name__}-v0", entry_point=world)
