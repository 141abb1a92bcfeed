"""The comparison on Duel: what is shown, and what is counted."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.experiments import duel
from benchmarks.experiments.duel import curves
from benchmarks.worlds.duel_demonstration import record
from benchmarks.worlds.duel_players import DelayedView, view_of
from rtagent.env.gameboy.duel import ENCOUNTERS, Duel
from rtagent.memory.ledger import TERMINATED
from rtagent.storage.demonstration_file import load_demonstration


def run_of(contender: str, *won_at_s: float) -> dict:
    return {"contender": contender, "won_at_s": list(won_at_s)}


def test_a_delayed_view_shows_what_was():
    env = Duel()
    env.reset(seed=0)
    delayed, now, seen = DelayedView(env, 3), view_of(env), []
    for _ in range(40):
        delayed.look()
        seen.append((now["cursor"], now["screen"], now["opponent_hp"]))
        assert (delayed["cursor"], delayed["screen"], delayed["opponent_hp"]) == seen[-3:][0]
        env.step(0)
    env.close()
    assert len(set(seen)) > 2


def test_what_is_shown_wins_and_can_be_loaded(tmp_path):
    path = tmp_path / "play.demo"
    won_per_minute = record(path, 1500, 6, 0)
    shown = load_demonstration(path)
    minutes = len(shown.rewards) / Duel.rate_hz / 60.0
    assert len(shown.rewards) >= 1500
    assert (shown.rewards > 0).sum() / minutes == pytest.approx(won_per_minute)
    # A random player wins one encounter in 900 ticks, and hardly any of the later ones.
    assert (shown.rewards > 0).sum() >= 2
    assert (shown.flags[shown.rewards != 0] == TERMINATED).all()
    assert 0 < len(np.unique(shown.episodes)) <= ENCOUNTERS


def test_both_are_shown_the_same_share_of_decisions(tmp_path, monkeypatch):
    """Of what each has decided after any time: the single process decides at every fifth tick."""
    recorded = {}

    def note(path, ticks, delay, seed, interval):
        recorded[path.name.partition("-")[0]] = (ticks, delay, interval)
        return 0.0

    monkeypatch.setattr(duel, "record", note)
    often, seldom = (
        duel.demonstrate(tmp_path, name, 0, 32_000) for name in ("staggered", "sequential")
    )
    assert recorded == {"staggered": (32_000, 6, 1), "sequential": (6400 * 6, 6, 6)}
    assert often.decisions == duel.TICKS_OF_LATENCY * seldom.decisions
    assert (often.interval, seldom.interval) == (1, 6)


def test_a_player_who_decides_seldom_does_nothing_in_between(tmp_path):
    path = tmp_path / "play.demo"
    assert record(path, 900, 6, 0, interval=6) > 0.0
    shown = load_demonstration(path)
    starts = np.searchsorted(shown.episodes, shown.episodes)
    between = (np.arange(len(starts)) - starts - 1) % 6 != 0
    assert (shown.actions[between] == Duel().noop_action).all()
    assert (shown.actions[~between] != Duel().noop_action).mean() > 0.9


def test_wins_are_counted_over_time():
    minutes, mean, half = curves([run_of("staggered", 60.0, 120.0), run_of("staggered", 240.0)], 5)
    assert [mean[np.searchsorted(minutes, at)] for at in (0.5, 1.5, 3.0, 5.0)] == [0, 0.5, 1, 1.5]
    assert half[-1] > half[0] == 0.0
