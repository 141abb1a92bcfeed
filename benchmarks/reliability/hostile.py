"""Messages, pictures and files as a hostile or broken peer may send or leave them.

Each is a pure function of a `random.Random`, so that a seed and a number name an example.
"""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from PIL import Image

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**70, 1e308, -1e308, 1.7e308, 1e-200, 1e200, "0", "1", "-1", "0.5",
    "1e200", "1e-200", "1e308", "nan", "inf", "-inf", "1e400", "", "x" * 60, "\ud800", "JPG", "PNG",
    "TGA", "GIF", [], {}, [1], {"a": 1}, "synchronous", "generated_track", "warren", "0.05",
)
"""Values for any field."""
CAMERA = ("img_w", "img_h", "img_d", "img_enc", "fov", "fish_eye_x", "fish_eye_y", "offset_x",
          "offset_y", "offset_z", "rot_x", "rot_y", "rot_z")
TO_SIMULATOR = {
    "control": ("steering", "throttle", "brake"),
    "car_config": ("body_style", "body_r", "car_name", "font_size"),
    "get_scene_names": (), "get_protocol_version": (), "exit_scene": (), "quit_app": (),
    "reset_car": (), "lidar_config": ("noise",), "step_mode": ("step_mode", "time_step"),
    "set_position": ("pos_x", "pos_y", "pos_z", "Qx", "Qy", "Qz", "Qw"),
    "node_position": ("index",), "x": ("y",),
}
COSTLY = {
    "cam_config": CAMERA, "cam_config_b": CAMERA, "load_scene": ("scene_name",),
    "regen_road": ("road_style", "rand_seed", "turn_increment"),
}
"""Messages for which a picture or road is drawn; only one in `COSTLY_ONE_IN` is one of these."""
COSTLY_ONE_IN = 500
TO_CLIENT = {
    "telemetry": ("speed", "cte", "image", "imageb", "hit", "time", "yaw", "vel_x", "vel_z",
                  "activeNode", "pos_x", "gyro_y"),
    "scene_names": ("scene_names",), "scene_selection_ready": ("loaded",), "ping": (),
    "cross_start": ("lap_time",), "DQ": ("reason",), "missed_checkpoint": (), "race_start": (),
    "race_stop": (), "collision_with_starting_line": (), "protocol_version": ("version",), "x": (),
    "need_car_config": (), "car_loaded": (),
}


def mutated(random: Random, content: bytes) -> bytes:
    """The content with some bytes changed, left out, inserted, or cut off."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8))):
        at, length = random.randrange(len(data) + 1), random.randrange(1, 40)
        what = random.random()
        if what < 0.5:
            data[at : at + 1] = bytes([random.randrange(256)])
        elif what < 0.7:
            data[at : at + 4] = random.choice((4 * b"\xff", 4 * b"\0", b"\x7f\xff\xff\xff"))
        elif what < 0.8:
            del data[at : at + length]
        elif what < 0.9:
            data[at:at] = random.randbytes(length)
        elif what < 0.97:
            data[at:at] = data[: random.randrange(len(data) + 1)][-10_000:]
        else:
            del data[at:]
    return bytes(data)


def to_simulator(random: Random) -> bytes:
    """A message of a client."""
    kinds = COSTLY if random.randrange(COSTLY_ONE_IN) == 0 else TO_SIMULATOR
    return _sent(random, _message(random, kinds))


def to_client(random: Random, image: str) -> bytes:
    """A line of a simulator; `image` is a valid picture in base64."""
    message = _message(random, TO_CLIENT)
    if message["msg_type"] == "telemetry" and random.random() < 0.5:
        message = {"speed": 1.0, "cte": 0.1, **message, "image": image}
    return _sent(random, message) + random.choice((b"\n", b"\n", b"\n", b"\n\n", b""))


def picture(random: Random) -> bytes:
    """A picture, valid or damaged, in a format that is supported or not."""
    formats = (*3 * ("JPEG", "PNG", "TGA"), "GIF", "BMP", "ICO", "EPS", "DDS", "WEBP")
    options: dict[str, Any] = random.choice(({}, {"progressive": True}, {"optimize": True}))
    shape = random.choice(((120, 160, 3), (120, 160, 3), (60, 80, 3), (8, 8, 3), (240, 320, 3),
                           (700, 900, 3), (120, 160)))
    file = io.BytesIO()
    Image.fromarray(np.full(shape, random.randrange(256), np.uint8)).save(
        file, random.choice(formats), **options
    )
    content = file.getvalue()
    return mutated(random, content) if random.random() < 0.9 else content


def checkpoint(random: Random, whole: bytes) -> bytes:
    """A safetensors file; half of them have a forged header with the right checksum."""
    if random.random() < 0.5:
        return mutated(random, whole)
    length = struct.unpack_from("<Q", whole)[0]
    header, body = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    about = json.loads(header.pop("__metadata__")["rtagent"])
    _disturb(random, random.choice((about, header, about["counters"], about["signature"])))
    text = json.dumps(about)
    if random.random() < 0.7:
        # Without tensors the checksum is that of the text alone.
        header, body = {}, b""
    crc = f"{zlib.crc32(text.encode()):08x}"
    encoded = json.dumps({**header, "__metadata__": {"rtagent": text, "crc32": crc}}).encode()
    return struct.pack("<Q", len(encoded)) + encoded + body


def manifest(random: Random, whole: bytes, crc: Callable[[Any], int]) -> bytes:
    """A manifest of a replay; most are forged, with the right checksum."""
    if random.random() < 0.3:
        return mutated(random, whole)
    content = json.loads(whole)["replay"]
    _disturb(random, random.choice((content, content["chunks"][0], content["chunks"][-1])))
    return json.dumps({"crc32": f"{crc(content):08x}", "replay": content}).encode()


def chunk(random: Random, whole: bytes) -> bytes:
    """A damaged file of a replay; half of them have the right checksum."""
    changed = mutated(random, whole[:-4])
    right = random.random() < 0.5
    return changed + (struct.pack("<I", zlib.crc32(changed)) if right else whole[-4:])


def configuration(random: Random, whole: bytes) -> bytes:
    """A TOML file: damaged, deeply nested, or with one key set to a strange value."""
    lines = whole.splitlines()
    what = random.random()
    if what < 0.5:
        return mutated(random, whole)
    if what < 0.6:
        depth = random.choice((10, 40, 3000, 20_000))
        return random.choice((b"x = " + b"[" * depth, b".".join([b"a"] * depth) + b" = 1",
                              b"x = " + b"{a = " * depth, b"[[a]]\n" * depth))
    at = random.choice([number for number, line in enumerate(lines) if b" = " in line])
    value = random.choice((b"1e400", b"nan", b"-1", b'""', b"[]", b"{}", b"true", b"9" * 30, b"inf",
                           b'"/dev/zero"', b"1979-05-27", b"[[1]]", b'"\\u0000"'))
    lines[at] = lines[at].split(b" = ")[0] + b" = " + value
    return b"\n".join(lines)


def _message(random: Random, kinds: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    kind = random.choice(tuple(kinds))
    message: dict[str, Any] = {"msg_type": kind}
    for name in kinds[kind]:
        if random.random() < 0.6:
            small = str(round(random.uniform(-400.0, 400.0), random.randrange(3)))
            message[name] = random.choice(VALUES) if random.random() < 0.5 else small
    return message


def _sent(random: Random, message: dict[str, Any]) -> bytes:
    what = random.random()
    if what < 0.005:
        depth = random.choice((10, 900, 1100, 20_000))
        return b'{"msg_type":"car_config","car_name":' + b"[" * depth + b"]" * depth + b"}"
    data = json.dumps(message).encode()
    # A message that is cut off swallows the following ones, until they are too long.
    return mutated(random, data) if what < 0.006 else data


def _disturb(random: Random, table: dict[str, Any]) -> None:
    name = random.choice(tuple(table))
    what = random.random()
    if what < 0.15:
        del table[name]
    elif what < 0.25:
        table[random.choice(("x", "/dev/zero", "__metadata__"))] = random.choice(VALUES[:30])
    elif what < 0.5 and isinstance(table[name], str):
        table[name] = random.choice(("/dev/zero", "../x.chunk", "", "\0", table[name] + "x"))
    else:
        table[name] = random.choice([each for each in VALUES if each != "\ud800"])


def as_text(content: bytes) -> str:
    """A picture as telemetry carries it."""
    return base64.b64encode(content).decode()
