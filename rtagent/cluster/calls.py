"""What an exchange makes its calls by, and what it hands on of their answers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal, NamedTuple, Protocol

Outcome = Literal["applied", "overflowed", "skipped"]
"""Of an update: whether its loss and gradient were finite; if not, whether by the loss scale."""


class StartFailedError(ConnectionError):
    """The learner could not start, and is not started again: another must be looked for."""


class Remote(Protocol):
    """Calls to the learner that do not wait."""

    def begin(self, method: str, *arguments: Any) -> Hashable:
        """Begin a call; what its result will be found under."""
        ...

    def finished(self) -> list[tuple[Hashable, Any]]:
        """The calls that have ended since the last time, each with its result or its exception:
        what the learner has raised, `StartFailedError`, or why it cannot be reached."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Wait until a call has ended, or so long."""
        ...


class Weights(NamedTuple):
    """New weights.

    Attributes:
        updates: behind them.
        values: (parameters,) float32.
        age_s: from the update to their leaving the learner, and half of the link's round trip.
    """

    updates: int
    values: Any
    age_s: float


class Learned(NamedTuple):
    """A share of an update.

    Attributes:
        outcome: of the update.
        loss: of its batch.
        norm: of the gradient.
        updates: of the learner after it.
        samples: transitions that the learner has learned from by then, in all.
        seconds: that the update took.
        sampled: mean priority of its transitions when they were sampled. If None, all are the same.
        transferred: the same of what was sent. If None, unknown as well.
    """

    outcome: Outcome
    loss: float
    norm: float
    updates: int
    samples: int
    seconds: float
    sampled: float | None
    transferred: float | None
