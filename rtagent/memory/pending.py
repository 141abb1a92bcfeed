"""The actions that take effect between a frame and the decision that is made on it.

A decision takes effect some ticks after the frame that it was computed from, and the actions of
the ticks in between belong to the state that it acts in: frame and these actions together are
Markov again where the frame alone is not (Katsikopoulos and Engelbrecht, Markov decision processes
with delays and asynchronous cost collection, IEEE TAC 2003). With `env.pending_actions` = k the
policy is given them.

Definition. An inference on frame f asks once. Entry i of its k pending actions, 0 <= i < k, is
that of tick f + 1 + i, which is

1. what the world executed, if the ledger has the tick by then, default behaviour and re-used
   actions included;
2. else what is promised for it: what rule 1 of `staggering/arbiter.py` makes of the deposits for
   exactly that tick;
3. else unknown.

When it asks. Not when it begins: then the inferences that began before it are still under way, and
hardly any of the actions that will come before its own is known. It asks when the observation has
gone through the part of the network that takes long, before the layers that join both
(`policy/architectures.py`). With staggered processes the inferences on all frames before f have
then ended, and what they promised is every action that takes effect before its own. A longer
latency that is injected passes before it asks, as it stands for a longer first part.

Recorded, not reconstructed. A promise may be broken: overtaken by an action from a newer frame,
late, or followed by the default behaviour. What was executed, which the ledger knows in the end, is
then not what the decision saw. So the k actions go with the action into its slot, and from there
into the ledger's row of the tick that executes it: learners train on what the policy has seen, to
the byte. A row is longer by k actions. The successor of a transition is the frame of the next
decision, with the pending actions that the next decision saw. After truncation nobody decides;
there they are the actions executed after that frame. Of a demonstration they are the actions
executed between frame and action.

Ledger and slots are read one after the other while both are written. What that may miss is an
action that changes in between; it is recorded as it was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rtagent.staggering.arbiter import Lookup, newest
from rtagent.staggering.merging import Merge

if TYPE_CHECKING:
    from rtagent.memory.blueprint import Blueprint
    from rtagent.memory.ledger import Ledger

Actions = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

UNKNOWN_DISCRETE = -1
UNKNOWN_CONTINUOUS = np.nan


@dataclass(frozen=True)
class PendingActions:
    """How pending actions are kept, and what a network is given of them.

    Attributes:
        count: k, at least 1.
        space: of an action: Discrete, or a flat Box with finite bounds.
        action: type of an action's element.
        shape: of an action.
    """

    count: int
    space: Any
    action: np.dtype[Any]
    shape: tuple[int, ...]

    @staticmethod
    def of(blueprint: Blueprint) -> PendingActions | None:
        """The pending actions of a run; None if it has none."""
        if not blueprint.pending_actions:
            return None
        return PendingActions(
            blueprint.pending_actions, blueprint.action_space,
            np.dtype(blueprint.action_dtype).newbyteorder("<"), blueprint.action_shape,
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the field of a slot or row that holds all k; an unknown action is -1, or NaN."""
        return np.dtype((self.action, (self.count, *self.shape)))

    @property
    def width(self) -> int:
        """How many numbers a network is given."""
        return self.count * (prod(self.shape) + 1 if self.shape else int(self.space.n))

    def unknown(self) -> Actions:
        """(k, *shape), all of them unknown."""
        value = UNKNOWN_CONTINUOUS if self.shape else UNKNOWN_DISCRETE
        return np.full((self.count, *self.shape), value, self.action)

    def encoded(self, actions: Actions | None) -> bytes:
        """The field's bytes; given None, those of unknown actions."""
        return np.asarray(self.unknown() if actions is None else actions, self.action).tobytes()

    def decoded(self, content: bytes) -> Actions:
        """(k, *shape) from the field's bytes."""
        values: Actions = np.frombuffer(content, self.action)
        return values.reshape(self.count, *self.shape)

    def encode(self, actions: Actions) -> Floats:
        """What a network is given.

        Args:
            actions: (B, k, *shape).

        Returns:
            (B, width) float32. For each discrete action its one-hot vector; for each continuous
            action its components, scaled to [-1, 1], and a one. Zeros where it is unknown.
        """
        if not self.shape:
            numbers = np.arange(int(self.space.n))
            found = (actions[..., None] == numbers).reshape(len(actions), -1)
            return np.asarray(found, np.float32)
        low, high = self.space.low.astype(np.float64), self.space.high.astype(np.float64)
        half = (high - low) / 2.0
        scaled = (actions - (low + high) / 2.0) / np.where(half > 0.0, half, 1.0)
        known = ~np.isnan(actions).any(axis=-1, keepdims=True)
        beside = np.concatenate([np.where(known, scaled, 0.0), known], axis=-1)
        encoded: Floats = beside.reshape(len(actions), -1).astype(np.float32)
        return encoded


def pending_field(blueprint: Blueprint) -> list[tuple[str, np.dtype[Any]]]:
    """The field of a slot and of a row for pending actions; [] in a run without them."""
    pending = PendingActions.of(blueprint)
    return [] if pending is None else [("pending", pending.dtype)]


class PendingReader:
    """Reads the pending actions of a frame.

    Args:
        pending: how many there are, and of which type.
        ledger: what was executed.
        slots: what is promised.
        merge: makes one deposit of those for a tick, as the arbiter does.

    Attributes:
        pending: as given.
    """

    def __init__(
        self, pending: PendingActions, ledger: Ledger, slots: Lookup, merge: Merge = newest
    ) -> None:
        self.pending, self._ledger, self._slots, self._merge = pending, ledger, slots, merge

    def read(self, frame: int) -> Actions:
        """(k, *shape), the actions of the ticks after a frame as they are known now."""
        actions = self.pending.unknown()
        first = frame + 1
        rows = self._ledger.read(first, first + len(actions))
        actions[rows["tick"] - first] = rows["action"]
        executed = set(rows["tick"].tolist())
        for tick in range(first, first + len(actions)):
            if tick not in executed and (promised := self._slots.at(tick)):
                actions[tick - first] = self._merge(promised).action
        return actions
