import statistics
import time
from contextlib import closing

import numpy as np
import pytest

from benchmarks.worlds import duel_players as players
from benchmarks.worlds.duel_players import DOWN, LEFT, NOOP, RIGHT, UP, A, B, play, view_of
from rtagent.env.gameboy.duel import COMMANDS, ENCOUNTERS, MOVES, RESULT, TELLING, Duel
from rtagent.env.gameboy.rom import BUNDLED, read_manifest

ROM = read_manifest(BUNDLED / "duel")
RIVAL = 2
"""An encounter whose opponent cannot be caught."""


@pytest.fixture
def duel():
    with closing(Duel(render_mode="rgb_array")) as env:
        yield env


@pytest.fixture
def tap(duel):
    """Press an action for one tick, and let go for another."""

    def tap(*actions):
        for action in actions:
            duel.step(action)
            duel.step(NOOP)

    return tap


def wait_for(duel, screen, action=NOOP):
    view = view_of(duel)
    for _ in range(200):
        if view["screen"] == screen:
            return
        duel.step(action)
    raise AssertionError(f"screen {view['screen']}, not {screen}")


def test_rewards_are_what_the_machines_memory_says(duel):
    ram, at = duel._machine.ram, ROM.addresses
    view = view_of(duel)
    _, before = duel.reset(seed=0)
    seen = set()
    # Play well for two encounters, then only guard: a loss.
    for tick in range(4000):
        well = len(seen) < 2
        action = players.competent(view, tick) if well else _only_guard(view, tick)
        _, reward, decided, truncated, info = duel.step(action)
        for name in ("wins", "catches", "losses"):
            assert info[name] == ram.u16le(at[name])
        gained = info["wins"] + info["catches"] - before["wins"] - before["catches"]
        lost = info["losses"] - before["losses"]
        assert reward == gained - lost
        assert decided == (reward != 0)
        assert not truncated
        before = info
        if decided:
            seen.add((reward, ram.u8(at["outcome"])))
            before = duel.reset()[1]
            if reward < 0:
                break
    assert seen == {(1.0, 1), (1.0, 2), (-1.0, 3)}


def _only_guard(view, tick):
    if view["screen"] == COMMANDS and view["cursor"] != 3 and tick % 2 == 0:
        return RIGHT if not view["cursor"] & 1 else DOWN
    return A if tick % 2 == 0 and view["screen"] != TELLING else B


def test_a_sequence_goes_on_to_the_next_and_repeats_what_was_lost(duel):
    _, info = duel.reset(seed=1)
    assert info["encounter"] == 1
    view = view_of(duel)
    for expected in (1, 2, 3):
        _run_until_decided(duel, players.competent)
        assert view["encounter"] == expected
        duel.reset()
        wait_for(duel, COMMANDS)
        assert view["encounter"] == expected + 1
    losses = duel.reset(options={"encounter": 40})[1]["losses"]
    assert _run_until_decided(duel, _only_guard)[1]["losses"] == losses + 1
    duel.reset()
    wait_for(duel, COMMANDS)
    assert view["encounter"] == 40


def _run_until_decided(duel, player):
    """The last tick's reward and figures."""
    view, tick = view_of(duel), 0
    while True:
        _, reward, decided, truncated, info = duel.step(player(view, tick))
        tick += 1
        assert not truncated
        if decided:
            return reward, info


@pytest.mark.parametrize(("player", "reward"), [(players.competent, 1.0), (_only_guard, -1.0)])
def test_a_counter_that_begins_at_0_again_costs_nothing(duel, player, reward):
    """After two days of a good player the machine has counted 65,535 successes."""
    duel.reset(seed=0)
    for name in ("wins", "catches", "losses"):
        duel._machine.ram.set_u16le(ROM.addresses[name], 0xFFFF)
    duel.step(NOOP)
    assert _run_until_decided(duel, player)[0] == reward


def test_every_encounter_has_a_saved_state_and_no_two_opponents_are_the_same(duel):
    view, opponents = view_of(duel), set()
    for encounter in range(1, ENCOUNTERS + 1):
        _, info = duel.reset(options={"encounter": encounter})
        assert info["encounter"] == view["encounter"] == encounter
        assert (info["screen"], info["turn"], info["wins"]) == (COMMANDS, 0, 0)
        opponent = view.opponent
        assert opponent.hp == opponent.hp_max > 0
        assert opponent.type == opponent.species // 2
        opponents.add((
            opponent.species, view["opponent_level"], opponent.hp_max,
            tuple(view.opponent_moves), view["opponent_potions"], view["wild"],
        ))
    assert len(opponents) == ENCOUNTERS
    assert len({species for species, *_ in opponents}) == 12


def test_nothing_happens_until_the_player_has_chosen(duel):
    duel.reset(seed=0)
    ram, at = duel._machine.ram, ROM.addresses
    still = [address for name, address in at.items() if name not in ("frame", "title", "chance")]
    before = [ram.u8(address) for address in still]
    for _ in range(300):
        assert duel.step(NOOP)[1] == 0.0
    assert [ram.u8(address) for address in still] == before


def test_a_key_counts_once_when_it_goes_down_and_again_after_twelve_frames(duel):
    duel.reset(seed=0)
    view = view_of(duel)
    screens = []
    for _ in range(13):
        duel.step(A)
        screens.append(view["screen"])
    assert screens == [MOVES] * 12 + [TELLING]


def test_the_cursor_goes_where_the_keys_point(duel, tap):
    duel.reset(seed=0)
    view = view_of(duel)
    for action, expected in (
        (RIGHT, 1), (DOWN, 3), (LEFT, 2), (LEFT, 2), (UP, 0), (UP, 0), (RIGHT, 1), (RIGHT, 1),
    ):
        tap(action)
        assert view["cursor"] == expected
    tap(A)
    assert view["screen"] != COMMANDS
    tap(B)
    assert (view["screen"], view["cursor"]) == (COMMANDS, 1), "back to where one came from"


def test_holding_b_hurries_what_is_told(duel, tap):
    def ticks(action):
        duel.reset(seed=0, options={"encounter": RIVAL})
        tap(A)
        duel.step(A)
        count = 0
        while view_of(duel)["screen"] != COMMANDS:
            duel.step(action)
            count += 1
        return count

    assert 3 * ticks(B) < ticks(NOOP) < 100


def test_types_decide_how_hard_a_blow_is(duel, tap):
    view, struck = view_of(duel), {}
    for encounter in range(1, 13):
        for slot in (0, 2, 3):
            duel.reset(seed=0, options={"encounter": encounter})
            kind = players.effect(view.own_moves[slot], view.opponent.type)
            hp = view.opponent.hp
            tap(A, *([RIGHT] if slot & 1 else []), *([DOWN] if slot & 2 else []), A)
            struck.setdefault(kind, []).append(hp - view.opponent.hp)
    assert set(struck) == {0.5, 1.0, 2.0}
    assert max(struck[0.5]) < min(struck[1.0])
    assert max(struck[1.0]) < min(struck[2.0])


def test_items_are_used_up_and_there_is_no_ball_for_a_rival(duel, tap):
    duel.reset(seed=0, options={"encounter": RIVAL})
    view = view_of(duel)
    tap(RIGHT, A, DOWN, A)
    assert (view["screen"], view["ball_items"], view["turn"]) == (4, 0, 0), "refused, for free"
    tap(UP, RIGHT, A)
    assert (view["screen"], view["boost_items"], view["boosts"]) == (TELLING, 0, 1)
    wait_for(duel, COMMANDS, B)
    hurt = view["own_hp"]
    assert hurt < view["own_hp_max"]
    tap(RIGHT, A, A)
    assert view["potion_items"] == 1
    assert view["own_hp"] > hurt


def test_another_member_takes_the_first_place(duel, tap):
    duel.reset(seed=0)
    view = view_of(duel)
    first, second, *_ = view.party
    tap(DOWN, A, RIGHT, A)
    assert view.party[0].species == second.species
    assert view.party[1] == first


def test_competence_wins_fast_and_mashing_or_chance_seldom(duel):
    encounters = (3, 20, 24, 30)
    well = [play(duel, players.competent, each, seed) for each in encounters for seed in range(3)]
    assert sum(reward > 0 for reward, _ in well) >= 10
    assert statistics.mean(ticks for _, ticks in well) < 300
    badly = [play(duel, players.masher, each, seed=0) for each in encounters]
    badly += [play(duel, players.random_player(0), each, seed=0) for each in encounters[1:]]
    assert sum(reward > 0 for reward, _ in badly) <= 3
    assert statistics.mean(ticks for _, ticks in badly) > 500


def test_the_first_frame_shows_the_whole_menu(duel):
    first, _ = duel.reset(seed=0)
    for _ in range(20):
        later = duel.step(NOOP)[0]
    np.testing.assert_array_equal(first, later)
    assert duel.render().shape == (144, 160, 3)


def test_the_screens_that_matter_differ_after_shrinking(duel, tap):
    first, _ = duel.reset(seed=0)
    shown = [first]
    for action in (RIGHT, DOWN, LEFT, UP, A, DOWN):
        tap(action, *[NOOP] * 4)
        shown.append(duel.step(NOOP)[0])
    np.testing.assert_array_equal(shown.pop(4), first)
    for index, one in enumerate(shown):
        for other in shown[:index]:
            changed = np.abs(one.astype(int) - other) > 64
            assert changed.sum() >= 40, "a cursor of 8 by 9 pixels went elsewhere"


def test_going_on_after_an_episode_is_instant(duel):
    duel.reset(seed=0)
    spans = []
    for _ in range(5):
        _run_until_decided(duel, players.competent)
        begin = time.perf_counter()
        duel.reset()
        spans.append(time.perf_counter() - begin)
        assert view_of(duel)["screen"] in (TELLING, RESULT)
    # The shortest span: other processes may take the core during the others.
    assert min(spans) < 2e-3


def test_whoever_dawdles_is_cut_short_and_meets_the_same_again():
    with closing(Duel(encounter=5, max_ticks=200)) as env:
        env.reset(seed=0)
        view = view_of(env)
        begun = view.opponent
        for tick in range(200):
            _, reward, decided, truncated, _ = env.step(players.masher(view, tick))
            assert (reward, decided, truncated) == (0.0, False, tick == 199)
        assert view.opponent != begun
        _, info = env.reset()
        assert (info["encounter"], view.opponent) == (5, begun)
        assert not env.step(NOOP)[3]


def test_opponents_can_come_at_random():
    with closing(Duel(opponents="random")) as env:
        met = [env.reset(seed=0)[1]["encounter"]]
        met += [env.reset()[1]["encounter"] for _ in range(15)]
        assert len(set(met)) > 8
        assert env.reset(seed=0)[1]["encounter"] == met[0]
