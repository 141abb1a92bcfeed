"""What a server says: agreed upon, read, and refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

from rtagent.memory.actions import LONGEST_CHUNK
from rtagent.remote.answers import Terms, Timing, timing_of
from rtagent.remote.protocol import ProtocolError, decode
from tests.conftest import make_blueprint
from tests.refused import one_line

DISCRETE = Terms(3, discrete=True)
ARM = Terms(2, discrete=False)
RECURRENT = Terms(3, discrete=True, state=4)
TOLD = Terms(3, discrete=True, pending=6)
LEAST = float(np.finfo(np.float32).min)
DEEP = decode(b"\x81\xa1a" + b"\x91" * 1015 + b"\x01")["a"]
"""A list as deep as a message may have, which Python cannot write as text."""


def test_a_run_says_what_it_needs() -> None:
    seen = make_blueprint().observation_space
    shown = {"shape": seen.shape, "dtype": str(seen.dtype)}
    assert Terms.of(make_blueprint()) == replace(DISCRETE, **shown)
    assert Terms.of(make_blueprint(state_size=4)) == replace(RECURRENT, **shown)
    assert Terms.of(make_blueprint(pending_actions=2)) == replace(TOLD, **shown)
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    assert Terms.of(make_blueprint(action_space=space, action_shape=(2,))) == replace(ARM, **shown)


def test_our_server_says_what_it_answers_with_and_others_answer_with_actions() -> None:
    assert DISCRETE.agreed({"answers": "values", "outputs": 3}).answers == "values"
    assert DISCRETE.agreed({"model": "pi0"}).answers == "actions"
    assert ARM.agreed({}).answers == "actions"
    assert RECURRENT.agreed({"policy_state": 4}).state == 4
    # A server of others may make something of them, or not.
    assert TOLD.agreed({}).pending == 6


PICTURES = Terms(3, discrete=True, shape=(1, 84, 84), dtype="uint8")


@pytest.mark.parametrize("seen", [
    None, "pictures", {"shape": "x", "dtype": "uint8"}, {"shape": [84, 84]},
    {"shape": [84, 84], "dtype": "uint8"}, {"shape": [84, 84], "dtype": "no such"},
    {"shape": [float("inf")], "dtype": "float32"}, {"shape": [2], "dtype": "f4,("},
    {"shape": [2], "dtype": "float7"}, {"shape": [2], "dtype": ["float32"]},
])
def test_observations_that_fit_or_that_nobody_knows_are_agreed_upon(seen: Any) -> None:
    assert PICTURES.agreed({"observation": seen}) == PICTURES


@pytest.mark.parametrize(("terms", "metadata", "reason"), [
    (PICTURES, {"observation": {"shape": [4, 84, 84], "dtype": "uint8"}}, r"\[4, 84, 84\] uint8"),
    (PICTURES, {"observation": {"shape": [84, 84], "dtype": "float32"}}, "float32, and those of"),
    (DISCRETE, {"outputs": 4}, "has 4 actions, and the environment has 3"),
    (ARM, {"outputs": 7}, "has 7 components of an action, and the environment has 2"),
    (ARM, {"outputs": "x" * 99}, "components of an action"),
    (DISCRETE, {"outputs": DEEP}, "has a list actions"),
    (DISCRETE, {"answers": DEEP}, "answers with"),
    (DISCRETE, {"answers": "logits"}, "answers with 'logits'"),
    (ARM, {"answers": "values"}, "answers with 'values'"),
    (ARM, {"answers": ["values"]}, "answers with"),
    (ARM, {"outputs": np.full((2, 2), 2)}, r"has \[\[2 2\] \[2 2\]\] components"),
    (ARM, {"outputs": {"actions": np.arange(3)}}, "components of an action"),
    (ARM, {"answers": np.arange(3)}, r"answers with '\[0 1 2\]'"),
    (ARM, {"policy_state": np.zeros(2)}, "a state of"),
    (ARM, {"pending_actions": np.zeros(2)}, "pending actions of"),
    (ARM, {"policy_state": 4}, "a state of 4 numbers, and policy.remote_state is 0"),
    (RECURRENT, {}, "a state of 0 numbers, and policy.remote_state is 4"),
    (TOLD, {"pending_actions": 0}, "pending actions of 0 numbers, and env.pending_actions makes 6"),
])
def test_a_server_of_other_actions_is_refused(
    terms: Terms, metadata: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ProtocolError, match=reason):
        terms.agreed(metadata)


@pytest.mark.parametrize(("terms", "answer", "wanted"), [
    (DISCRETE.agreed({"answers": "values"}), {"values": [1.0, 3.0, 2.0]}, [1.0, 3.0, 2.0]),
    (DISCRETE.agreed({"answers": "values"}), {"values": [-np.inf, 3.0, 2.0]}, [LEAST, 3.0, 2.0]),
    (DISCRETE, {"actions": [[2], [0]]}, [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    (DISCRETE, {"actions": [1]}, [0.0, 1.0, 0.0]),
    (ARM, {"actions": [[0.5, -1.0]] * 4}, [[0.5, -1.0]] * 4),
    (ARM, {"actions": [0.5, -1.0]}, [0.5, -1.0]),
])
def test_answers_are_those_of_a_policy(
    terms: Terms, answer: dict[str, Any], wanted: list[Any]
) -> None:
    found = terms.read({name: np.array(value, np.float64) for name, value in answer.items()})
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))


@pytest.mark.parametrize(("terms", "width"), [(DISCRETE, 1), (ARM, 2)])
def test_of_more_ticks_than_are_kept_the_first_are_read(terms: Terms, width: int) -> None:
    """As one-hot vectors of floats, the bytes of an answer would take many times the memory."""
    found = terms.read({"actions": np.ones((LONGEST_CHUNK + 1, width), np.int8)})
    assert found.shape == (LONGEST_CHUNK, terms.outputs)


@pytest.mark.parametrize("values", [
    [-np.inf] * 3, [np.inf, 0.0, 0.0], [np.nan, 0.0, 0.0], [[0.0] * 3, [-np.inf] * 3],
])
def test_values_that_prefer_no_action_are_refused(values: list[Any]) -> None:
    with pytest.raises(ProtocolError, match="values that are not finite"):
        DISCRETE.agreed({"answers": "values"}).read({"values": np.array(values)})


@pytest.mark.parametrize(("terms", "actions", "reason"), [
    (ARM, None, "no 'actions'"),
    (ARM, "move", "no 'actions'"),
    (ARM, np.zeros((0, 2)), "no 'actions'"),
    (ARM, np.zeros((10, 7)), r"shape \(10, 7\), not of \(2,\) or \(ticks, 2\)"),
    (ARM, np.zeros((1, 10, 2)), "of the shape"),
    (ARM, np.array(1.0), "of the shape"),
    (ARM, np.array([[0.0, np.nan]]), "not finite"),
    (ARM, np.array([[0.0, 1e300]]), "not finite"),
    (DISCRETE, np.array([[3]]), "none of 0 to 2"),
    (DISCRETE, np.array([[-1]]), "none of 0 to 2"),
    (DISCRETE, np.array([[0.5]]), "none of 0 to 2"),
    (DISCRETE, np.array([[np.nan]]), "not finite"),
    (DISCRETE, np.zeros((5, 3)), "of the shape"),
])
def test_bad_answers_are_refused_in_one_line(terms: Terms, actions: Any, reason: str) -> None:
    with one_line(reason, error=ProtocolError):
        terms.read({} if actions is None else {"actions": actions})


def test_times_that_make_no_sense_count_as_zero() -> None:
    assert timing_of({"server_timing": {"infer_ms": 80.0, "queue_ms": 5}}) == Timing(0.08, 0.005)
    for said in ({}, {"server_timing": 3}, {"server_timing": {"infer_ms": "x", "queue_ms": -1.0}},
                 {"server_timing": {"infer_ms": float("nan")}}):
        assert timing_of(said) == Timing(0.0, 0.0)


def test_the_state_that_is_left_is_as_large_as_agreed_and_finite() -> None:
    found = RECURRENT.next_state({"policy_state": np.arange(4)})
    assert (found.dtype, found.tolist()) == (np.float32, [0.0, 1.0, 2.0, 3.0])
    for wrong in (None, np.zeros(3), np.zeros((1, 4)), np.array([0.0, np.nan, 0.0, 0.0])):
        with pytest.raises(ProtocolError, match="'policy_state'"):
            RECURRENT.next_state({"policy_state": wrong})
