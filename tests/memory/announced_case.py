"""What a case for `weak_machine` is.

Each case writes things whose every part tells their number, and has readers of two kinds: `check`
looks at anything, also at what the writer is about to replace, and believes nothing that is not of
one piece; `announced` looks at what is said to be there, and has to find it at the first look.
"""

from __future__ import annotations

import random
from collections.abc import Callable

CAPACITY = 16
VALUES = 12
Replacements = tuple[tuple[object, str, object], ...]
"""Objects, names of their attributes, and what these are for the time being."""


class Case:
    """One kind of thing, seen by one process."""

    history = CAPACITY + 3
    """Things written before the writer is looked at."""
    writes = 2
    """Things that it writes while `check` looks."""
    always: Replacements = ()
    """What is replaced: checksums where the marks alone must do, and sizes."""
    once: Replacements = ()
    """What takes away second attempts."""
    size: Callable[[], int]

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory

    @staticmethod
    def format(memory: memoryview) -> None:
        pass

    def write(self, number: int) -> None:
        raise NotImplementedError

    def check(self, rng: random.Random) -> None:
        pass

    def announced(self) -> None:
        pass
