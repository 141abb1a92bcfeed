"""The last seconds of a run as they can be drawn: ticks, and one bar per registered action.

Computed from shared memory in the process that asks. A bar is an action that an inference process
has registered, whether or not a tick executed it. It starts when the frame was published that the
action was computed from: the delay counts from there, also with algorithms that wait before they
register. A process cannot have seen that frame before its previous action was done, so a bar never
starts before the end of the previous one. The slot of an action holds the number of its frame; if
the slot has been used again, the bar starts one inference time before its end. Inferences under way
are left out, since they may never end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO
from rtagent.memory.ledger import Rows
from rtagent.memory.ring import Entries
from rtagent.memory.world import World
from rtagent.staggering.arbiter import Source
from rtagent.telemetry.recent_rows import RecentRows

SHORTEST_S = 0.5
LONGEST_S = 10.0
SOURCES = tuple(source.name.lower() for source in Source)
"""By the number of the source: default, agent, reused."""

Times = npt.NDArray[np.int64]


def read_timeline(
    world: World, status: dict[str, Any], seconds: float, now: float
) -> dict[str, Any]:
    """The answer to `GET /v1/timeline`: columns sorted by time, in ms since the daemon's start.

    Args:
        status: the newest status document.
        seconds: how far back, `SHORTEST_S` .. `LONGEST_S`.
        now: seconds on the workers' clock.
    """
    since_ns = max(1, round((now - seconds) * NANO))
    start_ns = _start_ns(world, status, now)
    # After a hold-up the missed ticks are run at once.
    most = round(seconds * world.blueprint.rate_hz) + world.config.env.max_catch_up_ticks
    rows = RecentRows(world.ledger, world.first_tick).since(since_ns, most)
    return {
        "now_ms": _milliseconds(np.array([round(now * NANO)]), start_ns)[0],
        "tick_ms": 1e3 / world.blueprint.rate_hz,
        "ticks": _ticks(rows, world.blueprint.action_meanings, start_ns),
        "bars": _bars(world, since_ns, start_ns),
        "workers": [
            {"id": role["index"], "state": role["state"]}
            for role in status.get("roles", ())
            if role["role"] == "inference"
        ],
    }


def _start_ns(world: World, status: dict[str, Any], now: float) -> int:
    """When the daemon started; until the status says so, when the world's clock started."""
    if "started_s" in status:
        return round(float(status["started_s"]) * NANO)
    return world.metrics.environment.first_due_ns or round(now * NANO)


def _ticks(rows: Rows, meanings: tuple[str, ...], start_ns: int) -> dict[str, list[Any]]:
    acted = rows["source"] != Source.DEFAULT
    return {
        "tick": rows["tick"].tolist(),
        "at_ms": _milliseconds(rows["time_ns"], start_ns),
        "source": [SOURCES[source] for source in rows["source"].tolist()],
        "worker": _where(acted, rows["worker"]),
        "delay": _where(acted, rows["tick"] - rows["observed"]),
        "position": _where(acted, rows["position"]),
        "action": _names(rows["action"], meanings),
        "components": _components(rows["action"]),
    }


def _bars(world: World, since_ns: int, start_ns: int) -> dict[str, list[Any]]:
    records = world.metrics.inference[: world.control.desired.rows]
    registered = [record.registrations_since(since_ns) for record in records]
    workers = np.repeat(np.arange(len(records)), [len(each) for each in registered])
    samples = np.concatenate(registered)
    ends = samples["registered_ns"]
    # By process and time, so that each bar follows the previous one of the same process.
    order = np.lexsort((ends, workers))
    workers, samples, ends = workers[order], samples[order], ends[order]
    starts = _published_ns(world, workers, samples)
    follows = workers[1:] == workers[:-1]
    starts[1:] = np.where(follows, np.maximum(starts[1:], ends[:-1]), starts[1:])
    order = np.argsort(ends, kind="stable")
    return {
        "worker": workers[order].tolist(),
        "start_ms": _milliseconds(starts[order], start_ns),
        "end_ms": _milliseconds(ends[order], start_ns),
        "tick": samples["tick"][order].tolist(),
    }


def _published_ns(world: World, workers: npt.NDArray[np.intp], samples: Entries) -> Times:
    """When the frames of registered actions were published; if unknown, when inference began."""
    frames = world.actions.frames_of(workers, samples["tick"], samples["registered_ns"])
    rows, whole = world.ledger.at(frames)
    known = whole & (frames >= world.first_tick) & (rows["time_ns"] < samples["registered_ns"])
    began: Times = samples["registered_ns"] - samples["latency_ns"]
    return np.where(known, rows["time_ns"], began)


def _milliseconds(times_ns: Times, start_ns: int) -> list[float]:
    values: list[float] = np.round((times_ns - start_ns) / 1e6, 3).tolist()
    return values


def _where(known: npt.NDArray[np.bool_], values: npt.NDArray[Any]) -> list[int | None]:
    return [
        value if each else None
        for each, value in zip(known.tolist(), values.tolist(), strict=True)
    ]


def _names(actions: npt.NDArray[Any], meanings: tuple[str, ...]) -> list[str | None]:
    """What the environment calls its actions; their numbers where it has no names for them."""
    if actions.ndim > 1:
        return [None] * len(actions)
    return [
        meanings[action] if 0 <= action < len(meanings) else str(action)
        for action in actions.tolist()
    ]


def _components(actions: npt.NDArray[Any]) -> list[list[float] | None]:
    """The numbers of continuous actions."""
    if actions.ndim == 1:
        return [None] * len(actions)
    components: list[list[float] | None] = actions.tolist()
    return components
