"""A simulator that does what a test tells it to do, even what no simulator should do."""

import base64
import contextlib
import io
import json
import socket
import threading
import time

import numpy as np
from PIL import Image


def picture(shape=(120, 160, 3), encoding="JPEG"):
    """A grey picture, as telemetry carries it."""
    file = io.BytesIO()
    Image.fromarray(np.full(shape, 90, np.uint8)).save(file, encoding)
    return base64.b64encode(file.getvalue()).decode()


PICTURE = picture()


def telemetry(frame):
    return {"msg_type": "telemetry", "image": PICTURE, **frame}


class FakeSimulator:
    """Accepts one client after the other.

    Attributes:
        heard: messages, by kind, of all clients.
        controls: the `control` messages.
        connections: how many clients have come.
        frame: fields of the telemetry to send, changed by tests. If None, it is silent.
        ignores_resets: how many `reset_car` it lets pass before it obeys one.
    """

    def __init__(self, greeting):
        self.heard, self.controls, self.connections = [], [], 0
        self.frame = {"speed": 1.0, "cte": 0.0}
        self.ignores_resets = 0
        self._greeting = {"msg_type": greeting}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._peer = None
        self._go_on = True
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._accept, self._stream)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, *messages):
        """Messages, or raw bytes, to the client; nothing happens if it has gone."""
        for message in messages:
            with self._lock:
                self._deliver(message)

    def show(self, **frame):
        """Send a picture with these fields of telemetry."""
        self.send(telemetry(frame))

    def _deliver(self, message):
        """Send a message; the caller holds the lock."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
        with contextlib.suppress(OSError):
            if self._peer is not None:
                self._peer.sendall(data)

    def silence(self):
        """Send no telemetry any more; none is on its way to the socket afterwards."""
        with self._lock:
            self.frame = None

    def drop(self):
        """Close the connection, even while a thread waits to send."""
        peer = self._peer
        with contextlib.suppress(OSError):
            if peer is not None:
                peer.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._go_on = False
        self.drop()
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _accept(self):
        while self._go_on:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            # A message goes out at once, before the client has acknowledged the one before.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            with self._lock:
                self._peer = peer
            self.send(self._greeting)
            with contextlib.suppress(OSError):
                self._read(peer)
            with self._lock:
                self._peer = None
            peer.close()

    def _read(self, peer):
        decoder, kept = json.JSONDecoder(), ""
        while data := peer.recv(1 << 16):
            kept += data.decode()
            while kept:
                try:
                    message, end = decoder.raw_decode(kept)
                except ValueError:
                    break
                kept = kept[end:]
                self._take(message)

    def _take(self, message):
        kind = message["msg_type"]
        self.heard.append(kind)
        if kind == "control":
            self.controls.append(message)
        elif kind == "get_scene_names":
            self.send({"msg_type": "scene_names", "scene_names": ["warehouse", "warren"]})
        elif kind == "load_scene":
            self.send({"msg_type": "car_loaded"})
        elif kind == "reset_car" and self.frame is not None:
            if self.ignores_resets:
                self.ignores_resets -= 1
            else:
                self.frame = {**self.frame, "speed": 0.0, "cte": 0.0, "hit": "none"}

    def _stream(self):
        while self._go_on:
            time.sleep(0.01)
            with self._lock:
                if self.frame is not None:
                    self._deliver(telemetry(self.frame))
