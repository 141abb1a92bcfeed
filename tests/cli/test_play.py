"""`rtagent play`: a daemon that plays what a checkpoint has learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.config import Config
from rtagent.storage import checkpoint as checkpoints
from tests.cli.conftest import Refused, Run
from tests.trained import leave_checkpoint


def test_it_plays_greedily_and_learns_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (
        "env.id=CartPole-v1", "r3.mode=step", "r3.deadline_s=5", "r3.data_budget=1000",
        "service.certificate=/of/another/machine.pem",
    )
    written = leave_checkpoint(tmp_path, *settings, "policy.epsilon_schedule=exponential")
    served: list[Config] = []

    def serve(config: Config, *, quiet: bool, log_format: str) -> int:
        served.append(config)
        folder = config.state_dir / "checkpoints"
        found = checkpoints.newest(folder)
        assert found is not None
        plays, saved = checkpoints.load(found), checkpoints.load(written)
        assert (plays.counters, plays.run) == (saved.counters, saved.run)
        assert all((plays.tensors[name] == saved.tensors[name]).all() for name in saved.tensors)
        return 0

    monkeypatch.setattr("rtagent.cli.play.serve", serve)
    assert run("play", str(tmp_path), "--set", "inference.processes=3").code == 0
    (config,) = served
    assert (config.env.id, config.inference.processes) == ("CartPole-v1", 3)
    assert (config.learning.processes, config.r3.mode) == (0, "off")
    assert (config.policy.epsilon_start, config.policy.epsilon_end) == (0.0, 0.0)
    assert config.run.resume
    assert config.service.certificate is None
    assert config.state_dir != tmp_path
    assert not config.state_dir.exists()


@pytest.mark.parametrize(("options", "port"), [
    ((), 0), (("--port", "9009"), 9009), (("--set", "service.port=9010"), 9010),
    (("--port", "9009", "--set", "service.port=9010"), 9009),
])
def test_the_port_is_the_one_that_was_asked_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], port: int
) -> None:
    leave_checkpoint(tmp_path, "env.id=CartPole-v1", "service.port=9011")
    served: list[Config] = []
    monkeypatch.setattr("rtagent.cli.play.serve", lambda config, **_: served.append(config) or 0)
    assert run("play", str(tmp_path), *options).code == 0
    assert served[0].service.port == port


def test_what_was_learned_in_a_cluster_is_played_here(
    run: Run, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ("learning.where=cluster", "learning.processes=1")
    leave_checkpoint(tmp_path, "env.id=CartPole-v1", *cluster)
    served: list[Config] = []
    monkeypatch.setattr("rtagent.cli.play.serve", lambda config, **_: served.append(config) or 0)
    assert run("play", str(tmp_path)).code == 0
    assert (served[0].learning.where, served[0].learning.processes) == ("here", 0)
    assert "--port 70000" in refused("play", str(tmp_path), "--port", "70000")


def test_a_checkpoint_of_another_environment_is_named_as_it_was_given(
    refused: Refused, tmp_path: Path
) -> None:
    # It named a temporary copy, and advised a --state-dir, which this command does not have.
    written = leave_checkpoint(tmp_path, "env.id=CartPole-v1")
    for mode in (["play"], ["evaluate", "--live"]):
        said = refused(*mode, str(tmp_path), "--set", "env.id=MountainCar-v0")
        expected = "belongs to the environment CartPole-v1, not MountainCar-v0"
        assert said == f"rtagent: the checkpoint {written} {expected}\n"
