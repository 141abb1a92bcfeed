"""The pipe between a child and the supervisor: messages arrive whole, and no end waits."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from rtagent.processes.pipe import MOST_AT_ONCE, MOST_BYTES, Pipe, open_pipe
from tests.forked import Forked

PATIENCE_S = 60.0


@pytest.fixture
def line() -> Iterator[tuple[Pipe, Pipe]]:
    ours, theirs = open_pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_arrive_whole_and_in_order(line: tuple[Pipe, Pipe]) -> None:
    ours, theirs = line
    assert ours.receive() == []
    said = [["ready", {}], {"id": 1, "by": "ü"}, "x" * (MOST_BYTES - 2), None]
    for message in said[:2]:
        assert theirs.send(message)
    assert ours.poll(0.0)
    assert ours.receive() == said[:2]
    for message in said[2:]:
        assert theirs.send(message)
    assert [ours.recv(), ours.recv()] == said[2:]
    assert ours.send({"id": 1, "result": {}})
    assert theirs.recv() == {"id": 1, "result": {}}


def test_a_message_that_is_too_long_is_refused_before_it_is_sent(line: tuple[Pipe, Pipe]) -> None:
    ours, theirs = line
    with pytest.raises(ValueError, match="at most"):
        theirs.send("x" * MOST_BYTES)
    assert ours.receive() == []


@pytest.mark.parametrize(
    "packet", [b"\x80\x04\x95junk", b"[1, 2", b"\xff\xfe", b"[" * 60_000, b"9" * 10_000]
)
def test_what_cannot_be_decoded_is_none(line: tuple[Pipe, Pipe], packet: bytes) -> None:
    ours, theirs = line
    theirs._end.send(packet)
    theirs.send("after")
    assert ours.receive() == [None, "after"]


def test_a_call_receives_a_bounded_number_of_messages(line: tuple[Pipe, Pipe]) -> None:
    ours, theirs = line
    for number in range(MOST_AT_ONCE + 10):
        assert theirs.send(number)
    assert ours.receive() == list(range(MOST_AT_ONCE))
    assert ours.receive() == list(range(MOST_AT_ONCE, MOST_AT_ONCE + 10))


def test_sending_does_not_wait_for_an_end_that_does_not_read(line: tuple[Pipe, Pipe]) -> None:
    _, theirs = line
    began = time.monotonic()
    sent = 0
    while theirs.send("x" * 1000):
        sent += 1
        assert sent < 100_000
    assert sent > 50
    assert time.monotonic() - began < PATIENCE_S
    assert not theirs.send("last", wait_s=0.05)


def test_sending_may_wait_until_the_other_end_reads(line: tuple[Pipe, Pipe]) -> None:
    ours, theirs = line
    while theirs.send("x" * 1000):
        pass
    listener = threading.Timer(0.1, lambda: ours.receive(100_000))
    listener.start()
    assert theirs.send("last words", wait_s=PATIENCE_S)
    listener.join()


def test_the_end_comes_after_the_last_message(line: tuple[Pipe, Pipe]) -> None:
    ours, theirs = line
    theirs.send("last")
    # This is never read, which must not cost the message before it.
    ours.send("unread")
    theirs.close()
    assert theirs.closed
    assert ours.receive() == ["last"]
    with pytest.raises(EOFError):
        ours.receive()
    with pytest.raises(BrokenPipeError):
        ours.send("too late")


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_ended_while_it_sends_leaves_no_half_message(
    forked: Forked, number: int
) -> None:
    ours, theirs = open_pipe()

    def speak() -> None:
        while True:
            theirs.send(["event", {"news": "x" * 40_000}], wait_s=PATIENCE_S)

    pid = forked.start(speak)
    theirs.close()
    heard = []
    for _ in range(20):
        assert ours.poll(PATIENCE_S)
        heard += ours.receive()
    os.kill(pid, number)
    deadline = time.monotonic() + 1.0
    began = time.monotonic()
    while time.monotonic() < deadline and ours.poll(0.1):
        try:
            heard += ours.receive()
        except EOFError:
            break
    assert time.monotonic() - began < PATIENCE_S / 2
    assert {len(message[1]["news"]) for message in heard} == {40_000}
    ours.close()
