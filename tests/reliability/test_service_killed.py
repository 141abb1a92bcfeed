"""The HTTP service is killed again and again; acting and learning do not notice."""

from __future__ import annotations

import random
import time
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.daemon import RunningDaemon
from benchmarks.recount.raw_ledger import DEFAULT, Ledger, Rows
from rtagent.clock import NANO
from tests.conftest import eventually
from tests.reliability.conftest import PATIENT_CLOCK, Machine, hit, slips, updates

pytestmark = [pytest.mark.process, pytest.mark.realtime]

CAPACITY = 20_000
RATE_HZ = 120.0
KILLS, MOST_KILLS = 3, 5
LIMIT_S = 3.0
HELD_UP_S = 6.0
"""A machine that is busy with other things may be so much later, now and then."""
SETTINGS = (
    "env.id=CartPole-v1", f"env.rate_hz={RATE_HZ}", PATIENT_CLOCK, f"replay.capacity={CAPACITY}",
    "learning.learning_starts=100", "learning.publish_every=1", "run.tensorboard=false",
)


def service_of(daemon: RunningDaemon) -> dict[str, Any]:
    """The service's own entry in the status; {} while it does not answer."""
    try:
        return next(r for r in daemon.status()["roles"] if r["role"] == "service")
    except httpx.TransportError:
        return {}


def newer_weights(rows: Rows, died_ns: int, back_ns: int) -> int:
    """By how many versions the weights that acted between two moments have become newer."""
    meanwhile = (rows["time_ns"] >= died_ns) & (rows["time_ns"] < back_ns)
    versions = rows["weights_version"][meanwhile & (rows["source"] != DEFAULT)]
    return int(versions.max() - versions.min()) if len(versions) else 0


def test_killed_at_random(machine: Machine) -> None:
    chance = random.Random(5)
    with RunningDaemon(*SETTINGS) as daemon:
        ledger = Ledger(daemon.process.pid, CAPACITY)
        eventually(lambda: updates(daemon) > 20, "it learns")
        away_ns, parts, newer = [], [], 0
        # New weights act while there is no service, unless a busy machine leaves learners no core.
        while len(away_ns) < KILLS or (not newer and len(away_ns) < MOST_KILLS):
            time.sleep(chance.uniform(0.2, 0.8))
            died_ns, deaths = hit(service_of(daemon)["pid"]), len(away_ns) + 1
            eventually(lambda n=deaths: service_of(daemon).get("restarts") == n, "it is back")
            away_ns.append((died_ns, time.monotonic_ns()))
            machine.measure()
            parts.append(ledger.read())
            newer += newer_weights(parts[-1], *away_ns[-1])
        rows = np.concatenate(parts)
        stats = daemon.stats()
        assert service_of(daemon)["last_error"] == "killed by SIGKILL"
        others = [r for r in daemon.status()["roles"] if r["role"] != "service"]
    assert newer > 0
    took_s = [(back - died) / NANO for died, back in away_ns[:KILLS]]
    assert np.median(took_s) <= machine.allows(LIMIT_S), took_s
    assert max(took_s) <= machine.allows(HELD_UP_S), took_s
    assert (ledger.lost, ledger.torn) == (0, 0)
    assert machine.excuses(slips(rows, RATE_HZ), RATE_HZ)
    assert machine.excuses(stats["clock"]["slips"], RATE_HZ)
    assert [each["restarts"] for each in others] == [0] * len(others)
    away, lost = np.zeros(len(rows), bool), rows["source"] == DEFAULT
    for died, back in away_ns:
        away |= (rows["time_ns"] >= died) & (rows["time_ns"] < back)
    # No more ticks are lost than at other times.
    usual = lost[~away & (rows["tick"] > RATE_HZ)].mean()
    assert lost[away].mean() <= usual + 0.1
