"""A car in a scene: its motion along the road, and its laps."""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign, cos, floor, sin

from rtagent.env.donkey.car import Car
from rtagent.env.donkey.protocol import Message
from rtagent.env.donkey.scenery import Scenery
from rtagent.env.donkey.track import BARRIER, Place, Track

BEHIND_LINE = 4.0
"""The distance from a car's start to the starting line ahead."""
BARRIER_NAME = "barrier"


@dataclass(frozen=True)
class Controls:
    """What a client asks for: steering and throttle -1 to 1, brake 0 to 1."""

    steering: float = 0.0
    throttle: float = 0.0
    brake: float = 0.0


PARKED = Controls(brake=1.0)


@dataclass
class Drive:
    """A car in a scene.

    Attributes:
        track: the road.
        scenery: what it looks like.
        car: on it.
        place: where on the road the car is.
        travelled: distance along the road since the starting line, backwards negative.
        laps: completed laps.
        lap_started: time at which the current lap began. If None, the car has not crossed the line.
        hit: what the car has run into since the last telemetry, or "none".
    """

    track: Track
    scenery: Scenery
    car: Car
    place: Place
    travelled: float = -BEHIND_LINE
    laps: int = 0
    lap_started: float | None = None
    hit: str = "none"

    @classmethod
    def at_start(cls, track: Track, scenery: Scenery) -> Drive:
        """A car that stands before the starting line."""
        x, z, heading = track.point_at(-BEHIND_LINE)
        return cls(track, scenery, Car(x, z, heading), track.place(x, z))

    @property
    def rounds(self) -> float:
        """Distance along the road since the starting line, in rounds."""
        return self.travelled / self.track.length

    def advance(self, seconds: float, controls: Controls) -> None:
        """Drive on; the barrier stops the car."""
        car = self.car
        car.advance(seconds, controls.steering, controls.throttle, controls.brake)
        self._relocate(self.track.place(car.x, car.z))
        if abs(self.place.cte) > BARRIER:
            beyond = copysign(abs(self.place.cte) - BARRIER, self.place.cte)
            car.x -= beyond * cos(self.place.heading)
            car.z += beyond * sin(self.place.heading)
            car.speed = 0.0
            self.hit = BARRIER_NAME

    def put(self, car: Car, place: Place) -> None:
        """Put a car elsewhere; it counts as moved along the shorter way round."""
        self.car = car
        self._relocate(place)

    def crossings(self, time: float) -> list[Message]:
        """The messages about the starting line, at a time of the world in seconds."""
        crossed, started = floor(self.rounds), self.lap_started
        if crossed < 0 or (started is not None and crossed <= self.laps):
            return []
        kind = "collision_with_starting_line"
        messages: list[Message] = [{"msg_type": kind, "starting_line_index": 0, "timeStamp": time}]
        if started is not None:
            self.laps = crossed
            messages.append({"msg_type": "cross_start", "lap_time": time - started})
        self.lap_started = time
        return messages

    def _relocate(self, place: Place) -> None:
        half = self.track.length / 2
        self.travelled += (place.progress - self.place.progress + half) % (2 * half) - half
        self.place = place
