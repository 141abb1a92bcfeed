"""Every figure the program reports, computed from the shared memory by whoever asks.

What happened in the world in the last minute is counted from the tick ledger and the action cells;
the counters of the run are those of the environment process, which alone executes. Percentiles and
means cover the last 60 seconds. What is not known is None, never 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent import exploration
from rtagent.clock import Clock, MonotonicClock
from rtagent.memory.actions import NANO
from rtagent.memory.board import Record, recent_episodes, registrations_since
from rtagent.memory.ledger import Rows
from rtagent.memory.world import World
from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import processes_needed
from rtagent.staggering.register import PROMISING

WINDOW_S = 60.0
SILENT_S = 10.0
"""A learner that has not beaten for so long has no rate of updates."""


class StatsReader:
    """Computes the figures of a running world.

    Args:
        world: the shared memory.
        clock: the clock that the workers use.
    """

    def __init__(self, world: World, clock: Clock | None = None) -> None:
        self._world = world
        self._clock = clock or MonotonicClock()

    def collect(self) -> dict[str, Any]:
        """The dictionary that `GET /v1/stats` answers."""
        now = self._clock.now()
        rows = self._recent_rows(now)
        status = self._world.status.read()
        return {
            "clock": self._clock_figures(rows, now),
            "actions": self._action_figures(rows, now),
            "inference": self._inference_figures(status, now),
            "learning": self._learning_figures(status, now),
            "replay": self._replay_figures(),
            "r3": _r3_figures(),
            "regret": self._regret_figures(rows),
            "episodes": self._episode_figures(),
        }

    def _recent_rows(self, now: float) -> Rows:
        """The whole ledger rows of the last 60 s."""
        ledger = self._world.ledger
        newest = ledger.newest
        most = round(WINDOW_S * self._world.blueprint.rate_hz)
        rows = ledger.read(max(newest - most, ledger.oldest), newest + 1)
        return rows[rows["time_ns"] >= (now - WINDOW_S) * NANO]

    def _clock_figures(self, rows: Rows, now: float) -> dict[str, Any]:
        record = self._world.board.environment[0]
        target = self._world.blueprint.rate_hz
        ticks = int(record["ticks"])
        rate = drift_ms = None
        if len(rows) > 1:
            span = int(rows["time_ns"][-1] - rows["time_ns"][0]) / NANO
            rate = int(rows["tick"][-1] - rows["tick"][0]) / span if span > 0 else None
        if len(rows):
            drift_ms = (int(record["slipped_ns"]) + int(rows["lateness_ns"][-1])) / 1e6
        started = int(record["anchor_ns"]) - int(record["slipped_ns"])
        first = started - round(int(record["anchor_tick"]) * NANO / target)
        return {
            "uptime_s": now - first / NANO if ticks else None,
            "ticks": ticks,
            "rate_hz": rate,
            "target_rate_hz": target,
            "drift_ms": drift_ms,
            "slips": int(record["slips"]),
            "realtime": bool(record["realtime"]),
            "lateness_us": _spread(rows["lateness_ns"] / 1e3, (50, 99, 99.9)),
            "step_us": int(record["step_ns"]) / 1e3 if ticks else None,
        }

    def _action_figures(self, rows: Rows, now: float) -> dict[str, Any]:
        record = self._world.board.environment[0]
        agent, reused = int(record["agent"]), int(record["reused"])
        default = int(record["default"])
        ticks = agent + reused + default
        deposits = int(self._world.board.inference["deposits"].sum())
        registered = self._registered(round((now - WINDOW_S) * NANO))
        pending = int((registered["tick"] > self._world.ledger.newest).sum())
        acted = rows["source"] != Source.DEFAULT
        delays = (rows["tick"] - rows["observed"])[acted]
        return {
            "agent": agent,
            "reused": reused,
            "default": default,
            "inaction_fraction": default / ticks if ticks else None,
            "strict_inaction_fraction": (default + reused) / ticks if ticks else None,
            "inaction_fraction_60s": float((~acted).mean()) if len(rows) else None,
            "overwritten": max(0, deposits - agent - pending),
            "interaction_ms": self._interaction(registered),
            "delay_ticks": {"mean": _mean(delays), **_spread(delays, (50, 99))},
        }

    def interaction_since(self, since: float) -> dict[str, float | None]:
        """Mean (ms) and CV of the time between agent actions registered at `since` s or later."""
        return self._interaction(self._registered(round(since * NANO)))

    def _registered(self, since_ns: int) -> Record:
        """What all inference processes have registered since then, whether executed or not."""
        records = self._world.board.inference[: self._world.control.orders.rows]
        return np.concatenate(
            [registrations_since(records[i : i + 1], since_ns) for i in range(len(records))]
        )

    def _interaction(self, registered: Record) -> dict[str, float | None]:
        """Time between two agent actions taking effect; see `staggering.figures.gap_cv`."""
        record, orders = self._world.board.environment[0], self._world.control.orders
        effects = registered["registered_ns"]
        if orders.algorithm in PROMISING:
            period_ns = NANO / self._world.blueprint.rate_hz
            since_anchor = (registered["tick"] - int(record["anchor_tick"])) * period_ns
            due = int(record["anchor_ns"]) + np.rint(since_anchor).astype(np.int64)
            effects = np.maximum(effects, due)
        gaps = np.diff(np.sort(effects)) / 1e6
        mean = _mean(gaps)
        return {"mean": mean, "cv": float(gaps.std()) / mean if mean and len(gaps) > 1 else None}

    def _inference_figures(self, status: dict[str, Any], now: float) -> dict[str, Any]:
        orders, blueprint = self._world.control.orders, self._world.blueprint
        since = round((now - WINDOW_S) * NANO)
        workers, taus = [], []
        roles = [role for role in status.get("roles", []) if role["role"] == "inference"]
        for role in roles:
            record = self._world.board.record("inference", role["index"])
            latencies = registrations_since(record, since)["latency_ns"] / 1e6
            taus.append(latencies)
            workers.append(
                {
                    "id": role["index"],
                    "pid": role["pid"],
                    "state": role["state"],
                    "inferences": int(record["inferences"][0]),
                    "latency_ms": _spread(latencies, (50, 99)),
                    "weights_version": int(record["weights_version"][0]),
                    "restarts": role["restarts"],
                }
            )
        tau = np.concatenate(taus) if taus else np.zeros(0)
        recommended = None
        if len(tau) and orders.algorithm in ("adaptive", "maximum-time", "expected-time"):
            deadline = self._world.status.read()["config"]["inference"]["action_deadline_ms"]
            tick_ms = deadline or blueprint.tick_seconds * 1e3
            # The slowest 1 % are left out: a few hold-ups by the machine are no reason to grow.
            longest = float(np.percentile(tau, 99))
            mean = min(float(tau.mean()), longest)
            recommended = processes_needed(mean, longest, tick_ms, orders.algorithm)
        return {
            "processes": orders.processes,
            "ready": sum(worker["state"] == "running" for worker in workers),
            "algorithm": orders.algorithm,
            "estimate_ms": _mean(tau),
            "recommended_processes": recommended,
            "injected_latency_ms": orders.injected_latency_ms,
            "injected_latency_distribution": orders.injected_latency_distribution,
            "workers": workers,
        }

    def _learning_figures(self, status: dict[str, Any], now: float) -> dict[str, Any]:
        config = self._world.config
        records = self._world.board.learners
        updates = int(records["updates"].max())
        learns = config.learning.processes > 0
        silent = now * NANO - records["heartbeat_ns"] > SILENT_S * NANO
        rates = records["updates_per_s"][(records["pid"] > 0) & ~silent]
        rates = rates[np.isfinite(rates)]
        info = self._world.weights.info()
        roles = [role for role in status.get("roles", []) if role["role"] == "learner"]
        epsilon = config.policy.epsilon_end
        if learns:
            epsilon = exploration.epsilon(info.updates if info else 0, config.policy)
        learned = learns and updates > 0
        return {
            "processes": config.learning.processes,
            "updates": updates,
            "updates_per_s": float(rates.sum()) if len(rates) else None,
            "samples_consumed": int(records["samples_consumed"].max()),
            "batch_size": config.learning.batch_size,
            "loss": float(records["loss"][0]) if learned else None,
            "epsilon": epsilon,
            "staleness": {
                "mean": float(records["staleness_sum"].sum()) / updates if learned else None,
                "max": int(records["staleness_max"].max()) if learned else None,
            },
            "weights_version": info.version if info else None,
            "skipped": int(records["skipped"].sum()),
            "checkpoints": int(records["checkpoints"].sum()),
            "checkpoint_failures": int(records["checkpoint_failures"].sum()),
            "workers": [
                {key: role[key] for key in ("index", "pid", "state", "restarts")}
                | {"update_ms": int(records["update_ns"][role["index"]]) / 1e6}
                for role in roles
            ],
        }

    def _replay_figures(self) -> dict[str, Any]:
        frames, ledger = self._world.frames, self._world.ledger
        per_tick = frames.slot_bytes + ledger.dtype.itemsize
        size = max(0, min(ledger.newest + 1, ledger.capacity))
        return {
            "capacity": ledger.capacity,
            "size": size,
            "bytes": size * per_tick,
            "bytes_per_transition": per_tick,
            "memory_budget_bytes": None,
        }

    def _regret_figures(self, rows: Rows) -> dict[str, Any]:
        """Theorem 1 of paper 004: what is measured, and what cannot be known is None."""
        record = self._world.board.environment[0]
        return {
            "inaction": {
                "value": int(record["default"]) if record["ticks"] else None,
                "kind": "measured",
                "unit": "default ticks",
            },
            "delay": {"value": _disagreement(rows), "kind": "measured", "unit": "disagreement"},
            "learning": {"value": None, "kind": "bound", "unit": "unknown"},
        }

    def _episode_figures(self) -> dict[str, Any]:
        record = self._world.board.environment
        recent = recent_episodes(record, 100)
        return {
            "count": int(record["episodes"][0]),
            "last_return": float(recent["return"][-1]) if len(recent) else None,
            "mean_return_100": _mean(recent["return"]),
            "mean_length_100": _mean(recent["length"]),
        }


def _disagreement(rows: Rows) -> float | None:
    """How often the action computed from frame j differs from the one executed at tick j.

    The former is known a few ticks later, when it is executed itself.
    """
    acted = rows[rows["source"] == Source.AGENT]
    if not len(acted) or rows["action"].ndim > 1:
        return None
    first = int(rows["tick"][0])
    inside = acted[acted["observed"] >= first]
    at = inside["observed"] - first
    whole = len(rows) == int(rows["tick"][-1]) - first + 1
    if not whole or not len(inside):
        return None
    return float((rows["action"][at] != inside["action"]).mean())


def _r3_figures() -> dict[str, Any]:
    """No R3 controller runs: its figures are unknown."""
    names = (
        "deadline_s", "elapsed_s", "data_budget", "consumed", "time_ratio", "data_ratio", "alpha",
        "beta", "batch_memory_bytes", "replay_memory_bytes", "oom_events",
    )
    outcomes = {name: {"met": None, "missed": None} for name in ("horizons", "episode_deadlines")}
    return {"mode": "off", **dict.fromkeys(names), **outcomes}


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _spread(values: npt.NDArray[Any], percentiles: tuple[float, ...]) -> dict[str, float | None]:
    """The percentiles as p50, p99, p999 ..., and the maximum."""
    names = [f"p{percentile:g}".replace(".", "") for percentile in percentiles] + ["max"]
    if not len(values):
        return dict.fromkeys(names)
    found = [*np.percentile(values, percentiles), values.max()]
    return {name: float(value) for name, value in zip(names, found, strict=True)}
