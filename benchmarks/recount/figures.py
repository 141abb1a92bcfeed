"""The figures of `/v1/stats` a second time, from what a witness saw: one function per section.

They share no code with the program's own, and are plain and slow. A figure that cannot be counted
from outside has its reason in `NOT_RECOUNTED`.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.recount.agreement import Found, spread
from benchmarks.recount.episodes import episodes
from benchmarks.recount.learning import learning, r3, replay
from benchmarks.recount.raw_ledger import AGENT, DEFAULT, JUMP_NS, NANO, REUSED, WINDOW_S, Rows
from benchmarks.recount.witness import View, Witness

OWN = "only the process itself has measured it"
ENGINE = "only the process that converts networks knows it, where there is one"
KEPT = 4096
"""Inference times that the daemon keeps of each process."""
NOT_RECOUNTED = {
    "clock.reset_ms": OWN,
    "clock.step_us.p50": OWN,
    "clock.step_us.p99": OWN,
    "clock.step_us.max": OWN,
    "episodes.faults": "the environment's adapter counts them",
    "inference.workers[].takeover_us": OWN,
    "inference.workers[].weights_version": "the action that tells it may have been overwritten",
    "inference.engine": ENGINE,
    "inference.engine_precision": ENGINE,
    "inference.engine_agreement": ENGINE,
    "inference.engine_conversions": ENGINE,
    "inference.engine_refused": ENGINE,
    "inference.conversion_ms": ENGINE,
    "learning.workers[].update_ms": OWN,
    "learning.precision": OWN,
    "learning.placement": OWN,
    "learning.silent": "a learner that beats leaves no trace",
    "learning.turns_expired": "a learner that lost its turn leaves no trace",
    "replay.limit": "the supervisor decides it",
    "r3.replay_memory_bytes": "the supervisor decides it, where there is a budget",
    "r3.used_bytes": "not measured yet",
    "r3.elapsed_s": "its first update started the horizon, at an unknown moment",
    "r3.time_ratio": "its first update started the horizon, at an unknown moment",
    "r3.ticks_limit": "the supervisor decides it",
    "r3.batch_memory_bytes": "the supervisor decides it",
    "r3.batch_base_bytes": OWN,
    "r3.batch_cap": "follows from what the supervisor decides",
    "r3.baseline_bytes": "follows from what a learner has measured",
    "r3.episode_deadlines.met": "samples are not kept by episode",
    "r3.episode_deadlines.missed": "samples are not kept by episode",
    "r3.pressure_events": "told by events alone",
}


def of_rows(view: View, rate_hz: float) -> Found:
    """Figures that follow from the rows alone, by their paths.

    Args:
        view: what the witness knew at one moment.
        rate_hz: ticks per second.
    """
    return clock(view, rate_hz) | actions(view) | regret(view) | episodes(view)


def of_moment(view: View, witness: Witness, config: Mapping[str, Any], rate_hz: float) -> Found:
    """The other figures of a moment, by their paths.

    Args:
        view: what the witness knew at that moment.
        witness: the witness of the daemon.
        config: the configuration in force, as `GET /v1/config` answers.
        rate_hz: ticks per second.
    """
    rows = view.rows
    pid = witness.lives["environment", 0][-1]
    return {
        "clock.window_s": min(WINDOW_S, view.at - view.since),
        "clock.uptime_s": view.at - (rows["time_ns"][0] - rows["lateness_ns"][0]) / NANO,
        "clock.ticks": len(rows),
        "clock.realtime": os.sched_getscheduler(pid) == os.SCHED_FIFO,
        "actions.overwritten": overwritten(view),
        **inference(view, witness, config, rate_hz),
        **engine(config),
        **learning(view, witness, config),
        **replay(view, witness, config),
        **r3(view, witness, config),
    }


def recent(view: View, rows: npt.NDArray[Any], field: str = "time_ns") -> npt.NDArray[Any]:
    """Rows of the minute before, or since the inference settings changed if that is less."""
    return rows[rows[field] >= max(view.at - WINDOW_S, view.since) * NANO]


def clock(view: View, rate_hz: float) -> Found:
    """Section `clock`, from the due times of the ticks: their times less their lateness."""
    rows, late = view.rows, recent(view, view.rows)
    due = rows["time_ns"] - rows["lateness_ns"]
    period_ns = NANO / rate_hz
    lateness = late["lateness_ns"] / 1e3
    span_s = (late["time_ns"][-1] - late["time_ns"][0]) / NANO
    return {
        "clock.rate_hz": (late["tick"][-1] - late["tick"][0]) / span_s,
        "clock.target_rate_hz": NANO / statistics.median(np.diff(due).tolist()),
        "clock.drift_ms": (rows["time_ns"][-1] - due[0] - period_ns * (len(rows) - 1)) / 1e6,
        "clock.slips": int((np.diff(due) > period_ns + JUMP_NS).sum()),
        **spread("clock.lateness_us", lateness.tolist()),
        "clock.lateness_us.p999": float(np.percentile(lateness, 99.9)),
    }


def actions(view: View) -> Found:
    """Section `actions`, from what was executed."""
    rows, late = view.rows, recent(view, view.rows)
    minute = rows[rows["time_ns"] >= (view.at - WINDOW_S) * NANO]
    counts = {source: int((rows["source"] == source).sum()) for source in (DEFAULT, AGENT, REUSED)}
    new_ms = [int(row["time_ns"]) / 1e6 for row in late if row["source"] == AGENT]
    gaps = [b - a for a, b in pairwise(new_ms)]
    delays = [int(row["tick"] - row["observed"]) for row in late if row["source"] != DEFAULT]
    return {
        "actions.agent": counts[AGENT],
        "actions.reused": counts[REUSED],
        "actions.default": counts[DEFAULT],
        "actions.inaction_fraction": counts[DEFAULT] / len(rows),
        "actions.strict_inaction_fraction": 1.0 - counts[AGENT] / len(rows),
        "actions.inaction_fraction_60s": float((minute["source"] == DEFAULT).mean()),
        "actions.inaction_fraction_window": float((late["source"] == DEFAULT).mean()),
        "actions.interaction_ms.mean": statistics.fmean(gaps) if gaps else None,
        "actions.interaction_ms.cv": (
            statistics.pstdev(gaps) / statistics.fmean(gaps) if len(gaps) > 1 else None
        ),
        **spread("actions.delay_ticks", delays),
        "actions.delay_ticks.mean": statistics.fmean(delays) if delays else None,
        "actions.from_chunk": sum(int(row["position"]) > 0 for row in late) / len(late),
        # The rows that are read here are those of policies that carry no state.
        "actions.state_lag": None,
        "actions.disagreement": disagreement(late),
    }


def overwritten(view: View) -> int:
    """Number of registered actions that were not executed and cannot be any more."""
    used = {
        (int(row["worker"]), int(row["registered_ns"]))
        for row in view.rows if row["source"] != DEFAULT
    }
    newest = int(view.rows["tick"][-1])
    return sum(
        int(each["tick"] + each["ticks"]) - 1 <= newest
        and (int(each["worker"]), int(each["registered_ns"])) not in used
        for each in view.registered
    )


def disagreement(rows: Rows) -> float | None:
    """How often the next tick executed another action than the one computed from its frame."""
    executed = {int(row["tick"]): int(row["action"]) for row in rows if row["source"] == AGENT}
    pairs = [
        (int(row["action"]), executed[int(row["observed"]) + 1])
        for row in rows
        # The later actions of a chunk are for later ticks.
        if row["source"] == AGENT and row["position"] == 0 and int(row["observed"]) + 1 in executed
    ]
    return sum(a != b for a, b in pairs) / len(pairs) if pairs else None


def inference(
    view: View, witness: Witness, config: Mapping[str, Any], rate_hz: float
) -> Found:
    """Section `inference`, from the registered actions and the processes that live."""
    wanted = config["inference"]
    places = range(wanted["processes"])
    times = [inference_times(view, index) for index in places]
    tau_ms = [each for of_one in times for each in of_one]
    found: Found = {
        "inference.processes": len(places),
        "inference.ready": sum(
            witness.alive("inference", i) and view.ready[i] for i in places
        ),
        "inference.algorithm": wanted["algorithm"],
        "inference.estimate_ms": statistics.fmean(tau_ms) if tau_ms else None,
        "inference.recommended_processes": recommended(tau_ms, wanted, rate_hz),
        "inference.injected_latency_ms": wanted["injected_latency_ms"],
        "inference.injected_latency_distribution": wanted["injected_latency_distribution"],
    }
    for index in places:
        path = f"inference.workers[{index}]"
        pids = witness.lives["inference", index]
        found |= {
            f"{path}.id": index,
            f"{path}.pid": pids[-1],
            f"{path}.state": "running" if witness.alive("inference", index) else "dead",
            f"{path}.inferences": int((view.registered["worker"] == index).sum()),
            f"{path}.restarts": witness.restarts["inference", index] + len(pids) - 1,
            **spread(f"{path}.latency_ms", times[index]),
        }
    return found


def inference_times(view: View, index: int) -> list[float]:
    """Milliseconds that the newest inferences of a process took, as far as they are kept."""
    kept = view.registered[view.registered["worker"] == index][-KEPT:]
    return [int(each) / 1e6 for each in recent(view, kept, "registered_ns")["latency_ns"]]


def engine(config: Mapping[str, Any]) -> Found:
    """Figures of the engine, which are known where torch runs the network."""
    if config["policy"]["engine"] != "torch":
        return {}
    return {
        "inference.engine": "torch", "inference.engine_precision": None,
        "inference.engine_agreement": None, "inference.engine_conversions": 0,
        "inference.engine_refused": 0, "inference.conversion_ms": None,
    }


def recommended(tau_ms: list[float], wanted: Mapping[str, Any], rate_hz: float) -> int | None:
    """Processes for one action per deadline, one in ten to spare where the longest need more."""
    if not tau_ms or wanted["algorithm"] not in ("adaptive", "maximum-time", "expected-time"):
        return None
    deadline_ms = max(wanted["action_deadline_ms"] or 0.0, 1e3 / rate_hz)
    longest = float(np.percentile(tau_ms, 99))
    mean = min(statistics.fmean(tau_ms), longest)
    least = math.ceil(mean / deadline_ms)
    if wanted["algorithm"] == "maximum-time":
        return math.ceil(longest / deadline_ms)
    varies = math.ceil((mean + 4.0 / 3.0 * (longest - mean)) / deadline_ms) > least
    spare = math.ceil(least / 10) if varies else 0
    return least + (spare if wanted["algorithm"] == "adaptive" else 0)


def regret(view: View) -> Found:
    """Section `regret`, from the default ticks and the rewards, where no range is declared."""
    rows = view.rows
    low, high = min(0.0, float(rows["reward"].min())), max(0.0, float(rows["reward"].max()))
    unknown: Found = {"value": None, "kind": "unknown", "unit": "reward"}
    inaction = dict(unknown)
    if high > low:
        value = int((rows["source"] == DEFAULT).sum()) * (high - low)
        inaction |= {"value": value, "kind": "estimate"}
    return {
        f"regret.{name}.{key}": value
        for name, each in (("inaction", inaction), ("delay", unknown), ("learning", unknown))
        for key, value in each.items()
    }


