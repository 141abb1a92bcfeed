import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from rtagent.env.gameboy.roms.starfall import build

PLAYING = 1


@pytest.fixture(scope="module", name="play")
def play_starfall(play):
    return partial(play, "starfall")


@pytest.fixture(scope="module")
def both(play):
    script = {"follow_until": 27, "frames": 2600, "picture_every": 1}
    return play("gambatte", **script), play("pyboy", **script)


@pytest.fixture(scope="module")
def followed(play):
    return play(follow_until=10_000, frames=3000)


def test_a_missing_compiler_is_one_clear_line(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", build.__name__, "--output", str(tmp_path / "out.gb")],
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: sdcc not found")
    assert result.stderr.count("\n") == 1


def test_gambatte_and_pyboy_agree_on_every_frame(both):
    gambatte, pyboy = both
    seen = gambatte["screen"]
    assert gambatte["score"].max() >= 27
    assert gambatte["stars_in_flight"].max() == 2
    games_begun = np.count_nonzero((seen[1:] == PLAYING) & (seen[:-1] != PLAYING))
    assert games_begun == 2, "one from the title, one after game over"
    np.testing.assert_array_equal(gambatte.ram, pyboy.ram)
    np.testing.assert_array_equal(gambatte.pictures, pyboy.pictures)
    assert set(np.unique(gambatte.pictures)) == {0, 1, 2, 3}


def test_the_picture_is_one_frame_behind_ram(both):
    run, _ = both
    y = run["star0_y"]
    # Before there is a second star.
    falling = [k for k in range(1, 300) if 20 < y[k - 1] < 90]
    assert len(falling) > 50
    white_rows = [np.flatnonzero((run.pictures[k, 8:110] == 3).any(axis=1)) + 8 for k in falling]
    assert [rows[0] for rows in white_rows] == [y[k - 1] for k in falling]


def test_every_frame_counts_exactly_once(followed):
    assert set(np.diff(followed["frame"])) == {1}


def test_following_the_star_scores(followed):
    assert followed["score"].max() > 30
    assert followed["lives"][-1] == 3, "two stars in flight never ask for the impossible"
    assert followed["level"][-1] == 1 + followed["score"][-1] // 8


def test_the_boat_and_the_stars_stay_in_the_field(followed):
    assert followed["paddle_x"].max() <= 160 - 32
    assert set(np.abs(np.diff(followed["paddle_x"]))) == {0, 4}
    for star in ("star0", "star1"):
        assert followed[f"{star}_x"].max() <= 160 - 16
        assert not (followed[f"{star}_x"] % 4).any()
