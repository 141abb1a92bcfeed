"""Which model shall act: the fastest candidate that agrees with torch on recent frames.

Candidates are timed once, in CPU time of this process, which a loaded machine does not lengthen
much. For each snapshot of weights the fastest candidate is tried first. A candidate that disagrees
too often is passed over for this snapshot; one that cannot take the network is never tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rtagent.inference.engines.agreement import agreement, are_numbers
from rtagent.inference.engines.interface import Answer, Convert, Engine, Observations, Unsupported
from rtagent.inference.engines.registry import Candidate
from rtagent.inference.engines.traceable import Traceable
from rtagent.memory.array_buffer import Floats
from rtagent.memory.engine_models import Bytes
from rtagent.policy.factory import line_of

TIMED = 8
"""Calls whose median counts."""
WARM = 3
"""Calls before these, which do not count."""


@dataclass(frozen=True)
class Converted:
    """A model, what made it, and the share of frames on which it chooses torch's action."""

    candidate: Candidate
    model: Bytes
    agreement: float


class Choice:
    """The candidates of one network.

    Args:
        engines: by name.
        candidates: to choose from.
        network: to be translated.
        action_space: decides what it means to agree.
        threshold: least agreement.
        torch: answers by torch, which a candidate must beat. If None, it may be slower.
        event: called with a kind of event and its details.
        go_on: called before each inference; raises to end the work.
        cpu_s: CPU seconds of this process so far.
        draws: whether the policy draws discrete actions, see `agreement`.

    Attributes:
        refused: models of the newest snapshot that do not agree often enough.
    """

    def __init__(
        self, engines: dict[str, Engine], candidates: Sequence[Candidate], network: Traceable,
        action_space: spaces.Space[Any], threshold: float, torch: Answer | None,
        event: Callable[..., None], go_on: Callable[[], None],
        cpu_s: Callable[[], float] = time.process_time, *, draws: bool = False,
    ) -> None:
        self._engines, self._left = engines, list(candidates)
        self._network, self._action_space = network, action_space
        self._threshold, self._torch = threshold, torch
        self._event, self._go_on, self._cpu_s = event, go_on, cpu_s
        self._draws = draws
        self._translated: dict[str, Convert] = {}
        self._seconds: dict[Candidate, float] = {}
        self.refused: list[Converted] = []

    @property
    def exhausted(self) -> bool:
        """Whether there is nothing left to try."""
        return not self._left

    def convert(
        self, values: Floats, observations: Observations, expected: Sequence[Floats]
    ) -> Converted | None:
        """The fastest model of these weights that agrees; None if there is none.

        Args:
            values: (parameters,) float32.
            observations: recent ones.
            expected: torch's answers to them.

        Raises:
            MemoryError: there is too little memory now; no candidate is left out for that.
        """
        self.refused = []
        if not self._seconds:
            self._rank(values, observations)
        for candidate in list(self._left):
            made = self._make(candidate, values, observations)
            if made is None:
                continue
            model, answer = made
            answers = []
            for observation in observations:
                self._go_on()
                answers.append(answer(observation))
            share = agreement(expected, answers, self._action_space, draws=self._draws)
            converted = Converted(candidate, model, share)
            # A threshold of 0 takes every answer by which a process can act.
            if share >= self._threshold and are_numbers(answers, draws=self._draws):
                return converted
            self.refused.append(converted)
        return None

    def _rank(self, values: Floats, observations: Observations) -> None:
        """Time the candidates, and leave out those that are slower than torch."""
        seconds = {}
        for candidate in list(self._left):
            made = self._make(candidate, values, observations)
            if made is not None:
                seconds[candidate] = self._timed(made[1], observations)
        limit = None if self._torch is None else self._timed(self._torch, observations)
        # All at once: a lack of memory ends this early, and then all are timed again.
        self._seconds = seconds
        ranked = sorted(self._seconds, key=self._seconds.__getitem__)
        self._left = [each for each in ranked if limit is None or self._seconds[each] < limit]
        self._event(
            "engines_timed", torch_ms=None if limit is None else round(1e3 * limit, 3),
            **{
                f"{each.engine}_{each.precision}_ms": round(1e3 * seconds, 3)
                for each, seconds in self._seconds.items()
            },
        )

    def _timed(self, answer: Answer, observations: Observations) -> float:
        """CPU seconds of an inference."""
        lengths = []
        for index in range(WARM + TIMED):
            self._go_on()
            before = self._cpu_s()
            answer(observations[index % len(observations)])
            lengths.append(self._cpu_s() - before)
        return float(np.median(lengths[WARM:]))

    def _make(
        self, candidate: Candidate, values: Floats, observations: Observations
    ) -> tuple[Bytes, Answer] | None:
        """A model, opened and tried; None if the candidate cannot take the network."""
        if candidate not in self._left:
            return None
        self._go_on()
        try:
            return self._try(candidate, values, observations)
        except Unsupported as error:
            self._drop(candidate, str(error))
        except MemoryError:
            raise
        except Exception as error:
            self._drop(candidate, line_of(error))
        return None

    def _try(
        self, candidate: Candidate, values: Floats, observations: Observations
    ) -> tuple[Bytes, Answer]:
        engine = self._engines[candidate.engine]
        if candidate.engine not in self._translated:
            self._translated[candidate.engine] = engine.translate(self._network)
        model = self._translated[candidate.engine](values, candidate.precision, observations)
        answer = engine.open(model, candidate.precision)
        answer(observations[0])
        return model, answer

    def _drop(self, candidate: Candidate, reason: str) -> None:
        """Leave a candidate out; with it, all of an engine that could not translate the network."""
        engine = candidate.engine
        if engine in self._translated:
            self._left.remove(candidate)
            self._event(
                "engine_unusable", engine=engine, precision=candidate.precision, reason=reason
            )
        else:
            self._left = [each for each in self._left if each.engine != engine]
            self._event("engine_unusable", engine=engine, reason=reason)
