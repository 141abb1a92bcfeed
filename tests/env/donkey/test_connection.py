import itertools
import random
import threading
import time
from unittest.mock import Mock

import pytest

from rtagent.clock import VirtualClock
from rtagent.env.donkey import connection as module
from rtagent.env.donkey.connection import SILENCE_S, State
from tests.conftest import eventually
from tests.ports import free_port

from .conftest import running, until
from .fake_simulator import PICTURE, picture

pytestmark = pytest.mark.usefixtures("no_descriptor_left", "patient")


def greeted(kind):
    return pytest.mark.parametrize("fake", [kind], indirect=True)


class TickingClock(VirtualClock):
    """A clock that advances by half a millisecond with each call of `now`, and only then."""

    def __init__(self, start, step_s=5e-4):
        super().__init__(start)
        self._step_s = step_s

    def now(self):
        self.sleep_until(super().now() + self._step_s)
        return super().now()


@greeted("scene_selection_ready")
def test_it_answers_the_handshake_in_order(connect, fake):
    setup = [{"msg_type": "car_config", "body_r": 1}, {"msg_type": "cam_config", "img_w": 160}]
    connection = running(connect, fake, setup=setup)
    until(connection, lambda: len(fake.heard) >= 5)
    assert fake.heard[:2] == ["get_scene_names", "load_scene"]
    assert fake.heard[2:5] == ["control", "car_config", "cam_config"]
    assert fake.controls[0]["brake"] == "1.0"
    connection.control(0.25, 0.5, 0.0)
    until(connection, lambda: len(fake.controls) == 2)
    assert fake.controls[1] == {
        "msg_type": "control", "steering": "0.25", "throttle": "0.5", "brake": "0.0"
    }
    connection.close()
    assert connection.state is State.DOWN
    eventually(lambda: "exit_scene" in fake.heard, "it leaves the scene")


@greeted("need_car_config")
def test_a_race_lobby_asks_for_the_car(connect, fake):
    connection = running(connect, fake, setup=[{"msg_type": "car_config"}])
    until(connection, lambda: "car_config" in fake.heard)


def test_a_race_that_begins_leaves_the_last_one_behind(connection, fake):
    fake.send({"msg_type": "DQ"}, {"msg_type": "race_stop"}, {"msg_type": "race_start"})
    until(connection, lambda: "race_start" in connection.race)
    assert list(connection.race) == ["race_start"]


@greeted("need_car_config")
def test_in_a_lobby_pings_are_life_until_there_is_telemetry(connect, fake, monkeypatch):
    fake.frame = None
    connection = connect(fake.address)
    until(connection, lambda: connection.running)
    clock = connection._clock = TickingClock(connection._clock.now(), 0.005)
    monkeypatch.setattr(module, "SILENCE_S", 0.3)
    began = clock.now()

    def waited():
        fake.send({"msg_type": "ping"})
        return clock.now() > began + 4 * module.SILENCE_S

    until(connection, waited)
    assert connection.running, connection.last_problem
    assert connection.count["losses"] == 0
    fake.frame = {"speed": 1.0}
    until(connection, lambda: connection.count["used"] > 0)
    fake.frame = None

    def lost():
        fake.send({"msg_type": "ping"})
        return not connection.running

    until(connection, lost)


def test_race_messages_and_laps_are_noted_and_pings_are_not(connection, fake):
    fake.send(
        {"msg_type": "ping"}, {"msg_type": "race_start"}, {"msg_type": "race_stop"},
        {"msg_type": "collision_with_starting_line", "starting_line_index": 0, "timeStamp": 1.0},
        {"msg_type": "cross_start", "lap_time": 30.5}, {"msg_type": "cross_start", "lap_time": []},
        {"msg_type": "protocol_version", "version": "2"}, {"msg_type": "unheard of"},
        {"msg_type": "missed_checkpoint"}, {"msg_type": "DQ"},
    )
    until(connection, lambda: "DQ" in connection.race)
    assert list(connection.race) == ["race_start", "race_stop", "missed_checkpoint", "DQ"]
    assert list(connection.lap_times) == [30.5]
    assert connection.running


@pytest.fixture
def quiet(connect, fake):
    """A connection to a simulator that sends only what the test sends."""
    fake.silence()
    connection = connect(fake.address)
    until(connection, lambda: connection.running)
    return connection


def test_every_frame_is_delivered_once_and_in_order(quiet, fake, monkeypatch):
    # On a busy machine one picture may take longer to decode than a look may last.
    monkeypatch.setattr(module, "LOOK_S", 60.0)
    taken, end = [], time.monotonic() + 30

    def take(enough):
        quiet.poll(time.monotonic() + 0.05, enough=enough)
        while quiet.waiting:
            taken.append(quiet.take().speed)

    for number in range(40):
        fake.show(speed=number)
        if number % 3 == 0:
            take(lambda: False)
    while len(taken) < 40 and time.monotonic() < end:
        take(lambda: quiet.waiting)
    assert taken == list(range(40))
    assert quiet.count["used"] == quiet.count["received"] == 40


def newest(quiet, fake, frames):
    """What is taken after all these frames have come and none was taken."""
    for frame in frames:
        fake.show(**frame)
    end = time.monotonic() + 30
    while quiet.count["received"] < len(frames) and time.monotonic() < end:
        quiet.poll(time.monotonic() + 0.05, enough=lambda: False)
    quiet.skip()
    return quiet.take()


def test_who_does_not_keep_up_gets_the_newest_and_the_rest_is_counted(quiet, fake):
    assert newest(quiet, fake, [{"speed": number} for number in range(30)]).speed == 29
    assert quiet.count["skipped"] == 29


@pytest.mark.parametrize("struck", [3, 27])
def test_a_collision_in_a_frame_that_is_left_out_is_told_by_the_next(quiet, fake, struck):
    """In one that is not even decoded, and in one that waited."""
    hits = ["cone" if number == struck else "none" for number in range(30)]
    frame = newest(quiet, fake, [{"speed": n, "hit": hit} for n, hit in enumerate(hits)])
    assert (frame.speed, frame.hit, frame.info["hit"]) == (29, "cone", "cone")
    fake.show(speed=30)
    quiet.poll(time.monotonic() + 30.0, enough=lambda: quiet.waiting)
    assert quiet.take().hit == "none"


@pytest.mark.realtime
def test_a_silent_simulator_is_noticed_within_two_seconds(connection, fake, monkeypatch):
    monkeypatch.setattr(module, "SILENCE_S", SILENCE_S)
    fake.silence()
    took = until(connection, lambda: not connection.running)
    assert module.SILENCE_S < 2.0
    assert 1.0 < took < 10.0  # The machine may be busy.
    assert "no telemetry" in connection.last_problem
    fake.frame = {"speed": 1.0}
    until(connection, lambda: connection.running)
    assert fake.connections == 2
    assert connection.count["losses"] == 1


@pytest.mark.parametrize(
    "babble",
    [
        b'{"msg_type":"telemetry","image":"' + b"A" * 5000,
        b"garbage\n" * 50,
        b'{"msg_type":"ping"}\n',
        b'{"msg_type":"telemetry","speed":NaN,"image":""}\n',
        b'{"msg_type":"telemetry","speed":1.0,"image":"AAAA"}\n',
    ],
    ids=["mid-message", "garbage", "pings", "NaN", "no picture"],
)
def test_one_that_only_babbles_counts_as_silent(connection, fake, monkeypatch, babble):
    monkeypatch.setattr(module, "SILENCE_S", 0.4)
    fake.frame = None

    fake.send(babble)

    def lost():
        if b"\n" in babble:
            fake.send(babble)
        return not connection.running

    until(connection, lost)
    fake.frame = {"speed": 1.0}
    until(connection, lambda: connection.running)


def test_malformed_telemetry_is_counted_and_left_out(connection, fake):
    before = connection.count["malformed"]
    fake.send(
        b"{broken\n", {"msg_type": "telemetry", "speed": "nan", "image": PICTURE},
        {"msg_type": "telemetry", "speed": 1.0, "image": PICTURE[:50]},
    )
    until(connection, lambda: connection.count["malformed"] == before + 3)
    used = connection.count["used"]
    until(connection, lambda: connection.count["used"] > used + 2)
    assert connection.running


def test_the_first_message_that_cannot_be_read_is_shown(connection, fake):
    # As some programs write numbers in some countries.
    line = b'{"msg_type":"telemetry","cte":0,125,"speed":0,5}\n'
    fake.send(line, line)
    until(connection, lambda: connection.count["malformed"] == 2)
    assert [each for each in connection.news if "cannot be read" in each] == [
        f"a message that cannot be read: {line!r}"
    ]


def test_pictures_of_another_size_are_brought_to_the_one_wanted(connection, fake):
    fake.frame = {"speed": 1.0, "image": picture((60, 80, 3))}
    until(connection, lambda: connection.count["resized"] > 2)
    assert connection.running


def test_a_message_that_never_ends_costs_the_connection(connection, fake):
    fake.frame = None

    def flood():
        fake.send(b"x" * (1 << 20))
        return not connection.running

    until(connection, flood)
    assert connection.count["malformed"] >= 1
    assert "more than" in connection.last_problem


@pytest.mark.parametrize(
    "message",
    [b'{"msg_type":"x"}\n', b"\n", b"{}\n", b'{"msg_type":"ping"}\n',
     b'{"msg_type":"telemetry","speed":"fast"}\n'],
    ids=["unknown", "empty", "no message", "ping", "telemetry"],
)
def test_a_flood_of_messages_takes_no_more_time_than_it_is_given(
    connection, fake, message, monkeypatch
):
    """Time passes with each call of the clock, so it does not matter how busy the machine is."""
    fake.silence()
    clock = connection._clock = TickingClock(connection._clock.now())
    sender = threading.Thread(target=fake.send, args=(100_000 * message,), daemon=True)
    sender.start()
    exchange = Mock(side_effect=connection._exchange)
    monkeypatch.setattr(connection, "_exchange", exchange)
    for _ in range(20):
        began = clock.now()
        connection.poll(began + 0.005, enough=lambda: False)
        assert clock.now() - began < 0.005 + 3 * module.LOOK_S
    assert exchange.call_count >= 20
    fake.drop()
    sender.join(10)


def test_what_a_look_leaves_is_there_for_the_next_without_another_byte(
    connection, fake, monkeypatch
):
    monkeypatch.setattr(module, "MOST_IN_ONE_LOOK", 3)
    fake.silence()
    count, before = connection.count, connection.count["malformed"]
    fake.send(10 * b"{}\n")
    connection.poll(time.monotonic() + 30.0, enough=lambda: count["malformed"] == before + 10)
    assert count["malformed"] == before + 10


@pytest.mark.parametrize(
    "babble",
    [
        {"msg_type": "cross_start", "lap_time": 10**400},
        {"msg_type": "cross_start", "lap_time": [1]},
        {"msg_type": "scene_names", "scene_names": 5},
        b'{"msg_type":"telemetry","speed":' + b"[" * 900 + b"]" * 900 + b"}\n",
        b'{"msg_type":"telemetry","hit":' + b"[" * 900 + b"]" * 900 + b',"speed":1}\n',
        {"msg_type": "telemetry", "speed": 1.7e308, "image": PICTURE},
    ],
    ids=["huge", "list", "names", "deep speed", "deep hit", "infinite"],
)
def test_a_message_that_no_code_expects_is_left_out(connection, fake, babble):
    fake.send(babble)
    used = connection.count["used"]
    until(connection, lambda: connection.count["used"] > used + 3)
    assert connection.count["losses"] == 0
    assert not connection.lap_times


def test_a_mistake_in_handling_a_message_is_counted(connection, fake, monkeypatch):
    monkeypatch.setattr(connection, "_handle", lambda message: {}["nothing"])
    monkeypatch.setattr(module, "read", lambda message, shape: {}["nothing"])
    before = connection.count["malformed"]
    fake.send({"msg_type": "ping"})
    until(connection, lambda: connection.count["malformed"] > before + 2)
    assert connection.running


def test_a_closed_connection_is_noticed_at_once_and_made_anew(connection, fake):
    for number in range(3):
        fake.drop()
        until(connection, lambda: not connection.running)
        until(connection, lambda: connection.running)
        assert connection.count["losses"] == number + 1
    assert fake.connections == 4


def test_pauses_grow_and_are_spread(connect):
    clock = VirtualClock()
    connection = connect(("127.0.0.1", free_port()), clock, chance=random.Random(1))
    tries = []
    while len(tries) < 12:
        connection.poll(clock.now() + 0.01, enough=lambda: False)
        if connection._retry_at not in tries:
            tries.append(connection._retry_at)
    pauses = [b - a for a, b in itertools.pairwise(tries)]
    assert pauses[0] < 0.5
    assert max(pauses) < 1.6 * module.LONGEST_PAUSE_S
    assert min(pauses[-4:]) > 0.4 * module.LONGEST_PAUSE_S
    assert len(set(pauses[-4:])) == 4
    assert connection.state is State.DOWN


@greeted("scene_selection_ready")
def test_an_unknown_scene_is_refused_by_name(connect, fake):
    connection = connect(fake.address, scene="thunderhill")
    until(connection, lambda: bool(connection.last_problem))
    assert "thunderhill" in connection.last_problem


def test_nobody_listening_says_nothing_about_the_simulator(connection, fake, monkeypatch):
    """A world that was not stepped for a while has not lost its simulator."""
    clock = connection._clock = TickingClock(connection._clock.now())
    monkeypatch.setattr(module, "SILENCE_S", 0.3)
    used, losses = (connection.count[name] for name in ("used", "losses"))
    clock.advance(0.8)
    until(connection, lambda: connection.count["used"] > used)
    assert connection.count["losses"] == losses
