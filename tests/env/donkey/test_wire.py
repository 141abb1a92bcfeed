import fcntl
import json
import socket
import time

import pytest

from rtagent.env.donkey import wire as module
from rtagent.env.donkey.wire import Wire
from rtagent.processes.launch import raise_descriptor_limit
from tests.ports import free_port

pytestmark = pytest.mark.usefixtures("no_descriptor_left")


@pytest.fixture
def ends():
    """A connected wire, and the socket at its other end."""
    wire = Wire()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire.connect((socket.AF_INET, listener.getsockname()))
        other, _ = listener.accept()
    assert wire.wait(30.0, writing=True)[1]
    wire.check()
    with other:
        yield wire, other
    wire.close()


def received(wire, count):
    """Receive a number of messages."""
    end, messages = time.monotonic() + 30.0, []
    while len(messages) < count and time.monotonic() < end:
        wire.wait(0.1, writing=False)
        messages += filter(None, wire.receive())
    return messages


def test_messages_go_both_ways(ends):
    wire, other = ends
    wire.send({"msg_type": "control", "steering": 0.5})
    assert json.loads(other.recv(1000)) == {"msg_type": "control", "steering": "0.5"}
    assert not wire.busy
    other.sendall(b'{"msg_type":"a"}\nbroken\n{"msg_type":"b"}\n{"msg_')
    assert [each["msg_type"] for each in received(wire, 2)] == ["a", "b"]
    assert wire.decoder.malformed == 1
    other.sendall(b'type":"c"}\n')
    assert received(wire, 1) == [{"msg_type": "c"}]
    assert list(wire.receive()) == []


def test_a_descriptor_may_have_any_number(ends):
    """`select` takes none from 1024 on, which a process with many files open has."""
    raise_descriptor_limit()
    wire, other = ends
    with wire._sock:
        wire._sock = socket.socket(fileno=fcntl.fcntl(wire._sock, fcntl.F_DUPFD_CLOEXEC, 1024))
    assert wire.wait(30.0, writing=True) == (False, True)
    other.sendall(b'{"msg_type":"a"}\n')
    assert received(wire, 1) == [{"msg_type": "a"}]


def test_one_look_takes_a_bounded_number_of_bytes(ends, monkeypatch):
    monkeypatch.setattr(module, "RECEIVE", 17)
    monkeypatch.setattr(module, "MOST_RECEIVED", 2 * 17)
    wire, other = ends
    other.sendall(b'{"msg_type":"a"}\n' * 5)
    time_is_up = time.monotonic() + 30.0
    looks = []
    while sum(looks) < 5 and time.monotonic() < time_is_up:
        wire.wait(0.1, writing=False)
        looks.append(len(list(wire.receive())))
    assert sum(looks) == 5
    assert max(looks) == 2


def test_what_is_not_taken_waits_up_to_a_limit(ends):
    wire, _ = ends
    message = {"msg_type": "x", "text": "x" * 10_000}
    while not wire.busy:
        wire.send(message)
    for _ in range(module.LARGEST_OUTBOX // 10_000 - 1):
        wire.send(message)
    with pytest.raises(OSError, match="takes no messages"):
        wire.send({**message, "text": "x" * module.LARGEST_OUTBOX})


def test_the_other_side_closes(ends):
    wire, other = ends
    other.close()
    assert wire.wait(30.0, writing=False)[0]
    with pytest.raises(OSError, match="closed the connection"):
        list(wire.receive())
    assert wire.is_open


def test_a_closed_wire_has_forgotten_everything(ends):
    wire, other = ends
    other.sendall(b'broken\n{"msg_')
    end = time.monotonic() + 30.0
    while not wire.decoder.malformed and time.monotonic() < end:
        list(wire.receive())
    wire.close()
    wire.close()
    assert (wire.is_open, wire.busy, wire.decoder.malformed) == (False, False, 0)


def test_nobody_listens():
    wire = Wire()
    wire.connect((socket.AF_INET, ("127.0.0.1", free_port())))
    assert wire.wait(30.0, writing=True)[1]
    with pytest.raises(OSError, match="refused"):
        wire.check()
    wire.close()
