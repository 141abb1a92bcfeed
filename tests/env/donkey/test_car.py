from math import cos, hypot, pi, sin, tan

import pytest

from rtagent.env.donkey.car import (
    BRAKE,
    DRIVE,
    FASTEST_REVERSE,
    GRIP,
    LINEAR_DRAG,
    MOST_STEER,
    QUADRATIC_DRAG,
    ROLLING,
    STEER_LAG_S,
    WHEELBASE,
    Car,
)


def slowly(seconds, steering, throttle, brake, speed=0.0, dt=1e-4):
    """The same car, transcribed term by term, in steps of a tenth of a millisecond."""
    x = z = yaw = steer = 0.0
    for _ in range(round(seconds / dt)):
        steer += dt * (steering * MOST_STEER - steer) / STEER_LAG_S
        force = DRIVE * throttle
        if speed:
            slowing = ROLLING + LINEAR_DRAG * abs(speed) + QUADRATIC_DRAG * speed**2 + BRAKE * brake
            force -= slowing if speed > 0 else -slowing
        elif abs(force) > ROLLING + BRAKE * brake:
            force -= ROLLING + BRAKE * brake if force > 0 else -ROLLING - BRAKE * brake
        else:
            force = 0.0
        speed += dt * force
        speed = max(speed, FASTEST_REVERSE)
        turn = speed * tan(steer) / WHEELBASE
        if abs(turn * speed) > GRIP:
            turn = GRIP / abs(speed) * (1 if turn > 0 else -1)
        x += dt * speed * sin(yaw)
        z += dt * speed * cos(yaw)
        yaw += dt * turn
    return x, z, yaw, speed


@pytest.mark.parametrize(
    ("steering", "throttle", "speed"),
    [(0.0, 1.0, 0.0), (0.4, 0.5, 3.0), (-1.0, 0.3, 6.0), (0.7, 1.0, 18.0), (0.3, -0.8, 0.0)],
)
def test_it_moves_as_a_slow_transcription_does(steering, throttle, speed):
    car = Car(0.0, 0.0, 0.0, speed=speed)
    for _ in range(60):
        car.advance(1 / 20, steering, throttle, 0.0)
    x, z, yaw, end_speed = slowly(3.0, steering, throttle, 0.0, speed)
    assert car.speed == pytest.approx(end_speed, abs=0.1)
    assert car.yaw == pytest.approx(yaw, abs=0.03)
    assert (car.x, car.z) == pytest.approx((x, z), abs=0.6)


def test_a_slow_circle_has_the_bicycles_radius():
    car = Car(0.0, 0.0, 0.0, speed=3.0, steer=MOST_STEER)
    radius = WHEELBASE / tan(MOST_STEER)
    places = []
    while car.yaw < 2 * pi:
        car.speed = 3.0
        car.advance(1 / 60, 1.0, 0.0, 0.0)
        places.append((car.x, car.z))
    # It turns right, so the circle's middle lies to the right of the start.
    assert all(hypot(x - radius, z) == pytest.approx(radius, rel=0.02) for x, z in places)


def test_brakes_and_drag_stop_a_car_brakes_sooner_and_neither_turns_it_round():
    def way(speed, brake):
        car = Car(0.0, 0.0, 0.0, speed=speed)
        for _ in range(60 * 20):
            car.advance(1 / 60, 0.0, 0.0, brake)
            assert car.speed * speed >= 0.0
        assert car.speed == 0.0
        return car.z

    for speed in (10.0, -3.0):
        assert abs(way(speed, 1.0)) < 0.3 * abs(way(speed, 0.0))


def test_the_length_of_a_frame_makes_no_difference():
    ends = []
    for rate in (20, 60, 240):
        car = Car(0.0, 0.0, 0.0)
        for _ in range(2 * rate):
            car.advance(1 / rate, 0.5, 0.6, 0.0)
        ends.append((car.x, car.z, car.yaw))
    assert ends[0] == pytest.approx(ends[1], abs=0.05)
    assert ends[1] == pytest.approx(ends[2], abs=0.05)
