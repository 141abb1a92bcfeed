"""A simulator in a thread, and what waits for it."""

import threading
from contextlib import contextmanager

import pytest

from rtagent.clock import MonotonicClock
from rtagent.env.donkey import connection
from rtagent.env.donkey.server import Simulator, listen
from tests.conftest import open_descriptors


@contextmanager
def serving(port=0, **options):
    """A simulator that serves in a thread until the block ends."""
    simulator = Simulator(listen("127.0.0.1", port), MonotonicClock(), **{"fps": 60.0, **options})
    stop = threading.Event()
    thread = threading.Thread(target=simulator.run, args=(lambda: not stop.is_set(),), daemon=True)
    simulator.at = simulator.address
    simulator.thread = thread
    thread.start()
    try:
        yield simulator
    finally:
        stop.set()
        thread.join(120)
        assert not thread.is_alive()


@pytest.fixture
def simulator(request):
    """Serving, with the options that are the test's parameter."""
    with serving(**getattr(request, "param", {})) as running:
        yield running


@pytest.fixture
def patient(monkeypatch):
    """A machine that holds everybody up for a moment does not look like a silent simulator."""
    monkeypatch.setattr(connection, "SILENCE_S", 600.0)


@pytest.fixture
def no_descriptor_left():
    """Fails if the test leaves a descriptor open."""
    before = open_descriptors()
    yield
    assert open_descriptors().items() <= before.items()
