"""The converter: makes models of published weights, one for all inference processes.

Why it is correct. It only reads what acting reads: weights and frames, each whole or not at all. It
writes models into a place of its own, and has no lock that anybody waits for; where it is killed,
acting goes on with what it has. A model is published only after it has been opened and asked, here,
and agrees with torch. The first conversion has a tenth of acting's weight, for torch may keep every
core busy just because there is no model yet. All others run when nobody else wants a core, for at
most `policy.engine_share` of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO
from rtagent.inference.engines.agreement import recent_observations
from rtagent.inference.engines.choice import Choice, Converted
from rtagent.inference.engines.registry import candidates, make, wanted_engines
from rtagent.inference.engines.traceable import Traceable
from rtagent.memory.array_buffer import Floats
from rtagent.memory.engine_models import EngineModels, ModelInfo
from rtagent.memory.process_metrics import ConverterRecord
from rtagent.memory.weights import WeightsInfo
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.networks import head_of, support_of
from rtagent.processes.scheduling import prefer_acting, step_back
from rtagent.processes.worker import WorkerContext

LOOK_S = 0.05
"""Between two looks for new weights."""
NO_MODEL = np.zeros(0, np.uint8)


class Leaving(Exception):
    """The process has been told to go."""


class Converter:
    """Converts the newest weights whenever its share of a core allows.

    Args:
        context: of this worker.
        models: to publish into.
        policy: torch in float32, to compare with.
        choice: of the candidates.
        cpu_s: CPU seconds of this process so far.
    """

    def __init__(
        self, context: WorkerContext[ConverterRecord], models: EngineModels,
        policy: ActingPolicy, choice: Choice, cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._context, self._models, self._policy, self._choice = context, models, policy, choice
        self._cpu_s = cpu_s
        self._flat = np.zeros(context.blueprint.parameters, np.float32)
        self._publication = 0
        self._refusing = False
        self._due = -np.inf

    def run(self) -> None:
        """Convert until told to leave."""
        clock = self._context.clock
        try:
            while True:
                go_on(self._context)
                if self._choice.exhausted or not self._step():
                    clock.sleep_until(clock.now() + LOOK_S)
        except Leaving:
            return

    def _step(self) -> bool:
        """Convert what is new; False: there is nothing, or it is not time yet."""
        world, policy = self._context.world, self._context.config.policy
        if world.weights.number == self._publication or self._context.clock.now() < self._due:
            return False
        observations = recent_observations(world.frames, policy.engine_frames, self._blank)
        if not observations:
            return False
        before = self._cpu_s()
        number, info = world.weights.number, world.weights.read(self._flat)
        if info is None:
            return False
        self._publication = number
        converted = self._choice.convert(self._flat, observations, self._expected(observations))
        self._take(info, converted)
        # Before this, nothing may have been fast enough to leave anybody a core.
        self._context.set_idle_priority()
        spent_s = self._cpu_s() - before
        self._context.record.conversion_ns = round(spent_s * NANO)
        # The share holds over all that was done for this snapshot.
        self._due = self._context.clock.now() + spent_s * (1.0 / policy.engine_share - 1.0)
        return True

    def _expected(self, observations: list[npt.NDArray[Any]]) -> list[Floats]:
        """Torch's answers."""
        self._policy.load(self._flat)
        answers = []
        for observation in observations:
            go_on(self._context)
            answers.append(self._policy.values(observation))
        return answers

    def _take(self, info: WeightsInfo, converted: Converted | None) -> None:
        """Publish a model, or say why there is none."""
        record = self._context.record
        record.refused += len(self._choice.refused)
        if converted is not None and len(converted.model) > self._models.capacity:
            self._context.event(
                "engine_unusable", engine=converted.candidate.engine,
                reason=f"a model of {len(converted.model)} bytes is too large",
            )
            converted = None
        self._tell_refusals(info)
        if converted is not None:
            engine, precision = converted.candidate.codes
            found = ModelInfo(
                info.version, info.updates, engine, precision, len(converted.model),
                agreement=converted.agreement,
            )
            self._models.publish(converted.model, found)
            record.conversions += 1
        elif self._context.config.policy.engine == "auto" or self._choice.exhausted:
            self._models.publish(NO_MODEL, ModelInfo(info.version, info.updates, 0, 0, 0))

    def _tell_refusals(self, info: WeightsInfo) -> None:
        """Say once that snapshots are refused, until one is not."""
        refused = self._choice.refused
        if refused and not self._refusing:
            worst = min(refused, key=lambda each: each.agreement)
            self._context.event(
                "engine_refused", engine=worst.candidate.engine,
                precision=worst.candidate.precision, agreement=round(worst.agreement, 4),
                threshold=self._context.config.policy.engine_agreement,
                weights_version=info.version,
            )
        self._refusing = bool(refused)

    def _blank(self) -> npt.NDArray[Any]:
        blueprint = self._context.blueprint
        return np.zeros(blueprint.observation_space.shape, blueprint.frame_dtype)


def go_on(context: WorkerContext[ConverterRecord]) -> None:
    """Beat; raises `Leaving` if the process has been told to go."""
    context.beat()
    if context.stopping:
        raise Leaving


def run(context: WorkerContext[ConverterRecord]) -> None:
    """Body of the converter process."""
    config, blueprint = context.config, context.blueprint
    prefer_acting(config.run.realtime)
    step_back()
    head = head_of(config.learning, blueprint.action_space)
    spaces = blueprint.observation_space, blueprint.action_space
    exact = ActingPolicy(config.policy, *spaces, head)
    models = context.world.engine_models
    assert models is not None
    engines = {name: make(name) for name in wanted_engines(config.policy)}
    support = support_of(config.learning)
    zeros = np.zeros(blueprint.observation_space.shape, blueprint.frame_dtype)
    network = Traceable(exact.module, zeros, None if support is None else support.values())

    def tell(kind: str, **details: Any) -> None:
        context.event(kind, **details)

    def proceed() -> None:
        go_on(context)

    context.ready()
    try:
        choice = Choice(
            engines, list(candidates(config.policy, engines)), network, blueprint.action_space,
            config.policy.engine_agreement, None, tell, proceed,
        )
        if config.policy.engine == "auto":
            acting = ActingPolicy(config.policy, *spaces, head, blueprint.precision)
            choice.must_beat = choice.timed(acting.values, [zeros])
    except Leaving:
        return
    Converter(context, models, exact, choice).run()
