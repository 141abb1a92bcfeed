"""The memory that batches need: measured step by step, and asked for before a new size is used.

Native code does not always say that memory was refused to it: oneDNN runs a kernel that it could
not make, and the process dies of SIGSEGV. Kernels are made when a batch of a new size is computed
for the first time. So all that such a batch may need is asked for beforehand and given back at
once; who is refused learns it from a `MemoryError`. What a size needs is at most in proportion to
a smaller one that was measured, as weights and gradients do not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Callable

from rtagent.learning.out_of_memory import ask_for

KERNELS_BYTES = 32 << 20
"""Room for what native code keeps for a new size; 8 MB were seen."""
STEP = 4
"""A measured size answers for those up to so many times as large."""


class BatchMemory:
    """Knows the memory of the batches measured so far.

    Args:
        measure: runs a batch of a size; bytes that learning from such batches needs.
        ask: raises `MemoryError` unless so many bytes can be had.
    """

    def __init__(self, measure: Callable[[int], int], ask: Callable[[int], None] = ask_for) -> None:
        self._run = measure
        self._ask = ask
        self._measured: dict[int, int] = {}
        self._admitted = 0

    def measure(self, size: int) -> int:
        """Run a batch of a size; bytes that learning from such batches needs.

        Raises:
            MemoryError: they cannot be had.
        """
        self.require(size)
        self._measured[size] = self._run(size)
        return self._measured[size]

    def require(self, size: int) -> None:
        """Make sure that batches of a size can be computed. Cheap if the last one was like that.

        A size far above what was measured is approached in steps, each of them run.

        Raises:
            MemoryError: they cannot be.
        """
        if size == self._admitted:
            return
        while (step := max(1, STEP * self._known(size))) < size:
            self._ask(self._enough_for(step))
            self._measured[step] = self._run(step)
        self._ask(self._enough_for(size))
        self._admitted = size

    def require_twice(self, size: int) -> None:
        """Make sure that a second network can compute batches of a size, too.

        Raises:
            MemoryError: it cannot.
        """
        self._ask(2 * self._enough_for(size))

    def _known(self, size: int) -> int:
        """The largest size measured that is not above this one; 0 if there is none."""
        return max((known for known in self._measured if known <= size), default=0)

    def _enough_for(self, size: int) -> int:
        known = self._known(size)
        return KERNELS_BYTES + (-(-self._measured[known] * size // known) if known else 0)
