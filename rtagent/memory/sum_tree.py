"""A sum tree: draw an index with a probability proportional to its value, and change values.

Each inner node is the sum of its children, computed anew whenever one of them changes: nothing is
added up or subtracted in place, so no rounding error grows however many updates there are. The
tree is wide and flat, because numpy takes a row of children at a time; its highest level is as
wide as one cumulative sum is quick, and has no root above it.

`sum_tree.c` does the same where there was a C compiler: a small batch costs NumPy a dozen calls.
Both leave sums that differ by rounding at most, so processes of either kind can share a tree.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rtagent.compiled import compiled

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

CHILDREN = 16
WIDEST_TOP = 256
"""Nodes of the highest level at most."""


class SumTree:
    """Values, and the sums above them. Whoever changes it must be alone.

    Args:
        buffer: `SumTree.size(leaves)` writable bytes, aligned to 8; all zero is an empty tree.
        leaves: number of values.

    Attributes:
        leaves: (leaves,) the values, each >= 0; written by `set` alone.
    """

    def __init__(self, buffer: memoryview, leaves: int) -> None:
        self._levels: list[Doubles] = []
        at = 0
        for width in _widths(leaves):
            self._levels.append(np.frombuffer(buffer, np.float64, width, at))
            at += 8 * width
        self.leaves = self._levels[0][:leaves]
        self._walk: _NumpyWalk | _CompiledWalk = (
            _NumpyWalk(self._levels) if compiled("rtagent_sum_tree_find") is None
            else _CompiledWalk(self._levels)
        )

    @staticmethod
    def size(leaves: int) -> int:
        """Bytes for a tree with that many leaves."""
        return 8 * sum(_widths(leaves))

    def set(self, indices: Ints, values: Doubles | float) -> None:
        """Give leaves new values, and bring the sums above them up to date.

        Args:
            indices: (n,) leaves; of one that comes twice, either value may stay.
            values: (n,) or one for all; each >= 0 and finite.
        """
        self.leaves[indices] = values
        self._walk.follow(indices)

    def rebuild(self) -> None:
        """Compute every sum anew."""
        self._walk.follow(np.arange(0, len(self._levels[0]), CHILDREN))

    def total(self) -> float:
        """The sum of all values."""
        return float(np.cumsum(self._levels[-1])[-1])

    def find(self, fractions: Doubles) -> Ints | None:
        """The leaves that lie at given fractions of the total; never one whose value is 0.

        Args:
            fractions: (n,) in [0, 1).

        Returns:
            (n,) leaves: leaf i is found for a share leaves[i] / total of all fractions. None if the
            total is 0.
        """
        return self._walk.find(fractions)


class _NumpyWalk:
    """Level by level, all indices at a time."""

    def __init__(self, levels: list[Doubles]) -> None:
        self._levels = levels

    def follow(self, leaves: Ints) -> None:
        """Compute the sums above some leaves anew."""
        for below, above in pairwise(self._levels):
            leaves = np.unique(leaves // CHILDREN)
            above[leaves] = _families(below)[leaves].sum(axis=1)

    def find(self, fractions: Doubles) -> Ints | None:
        """As `SumTree.find`."""
        sums = np.cumsum(self._levels[-1])
        if not sums[-1] > 0.0:
            return None
        rest = _below(fractions * sums[-1], sums[-1])
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
        return nodes


_DEEPEST = 16


class _Job(ctypes.Structure):
    """`struct job` of `sum_tree.c`."""

    _fields_ = (
        ("levels", ctypes.c_void_p * _DEEPEST),
        ("widths", ctypes.c_int64 * _DEEPEST),
        ("depth", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("fractions", ctypes.c_void_p),
        ("nodes", ctypes.c_void_p),
    )


class _CompiledWalk:
    """One index after the other, in C."""

    def __init__(self, levels: list[Doubles]) -> None:
        find, follow = compiled("rtagent_sum_tree_find"), compiled("rtagent_sum_tree_follow")
        assert find is not None
        assert follow is not None
        self._find, self._follow = find, follow
        self._levels = levels
        self._job = _Job()
        self._address = ctypes.addressof(self._job)
        self._job.depth = len(levels)
        for depth, level in enumerate(levels):
            self._job.levels[depth], self._job.widths[depth] = level.ctypes.data, len(level)
        self._make_room(64)

    def _make_room(self, count: int) -> None:
        """Make arrays that the job points to: to look up their addresses takes microseconds."""
        self._fractions, self._nodes = np.empty(count), np.empty(count, np.int64)
        self._job.fractions = self._fractions.ctypes.data
        self._job.nodes = self._nodes.ctypes.data

    def _take(self, count: int) -> None:
        if count > len(self._nodes):
            self._make_room(2 * count)
        self._job.count = count

    def follow(self, leaves: Ints) -> None:
        """As `_NumpyWalk.follow`."""
        self._take(len(leaves))
        self._nodes[: len(leaves)] = leaves
        self._follow(self._address)

    def find(self, fractions: Doubles) -> Ints | None:
        """As `SumTree.find`."""
        self._take(len(fractions))
        self._fractions[: len(fractions)] = fractions
        return self._nodes[: len(fractions)].copy() if self._find(self._address) else None


def _widths(leaves: int) -> list[int]:
    """Nodes of each level from the leaves up, whole families of them below the highest."""
    widths = [leaves]
    while widths[-1] > WIDEST_TOP:
        parents = -(-widths[-1] // CHILDREN)
        widths[-1] = CHILDREN * parents
        widths.append(parents)
    return widths


def _families(level: Doubles) -> Doubles:
    return level.reshape(-1, CHILDREN)


def _below(values: Doubles, limits: Doubles) -> Doubles:
    """The values, or the largest numbers below the limits where they are not below them."""
    return np.minimum(values, np.nextafter(limits, 0.0))
