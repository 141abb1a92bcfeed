"""A stand-in for the maintained public client, which sends and expects the same messages.

It is written from the protocol: a thread that reads and sends, nothing between the objects it
sends, numbers as strings, messages split at newlines and pieced together from fragments, the order
of the handshake, waits for what it needs, and `exit_scene` at the end.
"""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
import time

import numpy as np
from PIL import Image

ANSWER_S = 60.0
CAMERA = {
    "img_w": 160, "img_h": 120, "img_d": 3, "img_enc": "JPG", "fov": 0, "fish_eye_x": 0.0,
    "fish_eye_y": 0.0, "offset_x": 0.0, "offset_y": 0.0, "offset_z": 0.0, "rot_x": 0.0,
    "rot_y": 0.0, "rot_z": 0.0,
}


class PublicClient:
    """Connects, loads a scene, drives.

    Attributes:
        heard: every message but telemetry, by kind, in order.
        telemetry: the newest.
        frames: how many have come.
        aborted: the simulator has closed the connection.
    """

    def __init__(self, address, scene="generated_track"):
        self.heard, self.telemetry, self.frames, self.aborted = [], None, 0, False
        self.loaded = threading.Event()
        self._scene = scene
        self._go_on = True
        self._sock = socket.create_connection(address, timeout=ANSWER_S)
        self._sock.settimeout(0.05)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, kind, **fields):
        """One object, numbers as strings, no delimiter."""
        strings = {key: value if isinstance(value, str) else str(value)
                   for key, value in fields.items()}
        self._sock.sendall(json.dumps({"msg_type": kind, **strings}).encode("utf-8"))

    def wait_loaded(self):
        assert self.loaded.wait(ANSWER_S), self.heard

    def observe(self):
        """The next frame's picture and telemetry; it waits for a new one."""
        before, end = self.frames, time.monotonic() + ANSWER_S
        while self.frames == before:
            assert time.monotonic() < end, "no telemetry"
            assert not self.aborted
            time.sleep(0.001)
        message = self.telemetry
        picture = Image.open(io.BytesIO(base64.b64decode(message["image"])))
        return np.asarray(picture), message

    def control(self, steering, throttle, brake=0.0):
        self.send("control", steering=steering, throttle=throttle, brake=brake)

    def close(self):
        """Leave the scene, then stop the thread, as the client does."""
        if not self.aborted:
            self.send("exit_scene")
        self._go_on = False
        self._thread.join(ANSWER_S)
        self._sock.close()

    def _listen(self):
        partial = ""
        while self._go_on:
            try:
                data = self._sock.recv(1024 * 256).decode("utf-8")
            except TimeoutError:
                continue
            except OSError:
                data = ""
            if not data:
                self.aborted = True
                return
            *whole, partial = (partial + data).split("\n")
            for text in whole:
                self._take(json.loads(text))

    def _take(self, message):
        kind = message["msg_type"]
        if kind == "telemetry":
            self.telemetry = message
            self.frames += 1
            return
        self.heard.append(kind)
        if kind == "scene_selection_ready":
            self.send("get_scene_names")
        elif kind == "scene_names":
            assert self._scene in message["scene_names"]
            self.send("load_scene", scene_name=self._scene)
        elif kind in ("car_loaded", "need_car_config"):
            if kind == "car_loaded":
                self.control(0.0, 0.0, 1.0)
            self.send("car_config", body_style="donkey", body_r=128, body_g=128, body_b=128,
                      car_name="me", font_size=100)
            self.send("cam_config", **CAMERA)
            self.send("cam_config_b", **{**CAMERA, "img_w": 32, "img_h": 24})
            self.send("lidar_config", deg_per_sweep_inc=2, deg_ang_down=0, deg_ang_delta=-1,
                      num_sweeps_levels=1, max_range=50.0, noise=0.4, offset_x=0.0, offset_y=0.5,
                      offset_z=0.5, rot_x=0.0)
            self.loaded.set()
