"""Theorem 1 of Riemer et al. (Realtime Reinforcement Learning), measured for one fixed policy.

The policy plays in three worlds that differ in time only: R0 waits for the policy; R1 waits, but
executes each action as late as the live world did; R2 is the live world. Delay regret is R0 - R1,
inaction regret R1 - R2, learning regret R* - R0 with the return R* of the best policy, which is
rarely known.

The least delay is 1 tick: the action of the newest frame. It costs nothing within an episode. But
the live world never shows the frame of a reset, which R0 acts on: R1 with a delay of 1 throughout
takes the action of a later episode's first tick from the last frame of the one before, and the
observations of an episode begin with its first tick's frame. In all else it is R0.

The bounds are those of the theorem with the range of rewards of a tick as their constant, for the
best policy in the worst world. One that has never seen a delay may lose more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rtagent.env.adapter import Adapter
from rtagent.errors import UserError, first_line
from rtagent.evaluation.process import Values, longest_episode
from rtagent.memory.ledger import Ints, Rows
from rtagent.policy.action_selection import greedy_action
from rtagent.staggering.arbiter import Source

CHECKED_TICKS = 30


class Episodes(NamedTuple):
    """Episodes that were played to their end, or in a world that waits up to `longest_episode`.

    Attributes:
        returns: (n,) undiscounted.
        ticks: (n,) lengths.
        ended: (n,) False where it was cut.
    """

    returns: npt.NDArray[np.float64]
    ticks: npt.NDArray[np.int64]
    ended: npt.NDArray[np.bool_]

    def first(self, count: int) -> Episodes:
        """The first `count` episodes."""
        return Episodes(self.returns[:count], self.ticks[:count], self.ended[:count])


class PausedWorld:
    """Plays greedily in a world that waits; if told so, each action some ticks late.

    Late actions are those of the live world, whose frames are numbered through the ends of
    episodes, and where nobody sees the frame of a reset: the first tick of an episode acts on
    frames of the one before. Only before the first episode there is none, and the frame of the
    reset is taken.

    Args:
        adapter: the world. The seed is given to its first reset only, as in the live one.
        values: the network's answer to an observation, (stack, *frame_shape).
        seed: of the world.
        delays: of each tick, how old its action's frame is: 1 is the newest. After the last one
            comes the first again. If None, nothing is late, and an episode's first tick acts on
            the frame of its reset.
        go_on: asked before every tick.

    Attributes:
        adapter: the world.
        starts: the first frame of each episode, as bytes.
        rewards: least and largest reward of a tick so far, 0 among them.
    """

    def __init__(
        self, adapter: Adapter, values: Values, seed: int, delays: Sequence[int] | None = None,
        go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.adapter = adapter
        self._values, self._go_on = values, go_on
        self._seed: int | None = seed
        self._live = delays is not None
        delays = (1,) if delays is None else delays
        self._delays = cycle(delays)
        shape = (adapter.frame_stack, *adapter.frame_shape)
        self._observation = np.zeros(shape, adapter.frame_dtype)
        self._actions: deque[Any] = deque(maxlen=max(delays))
        self._begins = True
        self.starts: list[bytes] = []
        self.rewards = (0.0, 0.0)

    def reset(self) -> None:
        """Start an episode."""
        self._observation[:] = self.adapter.reset(self._seed)
        self._seed = None
        self.starts.append(self._observation[-1].tobytes())
        self._begins = True
        if not (self._live and self._actions):
            self._decide()

    def step(self) -> tuple[float, bool]:
        """One tick: its reward, and whether the episode is over."""
        delay = min(next(self._delays), len(self._actions))
        step = self.adapter.step(self._actions[-delay])
        if self._live and self._begins:
            # As in the frame ring: the first frame that is published, repeated.
            self._observation[:] = step.frame
        else:
            self._observation[:-1] = self._observation[1:].copy()
            self._observation[-1] = step.frame
        self._begins = False
        self._decide()
        # As the ledger has it: else worlds with the same rewards would differ by a rounding.
        reward = float(np.float32(step.reward))
        self.rewards = min(reward, self.rewards[0]), max(reward, self.rewards[1])
        return reward, step.terminated or step.truncated

    @property
    def newest_action(self) -> Any:
        """The answer to the newest frame."""
        return self._actions[-1]

    def play(self, count: int, on_episode: Callable[[], object] = lambda: None) -> Episodes:
        """Play episodes, fewer if `go_on` ends it; `on_episode` is called after each."""
        longest = longest_episode(self.adapter.rate_hz)
        played: list[tuple[float, int, bool]] = []
        while len(played) < count:
            self.reset()
            total, length, over = 0.0, 0, False
            while not over and length < longest:
                if not self._go_on():
                    return _episodes(played)
                reward, over = self.step()
                total, length = total + reward, length + 1
            played.append((total, length, over))
            on_episode()
        return _episodes(played)

    def _decide(self) -> None:
        answer = self._values(self._observation)
        # The network may write its next answer into the same memory.
        self._actions.append(np.copy(greedy_action(answer, self.adapter.action_space))[()])


def _episodes(played: Sequence[tuple[float, int, bool]]) -> Episodes:
    returns, ticks, ended = zip(*played, strict=True) if played else ((), (), ())
    return Episodes(
        np.array(returns, np.float64), np.array(ticks, np.int64), np.array(ended, np.bool_)
    )


def live_episodes(rows: Rows) -> Episodes:
    """The finished episodes of a ledger."""
    rewards = np.split(rows["reward"], np.flatnonzero(rows["flags"]) + 1)[:-1]
    return _episodes([(float(each.sum(dtype=np.float64)), len(each), True) for each in rewards])


def recorded_delays(rows: Rows) -> Ints:
    """For each tick, how old the frame of its action was, in ticks: 1 is the newest.

    A tick without an action gets the delay of the action before it: in R1 every tick is acted.

    Raises:
        UserError: there was no action.
    """
    acted = rows["source"] != Source.DEFAULT
    if not acted.any():
        raise UserError("in the live world no action came in time: there is no delay to replay")
    newest = np.maximum.accumulate(np.where(acted, np.arange(len(rows)), -1))
    from_tick = np.where(newest < 0, int(acted.argmax()), newest)
    delays: Ints = (rows["tick"] - rows["observed"])[from_tick]
    return delays


class Predictability(NamedTuple):
    """How often the most frequent next observation follows, over states and the action there.

    Attributes:
        minimum: p_minimax of the theorem, among the states that were visited.
        mean: over them.
        states: how many.
        clones: of each.
    """

    minimum: float
    mean: float
    states: int
    clones: int


def check_cloning(adapter: Adapter, name: str) -> None:
    """Check that a world can be saved and restored: the same actions must give the same again.

    Raises:
        UserError: it cannot.
    """
    rng = np.random.default_rng(0)
    adapter.action_space.seed(0)
    actions = [adapter.action_space.sample() for _ in range(CHECKED_TICKS)]

    def outcome() -> list[Any]:
        found = []
        for action in actions:
            frame, *rest = adapter.step(action)
            found.append((np.copy(frame).tobytes(), *rest))
            if rest[1] or rest[2]:
                break
        return found

    adapter.reset(0)
    try:
        saved = adapter.save()
        first = outcome()
        adapter.restore(saved)
        same = outcome() == first
        adapter.restore(saved)
        adapter.perturb(rng)
    except Exception as error:
        raise UserError(
            f"env.id = {name}: its state cannot be saved: {first_line(error)}"
        ) from None
    if not same:
        raise UserError(
            f"env.id = {name}: its state cannot be saved and restored: the same actions gave "
            "something else the second time"
        )


def predictability(
    world: PausedWorld, mean_gap: float, states: int, clones: int, rng: np.random.Generator,
    go_on: Callable[[], bool] = lambda: True,
) -> Predictability | None:
    """Clone visited states, perturb each clone's chance, take the same action, count what comes.

    A frame that shows the world only some ticks later (`Adapter.picture_lag`) is waited for, under
    the same action.

    Args:
        world: its adapter can save the state.
        mean_gap: ticks from one state to the next on the mean, 1 at least. They are random, so that
            they keep no step with the world.
        states: how many.
        clones: of each state.
        rng: of the gaps and the perturbations.
        go_on: asked before every state.

    Returns:
        None if nobody knows how to perturb this world, or no state was visited.
    """
    found: list[float] = []
    adapter = world.adapter
    world.reset()
    while len(found) < states and go_on():
        for _ in range(int(rng.geometric(1.0 / max(1.0, mean_gap)))):
            if world.step()[1]:
                world.reset()
        saved, seen = adapter.save(), Counter[bytes]()
        for _ in range(clones):
            adapter.restore(saved)
            if not adapter.perturb(rng):
                return None
            seen[_next_frame(adapter, world.newest_action)] += 1
        adapter.restore(saved)
        found.append(seen.most_common(1)[0][1] / clones)
    if not found:
        return None
    return Predictability(min(found), float(np.mean(found)), len(found), clones)


def _next_frame(adapter: Adapter, action: Any) -> bytes:
    """The first frame that shows what the action does."""
    frame = b""
    for _ in range(1 + adapter.picture_lag):
        step = adapter.step(action)
        frame = np.copy(step.frame).tobytes()
        if step.terminated or step.truncated:
            break
    return frame


def delay_bound(delays: Ints, predictable: float, reward_range: float) -> float:
    """The bound of delay regret, in reward per tick: Theorem 1, Eq. 4, corrected.

    The paper prints E[(1 - p)^(ticks of inference)], which falls with the delay. The bound must
    grow with it, and be 0 in a deterministic world: it is the chance that one of the ticks that
    pass unseen does not go the most frequent way, E[1 - p^(d - 1)]. Of a delay d, d - 1 ticks pass
    unseen.

    Args:
        delays: of each tick, 1 at least.
        predictable: p.
        reward_range: largest minus least reward of a tick.
    """
    return reward_range * float(np.mean(1.0 - predictable ** (delays - 1.0)))


def inaction_bound(inaction: float, reward_range: float) -> float:
    """The bound of inaction regret, in reward per tick: Theorem 1, Eq. 3, counted per tick.

    Args:
        inaction: share of ticks with the default behaviour.
        reward_range: largest minus least reward of a tick.
    """
    return reward_range * inaction
