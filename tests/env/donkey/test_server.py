import contextlib
import errno
import itertools
import json
import os
import socket
import time
from collections import Counter

import numpy as np
import pytest

from rtagent.clock import MonotonicClock, VirtualClock
from rtagent.env.donkey import server, session
from rtagent.env.donkey.camera import Camera
from rtagent.env.donkey.protocol import LONGEST_FROM_CLIENT
from rtagent.env.donkey.race import Rules
from rtagent.env.donkey.server import HALF_LIFE_S, HEAVY_FOR_S, Client, Simulator, listen
from rtagent.env.donkey.session import Session
from tests.conftest import eventually

from .conftest import serving
from .public_client import CAMERA, PublicClient

pytestmark = pytest.mark.usefixtures("no_descriptor_left")


def asked(kind, **fields):
    """A message as clients send it."""
    texts = {key: str(each) for key, each in fields.items()}
    return json.dumps({"msg_type": kind, **texts}).encode()


def loaded(sock):
    """Load a scene over a raw socket; a file to read its lines from."""
    sock.sendall(asked("load_scene", scene_name="generated_track"))
    lines = sock.makefile("rb")
    while json.loads(lines.readline())["msg_type"] != "car_loaded":
        pass
    return lines


@contextlib.contextmanager
def driver(simulator, scene="generated_track"):
    """A public client in a scene."""
    client = PublicClient(simulator.at, scene)
    try:
        client.wait_loaded()
        yield client
    finally:
        client.close()


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
    eventually(lambda: client.telemetry["speed"] < 0.1, 30, "the car stands at the start")
    client.close()
    assert simulator.figures.malformed == simulator.figures.refused == 0
    eventually(lambda: simulator.clients == 0, 30, "the client has left")


def test_the_public_client_races():
    with serving(race=Rules(1, 0.5, 8)) as simulator, driver(simulator) as client:
        client.send("reset_car")
        eventually(lambda: client.heard.count("race_start") == 2, 30, "the race begins anew")
        client.control(0.0, 0.5)
        eventually(lambda: "race_stop" in client.heard, 30, "the time is up")
        assert client.heard[:3] == ["scene_selection_ready", "scene_names", "need_car_config"]
        assert "car_loaded" not in client.heard
        assert client.heard[-2:] == ["DQ", "race_stop"]
        assert simulator.figures.malformed == simulator.figures.refused == 0


def test_two_clients_race_each_on_its_own():
    with (
        serving(race=Rules(1, 60.0, 8)) as simulator,
        driver(simulator) as one, driver(simulator) as other,
    ):
        for client in (one, other):
            eventually(lambda of=client: "race_start" in of.heard, 30, "its race begins")
        one.send("reset_car")
        eventually(lambda: one.heard.count("race_start") == 2, 30, "it begins anew")
        assert other.heard.count("race_start") == 1


@pytest.mark.parametrize("simulator", [{"may_quit": True}], indirect=True, ids=["may quit"])
def test_every_message_of_the_client_is_answered_or_obeyed(simulator):
    client = PublicClient(simulator.at, scene="generated_road")
    client.wait_loaded()
    client.send("get_protocol_version")
    eventually(lambda: "protocol_version" in client.heard, 30, "the version")
    client.send("node_position", index=3)
    eventually(lambda: "node_position" in client.heard, 30, "the node")
    client.send("set_position", pos_x=-50.0, pos_y=0.6, pos_z=0.0, Qx=0.0, Qy=0.0, Qz=0.0, Qw=1.0)
    nodes = client.observe()[1]["totalNodes"]
    client.send("regen_road", road_style=1, rand_seed=7, turn_increment=0.0)
    assert client.observe()[1]["totalNodes"] == pytest.approx(nodes, abs=5)
    client.send("step_mode", step_mode="synchronous", time_step=0.05)
    client.send("get_protocol_version")
    eventually(lambda: client.heard.count("protocol_version") == 2, 30, "the stream has stopped")
    before = client.frames
    for number in range(3):
        client.control(0.0, 1.0)
        eventually(lambda count=before + number + 1: client.frames == count, 30, "one frame each")
    client.send("step_mode", step_mode="asynchronous", time_step=0.05)
    client.observe()
    client.send("exit_scene")
    eventually(lambda: client.heard.count("scene_selection_ready") == 2, 30, "the menu")
    eventually(lambda: client.heard.count("car_loaded") == 2, 30, "it loads the scene again")
    assert simulator.figures.refused == 0
    client.send("quit_app")
    eventually(lambda: client.aborted, 30, "the simulator ends")
    client.close()
    simulator.thread.join(30)


def test_several_clients_drive_at_once_each_in_its_own_world(simulator):
    scenes = ("generated_track", "generated_road", "generated_track", "warren")
    clients = [PublicClient(simulator.at, scene) for scene in scenes]
    for client in clients:
        client.wait_loaded()
    eventually(lambda: all(client.frames for client in clients), 30, "everybody sees something")
    for number, client in enumerate(clients):
        client.control(0.0, 0.2 * number)

    def each_at_its_speed():
        speeds = [client.observe()[1]["speed"] for client in clients]
        assert speeds[0] == 0.0
        return all(a < b for a, b in itertools.pairwise(speeds))

    eventually(each_at_its_speed, 30, "who was given more throttle is faster")
    assert simulator.clients == 4
    clients.pop().close()
    frames = [client.frames for client in clients]
    eventually(
        lambda: all(c.frames > f for c, f in zip(clients, frames, strict=True)), 30, "others go on"
    )
    for client in clients:
        client.close()


@pytest.mark.realtime
def test_frames_come_on_an_absolute_schedule():
    with serving(fps=20.0) as simulator, driver(simulator) as client:
        times = [time.monotonic()]
        _, first = client.observe()
        times.append(time.monotonic())
        time.sleep(1.0)
        times.append(time.monotonic())
        _, last = client.observe()
        times.append(time.monotonic())
        # The world's time follows the machine's, however late single frames are seen.
        least, most = times[2] - times[1], times[3] - times[0]
        assert least - 0.4 < last["time"] - first["time"] < most + 0.4


def test_a_client_that_stops_reading_holds_up_nobody(simulator):
    big = {**CAMERA, "img_w": 640, "img_h": 480, "img_enc": "PNG"}
    with socket.create_connection(simulator.at) as lazy, loaded(lazy) as lines:
        lazy.sendall(asked("cam_config", **big))
        with driver(simulator) as other:
            eventually(lambda: simulator.figures.withheld > 3, 30, "its frames are withheld")
            seen = other.frames
            eventually(lambda: other.frames > seen + 3, 30, "the other goes on")
            # What it reads at last is whole.
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
            eventually(lambda: simulator.figures.withheld > 0, 30, "a frame is still on its way")
            # Nobody sends another control, and still the last step is shown in the end.
            first = time_shown = json.loads(lines.readline())["time"]
            while round(time_shown - first, 3) < 0.2:
                time_shown = json.loads(lines.readline())["time"]


def test_what_a_client_sends_is_bounded(simulator):
    with socket.create_connection(simulator.at, timeout=60) as rude:
        rude.sendall(b'{"msg_type":"' + b"x" * (2 * LONGEST_FROM_CLIENT))
        with rude.makefile("rb") as lines, contextlib.suppress(ConnectionResetError):
            # It was greeted, and then sent away.
            assert len(lines.readlines()) == 1
    eventually(lambda: simulator.figures.broken == 1, 30, "it is counted")
    assert simulator.clients == 0


def test_garbage_is_counted_and_the_client_stays(simulator):
    with socket.create_connection(simulator.at, timeout=60) as sock, loaded(sock) as lines:
        sock.sendall(b'GET / HTTP/1.1\r\n\r\n{"x":1}{"msg_type":"fly"}')
        sock.sendall(asked("control", steering="NaN", throttle=1, brake=0))
        eventually(lambda: simulator.figures.malformed == 2, 30, "two malformed")
        eventually(lambda: simulator.figures.refused == 2, 30, "two refused")
        assert json.loads(lines.readline())["msg_type"] == "telemetry"


def test_a_client_that_leaves_in_mid_message_is_forgotten(simulator):
    for _ in range(5):
        with socket.create_connection(simulator.at) as sock:
            sock.sendall(b'{"msg_type":"load_sc')
    eventually(lambda: simulator.figures.connections == 5, 30, "all were accepted")
    eventually(lambda: simulator.clients == 0, 30, "nobody is left")


def test_more_clients_than_wanted_are_turned_away():
    with serving(most_clients=1) as simulator, driver(simulator):
        with socket.create_connection(simulator.at, timeout=60) as second:
            assert second.recv(100) == b""
        assert simulator.figures.turned_away == 1
        assert simulator.clients == 1


HOSTILE = {
    "long picture": asked("cam_config", img_w=8, img_h=153_600),
    "wide picture": asked("cam_config", img_w=40_000, img_h=8),
    "no field of view": asked("cam_config", fov=1e-200),
    "turned": asked("cam_config", rot_x=1e300),
    "quaternion": asked("set_position", pos_x=0, pos_z=0, Qx=1e200, Qy=0, Qz=0, Qw=0),
    "far away": asked("set_position", pos_x=1e308, pos_z=1e308),
    "style": asked("regen_road", road_style=1e308, rand_seed=1, turn_increment=0),
    "deep": b'{"msg_type":"car_config","car_name":' + b"[" * 900 + b"]" * 900 + b"}",
    "deep scene": b'{"msg_type":"load_scene","scene_name":' + b"[" * 900 + b"]" * 900 + b"}",
    "deep encoding": b'{"msg_type":"cam_config","img_enc":' + b"[" * 900 + b"]" * 900 + b"}",
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("message", HOSTILE.values(), ids=HOSTILE)
def test_no_message_ends_or_fails_it(simulator, message):
    with socket.create_connection(simulator.at, timeout=60) as sock, loaded(sock) as lines:
        sock.sendall(message + asked("get_protocol_version"))
        while json.loads(lines.readline())["msg_type"] != "protocol_version":
            pass
        assert json.loads(lines.readline())["msg_type"] == "telemetry"
    assert simulator.figures.failed == 0


def test_what_fails_while_a_client_is_served_costs_nobody_else(simulator, monkeypatch, caplog):
    monkeypatch.setitem(session._HANDLERS, "lidar_config", lambda of, message: {}["nothing"])
    other = PublicClient(simulator.at)
    with socket.create_connection(simulator.at, timeout=60) as sock, loaded(sock) as lines:
        eventually(lambda: simulator.figures.failed == 1, 30, "the public client asks for a lidar")
        monkeypatch.setattr(session.Session, "telemetry", lambda of: {}["nothing"])
        with contextlib.suppress(ConnectionResetError):
            lines.readlines()
        eventually(lambda: simulator.figures.failed == 2, 30, "its picture fails")
    assert simulator.thread.is_alive()
    assert "KeyError" in caplog.text
    eventually(lambda: other.aborted, 30, "it is sent away")
    other.close()


def test_a_flood_of_cameras_costs_one_camera_a_frame(simulator, monkeypatch):
    made = []
    monkeypatch.setattr(session, "Camera", lambda *args: made.append(args) or Camera(*args))
    with socket.create_connection(simulator.at, timeout=60) as sock, loaded(sock) as lines:
        before = len(made)
        configs = [asked("cam_config", img_w=320, img_h=240 + each % 2) for each in range(600)]
        sock.sendall(b"".join(configs) + asked("get_protocol_version"))
        frames = 0
        while (kind := json.loads(lines.readline())["msg_type"]) != "protocol_version":
            frames += kind == "telemetry"
        assert len(made) - before <= frames + 2
    assert simulator.figures.refused == 0


@pytest.fixture
def at_work():
    """A simulator in virtual time with so many clients, and its clock."""
    with contextlib.ExitStack() as ends:

        def made(count):
            clock = VirtualClock()
            served = Simulator(listen("127.0.0.1", 0), clock, worked=clock.now)
            sock = ends.enter_context(socket.socket())
            clients = [Client(sock, Session(), 0.0) for _ in range(count)]
            served._clients = dict(enumerate(clients))
            ends.callback(served.close)
            ends.callback(served._clients.clear)
            return served, clients, clock

        yield made


def test_who_takes_much_waits_for_itself(at_work):
    """One client draws a road with every message; the other goes on meanwhile."""
    served, clients, clock = at_work(4)
    order = []

    def act(each):
        order.append(each.spent)
        clock.advance(0.3 if each.spent else 0.001)

    for client, spent in zip(clients, (2.0, 1.0, 0.0, 3.0), strict=True):
        client.spent = spent
    left = served._serve(clients, act, 0.25)
    assert order == [0.0, 1.0]
    assert [each.spent for each in left] == [3.0, 2.0]
    assert [each.spent for each in clients] == pytest.approx([2.0, 1.3, 0.001, 3.0])
    # What a client took is forgotten, by half in a second.
    clock.advance(served._faded_at + HALF_LIFE_S - clock.now())
    served._look_after(clock.now())
    assert [each.spent for each in clients] == pytest.approx([1.0, 0.65, 0.0005, 1.5])


def test_the_heavy_ones_share_half_of_the_time(at_work):
    """Each slice of theirs takes 0.2 s; another client is served in every rest, 60 times a second.
    """
    served, clients, clock = at_work(4)
    order = []

    def act(each):
        order.append((each.name, clock.now()))
        clock.advance(0.001 if each.name == "light" else 0.2)

    for each, name in zip(clients, ("light", "a", "b", "c"), strict=True):
        each.name, each.heavy_until = name, name != "light" and HEAVY_FOR_S
    while clock.now() < 20.0:
        served._serve(clients, act, 0.02)
        clock.advance(0.015)
    names = Counter(name for name, _ in order)
    heavy = [names[name] for name in "abc"]
    assert max(heavy) - min(heavy) <= 1
    assert 0.4 < sum(heavy) * 0.2 / 20.0 < 0.55
    times = [at for name, at in order if name == "light"]
    assert max(b - a for a, b in itertools.pairwise(times)) < 0.25
    assert len(times) > 500


def test_one_client_alone_never_rests(at_work):
    served, clients, clock = at_work(1)
    for _ in range(10):
        assert served._serve(clients, lambda each: clock.advance(0.2), 0.02) == []
    assert clock.now() == pytest.approx(2.0)


def test_one_client_says_much_and_the_others_are_heard(monkeypatch):
    monkeypatch.setattr(server, "SLICE_S", 0.0)
    served = Simulator(listen("127.0.0.1", 0), MonotonicClock())
    with socket.create_connection(served.address) as loud, socket.socket() as quiet:
        loud.sendall(500 * asked("control", steering=0, throttle=0, brake=1))
        quiet.connect(served.address)
        quiet.sendall(asked("get_protocol_version"))
        quiet.setblocking(False)
        heard, turns = b"", 0
        while b"protocol_version" not in heard:
            served.turn()
            turns += 1
            assert turns < 400
            with contextlib.suppress(BlockingIOError):
                heard += quiet.recv(1000)
        first = next(iter(served._clients.values()))
        assert first.decoder.pending
        served.close()


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

        # Three fill what is shared; a small picture is always there.
        assert refused("cam_config", 640, 480) == 5
        assert refused("cam_config_b", 8, 8) == 3
        assert refused("cam_config", 320, 240) == 0
        assert refused("cam_config", 1280, 960) == 8
        taken = sum(each.session.pixels for each in simulator._clients.values())
        assert taken <= server.SHARED_BY * 640 * 480 + 8 * server.FREE_PIXELS


def test_who_says_nothing_at_first_is_sent_away(monkeypatch):
    with serving() as simulator, driver(simulator):
        # Whoever drives has said its first word.
        monkeypatch.setattr(server, "FIRST_WORD_S", 0.3)
        with socket.create_connection(simulator.at, timeout=60) as sock:
            sock.sendall(b'{"msg_type')
            assert sock.makefile("rb").read().count(b"\n") == 1
        assert simulator.figures.silent == 1
        assert simulator.clients == 1


def test_who_has_long_been_silent_makes_room_and_is_sent_away_at_last(monkeypatch):
    monkeypatch.setattr(server, "GIVES_WAY_S", 0.2)
    with serving(most_clients=1) as simulator:
        first = PublicClient(simulator.at)
        first.wait_loaded()
        time.sleep(0.4)
        second = PublicClient(simulator.at)
        second.wait_loaded()
        eventually(lambda: first.aborted, 30, "the first one has made room")
        monkeypatch.setattr(server, "SILENCE_S", 0.2)
        eventually(lambda: second.aborted, 30, "the second one is silent, too")
        assert simulator.figures.silent == 2
        first.close()
        second.close()


def test_on_a_unix_socket_one_process_alone_may_connect():
    for pid, greeting in ((os.getpid(), b"scene_selection_ready"), (os.getppid(), b"")):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("")
        listener.listen()
        simulator = Simulator(listener, MonotonicClock(), only_for=pid)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(listener.getsockname())
            sock.settimeout(60)
            for _ in range(3):
                simulator.turn()
            assert greeting in sock.recv(1000)
        simulator.close()


def test_no_descriptor_left_for_a_client_is_no_end(monkeypatch):
    class Full(socket.socket):
        def accept(self):
            raise OSError(errno.EMFILE, "Too many open files")

    listener = Full()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    clock = VirtualClock()
    simulator = Simulator(listener, clock)
    with socket.create_connection(listener.getsockname()):
        simulator.turn()
    # It would be offered again at once: there is a pause.
    assert clock.now() > 0.0
    assert simulator.clients == 0
    simulator.close()
