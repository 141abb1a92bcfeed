"""How an inference process waits for a frame: asleep until shortly before it, then awake."""

from __future__ import annotations

from collections.abc import Callable

from rtagent.clock import NANO
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.processes.wake_ahead import Forecast, WakeAhead
from rtagent.processes.worker import WorkerContext

SLICE_S = 0.1
"""Longest time without a heartbeat."""


class FrameWait:
    """Waits for frames.

    Args:
        context: of the worker that waits.
        prepare: uses the time until a moment, seconds.
        rehearse: called shortly before a frame comes, to do ahead what can be done.

    Attributes:
        ahead: how long before a frame the process wakes up.
    """

    def __init__(
        self, context: WorkerContext[InferenceRecord], prepare: Callable[[float], None],
        rehearse: Callable[[int], None],
    ) -> None:
        self._frames, self._clock = context.world.frames, context.clock
        self._environment = context.world.metrics.environment
        self._tick_s = context.blueprint.tick_seconds
        self._prepare, self._rehearse = prepare, rehearse
        self.ahead, self._forecast = WakeAhead(self._tick_s), Forecast()

    def wait(self, frame: int) -> None:
        """Wait for a frame, at most one slice; the algorithm then looks at its plan again.

        Sleeps until just before the frame is expected, rehearses, and spins for a bounded moment.
        """
        clock, ahead = self._clock, self.ahead
        if self._frames.newest >= frame:
            return
        expected = self._expected(frame)
        if expected is None:
            self._sleep_for(frame, SLICE_S)
            return
        ahead.choose()
        wake = expected - ahead.seconds
        self._prepare(wake)
        rest = wake - clock.now()
        if rest > SLICE_S:
            self._sleep_for(frame, SLICE_S)
            return
        came = rest > 0.0 and self._sleep_for(frame, rest)
        woke = clock.now()
        if came:
            if woke > wake:
                ahead.note(woke - wake, woke - wake, 0.0)
            return
        self._rehearse(frame)
        ready = clock.now()
        seen = self._spin_for(frame, expected + ahead.seconds)
        if rest > 0.0:
            ahead.note(woke - wake, ready - wake, seen - woke)
        else:
            ahead.awake_s += seen - woke

    def _expected(self, frame: int) -> float | None:
        """When the frame will come, by the environment's clock; None before that has started."""
        anchor_ns = self._environment.anchor_ns
        if not anchor_ns:
            return None
        due = anchor_ns / NANO + (frame - self._environment.anchor_tick) * self._tick_s
        return self._forecast.expected(due, self._environment.behind_ns / NANO)

    def _sleep_for(self, frame: int, seconds: float) -> bool:
        """Sleep until the frame is there; False if it does not come in time."""
        frames = self._frames
        return frames.bell.wait_for(lambda: frames.newest >= frame, self._clock, seconds)

    def _spin_for(self, frame: int, until: float) -> float:
        """Spin until the frame is there, or sleep for it if it is not there in time.

        Returns:
            When spinning ended, seconds.
        """
        frames, clock = self._frames, self._clock
        now = clock.now()
        while frames.newest < frame:
            if now > until:
                self._sleep_for(frame, SLICE_S)
                return now
            now = clock.now()
        return now
