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


class Unsupported(Exception):
    """The engine cannot run a network; the text says in one line what it lacks."""


class Template(Protocol):
    """A network without its weights."""

    def convert(self, values: Floats, precision: Precision, observations: Observations) -> Bytes:
        """A model that any process of this machine can open.

        Args:
            values: (parameters,) float32, as the learners publish them.
            precision: one of the engine's.
            observations: recent ones, (stack, ...) each, to find the ranges of activations.

        Raises:
            Unsupported: the engine cannot compute a part of the network.
        """
        ...


class Engine(Protocol):
    """A program that runs networks, on one thread of the process that calls it."""

    def precisions(self) -> tuple[Precision, ...]:
        """The precisions in which it can compute on this machine."""
        ...

    def template(self, network: Traceable) -> Template:
        """Translate a network once, before there are weights for it.

        Raises:
            Unsupported: the engine cannot compute a part of the network.
        """
        ...

    def open(self, model: Bytes, precision: Precision) -> Answer:
        """Make a model ready to answer; it computes in the thread that calls it."""
        ...
