"""`inference.processes = "auto"`: measures how acting goes, for `autoscaler.py` to decide.

Everything is read from shared memory in the supervisor's thread, once a second: a window of the
processes' registrations and of the ledger, which begins no earlier than the newest change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from rtagent.clock import NANO, Clock
from rtagent.config import Config
from rtagent.memory.world import World
from rtagent.processes.limit import most_busy_cores
from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import interaction
from rtagent.supervisor.autoscaler import AutoScaler, Limits, Measured, Move
from rtagent.supervisor.child import Child, State
from rtagent.telemetry.stats import StatsReader

EVERY_S = 1.0
WINDOW_S = 5.0
"""What is measured covers so many seconds, or longer: `WINDOW_INFERENCES` of one process."""
WINDOW_INFERENCES = 4


def limits_of(config: Config, tick_s: float, room: int) -> Limits:
    """The limits of an automatic number of processes.

    Args:
        tick_s: tau_M, the deadline where none is set.
        room: inference processes that the machine has room for.
    """
    inference, deadline = config.inference, config.inference.action_deadline_ms
    # Inference that waits for a policy server, or for injected latency, keeps no core busy.
    waits = config.policy.remote is not None or inference.injected_latency_ms > 0.0
    return Limits(
        deadline_s=tick_s if deadline is None else max(tick_s, deadline / 1e3),
        algorithm=inference.algorithm,
        most=max(1, room if waits else min(room, math.ceil(most_busy_cores()))),
    )


class Scaling:
    """Chooses the number of inference processes while the run goes on."""

    def __init__(self, world: World, clock: Clock) -> None:
        self._world = world
        self._reader = StatsReader(world, clock)
        self._scaler: AutoScaler | None = None
        self._next = self._changed_at = clock.now()
        self._known: tuple[Limits, float] | None = None

    def start_anew(self) -> None:
        """Forget what was measured before a pause of the daemon."""
        self._scaler = None

    def step(
        self, now: float, config: Config, current: int, workers: Iterable[Child], room: int
    ) -> Move | None:
        """What to change now, if anything.

        Args:
            now: seconds.
            current: number of processes that is wanted.
            workers: the inference processes.
            room: inference processes that the machine has room for.
        """
        if config.inference.processes != "auto":
            self._scaler = None
            return None
        if now < self._next:
            return None
        self._next = now + EVERY_S
        limits = limits_of(config, self._world.blueprint.tick_seconds, room)
        known = limits, config.inference.injected_latency_ms
        scaler = self._scaler
        if scaler is None or (known, current) != (self._known, scaler.processes):
            scaler = self._scaler = AutoScaler(now, current, limits)
            self._known, self._changed_at = known, now
        running = [child.index for child in workers if child.state is State.RUNNING]
        measured = self._measure(now, running) if len(running) == current else None
        move = scaler.step(now, measured)
        if move is not None:
            self._changed_at = now
        return move

    def _measure(self, now: float, running: Iterable[int]) -> Measured | None:
        """How acting has gone lately; None if no process has acted."""
        records = [self._world.metrics.inference[index] for index in running]
        newest = [
            record.registrations.newest(WINDOW_INFERENCES)["latency_ns"] for record in records
        ]
        inference_s = max((float(each.mean()) / NANO for each in newest if len(each)), default=0.0)
        since = max(now - max(WINDOW_S, WINDOW_INFERENCES * inference_s), self._changed_at)
        latencies = np.concatenate(
            [record.registrations_since(int(since * NANO)) for record in records]
        )["latency_ns"]
        if not len(latencies):
            return None
        longest = float(np.percentile(latencies, 99)) / NANO
        rows = self._reader.rows_since(since)
        interaction_s = interaction(rows["time_ns"][rows["source"] == Source.AGENT] / NANO).mean
        inaction = float((rows["source"] == Source.DEFAULT).mean()) if len(rows) else None
        mean = min(float(latencies.mean()) / NANO, longest)
        return Measured(mean, longest, len(latencies), interaction_s, inaction)
