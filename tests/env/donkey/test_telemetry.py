import base64
import io
from math import cos, radians, sin

import numpy as np
import pytest
from PIL import Image

from rtagent.env.donkey.protocol import ProtocolError
from rtagent.env.donkey.telemetry import read

SHAPE = (120, 160, 3)


def picture_text(shape=SHAPE, encoding="PNG", level=100):
    file = io.BytesIO()
    Image.fromarray(np.full(shape, level, np.uint8)).save(file, encoding)
    return base64.b64encode(file.getvalue()).decode()


def message(**changes):
    return {
        "msg_type": "telemetry", "speed": 2.0, "cte": 0.5, "image": picture_text(), "hit": "none",
        **changes,
    }


@pytest.mark.parametrize("encoding", ["PNG", "JPEG", "TGA"])
def test_every_encoding_is_read(encoding):
    frame = read(message(image=picture_text(encoding=encoding)), SHAPE)
    assert frame.picture.shape == SHAPE
    assert abs(int(frame.picture.mean()) - 100) <= 1
    assert not frame.resized


def test_grey_becomes_three_channels():
    assert read(message(image=picture_text((120, 160))), SHAPE).picture.shape == SHAPE


def test_another_size_is_brought_to_the_one_wanted_and_said():
    frame = read(message(image=picture_text((240, 300, 3))), SHAPE)
    assert frame.picture.shape == SHAPE
    assert frame.resized
    assert int(frame.picture.mean()) == 100


@pytest.mark.parametrize("yaw", [0.0, 30.0, 135.0, 250.0])
@pytest.mark.parametrize("speed", [2.5, -1.0])
def test_forward_velocity_is_taken_along_the_heading(yaw, speed):
    """Not along the pitch, which is what the public client does."""
    angle = radians(yaw)
    velocity = {"vel_x": speed * sin(angle), "vel_y": 0.1, "vel_z": speed * cos(angle)}
    frame = read(message(**velocity, yaw=yaw, pitch=4.0, roll=1.0), SHAPE)
    assert frame.forward_velocity == pytest.approx(speed)
    sideways = read(message(**velocity, yaw=yaw + 90.0), SHAPE)
    assert sideways.forward_velocity == pytest.approx(0.0, abs=1e-9)


def test_without_velocities_the_speed_stands_in():
    frame = read(message(yaw=30.0), SHAPE)
    assert frame.forward_velocity == frame.speed == 2.0


def test_without_extended_telemetry_the_error_is_unknown():
    short = message()
    del short["cte"]
    assert read(short, SHAPE).cte is None


def test_the_second_camera_is_called_imageb():
    frame = read(message(imageb=picture_text((48, 64, 3), level=7)), SHAPE)
    assert frame.info["image_b"].shape == (48, 64, 3)


def test_a_hit_may_be_an_object():
    assert read(message(hit="wall"), SHAPE).hit == "wall"
    assert "cone" in read(message(hit={"name": "cone"}), SHAPE).hit


def test_a_giant_picture_is_refused_before_it_is_decoded():
    giant = io.BytesIO()
    Image.new("1", (6_000, 6_000)).save(giant, "PNG")
    text = base64.b64encode(giant.getvalue()).decode()
    assert len(text) < 500_000
    with pytest.raises(ProtocolError, match="6000 x 6000"):
        read(message(image=text), SHAPE)


@pytest.mark.parametrize(
    "changes",
    [
        {"speed": float("nan")}, {"speed": "fast"}, {"cte": float("inf")}, {"cte": None},
        {"vel_x": float("nan"), "vel_z": 0.0}, {"yaw": "north"}, {"pos_x": [1]}, {"time": "nan"},
        {"image": 5}, {"image": ""}, {"image": "!!!"}, {"image": picture_text()[:200]},
        {"image": base64.b64encode(b"GIF89a").decode()}, {"imageb": "x"},
        {"image": base64.b64encode(base64.b64decode(picture_text())[:60]).decode()},
    ],
    ids=lambda changes: str(changes)[:30],
)
def test_what_cannot_be_used_is_refused(changes):
    with pytest.raises(ProtocolError):
        read(message(**changes), SHAPE)


def test_a_missing_speed_or_picture_is_refused():
    for key in ("speed", "image"):
        short = message()
        del short[key]
        with pytest.raises(ProtocolError):
            read(short, SHAPE)
