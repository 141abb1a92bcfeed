"""The messages of a policy server: its metadata once, then one answer to each question.

The metadata of `rtagent policy-server` say whether it answers with action values or with actions,
how many numbers the state of its policy has, and how many numbers the pending actions have that it
needs. Any other server of the protocol answers with `actions`: (consecutive ticks, components).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from rtagent.memory.actions import LONGEST_CHUNK
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.pending import PendingActions
from rtagent.remote.protocol import ProtocolError, is_shape

VALUES, ACTIONS, TIMING = "values", "actions", "server_timing"
ANSWERS, OUTPUTS, OBSERVATION = "answers", "outputs", "observation"
STATE, PENDING = "policy_state", "pending_actions"
"""Keys of the state and of the pending actions: in the metadata, of their sizes; in questions and
answers, of the numbers themselves."""

_LEAST = np.finfo(np.float32).min
_NAME = re.compile(r"bool|(?:u?int|float)[0-9]{1,2}")
"""Name of a type of observations, as our server says it."""


class Timing(NamedTuple):
    """Seconds that an observation spent in the server: in the policy, and waiting for it."""

    compute_s: float
    queue_s: float


@dataclass(frozen=True)
class Terms:
    """What a world needs from a server, and what the server offers by its metadata.

    Attributes:
        outputs: number of discrete actions, or of components of a continuous action.
        discrete: whether the actions are discrete.
        answers: what the server sends: a value for each action, or actions.
        state: size of the state that a recurrent policy carries from one inference to the next.
        pending: size of the pending actions that are sent with each question.
        shape, dtype: of the observation in each question; a dtype of "" means that both are not
            known.
    """

    outputs: int
    discrete: bool
    answers: Literal["values", "actions"] = "actions"
    state: int = 0
    pending: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""

    @staticmethod
    def of(blueprint: Blueprint) -> Terms:
        """What the world of a run needs."""
        discrete = blueprint.action_shape == ()
        outputs = int(blueprint.action_space.n) if discrete else blueprint.action_shape[0]
        pending = PendingActions.of(blueprint)
        width = 0 if pending is None else pending.width
        seen = blueprint.observation_space
        return Terms(
            outputs, discrete, state=blueprint.state_size, pending=width,
            shape=tuple(seen.shape), dtype=np.dtype(seen.dtype).name,
        )

    def agreed(self, metadata: Mapping[str, Any]) -> Terms:
        """These terms with `answers` as a server's metadata say.

        Raises:
            ProtocolError: the server's policy has other actions or another state, or needs other
                observations or pending actions.
        """
        outputs, answers = metadata.get(OUTPUTS, self.outputs), metadata.get(ANSWERS, ACTIONS)
        if _differs(outputs, self.outputs):
            what = "actions" if self.discrete else "components of an action"
            raise ProtocolError(
                f"the server's policy has {_short(outputs)} {what}, and the environment has "
                f"{self.outputs}"
            )
        known = isinstance(answers, str) and answers in (VALUES, ACTIONS)
        if not known or (answers == VALUES and not self.discrete):
            raise ProtocolError(f"the server answers with {_short(answers)!r}")
        if _differs(state := metadata.get(STATE, 0), self.state):
            raise ProtocolError(
                f"the server's policy carries a state of {_short(state)} numbers, and "
                f"policy.remote_state is {self.state}"
            )
        # Servers other than ours do not say which pending actions they need.
        if _differs(pending := metadata.get(PENDING, self.pending), self.pending):
            raise ProtocolError(
                f"the server's policy is given pending actions of {_short(pending)} numbers, and "
                f"env.pending_actions makes {self.pending}"
            )
        self._check_observation(metadata.get(OBSERVATION))
        return replace(self, answers=answers)

    def _check_observation(self, seen: Any) -> None:
        """Compare with the metadata of our server; other servers may have anything there."""
        if not (self.dtype and isinstance(seen, Mapping)):
            return
        shape, name = seen.get("shape"), seen.get("dtype")
        # NumPy would read more than names of numbers, and raise more than a TypeError about it.
        if not (is_shape(shape) and isinstance(name, str) and _NAME.fullmatch(name)):
            return
        try:
            dtype = np.dtype(name)
        except TypeError:
            return
        same = math.prod(shape) == math.prod(self.shape)
        if same and dtype.kind == np.dtype(self.dtype).kind:
            return
        raise ProtocolError(
            f"the server's policy sees observations of {shape} {dtype}, and those of the "
            f"environment are {list(self.shape)} {self.dtype}"
        )

    def read(self, answer: Mapping[str, Any]) -> Floats:
        """Values or actions of an answer: (outputs,), or (H, outputs) for consecutive ticks.

        Ticks beyond `LONGEST_CHUNK` are left out. A discrete action becomes a vector with 1 at its
        index and 0 elsewhere.

        Raises:
            ProtocolError: the answer has another shape, or an element that is not finite or is no
                action.
        """
        found = answer.get(self.answers)
        if not isinstance(found, np.ndarray) or found.size == 0:
            raise ProtocolError(f"the answer has no {self.answers!r}")
        with np.errstate(over="ignore"):
            kept = found[:LONGEST_CHUNK] if found.ndim == 2 else found
            actions: Floats = kept.astype(np.float32)
        indices = self.discrete and self.answers == ACTIONS
        width = 1 if indices else self.outputs
        if actions.ndim not in (1, 2) or actions.shape[-1] != width:
            raise ProtocolError(
                f"the answer has {self.answers} of the shape {found.shape}, not of "
                f"({width},) or (ticks, {width})"
            )
        # A policy may exclude actions by -inf. They stay the last, and become finite for all users.
        numbers = actions.max(axis=-1) if self.answers == VALUES else actions
        if not np.isfinite(numbers).all():
            raise ProtocolError(f"the answer has {self.answers} that are not finite")
        return self._one_hot(actions) if indices else np.maximum(actions, _LEAST)

    def next_state(self, answer: Mapping[str, Any]) -> Floats:
        """The state of the policy after an answer, (state,).

        Raises:
            ProtocolError: the answer has no state of this size, or one that is not finite.
        """
        found = answer.get(STATE)
        if not isinstance(found, np.ndarray) or found.shape != (self.state,):
            raise ProtocolError(f"the answer has no {STATE!r} of {self.state} numbers")
        state: Floats = found.astype(np.float32)
        if not np.isfinite(state).all():
            raise ProtocolError(f"the answer has a {STATE!r} that is not finite")
        return state

    def _one_hot(self, actions: Floats) -> Floats:
        indices = actions[..., 0]
        if (indices != np.rint(indices)).any() or not (0 <= indices.min() <= indices.max()
                                                       < self.outputs):
            raise ProtocolError(f"the answer has actions that are none of 0 to {self.outputs - 1}")
        chosen: Floats = np.eye(self.outputs, dtype=np.float32)[indices.astype(np.int64)]
        return chosen


def _differs(said: Any, needed: int) -> bool:
    """Whether the metadata have another number. An array is no number, and `!=` gives an array."""
    return isinstance(said, np.ndarray) or said != needed


def _short(said: Any) -> str:
    # A list or a map may be too deep for a text.
    text = f"a {type(said).__name__}" if isinstance(said, list | dict) else str(said)
    return " ".join(text.split())[:40]


def timing_of(answer: Mapping[str, Any]) -> Timing:
    """The times in an answer; a time that the server does not say is 0."""
    said = answer.get(TIMING)
    said = said if isinstance(said, Mapping) else {}

    def seconds(name: str) -> float:
        value = said.get(name)
        if not isinstance(value, int | float) or not 0.0 <= value < 1e9:
            return 0.0
        return float(value) / 1e3

    return Timing(seconds("infer_ms"), seconds("queue_ms"))
