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

from rtagent.learning.look_up import (
    Columns,
    Flags,
    Ints,
    LookUp,
    NumpyLookUp,
    Transitions,
    prepare_look_up,
    row_dtype,
)
from rtagent.memory.ledger import TERMINATED, Rows
from rtagent.staggering.arbiter import Source

Doubles = npt.NDArray[np.float64]


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
    demonstrated: Flags


class DecisionIndex:
    """Ledger rows in, a ring of transitions out. Vectorised, and fed little by little.

    A transition has a serial number, which grows with the number of its state's frame. It takes 24
    bytes if an action is one int32. One thread at a time may use an index.

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
        # Beside the other columns, because it is searched.
        self._frames: Ints = np.empty(capacity, np.int64)
        self._rows = np.empty(capacity, row_dtype(action))
        self._columns = Columns(self._frames, self._rows, self._powers.astype(np.float32))
        self._first = 0
        self._end = 0
        self._last_row: np.void | None = None
        self._no_actions = self._rows["action"][:0]
        self._chain = self._new_chain(0)
        self.skipped = 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def span(self) -> tuple[int, int]:
        """Serial numbers of the transitions held: first, and one past the last."""
        return self._first, self._end

    def room(self, count: int) -> Transitions:
        """Room for so many transitions."""
        return Transitions(count, self._rows.dtype)

    def get(self, serials: Ints) -> Transitions:
        """Copies of the transitions with these serial numbers, which must lie in `span`."""
        found = self.room(len(serials))
        NumpyLookUp(self._columns, serials, found).run()
        return found

    def prepare(self, serials: Ints, out: Transitions) -> LookUp:
        """A copy like that of `get`, which can be made again and again.

        Args:
            serials: (n,), contiguous, looked at when it is made.
            out: `room(n)`, filled when it is made.
        """
        return prepare_look_up(self._columns, serials, out)

    def frames(self, start: int, stop: int) -> Ints:
        """The states' frames of the transitions start <= serial < stop, which lie in `span`."""
        return self._frames.take(np.arange(start, stop) % self._capacity)

    def find(self, frames: Ints) -> Ints:
        """The serial numbers (n,) of the transitions that begin with frames (n,); -1 for others."""
        if not len(self):
            return np.full(len(frames), -1)
        serials = np.minimum(self._first + self._older_than(frames), self._end - 1)
        return np.where(self._frames.take(serials % self._capacity) == frames, serials, -1)

    def forget(self, oldest_frame: int) -> None:
        """Drop the transitions whose state is older than a frame."""
        if len(self) and self._frames[self._first % self._capacity] < oldest_frame:
            self._first += int(self._older_than(np.array([oldest_frame]))[0])

    def _older_than(self, frames: Ints) -> Ints:
        """How many of the transitions held begin before each frame."""
        start, stop = self._first % self._capacity, (self._end - 1) % self._capacity + 1
        if start < stop:
            return np.searchsorted(self._frames[start:stop], frames)
        # They run past the end of the ring: two parts, each in ascending order.
        older = np.searchsorted(self._frames[start:], frames)
        return older + np.searchsorted(self._frames[:stop], frames)

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
            first_tick, first_tick - 1, np.empty(0, np.int64), self._no_actions, np.empty(0),
            np.empty(0, bool),
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
            np.concatenate([chain.demonstrated, _demonstrated(rows[begins])]),
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
            np.full(count, n),
            chain.frame[n:],
            np.zeros(count, bool),
            chain.demonstrated[:count],
        )
        chain.frame = chain.frame[count:]
        chain.action = chain.action[count:]
        chain.reward = chain.reward[count:]
        chain.demonstrated = chain.demonstrated[count:]

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
                steps,
                np.full(count, last["tick"]),
                np.full(count, bool(last["flags"] & TERMINATED)),
                chain.demonstrated,
            )
        self._chain = self._new_chain(chain.first_tick)

    def _append(
        self, frame: Ints, action: npt.NDArray[Any], reward: Doubles, steps: Ints,
        next_frame: Ints, terminal: Flags, demonstrated: Flags,
    ) -> None:
        with np.errstate(over="ignore"):
            finite = np.isfinite(reward.astype(np.float32))
        self.skipped += int((~finite).sum())
        kept = np.flatnonzero(finite)[-self._capacity :]
        slots = np.arange(self._end, self._end + len(kept)) % self._capacity
        self._frames[slots] = frame[kept]
        columns = {
            "shift": next_frame - frame, "reward": reward, "steps": steps,
            "terminal": terminal, "demonstrated": demonstrated, "action": action,
        }
        for name, values in columns.items():
            self._rows[name][slots] = values[kept]
        self._end += len(kept)
        self._first = max(self._first, self._end - self._capacity)


def _demonstrated(rows: Rows) -> Flags:
    """Which of these rows executed an action that was chosen, but not by a worker."""
    found: Flags = (rows["source"] == Source.AGENT) & (rows["worker"] < 0)
    return found


def _dot(windows: Doubles, weights: Doubles) -> Doubles:
    """The weighted sum of each window (n, steps)."""
    with np.errstate(invalid="ignore", over="ignore"):
        product: Doubles = (windows * weights).sum(axis=1)
    return product
