"""A car by the bicycle model: two wheels, the front one steered, and tyres of limited grip."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, exp, radians, sin, tan

WHEELBASE = 1.8
MOST_STEER = radians(16.0)
STEER_LAG_S = 0.08
"""The time constant with which the wheels follow the steering."""
GRIP = 9.0
"""Largest sideways acceleration; beyond it the car turns less than it is steered."""
DRIVE = 8.0
BRAKE = 15.0
ROLLING = 0.5
LINEAR_DRAG = 0.15
QUADRATIC_DRAG = 0.01
FASTEST_REVERSE = -4.0
LONGEST_STEP_S = 1 / 120


@dataclass
class Car:
    """A car's place and motion; lengths in the simulator's units, angles in radians.

    Attributes:
        x, z: to the right and up on the map.
        yaw: heading, 0 along z, clockwise.
        speed: along the heading; negative in reverse.
        steer: angle of the front wheel, to the right.
        yaw_rate: radians per second.
        acceleration: along the heading.
    """

    x: float
    z: float
    yaw: float
    speed: float = 0.0
    steer: float = 0.0
    yaw_rate: float = 0.0
    acceleration: float = 0.0

    def advance(self, seconds: float, steering: float, throttle: float, brake: float) -> None:
        """Drive for some seconds under constant control, in steps of `LONGEST_STEP_S` or less.

        Steering goes from -1 (left) to 1, throttle from -1 (reverse) to 1, brake from 0 to 1.
        """
        # Rounded up, except where a quotient exceeds a whole number by its last digits.
        steps = max(1, round(seconds / LONGEST_STEP_S + 0.499))
        for _ in range(steps):
            self._step(seconds / steps, steering, throttle, brake)

    def _step(self, dt: float, steering: float, throttle: float, brake: float) -> None:
        self.steer += (steering * MOST_STEER - self.steer) * (1.0 - exp(-dt / STEER_LAG_S))
        before = self.speed
        self.speed = max(self._pushed(dt, throttle, brake), FASTEST_REVERSE)
        self.acceleration = (self.speed - before) / dt
        turn = self.speed * tan(self.steer) / WHEELBASE
        if abs(self.speed * turn) > GRIP:
            turn *= GRIP / abs(self.speed * turn)
        self.yaw_rate = turn
        middle = self.yaw + turn * dt / 2
        self.x += self.speed * sin(middle) * dt
        self.z += self.speed * cos(middle) * dt
        self.yaw += turn * dt

    def _pushed(self, dt: float, throttle: float, brake: float) -> float:
        """The speed after motor, drag and brake, of which the last two never reverse it."""
        speed = self.speed + DRIVE * throttle * dt
        resistance = ROLLING + LINEAR_DRAG * abs(speed) + QUADRATIC_DRAG * speed**2 + BRAKE * brake
        if abs(speed) <= resistance * dt:
            return 0.0
        return speed - resistance * dt * (1.0 if speed > 0 else -1.0)
