import itertools
from math import cos, sin

import numpy as np
import pytest

from rtagent.env.donkey.track import (
    BARRIER,
    CLEARANCE,
    HALF_WIDTH,
    LENGTH,
    TIGHTEST,
    circuit,
    generated,
)


@pytest.fixture(scope="module", params=["circuit", "generated"])
def track(request):
    return circuit() if request.param == "circuit" else generated(7)


def densely(track):
    """Points of the centre line about a hundredth apart, and the distance along it to each."""
    closed = np.concatenate([track.points, track.points[:1]])
    pieces = [a + np.linspace(0, 1, 50, endpoint=False)[:, None] * (b - a)
              for a, b in itertools.pairwise(closed)]
    points = np.concatenate(pieces)
    steps = np.hypot(*np.diff(points, axis=0).T)
    return points, np.concatenate([[0.0], np.cumsum(steps)])


def test_a_place_is_the_nearest_point_of_the_line(track):
    points, ways = densely(track)
    random = np.random.default_rng(0)
    for _ in range(200):
        progress, offset = random.uniform(0, track.length), random.uniform(-BARRIER, BARRIER)
        x, z, heading = track.point_at(progress)
        x, z = x + offset * cos(heading), z - offset * sin(heading)
        place = track.place(x, z)
        squares = ((points - (x, z)) ** 2).sum(axis=1)
        assert abs(place.cte) == pytest.approx(np.sqrt(squares.min()), abs=0.01)
        way = ways[squares.argmin()]
        apart = abs(place.progress - way)
        assert min(apart, track.length - apart) < 0.5
        if abs(place.cte) > 0.01 and abs(offset) < HALF_WIDTH:
            assert np.sign(place.cte) == np.sign(offset)


def test_progress_and_nodes_grow_along_the_road(track):
    places = [track.place(*track.point_at(way)[:2]) for way in np.arange(1.0, track.length, 3.0)]
    assert (np.diff([place.progress for place in places]) > 0).all()
    nodes = [place.node for place in places]
    assert nodes == sorted(nodes)
    assert set(nodes) == set(range(track.nodes))
    assert all(abs(place.cte) < 1e-6 for place in places)


def test_way_and_place_are_each_others_inverse(track):
    for way in (0.0, 1.0, 123.4, track.length - 0.1):
        x, z, heading = track.point_at(way)
        place = track.place(x, z)
        assert place.progress == pytest.approx(way, abs=1e-6)
        assert cos(place.heading - heading) == pytest.approx(1.0, abs=0.01)
    assert track.point_at(-1.0)[:2] == pytest.approx(track.point_at(track.length - 1.0)[:2])


def test_a_node_lies_where_it_is_passed(track):
    for node in range(0, track.nodes, 7):
        x, z, heading = track.node_at(node)
        assert track.place(x + 0.1 * sin(heading), z + 0.1 * cos(heading)).node == node


def test_the_circuit_has_curves_of_different_radius():
    track = circuit()
    ways = np.arange(0.0, track.length, 10.0)
    headings = np.unwrap([track.point_at(way)[2] for way in ways])
    turns = np.abs(np.diff(headings)) / 10.0
    assert (turns < 1 / 200).any()
    assert (turns > 1 / 20).any()
    assert len(set(np.round(turns, 2))) >= 4
    assert track.tightest_radius() > HALF_WIDTH
    # Once round, and curves to both sides.
    assert abs(headings[-1] - headings[0]) > 5.0
    assert (np.diff(headings) < -0.1).any()
    assert (np.diff(headings) > 0.1).any()


@pytest.mark.parametrize("seed", range(8))
def test_a_generated_road_can_be_driven(seed):
    track = generated(seed)
    assert track.length == pytest.approx(LENGTH, rel=0.01)
    assert track.tightest_radius() >= TIGHTEST
    way = np.arange(0, LENGTH, 5.0)
    points = np.array([track.point_at(each)[:2] for each in way])
    apart = np.abs(way[:, None] - way)
    along = np.minimum(apart, LENGTH - apart)
    distance = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    assert distance[along > 3.5 * CLEARANCE].min() > CLEARANCE - 2.0


def test_a_seed_is_a_road():
    assert np.array_equal(generated(3).points, generated(3).points)
    other = generated(4)
    assert other.points.shape != generated(3).points.shape or not np.allclose(
        other.points, generated(3).points, atol=5.0
    )


def test_more_turns_are_more_winding():
    def winding(turns):
        track = generated(1, turns)
        headings = [track.point_at(way)[2] for way in np.arange(0.0, track.length, 4.0)]
        return np.abs(np.diff(np.unwrap(headings))).sum()

    assert winding(0.2) < winding(1.0)
