"""Every figure the program reports, computed from the shared memory by whoever asks.

What happened in the world in the last minute is counted from the tick ledger and the action cells;
the counters of the run are those of the environment process, which alone executes. Percentiles and
means cover the last 60 seconds. What is not known is None, never 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent import exploration
from rtagent.clock import Clock, MonotonicClock
from rtagent.learning.horizon import batch_in_force
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
            "r3": self._r3_figures(),
            "regret": self._regret_figures(rows),
            "episodes": self._episode_figures(),
        }

    def _recent_rows(self, now: float) -> Rows:
        """The whole ledger rows of the last 60 s."""
        ledger = self._world.ledger
        newest = ledger.newest
        most = round(WINDOW_S * self._world.blueprint.rate_hz)
        # The rows of a restored replay carry the times of another life.
        first = max(newest - most, ledger.oldest, self._world.first_tick)
        rows = ledger.read(first, newest + 1)
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
        before = int(record["anchor_tick"]) - self._world.first_tick
        first = started - round(before * NANO / target)
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
            # No agent acts more than once a tick.
            tick_ms = max(deadline or 0.0, blueprint.tick_seconds * 1e3)
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
        orders = self._world.control.orders
        info = self._world.weights.info()
        updates, applied = int(records["updates"].max()), int(records["applied"].sum())
        learns = updates > 0 or orders.learners > 0
        silent = now * NANO - records["heartbeat_ns"] > SILENT_S * NANO
        rates = records["updates_per_s"][(records["pid"] > 0) & ~silent]
        rates = rates[np.isfinite(rates)]
        roles = [role for role in status.get("roles", []) if role["role"] == "learner"]
        epsilon = config.policy.epsilon_end
        if learns:
            epsilon = exploration.epsilon(info.updates if info else 0, config.policy)
        learned = applied > 0
        newest = int(records["heartbeat_ns"].argmax())
        return {
            "processes": orders.learners,
            "order": orders.learning_order,
            "paused": orders.learning_paused,
            # Before a learner has taken over a resumed run, its weights say how far it is.
            "updates": max(updates, info.updates if info else 0),
            "updates_per_s": float(rates.sum()) if len(rates) else None,
            "samples_consumed": int(records["samples_consumed"].max()),
            "batch_size": batch_in_force(self._world.horizon.read(), orders),
            "loss": float(records["loss"][newest]) if learned else None,
            "epsilon": epsilon,
            "staleness": {
                "mean": float(records["staleness_sum"].sum()) / applied if learned else None,
                "max": int(records["staleness_max"].max()) if learned else None,
            },
            "weights_version": info.version if info else None,
            "skipped": int(records["skipped"].sum()),
            "dropped": int(records["dropped"].sum()),
            "turns_expired": self._world.turns.expired,
            "evaluation": self._evaluation_figures(),
            "checkpoints": int(records["checkpoints"].sum()),
            "checkpoint_failures": int(records["checkpoint_failures"].sum()),
            "workers": [
                {key: role[key] for key in ("index", "pid", "state", "restarts")}
                | {
                    "update_ms": int(records["update_ns"][role["index"]]) / 1e6,
                    "applied": int(records["applied"][role["index"]]),
                }
                for role in roles
            ],
        }

    def _evaluation_figures(self) -> dict[str, Any]:
        """Of the greedy policy in a paused world; unknown before the first evaluation."""
        record = self._world.board.evaluation[0]
        known = int(record["evaluations"]) > 0
        return {
            "evaluations": int(record["evaluations"]),
            "episodes": int(record["episodes"]),
            "mean_return": float(record["mean_return"]) if known else None,
            "updates": int(record["updates"]) if known else None,
            "weights_version": int(record["weights_version"]) if known else None,
        }

    def _replay_figures(self) -> dict[str, Any]:
        frames, ledger = self._world.frames, self._world.ledger
        per_tick = frames.slot_bytes + ledger.dtype.itemsize
        newest = ledger.newest
        size = max(0, min(newest + 1, ledger.capacity, newest + 1 - ledger.floor))
        limit = self._world.horizon.reservations.ticks_limit
        return {
            "capacity": ledger.capacity,
            "limit": limit if limit >= 0 else ledger.capacity,
            "size": size,
            "bytes": size * per_tick,
            "bytes_per_transition": per_tick,
            "memory_budget_bytes": _bytes(self._world.horizon.reservations.budget_bytes),
        }

    def _r3_figures(self) -> dict[str, Any]:
        """The running horizon, what memory is reserved, and the outcomes so far."""
        orders, horizon = self._world.control.orders, self._world.horizon.read()
        reserved = self._world.horizon.reservations
        runs = horizon.mode > 0 and horizon.running > 0
        known = runs or horizon.number > 0
        elapsed_s = horizon.elapsed_ns / NANO
        return {
            "mode": orders.r3_mode,
            "deadline_s": orders.deadline_s,
            "elapsed_s": elapsed_s if runs else None,
            "data_budget": orders.data_budget,
            "consumed": horizon.consumed if runs else None,
            "time_ratio": elapsed_s / horizon.deadline_s if runs else None,
            "data_ratio": horizon.consumed / horizon.data_budget if runs else None,
            "alpha": _ratio(reserved.alpha),
            "beta": _ratio(reserved.beta),
            "batch_memory_bytes": _bytes(reserved.batch_bytes),
            "replay_memory_bytes": _bytes(reserved.replay_bytes),
            "horizons": _outcomes(horizon.met, horizon.missed, known),
            "episode_deadlines": _outcomes(horizon.episode_met, horizon.episode_missed, known),
            "early_exits": horizon.early_exits if known else None,
            "batch_cap": horizon.batch_cap or None,
            "batch_base_bytes": horizon.base_bytes or None,
            "ticks_limit": reserved.ticks_limit if reserved.ticks_limit >= 0 else None,
            "used_bytes": _bytes(reserved.used_bytes),
            "baseline_bytes": _bytes(reserved.baseline_bytes),
            "memory_budget_bytes": _bytes(reserved.budget_bytes),
            "oom_events": int(self._world.board.learners["out_of_memory"].sum()),
            "pressure_events": reserved.pressure_events,
            "decisions": self._world.horizon.count,
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
            "faults": int(record["faults"][0]),
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


def _outcomes(met: int, missed: int, known: bool) -> dict[str, int | None]:
    return {"met": met if known else None, "missed": missed if known else None}


def _bytes(value: int) -> int | None:
    return value if value >= 0 else None


def _ratio(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _spread(values: npt.NDArray[Any], percentiles: tuple[float, ...]) -> dict[str, float | None]:
    """The percentiles as p50, p99, p999 ..., and the maximum."""
    names = [f"p{percentile:g}".replace(".", "") for percentile in percentiles] + ["max"]
    if not len(values):
        return dict.fromkeys(names)
    found = [*np.percentile(values, percentiles), values.max()]
    return {name: float(value) for name, value in zip(names, found, strict=True)}
