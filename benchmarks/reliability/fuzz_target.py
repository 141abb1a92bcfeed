"""What the fuzz targets share: how an example is made, read and timed."""

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
        """Seconds of wall-clock time and of the reader's CPU time, each the longest."""
        return float(self._longest[0]), float(self._longest[1])

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Time one reading; a process that ends within it leaves no time."""
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
        open: takes a folder to work in; gives a function that makes an example, and one that reads
            several and returns what each raised, or None.
        refusal: the exception that the reader may raise.
        at_once: examples that are read together.
    """

    name: str
    open: Callable[[Path], AbstractContextManager[tuple[Make, Use]]]
    refusal: type[Exception]
    at_once: int = 1


def each(read: Read, examples: Sequence[Any], watch: Watch) -> list[Exception | None]:
    """Read the examples one after the other; what each raised, or None."""
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
