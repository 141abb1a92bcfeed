import contextlib
import json
import socket
import time

import numpy as np
import pytest

from rtagent.env.donkey.protocol import LONGEST_FROM_CLIENT
from rtagent.env.donkey.race import Rules
from tests.conftest import eventually

from .conftest import serving
from .public_client import CAMERA, PublicClient

pytestmark = pytest.mark.usefixtures("no_descriptor_left")


def loaded(sock):
    """Load a scene over a raw socket; a file to read its lines from."""
    sock.sendall(b'{"msg_type":"load_scene","scene_name":"generated_track"}')
    lines = sock.makefile("rb")
    while json.loads(lines.readline())["msg_type"] != "car_loaded":
        pass
    return lines


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
    eventually(lambda: client.telemetry["speed"] < 0.1, 20, "the car stands at the start")
    client.close()
    assert simulator.figures.malformed == simulator.figures.refused == 0
    eventually(lambda: simulator.clients == 0, 20, "the client has left")


def test_the_public_client_races():
    with serving(race=Rules(1, 0.5, 8)) as simulator:
        client = PublicClient(simulator.at)
        client.wait_loaded()
        client.send("reset_car")
        eventually(lambda: client.heard.count("race_start") == 2, 20, "the race begins anew")
        client.control(0.0, 0.5)
        eventually(lambda: "race_stop" in client.heard, 20, "the time is up")
        assert client.heard[:3] == ["scene_selection_ready", "scene_names", "need_car_config"]
        assert "car_loaded" not in client.heard
        assert client.heard[-2:] == ["DQ", "race_stop"]
        client.close()
        assert simulator.figures.malformed == simulator.figures.refused == 0


def test_two_clients_race_each_on_its_own():
    with serving(race=Rules(1, 60.0, 8)) as simulator:
        clients = [PublicClient(simulator.at) for _ in range(2)]
        for client in clients:
            client.wait_loaded()
            eventually(lambda of=client: "race_start" in of.heard, 20, "its race begins")
        clients[0].send("reset_car")
        eventually(lambda: clients[0].heard.count("race_start") == 2, 20, "it begins anew")
        assert clients[1].heard.count("race_start") == 1
        for client in clients:
            client.close()


def test_every_message_of_the_client_is_answered_or_obeyed(simulator):
    client = PublicClient(simulator.at, scene="generated_road")
    client.wait_loaded()
    client.send("get_protocol_version")
    eventually(lambda: "protocol_version" in client.heard, 20, "the version")
    client.send("node_position", index=3)
    eventually(lambda: "node_position" in client.heard, 20, "the node")
    client.send("set_position", pos_x=-50.0, pos_y=0.6, pos_z=0.0, Qx=0.0, Qy=0.0, Qz=0.0, Qw=1.0)
    nodes = client.observe()[1]["totalNodes"]
    client.send("regen_road", road_style=1, rand_seed=7, turn_increment=0.0)
    assert client.observe()[1]["totalNodes"] == pytest.approx(nodes, abs=5)
    client.send("step_mode", step_mode="synchronous", time_step=0.05)
    client.send("get_protocol_version")
    eventually(lambda: client.heard.count("protocol_version") == 2, 20, "the stream has stopped")
    before = client.frames
    for number in range(3):
        client.control(0.0, 1.0)
        eventually(lambda count=before + number + 1: client.frames == count, 20, "one frame each")
    client.send("step_mode", step_mode="asynchronous", time_step=0.05)
    client.observe()
    client.send("exit_scene")
    eventually(lambda: client.heard.count("scene_selection_ready") == 2, 20, "the menu")
    eventually(lambda: client.heard.count("car_loaded") == 2, 20, "it loads the scene again")
    assert simulator.figures.refused == 0
    client.send("quit_app")
    eventually(lambda: client.aborted, 20, "the simulator ends")
    client.close()
    simulator.thread.join(5)


def test_several_clients_drive_at_once_each_in_its_own_world(simulator):
    scenes = ("generated_track", "generated_road", "generated_track", "warren")
    clients = [PublicClient(simulator.at, scene) for scene in scenes]
    for client in clients:
        client.wait_loaded()
    eventually(lambda: all(client.frames for client in clients), 20, "everybody sees something")
    for number, client in enumerate(clients):
        client.control(0.0, 0.2 * number)
    time.sleep(0.7)
    speeds = [client.observe()[1]["speed"] for client in clients]
    assert speeds == sorted(speeds)
    assert speeds[0] == 0.0 < speeds[1]
    assert simulator.clients == 4
    clients.pop().close()
    frames = [client.frames for client in clients]
    eventually(
        lambda: all(c.frames > f for c, f in zip(clients, frames, strict=True)), 20, "others go on"
    )
    for client in clients:
        client.close()


@pytest.mark.realtime
def test_frames_come_on_an_absolute_schedule():
    with serving(fps=20.0) as simulator:
        client = PublicClient(simulator.at)
        client.wait_loaded()
        _, first = client.observe()
        began = time.monotonic()
        time.sleep(1.0)
        _, last = client.observe()
        passed = time.monotonic() - began
        # The world's time follows the machine's, however late single frames are.
        assert last["time"] - first["time"] == pytest.approx(passed, abs=0.4)
        client.close()


def test_a_client_that_stops_reading_holds_up_nobody(simulator):
    big = {**CAMERA, "img_w": 640, "img_h": 480, "img_enc": "PNG"}
    with socket.create_connection(simulator.at) as lazy:
        lines = loaded(lazy)
        lazy.sendall(json.dumps({"msg_type": "cam_config", **big}).encode())
        other = PublicClient(simulator.at)
        other.wait_loaded()
        eventually(lambda: simulator.figures.withheld > 3, 20, "its frames are withheld")
        seen = other.frames
        eventually(lambda: other.frames > seen + 3, 20, "the other goes on")
        # What it reads at last is whole.
        for _ in range(5):
            assert json.loads(lines.readline())["msg_type"] == "telemetry"
        other.close()
        lines.close()


def test_a_step_that_finds_the_client_busy_is_shown_later(simulator):
    big = {**CAMERA, "img_w": 1280, "img_h": 960, "img_enc": "PNG"}
    control = {"msg_type": "control", "steering": "0", "throttle": "1", "brake": "0"}
    step_mode = {"msg_type": "step_mode", "step_mode": "synchronous", "time_step": "0.05"}
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        sock.settimeout(30)
        sock.connect(simulator.at)
        lines = loaded(sock)
        for message in (step_mode, {**big, "msg_type": "cam_config"}, *5 * (control,)):
            sock.sendall(json.dumps(message).encode())
        eventually(lambda: simulator.figures.withheld > 0, 20, "a frame is still on its way")
        # Nobody sends another control, and still the last step is shown in the end.
        first = json.loads(lines.readline())["time"]
        time_shown = first
        while round(time_shown - first, 3) < 0.2:
            time_shown = json.loads(lines.readline())["time"]
        lines.close()


def test_what_a_client_sends_is_bounded(simulator):
    with socket.create_connection(simulator.at, timeout=10) as rude:
        rude.sendall(b'{"msg_type":"' + b"x" * (2 * LONGEST_FROM_CLIENT))
        with rude.makefile("rb") as lines, contextlib.suppress(ConnectionResetError):
            # It was greeted, and then sent away.
            assert len(lines.readlines()) == 1
    eventually(lambda: simulator.figures.broken == 1, 20, "it is counted")
    assert simulator.clients == 0


def test_garbage_is_counted_and_the_client_stays(simulator):
    with socket.create_connection(simulator.at, timeout=10) as sock:
        lines = loaded(sock)
        sock.sendall(b'GET / HTTP/1.1\r\n\r\n{"x":1}{"msg_type":"fly"}')
        sock.sendall(b'{"msg_type":"control","steering":"NaN","throttle":"1","brake":"0"}')
        eventually(lambda: simulator.figures.malformed == 2, 20, "two malformed")
        eventually(lambda: simulator.figures.refused == 2, 20, "two refused")
        assert json.loads(lines.readline())["msg_type"] == "telemetry"
        lines.close()


def test_a_client_that_leaves_in_mid_message_is_forgotten(simulator):
    for _ in range(5):
        with socket.create_connection(simulator.at) as sock:
            sock.sendall(b'{"msg_type":"load_sc')
    eventually(lambda: simulator.figures.connections == 5, 20, "all were accepted")
    eventually(lambda: simulator.clients == 0, 20, "nobody is left")


def test_more_clients_than_wanted_are_turned_away():
    with serving(most_clients=1) as simulator:
        first = PublicClient(simulator.at)
        first.wait_loaded()
        with socket.create_connection(simulator.at, timeout=10) as second:
            assert second.recv(100) == b""
        assert simulator.figures.turned_away == 1
        assert simulator.clients == 1
        first.close()
