"""Takes the profile of a learning step: the parts of real updates on random transitions.

Each precision is measured twice: alone, and while another thread runs the same network, so that the
cores share memory as they will. Times are the processor's, so that what else runs here does not
count. Nothing that others see is touched: the weights are private.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median, quantiles

import torch

from rtagent.clock import Clock, MonotonicClock
from rtagent.config import Config, LearningConfig
from rtagent.errors import UserError
from rtagent.learning.algorithms.value_learning import ValueLearning
from rtagent.learning.beginning import build_network
from rtagent.learning.precision import is_usable
from rtagent.learning.replay.batch import Batch, empty_batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.arena import check_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.learner_state import LearnerState
from rtagent.memory.weights import WeightBuffers
from rtagent.placement.layers import SplitLayers
from rtagent.placement.profile import Part, Profile, cache_key, processor_name
from rtagent.placement.recorder import US, Key, Recorder
from rtagent.placement.second_core import SecondCore
from rtagent.policy import networks
from rtagent.policy.inputs import input_space

WARM_UPS = 2
LEAST_STEPS = 3
MOST_STEPS = 200
HANDOVERS = 25
IDLE_S = 1e-3
CAST_VALUES = 2**20


class NoProfile(UserError):
    """The step of this algorithm or network cannot be measured part by part."""


@dataclass
class _Times:
    """Of one precision: seconds of each part and of the whole in each step.

    Some layers have a precision of their own, as heads do.
    """

    precisions: dict[str, str] = field(default_factory=dict)
    parts: dict[Key, list[float]] = field(default_factory=dict)
    steps: list[float] = field(default_factory=list)

    def add(self, spent: dict[Key, float]) -> None:
        for key, seconds in spent.items():
            self.parts.setdefault(key, []).append(seconds)
        self.steps.append(sum(spent.values()))

    def median_us(self, key: Key) -> float:
        return US * median(self.parts[key])

    @property
    def noise(self) -> float:
        tenths = quantiles(self.steps, n=10)
        return (tenths[-1] - tenths[0]) / median(self.steps)


def profile_key(config: Config, blueprint: Blueprint, batch_size: int) -> str:
    """What a profile depends on: processor, cores, torch, network, algorithm, batch size."""
    learning = config.learning
    return cache_key(
        processor_name(), usable_cores(), torch.__version__, describe(config, blueprint),
        networks.resolved_algorithm(learning, blueprint.action_space), learning.precision,
        str(input_space(blueprint)), batch_size,
    )


def describe(config: Config, blueprint: Blueprint) -> str:
    """The network that learns, in words."""
    head = networks.head_of(config.learning, blueprint.action_space)
    return networks.describe(config.policy, input_space(blueprint), head)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def precisions_of(learning: LearningConfig) -> tuple[str, ...]:
    """What a step may compute in: what is configured, or all that the processor does fast."""
    if learning.precision != "auto":
        return (learning.precision,)
    # The processor does float16 30 to 100 times slower than float32, and int8 has no gradient.
    return ("float32", "bfloat16") if is_usable("bfloat16", convolves=True) else ("float32",)


def take_profile(
    config: Config, blueprint: Blueprint, batch_size: int, seconds: float,
    on_progress: Callable[[float], None], clock: Clock | None = None,
) -> Profile:
    """Measure a step in this process.

    Args:
        config: network, algorithm, precision.
        blueprint: shapes of the run.
        batch_size: transitions.
        seconds: how long, about; each precision gets its share, and some steps in any case.
        on_progress: called with the fraction that is done.
        clock: if None, the monotonic one.

    Raises:
        UserError: it cannot be taken, and why.
    """
    clock = clock or MonotonicClock()
    check_memory({
        "learner": LearnerState.size(blueprint.learned_parameters),
        "weights": WeightBuffers.size(blueprint.parameters),
    })
    cores, precisions = usable_cores(), precisions_of(config.learning)
    batch = random_batch(blueprint, batch_size, config.run.seed)
    rounds = [(each, beside) for each in precisions for beside in (False, True)[:min(2, cores)]]
    measured: dict[tuple[str, bool], _Times] = {}
    for number, (precision, beside) in enumerate(rounds):
        recorder = Recorder()
        update = _recorded(config, blueprint, precision, recorder)
        told = partial(_tell, on_progress, number, len(rounds))
        measured[precision, beside] = _measure(
            update, batch, recorder, seconds / len(rounds), clock, beside, told
        )
    alone = {each: measured[each, False] for each in precisions}
    shared = {each: measured.get((each, True), alone[each]) for each in precisions}
    return Profile(
        network=describe(config, blueprint),
        algorithm=networks.resolved_algorithm(config.learning, blueprint.action_space),
        batch_size=batch_size, cores=cores,
        parts=tuple(_parts(alone, shared, recorder.output_mb)),
        step_us={each: US * median(times.steps) for each, times in alone.items()},
        noise=max(times.noise for times in alone.values()),
        steps=min(len(times.steps) for times in alone.values()),
        handover_us=_handover_us(clock) if cores > 1 else 0.0,
        cast_us_per_mb=_cast_us_per_mb(clock),
    )


def _recorded(
    config: Config, blueprint: Blueprint, precision: str, recorder: Recorder
) -> SharedUpdate:
    """A learner's update, in memory of its own, whose parts are timed.

    Raises:
        NoProfile: its algorithm cannot be placed.
    """
    learning = config.learning.model_copy(update={"precision": precision})
    update = SharedUpdate.private(build_network(config, blueprint), learning)
    if not isinstance(update.algorithm, ValueLearning):
        raise NoProfile(
            f"a step of {networks.resolved_algorithm(learning, blueprint.action_space)} cannot "
            "be placed so far: DQN, Double DQN and C51 can"
        )
    update.algorithm.runner = recorder
    for network in (update.algorithm.network, update.algorithm.target):
        SplitLayers(network, recorder)
    return update


def _tell(on_progress: Callable[[float], None], number: int, rounds: int, done: float) -> None:
    on_progress((number + done) / rounds)


def _measure(
    update: SharedUpdate, batch: Batch, recorder: Recorder, seconds: float, clock: Clock,
    beside: bool, on_progress: Callable[[float], None],
) -> _Times:
    times = _Times(recorder.precisions)
    start = clock.now()
    with _busy_core(update, batch, beside):
        while True:
            recorder.begin()
            update.refresh()
            recorder.mark("takeover")
            gradient = update.compute(batch, update.state.progress.updates)
            recorder.mark("gradient")
            update.apply(gradient)
            recorder.mark("apply")
            if update.state.progress.updates <= WARM_UPS:
                start = clock.now()
                continue
            times.add(recorder.spent)
            done = (clock.now() - start) / seconds
            on_progress(min(1.0, done))
            if len(times.steps) >= (LEAST_STEPS if done >= 1.0 else MOST_STEPS):
                return times


@contextmanager
def _busy_core(update: SharedUpdate, batch: Batch, wanted: bool) -> Iterator[None]:
    """While the block lasts, another thread runs the target network again and again."""
    if not wanted:
        yield
        return
    network, stop = copy.deepcopy(update.algorithm.target), threading.Event()
    for layer in network.modules():
        layer.__dict__.pop("forward", None)
    bfloat16 = update.learning.precision == "bfloat16"

    def run() -> None:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            while not stop.is_set():
                network(*batch.next_inputs)

    thread = threading.Thread(target=run, name="busy core", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _parts(
    alone: dict[str, _Times], shared: dict[str, _Times], output_mb: dict[Key, float]
) -> Iterator[Part]:
    for key in next(iter(alone.values())).parts:
        layer, kind = key
        times: dict[bool, dict[str, float]] = {False: {}, True: {}}
        for beside, measured in ((False, alone), (True, shared)):
            for precision, each in measured.items():
                computed = each.precisions.get(layer, precision)
                times[beside].setdefault(computed, each.median_us(key))
        yield Part(layer, kind, times[False], times[True], output_mb.get(key, 0.0))


def _handover_us(clock: Clock) -> float:
    """Until another thread has begun with what it is given, waiting for its result included."""
    core = SecondCore()
    times = []
    for _ in range(HANDOVERS):
        # As in a step, the other core has been idle, and has to wake up.
        clock.sleep_until(clock.now() + IDLE_S)
        before = clock.now()
        core.submit(clock.now).result()
        times.append(clock.now() - before)
    core.close()
    return US * median(times) / 2.0


def _cast_us_per_mb(clock: Clock) -> float:
    """To bfloat16 and back, the mean of both."""
    values = torch.zeros(CAST_VALUES)
    times = []
    for _ in range(WARM_UPS + LEAST_STEPS):
        before = clock.now()
        values.to(torch.bfloat16).to(torch.float32)
        times.append(clock.now() - before)
    return US * median(times[WARM_UPS:]) / 2.0 / (values.nbytes / 2.0**20)


def random_batch(blueprint: Blueprint, count: int, seed: int) -> Batch:
    """Transitions of noise, which take as long as any others."""
    batch = empty_batch(blueprint, count)
    generator = torch.Generator().manual_seed(seed)
    frames = torch.empty_like(batch.observations)
    if frames.dtype == torch.uint8:
        frames.random_(0, 256, generator=generator)
    else:
        frames.normal_(generator=generator)
    return replace(batch, observations=frames, next_observations=frames.clone())
