"""The simulator that an environment starts, and the one at a given host."""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.process_figures import gone
from rtagent.env.donkey import connection as connection_module
from rtagent.env.donkey import environment as module
from rtagent.env.donkey.environment import DonkeyCar
from rtagent.errors import UserError
from tests.conftest import eventually
from tests.ports import free_port

from .conftest import COAST, STRAIGHT_FAST, drive_while, serving

pytestmark = pytest.mark.usefixtures("patient")


def test_a_lost_simulator_truncates_once_and_its_return_once(make, monkeypatch):
    monkeypatch.setattr(connection_module, "LONGEST_PAUSE_S", 0.2)
    port = free_port()
    with serving(port) as simulator:
        env = make(simulator.at)
        env.reset()
        env.step(COAST)
    lost = drive_while(env, lambda info: info["connected"])
    assert [step[3] for step in lost] == [False] * (len(lost) - 1) + [True]
    picture, info = env.reset()
    assert not info["connected"]
    assert np.array_equal(picture, lost[-1][0])
    idle = [env.step(COAST) for _ in range(10)]
    assert all(step[1:4] == (0.0, False, False) for step in idle)
    with serving(port):
        back = drive_while(env, lambda info: not info["connected"])
        assert [step[3] for step in back] == [False] * (len(back) - 1) + [True]
        _, info = env.reset()
        assert info["connected"]
        assert not env.step(STRAIGHT_FAST)[3]
    assert env.figures["losses"] == 1
    assert env.figures["connects"] == 2


@pytest.mark.process
def test_its_own_simulator_is_started_again_and_leaves_nothing(no_descriptor_left):
    with contextlib.closing(DonkeyCar(rate_hz=60.0)) as env:
        drive_while(env, lambda info: not info["connected"])
        for _ in range(2):
            env.reset()
            assert env.step(STRAIGHT_FAST)[4]["connected"]
            pid = env._embedded._process.pid
            os.kill(pid, signal.SIGKILL)
            lost = drive_while(env, lambda info: info["connected"])
            assert lost[-1][3]
            drive_while(env, lambda info: not info["connected"])
            assert env._embedded._process.pid != pid
            assert gone(pid)
        pid = env._embedded._process.pid
    env.close()
    assert gone(pid)


@pytest.mark.process
def test_its_own_simulator_dies_with_it():
    program = (
        "import signal, time; from rtagent.env.donkey.environment import DonkeyCar\n"
        "signal.alarm(300); env = DonkeyCar()\n"
        "while not env.reset()[1]['connected']: pass\n"
        "print(env._embedded._process.pid, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as owner:
        pid = int(owner.stdout.readline())
        assert not gone(pid)
        owner.kill()
        eventually(lambda: gone(pid), "the simulator is gone")


@pytest.mark.parametrize(("host", "problem"), [("127.0.0.1", "refused"), ("a..b", "idna")])
def test_nobody_at_the_given_address_is_one_line(host, problem, monkeypatch, no_descriptor_left):
    # However long a busy machine takes for a thread that looks the name up.
    monkeypatch.setattr(module, "LOOK_UP_S", 60.0)
    monkeypatch.setattr(module, "START_S", 1.0)
    port = free_port()
    with pytest.raises(UserError, match=rf"no DonkeyCar simulator at {host}:{port}: .*{problem}"):
        DonkeyCar(host=host, port=port)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"scene": "moon"}, "scene"), ({"host": ""}, "host"), ({"port": 0}, "port"),
        ({"port": "x"}, "port"), ({"rate_hz": 0}, "rate_hz"),
        ({"rate_hz": float("nan")}, "rate_hz"),
        ({"actions": "keys"}, "actions"), ({"noop": "jump"}, "noop"), ({"max_cte": -1}, "max_cte"),
        ({"max_seconds": -1}, "max_seconds"), ({"camera": {"img_w": 4}}, "img_w"),
        ({"camera": {"zoom": 2}}, "zoom"), ({"camera": {"img_d": 1}}, "img_d"),
        ({"camera": {"img_w": 160.5}}, "img_w, img_h = 160.5, 120"),
        ({"camera": {"img_enc": 5}}, "img_enc = 5"),
        ({"camera": "wide"}, "camera = 'wide'"), ({"car": ["blue"]}, "car"), ({"road": 5}, "road"),
        ({"render_mode": "human"}, "render_mode"), ({"road_seed": -1}, "road_seed"),
        ({"road_seed": "x"}, "road_seed"), ({"road_seed": 2**63}, "road_seed"),
    ],
    ids=str,
)
def test_an_illegal_argument_is_refused_by_name(options, name, no_descriptor_left):
    with pytest.raises(UserError, match=name):
        DonkeyCar(**options)


def test_the_camera_decides_what_is_seen(simulator, make):
    camera = {"img_w": 64, "img_h": 48, "img_enc": "PNG"}
    env = make(simulator.at, camera=camera, render_mode="rgb_array")
    picture, _ = env.reset()
    assert picture.shape == env.observation_space.shape == (48, 64, 3)
    assert np.array_equal(env.render(), picture)
    # Only frames made before the simulator had the camera's configuration were resized.
    resized = [-1, env.figures.get("resized", 0)]
    while resized[-1] != resized[-2]:
        used = env.figures["used"]
        drive_while(env, lambda info: info["figures"]["used"] < used + 5)  # noqa: B023
        resized.append(env.figures.get("resized", 0))
        assert len(resized) < 20


def test_nobody_else_finds_the_embedded_simulator():
    """Another process of this user connects, and is turned away at once; the car drives on."""
    program = (
        "import socket, sys\n"
        "sock = socket.socket(socket.AF_UNIX)\n"
        "sock.settimeout(120)\n"
        "sock.connect(bytes.fromhex(sys.argv[1]))\n"
        "print(sock.recv(100))"
    )
    with contextlib.closing(DonkeyCar(rate_hz=60.0)) as env:
        env.reset()
        drive_while(env, lambda info: not info["connected"])
        family, name = env._embedded.address
        assert family == socket.AF_UNIX
        assert name.startswith(b"\0")
        command = [sys.executable, "-c", program, name.hex()]
        other = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        assert other.stdout == "b''\n"
        losses = env.figures.get("losses", 0)
        for _ in range(5):
            assert env.step(COAST)[4]["connected"]
        assert env.figures.get("losses", 0) == losses
