"""What the HTTP application needs from the daemon, read from shared memory or sent to it."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import numpy as np

from rtagent.clock import MonotonicClock
from rtagent.errors import UserError
from rtagent.live_config import live_values
from rtagent.memory.world import World
from rtagent.processes.pipe import Pipe
from rtagent.storage.checkpoint import listing
from rtagent.telemetry.event_log import EVENTS_FILE, read_events
from rtagent.telemetry.stats import StatsReader
from rtagent.telemetry.timeline import read_timeline
from service.daemon.commands import CommandChannel
from service.daemon.png import Picture
from service.daemon.vector_plot import Vectors, plot_vectors

TIMEOUTS_S = {"set": 32.0, "checkpoint": 602.0}
"""By command: a little more than the supervisor takes at most, in case that it hangs."""
DECISIONS_SHOWN = 50
PROGRESS = ("elapsed_s", "consumed", "time_ratio", "data_ratio", "batch_cap", "horizons",
            "episode_deadlines")
PLOTTED_S = 5.0
"""An environment without pictures is shown by a plot of its observations of so many seconds."""
MOST_PLOTTED = 168
"""Observations in that plot."""


class Backend:
    """The daemon as the HTTP application sees it; every method may be called from any thread."""

    def __init__(self, world: World, connection: Pipe) -> None:
        self._world = world
        self._channel = CommandChannel(connection)
        self._reader = StatsReader(world)
        # The reader keeps state between two calls, and is not thread-safe.
        self._reading = threading.Lock()

    def status(self) -> dict[str, Any]:
        """The supervisor's newest report: run, state, version, and the roles."""
        with self._reading:
            return dict(self._world.status.read())

    def status_version(self) -> int:
        """A number that changes no later than `status` shows a new report; never waits."""
        return self._world.status.number

    def stats(self) -> dict[str, Any]:
        """Every figure; an unknown one is None."""
        with self._reading:
            return self._reader.collect()

    def config(self) -> dict[str, Any]:
        """The configuration in force: that of the start with all changes since then."""
        return self._world.control.desired.config.model_dump(mode="json")

    def screen(self) -> Picture | None:
        """The newest frame as a picture, or a plot of the last observations. If None, there is no
        frame yet."""
        frames = self._world.frames
        frame = frames.frame(frames.newest)
        if frame is None:
            return None
        if not self._world.blueprint.screen:
            return plot_vectors(self._recent_vectors(frame))
        return frame

    def _recent_vectors(self, frame: Vectors) -> Vectors:
        """Some observations of the last seconds: (n, numbers), newest last."""
        frames, rate = self._world.frames, self._world.blueprint.rate_hz
        newest = frames.newest
        first = max(frames.oldest, self._world.first_tick, newest - round(PLOTTED_S * rate))
        step = max(1, (newest - first) // MOST_PLOTTED)
        found = [frames.frame(number) for number in range(newest - step, first - 1, -step)]
        whole = [each for each in reversed(found) if each is not None]
        return np.stack([*whole, frame]).reshape(len(whole) + 1, -1)

    def inference(self) -> dict[str, Any]:
        """The settings in force, and how many processes run and are recommended."""
        figures = self.stats()["inference"]
        progress = {name: figures[name] for name in ("ready", "recommended_processes")}
        return self._live("inference") | progress

    def learning(self) -> dict[str, Any]:
        """The settings in force, how many learners run, and their updates."""
        figures = self.stats()["learning"]
        ready = sum(worker["state"] == "running" for worker in figures["workers"])
        progress = {name: figures[name] for name in ("updates", "updates_per_s")}
        return self._live("learning") | progress | {"ready": ready}

    def deadlines(self) -> dict[str, Any]:
        """The settings in force, the progress of the horizon, and the controller's decisions."""
        figures, decisions = self.stats(), self._world.horizon.decisions(DECISIONS_SHOWN)
        return {
            **self._live("r3"),
            **{name: figures["r3"][name] for name in PROGRESS},
            "batch_size": figures["learning"]["batch_size"],
            "decisions": [each.describe() for each in decisions[::-1]],
        }

    def checkpoints(self) -> list[dict[str, Any]]:
        """file, updates, bytes and age_s of each checkpoint, newest first."""
        return listing(self._world.config.state_dir / "checkpoints")

    def ready(self) -> tuple[bool, str]:
        """Whether the agent acts, and if not, why.

        It does not before the first tick, with a failed role, without its policy server, or while
        stopping.
        """
        status = self.status()
        for role in status.get("roles", ()):
            if role["state"] == "failed":
                # This answer needs no token; an error may contain paths, names and values.
                return False, f"{role['name']} has failed"
        state = status.get("state", "starting")
        if state in ("failed", "stopping"):
            return False, f"the daemon is {state}"
        if self._world.ledger.newest < self._world.first_tick:
            return False, "starting: the environment has not ticked yet"
        if self._world.config.policy.remote is not None:
            acting = self._world.metrics.inference[: self._world.control.desired.processes]
            if not any(record.connected for record in acting):
                return False, "no policy server answers"
        return True, "ready"

    def events(
        self, limit: int, before: int | None = None, kinds: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """uptime_s now, and the events of this run that `read_events` would choose, newest first.

        The newest, which may not have reached the run's file yet, come from the status.
        """
        status = self.status()
        newest = [
            event for event in status.get("events", ())
            if (before is None or event["id"] < before) and (not kinds or event["kind"] in kinds)
        ]
        kept: list[dict[str, Any]] = []
        if "run_id" in status:
            path = self._world.config.state_dir / "runs" / status["run_id"] / EVENTS_FILE
            # If the file cannot be read, the events of the status are still shown.
            with suppress(UserError):
                kept = read_events(path, limit, before, kinds)
        by_id = {event["id"]: event for event in (*newest, *kept)}
        started_s = status.get("started_s")
        return {
            "uptime_s": None if started_s is None else MonotonicClock().now() - started_s,
            "events": [by_id[number] for number in sorted(by_id, reverse=True)[:limit]],
        }

    def timeline(self, seconds: float) -> dict[str, Any]:
        """Ticks and inferences of the last seconds, to be drawn."""
        return read_timeline(self._world, self.status(), seconds, MonotonicClock().now())

    def command(self, name: str, arguments: dict[str, Any], by: str) -> dict[str, Any]:
        """Have the supervisor carry out a command; returns when it is in force.

        Args:
            name: of the command, a key of `TIMEOUTS_S`.
            by: who gives it, for the events.

        Raises:
            UserError: refused; nothing has changed.
            BackendBusy: no answer in time.
        """
        return self._channel.call(name, arguments, by, TIMEOUTS_S[name])

    def report_event(self, kind: str, **details: Any) -> None:
        """Ask the supervisor to keep an event; does not wait, and the event may be lost."""
        self._channel.send_event(kind, details)

    def _live(self, section: str) -> dict[str, Any]:
        """The live settings of a section that are in force."""
        return live_values(self._world.control.desired.config)[section]
