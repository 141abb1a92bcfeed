"""DonkeyCar as a Gymnasium environment, on a simulator's own clock.

A step sends a control, then waits for the next telemetry frame, a bounded time. Frames are taken in
their order, so that each is used once although two clocks tick; a caller that has fallen behind for
more than a few steps gets the newest frame.

How long a step waits depends on who decides when it is called. A program that only calls `step`
goes at the pace of telemetry: a step waits until a frame comes. Where the caller has a clock of its
own (`paced`), a step that waited for most of a period would make the next tick late. Such a step
waits for a part of the period; a frame that comes later is ready at the next tick, and so are all
that follow.

While the simulator is gone, steps return the last picture and no reward. The step that notices it
reports the episode as truncated, and so does the step that finds the simulator back.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.clock import MonotonicClock
from rtagent.env.donkey.camera import CameraConfig
from rtagent.env.donkey.connection import Connection
from rtagent.env.donkey.controls import AT_REST, Continuous, Grid
from rtagent.env.donkey.embedded import EmbeddedSimulator
from rtagent.env.donkey.protocol import DEFAULT_PORT, ProtocolError
from rtagent.env.donkey.scenes import SCENES
from rtagent.env.donkey.telemetry import NO_HIT, Telemetry
from rtagent.env.donkey.wire import Address
from rtagent.errors import UserError

RATE_HZ = 20.0
MAX_CTE = 8.0
MAX_SECONDS = 180.0
"""The episode of a car that never leaves the road would not end otherwise."""
PERIODS_WAITED = 1.5
PERIODS_WAITED_PACED = 0.3
"""Longest wait of a step that is paced, or that has no simulator."""
LOOK_BACK = 8
"""Steps in a row that may find more than one frame waiting, before the newest is taken."""
START_S = 10.0
"""Longest wait for the simulator at a given host when the environment is made."""
LOOK_UP_S = 0.01
"""Longest wait for the addresses of a name; a name that takes longer is asked about again."""
RESET_S = 1.0
RESET_PERIODS_PACED = 1.0
"""Longest reset; the following steps wait for what the simulator has not done by then."""

OFF_ROAD_REWARD = -1.0
HIT_REWARD = -2.0

Picture = NDArray[np.uint8]

_CAR = {
    "body_style": "donkey", "body_r": 20, "body_g": 110, "body_b": 200, "car_name": "rtagent",
    "font_size": 60,
}
_ROAD = {"road_style": 0, "rand_seed": 0, "turn_increment": 0.0}


class DonkeyCar(gym.Env[Picture, Any]):
    """Drive along the road.

    Observation: uint8 RGB (120, 160, 3), or as `camera` asks. Actions: `grid`, Discrete: five
    steerings times three throttles, then one that brakes (`get_action_meanings`); `continuous`,
    Box float32: steering -1 to 1, throttle 0 to 1. Reward: forward velocity times closeness to
    the centre line; -1 off the road, -2 for a collision, both of which terminate the episode.

    `info["lap_count"]` and `info["last_lap_time"]` are about the laps of this episode. In a race,
    `info["race"]` lists the race's messages in this episode. A missed checkpoint and a
    disqualification terminate the episode with a reward of -1; it is truncated when the race stops
    otherwise.

    Args:
        scene: the scene to load.
        host, port: where the simulator runs. Without a host, the environment starts its own.
        rate_hz: telemetry frames per second; the environment's own simulator is started with it.
        actions: `grid` (Discrete) or `continuous` (Box).
        noop: what `noop_action` does: `coast` or `brake`.
        max_cte: cross-track error at which an episode ends. Beyond twice this error it goes on, for
            a simulator may put a car down beside the road.
        max_seconds: length at which an episode is truncated, counted in steps of 1 / `rate_hz`; 0:
            never.
        camera, car: fields of `cam_config` and `car_config`.
        road: fields of `regen_road`, sent once the scene is loaded.
        road_seed: of the generated road, in the environment's own simulator.
        render_mode: none or `rgb_array`.

    Attributes:
        noop_action: coasts straight on, or brakes, as `noop` says.
        rate_hz: telemetry frames per second.
        paced: whether the caller has a clock of its own; see the module.

    Raises:
        UserError: an argument is illegal, or no simulator answers at the given host.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - as Gymnasium declares it
        "render_modes": ["rgb_array"], "render_fps": RATE_HZ
    }

    def __init__(
        self, scene: str = "generated_track", *, host: str | None = None, port: int = DEFAULT_PORT,
        rate_hz: float = RATE_HZ, actions: Literal["grid", "continuous"] = "grid",
        noop: Literal["coast", "brake"] = "coast", max_cte: float = MAX_CTE,
        max_seconds: float = MAX_SECONDS, camera: Mapping[str, Any] | None = None,
        car: Mapping[str, Any] | None = None, road: Mapping[str, Any] | None = None,
        road_seed: int = 0, render_mode: str | None = None,
    ) -> None:
        _check(
            scene=scene, host=host, port=port, rate_hz=rate_hz, noop=noop, actions=actions,
            max_cte=max_cte, max_seconds=max_seconds, road_seed=road_seed,
            render_mode=render_mode, camera=camera, car=car, road=road,
        )
        self.render_mode = render_mode
        self.paced = False
        self.rate_hz = float(rate_hz)
        self.metadata = {**self.metadata, "render_fps": self.rate_hz}
        picture = _camera_config(camera)
        shape = (picture.img_h, picture.img_w, 3)
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self._controls = Grid(noop) if actions == "grid" else Continuous(noop)
        self.action_space = self._controls.space
        self.noop_action = self._controls.noop
        steps = max(round(max_seconds * self.rate_hz), 1) if max_seconds else 0
        self._max_cte, self._max_steps = max_cte, steps
        self._clock = MonotonicClock()
        self._host, self._port = host, port
        self._lookup: Future[list[Address]] | None = None
        self._embedded = EmbeddedSimulator(self.rate_hz, road_seed) if host is None else None
        setup: list[dict[str, Any]] = [
            {"msg_type": "car_config", **_CAR, **(car or {})},
            {"msg_type": "cam_config", **vars(picture)},
        ]
        if road is not None:
            setup.append({"msg_type": "regen_road", **_ROAD, **road})
        self._connection = Connection(
            self._where, self._clock, scene=scene, shape=shape, setup=setup, max_cte=max_cte
        )
        self._picture = np.zeros(shape, np.uint8)
        self._frame: Telemetry | None = None
        self._live = False
        self._steps = self._behind = self._repeated = self._laps_before = 0
        self._meet_simulator()

    def get_action_meanings(self) -> list[str]:
        """A word for each discrete action; none for continuous ones."""
        return self._controls.meanings

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Picture, dict[str, Any]]:
        """Have the car put at the start and wait until it is there, a bounded time.

        The seed sets Gymnasium's generator; the simulator's random numbers do not depend on it.

        Returns:
            The first picture, and the telemetry by the names of the public client; `resetting` says
            that the simulator has not obeyed yet, `connected` whether there is a simulator.
        """
        super().reset(seed=seed)
        connection = self._connection
        longest = RESET_PERIODS_PACED / self.rate_hz if self.paced else RESET_S
        until = self._clock.now() + longest
        self._steps = self._behind = 0
        connection.race.clear()
        if not connection.running:
            connection.poll(until, enough=lambda: connection.running)
        if connection.running:
            connection.reset()
            connection.poll(until, enough=lambda: connection.waiting or not connection.running)
        self._live = connection.running
        # A lap that ended before the reset may have been told after it.
        self._laps_before = connection.count["laps"]
        if connection.waiting:
            self._take()
        return self._picture.copy(), self._info()

    def step(self, action: Any) -> tuple[Picture, float, bool, bool, dict[str, Any]]:
        """Send a control and wait for the next frame; a bounded time.

        Returns:
            Picture, reward, terminated, truncated, and the telemetry.
        """
        connection, now = self._connection, self._clock.now()
        # Asked before the control, which may be what finds the connection broken.
        was_running = connection.running
        connection.control(*self._controls.of(action))
        periods = PERIODS_WAITED if was_running and not self.paced else PERIODS_WAITED_PACED
        connection.poll(
            now + periods / self.rate_hz,
            enough=lambda: connection.waiting or connection.running != was_running,
        )
        if connection.running != self._live:
            self._live = connection.running
            return self._picture.copy(), 0.0, False, True, self._info()
        self._steps += 1
        truncated = 0 < self._max_steps <= self._steps
        if not connection.waiting:
            self._behind = 0
            self._repeated += self._live
            return self._picture.copy(), 0.0, False, truncated, self._info()
        # Frames in their order, unless more than one has been waiting at several steps in a row.
        self._behind = self._behind + 1 if connection.waiting > 1 else 0
        if self._behind > LOOK_BACK:
            connection.skip()
        frame = self._take()
        reward, terminated = self._judge(frame)
        truncated = truncated or (not terminated and "race_stop" in connection.race)
        return self._picture.copy(), reward, terminated, truncated, self._info()

    def render(self) -> Picture | None:
        """The newest picture; None without `render_mode`."""
        return self._picture.copy() if self.render_mode else None

    def close(self) -> None:
        """Leave the simulator, and end it if it is the environment's own; may be called twice."""
        self._connection.close()
        if self._embedded is not None:
            self._embedded.close()

    def take_news(self) -> list[str]:
        """What has happened to the connection since the last call, a line each."""
        news = list(self._connection.news)
        self._connection.news.clear()
        return news

    @property
    def figures(self) -> dict[str, int]:
        """Figures since the beginning by name: `Connection.count`, and `repeated`, the steps that
        showed the last picture again."""
        return {**self._connection.count, "repeated": self._repeated}

    def _where(self) -> list[Address]:
        """The simulator's addresses; starts the environment's own simulator if it does not run."""
        if self._embedded is not None:
            self._embedded.ensure_running()
            return [self._embedded.address]
        if self._lookup is None:
            lookup: Future[list[Address]] = Future()
            # Where the network is cut, it takes many seconds.
            threading.Thread(
                target=_look_up, args=(lookup, self._host, self._port), daemon=True
            ).start()
            self._lookup = lookup
        if not wait((self._lookup,), LOOK_UP_S).done:
            raise OSError(f"{self._host} is still being looked up")
        lookup, self._lookup = self._lookup, None
        return lookup.result()

    def _meet_simulator(self) -> None:
        """Begin to connect, or raise a UserError if the simulator at a given host does not answer.
        """
        connection = self._connection
        if self._embedded is not None:
            connection.poll(self._clock.now(), enough=lambda: False)
            return
        connection.poll(self._clock.now() + START_S, enough=lambda: connection.running)
        if not connection.running:
            problem = connection.last_problem or "it does not answer"
            self.close()
            raise UserError(
                f"no DonkeyCar simulator at {self._host}:{self._port}: {problem}; start "
                "it first (`rtagent donkey-sim`), or leave out env.kwargs.host"
            )

    def _take(self) -> Telemetry:
        self._frame = frame = self._connection.take()
        self._picture = frame.picture
        return frame

    def _judge(self, frame: Telemetry) -> tuple[float, bool]:
        """Reward, and whether the episode is over."""
        if frame.hit != NO_HIT:
            return HIT_REWARD, True
        error = abs(frame.cte or 0.0)
        if error > self._max_cte:
            # A car still further away has only just been put down.
            return OFF_ROAD_REWARD, error <= 2 * self._max_cte
        if any(event in ("DQ", "missed_checkpoint") for event in self._connection.race):
            return OFF_ROAD_REWARD, True
        if frame.forward_velocity < 0.0:
            return frame.forward_velocity, False
        return (1.0 - error / self._max_cte) * frame.forward_velocity, False

    def _info(self) -> dict[str, Any]:
        connection = self._connection
        laps = connection.count["laps"] - self._laps_before
        return {
            **(self._frame.info if self._frame is not None else {}),
            "connected": connection.running,
            "resetting": connection.resetting,
            "lap_count": laps,
            "last_lap_time": connection.lap_times[-1] if laps else 0.0,
            "race": list(connection.race),
            "figures": self.figures,
        }


_CHOICES: dict[str, tuple[object, ...]] = {
    "scene": tuple(SCENES.values()), "actions": ("grid", "continuous"), "noop": tuple(AT_REST),
    "render_mode": ("rgb_array", None),
}
_BOUNDS = {"rate_hz": (1.0, 240.0), "max_cte": (0.1, 1000.0), "max_seconds": (0.0, 1e6)}


def _look_up(found: Future[list[Address]], host: str | None, port: int) -> None:
    """Look up a name, and put its addresses, or the error, into `found`."""
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found.set_result([(family, address) for family, _, _, _, address in known])
    except BaseException as error:
        found.set_exception(error)


def _check(*, host: str | None, port: int, road_seed: int, **options: Any) -> None:
    """Raise a UserError that names an illegal argument."""
    if type(road_seed) is not int or not 0 <= road_seed < 2**63:
        raise UserError(f"road_seed = {road_seed!r}: a whole number from 0 on")
    if host is not None and (not isinstance(host, str) or not host):
        raise UserError(f"host = {host!r}: expected a name or an address")
    if not isinstance(port, int) or not 1 <= port <= 65_535:
        raise UserError(f"port = {port!r}: 1 to 65535")
    for name in ("camera", "car", "road"):
        if not isinstance(options[name], Mapping | None):
            raise UserError(f"{name} = {options[name]!r}: expected a table of fields")
    for name, choices in _CHOICES.items():
        if options[name] not in choices:
            known = ", ".join(str(each or "none") for each in choices)
            raise UserError(f"{name} = {options[name]!r}: one of {known}")
    for name, (low, high) in _BOUNDS.items():
        value = options[name]
        if not (isinstance(value, int | float) and low <= value <= high):
            raise UserError(f"{name} = {value!r}: {low:g} to {high:g}")


def _camera_config(fields: Mapping[str, Any] | None) -> CameraConfig:
    try:
        config = CameraConfig(**(fields or {}))
    except (TypeError, ProtocolError) as error:
        raise UserError(f"camera = {fields}: {error}") from None
    if config.img_d != 3:
        raise UserError(f"camera.img_d = {config.img_d}: only 3 (colour)")
    return config
