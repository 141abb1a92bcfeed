"""What an engine must do: make a model of a network and its weights, and run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rtagent.inference.engines.traceable import Traceable
from rtagent.memory.array_buffer import Floats
from rtagent.memory.engine_models import Bytes, Precision

Observations = Sequence[npt.NDArray[Any]]
Answer = Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]
"""Answers one observation (stack, ...) with (actions,) float32."""
Convert = Callable[[Floats, Precision, Observations], Bytes]
"""Makes a model that any process of this machine can open.

It is given weights, (parameters,) float32, as the learners publish them; one of the engine's
precisions; and recent observations, to find the ranges of activations. Raises `Unsupported` if the
engine cannot compute a part of the network.
"""


class Unsupported(Exception):
    """The engine cannot run a network; the text says in one line what it lacks."""


class Engine(Protocol):
    """A program that runs networks, on one thread of the process that calls it."""

    def precisions(self) -> tuple[Precision, ...]:
        """The precisions in which it can compute on this machine."""
        ...

    def translate(self, network: Traceable) -> Convert:
        """Translate a network once, before there are weights for it.

        Raises:
            Unsupported: the engine cannot compute a part of the network.
        """
        ...

    def open(self, model: Bytes, precision: Precision) -> Answer:
        """Make a model ready to answer; it computes in the thread that calls it."""
        ...
