"""`rtagent evaluate`: a checkpoint plays, paused and live."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rtagent.cli.evaluate import _print, follow_ledger, found_live, state_dir_with, summary
from rtagent.cli.stop_signal import StopSignal
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.evaluation.process import Evaluator, Played, seed_of
from rtagent.memory.ledger import TRUNCATED, row_dtype
from rtagent.storage import checkpoint as checkpoints
from tests.cli.conftest import Refused, Run
from tests.conftest import make_blueprint
from tests.trained import leave_checkpoint

CARTPOLE = ("env.id=CartPole-v1", "policy.width=1")
FILM = ("--set", "env.kwargs.render_mode=rgb_array", "--video")


def test_returns_of_greedy_episodes(run: Run, tmp_path: Path) -> None:
    path = leave_checkpoint(tmp_path, *CARTPOLE)
    done = run("evaluate", str(tmp_path), "--episodes", "4", "--json")
    found = done.document()
    assert done.err == ""
    assert found["checkpoint"] == str(path)
    assert (found["world"], found["episodes"], found["updates"]) == ("paused", 4, 7)
    returns = [each["total"] for each in found["played"]]
    assert found["mean_return"] == pytest.approx(np.mean(returns))
    assert found["standard_error"] == pytest.approx(np.std(returns, ddof=1) / 2)
    assert [each["ticks"] for each in found["played"]] == returns
    assert "inaction_fraction" not in found
    again = run("evaluate", str(path), "--episodes", "4", "--json").document()
    assert again["played"] == found["played"]


def test_no_episode_is_one_by_which_the_best_checkpoint_was_chosen(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were those of a run's first evaluation, of seed 0."""
    seeds: list[int] = []

    class Recorded(Evaluator):
        def play_episode(self, seed: int, film: Any = None) -> Played | None:
            seeds.append(seed)
            return super().play_episode(seed, film)

    monkeypatch.setattr("rtagent.cli.evaluate.Evaluator", Recorded)
    leave_checkpoint(tmp_path, *CARTPOLE)
    assert run("evaluate", str(tmp_path), "--episodes", "3").code == 0
    assert len(set(seeds)) == 3
    chosen_by = {seed_of(0, number, episode) for number in range(100) for episode in range(10)}
    assert chosen_by.isdisjoint(seeds)


def test_a_table_for_people(run: Run, tmp_path: Path) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE)
    code, out, _ = run("evaluate", str(tmp_path), "--episodes", "1")
    assert code == 0
    assert "CartPole-v1, after 7 updates" in out
    assert "standard error unknown" in out


@pytest.mark.parametrize(("cut", "said"), [
    (0, ""), (1, "1 did not end, and was cut after 600 s"), (2, "2 did not end, and were cut"),
])
def test_episodes_that_did_not_end_are_told(
    capsys: pytest.CaptureFixture[str], cut: int, said: str
) -> None:
    episodes = [Played(1.0, 36_000, ended=index >= cut) for index in range(3)]
    saved: Any = SimpleNamespace(
        counters=SimpleNamespace(updates=7), signature=SimpleNamespace(environment="world")
    )
    _print(summary(Path("checkpoint"), saved, episodes, {}), None)
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert ("did not end" in out) == bool(cut)


def test_a_film_of_the_first_episode(run: Run, tmp_path: Path) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE)
    film = tmp_path / "play.mp4"
    done = run("evaluate", str(tmp_path), "--episodes", "2", "--json", *FILM, str(film))
    played = done.document()["played"]
    capture = cv2.VideoCapture(str(film))
    assert int(capture.get(cv2.CAP_PROP_FRAME_COUNT)) == played[0]["ticks"]
    assert capture.read()[0]
    capture.release()


def test_what_does_not_fit_is_one_line(refused: Refused, tmp_path: Path) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE)
    for option, value, said in (
        ("--set", "policy.width=2", "belongs to the network mlp k=1, not mlp k=2"),
        ("--video", str(tmp_path / "play.mp4"), "shows nothing"),
        ("--video", str(tmp_path / "play.avi"), "must end in .mp4"),
        ("--video", str(tmp_path / "none" / "play.mp4"), "cannot be written: No such file"),
    ):
        assert said in refused("evaluate", str(tmp_path), option, value)


def test_an_environment_that_renders_nothing_cannot_be_filmed(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE)
    monkeypatch.setattr(CartPoleEnv, "render", lambda world: None)
    assert "shows nothing" in refused("evaluate", str(tmp_path), *FILM, str(tmp_path / "play.mp4"))


@pytest.mark.parametrize("call", ["reset", "step", "render"])
def test_an_environment_that_raises_is_named(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE)

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("the world was\ntold to fail")

    monkeypatch.setattr(CartPoleEnv, call, fails)
    said = refused("evaluate", str(tmp_path), *FILM, str(tmp_path / "play.mp4"))
    assert f"env.id = CartPole-v1: {call}() raised ValueError: the world was told to fail" in said
    assert f"in fails ({__file__}:" in said


def test_an_old_checkpoint_wants_a_configuration(
    run: Run, refused: Refused, tmp_path: Path
) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE, with_config=False)
    assert "--config FILE" in refused("evaluate", str(tmp_path))
    file = tmp_path / "mine.toml"
    file.write_text('[env]\nid = "CartPole-v1"\n[policy]\nwidth = 1\n')
    assert run("evaluate", str(tmp_path), "--config", str(file), "--episodes", "1")[0] == 0


@pytest.mark.process
@pytest.mark.usefixtures("shared_fork_server")
def test_live_it_says_what_delay_and_inaction_were(run: Run, tmp_path: Path) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE, "env.rate_hz=200")
    found = run("evaluate", str(tmp_path), "--live", "--episodes", "3", "--json").document()
    assert (found["world"], found["episodes"]) == ("live", 3)
    assert 0.0 <= found["inaction_fraction"] < 1.0
    assert found["delay_ticks"] >= 1.0


def test_the_live_world_plays_the_checkpoint_that_was_read(tmp_path: Path) -> None:
    """A running daemon puts another one into the same file, as into `best.safetensors`."""
    path = leave_checkpoint(tmp_path, *CARTPOLE)
    read = checkpoints.load(path)
    path.write_bytes(leave_checkpoint(tmp_path / "other", *CARTPOLE, "run.seed=9").read_bytes())
    assert checkpoints.load(path).run != read.run
    with state_dir_with(read) as folder:
        (written,) = Path(folder, "checkpoints").glob("checkpoint-*")
        played = checkpoints.load(written)
        assert (played.counters, played.run) == (read.counters, read.run)
        assert all((played.tensors[name] == read.tensors[name]).all() for name in read.tensors)


def test_the_seed_is_that_of_the_live_world_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_checkpoint(tmp_path, *CARTPOLE, "run.seed=3")
    seeds: list[int] = []

    def play_live(config: Config, *_: object) -> tuple[list[Played], dict[str, float]]:
        seeds.append(config.run.seed)
        return [Played(1.0, 5, ended=True)], {"inaction_fraction": 0.0, "delay_ticks": 1.0}

    monkeypatch.setattr("rtagent.cli.evaluate.play_live", play_live)
    for seed in ((), ("--seed", "7")):
        assert run("evaluate", str(tmp_path), "--live", *seed).code == 0
    assert seeds == [3, 7]


def test_a_policy_that_is_told_what_is_pending_wants_the_live_world(
    refused: Refused, tmp_path: Path
) -> None:
    path = leave_checkpoint(tmp_path, "env.id=CartPole-v1", "env.pending_actions=3")
    assert "evaluate it with --live" in refused("evaluate", str(path))
    assert "beside an observation" in refused("export", str(path), "--out", f"{tmp_path}/p.pt2")
    said = refused("evaluate", str(path), "--live", "--set", "env.pending_actions=2")
    assert "3 pending actions" in said
    assert "2 pending actions" in said


def test_a_live_world_that_keeps_failing_is_not_waited_for() -> None:
    role = {"name": "environment", "role": "environment", "state": "failed", "last_error": "gone"}
    runtime = playing_live(np.zeros(0), [], role)
    with pytest.raises(UserError, match="environment has failed: gone"):
        follow_ledger(runtime, 1, 0.3, StopSignal(), lambda: None)


def test_an_episode_that_a_death_of_the_environment_has_cut_is_not_counted() -> None:
    rows = np.zeros(9, row_dtype(make_blueprint()))
    rows["tick"], rows["reward"] = np.arange(9), 1.0
    rows["episode"] = [0, 0, 1, 1, 1, 2, 2, 2, 3]
    # The flag of a row that has been read already is not seen, the other one is.
    rows["flags"][[4, 7]] = TRUNCATED
    told: list[None] = []
    found = follow_ledger(
        playing_live(rows, [2]), 1, 60.0, StopSignal(), lambda: told.append(None)
    )
    assert found["tick"].tolist() == [5, 6, 7]
    assert len(told) == 1


def test_a_live_episode_that_does_not_end_is_cut_as_in_a_world_that_waits() -> None:
    rows = np.zeros(9, row_dtype(make_blueprint()))
    rows["tick"], rows["reward"], rows["observed"] = np.arange(9), 1.0, np.arange(9) - 1
    rows["episode"] = [0, 0, 0, 1, 1, 1, 1, 1, 1]
    rows["flags"][2] = TRUNCATED
    runtime = playing_live(rows, [0])
    found = follow_ledger(runtime, 5, 60.0, StopSignal(), lambda: None, longest=4)
    assert found["tick"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    ended, cut = Played(3.0, 3, ended=True), Played(4.0, 4, ended=False)
    assert found_live(found, 5)[0] == [ended, cut]
    assert found_live(found, 1)[0] == [ended]
    for count, longest in ((1, 4), (5, 6)):
        found = follow_ledger(runtime, count, 0.05, StopSignal(), lambda: None, longest)
        assert found["tick"].tolist() == [0, 1, 2]


def playing_live(rows: Any, finished: list[int], *roles: dict[str, Any]) -> Any:
    """What `follow_ledger` sees of a run whose ledger has these rows."""
    ended = np.array([(number,) for number in finished], [("episode", np.int64)])
    episodes = SimpleNamespace(since=lambda number: (ended[number:], len(ended)))
    return SimpleNamespace(
        world=SimpleNamespace(
            ledger=SimpleNamespace(newest=len(rows) - 1, read=lambda first, stop: rows[first:stop]),
            metrics=SimpleNamespace(environment=SimpleNamespace(episodes=episodes)),
        ),
        status=lambda: {"roles": roles},
    )
