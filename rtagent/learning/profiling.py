"""Takes the profile of a learning step: the times of its parts, in updates on random transitions.

The parts are measured twice in each precision: alone, and while another thread runs the same
network, so that both cores share the memory as they will with a plan. Times are processor times, so
that other programs do not count. The weights are private: nothing shared is changed.
"""

from __future__ import annotations

import copy
import hashlib
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import torch
from torch import nn

from rtagent.clock import Clock, MonotonicClock
from rtagent.config import Config, LearningConfig
from rtagent.errors import UserError
from rtagent.learning.algorithms.algorithm import Placeable
from rtagent.learning.algorithms.recurrent import RecurrentValueLearning
from rtagent.learning.beginning import build_network
from rtagent.learning.precision import computing, is_usable
from rtagent.learning.replay.batch import Batch, empty_batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.arena import check_memory
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.learner_state import LearnerState
from rtagent.memory.weights import WeightBuffers
from rtagent.placement.layers import SplitLayers
from rtagent.placement.profile import Key, Part, Profile, cache_key, processor_name
from rtagent.placement.recorder import US, Recorder
from rtagent.placement.second_core import SecondCore
from rtagent.policy import networks
from rtagent.policy.actor_critic import ActorCritic, acting_part
from rtagent.policy.factory import imported
from rtagent.policy.inputs import input_space
from rtagent.processes.limit import most_busy_cores

WAYS = "whole", "alone", "beside"
"""How a step is measured: as a whole; by its parts; by its parts beside a busy core."""
WARM_UPS = 2
LEAST_STEPS = 3
MOST_STEPS = 200
HANDOVERS = 25
IDLE_S = 1e-3
CAST_VALUES = 2**20

Build = Callable[[Config, Blueprint], nn.Module]


@dataclass
class _Times:
    """Seconds of each part, and of the whole, in each step in one precision.

    Attributes:
        precisions: of each layer; some, as heads, always compute in float32.
        parts: seconds of each part.
        steps: seconds of all parts together.
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


def profile_key(
    config: Config, blueprint: Blueprint, batch_size: int, network: nn.Module
) -> str:
    """A key of everything a profile depends on: processor, cores, torch, network, and so on.

    `network` is the one that learns, as `build_network` gives it.
    """
    sizes = [(each.name, each.shape) for each in blueprint.learned_tensors]
    learning = config.learning
    return cache_key(
        processor_name(), usable_cores(), torch.__version__, describe(config, blueprint),
        networks.resolved_algorithm(learning, blueprint.action_space), learning.precision,
        str(input_space(blueprint)), str(sizes), _code_of(config.policy.factory, network),
        batch_size, learning.target_tau, learning.publish_every, learning.demonstration_margin > 0,
    )


def _code_of(factory: str | None, network: nn.Module) -> str:
    """A digest of the files that build a network and define its layers.

    Two networks of one factory may have the same tensors, and compute something else with them.
    """
    names = {type(each).__module__ for each in network.modules()}
    if factory is not None:
        names |= {factory.partition(":")[0], getattr(imported(factory), "__module__", "")}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in names}
    digest = hashlib.sha256()
    for file in sorted(filter(None, files)):
        # A module in an archive has no file that could be read.
        with suppress(OSError):
            digest.update(Path(file).read_bytes())
    return digest.hexdigest()


def describe(config: Config, blueprint: Blueprint) -> str:
    """The network that learns, in words."""
    head = networks.head_of(config.learning, blueprint.action_space)
    return networks.describe(config.policy, input_space(blueprint), head)


def usable_cores() -> int:
    """Whole cores that this process may keep busy, at least 1."""
    return max(1, int(most_busy_cores()))


def precisions_of(learning: LearningConfig) -> tuple[str, ...]:
    """The precisions that a plan may use: the configured one, or with "auto" all fast ones."""
    if learning.precision != "auto":
        return (learning.precision,)
    # Most processors compute float16 far more slowly, and int8 has no gradient.
    return ("float32", "bfloat16") if is_usable("bfloat16", convolves=True) else ("float32",)


def take_profile(
    config: Config, blueprint: Blueprint, batch_size: int, seconds: float,
    on_progress: Callable[[float], object], clock: Clock | None = None,
    build: Build = build_network,
) -> Profile:
    """Measure a step in this process.

    Args:
        config: network, algorithm, precision.
        blueprint: shapes of the run.
        batch_size: transitions.
        seconds: about how long, for all precisions together; some steps are made in any case.
        on_progress: called with the fraction that is done.
        clock: if None, the monotonic one.
        build: makes the network that is learned.

    Raises:
        UserError: the step cannot be placed, or there is not enough memory.
    """
    clock = clock or MonotonicClock()
    check_memory({
        "learner": LearnerState.size(blueprint.learned_parameters),
        "weights": WeightBuffers.size(blueprint.parameters),
    })
    cores, precisions = usable_cores(), precisions_of(config.learning)
    batch = random_batch(blueprint, batch_size, config.run.seed)
    handover_us = _handover_us(clock) if cores > 1 else 0.0
    ways = WAYS if cores > 1 else WAYS[:2]
    rounds = [(each, way) for each in precisions for way in ways]
    measured: dict[tuple[str, str], _Times] = {}
    for number, (precision, way) in enumerate(rounds):
        now = partial(_time_with_waits, handover_us) if way == "beside" else time.thread_time
        recorder, update = Recorder(now), _update(config, build(config, blueprint), precision)
        if way != "whole":
            _record_parts(update, recorder)
        report = partial(_report, on_progress, number, len(rounds))
        measured[precision, way] = _measure(
            update, batch, recorder, seconds / len(rounds), clock, way == "beside", report
        )
    whole, alone = ({each: measured[each, way] for each in precisions} for way in WAYS[:2])
    shared = {each: measured.get((each, "beside"), alone[each]) for each in precisions}
    return Profile(
        network=describe(config, blueprint),
        algorithm=networks.resolved_algorithm(config.learning, blueprint.action_space),
        batch_size=batch_size, cores=cores,
        parts=tuple(_parts(alone, shared, recorder)),
        step_us={each: US * median(times.steps) for each, times in whole.items()},
        split_us={each: US * median(times.steps) for each, times in alone.items()},
        noise=max(times.noise for times in whole.values()),
        steps=min(len(times.steps) for times in whole.values()), handover_us=handover_us,
        cast_us_per_mb=_cast_us_per_mb(clock),
    )


def _update(config: Config, network: nn.Module, precision: str) -> SharedUpdate:
    """A learner's update in private memory.

    Raises:
        UserError: its step cannot be placed.
    """
    learning = whole_steps(config.learning).model_copy(update={"precision": precision})
    update = SharedUpdate.private(network, learning)
    if isinstance(update.algorithm, RecurrentValueLearning):
        policy = config.policy
        setting = f"policy.network = {policy.network!r}"
        if policy.factory is not None:
            setting = f"policy.factory = {policy.factory!r}"
        raise UserError(
            f"{setting}: a step of a recurrent network cannot be placed; choose another network"
        )
    if not isinstance(update.algorithm, Placeable):
        raise UserError(
            f"a step of {learning.algorithm} cannot be placed: those of dqn, double-dqn, c51, td3, "
            "ddpg and sac can"
        )
    return update


def _record_parts(update: SharedUpdate, recorder: Recorder) -> None:
    """Let a recorder run, and time, the parts of an update."""
    assert isinstance(update.algorithm, Placeable)
    update.algorithm.runner = recorder
    for network in update.algorithm.networks:
        SplitLayers(network, recorder)


def _time_with_waits(handover_us: float) -> float:
    """The calling thread's processor time, plus its waits for the other thread; seconds.

    Both threads need the interpreter's lock for every call of torch. The length of a wait depends
    on what else runs on the machine, so waits are counted, and each counts as one handover.
    """
    waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    return time.thread_time() + handover_us / US * waits


def whole_steps(learning: LearningConfig) -> LearningConfig:
    """The same settings, but with the actor in every step, for plans are made of whole steps."""
    return learning.model_copy(update={"policy_delay": 1})


def _report(
    on_progress: Callable[[float], object], number: int, rounds: int, done: float
) -> None:
    on_progress((number + done) / rounds)


def _measure(
    update: SharedUpdate, batch: Batch, recorder: Recorder, seconds: float, clock: Clock,
    beside: bool, on_progress: Callable[[float], None],
) -> _Times:
    times = _Times(recorder.precisions)
    start = clock.now()
    with _busy_core(update, batch) if beside else nullcontext():
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
def _busy_core(update: SharedUpdate, batch: Batch) -> Iterator[None]:
    """Let another thread run the target network again and again while the block lasts."""
    network, stop = copy.deepcopy(update.algorithm.target), threading.Event()
    for layer in network.modules():
        layer.__dict__.pop("forward", None)
    acting = acting_part(network)

    def run() -> None:
        with torch.no_grad(), computing(update.algorithm.precision, keeps=False):
            while not stop.is_set():
                acting(*batch.next_inputs)
                if isinstance(network, ActorCritic):
                    network.values(batch.actions, *batch.next_inputs)

    core = SecondCore()
    core.submit(run)
    try:
        yield
    finally:
        stop.set()
        core.close()


def _parts(
    alone: dict[str, _Times], shared: dict[str, _Times], recorder: Recorder
) -> Iterator[Part]:
    keys = list(next(iter(alone.values())).parts)
    numbers = {key: number for number, key in enumerate(keys)}
    for key in keys:
        layer, kind = key
        times: dict[bool, dict[str, float]] = {False: {}, True: {}}
        for beside, measured in ((False, alone), (True, shared)):
            for precision, each in measured.items():
                computed = each.precisions.get(layer, precision)
                times[beside].setdefault(computed, each.median_us(key))
        after = tuple(numbers[each] for each in recorder.after[key])
        output_mb = recorder.output_mb.get(key, 0.0)
        yield Part(layer, kind, times[False], times[True], after, output_mb)


def _handover_us(clock: Clock) -> float:
    """Microseconds to hand a call to another thread, or to get back its result."""
    core = SecondCore()
    times = []
    for _ in range(HANDOVERS):
        # The other core becomes idle, as it does in a step, and has to wake up.
        clock.sleep_until(clock.now() + IDLE_S)
        before = clock.now()
        core.submit(clock.now).result()
        times.append(clock.now() - before)
    core.close()
    return US * median(times) / 2.0


def _cast_us_per_mb(clock: Clock) -> float:
    """Microseconds of a cast to bfloat16 or back, the mean of both, for 1 MiB of float32."""
    values = torch.zeros(CAST_VALUES)
    times = []
    for _ in range(WARM_UPS + LEAST_STEPS):
        before = clock.now()
        values.to(torch.bfloat16).to(torch.float32)
        times.append(clock.now() - before)
    return US * median(times[WARM_UPS:]) / 2.0 / (values.nbytes / 2.0**20)


def random_batch(blueprint: Blueprint, count: int, seed: int) -> Batch:
    """A batch of random noise, which takes as long as any other batch."""
    batch = empty_batch(blueprint, count)
    generator = torch.Generator().manual_seed(seed)
    frames = torch.empty_like(batch.observations)
    if frames.dtype == torch.uint8:
        frames.random_(0, 256, generator=generator)
    else:
        frames.normal_(generator=generator)
    return replace(batch, observations=frames, next_observations=frames.clone())
