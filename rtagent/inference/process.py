"""An inference process: carries out what a staggering algorithm asks for.

Why it is correct. The algorithm decides when to look and for which tick to act; this driver waits,
reads a frame, runs the policy and writes its own action cells, which nobody else writes. Shared
staggering state is touched only inside the algorithm, under the claim lock. Weights are taken over
between two inferences, never inside one. Every wait is cut into slices, so that the process beats
and notices an order within `SLICE_S`, whatever it waits for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent import exploration
from rtagent.explorers import explorer_for
from rtagent.inference.latency import draw
from rtagent.memory.actions import NANO
from rtagent.memory.board import add_registration
from rtagent.networks import ActingPolicy, head_of
from rtagent.realtime import prefer_acting
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
from rtagent.worker import WorkerContext

SLICE_S = 0.1
AWAKE_S = 400e-6
"""How long before the expected frame a process is awake, to rehearse and then to spin: waking up
takes up to 100 microseconds, and cold code three times as long as warm code."""
AWAKE_FRACTION = 0.025
"""Most of a tick that may be spent so: at high rates a late wake-up is the lesser evil."""


class Leaving(Exception):
    """The process has been told to go."""


class Weights:
    """The policy's weights, taken over from the learners.

    Args:
        context: of this worker.
        policy: receives them.
    """

    def __init__(self, context: WorkerContext, policy: ActingPolicy) -> None:
        self._buffers = context.world.weights
        self._policy = policy
        self._flat = np.zeros(context.blueprint.parameters, np.float32)
        self._publication = -1
        self.version = -1
        self.updates = 0

    def refresh(self) -> bool:
        """Take over what was published since the last call; False if there is nothing at all."""
        publication = self._buffers.publication
        if publication != self._publication:
            info = self._buffers.read(self._flat)
            if info is not None:
                self._policy.load(self._flat)
                self._publication = publication
                self.version, self.updates = info.version, info.updates
        return self.version >= 0


class Driver:
    """Drives the staggering algorithms of one inference process.

    Args:
        context: of this worker.
        policy: warmed up.
        weights: of the policy.
    """

    def __init__(self, context: WorkerContext, policy: ActingPolicy, weights: Weights) -> None:
        self._context = context
        self._clock = context.clock
        self._frames = context.world.frames
        self._cells = context.world.actions
        self._policy = policy
        self._weights = weights
        self._tick_seconds = context.blueprint.tick_seconds
        self._awake_s = min(AWAKE_S, AWAKE_FRACTION * self._tick_seconds)
        self._arrival = (0.0, 0)
        self._latency = 0.0
        self._epsilon = 1.0
        self._decided = -1
        self._observation = np.zeros(
            context.blueprint.observation_space.shape, context.blueprint.frame_dtype
        )
        config = context.config
        self._explorer = explorer_for(
            context.blueprint.action_space, config.run.seed, config.policy
        )
        self._answer = np.zeros(self._explorer.outputs, np.float32)
        blueprint = context.blueprint
        self._action: Any = np.zeros(blueprint.action_shape, blueprint.action_dtype)
        # Each life of a process draws its own numbers; the seed alone would repeat them.
        self._rng = np.random.default_rng(
            [config.run.seed, context.index, int(context.record["inferences"][0])]
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
            item = self._deposited(instruction.frame, instruction.tick)
            self._cells.deposit(item)
            self._account(item)
        self._check_orders()
        if isinstance(instruction, WaitUntil):
            self._wait_until(instruction.when)
        elif isinstance(instruction, WaitFrame):
            self._wait_frame(instruction.frame)
        return self._moment()

    def _moment(self) -> Moment:
        return Moment(self._clock.now(), self._frames.newest)

    def _check_orders(self) -> None:
        self._context.beat()
        if self._context.stopping or self._context.index >= self._context.orders.processes:
            raise Leaving

    def _wait_until(self, when: float) -> None:
        while (rest := when - self._clock.now()) > 0:
            self._clock.sleep_until(self._clock.now() + min(rest, SLICE_S))
            self._check_orders()

    def _wait_frame(self, frame: int) -> None:
        """One slice at most: the algorithm looks at its plan again and comes back.

        Sleeps until just before the frame is expected, rehearses, and spins for a bounded moment.
        """
        frames, clock = self._frames, self._clock
        arrived, number = self._arrival
        expected = arrived + (frame - number) * self._tick_seconds
        rest = expected - self._awake_s - clock.now()
        if rest > 0.0 or not arrived:
            limit = min(SLICE_S, rest) if arrived else SLICE_S
            if frames.bell.wait_for(lambda: frames.newest >= frame, clock, limit):
                self._arrival = (clock.now(), frames.newest)
                return
            if rest > SLICE_S or not arrived:
                return
        self._rehearse(frame)
        until = expected + self._awake_s
        while frames.newest < frame:
            if clock.now() > until:
                frames.bell.wait_for(lambda: frames.newest >= frame, clock, SLICE_S)
                break
        if frames.newest == frame:
            self._arrival = (clock.now(), frame)

    def _read(self, frame: int | None) -> int:
        """Fill the observation; the number of the frame it ends with."""
        while True:
            for number in (frame, self._frames.newest):
                if number is not None and self._frames.observation(number, self._observation):
                    return number
            self._wait_frame(self._frames.newest + 1)
            self._check_orders()

    def _infer(self, frame: int | None) -> Inferred:
        self._weights.refresh()
        number = self._read(frame)
        start = self._clock.now()
        self._action = self._choose(number)
        self._pad(start)
        end = self._clock.now()
        self._latency = end - start
        return Inferred(number, end - start, end, self._frames.newest)

    def _rehearse(self, frame: int) -> None:
        """Do ahead of the frame what can be done, and the rest once for nothing.

        After a tick's sleep the caches are cold, and cold code takes three times as long.
        """
        self._weights.refresh()
        self._frames.observation(self._frames.newest, self._observation)
        self._select(self._answer, frame)
        self._cells.encode(self._deposited(frame, frame))

    def _decide(self, number: int) -> None:
        """Settle how a frame's action explores."""
        if self._decided != number:
            config = self._context.config
            epsilon = config.policy.epsilon_end
            if config.learning.processes:
                epsilon = exploration.epsilon(self._weights.updates, config.policy)
            self._explorer.decide(number, epsilon)
            self._epsilon, self._decided = epsilon, number

    def _choose(self, number: int) -> Any:
        """The policy's action for the observation, explored as the frame demands."""
        self._answer = self._policy.values(self._observation)
        return self._select(self._answer, number)

    def _select(self, answer: npt.NDArray[np.float32], number: int) -> Any:
        # A sum is finite only where all its terms are.
        if not math.isfinite(float(answer.sum())):
            raise FloatingPointError(f"the network answered {answer} to frame {number}")
        self._decide(number)
        return self._explorer.action(answer)

    def _pad(self, start: float) -> None:
        """Wait out the rest of the injected latency."""
        orders = self._context.orders
        if orders.injected_latency_ms > 0.0:
            length = draw(
                orders.injected_latency_ms / 1e3,
                orders.injected_latency_distribution,
                orders.injected_latency_spread,
                self._rng,
            )
            self._wait_until(start + length)

    def _deposited(self, frame: int, tick: int) -> Deposited:
        return Deposited(
            worker=self._context.index,
            frame=frame,
            tick=tick,
            action=self._action,
            version=self._weights.version,
            registered_at=self._clock.now(),
        )

    def _account(self, item: Deposited) -> None:
        """Put the inference just registered on the board: after the action, which is in a hurry."""
        record = self._context.record
        record["inferences"] += 1
        record["deposits"] += 1
        record["weights_version"] = self._weights.version
        record["epsilon"] = self._epsilon
        add_registration(
            record, round(item.registered_at * NANO), round(self._latency * NANO), item.tick
        )


def run(context: WorkerContext) -> None:
    """Body of an inference process."""
    blueprint = context.blueprint
    prefer_acting(context.config.run.realtime)
    policy = ActingPolicy(
        context.config.policy,
        blueprint.observation_space,
        blueprint.action_space,
        head_of(context.config.learning, blueprint.action_space),
    )
    context.beat()
    policy.warm_up()
    weights = Weights(context, policy)
    while not weights.refresh():
        context.beat()
        if context.stopping:
            return
        context.clock.sleep_until(context.clock.now() + 0.01)
    measured = _forward_time(context, policy)
    context.record["estimate_s"] = measured
    context.ready()
    Driver(context, policy, weights).run()


def _forward_time(context: WorkerContext, policy: ActingPolicy) -> float:
    """Seconds of one steady forward pass: what the supervisor judges a hung process by."""
    observation = np.zeros(
        context.blueprint.observation_space.shape, context.blueprint.frame_dtype
    )
    start = context.clock.now()
    policy.values(observation)
    return context.clock.now() - start
