"""`rtagent regret`: three worlds, their differences, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Refused, Run
from tests.trained import leave_checkpoint

CARTPOLE = ("env.id=CartPole-v1", "policy.width=1", "env.rate_hz=200")


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
def test_three_worlds_and_their_differences(run: Run, tmp_path: Path) -> None:
    path = leave_checkpoint(tmp_path, *CARTPOLE)
    picture = tmp_path / "regret.png"
    options = ("--episodes", "4", "--states", "5", "--clones", "3", "--picture", str(picture))
    code, out, err = run("regret", str(path), "--reference", str(path), *options, "--json")
    assert code == 0, err
    found = json.loads(out)
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
