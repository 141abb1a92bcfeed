"""Learning curves in virtual time, for choosing defaults.

Plays the configured environment tick by tick, with no wall clock and no processes: each action is
executed a fixed number of ticks after its frame, and the learner gets a fixed number of updates
per tick, as many as one core of the machine in mind would reach. With a delay of 0 the world waits
for the agent, as in textbooks. With `--every 5 --delay 5` it decides as seldom as a single process
that needs five ticks. Replay, transitions and updates are the program's own, over buffers in this
process. Prints returns as it goes.

    rtagent bench offline_learning --ticks 54000 --updates-per-tick 0.33 \
        --set learning.n_step=8 --set policy.width=1
    rtagent bench offline_learning --config examples/cartpole.toml --ticks 30000 \
        --updates-per-tick 1 --every 5 --delay 5

`--policy random` and `--policy noop` give the returns to beat.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from benchmarks.command import command_line, from_zero
from benchmarks.learning.local_update import LocalUpdate, UpdateResult
from rtagent.cli.output import print_json
from rtagent.clock import Clock, MonotonicClock
from rtagent.config import Config, LearningConfig
from rtagent.config_sources import load_config
from rtagent.env.adapter import Step, open_environment
from rtagent.evaluation.probe import world_of
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.replay import Replay
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Ledger
from rtagent.policy import exploration, networks
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.action_selection import explorer_for
from rtagent.policy.actor_critic import acting_part, build_learned
from rtagent.staggering.arbiter import Source


class Update(Protocol):
    """Updates a network from batches, as `LocalUpdate` does."""

    network: nn.Module

    @property
    def updates(self) -> int:
        """Updates applied so far."""
        ...

    def step(self, batch: Batch) -> UpdateResult:
        """One gradient step."""
        ...


@dataclass
class Offline:
    """One run in virtual time.

    Args:
        config: configuration of the run.
        delay: ticks from a frame to the execution of its action. With 0 the world waits, and an
            episode begins with a frame before its first tick. With 1 the first tick of an episode
            executes the default behaviour.
        updates_per_tick: updates of the learner per tick.
        chooser: what chooses actions: `learned`, `random` or `noop`.
        learner: makes what trains the network.
        every: ticks from one decision to the next; in between the default behaviour acts.

    Attributes:
        returns: return of each finished episode.
        lengths: ticks of each finished episode.
    """

    config: Config
    delay: int
    updates_per_tick: float
    chooser: str = "learned"
    learner: Callable[[nn.Module, LearningConfig], Update] = LocalUpdate
    every: int = 1
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        torch.manual_seed(config.run.seed)
        self.adapter = open_environment(config.env)
        shapes = world_of(self.adapter)
        capacity = config.replay.capacity
        self.frames = FrameRing.private(shapes, capacity)
        self.ledger = Ledger.private(shapes, capacity)
        made_for = (shapes.observation_space, shapes.action_space)
        head = networks.head_of(config.learning, shapes.action_space)
        network = build_learned(config.policy, *made_for, config.learning)
        self.update = self.learner(network, config.learning)
        self.acting = ActingPolicy.of(config, shapes)
        self.explorer = explorer_for(shapes.action_space, config.run.seed, config.policy, head)
        self.published = acting_part(self.update.network)
        self.replay = Replay(self.frames, self.ledger, config.learning)
        self.rng = np.random.default_rng(config.run.seed)
        self.observation = np.empty(
            (shapes.frame_stack, *shapes.frame_shape), shapes.frame_dtype
        )
        self.noop: Any = self.adapter.noop_action
        self.executed = self.noop
        self.pending: deque[tuple[int, Any]] = deque()
        self.number = 0
        self.credit = self.window = 0.0
        self.loss = self.scale = 0.0

    def run(self, ticks: int, report_every: int, clock: Clock) -> None:
        """Play, and print one line every `report_every` ticks; never if that is 0."""
        self._take_over_weights()
        self._begin_episode(self.config.run.seed)
        began = clock.now()
        for tick in range(1, ticks + 1):
            self._tick()
            self._learn()
            if report_every and tick % report_every == 0:
                self._report(tick, report_every, clock.now() - began)
        self.adapter.close()

    def _begin_episode(self, seed: int | None = None) -> None:
        frame = self.adapter.reset(seed)
        self.start, self.total, self.length = self.number, 0.0, 0
        self.executed = self.noop
        if self.delay == 0:
            self.pending.clear()
            self._put(Step(frame, 0.0, False, False), -1, self.noop)

    def _tick(self) -> None:
        due = len(self.pending) >= max(1, self.delay)
        observed, action = self.pending.popleft() if due else (-1, self.noop)
        if observed < 0 and self.config.env.default_action == "repeat":
            action = self.executed
        self.executed = action
        step = self.adapter.step(action)
        self._put(step, observed, action)
        self.total += step.reward
        self.window += step.reward
        self.length += 1
        if step.terminated or step.truncated:
            self.returns.append(self.total)
            self.lengths.append(self.length)
            self._begin_episode()

    def _put(self, step: Step, observed: int, action: int) -> None:
        """Write a tick into frames and ledger, and choose the action that answers its frame."""
        self.frames.publish(self.number, step.frame, self.start)
        self.ledger.write(
            self.number, observed=observed, time_ns=self.number, registered_ns=0, lateness_ns=0,
            reward=step.reward, weights_version=0, episode=len(self.returns), worker=0,
            source=Source.AGENT if observed >= 0 else Source.DEFAULT,
            flags=TERMINATED * step.terminated | TRUNCATED * step.truncated, action=action,
        )
        decides = (self.number - self.start) % self.every == 0
        self.pending.append(
            (self.number, self._choose(self.number)) if decides else (-1, self.noop)
        )
        self.number += 1

    def _choose(self, tick: int) -> Any:
        if self.chooser == "noop":
            return self.noop
        rate = exploration.epsilon(self.update.updates, self.config.policy)
        self.explorer.decide(tick, 1.0 if self.chooser == "random" else rate)
        self.frames.observation(tick, self.observation)
        answer = self.acting.values(self.observation)
        self.scale = float(answer.max())
        return self.explorer.action(answer)

    def _learn(self) -> None:
        learning = self.config.learning
        if self.chooser != "learned" or self.replay.ticks < learning.learning_starts:
            return
        self.credit += self.updates_per_tick
        while self.credit >= 1.0:
            self.credit -= 1.0
            self.replay.refresh()
            batch = self.replay.sample(learning.batch_size, self.rng)
            if batch is None:
                return
            self.loss = self.update.step(batch).loss
            if self.update.updates % learning.publish_every == 0:
                self._take_over_weights()

    def _take_over_weights(self) -> None:
        self.acting.load(networks.flattened(self.published))

    def _report(self, ticks: int, window: int, seconds: float) -> None:
        recent, lengths = self.returns[-20:] or [float("nan")], self.lengths[-20:] or [0]
        per_1000, self.window = 1000.0 * self.window / window, 0.0
        print(
            f"{ticks:7d} ticks {self.update.updates:6d} updates  {len(self.returns):4d} episodes  "
            f"return(20) {np.mean(recent):6.2f}  length {np.mean(lengths):6.0f}  "
            f"now per 1000 ticks {per_1000:6.2f}  "
            f"epsilon {exploration.epsilon(self.update.updates, self.config.policy):.2f}  "
            f"loss {self.loss:.4f}  largest answer {self.scale:.2f}  {seconds:.0f} s",
            file=sys.stderr, flush=True,
        )


def main() -> None:
    """Parse the command line and run."""
    parser = command_line(__doc__)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--ticks", type=int, default=54_000)
    parser.add_argument("--delay", type=from_zero, default=2)
    parser.add_argument("--every", type=int, default=1, help="ticks from decision to decision")
    parser.add_argument("--updates-per-tick", type=float, default=0.33)
    parser.add_argument("--report-every", type=from_zero, default=3000)
    parser.add_argument("--policy", choices=["learned", "random", "noop"], default="learned")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = load_config(options.config, options.set, {})
    offline = Offline(
        config, options.delay, options.updates_per_tick, options.policy, every=options.every
    )
    offline.run(options.ticks, options.report_every, MonotonicClock())
    if options.json:
        print_json({"returns": offline.returns, "lengths": offline.lengths})


if __name__ == "__main__":
    main()
