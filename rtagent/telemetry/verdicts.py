"""What figures mean: is the agent in time, at what cost, learning; is anything broken?

Pure: figures and status in, sentences out. The page, `rtagent watch` and `/v1/stats` show these;
every threshold stands here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rtagent.telemetry.cluster import in_a_line
from rtagent.telemetry.figures.cluster import Cluster
from rtagent.telemetry.figures.document import Stats, Verdict, Verdicts
from rtagent.telemetry.learning import RATE_OVER_NS
from rtagent.telemetry.rewards import reward_text
from rtagent.telemetry.shares import rounded_share
from rtagent.telemetry.stats import WINDOW_S

IN_TIME = 0.01
"""Inaction up to here is in time ..."""
TOO_LATE = 0.10
"""... and from here on too late; in between it is often late."""
LATE_INTERACTION = 1.02
"""Times between actions up to so many deadlines are in time."""
LITTLE_DISAGREEMENT = 0.15
MUCH_DISAGREEMENT = 0.5
SLOW_RATE = 0.95
"""A world that reaches less of its rate, by its own steps, is too slow."""
SLOW_UPDATE_MS = RATE_OVER_NS / 1e6
"""The time over which the rate of updates is taken: with longer ones it may be 0 or unknown."""
EVEN = 0.1
"""Up to here, exclusive, the coefficient of variation of interaction times is even ..."""
UNEVEN = 0.3
"""... and from here on very uneven."""
ON_SCHEDULE = 0.03
"""Data and time of a horizon may differ by so much."""
WELL = ("running", "stopping")
NAMED = 2
NEEDED = ("environment", "inference", "learner")
"""Without these there is no training."""

Document = Mapping[str, Any]


def verdicts(stats: Stats, status: Document) -> Verdicts:
    """All of them.

    Args:
        status: as `GET /v1/status`.
    """
    return Verdicts(
        acting=acting(stats, status), lateness=lateness(stats), learning=learning(stats),
        health=health(status), evenness=evenness(stats), schedule=schedule(stats),
        cluster=None if stats.cluster is None else link(stats.cluster),
    )


def acting(stats: Stats, status: Document) -> Verdict:
    """Is it acting in time? A world that does not keep its own rate comes first."""
    world = _world(stats, status)
    if world is not None:
        return world
    remote = stats.inference.remote
    if remote is not None and not remote.connected and stats.inference.ready:
        return Verdict(
            "bad", "No policy server answers", "The world goes on with its default behaviour"
        )
    inaction, window = stats.actions.inaction_fraction_window, _window(stats)
    ready, wanted = stats.inference.ready, stats.inference.processes
    processes = f"{_count(ready)} of {_count(wanted)} processes run"
    if inaction is None:
        return Verdict("none", "Not known yet", f"No tick {window}; {processes}")
    share = f"inaction {_percent(inaction)} {window}"
    rate, deadline = stats.clock.target_rate_hz, _deadline_ms(status)
    if rate and deadline and deadline > 1e3 / rate:
        # With a deadline of several ticks the agent need not act on each tick.
        level, headline = _by_deadline(stats, inaction, deadline)
        return Verdict(level, headline, f"The deadline is {deadline:g} ms; {share}; {processes}")
    level = _graded(inaction, IN_TIME, TOO_LATE)
    word = {"good": "In time", "watch": "Often late", "bad": "Too late"}[level]
    acted = "no tick" if inaction == 1.0 else f"{_percent(1.0 - inaction)} of ticks"
    return Verdict(level, f"{word}: acting on {acted}", f"I{share[1:]}; {processes}")


def lateness(stats: Stats) -> Verdict:
    """What does being late cost? How old actions are, and how often others would be chosen now."""
    delay, rate = stats.actions.delay_ticks.mean, stats.clock.target_rate_hz
    if delay is None:
        return Verdict("none", "Not known yet", f"No action {_window(stats)}")
    headline = f"Actions are {delay:.1f} ticks old"
    age = f"{1e3 * delay / rate:.0f} ms late; " if rate else ""
    disagreement = stats.actions.disagreement
    if disagreement is None:
        return Verdict("none", headline, f"{age}what that changes is unknown")
    return Verdict(
        _graded(disagreement, LITTLE_DISAGREEMENT, MUCH_DISAGREEMENT), headline,
        f"{age}{_percent(disagreement)} are not what the agent chose on seeing the newest frame",
    )


def learning(stats: Stats) -> Verdict:
    """Is it learning? A trend is named only if `rtagent.telemetry.trend` finds one."""
    value, rate = stats.episodes.mean_return_100, stats.learning.updates_per_s
    returned = "no episode has ended yet" if value is None else f"return {reward_text(value)}"
    if not stats.learning.processes:
        return Verdict("none", "Not learning", f"There is no learner; {returned}")
    if stats.learning.paused:
        return Verdict("watch", "Learning is paused", f"As requested; {returned}")
    if stats.cluster is not None and not stats.cluster.connected:
        return replace(link(stats.cluster), detail=f"{in_a_line(stats.cluster)}; {returned}")
    starting = any(each.state == "starting" for each in stats.learning.workers)
    if not stats.learning.updates or stats.learning.loss is None:
        since = "since the start" if stats.learning.updates else "so far"
        hindrance = None if starting else _hindrance(stats)
        waits = hindrance or "a learner needs data first, and a core that nobody else needs"
        level = "watch" if hindrance else "none"
        return Verdict(level, "Not learning yet", f"No update {since}: {waits}; {returned}")
    longest_ms = max((each.update_ms or 0.0 for each in stats.learning.workers), default=0.0)
    if not rate and not starting and longest_ms > SLOW_UPDATE_MS:
        # While it computes one, a learner is as silent as one that is broken.
        return Verdict(
            "watch", "Learning is slow", f"An update takes {longest_ms / 1e3:.0f} s; {returned}"
        )
    # For the first second a learner has no rate.
    if rate is None and (starting or stats.learning.silent == 0):
        return Verdict("watch", "Not learning yet", f"A learner is starting; {returned}")
    if rate is None:
        return Verdict("bad", "Learning stands still", f"The learners are silent; {returned}")
    pace = f"{rate:.1f} updates/s, loss {stats.learning.loss:.3g}"
    if not rate and stats.learning.skipped:
        pace += f", {stats.learning.skipped} left out as not finite"
    if value is None:
        return Verdict("none", "Learning", f"No episode has ended yet; {pace}")
    direction, episodes = stats.episodes.trend.direction, stats.episodes.count
    if direction is None:
        return Verdict(
            "none", f"Learning: return {reward_text(value)}",
            f"Too few episodes for a trend: {_count(episodes)}; {pace}",
        )
    seen = stats.episodes.trend.episodes
    if direction == "steady":
        told = f"No significant trend in the last {seen} episodes"
        return Verdict("none", f"Learning: return {reward_text(value)}", f"{told}; {pace}")
    change = stats.episodes.trend.change or 0.0
    return Verdict(
        "good" if direction == "rising" else "watch",
        f"Learning: return {reward_text(value)} and {direction}",
        f"{reward_text(change, '+')} from the older to the newer half of the last {seen} episodes; "
        f"{pace}",
    )


def _hindrance(stats: Stats) -> str | None:
    """Why there may be nothing to learn from, however long a learner waits, if that is known."""
    skipped = stats.learning.skipped
    if skipped:
        return f"loss or gradient was not finite, {_plural(skipped, 'update')} left out"
    length, delay = stats.episodes.mean_length_100, stats.actions.delay_ticks.mean
    if length is not None and delay is not None and length <= delay:
        return (
            f"episodes of {length:.1f} ticks are over before an action that was computed from one "
            f"of their frames comes, {delay:.1f} ticks later"
        )
    limit = stats.replay.limit
    if limit and stats.clock.ticks >= limit:
        return (
            f"the replay is full, and what is learned from at once (learning.n_step, rollout, "
            f"burn_in + sequence) may take more than its {_count(limit)} ticks; or a learner has "
            "no core"
        )
    return None


def health(status: Document) -> Verdict:
    """Is anything broken? By the states of the processes."""
    roles = list(status.get("roles") or ())
    if not roles:
        return Verdict("none", "Not known yet", "No process has reported")
    failed = [role for role in roles if role.get("state") == "failed"]
    if failed:
        have = "has" if len(failed) == 1 else "have"
        return Verdict("bad", f"{_named(failed)} {have} failed", _last_line(failed[0]))
    restarts = sum(int(role.get("restarts") or 0) for role in roles)
    # Those of a process that has been sent away are not in the status.
    so_far = f"{_plural(restarts, 'restart') if restarts else 'no restarts'} of present processes"
    unwell = [role for role in roles if role.get("state") not in WELL]
    if unwell:
        what = "restarting" if any(role.get("restarts") for role in unwell) else "starting"
        be = "process is" if len(unwell) == 1 else "processes are"
        return Verdict("watch", f"{len(unwell)} {be} {what}", f"{_named(unwell)}; {so_far}")
    if status.get("state") == "stopping":
        return Verdict("watch", "The daemon is stopping", "As requested")
    run = "runs" if len(roles) == 1 else "run"
    return Verdict(
        "good", "Nothing is broken", f"{_plural(len(roles), 'process', 'es')} {run}; {so_far}"
    )


def failure_in(status: Document) -> str | None:
    """The error of a process that keeps failing and that training needs, in a line, or None."""
    for role in status.get("roles", ()):
        if role["state"] == "failed" and role["role"] in NEEDED:
            return f"{role['name']} has failed: {_last_line(role)}"
    return None


def evenness(stats: Stats) -> Verdict:
    """Do actions come evenly?"""
    cv = stats.actions.interaction_ms.cv
    if cv is None:
        return Verdict("none", "", "Too few actions")
    word = "even" if cv < EVEN else "uneven" if cv < UNEVEN else "very uneven"
    level = {"even": "good", "uneven": "watch", "very uneven": "bad"}[word]
    return Verdict(level, word, f"Interaction time, CV {cv:.2f}")


def link(cluster: Cluster) -> Verdict:
    """How is the link to the cluster?"""
    if cluster.connected:
        return Verdict("good", "The cluster is connected", in_a_line(cluster))
    return Verdict("watch", "The cluster is cut off", in_a_line(cluster))


def schedule(stats: Stats) -> Verdict:
    """Is the data of the horizon used as fast as its time?"""
    time, data = stats.r3.time_ratio, stats.r3.data_ratio
    if time is None or data is None:
        return Verdict("none", "No horizon", "none is under way")
    ahead = data - time
    if abs(ahead) <= ON_SCHEDULE:
        return Verdict("good", "On schedule", "data and time are used evenly")
    used = "of the data than of the time is used"
    if ahead > 0.0:
        return Verdict("good", "Ahead", f"{_percent(ahead)} more {used}")
    return Verdict("watch", "Behind", f"{_percent(-ahead)} less {used}")


def _world(stats: Stats, status: Document) -> Verdict | None:
    """What keeps the world from its ticks; None if nothing does."""
    roles: list[Document] = [
        role for role in status.get("roles") or () if role.get("role") == "environment"
    ]
    role = roles[0] if roles else {}
    state = role.get("state")
    if state == "failed":
        return Verdict("bad", "The world stands still", f"It has failed: {_last_line(role)}")
    if state == "backoff":
        return Verdict("bad", "The world is started again", f"It has died: {_last_line(role)}")
    rate, target = stats.clock.rate_hz, stats.clock.target_rate_hz
    step_us = stats.clock.step_us.p50
    if rate and target and step_us and rate < SLOW_RATE * target and step_us * target > 0.9e6:
        return Verdict(
            "bad",
            "The world is too slow",
            f"The environment's step takes {_ms(step_us / 1e3)} of a {_ms(1e3 / target)} tick: "
            f"it runs at {rate:.3g} of {target:.3g} Hz, whatever the agent does",
        )
    if role.get("busy"):
        return Verdict("watch", f"The world is {role['busy']}", "No tick passes meanwhile")
    return None


def _by_deadline(stats: Stats, inaction: float, deadline_ms: float) -> tuple[str, str]:
    """Level and headline where the agent need not act on each tick."""
    interval = stats.actions.interaction_ms.mean
    if interval is not None:
        late = interval > LATE_INTERACTION * deadline_ms
        word = "Too late" if late else "In time"
        return "bad" if late else "good", f"{word}: an action every {interval:.1f} ms"
    # Fewer than two new actions. A single one divides the time in two, and both may be in time.
    parts = 1 if inaction == 1.0 else 2
    if 1e3 * _covered_s(stats) <= parts * LATE_INTERACTION * deadline_ms:
        return "none", "Not known yet"
    return "bad", f"Too late: {'acting on no tick' if parts == 1 else 'at most one new action'}"


def _covered_s(stats: Stats) -> float:
    """How much time the figures cover, seconds; 0 if that is not known."""
    known = (each for each in (stats.clock.window_s, stats.clock.uptime_s) if each is not None)
    return min(known, default=0.0)


def _window(stats: Stats) -> str:
    """The time that the figures cover: less than a minute after a start or a change of settings, or
    with a short replay."""
    seconds, uptime = stats.clock.window_s, stats.clock.uptime_s
    if seconds is not None and seconds < WINDOW_S:
        return f"in the last {seconds:.0f} s"
    if uptime is not None and uptime < WINDOW_S:
        return f"in the {uptime:.0f} s since the start"
    return "in the last minute"


def _deadline_ms(status: Document) -> float | None:
    config: Document = status.get("config") or {}
    found = (config.get("inference") or {}).get("action_deadline_ms")
    return None if found is None else float(found)


def _graded(value: float, good: float, poor: float) -> str:
    return "good" if value <= good else "watch" if value < poor else "bad"


def _named(roles: list[Document]) -> str:
    if len(roles) > NAMED:
        return _plural(len(roles), "process", "es")
    return " and ".join(str(role.get("name")) for role in roles)


def _last_line(role: Document) -> str:
    lines = str(role.get("last_error") or "").strip().splitlines()
    return lines[-1].strip() if lines else "it gave no reason"


def _plural(count: int, word: str, ending: str = "s") -> str:
    return f"{count} {word}{'' if count == 1 else ending}"


def _count(value: Any) -> str:
    return "unknown" if value is None else f"{value}"


def _percent(share: float) -> str:
    percent = 100.0 * rounded_share(share)
    places = 1 if 0.1 <= percent <= 99.9 or percent in (0.0, 100.0) else 2
    return f"{percent:.{places}f} %"


def _ms(value: float) -> str:
    return f"{value:.3g} ms" if value < 100.0 else f"{value:.0f} ms"
