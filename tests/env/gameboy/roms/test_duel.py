import numpy as np
import pytest

from rtagent.env.gameboy.roms.duel import build

COMMANDS = 2
WON, CAUGHT, LOST = 1, 2, 3


@pytest.fixture(scope="module")
def both(play):
    script = {"encounter": 19, "successes": 2, "frames": 1880, "picture_every": 1}
    return play("duel", "gambatte", **script), play("duel", "pyboy", **script)


def test_creatures_are_mirrored_and_doubled():
    assert build.enlarged(["#.", ".-"]) == ["##....##", "##....##", "..----..", "..----.."]


def test_gambatte_and_pyboy_agree_on_every_frame(both):
    gambatte, pyboy = both
    np.testing.assert_array_equal(gambatte.ram, pyboy.ram)
    np.testing.assert_array_equal(gambatte.pictures, pyboy.pictures)
    assert set(np.unique(gambatte.pictures)) == {0, 1, 2, 3}
    assert set(gambatte["screen"]) == set(range(8)), "every screen was seen"


def test_every_frame_counts_exactly_once(both):
    assert set(np.diff(both[0]["frame"])) == {1}, "no step is ever too long for its frame"


def test_a_success_leads_on_and_a_loss_repeats(both):
    run, _ = both
    assert [outcome for outcome in run.values("outcome") if outcome] == [CAUGHT, WON, LOST]
    assert (run["catches"][-1], run["wins"][-1], run["losses"][-1]) == (1, 1, 1)
    assert run.values("encounter") == [0, 19, 20, 21]
    begun = run["screen"] == COMMANDS
    assert run["encounter"][begun][-1] == 21, "the lost one again"


def test_an_encounter_begins_with_everybody_well_and_a_full_bag(both):
    run, _ = both
    opened = np.flatnonzero((run["screen"][1:] == COMMANDS) & (run["turn"][1:] == 0)) + 1
    for moment in opened:
        for who in ("own", "second", "third", "fourth", "opponent"):
            assert run[f"{who}_hp"][moment] == run[f"{who}_hp_max"][moment]
        assert run["potion_items"][moment] == 2
        assert run["ball_items"][moment] == (3 if run["wild"][moment] else 0)
    assert {int(run["encounter"][moment]) for moment in opened} == {19, 20, 21}


def test_whom_one_catches_comes_along(both):
    run, _ = both
    before = run["encounter"] == 19
    caught = run["opponent_species"][before][-1]
    assert set(run["party_size"][before]) == {3}
    assert set(run["party_size"][run["encounter"] == 20]) == {4}
    first = np.flatnonzero(run["encounter"] == 20)[0]
    assert run["fourth_species"][first] == caught
