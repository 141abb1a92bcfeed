"""What the fuzz targets share: an example is made, read and timed."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np


class Watch:
    """The longest reading of one example, also when a forked process does it."""

    def __init__(self) -> None:
        self._longest = np.frombuffer(mmap.mmap(-1, 16), np.float64)

    @property
    def longest(self) -> tuple[float, float]:
        """Seconds on the clock and of the reader's thread, each of the example that took most."""
        return float(self._longest[0]), float(self._longest[1])

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Around one reading; a process that ends within leaves no time."""
        began, worked = time.monotonic(), time.thread_time()
        try:
            yield
        finally:
            took = time.monotonic() - began, time.thread_time() - worked
            np.maximum(self._longest, took, out=self._longest)


Make = Callable[[Random], Any]
Read = Callable[[Any], None]
Use = Callable[[Sequence[Any], Watch], Sequence[Exception | None]]


@dataclass(frozen=True)
class Target:
    """A reader of files.

    Attributes:
        name: of the target.
        open: gives how to make an example, and how to read some of them, with what each was
            answered by; is told a folder to work in.
        refusal: what the reader may raise.
        at_once: examples that are read together.
    """

    name: str
    open: Callable[[Path], AbstractContextManager[tuple[Make, Use]]]
    refusal: type[Exception]
    at_once: int = 1


def each(read: Read, examples: Sequence[Any], watch: Watch) -> list[Exception | None]:
    """Read one after the other."""
    answers: list[Exception | None] = []
    for example in examples:
        answer = None
        with watch.timing():
            try:
                read(example)
            except Exception as error:
                answer = error
        answers.append(answer)
    return answers
