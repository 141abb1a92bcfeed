"""Measures the policy's times, in a process like the one that will act."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.cli.measured_process import in_measured_process
from rtagent.cli.update_time import UpdateTimes, measure_updates
from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.memory.actions import ActionSlots
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.processes.freed_memory import keep_freed_memory
from rtagent.staggering.arbiter import Deposited

LEAST_PASSES = 5
FRAMES = 64
LEAST_TAKEOVERS = 3
TAKEOVER_SHARE = 0.1
"""Time for measuring how long new weights take, in addition, as a share of the time for acting."""


@dataclass(frozen=True)
class ForwardTimes:
    """Times of a policy.

    Attributes:
        rate_hz: ticks per second of its environment.
        network: the network in words.
        precision: of its forward pass.
        parameters: their number.
        forward_s: seconds of each forward pass.
        busy_s: of a core, for which a forward pass keeps it busy, on average: less where a quota of
            CPU time or other programs hold it up.
        inference_s: seconds of each inference from the frame to the action, as an inference process
            counts them: observation, forward pass, exploration, registration; padded by the
            injected latency.
        takeover_s: seconds of each preparation of new weights, which a process makes while it
            waits; without idle time it lengthens each inference by `driver.HURRY` at most.
    """

    rate_hz: float
    network: str
    precision: str
    parameters: int
    forward_s: npt.NDArray[np.float64]
    busy_s: float
    inference_s: npt.NDArray[np.float64]
    takeover_s: npt.NDArray[np.float64]


def measure(config: Config, seconds: float) -> tuple[ForwardTimes, UpdateTimes | None]:
    """Build the configured network and time its forward passes, then a learner's updates.

    Args:
        config: environment, policy, injected latency, learning.
        seconds: how long to measure, after the warm-up; half of it for each.

    Returns:
        The times of acting and of learning; the latter are None if nothing learns, or memory is
        too short for it.

    Raises:
        UserError: the environment or the network cannot be built, or ends its process.
    """
    return in_measured_process(config, _measure_here, seconds, "building, then measuring")


def _measure_here(
    config: Config, blueprint: Blueprint, seconds: float, report: Callable[[float], None]
) -> tuple[ForwardTimes, UpdateTimes | None]:
    """Body of the measured process."""
    half = seconds / 2.0
    if not config.learning.processes:
        return measure_acting(config, blueprint, seconds, report), None
    forward = measure_acting(config, blueprint, half, lambda done: report(done / 2.0))
    # A learner keeps freed memory; an inference process does not.
    keep_freed_memory()
    update = measure_updates(config, blueprint, half, lambda done: report((1.0 + done) / 2.0))
    return forward, update


def measure_acting(
    config: Config, blueprint: Blueprint, seconds: float, on_progress: Callable[[float], None]
) -> ForwardTimes:
    """Time inferences in this process, for so many seconds."""
    from rtagent.inference.latency import draw
    from rtagent.policy.acting import ActingPolicy

    acting, rng = ActingPolicy.of(config, blueprint), np.random.default_rng(config.run.seed)
    acting.warm_up()
    steps = _InferenceSteps(config, blueprint)
    passes, whole, busy_s = _time_passes(acting, steps, seconds, on_progress)
    padding = [draw(config.inference, rng) for _ in passes]
    return ForwardTimes(
        rate_hz=blueprint.rate_hz, network=blueprint.network,
        precision=blueprint.precision, parameters=blueprint.parameters,
        forward_s=np.array(passes), busy_s=busy_s,
        inference_s=np.maximum(whole, padding),
        takeover_s=takeover_times(acting, blueprint.parameters, seconds),
    )


def _time_passes(
    acting: Any, steps: _InferenceSteps, seconds: float, on_progress: Callable[[float], None]
) -> tuple[list[float], list[float], float]:
    """Seconds of each forward pass, and of each inference; of a core for a pass, on average."""
    clock = MonotonicClock()
    passes: list[float] = []
    whole: list[float] = []
    busy_s = 0.0
    start = after = clock.now()
    while after - start < seconds or len(passes) < LEAST_PASSES:
        before = clock.now()
        observation = steps.observe()
        read, busy_s = clock.now(), busy_s - time.process_time()
        answer = acting.values(observation)
        answered, busy_s = clock.now(), busy_s + time.process_time()
        steps.register(answer, answered)
        after = clock.now()
        passes.append(answered - read)
        whole.append(after - before)
        on_progress(min(1.0, (after - start) / seconds))
    return passes, whole, busy_s / len(passes)


class _InferenceSteps:
    """What an inference process does before and after the network, on memory of its own."""

    def __init__(self, config: Config, blueprint: Blueprint) -> None:
        from rtagent.policy.action_selection import explorer_for
        from rtagent.policy.networks import head_of

        self._frames = FrameRing.private(blueprint, FRAMES)
        self._slots = ActionSlots.private(blueprint)
        empty = np.zeros(blueprint.frame_shape, blueprint.frame_dtype)
        for number in range(FRAMES):
            self._frames.publish(number, empty, 0)
        self._observation = blueprint.no_observation()
        space = blueprint.action_space
        head = head_of(config.learning, space)
        self._explorer = explorer_for(space, config.run.seed, config.policy, head)
        self._epsilon = config.policy.epsilon_end
        self._count = 0

    def observe(self) -> npt.NDArray[Any]:
        """Read the newest stacked frames."""
        self._frames.observation(FRAMES - 1, self._observation)
        return self._observation

    def register(self, answer: npt.NDArray[np.float32], now: float) -> None:
        """Explore, and write the action."""
        self._count += 1
        self._explorer.decide(self._count, self._epsilon)
        action = self._explorer.action(answer)
        self._slots.deposit(Deposited(0, self._count, self._count + 1, action, 0, now))


def takeover_times(acting: Any, parameters: int, seconds: float) -> npt.NDArray[np.float64]:
    """Seconds of each preparation of new weights in a process that does nothing else."""
    from rtagent.inference.standby import Standby
    from rtagent.inference.weights import Weights
    from rtagent.policy.networks import flattened

    buffers = memoryview(bytearray(WeightBuffers.size(parameters)))
    published, values = WeightBuffers(buffers, parameters), flattened(acting.module)
    clock = MonotonicClock()
    weights = Weights(published, parameters, Standby(acting), clock)
    times: list[float] = []
    start = clock.now()
    while len(times) <= LEAST_TAKEOVERS or clock.now() - start < TAKEOVER_SHARE * seconds:
        published.publish(values, WeightsInfo(len(times), 0))
        before = clock.now()
        weights.take_over()
        times.append(clock.now() - before)
    # The first one also pays for memory that was never touched.
    return np.array(times[1:])
