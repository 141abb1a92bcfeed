"""The body of an inference process: its policy, the weights, and the driver that acts."""

from __future__ import annotations

from rtagent.inference.driver import Driver
from rtagent.inference.engine_weights import TRIALS, EnginePolicy, EngineWeights, OpeningThread
from rtagent.inference.engines.interface import Answer
from rtagent.inference.engines.registry import loaded
from rtagent.inference.standby import Standby
from rtagent.inference.weights import NoWeights, Weights
from rtagent.memory.engine_models import ENGINES, PRECISIONS, Bytes, ModelInfo
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.pretrained import PretrainedPolicy
from rtagent.processes.scheduling import prefer_acting
from rtagent.processes.worker import WorkerContext


def run(context: WorkerContext[InferenceRecord]) -> None:
    """Body of an inference process."""
    prefer_acting(context.config.run.realtime)
    if context.config.policy.remote is not None:
        # Imported here, for its packages are an extra.
        from rtagent.inference.remote import ask_server

        ask_server(context, context.config.policy.remote)
        return
    if context.config.policy.pretrained is not None:
        _act_pretrained(context)
        return
    policy = ActingPolicy.of(context.config, context.blueprint)
    context.beat()
    standby = Standby(policy)
    standby.warm_up()
    weights = Weights(context.world.weights, context.blueprint.parameters, standby, context.clock)
    while not weights.take_over():
        context.beat()
        if context.stopping:
            return
        context.clock.sleep_until(context.clock.now() + 0.01)
    context.record.estimate_s = _forward_time(context, policy)
    if context.world.engine_models is None:
        context.ready()
        Driver(context, policy, weights).run()
        return
    by_engine = EnginePolicy(policy)
    engine_weights = _engine_weights(context, by_engine, weights)
    context.ready()
    Driver(context, by_engine, engine_weights).run()


def _act_pretrained(context: WorkerContext[InferenceRecord]) -> None:
    """Act by a finished policy."""
    blueprint = context.blueprint
    policy = PretrainedPolicy(
        context.config.policy, blueprint.observation_space, blueprint.action_space
    )
    context.beat()
    policy.warm_up()
    context.record.estimate_s = _forward_time(context, policy)
    context.ready()
    Driver(context, policy, NoWeights()).run()


def _engine_weights(
    context: WorkerContext[InferenceRecord], policy: EnginePolicy, weights: Weights
) -> EngineWeights:
    """What takes over the converter's models, in place of `Weights`."""
    models = context.world.engine_models
    assert models is not None
    # Imported here, not in the thread: an import holds the interpreter's lock for long.
    # The converter says why an engine cannot be loaded, and makes no model for it.
    engines = loaded(context.config.policy, lambda name, why: None)
    context.beat()
    zeros = context.blueprint.no_observation()

    def open_model(info: ModelInfo, model: Bytes) -> Answer:
        answer = engines[ENGINES[info.engine]].open(model, PRECISIONS[info.precision])
        for _ in range(TRIALS):
            answer(zeros)
        return answer

    return EngineWeights(
        weights, policy, models, OpeningThread(models, open_model), context.record, context.event
    )


def _forward_time(
    context: WorkerContext[InferenceRecord], policy: ActingPolicy | PretrainedPolicy
) -> float:
    """Seconds of a forward pass, by which the supervisor judges whether a process hangs."""
    observation, start = context.blueprint.no_observation(), context.clock.now()
    policy.values(observation)
    return context.clock.now() - start
