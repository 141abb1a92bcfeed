"""An inference process: carries out what a staggering algorithm asks for.

Why it is correct. The algorithm decides when to look and for which tick to act; this driver waits,
reads a frame, runs the policy and writes its own action slots, which nobody else writes. Shared
staggering state is touched only inside the algorithm, under the claim lock. New weights are
prepared while it waits and adopted between two inferences (`weights.py`). Inference time is
everything that is done for one action once its frame is there. Every wait is cut into slices, so
that the process beats and notices an order within `SLICE_S`, whatever it waits for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.inference.engine_weights import TRIALS, EnginePolicy, EngineWeights, OpeningThread
from rtagent.inference.engines.interface import Answer
from rtagent.inference.engines.registry import make, wanted_engines
from rtagent.inference.latency import draw
from rtagent.inference.standby import Standby
from rtagent.inference.weights import Weights
from rtagent.memory.actions import NANO
from rtagent.memory.engine_models import ENGINES, PRECISIONS, Bytes, ModelInfo
from rtagent.memory.process_metrics import InferenceRecord, Registration
from rtagent.policy import exploration
from rtagent.policy.action_selection import explorer_for
from rtagent.policy.networks import ActingPolicy, head_of
from rtagent.processes.scheduling import prefer_acting
from rtagent.processes.wake_ahead import Forecast, WakeAhead
from rtagent.processes.worker import WorkerContext
from rtagent.staggering.arbiter import Deposited
from rtagent.staggering.instructions import (
    Deposit,
    Infer,
    Inferred,
    Instruction,
    Moment,
    Reply,
    WaitFrame,
    WaitUntil,
)
from rtagent.staggering.register import ALGORITHMS

SLICE_S = 0.1
HURRY = 0.05
"""Time for new weights before each inference, as a part of its own: out of the wait if there was
one, else on the way."""


class Leaving(Exception):
    """The process has been told to go."""


class Driver:
    """Drives the staggering algorithms of one inference process.

    Args:
        context: of this worker.
        policy: warmed up.
        weights: of the policy.
    """

    def __init__(
        self, context: WorkerContext[InferenceRecord], policy: ActingPolicy | EnginePolicy,
        weights: Weights | EngineWeights,
    ) -> None:
        config, blueprint, world = context.config, context.blueprint, context.world
        self._context, self._clock = context, context.clock
        self._frames, self._cells = world.frames, world.actions
        self._environment = world.metrics.environment
        self._policy, self._weights = policy, weights
        self._ahead, self._forecast = WakeAhead(blueprint.tick_seconds), Forecast()
        self._latency = self._idle_s = 0.0
        self._epsilon, self._decided = 1.0, -1
        self._observation = _no_observation(context)
        self._explorer = explorer_for(
            blueprint.action_space, config.run.seed, config.policy,
            head_of(config.learning, blueprint.action_space),
        )
        self._answer = np.zeros(self._explorer.outputs, np.float32)
        self._log_probability = 0.0
        self._action: Any = np.zeros(blueprint.action_shape, blueprint.action_dtype)
        # Each life of a process draws its own numbers; the seed alone would repeat them.
        self._rng = np.random.default_rng(
            [config.run.seed, context.index, context.record.inferences]
        )

    def run(self) -> None:
        """Follow the algorithm in force until told to leave."""
        state, lock = self._context.world.stagger, self._context.world.claim_lock
        tick_seconds = self._context.blueprint.tick_seconds
        try:
            while True:
                factory = ALGORITHMS[state.algorithm]
                self._follow(factory(self._context.index, state, lock, tick_seconds))
        except Leaving:
            return

    def _follow(self, algorithm: Any) -> None:
        try:
            instruction = next(algorithm)
            while True:
                instruction = algorithm.send(self._carry_out(instruction))
        except StopIteration:
            return

    def _carry_out(self, instruction: Instruction) -> Reply:
        if isinstance(instruction, Infer):
            return self._infer(instruction.frame)
        if isinstance(instruction, Deposit):
            start = self._clock.now()
            item = self._deposited(instruction.frame, instruction.tick)
            self._cells.deposit(item)
            self._latency += self._clock.now() - start
            self._account(item)
        self._check_desired()
        if isinstance(instruction, WaitUntil):
            self._wait_until(instruction.when)
        elif isinstance(instruction, WaitFrame):
            self._wait_frame(instruction.frame)
        return Moment(self._clock.now(), self._frames.newest)

    def _check_desired(self) -> None:
        self._context.beat()
        if self._context.stopping or self._context.index >= self._context.desired.processes:
            raise Leaving

    def _wait_until(self, when: float) -> None:
        while (rest := when - self._clock.now()) > 0:
            until = self._clock.now() + min(rest, SLICE_S)
            self._prepare(until)
            self._clock.sleep_until(until)
            self._check_desired()

    def _prepare(self, until: float) -> None:
        """Use a wait for the next weights."""
        self._idle_s += max(0.0, until - self._clock.now())
        self._weights.prepare(until)

    def _wait_frame(self, frame: int) -> None:
        """One slice at most: the algorithm looks at its plan again and comes back.

        Sleeps until just before the frame is expected, rehearses, and spins for a bounded moment.
        """
        clock = self._clock
        if self._frames.newest >= frame:
            return
        expected = self._expected(frame)
        if expected is None:
            self._sleep_for(frame, SLICE_S)
            return
        self._ahead.choose()
        wake = expected - self._ahead.seconds
        self._prepare(wake)
        rest = wake - clock.now()
        if rest > SLICE_S:
            self._sleep_for(frame, SLICE_S)
            return
        came = rest > 0.0 and self._sleep_for(frame, rest)
        woke = clock.now()
        if came:
            if woke > wake:
                self._ahead.note(woke - wake, woke - wake, 0.0)
            return
        self._rehearse(frame)
        ready = clock.now()
        seen = self._spin_for(frame, expected + self._ahead.seconds)
        if rest > 0.0:
            self._ahead.note(woke - wake, ready - wake, seen - woke)
        else:
            self._ahead.awake_s += seen - woke

    def _expected(self, frame: int) -> float | None:
        """When the frame will come, by the environment's clock; None before that runs."""
        anchor_ns = self._environment.anchor_ns
        if not anchor_ns:
            return None
        ticks = frame - self._environment.anchor_tick
        due = anchor_ns / NANO + ticks * self._context.blueprint.tick_seconds
        return self._forecast.expected(due, self._environment.behind_ns / NANO)

    def _sleep_for(self, frame: int, seconds: float) -> bool:
        """Sleep until the frame is there; False: the time is over."""
        frames = self._frames
        return frames.bell.wait_for(lambda: frames.newest >= frame, self._clock, seconds)

    def _spin_for(self, frame: int, until: float) -> float:
        """Spin until the frame is there, or sleep for it if it is not there in time.

        Returns:
            When spinning ended, seconds.
        """
        frames, clock = self._frames, self._clock
        now = clock.now()
        while frames.newest < frame:
            if now > until:
                self._sleep_for(frame, SLICE_S)
                return now
            now = clock.now()
        return now

    def _read(self, frame: int | None) -> int | None:
        """Fill the observation; the number of the frame it ends with, None if there is none."""
        for number in (frame, self._frames.newest):
            if number is not None and self._frames.observation(number, self._observation):
                return number
        return None

    def _infer(self, frame: int | None) -> Inferred:
        start = self._clock.now()
        self._weights.hurry(max(0.0, HURRY * self._latency - self._idle_s))
        self._weights.adopt()
        while (number := self._read(frame)) is None:
            self._wait_frame(self._frames.newest + 1)
            self._check_desired()
            start = self._clock.now()
        self._idle_s = 0.0
        self._answer = self._policy.values(self._observation)
        self._action = self._select(self._answer, number)
        self._log_probability = self._explorer.log_probability
        self._pad(start)
        end = self._clock.now()
        self._latency = end - start
        return Inferred(number, end - start, end, self._frames.newest)

    def _rehearse(self, frame: int) -> None:
        """Do ahead of the frame what can be done, and the rest once for nothing.

        After a tick's sleep the caches are cold, and cold code takes three times as long.
        """
        self._weights.adopt()
        self._frames.observation(self._frames.newest, self._observation)
        self._select(self._answer, frame)
        self._cells.encode(self._deposited(frame, frame))

    def _decide(self, number: int) -> None:
        """Settle how a frame's action explores."""
        if self._decided != number:
            config = self._context.config
            epsilon = config.policy.epsilon_end
            # Learners may come to a run that began without.
            if config.learning.processes or self._context.desired.learning.processes:
                epsilon = exploration.epsilon(self._weights.updates, config.policy)
            self._explorer.decide(number, epsilon)
            self._epsilon, self._decided = epsilon, number

    def _select(self, answer: npt.NDArray[np.float32], number: int) -> Any:
        """The action that an answer means, explored as the frame demands."""
        # A sum is finite only where all its terms are.
        if not math.isfinite(float(answer.sum())):
            raise FloatingPointError(f"the network answered {answer} to frame {number}")
        self._decide(number)
        return self._explorer.action(answer)

    def _pad(self, start: float) -> None:
        """Wait out the rest of the injected latency."""
        wanted = self._context.desired.inference
        if wanted.injected_latency_ms > 0.0:
            mean_s, kind = wanted.injected_latency_ms / 1e3, wanted.injected_latency_distribution
            length = draw(mean_s, kind, wanted.injected_latency_spread, self._rng)
            self._wait_until(start + length)

    def _deposited(self, frame: int, tick: int) -> Deposited:
        return Deposited(
            worker=self._context.index, frame=frame, tick=tick, action=self._action,
            version=self._weights.version, registered_at=self._clock.now(),
            log_probability=self._log_probability,
        )

    def _account(self, item: Deposited) -> None:
        """Count the inference just registered: after the action, which is in a hurry."""
        record = self._context.record
        record.inferences += 1
        record.deposits += 1
        record.weights_version = self._weights.version
        record.epsilon = self._epsilon
        record.ahead_ns = round(self._ahead.seconds * NANO)
        record.awake_ns = round(self._ahead.awake_s * NANO)
        registered_ns, latency_ns = round(item.registered_at * NANO), round(self._latency * NANO)
        record.registrations.append(Registration(registered_ns, latency_ns, item.tick))


def run(context: WorkerContext[InferenceRecord]) -> None:
    """Body of an inference process."""
    blueprint = context.blueprint
    prefer_acting(context.config.run.realtime)
    policy = ActingPolicy(
        context.config.policy, blueprint.observation_space, blueprint.action_space,
        head_of(context.config.learning, blueprint.action_space),
    )
    context.beat()
    standby = Standby(policy)
    standby.warm_up()
    weights = Weights(context.world.weights, blueprint.parameters, standby, context.clock)
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


def _engine_weights(
    context: WorkerContext[InferenceRecord], policy: EnginePolicy, weights: Weights
) -> EngineWeights:
    """What takes over the converter's models in place of the weights themselves."""
    models = context.world.engine_models
    assert models is not None
    # Imported now: an import holds the interpreter for long.
    engines = {name: make(name) for name in wanted_engines(context.config.policy)}
    context.beat()
    zeros = _no_observation(context)

    def open_model(info: ModelInfo, model: Bytes) -> Answer:
        answer = engines[ENGINES[info.engine]].open(model, PRECISIONS[info.precision])
        for _ in range(TRIALS):
            answer(zeros)
        return answer

    return EngineWeights(
        weights, policy, models, OpeningThread(models, open_model), context.record, context.event
    )


def _forward_time(context: WorkerContext[InferenceRecord], policy: ActingPolicy) -> float:
    """Seconds of one steady forward pass: what the supervisor judges a hung process by."""
    observation, start = _no_observation(context), context.clock.now()
    policy.values(observation)
    return context.clock.now() - start


def _no_observation(context: WorkerContext[InferenceRecord]) -> npt.NDArray[Any]:
    return np.zeros(context.blueprint.observation_space.shape, context.blueprint.frame_dtype)
