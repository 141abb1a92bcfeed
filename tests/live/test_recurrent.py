"""A recurrent policy in two processes, here and on a server: its states are what the rows say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from rtagent.memory.ledger import Rows
from rtagent.memory.policy_states import ENTRIES
from rtagent.memory.world import World
from rtagent.staggering.arbiter import Source
from tests.conftest import Runtimes, eventually
from tests.remote.serving import policy_server, served

pytestmark = pytest.mark.process

RATE_HZ = 60
SOON_NS = ENTRIES // 2 * 1_000_000_000 // RATE_HZ
"""In this time no process replaces all the inferences that another one looks at."""


class Seen(NamedTuple):
    """A run up to a frame.

    Attributes:
        rows: of decisions whose state is known.
        frames: by their number.
        starts: the first frame of each frame's episode.
        age: for each row, ticks from the newest frame whose action had been executed before the
            row's inference began, to its own frame; 0: there is none in the episode.
    """

    rows: Rows
    frames: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    age: npt.NDArray[np.int64]


def looked_at(world: World) -> Seen:
    everything = world.ledger.read(0, world.frames.newest + 1)
    frames, starts, whole = world.frames.read(everything["tick"])
    assert whole.all()
    np.testing.assert_array_equal(everything["tick"], np.arange(len(everything)))
    known = (everything["source"] == Source.AGENT) & (everything["state_lag"] >= 0)
    rows = everything[known]
    frame = rows["observed"]
    executed = np.maximum.accumulate(everything["observed"])[frame]
    soon = rows["registered_ns"] - everything["time_ns"][frame] < SOON_NS
    age = np.where((executed >= starts[frame]) & soon, frame - executed, 0)
    return Seen(rows, frames, starts, age)


@contextmanager
def last_seen_is_served() -> Iterator[tuple[str, ...]]:
    """A server of `carrying.LastSeen` that takes pending actions, and how it is asked."""
    pending: list[npt.NDArray[np.float32]] = []

    def answer(
        observations: npt.NDArray[np.float32], states: npt.NDArray[np.float32],
        told: npt.NDArray[np.float32],
    ) -> tuple[npt.NDArray[np.float32], ...]:
        pending.append(told)
        return np.eye(2, dtype=np.float32)[[0] * len(states)], observations[:, -1]

    policy = served(answer, shape=(1, 4), outputs=2, state=4, pending=4)
    with policy_server(policy) as (address, _):
        yield f"policy.remote={address}", "policy.remote_state=4", "env.pending_actions=2"
    assert {0.0, 1.0} <= set(np.concatenate(pending).flat)


@contextmanager
def last_seen_is_here() -> Iterator[tuple[str, ...]]:
    yield ("policy.factory=carrying:LastSeen",)


@pytest.mark.parametrize("policy", [last_seen_is_here, last_seen_is_served])
def test_the_lag_of_each_decisions_state_is_what_the_rows_say(
    run: Runtimes, policy: Callable[[], AbstractContextManager[tuple[str, ...]]]
) -> None:
    with policy() as settings, run(
        "env.id=CartPole-v1", f"env.rate_hz={RATE_HZ}", *settings,
        "inference.processes=2", "inference.injected_latency_ms=25",
    ) as runtime:
        world = runtime.world
        eventually(lambda: (looked_at(world).age > 0).sum() >= 10, "states are carried on")
        rows, frames, starts, age = looked_at(world)
    frame, lag = rows["observed"], rows["state_lag"]
    np.testing.assert_array_equal(lag > 0, rows["state"].any(axis=1))
    # The state shows the frame that it is of: that which the lag names, of the same episode.
    behind = (frame - lag)[lag > 0]
    np.testing.assert_array_equal(rows["state"][lag > 0], frames[behind])
    np.testing.assert_array_equal(starts[behind], starts[frame[lag > 0]])
    # What was executed was over before, and what is newer may have been.
    assert ((lag > 0) & (lag <= age))[age > 0].all()
