"""The signals that end a command in good order: Ctrl-C, SIGTERM and SIGHUP."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignal:
    """Whether such a signal has been received.

    A `threading.Event` has a lock, which a signal may find taken by the very code it interrupts.
    """

    received = False


def stop_signals() -> list[signal.Signals]:
    """The signals, without those that are ignored, as SIGHUP is under `nohup`."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def catch_stop_signals(*, second_interrupts: bool = False) -> Iterator[StopSignal]:
    """Inside, such a signal is noted and does nothing else.

    Args:
        second_interrupts: Ctrl-C after another signal raises KeyboardInterrupt. For where an
            environment runs in this process: a call of it may never come back.
    """
    stop = StopSignal()

    def note(number: int, frame: FrameType | None) -> None:
        if second_interrupts and stop.received and number == signal.SIGINT:
            signal.default_int_handler(number, frame)
        stop.received = True

    with handled_by(note):
        yield stop


@contextmanager
def interrupted_by_stop_signals() -> Iterator[None]:
    """Inside, each such signal raises KeyboardInterrupt, as Ctrl-C does by itself."""
    with handled_by(signal.default_int_handler):
        yield


@contextmanager
def noted_interrupts() -> Iterator[StopSignal]:
    """Inside, Ctrl-C is noted, too: Python drops what it raises in a hook that follows a fork."""
    stop, before = StopSignal(), signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        stop.received = True
        signal.default_int_handler(number, frame)

    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def handled_by(handler: Callable[..., object]) -> Iterator[None]:
    """Inside, such a signal calls the handler."""
    numbers = stop_signals()
    before = [signal.signal(number, handler) for number in numbers]
    try:
        yield
    finally:
        for number, each in zip(numbers, before, strict=True):
            signal.signal(number, each)
