"""What the dashboard shows besides figures of `GET /v1/stats`, explained for the page `/figures`.

The names of figures come from their declarations (`dashboard.py`). A test compares the labels of
the page and its scripts with these names, in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtagent.telemetry.trend import LEAST_EPISODES, MOST_CHANCE
from rtagent.telemetry.verdicts import (
    EVEN,
    IN_TIME,
    LATE_INTERACTION,
    LITTLE_DISAGREEMENT,
    MUCH_DISAGREEMENT,
    ON_SCHEDULE,
    TOO_LATE,
    UNEVEN,
)


@dataclass(frozen=True)
class Shown:
    """Something on the dashboard that is not a figure of `GET /v1/stats`.

    Attributes:
        names: its labels on the dashboard.
        text: its meaning.
        source: calls, or paths of figures, that it comes from.
    """

    names: tuple[str, ...]
    text: str
    source: str


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


IN_SHORT = (
    Shown(
        ("Is it acting in time?",),
        "Judged by inaction since the inference settings changed, at most in the last 60 s: up to "
        f"{_percent(IN_TIME)} is in time, from {_percent(TOO_LATE)} on is too late, and in between "
        "is often late. With an action deadline of more than a tick, judged by the mean "
        f"interaction time: up to {LATE_INTERACTION:g} deadlines are in time. A world that has "
        "failed, or whose own steps take too long, is named first.",
        "actions.inaction_fraction_window, actions.interaction_ms.mean, clock, /v1/status",
    ),
    Shown(
        ("What does being late cost?",),
        "The mean delay of the executed actions in ticks and in milliseconds, and the "
        f"disagreement: up to {_percent(LITTLE_DISAGREEMENT)} is good, from "
        f"{_percent(MUCH_DISAGREEMENT)} on bad.",
        "actions.delay_ticks.mean, actions.disagreement",
    ),
    Shown(
        ("Is it learning?",),
        "The mean return of the last 100 episodes, with the trend of the newest episodes from "
        f"{LEAST_EPISODES} of them on; a trend is named only if chance alone makes one as large in "
        f"at most {_percent(MOST_CHANCE)} of cases.",
        "episodes.mean_return_100, episodes.trend, learning",
    ),
    Shown(
        ("Is anything broken?",),
        "Processes that have failed or are being started, restarts of present processes, and "
        "serious events of the last minute.",
        "/v1/status, /v1/events",
    ),
    Shown(
        ("run",),
        "The run's name; every start of the daemon begins a new one. Before it stands the state of "
        "the daemon: starting, running, degraded (a process is being restarted), failed, or "
        "stopping.",
        "/v1/status",
    ),
    Shown(
        ("acting",),
        "In the title of the window: the share of ticks of the last 60 s that did not execute the "
        "default behaviour, 1 - inaction.",
        "actions.inaction_fraction_60s",
    ),
    Shown(
        ("Executed", "observation"),
        "The newest tick's action: whether it came from the agent, was re-used, or is the default "
        "behaviour, the process that computed it, and the age of its observation in ticks.",
        "/v1/timeline",
    ),
)
STAGGERING = (
    Shown(
        ("one inference, from observation to action", "median"),
        "A bar from the frame that a process observed, or from its previous action if that was "
        "later, to the moment when it registered the action. Below the picture is the median of "
        "the bars drawn.",
        "/v1/timeline",
    ),
    Shown(("longest",), "The longest inference of those drawn.", "/v1/timeline"),
    Shown(
        ("outlier", "outliers"),
        "An inference that took more than 1.75 times the median of those drawn, and more than "
        "0.25 ticks longer.",
        "/v1/timeline",
    ),
    Shown(
        ("tick: action of the agent", "tick: re-used action", "tick: default action (inaction)"),
        "A tick by the source of the action that it executed: a line for an action of the agent "
        "that is meant for this tick or is late, a hollow box for an action that is meant for a "
        "later tick and is used early, a full box with a cross for the default behaviour, because "
        "no action was ready. The ticks drawn are counted below the picture.",
        "/v1/timeline",
    ),
)
ACTING = (
    Shown(
        ("even", "uneven", "very uneven"),
        "The coefficient of variation (CV) of the interaction time in words: even below "
        f"{EVEN:g}, uneven below {UNEVEN:g}, and very uneven from there on.",
        "verdicts.evenness, from actions.interaction_ms.cv",
    ),
    Shown(
        ("Age of the executed actions, in ticks", "Delays", "none", "no action"),
        "How many of the newest ticks, at most 4,096, executed an action whose observation was so "
        "many ticks old. The bar named none counts ticks with the default behaviour.",
        "/v1/timeline",
    ),
)
DEADLINE = (
    Shown(
        ("On schedule", "Ahead", "Behind"),
        "Compares the used share of the data with that of the time: up to a difference of "
        f"{_percent(ON_SCHEDULE)} it is on schedule.",
        "verdicts.schedule, from r3.data_ratio and r3.time_ratio",
    ),
    Shown(
        ("memory",),
        "Memory of all processes, batches and replay together, and the budget for them.",
        "r3.used_bytes, r3.memory_budget_bytes",
    ),
    Shown(
        ("replay",), "Ticks that the replay holds, and how many it can hold.",
        "replay.size, replay.capacity",
    ),
)
PROCESSES = (
    Shown(("Process",), "Its role, and its number where there are several.", "/v1/status"),
    Shown(
        ("State",),
        "One of starting, running, backoff (it died and waits to be started again), failed, "
        "stopping or stopped; for the environment also stepping or resetting, if that takes more "
        "than a second, and more than a tick.",
        "/v1/status",
    ),
    Shown(("PID",), "Process id.", "/v1/status"),
    Shown(("Restarts",), "Times the process was replaced.", "/v1/status"),
    Shown(("Last error",), "Why it last died.", "/v1/status"),
)
SHOWN: Sequence[Shown] = (*IN_SHORT, *STAGGERING, *ACTING, *PROCESSES, *DEADLINE)
