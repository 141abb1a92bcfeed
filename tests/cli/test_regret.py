"""`rtagent regret`: three worlds, their differences, and what is refused."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from rich.progress import Progress

from rtagent.cli import regret
from rtagent.cli.regret import Measurement
from rtagent.cli.stop_signal import StopSignal
from rtagent.config import EnvConfig
from rtagent.env.adapter import Adapter
from rtagent.errors import UserError
from rtagent.memory.ledger import row_dtype
from rtagent.staggering.arbiter import Source
from tests.cli.conftest import Refused, Run
from tests.conftest import make_blueprint
from tests.trained import leave_checkpoint

CARTPOLE = ("env.id=CartPole-v1", "policy.width=1", "env.rate_hz=200")


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
def test_three_worlds_and_their_differences(run: Run, tmp_path: Path) -> None:
    path = leave_checkpoint(tmp_path, *CARTPOLE)
    picture = tmp_path / "regret.png"
    options = ("--episodes", "4", "--states", "5", "--clones", "3", "--picture", str(picture))
    found = run("regret", str(path), "--reference", str(path), *options, "--json").document()
    worlds, regrets = found["worlds"], found["regret"]
    assert (found["episodes"], found["matched_starts"], found["acting"]) == (4, True, "greedy")
    mean = {name: np.mean(each["returns"]) for name, each in worlds.items()}
    for name, one, other in (("delay", "paused", "delayed"), ("inaction", "delayed", "live")):
        figures = regrets[name]["per_episode"]
        assert figures["value"] == pytest.approx(mean[one] - mean[other])
        assert figures["half_interval"] >= 0.0
    # The reference is the same policy, from the same starts.
    assert regrets["learning"]["per_episode"] == {"value": 0.0, "half_interval": 0.0}
    # CartPole pays 1 per tick, and nothing in it is left to chance.
    assert worlds["paused"]["per_second"]["value"] == pytest.approx(200.0)
    assert found["predictability"] == {"minimum": 1.0, "mean": 1.0, "states": 5, "clones": 3}
    assert found["bounds"]["delay"]["per_second"] == 0.0
    assert found["live"]["delay_ticks"]["mean"] >= 1.0
    assert picture.stat().st_size > 1000


class Stays(gym.Env[Any, Any]):
    """Three ticks of 1 in an episode, whatever is done."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = MappingProxyType({"render_fps": 20})

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.left = 3
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, self.left == 0, False, {}


class Draws(Stays):
    """Pays at every tick what it has drawn for the episode."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gym.Env.reset(self, seed=seed)
        self.paid = float(self.np_random.integers(1000))
        return super().reset()

    def step(self, action: Any) -> Any:
        seen, _, *rest = super().step(action)
        return seen, self.paid, *rest


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
def test_the_worlds_that_wait_begin_as_the_live_one_does(run: Run, tmp_path: Path) -> None:
    """They had another seed, and what their episodes drew was told as a regret of inaction."""
    path = leave_checkpoint(tmp_path, f"env.id={__name__}:Draws")
    found = run("regret", str(path), "--episodes", "4", "--states", "0", "--json").document()
    returns = [each["returns"] for each in found["worlds"].values()]
    assert returns == 3 * returns[:1]
    assert len(set(returns[0])) > 1


def rows_of(episodes: int, reward: float = 1.0) -> Any:
    """What a run in `Stays` has recorded, whose agent acted on the newest frame at each tick."""
    rows = np.zeros(3 * episodes, row_dtype(make_blueprint()))
    rows["tick"] = np.arange(len(rows))
    rows["observed"] = rows["tick"] - 1
    rows["reward"], rows["flags"][2::3] = reward, 1
    rows["source"] = Source.AGENT
    return rows


def measured(world: Stays, rows: Any, stop: Any) -> Any:
    """What a measurement of all recorded episodes finds, until it is stopped."""
    adapter = Adapter(world, EnvConfig())
    with Progress(disable=True) as progress:
        measurement = Measurement(adapter, 0, rows, len(rows) // 3, stop, progress)
        measurement.play(lambda _: np.zeros(2, np.float32), None)
    return measurement.result()


def test_ended_early_it_tells_only_of_the_episodes_that_every_world_has_played() -> None:
    rows = rows_of(episodes=4)
    # Of the four live episodes only the last ones knew inaction and old frames.
    rows["source"][9:] = Source.DEFAULT
    rows["observed"][6:9] -= 4
    asked = count()

    class Stop:
        """Ctrl-C in the third episode of the second world that waits."""

        @property
        def received(self) -> bool:
            return next(asked) >= 12 + 7

    found = measured(Stays(), rows, Stop())
    assert found["episodes"] == 2
    assert found["matched_starts"]
    assert found["live"]["inaction_fraction"] == 0.0
    assert found["live"]["delay_ticks"]["max"] == 1


def test_episodes_that_were_cut_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their returns are those of the time until the cut, and so are the regrets."""
    monkeypatch.setattr("rtagent.evaluation.regret.longest_episode", lambda rate_hz: 2)
    found = measured(Stays(), rows_of(episodes=2), StopSignal())
    assert {name: each["unfinished"] for name, each in found["worlds"].items()} == {
        "live": 0, "paused": 2, "delayed": 2,
    }
    assert regret._lines(found)[:2] == [
        "R0 paused: 2 of the episodes did not end, and were cut after 600 s",
        "R1 paused, recorded delays: 2 of the episodes did not end, and were cut after 600 s",
    ]


@pytest.mark.parametrize(("paid", "kept"), [(0.1, True), (0.2, False)])
def test_a_reward_at_the_edge_of_the_declared_range_is_within_it(paid: float, kept: bool) -> None:
    """In the ledger, in float32, 0.1 is more than 0.1."""

    class Pays(Stays):
        reward_range = (-0.1, 0.1)

        def step(self, action: Any) -> Any:
            seen, _, *rest = super().step(action)
            return seen, paid, *rest

    found = measured(Pays(), rows_of(episodes=2, reward=paid), StopSignal())
    assert found["reward_range"]["declared"] is kept
    # What was the same in all worlds is no regret, not even of a rounding.
    assert found["regret"]["inaction"]["per_episode"] == {"value": 0.0, "half_interval": 0.0}


@pytest.mark.parametrize(
    ("stopped", "said"),
    [(True, r"^ended before 2 episodes"), (False, r"^1 of the 2 episodes.*--seconds")],
)
def test_too_few_live_episodes_are_explained_by_what_ended_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stopped: bool, said: str
) -> None:
    rows = np.zeros(5, row_dtype(make_blueprint()))
    rows["flags"][2] = 1
    live = Mock(**{"world.config.state_dir": tmp_path})
    monkeypatch.setattr(regret, "live_run", lambda *ignored: nullcontext(live))
    monkeypatch.setattr(regret, "follow_ledger", lambda *ignored: rows)
    ignored: Any = None
    stop = StopSignal()
    stop.received = stopped
    with Progress(disable=True) as progress, pytest.raises(UserError, match=said):
        regret.play_live(ignored, ignored, 4, 60.0, stop, progress)


def test_what_cannot_be_measured_is_one_line(refused: Refused, tmp_path: Path) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE)
    for option, value, said in (
        ("--episodes", "1", "--episodes 1: must be 2 to"),
        ("--seconds", "0", "--seconds 0: must be above 0"),
        ("--clones", "1", "--clones 1: must be 2 to"),
        ("--picture", "regret.gif", "--picture regret.gif: the name must end in"),
        ("--picture", "none/regret.png", "--picture none/regret.png: cannot be written"),
        ("--reference", str(tmp_path / "none"), "no such checkpoint"),
    ):
        assert said in refused("regret", str(tmp_path), option, value)


@pytest.mark.parametrize("role", ["policy", "reference"])
def test_a_recurrent_policy_is_refused(refused: Refused, tmp_path: Path, role: str) -> None:
    plain = leave_checkpoint(tmp_path / "plain", *CARTPOLE)
    recurrent = leave_checkpoint(tmp_path / "recurrent", *CARTPOLE, "policy.network=lstm")
    given, reference = (recurrent, plain) if role == "policy" else (plain, recurrent)
    said = refused("regret", str(given), "--reference", str(reference), "--episodes", "2")
    assert f"{recurrent}: this policy carries a state" in said
