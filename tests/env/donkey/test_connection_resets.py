import socket
import time

import pytest

from rtagent.env.donkey import connection as module

from .conftest import running, until

pytestmark = pytest.mark.usefixtures("no_descriptor_left", "patient")


def test_a_reset_is_done_when_telemetry_shows_it(connect, fake, monkeypatch):
    monkeypatch.setattr(module, "RESET_AGAIN_S", 60.0)
    fake.frame = {"speed": 2.0, "cte": 7.0}
    connection = running(connect, fake)
    connection.reset()
    assert connection.resetting
    connection.poll(time.monotonic() + 30.0, enough=lambda: bool(connection.waiting))
    frame = connection.take()
    assert (frame.speed, frame.cte) == (0.0, 0.0)
    assert not connection.resetting
    assert connection.count["resets"] == 1
    assert connection.count["resets_again"] == connection.count["resets_unconfirmed"] == 0


def test_a_car_that_stands_beside_the_road_is_not_at_the_start(connect, fake, monkeypatch):
    monkeypatch.setattr(module, "RESET_AGAIN_S", 0.1)
    fake.frame = {"speed": 0.0, "cte": 9.0}
    connection = running(connect, fake)
    fake.ignores_resets = 1
    connection.reset()
    connection.poll(time.monotonic() + 30.0, enough=lambda: connection.waiting)
    assert connection.take().cte == 0.0
    # A machine that takes longer to answer is asked more often.
    assert connection.count["resets_again"] >= 1


@pytest.mark.parametrize(("ignored", "again", "unconfirmed"), [(2, 2, 0), (99, None, 1)])
def test_a_lost_reset_is_asked_for_again_and_one_that_is_never_obeyed_ends(
    connection, fake, monkeypatch, ignored, again, unconfirmed
):
    monkeypatch.setattr(module, "RESET_AGAIN_S", 0.1)
    fake.ignores_resets = ignored
    connection.reset()
    until(connection, lambda: not connection.resetting)
    assert connection.count["resets_unconfirmed"] == unconfirmed
    assert connection.running
    if again is not None:
        # A machine that takes longer to answer is asked more often.
        asked = connection.count["resets_again"]
        assert asked >= again
        until(connection, lambda: fake.heard.count("reset_car") == 1 + asked)


def test_a_reset_of_a_connection_that_has_just_broken_is_no_failure(connection, fake):
    # The connection notices it only with the next message.
    connection._wire._sock.shutdown(socket.SHUT_RDWR)
    connection.reset()
    assert not connection.running
    assert not connection.resetting
    assert connection.count["losses"] == 1
    until(connection, lambda: connection.running)


def test_controls_wait_for_a_reset(connection, fake, monkeypatch):
    monkeypatch.setattr(module, "RESET_AGAIN_S", 60.0)
    fake.ignores_resets = 99
    connection.reset()
    before = len(fake.controls)
    for _ in range(5):
        connection.control(0.0, 1.0, 0.0)
        connection.poll(time.monotonic() + 0.02, enough=lambda: False)
    # Once this is heard, so is what was sent before.
    connection._send({"msg_type": "get_protocol_version"})
    until(connection, lambda: "get_protocol_version" in fake.heard)
    assert all(each["throttle"] == "0.0" for each in fake.controls[before:])
