"""The benchmark of a policy server: the emulated link, and what is counted of an outage."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.acting.delayed_link import DelayedLink
from benchmarks.acting.remote import missed, outage
from rtagent.staggering.arbiter import Source

TICK_S, DELAY_S = 0.02, 0.03


def test_an_outage_is_counted_from_the_ledger() -> None:
    fields = [(name, "i8") for name in ("time_ns", "tick", "observed", "lateness_ns")]
    rows = np.zeros(100, [*fields, ("source", "u1")])
    rows["tick"] = np.arange(100)
    rows["observed"] = np.maximum(0, np.arange(100) - 3)
    rows["time_ns"] = np.arange(100) * round(TICK_S * 1e9)
    acted = np.r_[0:22, 80:100]
    rows["source"][acted] = Source.AGENT
    run: Any = SimpleNamespace(tick_s=TICK_S, since=lambda at: rows[rows["time_ns"] >= at * 1e9])
    found = outage(run, began=0.4, back=1.5)
    assert found["delay_before_ticks"] == 3
    assert found["acted_on_ticks"] == pytest.approx(1.0)
    assert found["acting_again_s"] == pytest.approx(0.1)


def test_every_bar_can_be_missed() -> None:
    fault = {"acted_on_ticks": 1.0, "acting_again_s": 0.4, "delay_before_ticks": 9}
    good: dict[str, Any] = {
        "staggered": {"inaction": 0.0, "delay_mean": 9.5, "delay_p99": 10.0}, "floor_ticks": 9,
        "remote": {"round_trip_ms": 60.0, "queue_ms": 0.0, "compute_ms": 80.0}, "rate_hz": 59.7,
        "faults": [fault] * 4, "restarts": 0,
    }
    assert missed(good) == []
    slow = {"acted_on_ticks": 9.0, "acting_again_s": 1.5, "delay_before_ticks": 10}
    bad = {
        **good, "staggered": {"inaction": 0.02, "delay_mean": 10.5, "delay_p99": 11.0},
        "faults": [fault, slow], "restarts": 1,
    }
    assert missed(bad) == ["inaction", "delay", "restarts", "default behaviour", "acting again"]


def test_the_link_delays_is_cut_and_delivers_what_was_on_its_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there, DelayedLink(
        there.getsockname()[1], DELAY_S
    ) as link, socket.create_connection(("127.0.0.1", link.port)) as here:
        end, _ = there.accept()
        began = time.monotonic()
        here.sendall(b"ping")
        assert end.recv(9) == b"ping"
        end.sendall(b"pong")
        assert here.recv(9) == b"pong"
        assert time.monotonic() - began >= 2 * DELAY_S
        link.cut()
        here.sendall(b"late")
        end.settimeout(0.1)
        with pytest.raises(TimeoutError):
            end.recv(9)
        link.mend()
        end.settimeout(10.0)
        assert end.recv(9) == b"late"
        end.close()
