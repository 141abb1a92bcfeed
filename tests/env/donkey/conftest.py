"""Simulators in threads, and their clients."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest

from rtagent.clock import MonotonicClock
from rtagent.env.donkey import connection
from rtagent.env.donkey.connection import Connection
from rtagent.env.donkey.environment import DonkeyCar
from rtagent.env.donkey.server import Simulator
from tests.conftest import open_descriptors

from .fake_simulator import FakeSimulator
from .public_client import PublicClient

SHAPE = (120, 160, 3)
COAST, STRAIGHT_FAST, BRAKE = 2, 12, 15


@contextmanager
def serving(port=0, **options):
    """A simulator that serves in a thread until the block ends."""
    listener = socket.create_server(("127.0.0.1", port))
    simulator = Simulator(listener, MonotonicClock(), **{"fps": 60.0, **options})
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
    """A simulator that serves, with the options that are the test's parameter."""
    with serving(**getattr(request, "param", {})) as running:
        yield running


@pytest.fixture
def patient(monkeypatch):
    """A hold-up of the test machine does not look like a silent simulator."""
    monkeypatch.setattr(connection, "SILENCE_S", 600.0)


@pytest.fixture
def no_descriptor_left():
    """Fails if the test leaves a descriptor open."""
    before = open_descriptors()
    yield
    assert open_descriptors().items() <= before.items()


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


@contextmanager
def driver(simulator):
    """A public client in a scene."""
    client = PublicClient(simulator.at)
    try:
        client.wait_loaded()
        yield client
    finally:
        client.close()


@pytest.fixture
def fake(request):
    """Greets with a message of the kind that is the test's parameter, or with a car."""
    simulator = FakeSimulator(getattr(request, "param", "car_loaded"))
    yield simulator
    simulator.close()


@pytest.fixture
def connect():
    """Connections that are closed at the end."""
    made = []

    def make(address, clock=None, **options):
        made.append(Connection(
            lambda: [(socket.AF_INET, address)], clock or MonotonicClock(),
            **{"scene": "warren", "shape": SHAPE, **options},
        ))
        return made[-1]

    yield make
    for each in made:
        each.close()


def until(connection, condition):
    """Poll as a client does, in short turns, until a condition holds; the seconds taken."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + 120.0, (connection.state, connection.count)
        connection.poll(connection._clock.now() + 0.02, enough=condition)
        while connection.waiting:
            connection.take()
    return time.monotonic() - began


def running(connect, fake, **options):
    """A connection that receives telemetry."""
    connection = connect(fake.address, **options)
    until(connection, lambda: connection.count["received"] > 2)
    return connection


@pytest.fixture(name="connection")
def connected(connect, fake):
    """A connection that receives telemetry of the fake simulator."""
    return running(connect, fake)


@pytest.fixture
def make():
    """Environments that are closed at the end."""
    made = []

    def build(address, **options):
        host, port = address
        made.append(DonkeyCar(host=host, port=port, **{"rate_hz": 60.0, **options}))
        return made[-1]

    yield build
    for env in made:
        env.close()


@pytest.fixture
def env(make, fake):
    """An environment of the fake simulator, in its first episode."""
    env = make(fake.address)
    env.reset()
    return env


def drive_while(env, condition):
    """Step while a condition on `info` holds; the results of all steps."""
    given, began = [], time.monotonic()
    while True:
        given.append(env.step(COAST))
        if not condition(given[-1][4]):
            return given
        assert time.monotonic() < began + 120.0, given[-1][4]
