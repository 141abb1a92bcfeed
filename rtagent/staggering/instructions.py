"""The instructions that a staggering algorithm gives to its driver.

An algorithm is a generator: it yields one instruction, is sent the reply, and goes on. It never
sleeps, reads a clock or touches a process itself, so the same generator runs in an inference
process over shared memory and in the virtual-time simulator. Times are seconds on the driver's
clock; tick k publishes frame k.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtagent.staggering.state import StaggerState


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Wait until the clock shows `when` seconds; returns at once if that is past. Reply: Moment."""

    when: float


@dataclass(frozen=True, slots=True)
class WaitFrame:
    """Wait until frame `frame`, or a newer one, has been published. Reply: Moment."""

    frame: int


@dataclass(frozen=True, slots=True)
class Now:
    """Ask for the time without waiting. Reply: Moment."""


@dataclass(frozen=True, slots=True)
class Infer:
    """Run the policy on frame `frame`; None, or a frame too old, means the newest. Reply: Inferred.

    If nothing has been published yet the driver waits for the first frame.
    """

    frame: int | None


@dataclass(frozen=True, slots=True)
class Deposit:
    """Put the action just computed where the environment finds it. Reply: Moment.

    Attributes:
        tick: the tick the action is meant for; it may be past already (the action is late).
        frame: the frame the action was computed from.
    """

    tick: int
    frame: int


@dataclass(frozen=True, slots=True)
class Moment:
    """What an algorithm may know of the world.

    Attributes:
        now: seconds on the driver's clock.
        newest: number of the newest published frame, -1 before the first one.
    """

    now: float
    newest: int


@dataclass(frozen=True, slots=True)
class Inferred:
    """The policy has answered.

    Attributes:
        frame: the frame really read.
        tau: inference time in seconds.
        now: seconds on the driver's clock, after the inference.
        chosen: the newest tick whose action has been chosen: an action for it comes too late. The
            frame of a tick is published later, by the time that its step takes.
        behind: seconds from the moment at which a tick is due until its frame is published, of the
            newest frame.
    """

    frame: int
    tau: float
    now: float
    chosen: int
    behind: float = 0.0


@dataclass(frozen=True, slots=True)
class Learn:
    """Let the learner make one update, and wait until it has. Reply: Moment.

    If there is no learner, or it has nothing to learn from, or does not answer in time, the reply
    comes without an update.
    """


Instruction = WaitUntil | WaitFrame | Now | Infer | Deposit | Learn
Reply = Moment | Inferred
Algorithm = Generator[Instruction, Reply, None]
"""Start it with `next(...)`, then `send(reply)`; see `register.Factory` for how it ends."""

Factory = Callable[[int, "StaggerState", AbstractContextManager[object], float], Algorithm]
"""(worker, state, claim lock, tick in seconds) -> Algorithm.

The lock is entered many times, never nested, and never held across a yield. A generator returns
when the state's owner has chosen another algorithm: the driver then starts the factory of
`state.algorithm`. A worker that is not (or no longer) in the ring idles, one tick at a time.
"""


def moment(
    instruction: WaitUntil | WaitFrame | Now | Deposit | Learn,
) -> Generator[Instruction, Reply, Moment]:
    """Yield an instruction that is answered with a Moment."""
    reply = yield instruction
    if not isinstance(reply, Moment):
        raise TypeError(f"{instruction} must be answered with a Moment, not {reply!r}")
    return reply


def infer(frame: int | None) -> Generator[Instruction, Reply, Inferred]:
    """Yield an `Infer`, which is answered with an Inferred."""
    reply = yield Infer(frame)
    if not isinstance(reply, Inferred):
        raise TypeError(f"Infer must be answered with Inferred, not {reply!r}")
    return reply
