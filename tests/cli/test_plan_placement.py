"""`rtagent profile`, and `rtagent plan --placement`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.daemon import options
from rtagent.cli import plan_placement
from rtagent.cli import profile as profile_command
from rtagent.cli.plan_placement import describe
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.learning import beginning, placed, profiling
from rtagent.placement.profile import FOLDER, Profile
from rtagent.placement.step import place
from tests.cli.conftest import Refused, Run
from tests.conftest import make_blueprint
from tests.placement.steps import made_profile


@pytest.fixture
def _measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        profile_command, "in_measured_process", lambda *_: ("key", made_profile(bfloat16=2.0))
    )
    monkeypatch.setattr(plan_placement, "in_measured_process", lambda *_: (7.0, 12.0))


def test_a_plan_as_json_says_where_every_part_runs() -> None:
    document = describe(place(made_profile(bfloat16=2.0)))
    assert document["units"][0] == "cpu:0 float32"
    first = document["layers"][0]
    assert first == {
        "name": "takeover", "unit": "cpu:0", "precision": "float32", "start_us": 0.0,
        "predicted_us": 100.0,
    }
    targets = {each["unit"] for each in document["layers"] if each["name"].endswith("target")}
    assert targets == {"cpu:1"}
    assert document["best_single_unit_ms"] == pytest.approx(7.8)
    assert document["predicted_ms"] < 0.65 * document["best_single_unit_ms"]
    assert document["critical_path"][-1] == "apply"
    assert document["proven"]


@pytest.mark.usefixtures("_measured")
def test_a_plan_is_printed_and_drawn(run: Run, tmp_path: Path) -> None:
    picture = tmp_path / "plan.png"
    done = run("plan", "--placement", "--picture", str(picture),
               "--set", f"run.state_dir={tmp_path}")
    assert done.code == 0, done.err
    assert "a network: a step of dqn with 32 transitions; " in done.out
    assert "(no plan is shorter), on one core 7.80 ms" in " ".join(done.out.split())
    assert "measured: 7.00 ms, on one core 12.00 ms" in " ".join(done.out.split())
    # On a busy machine the two are several times apart.
    assert "its parts' medians, in processor time" in " ".join(done.out.split())
    assert "by the clock: what other programs take counts" in " ".join(done.out.split())
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("profile", "said"), [
    (made_profile(cores=1), "only one core can be used here"),
    (made_profile(beside=1.9), "a second core is predicted to save less than 15 %"),
])
@pytest.mark.usefixtures("_measured")
def test_a_plan_for_one_core_says_why(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, profile: Profile, said: str
) -> None:
    monkeypatch.setattr(profile_command, "in_measured_process", lambda *_: ("key", profile))
    done = run("plan", "--placement", "--set", f"run.state_dir={tmp_path}")
    assert said in " ".join(done.out.split())


@pytest.mark.usefixtures("_measured")
def test_the_picture_says_the_time_that_is_predicted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = made_profile(bfloat16=2.0)
    # A whole step takes twice the sum of its parts.
    double = {each: 2.0 * us for each, us in profile.step_us.items()}
    profile = replace(profile, step_us=double, split_us=double)
    monkeypatch.setattr(profile_command, "in_measured_process", lambda *_: ("key", profile))
    titles: list[str] = []
    monkeypatch.setattr(plan_placement, "draw", lambda path, title, plan: titles.append(title))
    drawn = ["--picture", str(tmp_path / "plan.png"), "--set", f"run.state_dir={tmp_path}"]
    document = run("plan", "--placement", "--json", *drawn).document()
    assert titles[0].startswith("a network: a step of dqn with 32 transitions, predicted ")
    assert f"predicted {document['predicted_ms']:.1f} ms" in titles[0]
    assert f"its parts {document['predicted_ms'] / 2.0:.1f} ms" in titles[0]


@pytest.mark.usefixtures("_measured")
def test_a_profile_is_printed_and_kept(run: Run, tmp_path: Path) -> None:
    done = run("profile", "--set", f"run.state_dir={tmp_path}", "--batch-size", "16", "32")
    assert done.code == 0, done.err
    shown = " ".join(done.out.split())
    said = "a network: a step of dqn with 32 transitions takes 7.80 ms in float32, 14.80 ms in bf"
    assert shown.count(said) == 2
    assert "conv forward" in done.out
    assert (tmp_path / FOLDER / "key.json").is_file()
    document = run("profile", "--set", f"run.state_dir={tmp_path}", "--json").document()
    assert document[0]["batch_size"] == 32


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
@pytest.mark.parametrize(("world", "algorithm"), [("CartPole-v1", "dqn"), ("Pendulum-v1", "ddpg")])
def test_a_real_step_is_profiled_planned_and_measured(
    run: Run, tmp_path: Path, world: str, algorithm: str
) -> None:
    settings = (f"env.id={world}", f"learning.algorithm={algorithm}", f"run.state_dir={tmp_path}")
    plan = ("plan", "--placement", *options(*settings), "--seconds", "0.1", "--json")
    document = run(*plan).document()
    assert document["measured_ms"] > 0.0
    assert 0.0 < document["predicted_ms"] <= document["best_single_unit_ms"]
    assert len(list((tmp_path / FOLDER).glob("*.json"))) == 1


def test_a_step_is_measured_with_the_memory_and_the_priority_of_a_learner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without that memory, a step on large batches took up to a quarter longer than a learner's.

    And without that priority, a daemon that acted beside it had half as many new actions.
    """
    done: list[str] = []
    config = parse_config({"run": {"state_dir": str(tmp_path)}})
    for module in (profile_command, plan_placement):
        monkeypatch.setattr(module, "keep_freed_memory", lambda: done.append("kept"))
        monkeypatch.setattr(module, "enter_idle", lambda: done.append("idle"))
    monkeypatch.setattr(beginning, "build_network", lambda *_: None)
    monkeypatch.setattr(profiling, "profile_key", lambda *_: "key")
    monkeypatch.setattr(profiling, "take_profile", lambda *_: done.append("profiled"))
    monkeypatch.setattr(placed, "measure_placement", lambda *_: done.append("placed") or Mock())
    profile_command.take(config, make_blueprint(), (32, 0.1, True), print)
    plan_placement.measure(config, make_blueprint(), (place(made_profile()), 0.1), print)
    assert done == ["kept", "idle", "profiled", "kept", "idle", "placed"]


def test_a_step_on_a_gpu_is_not_measured() -> None:
    """The times of a processor core were shown as those of the run."""
    config = parse_config({"learning": {"device": "cuda"}})
    with pytest.raises(UserError, match=r"^learning\.device = 'cuda': .* cpu"):
        profile_command.take(config, make_blueprint(), (32, 0.1, True), print)


@pytest.mark.parametrize("length", [1, 8])
def test_chunks_are_not_learned(length: int) -> None:
    config = parse_config({"policy": {"factory": "mine:make"}})
    with pytest.raises(UserError, match="there is no learning step to measure"):
        profile_command.take(config, make_blueprint(chunk=length), (32, 0.1, True), print)


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
def test_a_step_that_cannot_be_placed_is_one_line(refused: Refused, tmp_path: Path) -> None:
    settings = ("env.id=CartPole-v1", "learning.algorithm=ppo", f"run.state_dir={tmp_path}")
    said = refused("profile", *options(*settings), "--seconds", "0.1")
    assert said.startswith("rtagent: a step of ppo cannot be")
