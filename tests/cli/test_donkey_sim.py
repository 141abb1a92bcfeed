"""`rtagent donkey-sim`."""

from __future__ import annotations

import json
import math
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rtagent.cli import main
from rtagent.env.donkey import connection, environment
from rtagent.env.donkey.environment import DonkeyCar
from rtagent.env.donkey.server import Simulator
from rtagent.env.donkey.session import REPORTED_SCALE
from rtagent.env.donkey.track import circuit


@contextmanager
def simulating(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A simulator in a process of its own, its first line, and its port."""
    command = [sys.executable, "-m", "rtagent", "donkey-sim", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            yield process, line, int(line.split(":")[2].split(",")[0])
        finally:
            process.kill()


@pytest.mark.process
def test_it_prints_its_address_serves_and_ends_on_ctrl_c() -> None:
    options = ("--port", "0", "--track", "generated", "--fps", "30")
    with simulating(*options) as (process, line, port):
        assert line.startswith("rtagent donkey-sim: 127.0.0.1:")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
            greeting = json.loads(sock.makefile("rb").readline())
        assert greeting["msg_type"] == "scene_selection_ready"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""


@pytest.mark.parametrize(("host", "shown", "warned"), [
    ("127.0.0.1", "127.0.0.1", False), ("0.0.0.0", "0.0.0.0", True),
    ("::1", "[::1]", False), ("::", "[::]", True),
])
def test_an_address_that_others_reach_is_warned_of(
    host: str, shown: str, warned: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Simulator, "run", lambda of, go_on=None: of.close())
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["donkey-sim", "--port", "0", "--host", host]) == 0
    told = capsys.readouterr()
    assert told.out.startswith(f"rtagent donkey-sim: {shown}:")
    assert ("warning" in told.err) == warned


@pytest.mark.parametrize("options", [(), ("--allow-quit",)])
def test_a_client_ends_it_only_where_it_may(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulator, "run", lambda of, go_on=None: made.append(of))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    made: list[Simulator] = []
    assert main(["donkey-sim", "--port", "0", *options]) == 0
    assert made[0]._new_session().may_quit == bool(options)
    made[0].close()


@pytest.mark.process
def test_our_own_client_drives_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each step waits for its frame, however long a busy machine takes for it.
    monkeypatch.setattr(connection, "SILENCE_S", 600.0)
    monkeypatch.setattr(environment, "PERIODS_WAITED", 60.0 * 120.0)
    with simulating("--port", "0", "--race", "1") as (process, line, port):
        assert line.endswith("60 frames per second, a race of 1 lap within 120 s\n")
        env = DonkeyCar(host="127.0.0.1", port=port, actions="continuous", max_seconds=0)
        assert _race_of_one_lap(env) == ["race_start", "race_stop"]
        env.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130


def _race_of_one_lap(env: DonkeyCar) -> list[str]:
    """What is said of a race driven along the centre line, a tenth of a second per step."""
    track = circuit()
    env._connection._send({"msg_type": "step_mode", "step_mode": "synchronous", "time_step": 0.1})
    _, info = env.reset()
    terminated = truncated = False
    while not (terminated or truncated):
        assert info["connected"]
        assert info["time"] < 120.0
        x, _, z = (each / REPORTED_SCALE for each in info["pos"])
        ahead = track.point_at(track.place(x, z).progress + 6.0)[2]
        turn = (ahead - math.radians(info["car"][2]) + math.pi) % (2 * math.pi) - math.pi
        steering = min(max(2.0 * turn - 0.2 * info["cte"], -1.0), 1.0)
        _, _, terminated, truncated, info = env.step([steering, 0.35])
    assert (terminated, truncated) == (False, True)
    assert info["lap_count"] == 1
    return list(info["race"])


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["donkey-sim", "--port", str(taken.getsockname()[1])]) == 2
    assert "--port" in capsys.readouterr().err
