"""What the environment executes at a tick: a pure decision over the actions deposited so far.

Order of preference at tick k (Riemer et al., Definition 1, with delays made explicit):

1. the deposit meant for k; of several, the one computed from the newest frame, or what
   `merging.py` makes of them;
2. else the newest late action, if it was computed from a newer frame than any executed before;
3. else, if `fill` allows, a deposit already there for k+1 ... k+fill, counted as re-used;
4. else the default behaviour.

The frames of executed decisions never go back, except by rule 1: a deposit for exactly k is
executed even if a deposit of a newer frame has been re-used before, since its delay is the one that
the schedule promised. Rules 2 and 3 never go back (3 may repeat the frame that it re-uses), so an
action takes effect late at most once, and a deposit re-used at k is still executed at its own tick.

A chunk, the actions of one inference for consecutive ticks, is a deposit for each of them.

- Rule 1 takes for each tick the action of the newest observation that promises one. The later
  actions of a chunk are executed where nothing newer has come, so they cover the ticks of an
  inference that takes longer than usual, or whose process is gone.
- Rule 2 takes the last action of a chunk, whose tick is the nearest, and only if the chunk has no
  action left for this tick or a later one: otherwise rule 1 executes that action, and the earlier
  actions of the chunk are no newer. A chunk acts late once, as a single action does.
- Rule 3 re-uses only first actions: a chunk with a later action for k+1 has one for k, too.
- A promise outlives its process, and the episode that it was made in: actions of a process that
  was killed, replaced or sent away, and of frames before a reset or a restart of the environment,
  are executed, single or in a chunk, until there is an action from a newer frame.

The only memory is `last_frame`, the newest frame that an executed action was computed from; a
restarted environment process takes it from the tick ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol


class Source(IntEnum):
    """Where an executed action came from."""

    DEFAULT = 0
    AGENT = 1
    REUSED = 2


@dataclass(frozen=True, slots=True)
class Deposited:
    """An action where the environment finds it.

    Attributes:
        worker: the inference worker that computed it.
        frame: the frame it was computed from.
        tick: the tick it is meant for.
        action: what the environment executes.
        version: version of the weights it was computed with.
        registered_at: seconds on the drivers' clock.
        log_probability: logarithm of the probability with which its policy drew it; 0 if the policy
            draws no actions.
        pending: the pending actions that the policy was given (`memory/pending.py`). If None, it
            was given none.
        position: of the action in its chunk; the first, 0, is for the tick that was promised.
    """

    worker: int
    frame: int
    tick: int
    action: Any
    version: int
    registered_at: float
    log_probability: float = 0.0
    pending: Any = None
    position: int = 0


NO_DEPOSIT = Deposited(-1, -1, -1, None, -1, 0.0)
"""Stands where the default behaviour is executed, for which there is no deposit."""


class Lookup(Protocol):
    """The deposits, as the caller keeps them."""

    def at(self, tick: int) -> Sequence[Deposited]:
        """The deposits meant for exactly `tick`."""

    def late(self, tick: int, newer_than_frame: int) -> Deposited | None:
        """The newest deposit for a tick < `tick` with a frame > `newer_than_frame`.

        The newest is that of the latest frame, and among those the one for the latest tick.
        """


@dataclass(frozen=True, slots=True)
class Choice:
    """What is executed at a tick.

    Attributes:
        source: agent, re-used or default.
        deposit: `NO_DEPOSIT` for the default behaviour.
    """

    source: Source
    deposit: Deposited


DEFAULT_CHOICE = Choice(Source.DEFAULT, NO_DEPOSIT)


class Arbiter:
    """Chooses what the environment executes, tick by tick.

    Args:
        fill: how many ticks ahead a deposit may be re-used; 0 for strictly one action per tick.
        last_frame: newest frame an executed action was computed from, -1 if none.
        merge: makes one deposit of those for a tick, see `merging.py`. If None, takes the newest.
    """

    def __init__(
        self, fill: int = 2, last_frame: int = -1,
        merge: Callable[[Sequence[Deposited]], Deposited] | None = None,
    ) -> None:
        self.fill = fill
        self.last_frame = last_frame
        self._merge = merge or newest

    def choose(self, tick: int, lookup: Lookup) -> Choice:
        """Decide tick `tick`; call it once per tick, in order."""
        deposits = lookup.at(tick)
        if deposits:
            return self._execute(Source.AGENT, self._merge(deposits))
        late = lookup.late(tick, self.last_frame)
        if late is not None:
            return self._execute(Source.AGENT, late)
        for ahead in range(tick + 1, tick + 1 + self.fill):
            early = lookup.at(ahead)
            if early and newest(early).frame >= self.last_frame:
                return self._execute(Source.REUSED, newest(early))
        return DEFAULT_CHOICE

    def _execute(self, source: Source, deposit: Deposited) -> Choice:
        self.last_frame = max(self.last_frame, deposit.frame)
        return Choice(source, deposit)


def newest(deposits: Sequence[Deposited]) -> Deposited:
    """The newest of one or more deposits for a tick: by frame, then by registration."""
    return max(deposits, key=lambda deposit: (deposit.frame, deposit.registered_at))
