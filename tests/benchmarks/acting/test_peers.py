"""The peers act, are counted like ours, and are named where they are missing."""

from __future__ import annotations

import math
import queue
import threading
import time
from multiprocessing import Pipe
from multiprocessing.connection import Client

import numpy as np
import pytest

from benchmarks.acting import peers
from benchmarks.acting.peer_world import STACK, TICK_S, Executed, figures, overheads
from benchmarks.acting.peers import ActionQueue
from benchmarks.replay import replay
from rtagent.errors import UserError


def test_figures_of_a_few_ticks() -> None:
    executed = [Executed(10, 4), Executed(11, None), Executed(12, 6), Executed(13, 6)]
    found = figures(executed, [0.001, 0.002, 0.003])
    assert found["inaction_percent"] == 25.0
    assert found["actions_per_s"] == pytest.approx(45.0)
    assert found["frames_per_s"] == pytest.approx(30.0)
    assert found["age_ticks"] == pytest.approx((6 + 6 + 7) / 3)
    assert found["overhead_ms_p50"] == pytest.approx(2.0)
    assert math.isnan(figures([Executed(1, None)], [0.0])["age_ticks"])


def test_answers_that_nobody_executed_have_no_overhead() -> None:
    """Those of the peers were counted, of which ours has none in its ledger."""
    executed = [Executed(76, 70), Executed(77, None), Executed(78, 72), Executed(79, 72)]
    times = {tick: tick * TICK_S for tick in range(100)}
    registered = [(70, 76 * TICK_S), (71, 99 * TICK_S), (72, 79 * TICK_S)]
    assert overheads(registered, times, executed) == pytest.approx([TICK_S, 2 * TICK_S])


def test_of_two_actions_for_a_tick_that_of_the_newer_frame_is_taken() -> None:
    queue = ActionQueue()
    queue.add(3, [0] * 4)
    assert [queue.take(4), queue.take(5), len(queue)] == [3, 3, 2]
    queue.add(5, [0] * 3)
    queue.add(2, [0] * 9)
    assert [queue.take(tick) for tick in range(6, 13)] == [5, 5, 5, 2, 2, 2, None]


OBSERVATION = np.full(STACK, 5, np.uint8)


def test_a_policy_server_answers_with_a_chunk() -> None:
    near, far = Pipe()
    server = threading.Thread(target=peers._policy_server, args=(far,), daemon=True)
    server.start()
    with Client(near.recv()) as client:
        client.send((7, OBSERVATION))
        assert client.recv() == (7, [2] * peers.CHUNK)
    server.join(10)
    assert not server.is_alive()


def test_an_actor_answers_the_newest_frame_of_the_dictionary() -> None:
    shared = {"newest": 6, "frame": (6, OBSERVATION), "action": (-1, 0), "stop": True}
    results: queue.Queue[list[tuple[int, float]]] = queue.Queue()
    # Its next frame is not there yet, and it is told to stop.
    peers._manager_actor(shared, 1, time.monotonic(), results)
    assert shared["action"] == (6, 2)
    assert [number for number, _ in results.get()] == [6]


def test_a_missing_peer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(module: str, package: str) -> None:
        raise UserError(f"{package} is not installed: pip install {package}")

    monkeypatch.setattr(replay, "peer", absent)
    monkeypatch.setattr(peers, "peer", absent)
    assert list(peers.available()) == ["ours", "manager", "policy server"]
    assert "torchrl is not installed" in capsys.readouterr().err
    assert replay.missing() == {"TorchRL": "torchrl is not installed: pip install torchrl"}
    rates = {name: {size: [2.0] for size in replay.SIZES} for name in replay.CONTENDERS}
    assert "uniform / TorchRL, B=32" in replay.compare(rates)
    del rates["TorchRL"]
    assert "uniform / TorchRL, B=32" not in replay.compare(rates)
