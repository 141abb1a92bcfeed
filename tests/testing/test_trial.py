"""A trial in this process, in virtual time: what it finds in environments with a fault."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import bad_worlds
import gymnasium as gym
import pytest

from rtagent.clock import VirtualClock
from rtagent.testing.findings import Findings, Job
from rtagent.testing.report import Check
from rtagent.testing.trial import FEWEST_STEPS, MAKING_S, REPEATED_STEPS, RESETS, Trial
from rtagent.testing.verdicts import judge

OK = {"usable", "errors", "step time", "reset time", "spaces", "rewards", "episode ends",
      "determinism", "noop", "close"}


def job_of(make: Any, **job: Any) -> Job:
    return Job(make, **{"kwargs": {}, "rate_hz": None, "seconds": 2.0, "seed": 0,
                        "step_limit_s": 5.0, "reset_limit_s": 60.0, **job})


def attempt(make: Any, clock: VirtualClock | None = None, **job: Any) -> Findings:
    return Trial(job_of(make, **job), lambda *news: None, clock or VirtualClock()).run()


def verdicts(make: Any, **job: Any) -> dict[str, Check]:
    return {check.name: check for check in judge(attempt(make, **job))}


@pytest.mark.parametrize("make", [bad_worlds.Honest, bad_worlds.Lists])
def test_nothing_is_wrong_with_an_honest_environment(make: Any) -> None:
    found = attempt(make)
    assert {check.name for check in judge(found) if check.verdict == "ok"} == OK
    assert len(found.steps_s) == 100
    assert found.ended == [20] * 5
    # `_begin`, and one after each episode.
    assert len(found.resets_s) == RESETS + 5
    assert found.late_s == [0.0] * 99
    assert (found.noop_ticks, found.noop_return, found.noop_ended) == (20, 0.0, True)


def test_settings_decide_what_the_agent_sees_and_what_nothing_is() -> None:
    assert attempt(bad_worlds.TwoCameras).refusal is not None
    settings = {"observation_key": "rear", "image_size": 32, "default_action": "repeat"}
    found = attempt(bad_worlds.TwoCameras, settings=settings)
    assert found.refusal is None
    assert "32x32 pixels, grey" in found.sight
    assert "of the Dict only rear" in found.sight
    assert found.noop == "env.default_action = repeat"
    assert found.noop_declared


@pytest.mark.parametrize(("space", "noop"), [
    (gym.spaces.Discrete(3, start=-5), "action -5"),
    (gym.spaces.MultiDiscrete([2, 3], start=[4, 1]), "action [4, 1]"),
    (gym.spaces.Box(1.0, 2.0, (1, 2)), "action [[1.0, 1.0]]"),
])
def test_the_noop_is_told_as_the_environment_takes_it(space: gym.Space[Any], noop: str) -> None:
    class Numbered(bad_worlds.Undeclared):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space

        def step(self, action: Any) -> Any:
            return super().step(0)

    assert attempt(Numbered).noop == noop


def test_a_default_action_that_there_is_not_is_a_refusal() -> None:
    found = attempt(bad_worlds.Honest, settings={"default_action": 77})
    assert "env.default_action = 77" in found.refusal


def test_what_the_default_behaviour_raises_is_not_said_of_the_environment() -> None:
    news: list[tuple[str, float]] = []
    settings = {"default_action": f"{__name__}:no_action"}
    trial = Trial(
        job_of(bad_worlds.Honest, settings=settings),
        lambda call, limit_s, found: news.append((call, limit_s)), VirtualClock(),
    )
    assert re.match(r"the default behaviour raised ValueError: .*no_action ", trial.run().error)
    assert news[-1] == ("the default behaviour", 2.04)


def no_action(frame: Any) -> int:
    return 77


def test_the_rate_that_is_asked_for_is_kept() -> None:
    clock = VirtualClock()
    found = attempt(bad_worlds.Honest, clock, rate_hz=10.0, seconds=7.0)
    assert (found.rate_hz, len(found.steps_s)) == (10.0, 70)
    assert clock.now() == pytest.approx(6.9)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize(("make", "name", "verdict", "told"), [
    (bad_worlds.NanReward, "rewards", "fail", "nan"),
    (bad_worlds.HugeReward, "rewards", "fail", r"^1e\+39 \(\d+ times\)$"),
    (bad_worlds.Unseeded, "determinism", "fail", "the same seed"),
    (bad_worlds.Numbered, "determinism", "fail", "a new environment"),
    (bad_worlds.WrongShape, "spaces", "fail", r"float32 \(4,\), where float32 \(3,\)"),
    (bad_worlds.Outside, "spaces", "warn", "outside the bounds"),
    (bad_worlds.OutsideInADict, "spaces", "warn", "outside the bounds"),
    (bad_worlds.WrongShapeInADict, "spaces", "fail", r"float32 \(4,\), where float32 \(3,\)"),
    (bad_worlds.Endless, "spaces", "fail", r"^values that are not finite \(\d+ times\)$"),
    (bad_worlds.TooLarge, "spaces", "fail", r"^values that are not finite \(\d+ times\)$"),
    (bad_worlds.WrongTypeAndNan, "spaces", "fail",
     r"float64 \(3,\), where float32 .*; values that are not finite \(\d+ times\)$"),
    (bad_worlds.NumbersAsFlags, "episode ends", "fail", "truncated is int"),
    (bad_worlds.OneTick, "episode ends", "warn", "100 episodes"),
    (bad_worlds.Raising, "errors", "fail",
     r"^step\(\) raised ValueError: no such road \(.+bad_worlds\.py:\d+\)$"),
    (bad_worlds.OldStep, "errors", "fail", r"raised TypeError: step\(\) returns 4 values"),
    (bad_worlds.NoStep, "errors", "fail", r"raised TypeError: step\(\) returns a None"),
    (bad_worlds.Leaves, "errors", "fail",
     r"^step\(\) raised SystemExit: no robot \(.+bad_worlds\.py:\d+\)$"),
    (bad_worlds.CloseRaises, "errors", "fail", r"close\(\) raised OSError"),
    (bad_worlds.Undeclared, "noop", "warn", "action 0: 20 ticks"),
    (bad_worlds.HarmfulNoop, "noop", "fail", "1 ticks"),
    (bad_worlds.BadSpace, "usable", "fail", "cannot act in Text"),
    (bad_worlds.Boundless, "usable", "fail", r"cannot act in Box\(-inf, .*needs finite bounds"),
])
def test_each_fault_is_found(make: Any, name: str, verdict: str, told: str) -> None:
    checks = verdicts(make)
    assert checks[name].verdict == verdict
    assert re.search(told, checks[name].found)
    assert checks[name].advice


def test_a_slow_step_is_timed() -> None:
    clock = VirtualClock()

    class Slow(bad_worlds.Honest):
        def step(self, action: Any) -> Any:
            clock.advance(0.5 if self.ticks == 1 else 0.001)
            return super().step(action)

        def reset(self, **options: Any) -> Any:
            clock.advance(0.03)
            return super().reset(**options)

    found = attempt(Slow, clock)
    assert max(found.steps_s) == pytest.approx(0.5)
    assert sorted(found.steps_s)[0] == pytest.approx(0.001)
    assert found.resets_s == pytest.approx([0.03] * len(found.resets_s))
    told = {check.name: check for check in judge(found)}
    assert (told["step time"].verdict, told["reset time"].verdict) == ("fail", "warn")


def test_an_environment_may_make_its_spaces_anew_each_time() -> None:
    class Fresh(gym.Env[Any, Any]):
        metadata: ClassVar[dict[str, Any]] = {"render_fps": 50}

        @property
        def action_space(self) -> Any:
            return gym.spaces.Discrete(3)

        @property
        def observation_space(self) -> Any:
            return gym.spaces.Discrete(3)

        def reset(self, **options: Any) -> Any:
            return 0, {}

        def step(self, action: Any) -> Any:
            return action, 0.0, False, False, {}

    assert verdicts(Fresh)["determinism"].verdict == "ok"


def test_a_slow_reset_is_judged_by_the_settings() -> None:
    clock = VirtualClock()

    class Slow(bad_worlds.Honest):
        def reset(self, **options: Any) -> Any:
            clock.advance(0.07)
            return super().reset(**options)

    for most, told in ((0, "the clock slips"), (2, "fills 2 of them")):
        found = attempt(Slow, clock, settings={"max_catch_up_ticks": most})
        assert told in next(each for each in judge(found) if each.name == "reset time").advice


def test_calls_are_announced_with_their_limits() -> None:
    news: list[tuple[str, float, Findings | None]] = []
    trial = Trial(
        job_of(bad_worlds.Honest, seconds=1.0, step_limit_s=8.0, reset_limit_s=9.0),
        lambda *told: news.append(told), VirtualClock(),
    )
    trial.run()
    calls = [call for call, _, _ in news]
    assert calls[0] == "making the environment"
    assert calls[1] == "reset()"
    assert calls.count("step()") > 50
    assert calls[-2:] == ["close()", "looking for what is left"]
    assert news[0][1] == MAKING_S
    limits = {call: limit for call, limit, _ in news}
    assert (limits["step()"], limits["reset()"], limits["close()"]) == (8.0, 9.0, 2.04)
    # Of a busy machine it was said that the environment hangs.
    assert limits["looking for what is left"] == MAKING_S
    assert [told for _, _, told in news if told is not None][-1] is trial.found


def test_the_wait_for_a_tick_is_no_call_that_hangs() -> None:
    """Of a world slower than `step_limit_s` it was said that step() does not come back."""
    clock = VirtualClock()
    until = [0.0]

    def announce(call: str, limit_s: float, found: Findings | None) -> None:
        assert clock.now() <= until[0], "it was ended before"
        until[0] = clock.now() + limit_s

    job = job_of(bad_worlds.Honest, rate_hz=0.01, seconds=1.0, step_limit_s=0.5, reset_limit_s=1.0)
    found = Trial(job, announce, clock).run()
    assert found.error is None
    assert len(found.steps_s) == FEWEST_STEPS


def test_an_environment_that_is_registered_as_nondeterministic_is_not_repeated() -> None:
    def make() -> Any:
        env = bad_worlds.Unseeded()
        env.spec = gym.envs.registration.EnvSpec("bad/Unseeded-v0", nondeterministic=True)
        return env

    found = attempt(make)
    assert (found.nondeterministic, found.repeats) == (True, None)
    assert len(found.steps_s) < 100 + 2 * REPEATED_STEPS
    assert {check.name: check.verdict for check in judge(found)}["determinism"] == "skip"
