import base64
import io
import json
import warnings
from math import cos, radians, sin

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from rtagent.env.donkey.protocol import LONGEST_FROM_SIMULATOR, ProtocolError
from rtagent.env.donkey.telemetry import longest_message, read

from .fake_simulator import picture

SHAPE = (120, 160, 3)


PICTURE = picture(SHAPE, "PNG")


def message(**changes):
    return {
        "msg_type": "telemetry", "speed": 2.0, "cte": 0.5, "image": PICTURE, "hit": "none",
        **changes,
    }


@pytest.mark.parametrize("encoding", ["PNG", "JPEG", "TGA"])
def test_every_encoding_is_read(encoding):
    frame = read(message(image=picture(SHAPE, encoding)), SHAPE)
    assert frame.picture.shape == SHAPE
    assert abs(int(frame.picture.mean()) - 90) <= 1
    assert not frame.resized


@pytest.mark.parametrize(("shape", "resized"), [((120, 160), False), ((240, 300, 3), True)])
def test_grey_and_another_size_are_brought_to_what_is_wanted(shape, resized):
    frame = read(message(image=picture(shape, "PNG")), SHAPE)
    assert (frame.picture.shape, frame.resized) == (SHAPE, resized)
    assert int(frame.picture.mean()) == 90


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


def without(key):
    return {name: value for name, value in message().items() if name != key}


def test_without_extended_telemetry_the_error_is_unknown():
    assert read(without("cte"), SHAPE).cte is None


def test_the_second_camera_is_called_imageb():
    frame = read(message(imageb=picture((48, 64, 3))), SHAPE)
    assert frame.info["image_b"].shape == (48, 64, 3)


def test_a_hit_may_be_an_object():
    assert read(message(hit="wall"), SHAPE).hit == "wall"
    assert "cone" in read(message(hit={"name": "cone"}), SHAPE).hit


def encoded(content):
    return base64.b64encode(content).decode()


def test_a_picture_much_larger_than_asked_for_is_refused_before_it_is_decoded(monkeypatch):
    giant = io.BytesIO()
    Image.new("1", (4096, 4096)).save(giant, "PNG")
    monkeypatch.setattr(Image.Image, "convert", None)
    with pytest.raises(ProtocolError, match="4096 x 4096"):
        read(message(image=encoded(giant.getvalue())), SHAPE)
    with pytest.raises(ProtocolError, match="letters"):
        read(message(image="A" * 600_000), SHAPE)


@pytest.mark.parametrize(
    "encoding", ["BMP", "DDS", "EPS", "GIF", "ICO", "JPEG2000", "PCX", "PPM", "SPIDER", "TIFF",
                 "WEBP", "MPO"]
)
def test_other_formats_are_refused_even_by_a_program_that_reads_them(encoding, monkeypatch):
    file = io.BytesIO()
    mode = "F" if encoding == "SPIDER" else "RGB"
    image = Image.new(mode, (160, 120))
    if encoding == "MPO":
        image.save(file, encoding, save_all=True, append_images=[image])
    else:
        image.save(file, encoding)
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", None)
    with pytest.raises(ProtocolError):
        read(message(image=encoded(file.getvalue())), SHAPE)


def test_a_simulator_may_send_its_usual_size_where_a_small_one_was_asked_for():
    assert read(message(), (24, 32, 3)).resized


def test_a_jpeg_of_very_many_scans_is_refused():
    """Each scan repeats the work for the whole picture, and takes a few bytes."""
    file = io.BytesIO()
    Image.fromarray(np.zeros(SHAPE, np.uint8)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    assert not read(message(image=encoded(content)), SHAPE).picture.any()
    last = content.rindex(b"\xff\xda")
    many = content[:last] + content[last:-2] * 2000 + content[-2:]
    with pytest.raises(ProtocolError, match="passes"):
        read(message(image=encoded(many)), SHAPE)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fault", [IndexError, KeyError, MemoryError, RecursionError])
def test_whatever_a_decoder_stumbles_over_is_an_unreadable_picture(fault, monkeypatch):
    def stumble(*args, **options):
        warnings.warn("corrupt", stacklevel=1)
        raise fault("somewhere")

    monkeypatch.setattr(Image, "open", stumble)
    with pytest.raises(ProtocolError, match="cannot be read"):
        read(message(), SHAPE)


def test_no_product_of_what_is_reported_is_infinite():
    for figures in ({"vel_x": 1.7e308, "vel_z": 1.7e308, "yaw": 45.0}, {"speed": 1e300},
                    {"activeNode": 1e300}):
        with pytest.raises(ProtocolError, match="at most"):
            read(message(**figures), SHAPE)


def test_a_message_with_two_raw_pictures_of_the_largest_size_still_fits():
    raw = picture((240, 320, 4), "TGA")
    whole = json.dumps(message(image=raw, imageb=raw))
    assert len(whole) < longest_message(SHAPE)
    assert read(json.loads(whole), SHAPE).resized
    assert longest_message((960, 1280, 3)) == LONGEST_FROM_SIMULATOR


@pytest.mark.parametrize(
    "changes",
    [
        {"speed": float("nan")}, {"speed": "fast"}, {"cte": float("inf")}, {"cte": None},
        {"vel_x": float("nan"), "vel_z": 0.0}, {"yaw": "north"}, {"pos_x": [1]}, {"time": "nan"},
        {"image": 5}, {"image": ""}, {"image": "!!!"}, {"image": PICTURE[:200]},
        {"image": base64.b64encode(b"GIF89a").decode()}, {"imageb": "x"},
        {"image": base64.b64encode(base64.b64decode(PICTURE)[:60]).decode()},
    ],
    ids=lambda changes: str(changes)[:30],
)
def test_what_cannot_be_used_is_refused(changes):
    with pytest.raises(ProtocolError):
        read(message(**changes), SHAPE)


def test_a_missing_speed_or_picture_is_refused():
    for key in ("speed", "image"):
        with pytest.raises(ProtocolError):
            read(without(key), SHAPE)
