"""Measures a learner's update: the gradient, and applying it.

The update is a learner's, on a shared state that only this process sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.arena import check_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.learner_state import LearnerState
from rtagent.memory.weights import WeightBuffers

LEAST_UPDATES = 3
WARM_UPS = 2


@dataclass(frozen=True)
class UpdateTimes:
    """Times of a learner's updates.

    Attributes:
        algorithm: that learns.
        batch_size: transitions per update.
        precision: of the passes; with learning.precision = "auto" the one that learners would
            choose.
        gradient_s: seconds of each gradient, from reading the weights to clipping it.
        apply_s: seconds of applying each.
        busy_s: of a core, for which an update keeps it busy, on average.
    """

    algorithm: str
    batch_size: int
    precision: str
    gradient_s: npt.NDArray[np.float64]
    apply_s: npt.NDArray[np.float64]
    busy_s: float


def measure_updates(
    config: Config, blueprint: Blueprint, seconds: float, on_progress: Callable[[float], None]
) -> UpdateTimes | None:
    """Time updates on random transitions in this process, for so many seconds after the warm-up.

    `on_progress` is called with the fraction that is done.

    Returns:
        The times; None if there is too little memory for the state that learners share.
    """
    sizes = {
        "learner": LearnerState.size(blueprint.learned_parameters),
        "weights": WeightBuffers.size(blueprint.parameters),
    }
    try:
        check_memory(sizes)
    except UserError:
        return None
    from rtagent.learning.beginning import build_network
    from rtagent.learning.device import Device
    from rtagent.learning.profiling import random_batch
    from rtagent.learning.replay.sequences import blank
    from rtagent.learning.shared_update import SharedUpdate
    from rtagent.policy.networks import resolved_algorithm

    learning = config.learning
    update = SharedUpdate.private(
        build_network(config, blueprint), learning, device=Device.of(learning)
    )
    size, blanks = learning.update_size, partial(blank, blueprint, learning)
    if learning.precision == "auto":
        update.refresh()
        measured = update.measure_precisions(blanks, size, lambda: None)
        update.algorithm.precision = measured.chosen
    batch = blanks(size) if blueprint.state_size else random_batch(blueprint, size, config.run.seed)
    gradients, applies, busy_s = _time_updates(update, batch, seconds, on_progress)
    algorithm = resolved_algorithm(config.learning, blueprint.action_space)
    precision = update.algorithm.precision
    return UpdateTimes(
        algorithm, len(batch.actions), precision, np.array(gradients), np.array(applies), busy_s
    )


def _time_updates(
    update: Any, batch: Any, seconds: float, on_progress: Callable[[float], None]
) -> tuple[list[float], list[float], float]:
    """Seconds of each gradient, and of applying each; of a core for an update, on average."""
    clock = MonotonicClock()
    gradients: list[float] = []
    applies: list[float] = []
    start, began = clock.now(), time.process_time()
    for number in count():
        before = clock.now()
        update.refresh()
        gradient = update.compute(batch, number)
        computed = clock.now()
        update.apply(gradient)
        after = clock.now()
        if number == WARM_UPS - 1:
            start, began = after, time.process_time()
        elif number >= WARM_UPS:
            gradients.append(computed - before)
            applies.append(after - computed)
            on_progress(min(1.0, (after - start) / seconds))
            if after - start >= seconds and len(gradients) >= LEAST_UPDATES:
                break
    return gradients, applies, (time.process_time() - began) / len(gradients)
