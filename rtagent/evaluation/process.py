"""Evaluation: how good the newest policy is, without exploration and without the wall clock.

A process of its own plays episodes in an environment of its own. Its world is paused while the
policy thinks: no tick passes without an action and no action is late.

The difference from the returns of the live world is not the cost of delay and inaction alone. It
has three other causes: live play explores; the policy was trained on actions that come late, and
has never seen them come at once, as here; and the mean of the last live episodes is that of older
weights. Because of the second cause the paused world may have the lower returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.env.adapter import Adapter, open_environment
from rtagent.memory.process_metrics import EvaluationRecord
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.action_selection import greedy_action
from rtagent.processes.worker import WorkerContext

LONGEST_EPISODE_S = 600.0
"""Seconds of world time after which an episode is cut."""
LOOK_S = 0.1
"""Seconds between two looks at the desired state while the process waits."""
STREAM = 0x6576616C
"""Keeps these seeds apart from others that derive from the run's seed."""
BY_COMMAND = 2**32 - 1
"""Number of the evaluation that `rtagent evaluate` makes. No run comes to it: on episodes by which
the best checkpoint was chosen, that checkpoint would look better than it is."""

Values = Callable[[npt.NDArray[Any]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Played:
    """A finished episode: undiscounted return, length, and whether it ended by itself."""

    total: float
    ticks: int
    ended: bool


class Evaluator:
    """Plays greedy episodes.

    Args:
        adapter: the world.
        values: the network's answer to an observation, (stack, *frame_shape): the action values,
            or the action itself.
        go_on: asked before every tick; False ends the episode.
        forget: called before every episode, so that a recurrent policy begins anew.
    """

    def __init__(
        self, adapter: Adapter, values: Values, go_on: Callable[[], bool],
        forget: Callable[[], object] = lambda: None,
    ) -> None:
        self._forget = forget
        self._adapter = adapter
        self._values = values
        self._go_on = go_on
        self._longest = longest_episode(adapter.rate_hz)
        shape = (adapter.frame_stack, *adapter.frame_shape)
        self._observation = np.zeros(shape, adapter.frame_dtype)

    def play_episode(
        self, seed: int, film: Callable[[npt.NDArray[np.uint8] | None], None] | None = None
    ) -> Played | None:
        """Play one episode; returns None if `go_on` ended it.

        `film` is called before each tick with the picture that the environment renders.
        """
        self._forget()
        observation, total = self._observation, 0.0
        # As in the frame ring, an episode starts with its first frame, repeated.
        observation[:] = self._adapter.reset(seed)
        for tick in range(1, self._longest + 1):
            if not self._go_on():
                return None
            if film is not None:
                film(self._adapter.picture())
            action = greedy_action(self._values(observation), self._adapter.action_space)
            step = self._adapter.step(action)
            observation[:-1] = observation[1:].copy()
            observation[-1] = step.frame
            total += step.reward
            if step.terminated or step.truncated:
                return Played(total, tick, ended=True)
        return Played(total, self._longest, ended=False)


def longest_episode(rate_hz: float) -> int:
    """Ticks after which an episode is cut: one at least, however long a tick is."""
    return max(1, round(LONGEST_EPISODE_S * rate_hz))


def seed_of(run_seed: int, evaluation: int, episode: int) -> int:
    """The seed of an episode: another one in every evaluation, the same in every run of a seed."""
    sequence = np.random.SeedSequence([STREAM, run_seed, evaluation, episode])
    return int(sequence.generate_state(1)[0])


class Evaluation:
    """Evaluates the published weights at regular times, and writes the returns into the metrics."""

    def __init__(
        self, context: WorkerContext[EvaluationRecord], adapter: Adapter, policy: ActingPolicy
    ) -> None:
        self._context = context
        self._policy = policy
        self._evaluator = Evaluator(adapter, policy.greedy, self._go_on, policy.forget)
        self._flat = np.zeros(context.blueprint.parameters, np.float32)

    def run(self) -> None:
        """Evaluate every `learning.evaluation_every_s` seconds until told to stop."""
        clock, every = self._context.clock, self._context.config.learning.evaluation_every_s
        due = clock.now() + every
        while self._go_on():
            if clock.now() < due:
                clock.sleep_until(min(due, clock.now() + LOOK_S))
                continue
            self.evaluate()
            # An evaluation longer than the period delays the next; none is made up for.
            due = max(due + every, clock.now())

    def evaluate(self) -> None:
        """Play the episodes of one evaluation with the newest weights."""
        context, record = self._context, self._context.record
        info = context.world.weights.read(self._flat)
        if info is None:
            return
        self._policy.load(self._flat)
        number = record.evaluations
        episodes = []
        for index in range(context.config.learning.evaluation_episodes):
            played = self._evaluator.play_episode(seed_of(context.config.run.seed, number, index))
            if played is None:
                return
            episodes.append(played)
        returns = [each.total for each in episodes]
        mean = float(np.mean(returns))
        record.mean_return = mean
        record.updates = info.updates
        record.weights_version = info.version
        record.episodes += len(episodes)
        record.evaluations += 1
        context.event(
            "evaluation", mean_return=mean, returns=returns,
            ticks=[each.ticks for each in episodes],
            unfinished=sum(not each.ended for each in episodes),
            updates=info.updates, weights_version=info.version,
        )

    def _go_on(self) -> bool:
        self._context.beat()
        return not self._context.stopping


def run(context: WorkerContext[EvaluationRecord]) -> None:
    """Body of the evaluation process."""
    context.set_idle_priority()
    config = context.config
    adapter = open_environment(config.env)
    try:
        policy = ActingPolicy.of(config, context.blueprint)
        context.beat()
        policy.warm_up()
        context.ready()
        Evaluation(context, adapter, policy).run()
    finally:
        adapter.close()
