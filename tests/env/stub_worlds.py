"""Environments that do what a test tells them to; importing this registers them."""

import gymnasium as gym
import numpy as np


class World(gym.Env):
    """Shows samples of any space, or what the test puts into `shows` and `rewards`."""

    def __init__(self, observations=None, actions=None, fps=20, **attributes):
        self.observation_space = (
            gym.spaces.Box(-1.0, 1.0, (3,), np.float32) if observations is None else observations
        )
        self.action_space = gym.spaces.Discrete(2) if actions is None else actions
        self.metadata = {"render_fps": fps}
        self.shows = None
        self.rewards = 0.0
        self.received = []
        self.closed = False
        for name, value in attributes.items():
            setattr(self, name, value)

    def _see(self):
        return self.observation_space.sample() if self.shows is None else self.shows

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._see(), {}

    def step(self, action):
        self.received.append(action)
        return self._see(), self.rewards, False, False, {}

    def close(self):
        self.closed = True


def refuse(**kwargs):
    raise RuntimeError("\nno track is plugged in\nand a second line")


gym.register("stub/World-v0", entry_point=World)
gym.register("stub/Refusing-v0", entry_point=refuse)


def brightest(frame):
    frame[:] = 0
    return 1


def beyond(frame):
    return 7


class Pilot:
    @staticmethod
    def steer(frame):
        return [5.0, -5.0]


NOT_CALLABLE = 3
