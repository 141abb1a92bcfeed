"""A running daemon that runs out of memory: nobody is killed, no row is lost, play goes on."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.process_figures import memory_of
from rtagent import Runtime, UserError
from tests.conftest import events

from .conftest import Runtimes, eventually, role, started
from .live.test_learners import learns, updates

pytestmark = pytest.mark.process

GAME = (
    "learning.learning_starts=64", "learning.batch_size=8", "inference.processes=1",
    "run.tensorboard=false", "replay.capacity=20000", "learning.processes=1",
)
TICK_BYTES = 8000
"""A picture, its row, and what the learner's index has of both, at most."""


def whole(runtime: Runtime, first: int) -> None:
    """Every tick since `first` that is still kept has its row, and the clock has not slipped."""
    newest = runtime.world.ledger.newest
    # A lack of memory makes the rings smaller.
    first = max(first, runtime.world.ledger.oldest)
    assert newest > first
    rows = runtime.world.ledger.read(first, newest + 1)
    np.testing.assert_array_equal(rows["tick"], np.arange(first, newest + 1))


def leave_room(pid: int, room: int) -> None:
    """Let the address space of a process end so many bytes above what it is now."""
    size = memory_of(pid, "status")["VmSize"]
    resource.prlimit(pid, resource.RLIMIT_AS, (size + room, resource.RLIM_INFINITY))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """One run for all tests here that go on afterwards."""
    with started(tmp_path_factory.mktemp("game"), *GAME) as runtime:
        yield runtime


@pytest.fixture
def game(shared: Runtime) -> Runtime:
    """It learns in small batches, whatever the test before has left."""
    leave_room(role(shared, "learner 0")["pid"], 1 << 40)
    shared.set_learning(batch_size=8)
    learns(shared, count=5)
    return shared


def test_a_learner_out_of_memory_goes_on_with_smaller_batches(game: Runtime) -> None:
    first = game.world.ledger.newest
    learner = role(game, "learner 0")
    # Room for batches of some tens of transitions, not for thousands.
    leave_room(learner["pid"], 96 << 20)
    game.set_learning(batch_size=8192)
    eventually(lambda: game.stats()["r3"]["oom_events"] >= 1, "a batch does not fit")
    learns(game, count=3)
    now = role(game, "learner 0")
    assert (now["pid"], now["restarts"]) == (learner["pid"], 0)
    assert game.stats()["learning"]["batch_size"] < 8192
    eventually(lambda: events(game, "out_of_memory"), "that is told")
    whole(game, first)
    assert all(each["restarts"] == 0 for each in game.status()["roles"])


def test_a_checkpoint_for_which_there_is_no_memory_is_reported(game: Runtime) -> None:
    learner = role(game, "learner 0")
    leave_room(learner["pid"], 40 << 20)
    with pytest.raises(UserError, match="bytes cannot be had"):
        game.checkpoint()
    leave_room(learner["pid"], 400 << 20)
    assert game.checkpoint()["updates"] >= 5
    learns(game, count=5)
    assert role(game, "learner 0")["pid"] == learner["pid"]


@pytest.mark.alone
def test_the_budget_holds_as_seen_from_outside(run: Runtimes) -> None:
    # Not full before the budget is set: to begin to learn may take a busy machine a minute.
    with run(*GAME, "env.rate_hz=480", "replay.capacity=100000") as runtime:
        learns(runtime, count=5)
        eventually(lambda: runtime.stats()["r3"]["used_bytes"], "it is measured")
        used = runtime.stats()["r3"]["used_bytes"]
        # Two hundredths are headroom, and this process is large among many tests.
        budget = (used + used // 50 >> 20) + 8
        assert runtime.set_deadlines(memory_budget_mb=budget)["memory_budget_mb"] == budget
        # The rings fill at 3.4 MB a second; the budget must stop them.
        start, ledger = updates(runtime), runtime.world.ledger
        eventually(lambda: ledger.newest > limit(runtime), "the rings are full")
        before, full = limit(runtime), shared_bytes(runtime)
        eventually(lambda: ledger.newest > limit(runtime) + 500, "they would have grown by now")
        more = max(0, limit(runtime) - before)
        assert shared_bytes(runtime) <= full + TICK_BYTES * more + (1 << 20)
        assert updates(runtime) > start
        assert outside(runtime) <= 1.02 * (budget << 20)
        assert limit(runtime) < 100_000


def limit(runtime: Runtime) -> int:
    """Ticks that the replay may keep."""
    ticks: int = runtime.stats()["replay"]["limit"]
    return ticks


def shared_bytes(runtime: Runtime) -> int:
    """All shared memory of the run, as the kernel counts it."""
    arenas = runtime.world._arenas.values()
    return sum(os.stat(f"/proc/self/fd/{each.descriptor}").st_blocks * 512 for each in arenas)


def outside(runtime: Runtime) -> int:
    """Bytes of all processes and all shared memory, asked of the kernel alone.

    This process is the supervisor's, and holds the tests, too: it counts by what it has of its own
    beyond them, which is little, and is left out.
    """
    pids = [each["pid"] for each in runtime.status()["roles"] if each["pid"]]
    found = [memory_of(pid, "smaps_rollup") for pid in pids]
    return sum(each["Pss_Anon"] + each["Pss_File"] for each in found) + shared_bytes(runtime)
