"""Plans the steps of a learner while it learns, and takes back a plan that is not faster.

A batch size is profiled when it is first used, unless a similar one was, by the learner itself: it
has the lowest priority of all processes, so acting is not disturbed, and its heartbeat goes on. If
planning fails, an event says why, and the learner goes on without a plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from rtagent.clock import Clock
from rtagent.config import Config, Precision
from rtagent.learning.placed import PlacedUpdate
from rtagent.learning.profiling import profile_key, take_profile, usable_cores
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.blueprint import Blueprint
from rtagent.placement.profile import ProfileCache
from rtagent.placement.second_core import SecondCore
from rtagent.placement.step import Placement, place
from rtagent.placement.trial import Trial

PROFILE_S = 2.0
"""About how long the profile of a batch size takes."""
SIMILAR = 2.0
"""Sizes that differ by at most this factor share a plan. R3 tries many sizes, and profiling each
would take much of a deadline. Whether the plan is faster is measured for each size."""
MS = 1e3


class Placing:
    """The plans of one learner, by batch size.

    Args:
        update: the update whose steps are planned.
        config: of the run; with learning.placement = "off" nothing is done.
        blueprint: shapes of the run.
        clock: of the process.
        ask: raises `MemoryError` unless a second network can compute a batch of a size, too.
        beat: called now and then while it measures.
        event: sends an event: event(kind, **details).

    Attributes:
        size: the batch size that `state` and `precision` are about, the newest one.
    """

    def __init__(
        self, update: SharedUpdate, config: Config, blueprint: Blueprint, clock: Clock,
        ask: Callable[[int], None], beat: Callable[[], object], event: Callable[..., Any],
    ) -> None:
        self._update, self._config, self._blueprint = update, config, blueprint
        self._clock, self._ask, self._beat, self._event = clock, ask, beat, event
        self._wanted = config.learning.placement == "auto"
        self._core: SecondCore | None = None
        self._plans: dict[int, tuple[PlacedUpdate, Trial] | None] = {}
        self._placements: dict[int, Placement] = {}
        self._in_force: PlacedUpdate | None = None
        self._failed: set[int] = set()
        self.size = 0
        self._whole = True

    @property
    def state(self) -> str:
        """One of `process_metrics.PLACEMENTS`, for the newest batch size."""
        if not self._wanted:
            return "off"
        if self.size in self._failed:
            return "failed"
        if self.size not in self._plans:
            return "measuring"
        plan = self._plans[self.size]
        if plan is None:
            return "one core"
        if not plan[1].planned:
            return "taken back"
        return "two cores" if plan[0].uses_second else "one core"

    @property
    def precision(self) -> Precision:
        """Precision of the usual steps of the newest batch size.

        Now and then steps are made the other way, with the plan or without it, to compare the two.
        """
        plan, in_force = self._plans.get(self.size), self._in_force
        if plan is not None and plan[1].planned:
            return plan[0].precision
        return self._update.algorithm.precision if in_force is None else in_force.before

    def prepare(self, size: int) -> bool:
        """Plan the steps of a new batch size.

        Returns:
            Whether a plan was made and put in force.
        """
        if not self._wanted or size in self._plans or size in self._failed:
            return False
        self.size = size
        self._put_in_force(None)
        self._make(size)
        plan = self._plans.get(size)
        if plan is None:
            return False
        self._put_in_force(plan[0])
        return True

    def begin(self, size: int) -> None:
        """Put in force what is best for a batch size; called before each gradient."""
        if self._wanted:
            self.size = size
            plan = self._plans.get(size)
            # Steps without the actor take less time, so only whole steps are compared.
            self._whole = self._update.whole
            follows = plan is not None and (plan[1].choose() if self._whole else plan[1].planned)
            self._put_in_force(plan[0] if plan is not None and follows else None)

    def end(self, seconds: float) -> None:
        """Note how long a gradient took; called after it."""
        plan = self._plans.get(self.size)
        if plan is None or not self._whole:
            return
        placed, trial = plan
        before = trial.planned
        trial.note(self._in_force is placed, seconds)
        if trial.planned != before:
            kind = "placement_restored" if trial.planned else "placement_taken_back"
            self._event(kind, batch_size=self.size)

    def close(self) -> None:
        """Take back the plan in force, and end the second thread."""
        self._put_in_force(None)
        if self._core is not None:
            self._core.close()
            self._core = None

    def _put_in_force(self, placed: PlacedUpdate | None) -> None:
        if placed is self._in_force:
            return
        if self._in_force is not None:
            self._in_force.take_back()
        self._in_force = placed
        if placed is not None:
            placed.put_in_force()

    def _make(self, size: int) -> None:
        if usable_cores() < 2:
            self._plans[size] = None
            return
        try:
            placement = self._similar(size) or self._plan(size)
        except Exception as error:
            # A network whose parts cannot be measured can still learn without a plan.
            self._failed.add(size)
            said = " ".join(str(error).split()) or type(error).__name__
            self._event("placement_failed", batch_size=size, error=said)
            return
        self._plans[size] = None
        # On one core in one precision, a step by plan is one without a plan.
        if placement.uses_second or placement.precision is None:
            self._core = self._core or SecondCore()
            self._plans[size] = PlacedUpdate(self._update, placement, self._core), Trial()

    def _similar(self, size: int) -> Placement | None:
        """The plan of the most similar size, if there is one that is similar enough."""
        factors = [(max(each, size) / min(each, size), each) for each in self._placements]
        factor, best = min(factors, default=(math.inf, 0))
        return self._placements[best] if factor <= SIMILAR else None

    def _plan(self, size: int) -> Placement:
        self._ask(size)
        config, cache = self._config, ProfileCache(self._config.state_dir)
        key = profile_key(config, self._blueprint, size, self._update.algorithm.network)
        profile = cache.read(key)
        if profile is None:
            profile = take_profile(
                config, self._blueprint, size, PROFILE_S, lambda done: self._beat(), self._clock
            )
            cache.write(key, profile)
        self._beat()
        self._placements[size] = placement = place(profile)
        self._event(
            "placement", batch_size=size, predicted_ms=placement.predicted_us / MS,
            one_core_ms=placement.predicted_single_us / MS, proven=placement.plan.proven,
            cores=2 if placement.uses_second else 1,
        )
        return placement
