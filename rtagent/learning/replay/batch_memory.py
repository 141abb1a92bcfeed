"""The memory that batches need: measured step by step, and asked for before a new size is used.

Native code does not always report that it was refused memory: oneDNN runs a kernel that it could
not create, and the process dies of SIGSEGV. It creates kernels when a batch of a new size is
computed for the first time. So all the memory that such a batch may need is allocated beforehand
and given back at once; if that fails, there is a `MemoryError`. The memory grows at most in
proportion to the size, as weights and gradients do not grow with the batch; so a measured size
gives a bound for larger ones.
"""

from __future__ import annotations

from collections.abc import Callable

from rtagent.learning.out_of_memory import ask_for

KERNELS_BYTES = 32 << 20
"""Memory that native code may keep for a new size; 8 MB were seen."""
STEP = 4
"""A measured size gives the bound for sizes up to so many times as large."""


class BatchMemory:
    """The memory of the batches measured so far.

    Args:
        measure: runs a batch of a size; returns the bytes that learning from such batches needs.
        ask: raises `MemoryError` unless so many bytes can be had.
    """

    def __init__(self, measure: Callable[[int], int], ask: Callable[[int], None] = ask_for) -> None:
        self._run = measure
        self._ask = ask
        self._measured: dict[int, int] = {}
        self._admitted = 0

    def measure(self, size: int) -> int:
        """Run a batch of a size; returns the bytes that learning from such batches needs.

        Raises:
            MemoryError: these bytes cannot be had.
        """
        self.require(size)
        self._measured[size] = self._run(size)
        return self._measured[size]

    def require(self, size: int) -> None:
        """Make sure that there is memory for batches of a size. Cheap if it is the last size again.

        A size far above the measured ones is approached in steps, each of which is run.

        Raises:
            MemoryError: there is not.
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
            MemoryError: there is too little memory.
        """
        self._ask(2 * self._enough_for(size))

    def _known(self, size: int) -> int:
        """The largest measured size that is not above this size; 0 if there is none."""
        return max((known for known in self._measured if known <= size), default=0)

    def _enough_for(self, size: int) -> int:
        known = self._known(size)
        return KERNELS_BYTES + (-(-self._measured[known] * size // known) if known else 0)
