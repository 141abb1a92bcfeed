"""One client's world in the simulator: its scene, its car, its cameras, and the messages to them.

Nothing in this module knows sockets or the clock. Telemetry reports position, velocity and
acceleration in the scale of the Unity simulator: an eighth of the map's units.
"""

from __future__ import annotations

import base64
import functools
import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from math import atan2, cos, degrees, pi, sin
from typing import Any, Literal

import cv2
from PIL import Image

from rtagent.env.donkey.camera import Camera, CameraConfig, Picture
from rtagent.env.donkey.car import Car
from rtagent.env.donkey.drive import PARKED, Controls, Drive
from rtagent.env.donkey.protocol import VERSION, Message, ProtocolError, number, shown
from rtagent.env.donkey.race import Race, Rules
from rtagent.env.donkey.scenery import Scenery, draw
from rtagent.env.donkey.scenes import SCENES
from rtagent.env.donkey.track import BARRIER, Track, circuit, generated

REPORTED_SCALE = 1 / 8
RIDE_HEIGHT = 0.6
JPEG_QUALITY = 90
LONGEST_TIME_STEP_S = 1.0
FURTHEST_POSITION = 1e4

TrackKind = Literal["circuit", "generated"]


@dataclass
class Session:
    """The state of one client's world.

    Args:
        seed: of generated roads, textures and noise.
        track: the road of every scene. If None, each scene has its own.
        rules: of a race in every scene. If None, there are no races.
        room: gives the most pixels that both cameras together may have now. If None, any number.
        may_quit: whether the client may end the simulator.

    Attributes:
        controls: the controls in force.
        synchronous_step: seconds by which each `control` message advances the world. If None, the
            world advances by the clock.
        wants_telemetry: whether a frame is due now, whatever the clock says.
        quit_asked: whether the client wants the simulator to end.
        refused: how many messages could not be carried out.
        drive: the car in its scene. If None, no scene is loaded.
        race: the race in this scene. If None, there is no race.
        time: seconds of the world since the scene was loaded.
    """

    seed: int = 0
    track: TrackKind | None = None
    rules: Rules | None = None
    room: Callable[[], int] | None = field(default=None, repr=False)
    may_quit: bool = False
    controls: Controls = PARKED
    synchronous_step: float | None = None
    wants_telemetry: bool = False
    quit_asked: bool = False
    refused: int = 0
    drive: Drive | None = None
    race: Race | None = None
    time: float = 0.0
    _configs: dict[str, CameraConfig] = field(default_factory=lambda: {"image": CameraConfig()})
    _cameras: dict[str, Camera] = field(default_factory=dict)
    """Made for the next picture, so that several changes before it cost one camera."""
    _replies: list[Message] = field(default_factory=list)

    def greet(self) -> list[Message]:
        """The messages that a client gets first."""
        return [{"msg_type": "scene_selection_ready", "loaded": "1"}]

    def handle(self, message: Message) -> list[Message]:
        """Carry out a message; an invalid one changes nothing and is counted in `refused`.

        Returns:
            The answers, in order.
        """
        act = _HANDLERS.get(message["msg_type"])
        try:
            if act is None:
                raise ProtocolError(f"unknown msg_type {shown(message['msg_type'])}")
            act(self, message)
        except ProtocolError:
            self.refused += 1
        replies, self._replies = self._replies, []
        return replies

    def advance(self, seconds: float) -> list[Message]:
        """Let time pass in the world; the messages about it."""
        self.time += seconds
        drive = self.drive
        if drive is None:
            return []
        in_lobby = self.race is not None and self.race.in_lobby
        drive.advance(seconds, PARKED if in_lobby else self.controls)
        messages = drive.crossings(self.time)
        if self.race is not None:
            messages += self.race.advance(self.time, drive.rounds, drive.place.cte)
        return messages

    def telemetry(self) -> Message | None:
        """A `telemetry` message of car and cameras now; None while no scene is loaded."""
        self.wants_telemetry = False
        drive = self.drive
        if drive is None:
            return None
        car, place, scale = drive.car, drive.place, REPORTED_SCALE
        message: Message = {
            "msg_type": "telemetry", "time": self.time, "hit": drive.hit,
            "steering_angle": self.controls.steering, "throttle": self.controls.throttle,
            "speed": abs(car.speed) * scale, "cte": place.cte,
            "activeNode": place.node, "totalNodes": drive.track.nodes,
            "pos_x": car.x * scale, "pos_y": RIDE_HEIGHT * scale, "pos_z": car.z * scale,
            "vel_x": car.speed * sin(car.yaw) * scale, "vel_y": 0.0,
            "vel_z": car.speed * cos(car.yaw) * scale,
            "accel_x": car.speed * car.yaw_rate * scale, "accel_y": 0.0,
            "accel_z": car.acceleration * scale,
            "gyro_x": 0.0, "gyro_y": car.yaw_rate, "gyro_z": 0.0,
            "pitch": 0.0, "yaw": degrees(car.yaw) % 360.0, "roll": 0.0,
        }
        drive.hit = "none"
        if not self._cameras:
            self._cameras = {
                key: Camera(each, drive.scenery, self.seed) for key, each in self._configs.items()
            }
        for key, camera in self._cameras.items():
            picture = camera.render(car.x, car.z, car.yaw)
            message[key] = base64.b64encode(encoded(picture, camera.config.img_enc)).decode()
        return message

    @property
    def pixels(self) -> int:
        """Pixels of both cameras together."""
        return sum(config.pixels for config in self._configs.values())

    def _begin(self, track: Track, scenery: Scenery) -> None:
        """Put the car at the start of a road; a race begins anew."""
        self.drive = Drive.at_start(track, scenery)
        self.controls = PARKED
        self._cameras = {}
        if self.race is not None and not self.race.in_lobby:
            self._replies += self.race.start(self.time, self.drive.rounds)

    def _needs_drive(self) -> Drive:
        if self.drive is None:
            raise ProtocolError("no scene is loaded")
        return self.drive

    def _get_scene_names(self, message: Message) -> None:
        self._replies.append({"msg_type": "scene_names", "scene_names": list(SCENES.values())})

    def _load_scene(self, message: Message) -> None:
        scene = message.get("scene_name")
        if not isinstance(scene, str) or scene not in SCENES.values():
            raise ProtocolError(f"unknown scene {shown(scene)}")
        self.time = 0.0
        self.race = None if self.rules is None else Race(self.rules, self.time)
        kind = self.track or ("circuit" if scene == "generated_track" else "generated")
        # Each scene but `generated_road` is one fixed road, whatever the seed.
        seeded = scene == "generated_road" or self.track is not None
        self._begin(*_road(kind, self.seed if seeded else zlib.crc32(scene.encode()), 1.0, 0))
        self._replies.append({"msg_type": "need_car_config" if self.race else "car_loaded"})

    def _control(self, message: Message) -> None:
        bounds = {"steering": -1.0, "throttle": -1.0, "brake": 0.0}
        self.controls = Controls(*(
            min(max(number(message, key, 0.0), low), 1.0) for key, low in bounds.items()
        ))
        if self.synchronous_step is not None and self.drive is not None:
            self._replies += self.advance(self.synchronous_step)
            self.wants_telemetry = True

    def _car_config(self, message: Message) -> None:
        for key in ("body_r", "body_g", "body_b", "font_size"):
            number(message, key, 0.0)
        if self.race is not None and self.race.in_lobby:
            self._replies += self.race.start(self.time, self._needs_drive().rounds)

    def _cam_config(self, message: Message) -> None:
        key = "image" if message["msg_type"] == "cam_config" else "imageb"
        config = CameraConfig.from_message(message)
        others = sum(each.pixels for name, each in self._configs.items() if name != key)
        if self.room is not None and config.pixels + others > self.room():
            raise ProtocolError(f"img_w, img_h = {config.img_w}, {config.img_h}: too many pixels")
        self._configs[key], self._cameras = config, {}

    def _lidar_config(self, message: Message) -> None:
        """Accept the message without effect: this world has no lidar, but clients configure it."""

    def _reset_car(self, message: Message) -> None:
        drive = self._needs_drive()
        self._begin(drive.track, drive.scenery)
        # So a client that waits for the start need not wait for the next frame's time.
        self.wants_telemetry = True

    def _exit_scene(self, message: Message) -> None:
        self.drive, self.race, self._cameras = None, None, {}
        self.synchronous_step = None
        self._replies += self.greet()

    def _quit_app(self, message: Message) -> None:
        if not self.may_quit:
            raise ProtocolError("no client may end this simulator")
        self.quit_asked = True

    def _get_protocol_version(self, message: Message) -> None:
        self._replies.append({"msg_type": "protocol_version", "version": VERSION})

    def _regen_road(self, message: Message) -> None:
        self._needs_drive()
        style, seed = int(number(message, "road_style", 0)), int(number(message, "rand_seed", 0))
        turns = number(message, "turn_increment", 0.0)
        if not 0 <= seed < 2**63 or not 0.0 <= turns <= 10.0:
            raise ProtocolError(f"rand_seed, turn_increment = {seed}, {turns}")
        # 0 stands for the usual value; Unity's is 1 degree per piece of road.
        self._begin(*_road("generated", seed, turns or 1.0, style))
        self.wants_telemetry = True

    def _step_mode(self, message: Message) -> None:
        step = None
        if message.get("step_mode") == "synchronous":
            step = number(message, "time_step")
            if not 0.0 < step <= LONGEST_TIME_STEP_S:
                raise ProtocolError(f"time_step = {step}: 0 to {LONGEST_TIME_STEP_S} s")
        self.synchronous_step = step

    def _set_position(self, message: Message) -> None:
        drive = self._needs_drive()
        x, z = number(message, "pos_x"), number(message, "pos_z")
        if max(abs(x), abs(z)) > FURTHEST_POSITION:
            raise ProtocolError(f"pos_x, pos_z = {x}, {z}: at most {FURTHEST_POSITION:g}")
        car = Car(x, z, _yaw(message) if "Qw" in message else drive.car.yaw)
        place = drive.track.place(x, z)
        if abs(place.cte) > BARRIER:
            raise ProtocolError(f"pos_x, pos_z = {x}, {z}: beyond the barrier")
        drive.put(car, place)
        if self.race is not None:
            self.race.put(drive.rounds)

    def _node_position(self, message: Message) -> None:
        drive, index = self._needs_drive(), int(number(message, "index"))
        if not 0 <= index < drive.track.nodes:
            raise ProtocolError(f"index = {index}: 0 to {drive.track.nodes - 1}")
        x, z, heading = drive.track.node_at(index)
        self._replies.append({
            "msg_type": "node_position", "index": index,
            "pos_x": x, "pos_y": RIDE_HEIGHT, "pos_z": z,
            "Qx": 0.0, "Qy": sin(heading / 2), "Qz": 0.0, "Qw": cos(heading / 2),
        })


_HANDLERS: dict[str, Callable[[Session, Message], None]] = {
    name: getattr(Session, f"_{name}") for name in (
        "get_scene_names", "load_scene", "control", "car_config", "cam_config", "lidar_config",
        "reset_car", "exit_scene", "quit_app", "get_protocol_version", "regen_road", "step_mode",
        "set_position", "node_position",
    )
} | {"cam_config_b": Session._cam_config}


def encoded(picture: Picture, encoding: str) -> bytes:
    """Encode a picture, uint8 RGB or grey, as a JPG, PNG or TGA file."""
    if encoding == "TGA":
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "TGA")
        return file.getvalue()
    blue_first: Any = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR) if picture.ndim == 3 else picture
    jpeg = encoding == "JPG"
    quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if jpeg else [cv2.IMWRITE_PNG_COMPRESSION, 1]
    _, data = cv2.imencode(".jpg" if jpeg else ".png", blue_first, quality)
    return bytes(data)


@functools.lru_cache(maxsize=8)
def _road(kind: TrackKind, seed: int, turns: float, style: int) -> tuple[Track, Scenery]:
    """A road and its scenery, shared by the clients that drive on it."""
    track = circuit() if kind == "circuit" else generated(seed, turns)
    return track, draw(track, seed, style)


def _yaw(message: Message) -> float:
    """The heading of a message's quaternion."""
    x, y, z, w = (number(message, key) for key in ("Qx", "Qy", "Qz", "Qw"))
    if max(abs(x), abs(y), abs(z), abs(w)) > 1.001:
        raise ProtocolError(f"Qx, Qy, Qz, Qw = {x}, {y}, {z}, {w}: of length 1")
    return atan2(2 * (w * y + x * z), 1 - 2 * (x**2 + y**2)) % (2 * pi)
