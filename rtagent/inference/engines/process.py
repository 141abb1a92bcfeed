"""The converter: makes models of published weights, one for all inference processes.

Why it is correct. The converter only reads what acting reads: weights and frames, each whole or not
at all. It alone writes models, and it holds no lock that another process waits for; where it is
killed, acting goes on with the model that it has. A model is published only after this process has
opened and tried it, and it agrees with torch. The first conversion has a tenth of acting's
scheduling weight, for torch may keep every core busy just because there is no model yet. All others
run when no other process wants a core, for at most `policy.engine_share` of one core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from rtagent.clock import NANO
from rtagent.inference.engines.agreement import recent_observations
from rtagent.inference.engines.choice import Choice, Converted
from rtagent.inference.engines.interface import Observations
from rtagent.inference.engines.registry import candidates, loaded
from rtagent.inference.engines.traceable import Traceable
from rtagent.memory.array_buffer import Floats
from rtagent.memory.engine_models import EngineModels, ModelInfo
from rtagent.memory.process_metrics import ConverterRecord
from rtagent.memory.weights import WeightsInfo
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.factory import line_of
from rtagent.policy.heads import PolicyHead
from rtagent.policy.networks import head_of, support_of
from rtagent.processes.scheduling import prefer_acting, step_back
from rtagent.processes.worker import Leaving, WorkerContext

LOOK_S = 0.05
"""Seconds between two looks for new weights."""
NO_MODEL = np.zeros(0, np.uint8)


class Converter:
    """Converts the newest weights whenever its share of a core allows.

    Args:
        context: of this worker.
        models: where models are published.
        policy: torch in float32, to compare with.
        choice: chooses among the candidates.
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
        self._refusing = self._lacks_memory = False
        self._due = -np.inf
        self._first_floor = context.world.frames.floor

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
        """Convert new weights; False if there are none, or it is not time yet."""
        world, policy = self._context.world, self._context.config.policy
        if world.weights.number == self._publication or self._context.clock.now() < self._due:
            return False
        frames, wanted = world.frames, policy.engine_frames
        # A ring that has begun to give up frames will not hold more of them.
        if frames.floor == self._first_floor and frames.newest - frames.floor + 1 < wanted:
            return False
        observations = recent_observations(frames, wanted)
        if not observations:
            return False
        before = self._cpu_s()
        number, info = world.weights.number, world.weights.read(self._flat)
        if info is None:
            return False
        try:
            expected = self._expected(observations)
            converted = self._choice.convert(self._flat, observations, expected)
        except MemoryError as error:
            # These weights are converted when there is memory again; until then torch acts.
            self._note_lack_of_memory(info, line_of(error))
            self._rest(before)
            return False
        self._publication, self._lacks_memory = number, False
        self._publish(info, converted)
        # Before the first conversion torch acts, which may have left no core idle.
        self._context.set_idle_priority()
        self._context.record.conversion_ns = round(self._rest(before) * NANO)
        return True

    def _rest(self, before: float) -> float:
        """Convert no more until the share allows it; CPU seconds spent since `before`.

        The share counts all that was done for this snapshot.
        """
        spent_s = self._cpu_s() - before
        share = self._context.config.policy.engine_share
        self._due = self._context.clock.now() + spent_s * (1.0 / share - 1.0)
        return spent_s

    def _note_lack_of_memory(self, info: WeightsInfo, reason: str) -> None:
        """Let torch act, and say why, at the first of consecutive conversions without memory."""
        if self._lacks_memory:
            return
        self._lacks_memory = True
        engine = self._context.config.policy.engine
        self._context.event("engine_unusable", engine=engine, reason=reason)
        self._models.publish(NO_MODEL, ModelInfo(info.version, info.updates))

    def _expected(self, observations: Observations) -> list[Floats]:
        """Torch's answers."""
        self._policy.load(self._flat)
        answers = []
        for observation in observations:
            go_on(self._context)
            answers.append(self._policy.values(observation))
        return answers

    def _publish(self, info: WeightsInfo, converted: Converted | None) -> None:
        """Publish a model; where there is none, torch acts, and an event says why."""
        record = self._context.record
        record.refused += len(self._choice.refused)
        if converted is not None and len(converted.model) > self._models.capacity:
            self._context.event(
                "engine_unusable", engine=converted.candidate.engine,
                precision=converted.candidate.precision,
                reason=f"a model of {len(converted.model)} bytes is too large",
            )
            converted = None
        self._report_refusals(info)
        if converted is None:
            self._models.publish(NO_MODEL, ModelInfo(info.version, info.updates))
            return
        codes, share = converted.candidate.codes, converted.agreement
        found = ModelInfo(info.version, info.updates, *codes, agreement=share)
        self._models.publish(converted.model, found)
        record.conversions += 1

    def _report_refusals(self, info: WeightsInfo) -> None:
        """Report the first of consecutive snapshots for which a model was refused."""
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


def go_on(context: WorkerContext[ConverterRecord]) -> None:
    """Beat; raises `Leaving` if the process has been told to leave."""
    context.beat()
    if context.stopping:
        raise Leaving


def run(context: WorkerContext[ConverterRecord]) -> None:
    """Body of the converter process."""
    config, blueprint = context.config, context.blueprint
    prefer_acting(config.run.realtime)
    step_back()
    head = head_of(config.learning, blueprint.action_space)
    exact = ActingPolicy.of(config, blueprint, "float32")
    models = context.world.engine_models
    assert models is not None
    engines = loaded(config.policy, lambda name, why: context.event(
        "engine_unusable", engine=name, reason=f"it cannot be loaded: {why}"
    ))
    support = support_of(config.learning)
    zeros = blueprint.no_observation()
    network = Traceable(exact.module, zeros, None if support is None else support.values())
    context.ready()
    acting = ActingPolicy.of(config, blueprint).values if config.policy.engine == "auto" else None
    choice = Choice(
        engines, list(candidates(config.policy, engines)), network, blueprint.action_space,
        config.policy.engine_agreement, acting, context.event, partial(go_on, context),
        draws=isinstance(head, PolicyHead),
    )
    Converter(context, models, exact, choice).run()
