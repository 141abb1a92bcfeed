import contextlib
import itertools
import json
import socket
import time

import numpy as np
import pytest

from rtagent.env.donkey import server
from rtagent.env.donkey.race import Rules
from tests.conftest import eventually

from .conftest import asked, driver, loaded, serving
from .public_client import CAMERA, PublicClient

pytestmark = pytest.mark.usefixtures("no_descriptor_left")


def test_the_public_client_drives_it(simulator):
    client = PublicClient(simulator.at)
    client.wait_loaded()
    assert client.heard[:3] == ["scene_selection_ready", "scene_names", "car_loaded"]
    client.send("reset_car")
    while "imageb" not in client.observe()[1]:
        pass
    for _ in range(600):
        picture, telemetry = client.observe()
        assert picture.shape == (120, 160, 3)
        client.control(float(np.clip(-0.3 * telemetry["cte"], -1, 1)), 0.8)
        if "collision_with_starting_line" in client.heard:
            break
    assert telemetry["speed"] > 0.3
    assert abs(telemetry["cte"]) < 2.0
    assert "collision_with_starting_line" in client.heard
    client.send("reset_car")
    eventually(lambda: client.telemetry["speed"] < 0.1, "the car stands at the start")
    client.close()
    assert simulator.figures.malformed == simulator.figures.refused == 0
    eventually(lambda: simulator.clients == 0, "the client has left")


def test_two_clients_race_each_on_its_own():
    with (
        serving(race=Rules(1, 60.0, 8)) as simulator,
        driver(simulator) as one, driver(simulator) as other,
    ):
        for client in (one, other):
            eventually(lambda of=client: "race_start" in of.heard, "its race begins")
        one.send("reset_car")
        eventually(lambda: one.heard.count("race_start") == 2, "it begins anew")
        assert other.heard.count("race_start") == 1
        assert one.heard[:3] == ["scene_selection_ready", "scene_names", "need_car_config"]
        assert "car_loaded" not in one.heard
        assert simulator.figures.malformed == simulator.figures.refused == 0


@pytest.mark.parametrize("simulator", [{"may_quit": True}], indirect=True, ids=["may quit"])
def test_every_message_of_the_client_is_answered_or_obeyed(simulator):
    client = PublicClient(simulator.at, scene="generated_road")
    client.wait_loaded()
    client.send("get_protocol_version")
    eventually(lambda: "protocol_version" in client.heard, "the version")
    client.send("node_position", index=3)
    eventually(lambda: "node_position" in client.heard, "the node")
    client.send("set_position", pos_x=-50.0, pos_y=0.6, pos_z=0.0, Qx=0.0, Qy=0.0, Qz=0.0, Qw=1.0)
    nodes = client.observe()[1]["totalNodes"]
    client.send("regen_road", road_style=1, rand_seed=7, turn_increment=0.0)
    assert client.observe()[1]["totalNodes"] == pytest.approx(nodes, abs=5)
    client.send("step_mode", step_mode="synchronous", time_step=0.05)
    client.send("get_protocol_version")
    eventually(lambda: client.heard.count("protocol_version") == 2, "the stream has stopped")
    before = client.frames
    for number in range(3):
        client.control(0.0, 1.0)
        eventually(lambda count=before + number + 1: client.frames == count, "one frame each")
    client.send("step_mode", step_mode="asynchronous", time_step=0.05)
    client.observe()
    client.send("exit_scene")
    eventually(lambda: client.heard.count("scene_selection_ready") == 2, "the menu")
    eventually(lambda: client.heard.count("car_loaded") == 2, "it loads the scene again")
    assert simulator.figures.refused == 0
    client.send("quit_app")
    eventually(lambda: client.aborted, "the simulator ends")
    client.close()
    simulator.thread.join(30)


def test_several_clients_drive_at_once_each_in_its_own_world(simulator):
    scenes = ("generated_track", "generated_road", "generated_track", "warren")
    clients = [PublicClient(simulator.at, scene) for scene in scenes]
    for client in clients:
        client.wait_loaded()
    eventually(lambda: all(client.frames for client in clients), "everybody sees something")
    for number, client in enumerate(clients):
        client.control(0.0, 0.2 * number)

    def each_at_its_speed():
        speeds = [client.observe()[1]["speed"] for client in clients]
        assert speeds[0] == 0.0
        return all(a < b for a, b in itertools.pairwise(speeds))

    eventually(each_at_its_speed, "who was given more throttle is faster")
    assert simulator.clients == 4
    clients.pop().close()
    frames = [client.frames for client in clients]
    eventually(
        lambda: all(c.frames > f for c, f in zip(clients, frames, strict=True)), "others go on"
    )
    for client in clients:
        client.close()


@pytest.mark.realtime
def test_frames_come_on_an_absolute_schedule():
    """The world's time follows the machine's, however late single frames are seen."""
    told = []

    def keeps_time(client):
        times = [time.monotonic()]
        _, first = client.observe()
        times.append(time.monotonic())
        time.sleep(1.0)
        times.append(time.monotonic())
        _, last = client.observe()
        times.append(time.monotonic())
        least, most = times[2] - times[1], times[3] - times[0]
        told.append((least, last["time"] - first["time"], most))
        return least - 0.4 < last["time"] - first["time"] < most + 0.4

    with serving(fps=20.0) as simulator, driver(simulator) as client:
        # Of a hold-up of more than a quarter of a second the rest is left out.
        assert any(keeps_time(client) for _ in range(2)), told


def test_a_client_that_stops_reading_holds_up_nobody(simulator):
    big = {**CAMERA, "img_w": 640, "img_h": 480, "img_enc": "PNG"}
    with socket.create_connection(simulator.at, timeout=60) as lazy, loaded(lazy) as lines:
        lazy.sendall(asked("cam_config", **big))
        with driver(simulator) as other:
            eventually(lambda: simulator.figures.withheld > 3, "its frames are withheld")
            seen = other.frames
            eventually(lambda: other.frames > seen + 3, "the other goes on")
            # The messages that it reads later are whole.
            for _ in range(5):
                assert json.loads(lines.readline())["msg_type"] == "telemetry"


def test_a_step_that_finds_the_client_busy_is_shown_later():
    big = {**CAMERA, "img_w": 1280, "img_h": 960, "img_enc": "PNG"}
    with serving(most_pixels=1280 * 960) as simulator, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        sock.settimeout(60)
        sock.connect(simulator.at)
        with loaded(sock) as lines:
            sock.sendall(asked("step_mode", step_mode="synchronous", time_step=0.05))
            sock.sendall(asked("cam_config", **big))
            sock.sendall(5 * asked("control", steering=0, throttle=1, brake=0))
            eventually(lambda: simulator.figures.withheld > 0, "a frame is still on its way")
            # No further control comes, and still the last step is shown in the end.
            first = time_shown = json.loads(lines.readline())["time"]
            while round(time_shown - first, 3) < 0.2:
                time_shown = json.loads(lines.readline())["time"]


def test_pixels_are_shared():
    options = {"most_clients": 8, "most_pixels": 640 * 480}
    with serving(**options) as simulator, contextlib.ExitStack() as all_:
        ends = []
        for _ in range(8):
            sock = all_.enter_context(socket.create_connection(simulator.at, timeout=60))
            ends.append((sock, all_.enter_context(sock.makefile("rb"))))

        def refused(kind, width, height):
            before = sum(each.session.refused for each in simulator._clients.values())
            for sock, lines in ends:
                sock.sendall(asked(kind, img_w=width, img_h=height) + asked("get_protocol_version"))
                while json.loads(lines.readline())["msg_type"] != "protocol_version":
                    pass
            return sum(each.session.refused for each in simulator._clients.values()) - before

        # Three cameras use up the shared pixels; a small picture is always possible.
        assert refused("cam_config", 640, 480) == 5
        assert refused("cam_config_b", 8, 8) == 3
        assert refused("cam_config", 320, 240) == 0
        assert refused("cam_config", 1280, 960) == 8
        taken = sum(each.session.pixels for each in simulator._clients.values())
        assert taken <= server.SHARED_BY * 640 * 480 + 8 * server.FREE_PIXELS
