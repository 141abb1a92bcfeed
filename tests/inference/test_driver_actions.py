"""The actions that a driver deposits: chunks, exploration, continuous ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest

from rtagent.config import Config, LearningConfig, PolicyConfig
from rtagent.policy.exploration import explores, run_seed, smooth_noise
from rtagent.staggering.arbiter import Deposited
from rtagent.staggering.instructions import Deposit, Infer
from tests.desired import with_changes
from tests.inference.driver_bench import INDEX, PARAMETERS, Bench


def steered(monkeypatch: pytest.MonkeyPatch, box: gymnasium.spaces.Box) -> Bench:
    """A driver whose actions have three continuous components."""
    return Bench(monkeypatch, action_space=box, action_shape=(3,), action_dtype="float32")


def assert_refused(bench: Bench, *answer: Any) -> None:
    """The policy answers so to the newest frame, and the error names the frame."""
    bench.policy.answers = np.float32(answer)
    with pytest.raises(FloatingPointError, match=f"to frame {bench.frames.newest}"):
        bench.follow(Infer(None))


def test_a_chunk_fills_the_slots_of_consecutive_ticks(bench: Bench) -> None:
    bench.show(0, 1, 2)
    bench.policy.answers = np.eye(PARAMETERS, dtype=np.float32)
    order = []
    deposit = bench.slots.deposit
    bench.slots.deposit = lambda item: (  # type: ignore[method-assign]
        order.append((item.tick, item.position, bench.record.inferences)), deposit(item)
    )
    bench.follow(Infer(2), Deposit(9, 2))
    # The first action is deposited before the inference is counted, the others after that.
    assert order == [(9, 0, 0), (10, 1, 1), (11, 2, 1)]
    for position, tick in enumerate((9, 10, 11)):
        (found,) = bench.slots.at(tick)
        assert found == Deposited(
            INDEX, 2, tick, position, 0, found.registered_at, position=position
        )
    assert len({bench.slots.at(tick)[0].registered_at for tick in (9, 10, 11)}) == 1
    (sample,) = bench.record.registrations_since(0)
    assert (sample["tick"], sample["ticks"]) == (9, 3)
    assert_refused(bench, [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [np.nan, 0.0, 1.0])


@pytest.mark.parametrize(("tick", "chosen"), [(3, [0, 1, 2]), (4, [1, 2]), (5, [2]), (9, [2])])
def test_a_chunk_that_starts_at_its_observation_leaves_out_what_is_over(
    bench: Bench, tick: int, chosen: list[int]
) -> None:
    """Tick 2 publishes frame 2, so the first action is for tick 3, whatever tick was promised."""
    bench.configure(epsilon_end=0.0, chunk_start="observation")
    bench.show(0, 1, 2)
    bench.policy.answers = np.eye(PARAMETERS, dtype=np.float32)
    bench.follow(Infer(2), Deposit(tick, 2))
    found = [bench.slots.at(tick + position) for position in range(PARAMETERS)]
    assert [each[0].action for each in found if each] == chosen
    assert [each[0].position for each in found if each] == list(range(len(chosen)))


@pytest.mark.parametrize("start", ["observation", "promised"])
def test_a_chunk_of_a_frame_behind_the_promised_tick_begins_after_its_frame(
    bench: Bench, start: Literal["observation", "promised"]
) -> None:
    """A hedged question is about the newest frame, which may be newer than the tick promised."""
    bench.configure(epsilon_end=0.0, chunk_start=start)
    bench.show(0, 1, 2, 3, 4, 5)
    bench.policy.answers = np.eye(PARAMETERS, dtype=np.float32)
    bench.follow(Infer(5), Deposit(3, 5))
    assert not any(bench.slots.at(tick) for tick in range(6))
    found = [bench.slots.at(6 + position)[0] for position in range(PARAMETERS)]
    assert [each.action for each in found] == [each.position for each in found] == [0, 1, 2]
    (sample,) = bench.record.registrations_since(0)
    assert (sample["tick"], sample["ticks"]) == (6, 3)


def test_where_a_chunk_starts_by_itself() -> None:
    assert not PolicyConfig().starts_at_observation
    assert PolicyConfig(pretrained="policy.pt2").starts_at_observation
    assert PolicyConfig(remote="ws://here:1").starts_at_observation
    assert not PolicyConfig(remote="ws://here:1", chunk_start="promised").starts_at_observation


RESUMED = Path("checkpoints/checkpoint-000002-000000000448.safetensors")


@pytest.mark.parametrize("resume", [None, RESUMED])
def test_each_action_of_a_chunk_explores_like_that_of_its_tick_in_its_run(
    bench: Bench, resume: Path | None
) -> None:
    """A run that goes on explores otherwise."""
    bench.configure(epsilon_end=0.5, exploration_hold_ticks=1)
    bench.resume = resume
    bench.show(*range(5))
    bench.policy.answers = np.tile(np.float32([1.0, 0.0, 0.0]), (40, 1))
    bench.follow(Infer(4), Deposit(6, 4))
    found = [bench.slots.at(6 + position)[0].action for position in range(40)]
    for seed, alike in ((run_seed(0, resume), True), (0, resume is None)):
        drawn = [explores(seed, 4 + position, 1, 0.5, PARAMETERS) or 0 for position in range(40)]
        assert (found == drawn) == alike
    assert any(found)


def test_a_policy_that_answers_actions_is_taken_at_its_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = steered(monkeypatch, gymnasium.spaces.Box(-2.0, 2.0, (3,)))
    bench.configure(epsilon_end=1.0)
    bench.show(0)
    bench.policy.answers_actions = True  # type: ignore[attr-defined]
    bench.policy.answers = np.float32([[1.0, -1.0, 0.5], [0.0, 3.0, 0.0]])
    bench.follow(Infer(0), Deposit(1, 0))
    assert bench.slots.at(1)[0].action.tolist() == [1.0, -1.0, 0.5]
    assert bench.slots.at(2)[0].action.tolist() == [0.0, 2.0, 0.0]
    assert bench.record.epsilon == 0.0


def drawn_by_ppo(bench: Bench, logits: np.ndarray) -> list[Deposited]:
    """What a policy that is learning draws on twelve frames."""
    bench.config = Config(learning=LearningConfig(algorithm="ppo"))
    bench.policy.answers = logits
    for frame in range(12):
        bench.show(frame)
        bench.follow(Infer(frame), Deposit(frame + 1, frame))
        bench.stopping = False
    return [bench.slots.at(frame + 1)[0] for frame in range(12)]


def test_a_policy_s_probability_travels_with_its_action(bench: Bench) -> None:
    logits = np.log(np.float32([0.2, 0.7, 0.1]))
    found = drawn_by_ppo(bench, logits)
    assert len({each.action for each in found}) > 1
    wanted = [logits[each.action] for each in found]
    assert [each.log_probability for each in found] == pytest.approx(wanted, abs=1e-5)


def test_a_policy_may_exclude_actions(bench: Bench) -> None:
    """As it may while it learns: by a logit of -inf."""
    found = drawn_by_ppo(bench, np.float32([0.0, -np.inf, 1.0]))
    assert {each.action for each in found} == {0, 2}
    assert np.isfinite([each.log_probability for each in found]).all()
    for wrong in ([-np.inf] * 3, [0.0, np.nan, 1.0], [0.0, -np.inf, np.inf]):
        assert_refused(bench, *wrong)


def test_a_finished_policy_may_exclude_actions(bench: Bench) -> None:
    """As one that learned to, by ppo, does in the file that `rtagent export` writes."""
    bench.show(0)
    assert_refused(bench, [-np.inf, 0.0, 1.0], [0.0, -np.inf, -1.0])
    bench.policy.answers_actions = True  # type: ignore[attr-defined]
    bench.follow(Infer(0), Deposit(1, 0))
    assert [bench.slots.at(tick)[0].action for tick in (1, 2)] == [2, 0]
    assert_refused(bench, 0.0, np.nan, 1.0)


def test_a_finished_policy_excludes_no_part_of_a_continuous_action(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = steered(monkeypatch, gymnasium.spaces.Box(-2.0, 2.0, (3,)))
    bench.show(0)
    bench.policy.answers_actions = True  # type: ignore[attr-defined]
    assert_refused(bench, 0.0, -np.inf, 1.0)


@pytest.mark.parametrize("shape", [(PARAMETERS + 1,), (PARAMETERS - 1,), (4, PARAMETERS + 1), (0,)])
def test_an_answer_with_another_number_of_actions_reaches_no_world(
    bench: Bench, shape: tuple[int, ...]
) -> None:
    """As a network may give one later than when it is tried."""
    bench.show(0)
    bench.policy.answers = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match=rf"answered {shape[-1]} numbers, not 3, to frame 0"):
        bench.follow(Infer(0), Deposit(1, 0))
    assert list(bench.slots.at(1)) == []


def test_several_actions_may_have_the_least_number_there_is(bench: Bench) -> None:
    bench.configure(epsilon_end=0.0)
    bench.show(0)
    least = np.finfo(np.float32).min
    bench.policy.answers = np.float32([least, 1.0, least])
    bench.follow(Infer(0), Deposit(1, 0))
    assert bench.slots.at(1)[0].action == 1


def test_continuous_actions_travel_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    box = gymnasium.spaces.Box(np.float32([-1.0, 0.0, -9.0]), np.float32([1.0, 0.5, 9.0]))
    bench = steered(monkeypatch, box)
    bench.show(0, 1, 2)
    bench.policy.answers = np.float32([0.25, 0.75, 3.0])
    bench.follow(Infer(2), Deposit(9, 2))
    (found,) = bench.slots.at(9)
    # The second component was outside its bounds.
    assert found.action.tolist() == [0.25, 0.5, 3.0]
    assert_refused(bench, 0.0, np.nan, 0.0)


def test_continuous_actions_explore_alike_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = []
    for _ in range(2):
        bench = steered(monkeypatch, gymnasium.spaces.Box(-2.0, 2.0, (3,)))
        bench.configure(epsilon_end=0.5)
        bench.show(*range(5))
        bench.policy.answers = np.zeros(3, np.float32)
        bench.follow(Infer(4), Deposit(5, 4))
        actions.append(bench.slots.at(5)[0].action.tolist())
    wanted = np.clip(np.array(smooth_noise(0, 4, 8, 3)), -2.0, 2.0)
    np.testing.assert_allclose(actions[0], wanted, rtol=1e-5)
    assert actions[0] == actions[1]
    assert bench.record.epsilon == 0.5


def test_exploration_follows_the_updates_behind_the_weights(bench: Bench) -> None:
    """Not the frames: a hundred updates lie between two frames here."""
    bench.configure(
        learners=1, epsilon_start=1.0, epsilon_end=0.0, epsilon_steps=1000,
        exploration_hold_ticks=1,
    )
    numbers = range(200, 211)
    bench.show(*range(190, 211))
    for version, number in enumerate(numbers):
        bench.publish(10 * version)
        bench.weights.take_over()
        bench.stopping = False
        bench.follow(Infer(number), Deposit(number + 1, number))
        rate = 1.0 - version / 10
        assert bench.record.epsilon == pytest.approx(rate)
        random = explores(0, number, 1, rate, PARAMETERS)
        (deposited,) = bench.slots.at(number + 1)
        assert deposited.frame == number
        assert deposited.action == (1 if random is None else random)


def test_a_run_explores_by_schedule_once_it_has_learners(bench: Bench) -> None:
    bench.configure(epsilon_end=0.5)
    bench.show(0, 1)
    bench.follow(Infer(0), Deposit(1, 0))
    assert bench.record.epsilon == 0.5
    bench.desired = with_changes(bench.desired, learning={"processes": 1})
    bench.follow(Infer(1), Deposit(2, 1))
    assert bench.record.epsilon == 1.0
