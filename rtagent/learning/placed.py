"""Makes a learner's update follow a plan, or no plan again, and measures whether a plan helps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import cast

from rtagent.clock import Clock, MonotonicClock
from rtagent.config import Config, Precision
from rtagent.learning.algorithms.algorithm import Placeable
from rtagent.learning.beginning import build_network
from rtagent.learning.profiling import Build, random_batch, whole_steps
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.blueprint import Blueprint
from rtagent.placement.execution import PlacedStep
from rtagent.placement.layers import SplitLayers, StepRunner
from rtagent.placement.second_core import SecondCore
from rtagent.placement.step import Placement, place_on_one

MS = 1e3
WARM_UPS = 2
LEAST_TURNS = 3
TURN_S = 0.02
"""Processor time of the steps that one update makes in a row before the other one's turn. The first
step of a turn is not counted: the caches still hold the other update's weights, while a learner has
one update, whose weights stay in the caches."""
LEAST_IN_TURN = 2


class PlacedUpdate:
    """A plan that can be put in force in an update, and taken back.

    Args:
        update: of an algorithm that can be placed.
        placement: the plan.
        core: the second core.

    Attributes:
        uses_second: whether anything runs on the second core.
        precision: of the steps with the plan; if that mixes several, of its first layer.
        before: precision of the steps without it.
    """

    def __init__(self, update: SharedUpdate, placement: Placement, core: SecondCore) -> None:
        assert isinstance(update.algorithm, Placeable)
        self._algorithm = update.algorithm
        self._runner = PlacedStep(placement, core)
        self._layers: list[SplitLayers] = []
        self.uses_second = placement.uses_second
        self.precision = cast(Precision, self._runner.inputs_in)
        self.before = self._algorithm.precision

    def put_in_force(self) -> None:
        """Run all steps from the next one on as planned."""
        runner = self._runner
        self._layers = [
            SplitLayers(network, runner, runner.split) for network in self._algorithm.networks
        ]
        self._algorithm.runner = runner
        self.before = self._algorithm.precision
        # Operations between layers have the precision of the layer before; those before the first
        # layer have the algorithm's.
        self._algorithm.precision = self.precision

    def take_back(self) -> None:
        """Run everything on one core again, as without a plan."""
        self._algorithm.runner = StepRunner()
        self._algorithm.precision = self.before
        for layers in self._layers:
            layers.restore()
        self._layers = []


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds of each step that was measured.

    Attributes:
        planned: with the plan.
        single: with the best plan for one core.
        busy: with the plan, the first core's processor time alone.
    """

    planned: tuple[float, ...]
    single: tuple[float, ...]
    busy: tuple[float, ...]

    @property
    def planned_ms(self) -> float:
        """The median with the plan."""
        return median(self.planned)

    @property
    def single_ms(self) -> float:
        """The median on one core."""
        return median(self.single)


def measure_plan(
    planned: SharedUpdate, single: SharedUpdate, batch: Batch, seconds: float,
    on_progress: Callable[[float], None],
) -> StepTimes:
    """Measure some steps of two updates in turns, so that the machine is the same for both.

    Args:
        planned: with the plan in force.
        single: with the plan for one core in force.
        batch: transitions.
        seconds: about how long; some steps are made in any case.
        on_progress: called with the fraction that is done.
    """
    clock = MonotonicClock()
    times: dict[SharedUpdate, list[tuple[float, float]]] = {planned: [], single: []}
    for update in (planned, single):
        for _ in range(WARM_UPS):
            _, computed_ms = _step(update, batch, clock)
    in_turn = max(LEAST_IN_TURN, round(TURN_S * MS / max(computed_ms, 1e-3)))
    start, turns = clock.now(), 0
    while True:
        for update, taken in times.items():
            steps = [_step(update, batch, clock) for _ in range(in_turn)]
            taken += steps[1:]
        turns += 1
        done = (clock.now() - start) / seconds
        on_progress(min(1.0, done))
        if turns >= LEAST_TURNS and done >= 1.0:
            both, busy = zip(*times[planned], strict=True)
            return StepTimes(both, tuple(each for each, _ in times[single]), busy)


def _step(update: SharedUpdate, batch: Batch, clock: Clock) -> tuple[float, float]:
    """Make a step; returns its milliseconds on the clock, and of this thread's processor time."""
    before, computed = clock.now(), time.thread_time()
    update.step(batch)
    return MS * (clock.now() - before), MS * (time.thread_time() - computed)


def measure_placement(
    config: Config, blueprint: Blueprint, placement: Placement, seconds: float,
    on_progress: Callable[[float], None], build: Build = build_network,
) -> StepTimes:
    """Measure a plan and the best plan for one core, on private weights in this process."""
    batch = random_batch(blueprint, placement.profile.batch_size, config.run.seed)
    learning = whole_steps(config.learning)
    planned, single = (
        SharedUpdate.private(build(config, blueprint), learning) for _ in range(2)
    )
    core = SecondCore()
    plans = {planned: placement, single: place_on_one(placement.profile)}
    for update, plan in plans.items():
        PlacedUpdate(update, plan, core).put_in_force()
    try:
        return measure_plan(planned, single, batch, seconds, on_progress)
    finally:
        core.close()
