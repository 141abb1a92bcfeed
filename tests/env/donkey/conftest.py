"""A simulator in a thread, and what waits for it."""

import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from rtagent.clock import MonotonicClock
from rtagent.env.donkey.server import Simulator, listen


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
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def simulator(request):
    """Serving, with the options that are the test's parameter."""
    with serving(**getattr(request, "param", {})) as running:
        yield running


@pytest.fixture
def no_descriptor_left():
    """Fails if the test leaves a descriptor open."""
    before = open_descriptors()
    yield
    after = open_descriptors()
    assert not {kind for fd, kind in after.items() if before.get(fd) != kind}


def open_descriptors():
    """What each descriptor of this process is."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            found[link.name] = str(link.readlink())
        except OSError:  # The one that lists them.
            continue
    return found
