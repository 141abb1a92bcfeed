import numpy as np
import pytest

from rtagent.env.donkey.car import Car
from rtagent.env.donkey.drive import BARRIER_NAME, BEHIND_LINE, PARKED, Controls, Drive
from rtagent.env.donkey.scenery import draw
from rtagent.env.donkey.track import BARRIER, circuit

TRACK = circuit()
SCENERY = draw(TRACK, 0, 0)


def put(drive, rounds):
    """Put the car on the centre line."""
    x, z, heading = TRACK.point_at(rounds * TRACK.length)
    drive.put(Car(x, z, heading), TRACK.place(x, z))


def test_it_starts_before_the_line_and_stands():
    drive = Drive.at_start(TRACK, SCENERY)
    assert drive.rounds == pytest.approx(-BEHIND_LINE / TRACK.length)
    assert drive.place.progress == pytest.approx(TRACK.length - BEHIND_LINE, abs=0.1)
    drive.advance(1.0, PARKED)
    assert (drive.car.speed, drive.hit) == (0.0, "none")
    assert drive.crossings(1.0) == []


def test_rounds_go_on_over_the_line_in_both_directions():
    drive = Drive.at_start(TRACK, SCENERY)
    for rounds in (0.3, 0.7, 1.1, 0.9, 0.5, 0.1, -0.3):
        put(drive, rounds)
        assert drive.rounds == pytest.approx(rounds, abs=1e-3)


def test_laps_are_counted_once_and_timed():
    drive = Drive.at_start(TRACK, SCENERY)
    said = []
    for time, rounds in enumerate((0.1, 0.5, 0.9, 1.1, 0.9, 1.1, 1.5, 1.9, 2.1)):
        put(drive, rounds)
        said += [(time, each) for each in drive.crossings(float(time))]
    assert [time for time, _ in said] == [0, 3, 3, 8, 8]
    assert [each["lap_time"] for _, each in said if each["msg_type"] == "cross_start"] == [3.0, 5.0]
    assert drive.laps == 2


def test_the_barrier_stops_the_car():
    drive = Drive.at_start(TRACK, SCENERY)
    for _ in range(600):
        drive.advance(1 / 60, Controls(steering=0.5, throttle=1.0))
        if drive.hit != "none":
            break
    assert drive.hit == BARRIER_NAME
    assert drive.car.speed == 0.0
    assert abs(TRACK.place(drive.car.x, drive.car.z).cte) == pytest.approx(BARRIER, abs=0.1)
    assert np.isfinite([drive.car.x, drive.car.z]).all()
