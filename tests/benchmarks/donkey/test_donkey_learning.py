"""The pure parts of the benchmark of learning to drive."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from PIL import Image

from benchmarks.donkey import donkey_learning
from benchmarks.donkey.donkey_learning import (
    EXAMPLE,
    Recorded,
    at_random,
    describe,
    distance_along,
    distances,
    draw,
    for_drives,
    load,
    straight_ahead,
    track_of,
    verdict,
)
from rtagent.env.donkey.controls import THROTTLES, Grid
from rtagent.env.donkey.session import REPORTED_SCALE
from rtagent.env.donkey.track import Track, circuit, generated
from rtagent.errors import UserError
from rtagent.policy.action_selection import greedy_action

RADIUS = 50.0
GRID = Grid("coast")


@pytest.fixture(scope="module")
def ring() -> Track:
    angle = np.linspace(0.0, 2 * np.pi, 1000, endpoint=False)
    return Track(RADIUS * np.stack([np.sin(angle), np.cos(angle)], axis=1))


def arc(first: float, last: float, radius: float = RADIUS) -> np.ndarray:
    """Positions along a circle, from one angle to another."""
    angle = np.linspace(first, last, 1 + round(abs(last - first) * 20))
    return radius * np.stack([np.sin(angle), np.cos(angle)], axis=1)


@pytest.mark.parametrize("begin", [0.0, 3.0, 6.0])
@pytest.mark.parametrize("angle", [0.5, 3.0, 7.0, 20.0])
@pytest.mark.parametrize("radius", [RADIUS, RADIUS - 6.0, RADIUS + 6.0])
def test_distance_is_the_way_of_the_centre_line(
    ring: Track, begin: float, angle: float, radius: float
) -> None:
    """Over the starting line, over laps, and whoever cuts the corner gets no less for it."""
    found = distance_along(ring, arc(begin, begin + angle, radius))
    assert found == pytest.approx(RADIUS * angle, rel=1e-3)


def test_backwards_and_standing_still_lead_nowhere(ring: Track) -> None:
    assert distance_along(ring, arc(1.0, -2.0)) == 0.0
    assert distance_along(ring, np.repeat(arc(1.0, 1.0), 5, axis=0)) == 0.0
    assert distance_along(ring, arc(1.0, 1.0)) == 0.0


def test_driving_in_circles_leads_no_further_than_the_circle(ring: Track) -> None:
    around = np.array([0.0, RADIUS]) + arc(0.0, 60.0, radius=5.0)
    assert distance_along(ring, around) == pytest.approx(5.0, rel=0.05)


def test_the_way_back_is_not_taken_away(ring: Track) -> None:
    there_and_back = np.concatenate([arc(0.0, 1.0), arc(1.0, 0.0)])
    assert distance_along(ring, there_and_back) == pytest.approx(RADIUS, rel=1e-3)


def test_every_seed_must_drive_clearly_further_than_the_best_of_the_others() -> None:
    others = [[10.0, 30.0], [40.0, 40.0], [0.0]]
    assert verdict([[61.0], [50.0, 80.0]], others) == (pytest.approx(60.0), True)
    assert verdict([[61.0], [50.0, 69.0]], others) == (pytest.approx(60.0), False)
    assert verdict([[60.0]], others) == (pytest.approx(60.0), False)


def adapter(space: gym.Space[Any], meanings: list[str]) -> Any:
    return SimpleNamespace(action_space=space, action_meanings=tuple(meanings))


@pytest.mark.parametrize("pace", [1, 2])
def test_straight_ahead_steers_0_at_a_throttle_of_the_grid(pace: int) -> None:
    box = gym.spaces.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 1.0]))
    grid = adapter(GRID.space, GRID.meanings)
    best = greedy_action(straight_ahead(pace, grid)(np.zeros(1)), GRID.space)
    assert GRID.of(best) == (0.0, THROTTLES[pace], 0.0)
    steered = greedy_action(straight_ahead(pace, adapter(box, []))(np.zeros(1)), box)
    assert steered == pytest.approx([0.0, THROTTLES[pace]])


def test_random_actions_are_held_and_repeatable() -> None:
    values = at_random(5, 3, adapter(GRID.space, GRID.meanings))
    again = at_random(5, 3, adapter(GRID.space, GRID.meanings))
    chosen = [greedy_action(values(np.zeros(1)), GRID.space) for _ in range(1000)]
    assert chosen == [greedy_action(again(np.zeros(1)), GRID.space) for _ in range(1000)]
    assert chosen == [action for action in chosen[::5] for _ in range(5)]
    assert set(chosen) == set(range(16))


def test_the_roads_of_the_scenes() -> None:
    assert track_of(load([])).length == circuit().length
    road = load(["env.id=donkey-generated-roads-v0", "env.kwargs.road_seed=7"])
    assert np.array_equal(track_of(road).points, generated(7).points)
    again = load(["env.id=donkey-generated-roads-v0", "env.kwargs.road.rand_seed=7"])
    assert np.array_equal(track_of(again).points, generated(7).points)


@pytest.mark.parametrize("override", ["env.id=CartPole-v1", "env.kwargs.host=127.0.0.1"])
def test_an_unknown_road_is_refused(override: str) -> None:
    with pytest.raises(UserError, match="embedded simulator"):
        track_of(load([override]))


def test_drives_are_bounded_in_the_world_that_was_learned_in() -> None:
    learned_in = load(["env.kwargs.rate_hz=30"])
    assert for_drives(learned_in).env.kwargs == {**learned_in.env.kwargs, "max_seconds": 60.0}
    assert EXAMPLE.is_file()


class Road(gym.Env[Any, Any]):
    """Goes one unit along z per step; its simulator obeys at the third reset."""

    def __init__(self, obeys_at: int = 3) -> None:
        self._left, self._z = obeys_at, 0

    def reset(self, **_: Any) -> tuple[int, dict[str, Any]]:
        self._left -= 1
        self._z = 0
        return 0, self._info()

    def step(self, action: bool) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self._z += 1
        return self._z, 1.0, action, not action, self._info()

    def _info(self) -> dict[str, Any]:
        pos = (2.0 * REPORTED_SCALE, 0.6, self._z * REPORTED_SCALE)
        return {"pos": pos, "connected": self._left < 2, "resetting": self._left == 1}


def test_positions_are_recorded_in_the_units_of_the_map() -> None:
    env = Recorded(Road())
    assert env.reset()[0] == 0
    env.step(False)
    assert (env.line, env.off) == ([(2.0, 0.0), (2.0, 1.0)], False)
    env.step(True)
    assert (env.line[-1], env.off) == ((2.0, 2.0), True)
    env.reset()
    assert (env.line, env.off) == ([(2.0, 0.0)], False)


def test_a_simulator_that_never_obeys_is_given_up() -> None:
    with pytest.raises(UserError, match="simulator"):
        Recorded(Road(obeys_at=10_000)).reset()


def drives(angle: float) -> list[dict[str, Any]]:
    return [
        {
            "distance": RADIUS * angle, "seconds": 10.0, "speed": 5.0, "return": angle, "off": True,
            "line": arc(0.0, angle).tolist(),
        }
    ]


def test_draw_and_describe(ring: Track, tmp_path: Path) -> None:
    runs = [
        {"seed": 0, "drives": drives(4.0), "episodes": [(30.0, 5.0), (60.0, 9.0)]},
        {"seed": 1, "drives": drives(5.0), "episodes": []},
    ]
    names = ("random", "random, held", "slow", "fast")
    others = {name: drives(0.1 * (1 + index)) for index, name in enumerate(names)}
    path = tmp_path / "picture.png"
    draw(ring, runs, others, path)
    with Image.open(path) as picture:
        assert picture.width > picture.height > 500
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 50
    assert distances(runs[0]["drives"]) == [200.0]
    line = describe("learned, seed 0", runs[0]["drives"], ring)
    for figure in ("200.0", "0.64 laps", "1 of 1"):
        assert figure in line


def test_a_seed_that_failed_is_told_in_what_is_printed_and_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = {
        "seed": 0, "drives": drives(4.0), "episodes": [], "updates": 7, "inaction_fraction": 0.0,
        "mean_return_last_20": float("nan"), "took_s": 1.0,
    }
    saved = tmp_path / "saved.json"
    said = [("seed 1", ValueError("no world")), ("seed 0", run)]
    monkeypatch.setattr(donkey_learning, "outcomes", lambda calls, at_once: iter(said))
    monkeypatch.setattr(donkey_learning, "baselines", lambda config, count: {"held": drives(0.1)})
    monkeypatch.setattr(donkey_learning, "measure_jitter", lambda seconds: {})
    monkeypatch.setattr(
        "sys.argv", ["donkey_learning.py", "--seeds", "0", "1", "--save", str(saved), "--json"]
    )
    assert donkey_learning.main() == 1
    told = capsys.readouterr()
    assert "seed 1: failed: ValueError: no world" in told.err
    for found in (json.loads(told.out), json.loads(saved.read_text())):
        assert [each["seed"] for each in found["runs"]] == [0]
        assert found["runs"][0]["mean_return_last_20"] is None
        assert found["failed"] == {"seed 1": "ValueError: no world"}
    monkeypatch.setattr("sys.argv", ["donkey_learning.py", "--seeds", "0", "1"])
    assert donkey_learning.main() == 1
    kept = capsys.readouterr().out
    assert "learned, seed 0 " in kept, "it went to stderr, and a file that it was to fill was empty"
    assert kept.endswith("MISSED\n")
