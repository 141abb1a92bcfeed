"""Demonstrations in the rings: which transitions they become, and what does not fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rtagent import UserError
from rtagent.config import Config, LearningConfig, PolicyConfig
from rtagent.config_sources import parse_config
from rtagent.learning.replay.replay import Replay
from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ledger import TERMINATED, checksum
from rtagent.memory.ring import GUARD_TICKS
from rtagent.policy import networks
from rtagent.staggering.arbiter import Source
from rtagent.storage.demonstration_file import (
    Demonstration,
    DemonstrationWriter,
    save_demonstration,
)
from rtagent.storage.demonstration_loading import delay_ticks, find_demonstrations, load
from tests import stored_replay
from tests.conftest import Runtimes, events, make_blueprint
from tests.learning.local_update import LocalUpdate
from tests.live.test_learners import learns, updates
from tests.recorded import ENVIRONMENT, demonstration
from tests.refused import one_line
from tests.rows import write_row
from tests.stored_replay import Rings

GAMMA = 0.9

Found = tuple[int, int, float, int, bool]


def config(**learning: Any) -> Config:
    return parse_config({"env": {"id": ENVIRONMENT}, "learning": learning})


def fill(source: Path, rings: Rings, delay: int, **options: int) -> int:
    """Load what lies there into rings; how many ticks."""
    past = find_demonstrations(source, config(), rings.blueprint)
    return load(
        past, rings.blueprint, rings.frames, rings.ledger, delay=delay, time_ns=77, **options
    )


def saved(folder: Path, *demonstrations: Demonstration) -> Path:
    """A folder with these demonstrations, in this order."""
    for number, each in enumerate(demonstrations):
        save_demonstration(folder / f"{number}.demo", each)
    return folder


def slow(recorded: Demonstration, first: int, delay: int, n_step: int) -> list[Found]:
    """The transitions of finished episodes, one action at a time: state, action, return, successor.

    An action was executed `delay` ticks after its state; the first tick has the number `first`.
    """
    found = []
    ticks = range(len(recorded.rewards))
    for tick in ticks:
        episode = [each for each in ticks if recorded.episodes[each] == recorded.episodes[tick]]
        if tick - delay not in episode:
            continue
        together = [each for each in range(tick, tick + n_step) if each in episode]
        total = sum(GAMMA**i * float(recorded.rewards[each]) for i, each in enumerate(together))
        over = together[-1] == episode[-1]
        # The state of the decision that comes next, or would have come.
        successor = together[-1] + 1 - delay
        terminal = over and bool(recorded.flags[episode[-1]] & TERMINATED)
        found.append(
            (first + tick - delay, int(recorded.actions[tick]), total, first + successor, terminal)
        )
    return found


def transitions(rings: Rings, n_step: int) -> list[Found]:
    """What a learner makes of the rings."""
    index = DecisionIndex(1000, rings.ledger.dtype["action"], GAMMA, n_step)
    index.feed(rings.ledger.read(0, rings.ledger.newest + 1))
    found = index.get(np.arange(*index.span))
    columns = (found.frame, found.action, found.reward, found.next_frame, found.terminal)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def go_live(rings: Rings) -> None:
    """Two ticks of the environment process, as it begins behind what is there."""
    rings.ledger.truncate_episode()
    row, first = rings.ledger.row(rings.ledger.newest), rings.ledger.newest + 1
    for tick in (first, first + 1):
        write_row(rings.ledger, tick, reward=100.0, episode=int(row["episode"]) + 1)
        rings.frames.publish(tick, np.zeros((6, 5), np.uint8), first)


@pytest.mark.parametrize("delay", [1, 3, 5])
def test_what_was_pending_is_what_was_executed_before_the_action(
    tmp_path: Path, delay: int
) -> None:
    shown = demonstration((9, 14))
    rings = Rings(make_blueprint(pending_actions=3))
    fill(saved(tmp_path, shown), rings, delay)
    rows = rings.ledger.read(0, 23)
    for tick, observed, pending in zip(
        rows["tick"].tolist(), rows["observed"].tolist(), rows["pending"].tolist(), strict=True
    ):
        between = shown.actions[observed + 1 : tick].tolist() if observed >= 0 else []
        assert pending == (between + [-1] * 3)[:3]


@pytest.mark.parametrize("delay", [1, 5])
@pytest.mark.parametrize("n_step", [1, 3])
def test_transitions_are_those_of_a_slow_transcription(
    tmp_path: Path, delay: int, n_step: int
) -> None:
    """Files of one and of two episodes, and a live run behind them."""
    first, second = demonstration((9, 14)), demonstration((8,), seed=1)
    third = demonstration((12, 8), seed=2)
    rings = Rings()
    assert fill(saved(tmp_path, first, second, third), rings, delay) == 51
    go_live(rings)
    wanted = [
        *slow(first, 0, delay, n_step), *slow(second, 23, delay, n_step),
        *slow(third, 31, delay, n_step),
    ]
    found = transitions(rings, n_step)
    assert len(wanted) == 51 - 5 * delay
    assert [each[:2] + each[3:] for each in found] == [each[:2] + each[3:] for each in wanted]
    assert [each[2] for each in found] == pytest.approx([each[2] for each in wanted], abs=1e-5)


def test_a_player_who_decides_seldom(tmp_path: Path) -> None:
    """At the ticks 1, 4, 7, 10 of each episode; the first of them saw nothing of it."""
    recorded = demonstration((9, 14))
    rings = Rings()
    fill(saved(tmp_path, recorded), rings, 3, interval=3)
    go_live(rings)
    rows = rings.ledger.read(0, 23)
    decided = [4, 7, *(9 + tick for tick in (4, 7, 10, 13))]
    assert np.flatnonzero(rows["source"] == Source.AGENT).tolist() == decided
    assert rows["observed"][decided].tolist() == [tick - 3 for tick in decided]
    assert rows["action"].tolist() == recorded.actions.tolist()
    found = transitions(rings, 1)
    assert [each[0] + 3 for each in found] == decided
    for state, action, total, _, _ in found:
        own = range(state + 3, min(state + 6, 9 if state < 9 else 23))
        assert action == recorded.actions[own[0]]
        rewards = [GAMMA**i * float(recorded.rewards[tick]) for i, tick in enumerate(own)]
        assert total == pytest.approx(sum(rewards), abs=1e-5)


@pytest.mark.parametrize(("delay", "interval"), [(14, 1), (4, 15)])
def test_demonstrations_without_any_decision_are_refused(
    tmp_path: Path, delay: int, interval: int
) -> None:
    source = saved(tmp_path, demonstration((9, 14)))
    with pytest.raises(UserError, match=f"no decision.*delay = {delay} .*interval = {interval}$"):
        fill(source, Rings(), delay, interval=interval)
    assert fill(source, Rings(), 13) == 23


def test_a_saved_replay_still_knows_what_was_demonstrated(tmp_path: Path) -> None:
    rings = Rings()
    fill(saved(tmp_path, demonstration((9, 14))), rings, 2)
    go_live(rings)
    rings.ledger.truncate_episode()
    rings.save(tmp_path / "replay")
    restored, _ = stored_replay.load(tmp_path / "replay")
    for each in (rings, restored):
        *_, demonstrated = stored_replay.transitions(each, 0)
        assert demonstrated == [True] * (23 - 2 * 2) + [False]


def test_rows_and_frames_are_whole(tmp_path: Path) -> None:
    recorded = demonstration((9, 4))
    rings = Rings()
    assert fill(saved(tmp_path, recorded), rings, 2) == 13
    rows = rings.ledger.read(0, 13)
    assert len(rows) == 13
    assert all(checksum(row) == row["crc"] for row in rows)
    assert rows["action"].tolist() == recorded.actions.tolist()
    assert rows["reward"].tolist() == recorded.rewards.tolist()
    assert rows["flags"].tolist() == recorded.flags.tolist()
    assert rows["observed"].tolist() == [-1, -1, *range(7), -1, -1, 9, 10]
    acted = rows["observed"] >= 0
    assert (rows["source"] == np.where(acted, Source.AGENT, Source.DEFAULT)).all()
    assert set(rows["time_ns"]) == {77}
    for tick in range(13):
        frame = rings.frames.frame(tick)
        assert (frame == recorded.frames[tick]).all()
    stack = np.empty((4, 6, 5), np.uint8)
    assert rings.frames.observation(10, stack)
    assert (stack == recorded.frames[[9, 9, 9, 10]]).all()


@pytest.mark.parametrize(("keep", "kept"), [(1000, 40 - GUARD_TICKS), (10, 10), (0, 0)])
def test_the_newest_ticks_are_kept(tmp_path: Path, keep: int, kept: int) -> None:
    parts = [demonstration((10, 15), seed) for seed in range(3)]
    rings = Rings(capacity=40)
    assert fill(saved(tmp_path, *parts), rings, 1, keep=keep) == kept
    assert rings.ledger.newest == rings.frames.newest == 74
    assert rings.ledger.oldest == rings.frames.oldest == 75 - kept
    rows = rings.ledger.read(0, 75)
    assert rows["tick"].tolist() == list(range(75 - kept, 75))
    actions = np.concatenate([part.actions for part in parts])[75 - kept :]
    assert rows["action"].tolist() == actions.tolist()
    for tick in rows["tick"]:
        assert (rings.frames.frame(tick) == parts[tick // 25].frames[tick % 25]).all()
    assert all(75 - kept <= frame for frame, *_ in transitions(rings, 1))


def test_progress_goes_from_file_to_file(tmp_path: Path) -> None:
    rings = Rings()
    past = find_demonstrations(
        saved(tmp_path, demonstration(), demonstration()), config(), rings.blueprint
    )
    done: list[float] = []
    load(
        past, rings.blueprint, rings.frames, rings.ledger, delay=1, time_ns=0,
        progress=done.append,
    )
    assert done == [0.0, 0.5]


def test_vectors_are_as_they_were_executed(tmp_path: Path) -> None:
    """The environment had clipped them."""
    blueprint = make_blueprint(
        frame_shape=(3,), frame_dtype="float32", action_shape=(2,), action_dtype="float32",
        action_space=gym.spaces.Box(-1.0, np.array([1.0, 0.5], np.float32)), action_meanings=(),
    )
    actions = np.array([[0.25, 0.25], [-3.0, 3.0]], np.float32)
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    recorded = demonstration((2,), frames=vectors, actions=actions, action_meanings=())
    rings = Rings(blueprint)
    assert fill(saved(tmp_path, recorded), rings, 1) == 2
    assert rings.ledger.read(0, 2)["action"].tolist() == [[0.25, 0.25], [-1.0, 0.5]]
    assert rings.frames.frames[:2].tolist() == vectors.tolist()


@pytest.mark.parametrize(("blueprint", "changes", "words"), [
    ({}, {"environment": "Pong-v5"}, f"the environment Pong-v5, not {ENVIRONMENT}"),
    ({"frame_shape": (84, 84)}, {}, "the frames 6x5 uint8, not 84x84 uint8; record"),
    ({"frame_dtype": "float32"}, {}, "the frames 6x5 uint8, not 6x5 float32"),
    ({"action_shape": (2,), "action_dtype": "float32"}, {}, "the actions int32, not 2 float32"),
    ({"action_meanings": ("NOOP", "UP")}, {}, "the actions NOOP LEFT RIGHT, not NOOP UP"),
    ({"cartridge": "BLUE 11"}, {"cartridge": "RED 00"}, "the cartridge RED 00, not BLUE 11"),
])
def test_what_does_not_fit_is_refused_with_both_names(
    tmp_path: Path, blueprint: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    saved(tmp_path, demonstration(**changes))
    with one_line(words, str(tmp_path / "0.demo")):
        find_demonstrations(tmp_path, config(), make_blueprint(**blueprint))


def test_an_action_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    actions = np.full(12, 3, np.int32)
    saved(tmp_path, demonstration(actions=actions, action_meanings=()))
    with pytest.raises(UserError, match="the action 3, and the environment's go from 0 to 2"):
        fill(tmp_path, Rings(), 1)


def test_a_place_without_demonstrations_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.txt").touch()
    with pytest.raises(UserError, match=r"no file there ends in \.demo"):
        find_demonstrations(tmp_path, config(), make_blueprint())
    with pytest.raises(UserError, match="No such file"):
        find_demonstrations(tmp_path / "absent.demo", config(), make_blueprint())


def test_a_file_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    rings = Rings()
    past = find_demonstrations(saved(tmp_path, demonstration()), config(), rings.blueprint)
    saved(tmp_path, demonstration((7, 6)))
    with pytest.raises(UserError, match="has changed"):
        load(past, rings.blueprint, rings.frames, rings.ledger, delay=1, time_ns=0)


@pytest.mark.parametrize(
    ("latency_ms", "delay", "ticks"),
    [(0.0, "auto", 1), (10.0, "auto", 1), (50.0, "auto", 4), (55.0, "auto", 4), (50.0, 2, 2)],
)
def test_the_delay_is_that_of_the_injected_latency(
    latency_ms: float, delay: Any, ticks: int
) -> None:
    """60 ticks per second: 50 ms are three ticks, and the action is used at the next one."""
    values = {"inference": {"injected_latency_ms": latency_ms}}
    values["learning"] = {"demonstration_delay": delay}
    assert delay_ticks(parse_config(values), make_blueprint()) == ticks


# ---- learning from them

REACTION = 5
TICKS = 1200


def reacting_world() -> tuple[Blueprint, Demonstration]:
    """The action that is right shows some ticks before it must be executed; played at random."""
    rng = np.random.default_rng(0)
    wanted = rng.integers(3, size=TICKS)
    actions = rng.integers(3, size=TICKS, dtype=np.int32)
    rewards = (actions == np.roll(wanted, REACTION)).astype(np.float32)
    blueprint = make_blueprint(
        frame_shape=(3,), frame_dtype="float32", frame_stack=1,
        observation_space=gym.spaces.Box(0, 1, (1, 3), np.float32),
    )
    frames = np.eye(3, dtype=np.float32)[wanted]
    return blueprint, demonstration((TICKS,), frames=frames, actions=actions, rewards=rewards)


@pytest.mark.parametrize(("delay", "least", "most"), [(REACTION, 1.0, 1.0), (1, 0.0, 0.7)])
def test_what_is_learned_from_them_alone_is_right_at_their_delay(
    tmp_path: Path, delay: int, least: float, most: float
) -> None:
    torch.manual_seed(0)
    blueprint, recorded = reacting_world()
    rings = Rings(blueprint, capacity=2000)
    fill(saved(tmp_path, recorded), rings, delay)
    learning = LearningConfig(n_step=1, gamma=0.0, learning_rate=5e-3)
    replay = Replay(rings.frames, rings.ledger, learning)
    replay.catch_up()
    network = networks.build(
        PolicyConfig(network="mlp"), blueprint.observation_space, blueprint.action_space
    )
    update, rng = LocalUpdate(network, learning), np.random.default_rng(0)
    for _ in range(150):
        batch = replay.sample(32, rng)
        update.step(batch)
    with torch.no_grad():
        chosen = network(torch.eye(3)[:, None]).argmax(1)
    right = float((chosen == torch.arange(3)).float().mean())
    assert least <= right <= most


# ---- in a daemon

SLOW_POLE = (
    "env.id=CartPole-v1", "env.rate_hz=5", "learning.processes=1", "learning.n_step=1",
    "learning.learning_starts=1000", "learning.updates_per_tick=10", "inference.processes=1",
    "run.checkpoint_replay=true",
)


def play_pole(path: Path, ticks: int = 1200) -> None:
    """CartPole, pushed to where it falls."""
    env, writer = gym.make("CartPole-v1"), DemonstrationWriter("CartPole-v1")
    episode, fresh, seed = 0, True, 0
    for _ in range(ticks):
        if fresh:
            frame, _ = env.reset(seed=seed)
            writer.add(frame, 0, 0.0, 0, episode)
            fresh = False
            continue
        action = int(frame[2] + frame[3] > 0)
        frame, reward, terminated, truncated, _ = env.step(action)
        fresh = terminated or truncated
        writer.add(frame, action, float(reward), terminated + 2 * truncated, episode)
        episode += fresh
        seed = episode
    writer.save(path)


@pytest.mark.process
def test_a_run_learns_from_demonstrations_at_once_and_loads_them_once(
    run: Runtimes, tmp_path: Path
) -> None:
    path = tmp_path / "pole.demo"
    play_pole(path)
    settings = (*SLOW_POLE, f"learning.demonstrations={path}")
    with run(*settings, "learning.prioritized=true") as runtime:
        world = runtime.world
        assert world.first_tick == 1200
        learns(runtime)
        # At a run's own ticks alone it would have begun to learn after so many.
        own = world.ledger.newest + 1 - world.first_tick
        assert own < world.config.learning.learning_starts
        (told,) = events(runtime, "demonstrations")
        wanted = {"ticks": 1200, "left_out": 0, "files": 1, "delay": 1, "path": str(path)}
        assert told.items() >= wanted.items()
        seam = world.ledger.read(1199, 1201)
        assert seam["flags"][0]
        assert seam["episode"][1] == seam["episode"][0] + 1
        demonstrated = world.ledger.read(0, 1199)
        assert runtime.stats()["clock"]["ticks"] < world.first_tick
    with run(*settings) as runtime:
        assert runtime.world.first_tick > 1200
        assert (runtime.world.ledger.read(0, 1199) == demonstrated).all()
        (told,) = events(runtime, "demonstrations")
        assert told["skipped"] == "a saved replay is restored"
        learns(runtime)
        assert updates(runtime) > 0


@pytest.mark.process
def test_a_damaged_demonstration_ends_the_start(run: Runtimes, tmp_path: Path) -> None:
    path = tmp_path / "pole.demo"
    play_pole(path, 30)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refused = one_line(r"learning\.demonstrations: .*wrong checksum", re.escape(str(path)))
    settings = (*SLOW_POLE, f"learning.demonstrations={path}")
    with run(*settings, wait=False) as runtime, refused:
        runtime.wait_ready(180)
