"""From ticks to decisions, and from decisions to n-step transitions.

In the delayed semi-Markov process (Riemer et al., Definition 1), a decision is an action together
with the frame it was computed from. It begins at the first row that executes an action computed
from a frame newer than that of every decision before it in the episode, and lasts until the next
decision begins: the ticks in between, with re-used or default actions, and their rewards belong to
it. Its successor is the frame that the next decision saw.

Time. Let decision j begin at tick e_j, on frame o_j. A transition takes decisions j .. m-1 together
and leads to frame o_m:

    R = sum over the ticks e_j <= t < e_m of gamma**(t - e_j) r_t,    discount = gamma**(e_m - e_j)

with the largest m for which e_m - e_j <= n, at least j + 1 (Sutton, Precup and Singh, 1999: a
semi-Markov process discounts by the time that passes). So a value is the sum of all later rewards,
each discounted by the ticks until it came, whatever the number of decisions in between. Counted in
decisions instead, m = j + n, the sum over a decision's own ticks is not discounted, and the sum of
decision i is discounted by gamma**(i - j): then the number of inference processes decides how far
the agent looks ahead.

The end. The last decision of an episode, l, is followed by a decision that was never executed: it
would have begun at the tick after the last tick T, and with the delay of decision l it would have
seen frame T + 1 - (e_l - o_l). That frame is the successor after truncation; the value of frame T
would leave out the rewards of the decisions between these two frames.

Two things do not become transitions: a decision whose frame is of an earlier episode (the first
decisions after a reset), and one whose return is not finite. A chain of rows that stops without a
terminal flag (truncation, a restart, a torn row) ends at the last whole row; the next row begins a
new chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rtagent.learning.replay.look_up import Flags, Ints, LookUp, Transitions, fields_of, row_dtype
from rtagent.learning.replay.powers import Doubles
from rtagent.learning.replay.search import Search, older_than
from rtagent.memory.actions import SLOTS
from rtagent.memory.ledger import TERMINATED, Rows
from rtagent.memory.pending import PendingActions
from rtagent.staggering.arbiter import Source


@dataclass
class _Chain:
    """The decisions of one unbroken run of rows that are not yet transitions.

    Attributes:
        newest_observed: frame of the newest decision so far.
        decisions: those that are not yet transitions, of `_decision_dtype`. Rewards are added to
            the last one until the next one begins.
        clock: of the last row, in the unit of `began`.
        actions: of the last ticks, if rows record pending actions.
    """

    newest_observed: int
    decisions: npt.NDArray[Any]
    clock: int = 0
    actions: npt.NDArray[Any] = field(default_factory=lambda: np.empty(0))


def _decision_dtype(
    action: np.dtype[Any], pending: PendingActions | None, kept: np.dtype[Any] | None
) -> np.dtype[Any]:
    """The fields of a decision that is not yet a transition.

    Fields: `frame` (of its state), `executed` (its first tick), `began` (the same on the clock of
    the discount: in ticks, or in decisions), `reward` (of its own ticks, discounted),
    `demonstrated`, `action`; `pending` in a run that records them; and the `kept` fields.
    """
    return np.dtype(
        [
            ("frame", "<i8"), ("executed", "<i8"), ("began", "<i8"), ("reward", "<f8"),
            ("demonstrated", "?"), ("action", action.base, action.shape),
            *([] if pending is None else [("pending", pending.dtype)]),
            *fields_of(kept),
        ]
    )


class DecisionIndex:
    """A ring of transitions, made from ledger rows, which are fed in pieces.

    A transition has a serial number, which grows with the number of its state's frame. It takes 28
    bytes if an action is one int32. One thread at a time may use an index.

    Args:
        capacity: the number of transitions that are kept.
        action: dtype and shape of an action, `row_dtype(...)["action"]`.
        gamma: discount per tick or per decision.
        n_step: the most ticks of a transition of several decisions; or its number of decisions.
        state: `decision`: the state is the frame that the decision saw; `executed`: the frame
            before its execution.
        discount: the unit of gamma and n_step.
        pending: how rows record pending actions. If None, they do not.
        kept: fields of a decision's first row that are kept as they are. If None, no others.
    """

    def __init__(
        self, capacity: int, action: np.dtype[Any], gamma: float, n_step: int,
        state: Literal["decision", "executed"] = "decision",
        discount: Literal["ticks", "decisions"] = "ticks",
        pending: PendingActions | None = None, kept: np.dtype[Any] | None = None,
    ) -> None:
        self._capacity = capacity
        self._gamma = float(gamma)
        self._n_step = n_step
        self._executed = state == "executed"
        self._by_ticks = discount == "ticks"
        # Apart from the other columns, because it is searched.
        self._frames: Ints = np.empty(capacity, np.int64)
        of_pending = None if pending is None else pending.dtype
        self._rows = np.empty(capacity, row_dtype(action, of_pending, kept))
        self._search = Search(self._frames)
        self._first = 0
        self._end = 0
        self._last_row: np.void | None = None
        self._pending, self._kept = pending, [name for name, _ in fields_of(kept)]
        self._no_decisions = np.empty(0, _decision_dtype(action, pending, kept))
        self._chain = _Chain(-1, self._no_decisions)

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def span(self) -> tuple[int, int]:
        """Serial numbers of the transitions in the ring: the first, and one past the last."""
        return self._first, self._end

    def room(self, count: int) -> Transitions:
        """Memory for so many transitions."""
        return Transitions(count, self._rows.dtype)

    def get(self, serials: Ints) -> Transitions:
        """Copies of the transitions with these serial numbers, which must lie in `span`."""
        found = self.room(len(serials))
        self.prepare(np.ascontiguousarray(serials, np.int64), found).run()
        return found

    def prepare(self, serials: Ints, out: Transitions) -> LookUp:
        """A copy as `get` makes it, into `room(n)`, that can be run often; see `LookUp`."""
        return LookUp(self._frames, self._rows, serials, out)

    def frames(self, start: int, stop: int) -> Ints:
        """The states' frames of the transitions start <= serial < stop, which lie in `span`."""
        return self._frames.take(np.arange(start, stop) % self._capacity)

    def find(self, frames: Ints) -> tuple[Ints, bool]:
        """The serial numbers (n,) of the transitions that begin with frames (n,).

        A serial number is -1 if there is no such transition; the flag tells whether all were found.
        """
        if not len(self):
            return np.full(len(frames), -1), False
        return self._search.find(self._first, self._end, frames)

    def forget(self, oldest_frame: int) -> None:
        """Drop the transitions whose state is older than a frame."""
        if len(self) and self._frames[self._first % self._capacity] < oldest_frame:
            limit = np.array([oldest_frame])
            self._first += int(older_than(self._frames, self._first, self._end, limit)[0])

    def feed(self, rows: Rows) -> None:
        """Take in rows of the ledger.

        Args:
            rows: in the order of their ticks, each row once; ticks may be missing.
        """
        if not len(rows):
            return
        before = self._last_row
        starts = np.ones(len(rows), bool)
        ticks, episodes, flags = rows["tick"], rows["episode"], rows["flags"]
        starts[1:] = (np.diff(ticks) != 1) | (np.diff(episodes) != 0) | (flags[:-1] != 0)
        if before is not None:
            continued = ticks[0] == before["tick"] + 1 and episodes[0] == before["episode"]
            starts[0] = not continued or before["flags"] != 0
        edges = [*np.flatnonzero(starts).tolist(), len(rows)]
        if edges[0] > 0:
            self._extend(rows[: edges[0]])
        for start, stop in pairwise(edges):
            self._close()
            self._chain = _Chain(int(rows["tick"][start]) - 1, self._no_decisions)
            self._last_row = None
            self._extend(rows[start:stop])

    def _extend(self, rows: Rows) -> None:
        """Add rows that continue the chain; emit what is complete."""
        chain = self._chain
        ticks = rows["tick"]
        observed = np.where(
            (rows["source"] != Source.DEFAULT) & (rows["observed"] < ticks), rows["observed"], -1
        )
        newest = np.maximum.accumulate(np.concatenate(([chain.newest_observed], observed)))
        begins = observed > newest[:-1]
        numbers = np.cumsum(begins)
        clocks = ticks if self._by_ticks else chain.clock + numbers
        first = rows[begins]
        added: npt.NDArray[Any] = np.empty(len(first), self._no_decisions.dtype)
        added["frame"] = first["tick"] - 1 if self._executed else observed[begins]
        added["executed"] = first["tick"]
        added["began"] = clocks[begins]
        added["reward"] = 0.0
        added["action"] = first["action"]
        # It was executed for an agent, but computed by no inference process.
        added["demonstrated"] = (first["source"] == Source.AGENT) & (first["worker"] < 0)
        if self._pending is not None:
            added["pending"] = first["pending"]
        for name in self._kept:
            added[name] = first[name]
        decisions = np.concatenate([chain.decisions, added])
        owners = len(chain.decisions) - 1 + numbers
        _add_rewards(decisions, owners, clocks, rows["reward"], self._gamma)
        self._chain = _Chain(int(newest[-1]), decisions, int(clocks[-1]), chain.actions)
        if self._pending is not None:
            before = chain.actions if len(chain.actions) else rows["action"][:0]
            self._chain.actions = np.concatenate([before, rows["action"]])[-SLOTS:]
        self._last_row = rows[-1].copy()
        self._emit_complete()
        if rows["flags"][-1]:
            self._close()

    def _emit_complete(self) -> None:
        """Emit the decisions whose successor cannot be changed by later rows."""
        chain = self._chain
        began = chain.decisions["began"]
        known = int(np.searchsorted(began, chain.clock - self._n_step, side="right"))
        count = min(known, len(began) - 1)
        if count > 0:
            self._emit(count, chain.decisions, terminal=False)
            chain.decisions = chain.decisions[count:]

    def _close(self) -> None:
        """End the chain at its last row, and emit its decisions."""
        chain, last = self._chain, self._last_row
        if len(chain.decisions) and last is not None:
            following = self._unexecuted_decision(int(last["tick"]))
            self._emit(
                len(chain.decisions), np.concatenate([chain.decisions, following]),
                terminal=bool(last["flags"] & TERMINATED),
            )
        self._chain = _Chain(-1, self._no_decisions)

    def _unexecuted_decision(self, last: int) -> npt.NDArray[Any]:
        """The decision (1,) that would have followed the chain, which ends at tick `last`."""
        chain, newest = self._chain, self._chain.decisions[-1]
        following: npt.NDArray[Any] = np.zeros(1, self._no_decisions.dtype)
        following["frame"] = frame = newest["frame"] + last + 1 - newest["executed"]
        following["began"] = chain.clock + 1
        if self._pending is not None:
            pending = self._pending.unknown()
            executed = chain.actions[max(0, len(chain.actions) - (last - frame)) :]
            first = last - len(executed) - frame
            pending[first : first + len(executed)] = executed[: max(0, len(pending) - first)]
            following["pending"] = pending
        return following

    def _emit(self, count: int, decisions: npt.NDArray[Any], *, terminal: bool) -> None:
        """Append the first `count` of some decisions (k,), k > count, as transitions.

        Each leads to a decision after it. If `terminal`, the last decision is a terminal successor.
        """
        chosen, frames, began = decisions[:count], decisions["frame"], decisions["began"]
        firsts, starts = np.arange(count), began[:count]
        reached = np.searchsorted(began, starts + self._n_step, side="right") - 1
        ends = np.maximum(reached, firsts + 1)
        terminals = (ends == len(frames) - 1) & terminal
        windows = firsts[:, None] + np.arange(int((ends - firsts).max()))
        inside = windows < ends[:, None]
        windows[~inside] = 0
        rewards = decisions["reward"][windows]
        with np.errstate(invalid="ignore", over="ignore"):
            weighted = rewards * np.power(self._gamma, np.abs(began[windows] - starts[:, None]))
            sums = weighted.sum(axis=1, where=inside)
        discounts = np.power(self._gamma, began[ends] - starts)
        self._append(chosen, sums, discounts, decisions[ends], terminals)

    def _append(
        self, chosen: npt.NDArray[Any], reward: Doubles, discount: Doubles,
        following: npt.NDArray[Any], terminal: Flags,
    ) -> None:
        with np.errstate(over="ignore"):
            finite = np.isfinite(reward.astype(np.float32))
        kept = np.flatnonzero(finite)[-self._capacity :]
        slots = np.arange(self._end, self._end + len(kept)) % self._capacity
        self._frames[slots] = chosen["frame"][kept]
        columns = {
            "shift": following["frame"] - chosen["frame"], "reward": reward, "discount": discount,
            "terminal": terminal, "demonstrated": chosen["demonstrated"],
            "action": chosen["action"],
        }
        if self._pending is not None:
            columns |= {"pending": chosen["pending"], "next_pending": following["pending"]}
        columns |= {name: chosen[name] for name in self._kept}
        for name, values in columns.items():
            self._rows[name][slots] = values[kept]
        self._end += len(kept)
        self._first = max(self._first, self._end - self._capacity)


def _add_rewards(
    decisions: npt.NDArray[Any], owners: Ints, clocks: Ints, rewards: npt.NDArray[Any], gamma: float
) -> None:
    """Add rewards (n,) to their decisions, discounted by the time since the decision began.

    Owners (n,) are positions of decisions in ascending order, -1 for none. Clocks (n,) are the
    times of the rewards.
    """
    unowned = int(np.searchsorted(owners, 0))
    owners, clocks = owners[unowned:], clocks[unowned:]
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.power(gamma, clocks - decisions["began"][owners])
        discounted = rewards[unowned:].astype(np.float64) * powers
        decisions["reward"] += np.bincount(owners, discounted, len(decisions))
