from math import cos, radians, sin, tan

import numpy as np
import pytest

from rtagent.env.donkey import camera as module
from rtagent.env.donkey.camera import (
    FIELD_OF_VIEW_DEG,
    FORWARD,
    HEIGHT,
    PITCH_DEG,
    Camera,
    CameraConfig,
)
from rtagent.env.donkey.protocol import ProtocolError
from rtagent.env.donkey.scenery import EDGE_WIDTH, PIXELS_PER_UNIT, STYLES, Scenery, draw
from rtagent.env.donkey.track import HALF_WIDTH, circuit

SIDE = 640
"""The side of a test map in pixels: 80 units, the middle at 0."""


@pytest.fixture(scope="module")
def track():
    return circuit()


@pytest.fixture(scope="module")
def scenery(track):
    return draw(track, seed=1)


def marked(x, z, radius=0.4):
    """A black ground with one white square on it."""
    ground = np.zeros((SIDE, SIDE, 3), np.uint8)
    first = -SIDE / 2 / PIXELS_PER_UNIT
    column, row = (round((value - first) * PIXELS_PER_UNIT) for value in (x, z))
    half = round(radius * PIXELS_PER_UNIT)
    ground[row - half : row + half + 1, column - half : column + half + 1] = 255
    return Scenery(ground, first, first, (0.0, 0.0, 0.0))


def projected(x, z, car, config):
    """Column and row at which a pinhole camera on a car shows a point of the ground."""
    car_x, car_z, yaw = car
    right = (x - car_x) * cos(yaw) - (z - car_z) * sin(yaw) - config.offset_x
    ahead = (x - car_x) * sin(yaw) + (z - car_z) * cos(yaw) - FORWARD - config.offset_z
    below = HEIGHT + config.offset_y
    pitch = radians(PITCH_DEG + config.rot_x)
    depth = ahead * cos(pitch) + below * sin(pitch)
    down = below * cos(pitch) - ahead * sin(pitch)
    focal = config.img_h / 2 / tan(radians(config.fov or FIELD_OF_VIEW_DEG) / 2)
    return (config.img_w / 2 + focal * right / depth - 0.5,
            config.img_h / 2 + focal * down / depth - 0.5)


@pytest.mark.parametrize(
    ("point", "car", "config"),
    [
        ((0.0, 8.0), (0.0, 0.0, 0.0), CameraConfig()),
        ((3.0, 12.0), (0.0, 0.0, 0.0), CameraConfig()),
        ((-5.0, 10.0), (1.0, -2.0, -0.4), CameraConfig(img_w=320, img_h=240)),
        ((12.0, -6.0), (2.0, 3.0, 2.2), CameraConfig(fov=100.0, offset_y=1.0)),
        ((0.0, 6.0), (0.0, 0.0, 0.1), CameraConfig(rot_x=10.0, offset_x=0.5, offset_z=-1.0)),
    ],
)
def test_a_point_of_the_ground_appears_where_a_pinhole_camera_shows_it(
    point, car, config, monkeypatch
):
    monkeypatch.setattr(module, "NOISE", 0.0)
    picture = Camera(config, marked(*point)).render(*car)
    column, row = projected(*point, car, config)
    assert 5 < column < config.img_w - 5
    bright = picture.min(axis=2).astype(float)
    bright[: int(row) - 5] = 0.0  # The sky, and haze.
    bright[bright < 150] = 0.0
    rows, columns = np.nonzero(bright)
    assert len(rows) >= 3
    assert np.average(columns, weights=bright[rows, columns]) == pytest.approx(column, abs=1.0)
    assert np.average(rows, weights=bright[rows, columns]) == pytest.approx(row, abs=1.5)


def test_the_road_looks_like_a_road(track, scenery):
    picture = Camera(CameraConfig(), scenery).render(*track.point_at(20.0)).astype(int)
    grass, asphalt = (np.array(colour) for colour in STYLES[0])
    sky, middle = picture[5, 80], picture[105, 60]
    assert sky[2] > sky[0] + 20
    assert np.abs(middle - asphalt).max() < 40
    # The circuit begins straight: far out to both sides, half-way down, there is grass.
    for column in (3, 156):
        shown = picture[60:66, column].mean(axis=0)
        assert np.abs(shown - grass).max() < 60
        assert shown[1] > shown[0]
    # The edges are white, left and right of the middle, and the centre line is yellow.
    lower = picture[70:118].reshape(-1, 3)
    assert (lower.min(axis=1) > 190).mean() > 0.01
    assert ((lower[:, 0] > 170) & (lower[:, 2] < 110)).mean() > 0.005


def test_what_lies_to_the_left_is_shown_on_the_left(track, scenery, monkeypatch):
    monkeypatch.setattr(module, "NOISE", 0.0)
    x, z, heading = track.point_at(20.0)
    camera = Camera(CameraConfig(), scenery)

    def centre_line(offset):
        picture = camera.render(x + offset * cos(heading), z - offset * sin(heading), heading)
        yellow = (picture[50:, :, 0] > 170) & (picture[50:, :, 2] < 110)
        return np.nonzero(yellow)[1].mean()

    assert centre_line(2.0) < centre_line(0.0) - 10 < centre_line(-2.0) - 20


def test_turning_moves_the_hills(track, scenery):
    camera = Camera(CameraConfig(), scenery)
    x, z, heading = track.point_at(20.0)
    ridge = [np.argmax(camera.render(x, z, heading + turn)[:, :, 2] < 170, axis=0) for turn in
             (0.0, 0.5)]
    assert (ridge[0] != ridge[1]).mean() > 0.2


def test_the_same_seed_gives_the_same_pictures(track, scenery):
    start = track.point_at(0.0)
    first, again, other = (Camera(CameraConfig(), scenery, seed) for seed in (1, 1, 2))
    for _ in range(3):
        picture = first.render(*start)
        assert np.array_equal(picture, again.render(*start))
        assert not np.array_equal(picture, other.render(*start))
    assert not np.array_equal(first.render(*start), first.render(*start))  # The noise.


@pytest.mark.parametrize(
    "config",
    [
        CameraConfig(img_w=64, img_h=48),
        CameraConfig(img_w=300, img_h=100, fov=120.0),
        CameraConfig(img_d=1),
        CameraConfig(fish_eye_x=0.4, fish_eye_y=0.4),
        CameraConfig(rot_x=-80.0),
        CameraConfig(rot_x=70.0),
        CameraConfig(rot_y=30.0, rot_z=10.0),
        CameraConfig(img_w=8, img_h=8, offset_y=-5.0),
    ],
    ids=str,
)
def test_every_camera_gives_a_picture_of_its_size(track, scenery, config):
    picture = Camera(config, scenery).render(*track.point_at(100.0))
    depth = () if config.img_d == 1 else (3,)
    assert picture.shape == (config.img_h, config.img_w, *depth)
    assert picture.dtype == np.uint8


def test_a_wider_view_shows_more_of_the_grass(track, scenery):
    def green(fov):
        picture = Camera(CameraConfig(fov=fov), scenery).render(*track.point_at(20.0)).astype(int)
        return (picture[70:, :, 1] > picture[70:, :, 0] + 10).mean()

    assert green(110.0) > green(50.0) + 0.05


def test_0_means_the_simulators_own_value():
    zeros = dict.fromkeys(("img_w", "img_h", "img_d", "img_enc", "fov", "rot_x"), "0")
    assert CameraConfig.from_message({**zeros, "img_enc": ""}) == CameraConfig()
    asked = CameraConfig.from_message({"img_w": "320", "img_enc": "png", "fov": "90.5"})
    assert (asked.img_w, asked.img_h, asked.img_enc, asked.fov) == (320, 120, "PNG", 90.5)


@pytest.mark.parametrize(
    ("field", "value"),
    [("img_w", "100000"), ("img_h", "-5"), ("img_d", "4"), ("img_enc", "GIF"), ("fov", "180"),
     ("fov", "nan"), ("offset_x", "1e9"), ("img_w", "wide"), ("img_h", [])],
)
def test_what_cannot_be_rendered_is_refused_by_name(field, value):
    with pytest.raises(ProtocolError, match=field):
        CameraConfig.from_message({field: value})


def test_the_map_is_painted_as_the_track_says(track, scenery):
    def colour(progress, offset):
        x, z, heading = track.point_at(progress)
        column = round((x + offset * cos(heading) - scenery.left) * PIXELS_PER_UNIT)
        row = round((z - offset * sin(heading) - scenery.bottom) * PIXELS_PER_UNIT)
        return scenery.ground[row - 1 : row + 2, column - 1 : column + 2].mean(axis=(0, 1))

    for progress in (30.0, 150.0, 300.0):
        for side in (-1, 1):
            assert colour(progress, side * (HALF_WIDTH - EDGE_WIDTH)).min() > 170
            road, ground = colour(progress, side * 2.0), colour(progress, side * 7.0)
            assert np.ptp(road) < 30
            assert ground[1] > max(ground[0], ground[2])
    line = np.array([colour(progress, 0.0) for progress in np.arange(20.0, 60.0, 0.5)])
    yellow = line[:, 0] - line[:, 2] > 100
    assert 0.3 < yellow.mean() < 0.7


def test_ground_and_road_differ_in_brightness():
    """An agent sees grey levels."""
    for ground, road in STYLES:
        brightness = [np.dot(colour, (0.299, 0.587, 0.114)) for colour in (ground, road)]
        assert abs(brightness[0] - brightness[1]) > 30
