"""From ticks to decisions, and from decisions to n-step transitions.

In the delayed semi-Markov process, a decision is an action together with the frame it was computed
from. It begins at the first row that executes an action computed from a frame newer than that of
every decision before it in the episode, and lasts until the next one begins: ticks in between,
re-used or default, belong to it, and so do their rewards. Its successor is the frame that the next
decision saw.

What may not become a transition: a decision whose frame is of an earlier episode (the first ones
after a reset), and a reward that is not finite. A chain of rows that stops without a terminal
flag (truncation, a restart, a torn row) ends at the last whole row, whose frame is a true
successor to bootstrap from; the next row begins a new chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rtagent.memory.ledger import TERMINATED, Rows
from rtagent.staggering.arbiter import Source

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Transitions:
    """Transitions as columns, each (n,); frames are named by their numbers.

    Attributes:
        frame: the newest frame of the state.
        action: what was executed; (n, *action_shape).
        reward: discounted sum over the decisions taken together.
        discount: gamma to the number of these decisions.
        next_frame: the newest frame of the successor.
        terminal: the successor has no value.
    """

    frame: Ints
    action: npt.NDArray[Any]
    reward: npt.NDArray[np.float32]
    discount: npt.NDArray[np.float32]
    next_frame: Ints
    terminal: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.frame)


@dataclass
class _Chain:
    """The decisions of one unbroken run of rows that are not yet transitions.

    The last decision is still open: its reward grows until the next one begins.
    """

    first_tick: int
    newest_observed: int
    frame: Ints
    action: npt.NDArray[Any]
    reward: Doubles


class DecisionIndex:
    """Ledger rows in, a ring of transitions out. Vectorised, and fed little by little.

    Args:
        capacity: transitions kept.
        action: dtype and shape of an action, `row_dtype(...)["action"]`.
        gamma: discount per decision.
        n_step: decisions per transition.
        state: `decision`: the state is the frame that the decision saw; `executed`: the frame
            before its execution.

    Attributes:
        skipped: transitions left out because their reward was not finite.
    """

    def __init__(
        self,
        capacity: int,
        action: np.dtype[Any],
        gamma: float,
        n_step: int,
        state: Literal["decision", "executed"] = "decision",
    ) -> None:
        self._capacity = capacity
        self._n_step = n_step
        self._executed = state == "executed"
        self._powers: Doubles = np.power(float(gamma), np.arange(n_step + 1))
        base, shape = action.base, action.shape
        self._ring = Transitions(
            frame=np.empty(capacity, np.int64),
            action=np.empty((capacity, *shape), base),
            reward=np.empty(capacity, np.float32),
            discount=np.empty(capacity, np.float32),
            next_frame=np.empty(capacity, np.int64),
            terminal=np.empty(capacity, np.bool_),
        )
        self._no_actions = np.empty((0, *shape), base)
        self._first = 0
        self._end = 0
        self._last_row: np.void | None = None
        self._chain = self._new_chain(0)
        self.skipped = 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def span(self) -> tuple[int, int]:
        """Serial numbers of the transitions held: first, and one past the last."""
        return self._first, self._end

    def get(self, serials: Ints) -> Transitions:
        """Copies of the transitions with these serial numbers, which must lie in `span`."""
        slots = serials % self._capacity
        ring = self._ring
        return Transitions(
            ring.frame[slots], ring.action[slots], ring.reward[slots], ring.discount[slots],
            ring.next_frame[slots], ring.terminal[slots],
        )

    def forget(self, oldest_frame: int) -> None:
        """Drop the transitions whose state is older than a frame."""
        # Frames grow with the serial number, so halving the interval finds the border.
        low, high = self._first, self._end
        while low < high:
            middle = (low + high) // 2
            if self._ring.frame[middle % self._capacity] < oldest_frame:
                low = middle + 1
            else:
                high = middle
        self._first = low

    def feed(self, rows: Rows) -> None:
        """Take in rows of the ledger.

        Args:
            rows: in the order of their ticks, each row once; ticks may be missing.
        """
        if not len(rows):
            return
        before = self._last_row
        starts = np.ones(len(rows), bool)
        starts[1:] = (
            (np.diff(rows["tick"]) != 1)
            | (np.diff(rows["episode"]) != 0)
            | (rows["flags"][:-1] != 0)
        )
        if before is not None:
            starts[0] = (
                rows["tick"][0] != before["tick"] + 1
                or rows["episode"][0] != before["episode"]
                or before["flags"] != 0
            )
        edges = [*np.flatnonzero(starts).tolist(), len(rows)]
        if edges[0] > 0:
            self._extend(rows[: edges[0]])
        for start, stop in pairwise(edges):
            self._close()
            self._chain = self._new_chain(int(rows["tick"][start]))
            self._last_row = None
            self._extend(rows[start:stop])

    def _new_chain(self, first_tick: int) -> _Chain:
        return _Chain(
            first_tick, first_tick - 1, np.empty(0, np.int64), self._no_actions, np.empty(0)
        )

    def _extend(self, rows: Rows) -> None:
        """Add rows that continue the chain; emit what is complete."""
        chain = self._chain
        ticks = rows["tick"]
        observed = np.where(
            (rows["source"] != Source.DEFAULT) & (rows["observed"] < ticks), rows["observed"], -1
        )
        newest = np.maximum.accumulate(np.concatenate(([chain.newest_observed], observed)))
        begins = np.flatnonzero(observed > newest[:-1])
        rewards = rows["reward"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            if len(chain.reward):
                chain.reward[-1] += rewards[: begins[0] if len(begins) else len(rows)].sum()
            sums = np.add.reduceat(rewards, begins) if len(begins) else np.empty(0)
        frames = ticks[begins] - 1 if self._executed else observed[begins]
        self._chain = _Chain(
            chain.first_tick,
            int(newest[-1]),
            np.concatenate([chain.frame, frames]),
            np.concatenate([chain.action, rows["action"][begins]]),
            np.concatenate([chain.reward, sums]),
        )
        self._last_row = rows[-1].copy()
        self._emit_complete()
        if rows["flags"][-1]:
            self._close()

    def _emit_complete(self) -> None:
        """Emit the decisions that have `n_step` successors."""
        chain, n = self._chain, self._n_step
        count = len(chain.frame) - n
        if count <= 0:
            return
        windows = np.lib.stride_tricks.sliding_window_view(chain.reward[:-1], n)
        self._append(
            chain.frame[:count],
            chain.action[:count],
            _dot(windows, self._powers[:n]),
            np.full(count, self._powers[n]),
            chain.frame[n:],
            np.zeros(count, bool),
        )
        chain.frame = chain.frame[count:]
        chain.action = chain.action[count:]
        chain.reward = chain.reward[count:]

    def _close(self) -> None:
        """Emit what the chain still holds: it ends at the last row."""
        chain, last = self._chain, self._last_row
        count = len(chain.frame)
        if count and last is not None:
            padded = np.concatenate([chain.reward, np.zeros(self._n_step - 1)])
            windows = np.lib.stride_tricks.sliding_window_view(padded, self._n_step)[:count]
            steps = np.minimum(self._n_step, count - np.arange(count))
            self._append(
                chain.frame,
                chain.action,
                _dot(windows, self._powers[: self._n_step]),
                self._powers[steps],
                np.full(count, last["tick"]),
                np.full(count, bool(last["flags"] & TERMINATED)),
            )
        self._chain = self._new_chain(chain.first_tick)

    def _append(
        self, frame: Ints, action: npt.NDArray[Any], reward: Doubles, discount: Doubles,
        next_frame: Ints, terminal: npt.NDArray[np.bool_],
    ) -> None:
        with np.errstate(over="ignore"):
            finite = np.isfinite(reward.astype(np.float32))
        self.skipped += int((~finite).sum())
        kept = np.flatnonzero(finite)[-self._capacity :]
        slots = np.arange(self._end, self._end + len(kept)) % self._capacity
        ring = self._ring
        ring.frame[slots] = frame[kept]
        ring.action[slots] = action[kept]
        ring.reward[slots] = reward[kept]
        ring.discount[slots] = discount[kept]
        ring.next_frame[slots] = next_frame[kept]
        ring.terminal[slots] = terminal[kept]
        self._end += len(kept)
        self._first = max(self._first, self._end - self._capacity)


def _dot(windows: Doubles, weights: Doubles) -> Doubles:
    """The weighted sum of each window (n, steps)."""
    with np.errstate(invalid="ignore", over="ignore"):
        product: Doubles = (windows * weights).sum(axis=1)
    return product
