"""How an exchange calls the learner, and what it passes on of the answers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, NamedTuple, Protocol

from rtagent.config import Precision

Outcome = Literal["applied", "overflowed", "skipped"]
"""Of an update: applied; or left out because loss or gradient were not finite, either by the loss
scale (overflowed) or not (skipped)."""


class EndedError(ConnectionError):
    """The learner could not start, or was ended, and is not started again: look for another."""


class Remote(Protocol):
    """Calls the learner without waiting for the result."""

    def begin(self, method: str, *arguments: Any) -> Hashable:
        """Begin a call; a ticket, under which `finished` returns the result."""

    def finished(self) -> list[tuple[Hashable, Any]]:
        """The calls that `wait` has found ended since the last time: ticket, and result or
        exception.

        The exception is a `UserError` if the learner refuses the call, `EndedError`, or any other
        if the call or its answer was lost.
        """

    def wait(self, timeout_s: float) -> None:
        """Wait until a call has ended, `timeout_s` at most, and note all that have ended.

        No other function notes that: a call that ended after the caller has taken the time would
        have taken less than no time.
        """


class Weights(NamedTuple):
    """New weights.

    Attributes:
        updates: that have led to them.
        values: (parameters,) float32.
        age_s: time since the last of these updates: until the learner sent them, as it says, and
            half of the link's round trip, or longer over an emulated link of little bandwidth,
            seconds.
    """

    updates: int
    values: Any
    age_s: float


class Learned(NamedTuple):
    """An update in which this node had a share.

    Attributes:
        outcome: of the update.
        loss: of its batch.
        norm: of its gradient.
        updates: that the learner has made, with this one.
        samples: transitions that the learner has learned from, with those of this update.
        seconds: that the update took.
        sampled: mean priority of the share's transitions when they were sampled. If None, sampling
            is uniform.
        transferred: mean priority of the transitions that were sent. If None, it is not known.
        precision: of the learner's forward and backward passes.
        loss_scale: what losses are multiplied by in float16; 0 in another precision.
    """

    outcome: Outcome
    loss: float
    norm: float
    updates: int
    samples: int
    seconds: float
    sampled: float | None
    transferred: float | None
    precision: Precision
    loss_scale: float
