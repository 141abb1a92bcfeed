"""The simulator goes on with clients that send too much, too little, or nonsense."""

import contextlib
import errno
import itertools
import json
import os
import socket
from collections import Counter

import pytest

from rtagent.clock import MonotonicClock, VirtualClock
from rtagent.env.donkey import server, session
from rtagent.env.donkey.camera import Camera
from rtagent.env.donkey.protocol import LONGEST_FROM_CLIENT
from rtagent.env.donkey.server import HALF_LIFE_S, HEAVY_FOR_S, Client, Simulator
from rtagent.env.donkey.session import Session
from tests.conftest import eventually

from .conftest import asked, driver, loaded, serving
from .public_client import PublicClient

pytestmark = pytest.mark.usefixtures("no_descriptor_left")


def test_what_a_client_sends_is_bounded(simulator):
    with (
        socket.create_connection(simulator.at, timeout=60) as rude,
        rude.makefile("rb") as lines, contextlib.suppress(ConnectionError),
    ):
        # It may be disconnected before all of it is sent.
        rude.sendall(b'{"msg_type":"' + b"x" * (2 * LONGEST_FROM_CLIENT))
        # It was greeted, and then disconnected.
        assert len(lines.readlines()) == 1
    eventually(lambda: simulator.figures.broken == 1, "it is counted")
    eventually(lambda: simulator.clients == 0, "it is forgotten")


def test_garbage_is_counted_and_the_client_stays(simulator):
    with socket.create_connection(simulator.at, timeout=60) as sock, loaded(sock) as lines:
        sock.sendall(b'GET / HTTP/1.1\r\n\r\n{"x":1}{"msg_type":"fly"}')
        sock.sendall(asked("control", steering="NaN", throttle=1, brake=0))
        eventually(lambda: simulator.figures.malformed == 2, "two malformed")
        eventually(lambda: simulator.figures.refused == 2, "two refused")
        assert json.loads(lines.readline())["msg_type"] == "telemetry"


def test_a_client_that_leaves_in_mid_message_is_forgotten(simulator):
    for _ in range(5):
        with socket.create_connection(simulator.at) as sock:
            sock.sendall(b'{"msg_type":"load_sc')
    eventually(lambda: simulator.figures.connections == 5, "all were accepted")
    eventually(lambda: simulator.clients == 0, "nobody is left")


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
        eventually(lambda: simulator.figures.failed == 1, "the public client asks for a lidar")
        monkeypatch.setattr(session.Session, "telemetry", lambda of: {}["nothing"])
        with contextlib.suppress(ConnectionResetError):
            lines.readlines()
        eventually(lambda: simulator.figures.failed == 2, "its picture fails")
    assert simulator.thread.is_alive()
    assert "KeyError" in caplog.text
    eventually(lambda: other.aborted, "it is disconnected")
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
    """Makes a simulator in virtual time and a number of clients; gives both and the clock."""
    with contextlib.ExitStack() as ends:

        def made(count):
            clock = VirtualClock()
            served = Simulator(socket.create_server(("127.0.0.1", 0)), clock, worked=clock.now)
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
    # What a client took counts half as much after a second.
    clock.advance(served._faded_at + HALF_LIFE_S - clock.now())
    served._review_clients(clock.now())
    assert [each.spent for each in clients] == pytest.approx([1.0, 0.65, 0.0005, 1.5])


def test_the_heavy_ones_share_half_of_the_time(at_work):
    """Each of their slices takes 0.2 s; another client is served in every rest, 60 times a second.
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
    served = Simulator(socket.create_server(("127.0.0.1", 0)), MonotonicClock())
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


def test_who_says_nothing_at_first_is_sent_away(monkeypatch):
    with serving() as simulator, driver(simulator):
        # The driving client has sent its first message.
        monkeypatch.setattr(server, "FIRST_WORD_S", 0.3)
        with socket.create_connection(simulator.at, timeout=60) as sock:
            sock.sendall(b'{"msg_type')
            assert sock.makefile("rb").read().count(b"\n") == 1
        assert simulator.figures.silent == 1
        assert simulator.clients == 1


def test_who_has_long_been_silent_makes_room_and_is_sent_away_at_last():
    clock = VirtualClock()
    simulator = Simulator(socket.create_server(("127.0.0.1", 0)), clock, most_clients=1)
    with contextlib.ExitStack() as ends:
        for number, silence_s in ((1, server.GIVES_WAY_S), (2, server.SILENCE_S)):
            sock = socket.create_connection(simulator.address, timeout=30.0)
            ends.enter_context(sock).sendall(asked("get_protocol_version"))
            while simulator.figures.connections < number or not all(
                each.spoke for each in simulator._clients.values()
            ):
                simulator.turn()
            # As many as have left to make room for this one.
            assert simulator.figures.silent == number - 1
            clock.advance(silence_s + 1.0)
        simulator.turn()
        assert (simulator.clients, simulator.figures.silent) == (0, 2)
        simulator.close()


def test_who_has_never_said_anything_makes_room_at_once():
    listener = socket.create_server(("127.0.0.1", 0))
    simulator = Simulator(listener, VirtualClock(), most_clients=2)
    with contextlib.ExitStack() as clients:
        speaking, silent = (
            clients.enter_context(socket.create_connection(simulator.address)) for _ in range(2)
        )
        speaking.sendall(asked("get_protocol_version"))
        eventually(lambda: simulator.turn() or simulator.figures.connections == 2, "both are in")
        eventually(
            lambda: simulator.turn() or any(each.spoke for each in simulator._clients.values()),
            "one has said something",
        )
        clients.enter_context(socket.create_connection(simulator.address))
        eventually(
            lambda: simulator.turn() or simulator.figures.connections == 3
            or simulator.figures.turned_away, "the third is in, or turned away",
        )
        assert simulator.figures.turned_away == 0
        silent.settimeout(30.0)
        while silent.recv(1000):
            pass
        assert simulator.clients == 2
        simulator.close()


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


def test_no_descriptor_left_for_a_client_is_no_end():
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
    # There is a pause, for the connection would be offered again at once.
    assert clock.now() > 0.0
    assert simulator.clients == 0
    simulator.close()


def test_who_makes_room_as_it_says_something_is_no_end():
    clock = VirtualClock()
    listener = socket.create_server(("127.0.0.1", 0))
    simulator = Simulator(listener, clock, most_clients=1)
    with socket.create_connection(simulator.address) as quiet:
        simulator.turn()
        clock.sleep_until(clock.now() + server.GIVES_WAY_S + 1.0)
        # One `select` finds both: the client that needs the place, and the one that has it.
        with socket.create_connection(simulator.address):
            quiet.close()
            simulator.turn()
            assert simulator.clients == 1
            assert simulator.figures.silent == 1
            simulator.close()
