"""An inference process: carries out what a staggering algorithm asks for.

Why it is correct. The algorithm decides when to look and for which tick to act; this driver waits,
reads a frame, runs the policy and writes its own action slots, which nobody else writes. Shared
staggering state is touched only inside the algorithm, under the claim lock. New weights are
prepared while it waits and adopted between two inferences (`weights.py`). Inference time is
everything that is done for one action once its frame is there. A pause of the whole daemon is no
part of it: an algorithm that goes by the longest time would never forget it. Every wait but
that for the claim lock is cut into slices, so that the process beats and notices an order within
`SLICE_S`.

A policy may answer with a chunk: the actions of the promised tick and of those after it. The first
action goes into its slot before the others, since it is needed first.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO
from rtagent.inference.carried import CarriedState
from rtagent.inference.engine_weights import EnginePolicy, EngineWeights
from rtagent.inference.frame_wait import SLICE_S, FrameWait
from rtagent.inference.latency import draw
from rtagent.inference.weights import NoWeights, Weights
from rtagent.memory import ordering
from rtagent.memory.actions import LONGEST_CHUNK
from rtagent.memory.pending import PendingActions, PendingReader
from rtagent.memory.process_metrics import InferenceRecord, Registration
from rtagent.memory.turns import lease_s
from rtagent.policy import exploration
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.action_selection import DiscreteExplorer, explorer_for
from rtagent.policy.networks import head_of
from rtagent.policy.pretrained import PretrainedPolicy
from rtagent.processes.worker import Leaving, WorkerContext
from rtagent.staggering.arbiter import Deposited
from rtagent.staggering.instructions import (
    Deposit,
    Infer,
    Inferred,
    Instruction,
    Learn,
    Moment,
    Reply,
    WaitFrame,
    WaitUntil,
)
from rtagent.staggering.merging import MERGES
from rtagent.staggering.register import ALGORITHMS

if TYPE_CHECKING:
    from rtagent.remote.policy import RemotePolicy

HURRY = 0.05
"""Time for new weights before each inference, as a share of the time of an inference. What the wait
before it has not granted is taken at its beginning."""

PAUSE_S = 1.0
"""If the world stood still for so long during an inference, this was probably held up, too."""
WORST_ALONE = 3
"""Between two slips a world may fall behind by so many times what it catches up with at once."""

RECENT_TICKS = 64
"""Newest rows of the ledger in which the newest frame that was acted on is looked for."""


class Driver:
    """Drives the staggering algorithms of one inference process.

    Args:
        context: of this worker.
        policy: answers frames; warmed up.
        weights: of the policy.
    """

    def __init__(
        self, context: WorkerContext[InferenceRecord],
        policy: ActingPolicy | EnginePolicy | RemotePolicy | PretrainedPolicy,
        weights: Weights | EngineWeights | NoWeights,
    ) -> None:
        config, blueprint, world = context.config, context.blueprint, context.world
        self._context, self._clock = context, context.clock
        self._frames, self._slots = world.frames, world.actions
        self._environment = world.metrics.environment
        self._policy, self._weights = policy, weights
        self._frame_wait = FrameWait(context, self._prepare, self._rehearse)
        self._latency = self._idle_s = self._takeover_s = 0.0
        self._epsilon, self._decided = 1.0, -1
        self._observation = blueprint.no_observation()
        pending, states = PendingActions.of(blueprint), world.states
        self._reader = None if pending is None else PendingReader(
            pending, world.ledger, world.actions, MERGES[config.policy.chunk]
        )
        self._pending: npt.NDArray[Any] | None = None
        self._carried = None if states is None else CarriedState(world, states, context.index)
        self._explorer = explorer_for(
            blueprint.action_space, exploration.run_seed(config.run.seed, context.resume),
            config.policy, head_of(config.learning, blueprint.action_space),
        )
        self._chunk = np.zeros((1, self._explorer.outputs), np.float32)
        self._version = -1
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
            self._register(instruction)
        attend(self._context)
        if isinstance(instruction, WaitUntil):
            self._wait_until(instruction.when)
        elif isinstance(instruction, WaitFrame):
            self._frame_wait.wait(instruction.frame)
        elif isinstance(instruction, Learn):
            self._wait_for_update()
        return Moment(self._clock.now(), self._frames.newest)

    def _wait_until(self, when: float, *, infers: bool = False) -> None:
        while (rest := when - self._clock.now()) > 0:
            until = self._clock.now() + min(rest, SLICE_S)
            self._prepare(until)
            self._clock.sleep_until(until)
            attend(self._context, infers=infers)

    def _wait_for_update(self) -> None:
        """Permit one update and wait for it, unless the learner is gone or exceeds its lease."""
        world, clock = self._context.world, self._clock
        number, since = world.alternation.permit(), clock.now()
        while (desired := self._context.desired).inference.sequential and desired.learner_ring:
            if world.alternation.wait_for_answer(number, clock, SLICE_S):
                return
            attend(self._context)
            learner = world.metrics.learners[desired.learner_ring[0]]
            since = max(since, learner.heartbeat_ns / NANO)
            if clock.now() - since > lease_s(desired.learning.lease_s, learner.update_ns):
                return

    def _prepare(self, until: float) -> None:
        """Use a wait to prepare the next weights."""
        self._idle_s += max(0.0, until - self._clock.now())
        self._weights.prepare(until)

    def _read(self, frame: int | None) -> int | None:
        """Fill the observation; the number of its newest frame, None if there is no frame."""
        for number in (frame, self._frames.newest):
            if number is not None and self._frames.observation(number, self._observation):
                return number
        return None

    def _observe(self, frame: int | None, start: float) -> tuple[int, float]:
        """Fill the observation; its newest frame, and when the inference began.

        If there is no frame, the first one is waited for, and the inference begins with it.
        """
        while (number := self._read(frame)) is None:
            self._frame_wait.wait(self._frames.newest + 1)
            attend(self._context)
            start = self._clock.now()
        return number, start

    def _infer(self, frame: int | None) -> Inferred:
        world, start, behind_s = self._environment, self._clock.now(), self._world_behind_s()
        slips = world.slips
        self._weights.hurry(max(0.0, HURRY * self._latency - self._idle_s))
        self._weights.adopt()
        self._takeover_s = self._clock.now() - start
        number, start = self._observe(frame, start)
        self._idle_s = 0.0
        while (answer := self._values(number, start)) is None:
            # The link to a policy server was cut meanwhile, and the world has gone on.
            number, start = self._observe(None, self._clock.now())
        self._keep_answer(answer, number)
        if self._reader is None:
            self._pad(start)
        end = self._clock.now()
        taken = end - start
        # A world that is too slow does not stand still, but slips again and again.
        still_s = (self._world_behind_s() - behind_s) / max(1, world.slips - slips)
        if self._latency and still_s >= PAUSE_S and still_s >= self._slowness_s():
            taken = min(taken, self._latency)
        self._latency = taken
        chosen = max(world.chosen, self._frames.newest)
        return Inferred(number, taken, end, chosen, world.behind_ns / NANO)

    def _world_behind_s(self) -> float:
        """Seconds by which the world has fallen behind so far, those of slips included."""
        world, tick_s = self._environment, self._context.blueprint.tick_seconds
        due = world.anchor_ns / NANO + (self._frames.newest + 1 - world.anchor_tick) * tick_s
        return world.slipped_ns / NANO + max(0.0, self._clock.now() - due)

    def _slowness_s(self) -> float:
        """Seconds by which the world may fall behind without having been held up."""
        world, context = self._environment, self._context
        step_s = int(world.step_lengths(np.array([self._frames.newest]))[0]) / NANO
        tick_s = max(step_s, context.blueprint.tick_seconds)
        at_once_s = (1 + context.config.env.max_catch_up_ticks) * tick_s + world.reset_ns / NANO
        return WORST_ALONE * at_once_s

    def _keep_answer(self, answer: npt.NDArray[np.float32], number: int) -> None:
        """Keep the answer to a frame as the chunk, and choose its first action."""
        found, wanted = answer.shape[-1], self._explorer.outputs
        if found != wanted:
            # An action that there is not would end the environment's process instead of this one.
            told = f"the network answered {found} numbers, not {wanted}, to frame {number}"
            raise ValueError(told)
        # A sum is finite only where all its terms are, and a largest number only where none is nan.
        # Two actions that a policy masks by the least number of float32 have no sum of that type.
        numbers = answer.max(axis=-1) if self._excludes else answer
        if not math.isfinite(float(numbers.sum(dtype=np.float64))):
            raise FloatingPointError(f"the network answered {answer} to frame {number}")
        self._chunk = answer[:LONGEST_CHUNK] if answer.ndim == 2 else answer[None]
        # In virtual time, other processes may take over newer weights before the deposit.
        self._version = self._weights.version
        self._action = self._select(0, number)

    @property
    def _excludes(self) -> bool:
        """Whether an answer may have -inf for some actions, which then are never taken."""
        if self._explorer.excludes:
            return True
        # Nobody learns from a finished policy's values, and its file may be that of any actor.
        finished = getattr(self._policy, "answers_actions", False)
        return finished and isinstance(self._explorer, DiscreteExplorer)

    def _values(self, number: int, start: float) -> npt.NDArray[np.float32] | None:
        """The policy's answer to the observation; a recurrent policy's state is kept besides."""
        if self._carried is None:
            return self._answer(number, start)
        assert not isinstance(self._policy, EnginePolicy | PretrainedPolicy)
        self._policy.state = self._carried.begin(number)
        answer = self._answer(number, start)
        self._carried.end(self._policy.state)
        return answer

    def _answer(self, number: int, start: float) -> npt.NDArray[np.float32] | None:
        reader = self._reader
        if reader is None:
            return self._policy.values(self._observation)

        def ask() -> npt.NDArray[np.float32]:
            self._pad(start)
            self._pending = reader.read(number)
            return reader.pending.encode(self._pending[None])

        assert not isinstance(self._policy, EnginePolicy | PretrainedPolicy)
        return self._policy.values(self._observation, ask)

    def _rehearse(self, frame: int) -> None:
        """Do ahead of the frame what can be done, and run the rest once to warm the caches.

        After a tick's sleep the caches are cold, and cold code takes three times as long.
        """
        attend(self._context)
        self._weights.adopt()
        self._frames.observation(self._frames.newest, self._observation)
        # The action that is chosen here is never deposited.
        self._keep_answer(self._chunk if len(self._chunk) > 1 else self._chunk[0], frame)
        self._slots.encode(self._make_deposit(frame, frame))

    def _decide(self, number: int) -> None:
        """Draw how a frame's action explores."""
        if self._decided != number:
            config = self._context.config
            epsilon = config.policy.epsilon_end
            # A run that began without learners may be given some.
            if config.learning.processes or self._context.desired.learning.processes:
                epsilon = exploration.epsilon(self._weights.updates, config.policy)
            if getattr(self._policy, "answers_actions", False):
                # The policy has chosen the action already.
                epsilon = 0.0
            self._explorer.decide(number, epsilon)
            self._epsilon, self._decided = epsilon, number

    def _select(self, position: int, number: int) -> Any:
        """The action at a position of the chunk, explored with the draw of a frame number."""
        self._decide(number)
        return self._explorer.action(self._chunk[position])

    def _drop_past_actions(self, frame: int, tick: int) -> None:
        """Drop the actions of a chunk that are for ticks before the promised one.

        Only of a chunk that starts at its observation; its last action always stays.
        """
        over = min(tick - frame, len(self._chunk)) - 1
        if over > 0 and self._context.config.policy.starts_at_observation:
            self._chunk = self._chunk[over:]
            self._action = self._select(0, frame)

    def _register(self, instruction: Deposit) -> None:
        """Deposit the action, or the chunk, that was computed last, and count it."""
        start = self._clock.now()
        # The answer may be to a newer frame than the one for which the tick was promised.
        tick = max(instruction.tick, instruction.frame + 1)
        self._drop_past_actions(instruction.frame, tick)
        item = self._make_deposit(instruction.frame, tick)
        if self._carried is not None:
            # A process that sees the action must find the state that its inference has left.
            self._carried.publish()
        self._slots.deposit(item)
        self._latency += self._clock.now() - start
        self._count_inference(item)
        if len(self._chunk) > 1:
            self._deposit_rest(item)

    def _deposit_rest(self, first: Deposited) -> None:
        """Deposit all actions of a chunk but the first."""
        for position in range(1, len(self._chunk)):
            action = self._select(position, first.frame + position)
            self._slots.deposit(replace(
                first, tick=first.tick + position, action=action, position=position,
                log_probability=self._explorer.log_probability,
            ))

    def _pad(self, start: float) -> None:
        """Wait out the rest of the injected latency."""
        length = draw(self._context.desired.inference, self._rng)
        self._wait_until(start + length, infers=True)

    def _make_deposit(self, frame: int, tick: int) -> Deposited:
        return Deposited(
            worker=self._context.index, frame=frame, tick=tick, action=self._action,
            version=self._version, registered_at=self._clock.now(),
            log_probability=self._explorer.log_probability, pending=self._pending,
        )

    def _count_inference(self, item: Deposited) -> None:
        """Count the inference whose action has just been deposited."""
        record = self._context.record
        if self._context.config.policy.remote is not None:
            record.dropped += self._is_too_late(item)
        record.takeover_ns += round(self._takeover_s * NANO)
        record.weights_version = self._version
        record.epsilon = self._epsilon
        ahead = self._frame_wait.ahead
        record.ahead_ns, record.awake_ns = round(ahead.seconds * NANO), round(ahead.awake_s * NANO)
        registered_ns, latency_ns = round(item.registered_at * NANO), round(self._latency * NANO)
        record.registrations.append(Registration(
            registered_ns, latency_ns, item.tick, len(self._chunk),
        ))
        # Last: a reader that sees the new count sees the figures above, too.
        ordering.fence()
        record.inferences += 1

    def _is_too_late(self, item: Deposited) -> bool:
        """Whether an answer comes too late: its ticks are over, and a newer frame was acted on."""
        ledger = self._context.world.ledger
        newest = ledger.newest
        if item.tick + len(self._chunk) - 1 > newest:
            return False
        rows = ledger.read(newest + 1 - RECENT_TICKS, newest + 1)
        return bool(item.frame <= rows["observed"].max(initial=-1))


def attend(context: WorkerContext[InferenceRecord], *, infers: bool = False) -> None:
    """Beat; raises `Leaving` if the process has been told to leave.

    Args:
        context: of the process.
        infers: whether an inference is under way; where the number of processes falls, it is ended
            first, as that of a policy that really takes so long is.
    """
    context.beat()
    if context.stopping or (not infers and context.index >= context.desired.processes):
        raise Leaving
