"""The embedded DonkeyCar simulator: time for a picture, and frames per second to one client.

    rtagent bench donkey_simulator [--seconds S] [--fps F] [--json]

The simulator runs in a process of its own, at 160x120 with JPEG; the client reads the raw stream
and drives along the road. A frame's time is the time between two arrivals. The machine's floor,
how late a bare sleep ends, is printed, too.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from benchmarks.command import at_least, command_line, report
from rtagent.cli.jitter import measure_jitter
from rtagent.clock import MonotonicClock
from rtagent.env.donkey.camera import Camera, CameraConfig
from rtagent.env.donkey.embedded import EmbeddedSimulator
from rtagent.env.donkey.protocol import LineDecoder, from_client
from rtagent.env.donkey.scenery import draw
from rtagent.env.donkey.session import encoded
from rtagent.env.donkey.track import circuit

PICTURES = 2000
MOST_RENDER_MS = 2.0
MOST_P99_MS = 25.0
LEAST_RATE = 0.998
"""Of the frames per second asked for."""
WARM_UP_S = 2.0


def spread_ms(call: Callable[[int], object]) -> dict[str, float]:
    """Milliseconds that a call takes."""
    clock, spans = MonotonicClock(), []
    for number in range(PICTURES):
        begin = clock.now()
        call(number)
        spans.append((clock.now() - begin) * 1e3)
    median, p99 = np.percentile(spans, (50, 99))
    return {"median": float(median), "p99": float(p99)}


def picture_cost() -> dict[str, Any]:
    """Milliseconds to draw a picture, to encode it, and to find a place on the road."""
    track = circuit()
    camera = Camera(CameraConfig(), draw(track))
    places = [track.point_at(number * track.length / PICTURES) for number in range(PICTURES)]
    picture = camera.render(*places[0])
    return {
        "render_ms": spread_ms(lambda number: camera.render(*places[number])),
        "jpeg_ms": spread_ms(lambda _: encoded(picture, "JPG")),
        "place_ms": spread_ms(lambda number: track.place(*places[number][:2])),
    }


def stream(fps: float, seconds: float) -> dict[str, Any]:
    """Figures of the frames that a simulator in a process of its own sends to one client."""
    clock = MonotonicClock()
    simulator = EmbeddedSimulator(fps, seed=0)
    arrivals: list[float] = []
    made: list[float] = []
    decoder, sizes = LineDecoder(), []
    try:
        simulator.ensure_running()
        family, name = simulator.address
        with socket.socket(family) as sock:
            sock.connect(name)
            sock.sendall(from_client({"msg_type": "load_scene", "scene_name": "generated_track"}))
            end = None
            while end is None or clock.now() < end:
                if not (data := sock.recv(1 << 16)):
                    raise ConnectionError("the simulator has ended")
                for message in decoder.feed(data):
                    if message is None or message["msg_type"] != "telemetry":
                        continue
                    now = clock.now()
                    end = end or now + WARM_UP_S + seconds
                    arrivals.append(now)
                    made.append(message["time"])
                    sizes.append(len(message["image"]))
                    steering = float(np.clip(-0.2 * message["cte"], -1.0, 1.0))
                    sock.sendall(from_client({
                        "msg_type": "control", "steering": steering, "throttle": 0.3, "brake": 0.0
                    }))
    finally:
        simulator.close()
    kept = np.array(arrivals) >= arrivals[0] + WARM_UP_S
    times = np.array(arrivals)[kept]
    gaps = np.diff(times) * 1e3
    return {
        "fps": (len(times) - 1) / float(times[-1] - times[0]),
        "frame_ms": {
            "median": float(np.median(gaps)), "p99": float(np.percentile(gaps, 99)),
            "max": float(gaps.max()),
        },
        "left_out": round((made[-1] - made[0]) * fps) + 1 - len(made),
        "picture_bytes": round(float(np.mean(sizes)) * 3 / 4),
    }


def main() -> int:
    """Print the figures; exit code 1 if one is out of its limits."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=at_least(0.5), default=20.0)
    parser.add_argument("--fps", type=float, default=60.0)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    floor = measure_jitter(3.0)
    result: dict[str, Any] = {
        "machine_floor_us": floor, **picture_cost(), **stream(options.fps, options.seconds)
    }
    result["passed"] = (
        result["render_ms"]["median"] <= MOST_RENDER_MS
        and result["fps"] >= LEAST_RATE * options.fps
        and result["frame_ms"]["p99"] <= MOST_P99_MS
    )
    return report(result, options.json)


if __name__ == "__main__":
    sys.exit(main())
