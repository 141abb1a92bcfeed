"""From what a trial found to a verdict and advice: pure functions, one for each check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from rtagent.testing.findings import Findings
from rtagent.testing.observing import NO_NUMBER, NOT_FINITE
from rtagent.testing.report import Check, Verdict

SHOWN = 3
"""Different problems of one kind that are named."""
QUIET = 0.25
"""A machine that wakes up later than this share of a tick cannot time a step."""

NOT_REACHED = "not reached"
NOT_FINITE_ADVICE = "each such tick cuts its episode short; find where it comes from"
NO_NUMBER_ADVICE = "a reward that is no number ends its process each time; return a float"

Judged: TypeAlias = "tuple[Verdict, str] | tuple[Verdict, str, str]"
"""The end of a `Check`."""


def judge(findings: Findings) -> list[Check]:
    """Every check whose facts a trial collects, in the order of the table."""
    return [Check(name, *check(findings)) for name, check in _CHECKS.items()]


def _step_time(found: Findings) -> Judged:
    """Compare p99 of a step with the tick, unless the machine itself is too late."""
    if not found.steps_s or not found.rate_hz:
        return "skip", NOT_REACHED
    tick = 1.0 / found.rate_hz
    p50, p99 = np.percentile(found.steps_s, (50, 99))
    floor = float(np.percentile(found.late_s, 99)) if found.late_s else None
    told = (
        f"p50 {_ms(p50)}, p99 {_ms(p99)}, max {_ms(max(found.steps_s))} of a tick of {_ms(tick)} "
        f"({len(found.steps_s)} steps); "
        + ("no time was left between them" if floor is None else
           f"the machine woke up p99 {_ms(floor)} late")
    )
    busy = floor is not None and floor > QUIET * tick
    if p99 <= tick / 2:
        return "ok", told
    slower = f"set env.rate_hz to {_round_down(0.5 / p99):g} or less, or make the step faster"
    if p50 > tick:
        return "fail", told, slower + ("; the machine is busy, too" if busy else "")
    if p99 > tick:
        if busy:
            return "warn", told, "the machine is too busy to tell: repeat when it is quiet"
        return "fail", told, slower
    return "warn", told, "little of the tick is left; " + slower


def _reset_time(found: Findings) -> Judged:
    """Compare the time that the world stands still between two episodes with the tick."""
    if not found.resets_s or not found.rate_hz:
        return "skip", NOT_REACHED
    longest = max(found.resets_s)
    ticks = longest * found.rate_hz
    told = f"at most {_ms(longest)}, which is {ticks:.1f} ticks ({len(found.resets_s)} resets)"
    if ticks <= 1.0:
        return "ok", told
    # In the first of them an episode has ended, and in the last the agent acts, late.
    missed = int(ticks) - 1
    if missed > found.max_catch_up_ticks:
        cost = "the clock slips at the start of each episode"
    elif missed:
        cost = f"the default behaviour fills {missed} of them at each start"
    else:
        cost = "the first tick of each episode is late"
    return "warn", told, f"{cost}; prepare what is slow at construction, and restore it"


def _usable(found: Findings) -> Judged:
    if found.refusal is not None:
        return "fail", found.refusal, 'see the page "Use an environment of your own"'
    if found.rate_hz is None:
        return "skip", NOT_REACHED
    seen = f"; the agent sees {found.sight}" if found.sight else ""
    return "ok", f"at {found.rate_hz:g} Hz{seen}"


def _errors(found: Findings) -> Judged:
    if found.error is not None:
        return "fail", found.error, "an environment that raises ends its process each time"
    return ("ok", "none") if found.rate_hz is not None else ("skip", NOT_REACHED)


def _spaces(found: Findings) -> Judged:
    if found.outside_bounds and not found.spaces:
        told = f"values outside the bounds of the space ({found.outside_bounds} times)"
        return "warn", told, "pictures are clipped, vectors are not; widen the space"
    advice = NOT_FINITE_ADVICE if NOT_FINITE in found.spaces else "convert the observation"
    return _problems(found, found.spaces, "every observation is in its space", advice)


def _rewards(found: Findings) -> Judged:
    no_number = any(problem.endswith(NO_NUMBER) for problem in found.rewards)
    advice = NO_NUMBER_ADVICE if no_number else NOT_FINITE_ADVICE
    return _problems(found, found.rewards, "all finite numbers", advice)


def _episode_ends(found: Findings) -> Judged:
    if found.flags:
        return "fail", _listed(found.flags), "return bool, as Gymnasium has it"
    if not found.steps_s:
        return "skip", NOT_REACHED
    if not found.ended:
        return "ok", f"no episode ended within {len(found.steps_s)} steps"
    count, ticks = len(found.ended), np.mean(found.ended)
    told = f"{count} episode{'s' * (count > 1)} of random actions, {ticks:.1f} ticks each"
    if max(found.ended) == 1:
        return "warn", told, "every episode is over after one tick"
    return "ok", told


def _determinism(found: Findings) -> Judged:
    if found.nondeterministic:
        return "skip", "registered as nondeterministic"
    if found.repeats is False:
        return (
            "fail", "the same seed and actions give another episode",
            "draw from self.np_random alone, or register with nondeterministic=True",
        )
    if found.repeats_afresh is False:
        return (
            "fail", "a new environment gives another episode for the same seed and actions",
            "let reset(seed=...) set everything, or register with nondeterministic=True",
        )
    if found.repeats_afresh is None:
        return "skip", NOT_REACHED
    return "ok", "the same seed and actions give the same episode, afresh, too"


def _noop(found: Findings) -> Judged:
    if found.noop_declared is None:
        return "skip", NOT_REACHED
    end = "and ended the episode" if found.noop_ended else "and it goes on"
    told = f"{found.noop}: {found.noop_ticks} ticks of it return {found.noop_return:g} {end}"
    if found.noop_faults:
        return "fail", told, f"{found.noop_faults} of these ticks gave a number that is not finite"
    if not found.noop_declared:
        return (
            "warn", told,
            "the environment does not say what does nothing: give it an attribute noop_action, "
            "or set env.default_action",
        )
    return "ok", told


def _close(found: Findings) -> Judged:
    first, then = found.closed, found.closed_again
    if first is None or then is None:
        return "skip", NOT_REACHED
    more = [f"{count - first[name]} more {name}" for name, count in then.items()
            if count > first[name]]
    if more:
        return "fail", f"{', '.join(more)} after each close", "end and close them in close()"
    if first["processes"] > 0:
        return "warn", f"{first['processes']} processes outlive close()", "end them in close()"
    return "ok", "nothing is left behind"


_CHECKS: dict[str, Callable[[Findings], Judged]] = {
    "usable": _usable,
    "errors": _errors,
    "step time": _step_time,
    "reset time": _reset_time,
    "spaces": _spaces,
    "rewards": _rewards,
    "episode ends": _episode_ends,
    "determinism": _determinism,
    "noop": _noop,
    "close": _close,
}


def _problems(found: Findings, problems: Counter[str], well: str, advice: str) -> Judged:
    if problems:
        return "fail", _listed(problems), advice
    return ("ok", well) if found.steps_s else ("skip", NOT_REACHED)


def _listed(problems: Counter[str]) -> str:
    listed = [f"{what} ({count} times)" for what, count in problems.most_common(SHOWN)]
    rest = len(problems) - len(listed)
    return "; ".join([*listed, f"{rest} other problems"] if rest else listed)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1.0 else f"{seconds * 1e3:.0f} ms"


def _round_down(value: float) -> float:
    """Down to two significant digits."""
    digit = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(np.floor(value / digit) * digit)
