"""A sum tree: draw an index with a probability proportional to its value, and change values.

Each inner node is the sum of its children, computed anew whenever one of them changes: nothing is
added up or subtracted in place, so no rounding error grows however many updates there are. The
tree is wide and flat, because numpy takes a row of children at a time; its highest level is as
wide as one cumulative sum is quick, and has no root above it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

CHILDREN = 16
WIDEST_TOP = 4096
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
        for below, above in pairwise(self._levels):
            indices = np.unique(indices // CHILDREN)
            above[indices] = _families(below)[indices].sum(axis=1)

    def rebuild(self) -> None:
        """Compute every sum anew."""
        for below, above in pairwise(self._levels):
            families = _families(below)
            above[: len(families)] = families.sum(axis=1)

    def total(self) -> float:
        """The sum of all values."""
        return float(np.cumsum(self._levels[-1])[-1])

    def find(self, fractions: Doubles) -> Ints:
        """The leaves that lie at given fractions of the total; never one whose value is 0.

        Args:
            fractions: (n,) in [0, 1); the total must be above 0.

        Returns:
            (n,) leaves: leaf i is found for a share leaves[i] / total of all fractions.
        """
        sums = np.cumsum(self._levels[-1])
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
