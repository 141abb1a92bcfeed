"""Learning, replay and R3, counted again from the learners' records and R3's decisions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.recount.agreement import Between, Found, OneOf
from benchmarks.recount.raw_ledger import AGENT, NANO
from benchmarks.recount.witness import View, Witness
from rtagent.memory.horizon import KINDS

RATE_S = 5.0
"""Updates are counted over this time."""
NOTED_S = 0.4
"""Time between two notes that a learner makes of its updates; a starved learner takes longer."""
LOOK_S = 0.15
"""Longest time between two looks, and between an update and its record."""
MEASURED_S = 20.0
"""Longest time since the daemon measured its memory: it does not while a process starts."""
OVER = ("met", "missed", "early-exit")
"""The decisions that end a horizon."""


def learning(view: View, witness: Witness, config: Mapping[str, Any]) -> Found:
    """Section `learning`, from the sums of the learners' own records."""
    wanted, records = config["learning"], view.learners
    applied = sum(each["applied"] for each in records)
    places = range(wanted["processes"])
    published = 1 + applied // wanted["publish_every"]
    # A checkpoint publishes its weights, unless they were published already.
    version = Between(published, published + sum(each["checkpoints"] for each in records))
    found: Found = {
        "learning.processes": len(places),
        "learning.order": wanted["order"],
        "learning.paused": wanted["paused"],
        "learning.updates": applied,
        "learning.updates_per_s": update_rate(witness, view.at, len(places)),
        "learning.samples_consumed": samples(view, wanted["batch_size"], applied),
        "learning.staleness.mean": (
            sum(each["staleness_sum"] for each in records) / applied if applied else None
        ),
        "learning.staleness.max": (
            max(each["staleness_max"] for each in records) if applied else None
        ),
        "learning.skipped": sum(each["skipped"] for each in records),
        "learning.overflows": sum(each["overflows"] for each in records),
        "learning.loss_scale": max(each["loss_scale"] for each in records) or None,
        "learning.dropped": sum(each["dropped"] for each in records),
        "learning.checkpoints": sum(each["checkpoints"] for each in records),
        "learning.checkpoint_failures": sum(each["checkpoint_failures"] for each in records),
        "learning.weights_version": version,
        "learning.epsilon": Between(*sorted((
            exploration(applied, config),
            exploration(least_updates_acting(view, config), config),
        ))),
        "learning.batch_size": batch_size(view, wanted["batch_size"]),
        "learning.learning_rate": wanted["learning_rate"],
    }
    for index in places:
        path, pids = f"learning.workers[{index}]", witness.lives["learner", index]
        found |= {
            f"{path}.index": index,
            f"{path}.pid": pids[-1] if pids else None,
            f"{path}.state": "running" if witness.alive("learner", index) else "dead",
            f"{path}.restarts": witness.restarts["learner", index] + len(pids) - 1,
            f"{path}.applied": records[index]["applied"],
        }
    return found


def samples(view: View, batch: int, applied: int) -> int | Between:
    """Transitions learned from; where R3 is on, the sum over its horizons."""
    if not view.horizon.mode:
        return applied * batch
    told = ended_samples(view) + view.horizon.consumed
    return Between(told, told + unaccounted(view))


def ended_samples(view: View) -> int:
    """Samples of the horizons that are over."""
    return sum(each.consumed for each in view.decisions if KINDS[each.kind] in OVER)


def unaccounted(view: View) -> int:
    """Samples of the last 8 ms, which learners may not have added to the horizon yet."""
    busy = [each["update_ns"] for each in view.learners if each["update_ns"] > 0]
    updates = sum(1 + 8_000_000 // update_ns for update_ns in busy)
    return int(updates * max(view.horizon.batch_size, 1))


def batch_size(view: View, batch: int) -> int:
    """The batch size after the newest decision of R3, or the configured one."""
    return int(view.decisions[-1].after) if view.horizon.mode and view.decisions else batch


def exploration(updates: int, config: Mapping[str, Any]) -> float:
    """The exploration rate after so many updates; it falls linearly."""
    policy = config["policy"]
    if not config["learning"]["processes"]:
        return float(policy["epsilon_end"])
    done = min(1.0, updates / policy["epsilon_steps"])
    start, end = policy["epsilon_start"], policy["epsilon_end"]
    return float(start + done * (end - start))


def least_updates_acting(view: View, config: Mapping[str, Any]) -> int:
    """Fewest updates behind the weights of any process's newest action that was executed."""
    processes, publish_every = config["inference"]["processes"], config["learning"]["publish_every"]
    rows = view.rows[(view.rows["source"] == AGENT) & (view.rows["worker"] < processes)]
    newest = {int(row["worker"]): int(row["weights_version"]) for row in rows}
    # Version 1 has no updates, and a checkpoint's may have no more than the one before.
    checkpoints = sum(int(each["checkpoints"]) for each in view.learners)
    return max(0, min(newest.values(), default=1) - 1 - checkpoints) * int(publish_every)


def update_rate(witness: Witness, now: float, learners: int) -> Between | OneOf:
    """Updates per second of the last 5 s, or since a learner was ready if that is less.

    The bounds leave room for one update of each learner, which does not note when it made them. Nor
    does it leave a trace of having been ready for a second, from which on none are 0 per second.
    """
    rates = [learner_rates(witness, now, index) for index in range(learners)]
    known = [each for each in rates if each]
    if not any(map(max, known)):
        return OneOf((None, 0.0))
    one_more = len(known) / RATE_S
    return Between(sum(map(min, known)) - one_more, sum(map(max, known)) + one_more)


def learner_rates(witness: Witness, now: float, index: int) -> list[float]:
    """Bounds of the rate of one learner, for every moment from which it may have counted."""
    looks = [(at, applied[index]) for at, applied in witness.applied if at <= now]
    begun, updates = witness.since["learner", index], looks[-1][1]
    first, last = now - RATE_S - NOTED_S, now - RATE_S + NOTED_S
    if last < begun + NOTED_S:
        # It was ready between its start and its first update; what its predecessor did counts, too.
        before = next((n for at, n in looks if at >= begun), updates)
        last = next((at for at, n in looks if at >= begun and n > before), now)
    # On a busy machine looks are rare: those at both ends are included.
    start = max((at for at, _ in looks if at <= first), default=first)
    end = min((at for at, _ in looks if at >= last), default=last)
    seen = [(at, n) for at, n in looks if start <= at <= end and now > at]
    # Between two looks it may have been any time, with any count.
    return [
        (updates - n) / (now - max(at, now - RATE_S))
        for (one_at, one), (next_at, more) in zip(seen, seen[1:] or seen, strict=False)
        for at, n in ((one_at, more), (next_at, one))
    ]


def replay(view: View, witness: Witness, config: Mapping[str, Any]) -> Found:
    """Section `replay`, from the rows and the sizes of the two rings."""
    capacity = config["replay"]["capacity"]
    per_tick = sum(witness.sizes[name] // capacity for name in ("frames", "ledger"))
    held = min(len(view.rows), capacity)
    budget = config["r3"]["memory_budget_mb"]
    return {
        "replay.capacity": capacity,
        "replay.size": held,
        "replay.bytes": held * per_tick,
        "replay.bytes_per_transition": per_tick,
        "replay.memory_budget_bytes": None if budget is None else budget << 20,
    }


def r3(view: View, witness: Witness, config: Mapping[str, Any]) -> Found:
    """Section `r3`, from the decisions, which are kept with their inputs."""
    wanted = config["r3"]
    kinds = [KINDS[each.kind] for each in view.decisions]
    on = bool(view.horizon.mode)
    known = on or bool(view.horizon.number)
    used = [size for at, size in witness.memory if at >= view.at - MEASURED_S]
    budget = wanted["memory_budget_mb"]
    found = {
        "r3.mode": wanted["mode"],
        "r3.deadline_s": wanted["deadline_s"],
        "r3.data_budget": wanted["data_budget"],
        "r3.horizons.met": (kinds.count("met") + kinds.count("early-exit")) if known else None,
        "r3.horizons.missed": kinds.count("missed") if known else None,
        "r3.early_exits": kinds.count("early-exit") if known else None,
        "r3.decisions": len(kinds),
        "r3.oom_events": sum(each["out_of_memory"] for each in view.learners),
        "r3.memory_budget_bytes": None if budget is None else budget << 20,
    }
    if used:
        found["r3.used_bytes"] = Between(min(used), max(used))
    if budget is None:
        found["r3.replay_memory_bytes"] = view.pages["frames"] + view.pages["ledger"]
    return found | horizon(view, wanted)


def horizon(view: View, wanted: Mapping[str, Any]) -> Found:
    """The running horizon, from the end of the one before and the learners' counts."""
    names = ("elapsed_s", "consumed", "time_ratio", "data_ratio")
    if not (view.horizon.mode and view.horizon.running):
        return dict.fromkeys((f"r3.{name}" for name in names), None)
    over = [each for each in view.decisions if KINDS[each.kind] in OVER]
    consumed = max(each["samples_consumed"] for each in view.learners) - ended_samples(view)
    # One that has used its budget is over, though its end may not have been seen.
    over_budget = consumed >= wanted["data_budget"]
    used = Between(0 if over_budget else max(0, consumed - unaccounted(view)), consumed)
    found: Found = {
        "r3.consumed": used,
        "r3.data_ratio": Between(
            used.low / wanted["data_budget"], used.high / wanted["data_budget"]
        ),
    }
    if over:
        passed_s = view.at - over[-1].time_ns / NANO
        least_s = max(0.0, passed_s - LOOK_S)
        found["r3.elapsed_s"] = Between(least_s, passed_s)
        found["r3.time_ratio"] = Between(
            least_s / wanted["deadline_s"], passed_s / wanted["deadline_s"]
        )
    return found


def horizon_between(before: View, after: View, wanted: Mapping[str, Any]) -> Found:
    """What may be said of a horizon between two looks where one has ended meanwhile.

    It is anything from the beginning of the next to the end of the one that was over.
    """
    meanwhile = after.decisions[len(before.decisions):]
    if not any(KINDS[each.kind] in OVER for each in meanwhile):
        return {}
    budget, deadline_s = wanted["data_budget"], wanted["deadline_s"]
    used = Between(0, budget + unaccounted(before))
    passed = Between(0.0, deadline_s + LOOK_S)
    return {
        "r3.consumed": used, "r3.data_ratio": Between(0.0, used.high / budget),
        "r3.elapsed_s": passed, "r3.time_ratio": Between(0.0, passed.high / deadline_s),
    }


def sizes_between(before: View, after: View) -> Found:
    """The batch size between two looks: it may have gone up and down more than once."""
    sizes = [each.after for each in after.decisions[len(before.decisions):]]
    return {"learning.batch_size": Between(min(sizes), max(sizes))} if sizes else {}


def evaluation(events: Sequence[Mapping[str, Any]]) -> Found:
    """Figures of evaluations, from their events, newest first."""
    done = [each for each in events if each["kind"] == "evaluation"]
    newest = done[0] if done else {}
    path = "learning.evaluation"
    return {
        f"{path}.evaluations": len(done),
        f"{path}.episodes": sum(len(each["returns"]) for each in done),
        f"{path}.mean_return": statistics.fmean(newest["returns"]) if newest else None,
        f"{path}.updates": newest.get("updates"),
        f"{path}.weights_version": newest.get("weights_version"),
    }
