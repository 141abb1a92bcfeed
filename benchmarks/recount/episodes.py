"""Episodes, their trend and their windows, counted again from the rows of the ledger."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.recount.agreement import Found, OneOf
from benchmarks.recount.raw_ledger import EPISODES, NANO, Rows
from benchmarks.recount.witness import View

TREND_EPISODES, LEAST_EPISODES, MOST_CHANCE = 200, 20, 0.001


def against_windows(view: View, window: int, since: float) -> Found:
    """`r3.alpha` and `r3.beta` of the newest episode, or of one that ended after `since` (s)."""
    rows = view.rows
    first = int(np.searchsorted(rows["time_ns"], since * NANO))
    ends = [n for n in np.flatnonzero(rows["flags"]) + 1 if n > first]
    pairs = [against_window(rows[:n], window) for n in (first, *ends)]
    return {
        "r3.alpha": OneOf(tuple(alpha for alpha, _ in pairs)),
        "r3.beta": OneOf(tuple(beta for _, beta in pairs)),
    }


def against_window(rows: Rows, window: int) -> tuple[float | None, float | None]:
    """Runtime and return of the newest episode against the means before it (R3, Eq. 4)."""
    played = finished(rows)[-window - 1 :]
    if len(played) < 2:
        return None, None
    *before, (value, length) = played
    alpha = length / statistics.fmean(each[1] for each in before)
    returns = [each[0] for each in before]
    mean = statistics.fmean(returns)
    if value > 0.0 and min(returns) > 0.0:
        return alpha, value / mean
    scale = max(abs(mean), statistics.pstdev(returns))
    if scale > 0.0:
        return alpha, 1.0 + (value - mean) / scale
    return alpha, 1.0 + (value > mean) - (value < mean)


def episodes(view: View) -> Found:
    """Section `episodes`, from the rewards between the rows that ended an episode."""
    played = finished(view.rows)
    last = played[-EPISODES:]
    return {
        "episodes.count": len(played),
        "episodes.last_return": last[-1][0] if last else None,
        "episodes.mean_return_100": statistics.fmean(e[0] for e in last) if last else None,
        "episodes.mean_length_100": statistics.fmean(e[1] for e in last) if last else None,
        **trend([value for value, _ in played[-TREND_EPISODES:]]),
    }


def trend(returns: Sequence[float]) -> Found:
    """The newer half of the returns against the older: Mann and Whitney's test, pair by pair."""
    half = len(returns) // 2
    found: Found = dict.fromkeys(("direction", "change", "episodes", "p_value"))
    if 2 * half >= LEAST_EPISODES:
        newer, older = returns[-half:], returns[-2 * half : -half]
        wins = sum((a > b) + 0.5 * (a == b) for a in newer for b in older)
        ties = sum(n**3 - n for n in Counter([*newer, *older]).values())
        both = 2 * half
        variance = half * half / 12 * (both + 1 - ties / (both * (both - 1)))
        change = statistics.fmean(newer) - statistics.fmean(older)
        beyond = max(0.0, abs(wins - half * half / 2) - 0.5)
        # Not 1 less a distribution function, which of a small p leaves nothing.
        p = math.erfc(beyond / math.sqrt(2 * variance)) if variance > 0 else 1.0
        found = {"episodes": both, "change": change, "p_value": p, "direction": "steady"}
        # Means and ranks may say the opposite, where one return is far off.
        if p <= MOST_CHANCE and change * (wins - half * half / 2) > 0:
            found["direction"] = "rising" if change > 0 else "falling"
    return {f"episodes.trend.{name}": value for name, value in found.items()}


def finished(rows: Rows) -> list[tuple[float, int]]:
    """Return and length of every finished episode."""
    ends = np.flatnonzero(rows["flags"]) + 1
    starts = np.concatenate([[0], ends[:-1]])
    totals = np.concatenate([[0.0], np.cumsum(rows["reward"].astype(np.float64))])
    return [
        (float(totals[end] - totals[start]), int(end - start))
        for start, end in zip(starts, ends, strict=False)
    ]
