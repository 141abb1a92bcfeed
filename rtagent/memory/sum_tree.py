"""A sum tree: draw leaves with probabilities proportional to their values, and change values.

Each inner node is the sum of its children, computed anew whenever one of them changes: nothing is
added up or subtracted in place, so no rounding error grows however many updates there are. The
tree is wide and flat, because numpy takes a row of children at a time; its highest level has so
many nodes that one cumulative sum is still quick, and has no root above it.

Why it is right after a kill. A `dirty` word is set before leaves change and cleared after the sums
above them have followed; `repair` computes all sums anew if it is set. A value is stored in one
piece, so a leaf that was being changed has its old value or its new one.

`sum_tree.c` does the same where there was a C compiler: a small batch costs NumPy dozens of calls.
Both leave sums that differ by rounding at most, so processes of either kind can share a tree.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rtagent.memory.compiled import Function, compiled

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

CHILDREN = 16
WIDEST_TOP = 256
"""Nodes of the highest level at most."""

_HEAD_BYTES = 64
_DEEPEST = 16


def sum_tree(buffer: memoryview, leaves: int) -> SumTree:
    """The tree in a buffer; see `SumTree` for the arguments."""
    names = ("rtagent_sum_tree_draw", "rtagent_sum_tree_change", "rtagent_sum_tree_follow")
    functions = [function for name in names if (function := compiled(name)) is not None]
    return CompiledSumTree(buffer, leaves, *functions) if functions else SumTree(buffer, leaves)


class SumTree:
    """Values that have owners, and the sums above them. One user at a time.

    An owner is a number; owner k may have leaf k mod leaves, which belongs to one owner at a time.

    Args:
        buffer: `SumTree.size(leaves)` writable bytes, aligned to 8; all zero is an empty tree.
        leaves: number of values.

    Attributes:
        dirty: (1,) not 0 while sums may be wrong.
        leaves: (leaves,) the values, each >= 0; written by `set` and `change` alone.
        owners: (leaves,) the owner of each value; means nothing where the value is 0.
    """

    def __init__(self, buffer: memoryview, leaves: int) -> None:
        self.dirty = np.frombuffer(buffer, np.int64, 1)
        self._levels: list[Doubles] = []
        at = _HEAD_BYTES
        for width in _widths(leaves):
            self._levels.append(np.frombuffer(buffer, np.float64, width, at))
            at += 8 * width
        self.leaves = self._levels[0][:leaves]
        self.owners = np.frombuffer(buffer, np.int64, leaves, at)

    @staticmethod
    def size(leaves: int) -> int:
        """Bytes for a tree with that many leaves."""
        return _HEAD_BYTES + 8 * (sum(_widths(leaves)) + leaves)

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self._levels[-1].sum())

    def set(self, indices: Ints, values: Doubles | float) -> None:
        """Give leaves new values, and bring the sums above them up to date.

        Args:
            indices: (n,) leaves; of one that comes twice, either value may stay.
            values: (n,) or one for all; each >= 0 and finite.
        """
        if len(indices):
            self.dirty[0] = 1
            self.leaves[indices] = values
            self._follow(indices)
            self.dirty[0] = 0

    def repair(self) -> None:
        """Compute every sum anew if one may be wrong."""
        if self.dirty[0]:
            self._follow(np.arange(0, len(self._levels[0]), CHILDREN))
            self.dirty[0] = 0

    def live(self, owners: Ints) -> tuple[Ints, Flags]:
        """The leaves (n,) of owners (n,), and which of these belong to them and are not 0."""
        indices = owners % len(self.leaves)
        return indices, (self.owners[indices] == owners) & (self.leaves[indices] > 0.0)

    def draw(self, places: Doubles) -> tuple[Ints, Doubles] | None:
        """One leaf from each of n equal parts of the total; never one whose value is 0.

        Args:
            places: (n,) in [0, 1), where in its part each of them lies.

        Returns:
            Owners (n,) and their values (n,): leaf i is found for a share leaves[i] / total of all
            places in all parts. None if the total is 0.
        """
        sums = np.cumsum(self._levels[-1])
        if not sums[-1] > 0.0:
            return None
        parts = np.arange(len(places)) + places
        rest = _below(parts * (sums[-1] / len(places)), sums[-1])
        nodes = np.searchsorted(sums, rest, "right")
        rest -= np.where(nodes > 0, sums[nodes - 1], 0.0)
        for level in reversed(self._levels[:-1]):
            sums = np.cumsum(_families(level)[nodes], axis=1)
            # The sum of a row in another order than its parent's may end a little lower.
            rest = _below(rest, sums[:, -1])
            child = (sums <= rest[:, None]).sum(axis=1)
            before = sums[np.arange(len(child)), child - 1]
            rest -= np.where(child > 0, before, 0.0)
            nodes = CHILDREN * nodes + child
        return self.owners[nodes], self.leaves[nodes]

    def change(self, owners: Ints, values: Doubles) -> float:
        """Give owners new values, unless their leaves are 0 or another owner's by now.

        Args:
            owners: (n,) each >= 0.
            values: (n,) each >= 0; those that are not finite are ignored.

        Returns:
            The largest value that was given, or 0.
        """
        indices, changed = self.live(owners)
        changed &= np.isfinite(values)
        self.set(indices[changed], values[changed])
        return float(values[changed].max(initial=0.0))

    def _follow(self, leaves: Ints) -> None:
        """Compute the sums above some leaves anew."""
        for below, above in pairwise(self._levels):
            leaves = np.unique(leaves // CHILDREN)
            above[leaves] = _families(below)[leaves].sum(axis=1)


class _Job(ctypes.Structure):
    """`struct job` of `sum_tree.c`."""

    _fields_ = (
        ("levels", ctypes.c_void_p * _DEEPEST),
        ("widths", ctypes.c_int64 * _DEEPEST),
        *((name, ctypes.c_int64) for name in ("depth", "leaves")),
        *((name, ctypes.c_void_p) for name in ("dirty", "owner_of")),
        ("count", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("nodes", "owners", "numbers")),
        ("largest", ctypes.c_double),
    )


class CompiledSumTree(SumTree):
    """One leaf after the other, in C; see `sum_tree`."""

    def __init__(
        self, buffer: memoryview, leaves: int, draw: Function, change: Function, follow: Function
    ) -> None:
        super().__init__(buffer, leaves)
        self._run_draw, self._run_change, self._run_follow = draw, change, follow
        self._job = job = _Job(depth=len(self._levels), leaves=leaves)
        self._address = ctypes.addressof(job)
        for depth, level in enumerate(self._levels):
            job.levels[depth], job.widths[depth] = level.ctypes.data, len(level)
        job.dirty, job.owner_of = self.dirty.ctypes.data, self.owners.ctypes.data
        self._make_room(64)

    def draw(self, places: Doubles) -> tuple[Ints, Doubles] | None:
        count = self._take(len(places))
        self._numbers[:count] = places
        if not self._run_draw(self._address):
            return None
        return self._owners[:count].copy(), self._numbers[:count].copy()

    def change(self, owners: Ints, values: Doubles) -> float:
        count = self._take(len(owners))
        self._owners[:count] = owners
        self._numbers[:count] = values
        self._run_change(self._address)
        return float(self._job.largest)

    def _follow(self, leaves: Ints) -> None:
        count = self._take(len(leaves))
        self._nodes[:count] = leaves
        self._run_follow(self._address)

    def _take(self, count: int) -> int:
        """Prepare a job for that many leaves; the count."""
        if count > len(self._nodes):
            self._make_room(2 * count)
        self._job.count = count
        return count

    def _make_room(self, count: int) -> None:
        """Make the arrays that jobs point to: to look up their addresses takes microseconds."""
        self._nodes, self._owners = np.empty((2, count), np.int64)
        self._numbers = np.empty(count)
        self._job.nodes, self._job.owners = self._nodes.ctypes.data, self._owners.ctypes.data
        self._job.numbers = self._numbers.ctypes.data


def _widths(leaves: int) -> list[int]:
    """Nodes of each level from the leaves up; below the highest a multiple of `CHILDREN`."""
    widths = [leaves]
    while widths[-1] > WIDEST_TOP:
        parents = -(-widths[-1] // CHILDREN)
        widths[-1] = CHILDREN * parents
        widths.append(parents)
    return widths


def _families(level: Doubles) -> Doubles:
    """(parents, CHILDREN), the nodes of a level by their parents."""
    return level.reshape(-1, CHILDREN)


def _below(values: Doubles, limits: Doubles) -> Doubles:
    """The values, or the largest numbers below the limits where they are not below them."""
    return np.minimum(values, np.nextafter(limits, 0.0))
