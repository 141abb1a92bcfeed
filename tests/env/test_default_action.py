import re

import gymnasium as gym
import numpy as np
import pytest
import stub_worlds

from rtagent.config import EnvConfig
from rtagent.env.adapter import Adapter
from rtagent.env.default_action import DefaultBehaviour
from tests.refused import one_line

FRAME = np.ones(3, np.float32)
THREE = gym.spaces.Discrete(3, start=1)
PLANE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
GRID = gym.spaces.Box(-1.0, 1.0, (2, 2), np.float32)


def behaviour(value, space=THREE, **attributes):
    adapter = Adapter(stub_worlds.World(actions=space, **attributes), EnvConfig())
    return DefaultBehaviour(EnvConfig(default_action=value), adapter)


@pytest.mark.parametrize(("value", "after_none", "after_0"), [("noop", 2, 2), ("repeat", 2, 0)])
def test_noop_is_the_environments_and_repeat_the_last_executed(value, after_none, after_0):
    default = behaviour(value, noop_action=3)
    assert default.noop == 2
    assert (default.action(FRAME, None), default.action(FRAME, 0)) == (after_none, after_0)


def test_an_action_is_written_in_the_environments_numbering():
    assert behaviour(2).action(FRAME, 0) == 1
    np.testing.assert_array_equal(behaviour([0.5, -0.5], PLANE).action(FRAME, None), [0.5, -0.5])


def test_a_callable_is_asked_on_every_tick_and_cannot_change_the_frame():
    default = behaviour("stub_worlds:brightest")
    frame = FRAME.copy()
    assert default.action(frame, 2) == 0
    np.testing.assert_array_equal(frame, FRAME)


def test_a_callables_answer_is_clipped_to_the_box():
    default = behaviour("stub_worlds:Pilot.steer", PLANE)
    np.testing.assert_array_equal(default.action(FRAME, None), [1.0, -1.0])


@pytest.mark.parametrize("space", [THREE, PLANE])
def test_a_callables_illegal_answer_is_refused(space):
    with pytest.raises(ValueError, match=r"env.default_action = stub_worlds:beyond answered: "):
        behaviour("stub_worlds:beyond", space).action(FRAME, None)


@pytest.mark.parametrize(
    ("value", "space", "reason"),
    [
        (0, THREE, "0 is outside 1 to 3"),
        ([1.0], THREE, "expected a whole number"),
        (1, PLANE, "expected shape"),
        ([0.0, 1.5], PLANE, "outside"),
        ([0.0], PLANE, "expected shape (2,), got (1,)"),
        ([0.0], GRID, "expected shape (4,) or (2, 2), got (1,)"),
        ("nop", THREE, "expected noop, repeat, an action or package.module:callable"),
        ("no_such_module:f", THREE, "No module named 'no_such_module'; install it, or put its"),
        ("stub_worlds:nothing", THREE, "stub_worlds has no nothing"),
        ("stub_worlds:NOT_CALLABLE", THREE, "NOT_CALLABLE is not callable"),
    ],
)
def test_an_illegal_value_is_refused_in_one_line(value, space, reason):
    with one_line(f"^env.default_action = {re.escape(str(value))}: ", re.escape(reason)):
        behaviour(value, space)


def test_a_module_that_fails_is_not_said_to_lack_the_function(tmp_path, monkeypatch):
    (tmp_path / "outdated.py").write_text("import math\n\nmath.gone\n\ndef choose(frame): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    with one_line(r"cannot import outdated: AttributeError: module 'math' has .*outdated\.py:3\)"):
        behaviour("outdated:choose")
