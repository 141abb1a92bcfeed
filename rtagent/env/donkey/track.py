"""Closed roads: their shape, and the place of a point along them.

Coordinates are those of the simulator: x to the right and z up on the map, in its units; a heading
of 0 points along z, and headings grow clockwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import atan2

import numpy as np
from numpy.typing import NDArray

HALF_WIDTH = 4.0
BARRIER = 12.0
"""Distance from the centre line at which a car runs into something."""
SPACING = 0.5
NODE_SPACING = 4.0
"""Distance between the nodes that telemetry counts."""
TIGHTEST = 9.0
"""Smallest radius of a generated road."""
LENGTH = 400.0
CLEARANCE = 2.0 * BARRIER
"""Distance on the map between parts of a generated road that are far apart along it."""

_CIRCUIT = (
    (0.0, 12.0), (0.0, 38.0), (0.0, 62.0), (8.0, 80.0), (26.0, 84.0), (44.0, 74.0), (52.0, 54.0),
    (68.0, 44.0), (84.0, 54.0), (92.0, 76.0), (112.0, 84.0), (130.0, 72.0), (132.0, 48.0),
    (116.0, 22.0), (118.0, -6.0), (106.0, -26.0), (78.0, -30.0), (42.0, -30.0), (12.0, -24.0),
    (0.0, -4.0),
)
"""Corners of the circuit, which are then rounded."""


@dataclass(frozen=True)
class Place:
    """A point's place on the road.

    Attributes:
        cte: cross-track error: distance from the centre line, positive to the right.
        progress: distance along the centre line from the start, 0 to the road's length.
        node: number of the last node passed.
        heading: of the road at this place, in radians.
    """

    cte: float
    progress: float
    node: int
    heading: float


class Track:
    """A closed centre line.

    Attributes:
        points: (n, 2), x and z, in driving order, evenly spaced; the last is joined to the first.
        length: of the centre line.
        nodes: number of nodes.
    """

    def __init__(self, points: NDArray[np.float64]) -> None:
        self.points = points
        self._ways = np.roll(points, -1, axis=0) - points
        self._lengths = np.hypot(self._ways[:, 0], self._ways[:, 1])
        self._starts = np.concatenate([[0.0], np.cumsum(self._lengths)])[:-1]
        self.length = float(self._lengths.sum())
        self.nodes = max(1, round(self.length / NODE_SPACING))

    def place(self, x: float, z: float) -> Place:
        """The place of a point on the road, which is that of the centre line's nearest point."""
        off = np.array([x, z]) - self.points
        along = np.clip((off * self._ways).sum(axis=1) / self._lengths**2, 0.0, 1.0)
        away = off - along[:, None] * self._ways
        squares = (away**2).sum(axis=1)
        i = int(squares.argmin())
        way = self._ways[i]
        side = 1.0 if way[1] * off[i, 0] - way[0] * off[i, 1] >= 0 else -1.0
        progress = float(self._starts[i] + along[i] * self._lengths[i]) % self.length
        node = int(progress / self.length * self.nodes) % self.nodes
        return Place(side * float(np.sqrt(squares[i])), progress, node, atan2(way[0], way[1]))

    def point_at(self, progress: float) -> tuple[float, float, float]:
        """x, z and heading of the centre line at a distance along it from the start."""
        progress %= self.length
        i = int(np.searchsorted(self._starts, progress, side="right")) - 1
        way = self._ways[i]
        x, z = self.points[i] + way * (progress - self._starts[i]) / self._lengths[i]
        return float(x), float(z), atan2(way[0], way[1])

    def node_at(self, node: int) -> tuple[float, float, float]:
        """x, z and heading of a node."""
        return self.point_at(node * self.length / self.nodes)

    def tightest_radius(self) -> float:
        """The smallest radius of curvature."""
        headings = np.arctan2(self._ways[:, 0], self._ways[:, 1])
        turns = np.abs((np.diff(headings, append=headings[:1]) + np.pi) % (2 * np.pi) - np.pi)
        return float((self._lengths / np.maximum(turns, 1e-9)).min())


def circuit() -> Track:
    """The built-in circuit: a long straight, wide sweeps and tight bends."""
    corners = np.array(_CIRCUIT)
    dense = np.concatenate([
        corners[i] + np.linspace(0.0, 1.0, 40, endpoint=False)[:, None]
        * (corners[(i + 1) % len(corners)] - corners[i])
        for i in range(len(corners))
    ])
    return Track(_evenly_spaced(_rounded(_evenly_spaced(dense), 5.0)))


def generated(seed: int, turns: float = 1.0) -> Track:
    """A random closed road of `LENGTH`, with no radius under `TIGHTEST`, and clear of itself.

    `turns` scales how winding it is; 1 is usual.
    """
    random = np.random.default_rng(seed)
    angle = np.linspace(0.0, 2 * np.pi, 2000, endpoint=False)
    waves = np.arange(2, 7)
    heights = turns * random.uniform(0.3, 1.0, len(waves)) * np.array([0.26, 0.2, 0.14, 0.09, 0.06])
    phases = random.uniform(0.0, 2 * np.pi, len(waves))
    while True:
        radius = 1.0 + (heights[:, None] * np.cos(np.outer(waves, angle) + phases[:, None])).sum(0)
        shape = radius[:, None] * np.stack([-np.cos(angle), np.sin(angle)], axis=1)
        around = np.hypot(*np.diff(shape, axis=0, append=shape[:1]).T).sum()
        track = Track(_evenly_spaced(shape * LENGTH / around))
        if radius.min() > 0.2 and track.tightest_radius() >= TIGHTEST and _keeps_clear(track):
            return track
        heights *= 0.9  # Less winding, until the road can be driven.


def _keeps_clear(track: Track) -> bool:
    """Whether parts that are far apart along the road are `CLEARANCE` apart on the map."""
    sparse = track.points[:: round(NODE_SPACING / SPACING)]
    count = len(sparse)
    apart = np.abs(np.arange(count)[:, None] - np.arange(count))
    along = np.minimum(apart, count - apart) * NODE_SPACING
    distance = np.hypot(*(sparse[:, None] - sparse).transpose(2, 0, 1))
    return bool((distance[along > 3.0 * CLEARANCE] > CLEARANCE).all())


def _evenly_spaced(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points `SPACING` apart on the closed line through `points`."""
    closed = np.concatenate([points, points[:1]])
    way = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(closed, axis=0).T))])
    at = np.linspace(0.0, way[-1], round(way[-1] / SPACING), endpoint=False)
    return np.stack([np.interp(at, way, closed[:, axis]) for axis in (0, 1)], axis=1)


def _rounded(points: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """The closed line with its corners rounded: each point a Gaussian mean over `width`."""
    frequency = 2 * np.pi * np.fft.fftfreq(len(points), SPACING)
    keep = np.exp(-0.5 * (frequency * width) ** 2)
    smooth = np.fft.ifft(np.fft.fft(points, axis=0) * keep[:, None], axis=0)
    return np.asarray(smooth.real, np.float64)
