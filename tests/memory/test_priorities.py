"""Shared priorities: first come, first inserted; never of the dead; right after a kill."""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from mmap import PROT_READ
from types import CodeType

import numpy as np
import pytest

from rtagent.clock import MonotonicClock, VirtualClock
from rtagent.memory.arena import PAGE, Arena
from rtagent.memory.priorities import AT_ONCE, WAIT_S, Priorities
from rtagent.memory.robust_lock import RobustLock
from rtagent.memory.sum_tree import SumTree, sum_tree
from tests.forked import Forked, at_each_line, eventually

LEAVES = 100
EVERYWHERE = np.zeros(2000)


@pytest.fixture
def lock(make_arena: Callable[..., Arena]) -> Iterator[RobustLock]:
    found = RobustLock(make_arena(1).handle)
    yield found
    found.close()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def formatted(memory: memoryview) -> memoryview:
    Priorities.format(memory)
    return memory


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return formatted(shared(Priorities.size(LEAVES)))


@pytest.fixture
def priorities(memory: memoryview, lock: RobustLock, clock: VirtualClock) -> Priorities:
    return Priorities(memory, LEAVES, lock, clock)


def held(priorities: Priorities) -> dict[int, float]:
    """Priority by frame."""
    found = priorities.draw(EVERYWHERE)
    return {} if found is None else dict(zip(found[0].tolist(), found[1].tolist(), strict=True))


def frames(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_new_transitions_get_the_largest_priority_so_far(priorities: Priorities) -> None:
    assert priorities.draw(EVERYWHERE) is None
    assert priorities.advance(frames(3, 4, 6), 0)
    assert held(priorities) == {3: 1.0, 4: 1.0, 6: 1.0}
    assert priorities.update(frames(4, 6), np.array([5.0, 2.0]))
    assert priorities.update(frames(4), np.array([3.0]))
    assert priorities.advance(frames(6, 8), 0)
    assert held(priorities) == {3: 1.0, 4: 3.0, 6: 2.0, 8: 5.0}


def test_who_comes_second_resets_nothing(
    priorities: Priorities, memory: memoryview, lock: RobustLock, clock: VirtualClock
) -> None:
    priorities.advance(frames(3, 4, 6), 0)
    priorities.update(frames(3), np.array([0.5]))
    other = Priorities(memory, LEAVES, lock, clock)
    assert other.advance(frames(3, 4, 6, 7), 0)
    assert held(other) == {3: 0.5, 4: 1.0, 6: 1.0, 7: 1.0}


def test_sums_are_computed_anew_once_after_a_death_inside(
    priorities: Priorities, monkeypatch: pytest.MonkeyPatch
) -> None:
    priorities.advance(frames(3, 4), 0)
    follow, followed = priorities._tree._follow, []

    def counted(leaves: np.ndarray) -> None:
        followed.append(leaves)
        follow(leaves)

    monkeypatch.setattr(priorities._tree, "_follow", counted)
    priorities._tree.dirty[0] = 1
    for _ in range(3):
        assert held(priorities) == {3: 1.0, 4: 1.0}
    assert len(followed) == 1


def test_the_lost_are_removed_and_stay_away(priorities: Priorities) -> None:
    priorities.advance(np.arange(10), 0)
    assert priorities.advance(frames(), 8)
    assert set(held(priorities)) == {8, 9}
    # A learner that lags behind finds them again, and has errors of them.
    priorities.advance(np.arange(5), 3)
    priorities.update(frames(2, 8), np.array([9.0, 4.0]))
    assert held(priorities) == {8: 4.0, 9: 1.0}
    # They do not count for the largest either.
    priorities.advance(frames(10), 8)
    assert held(priorities)[10] == 4.0


def test_what_is_lost_is_not_inserted(priorities: Priorities) -> None:
    assert priorities.advance(frames(3, 12), 10)
    assert held(priorities) == {12: 1.0}


def test_a_leaf_is_used_again(priorities: Priorities) -> None:
    priorities.advance(np.arange(90), 0)
    priorities.advance(np.arange(95, 105), 50)
    priorities.update(frames(3, 103), np.array([9.0, 4.0]))
    found = held(priorities)
    assert sorted(found) == [*range(50, 90), *range(95, 105)]
    assert found[103] == 4.0
    assert found[104] == 1.0
    # All of it at once, a long time later.
    priorities.advance(frames(7_000_000), 6_999_999)
    assert list(held(priorities)) == [7_000_000]


def test_without_removal_the_newer_owner_has_the_leaf(priorities: Priorities) -> None:
    priorities.advance(frames(3, 4), 0)
    priorities.advance(frames(103), 0)
    assert sorted(held(priorities)) == [4, 103]
    assert priorities.advance(frames(), 50)
    assert sorted(held(priorities)) == [103]


def test_the_discarded_are_gone(priorities: Priorities) -> None:
    priorities.advance(np.arange(5), 0)
    assert priorities.discard(frames(2, 3, 77))
    assert sorted(held(priorities)) == [0, 1, 4]
    priorities.advance(np.arange(5), 0)
    priorities.update(frames(2), np.array([1.0]))
    assert sorted(held(priorities)) == [0, 1, 4]


def test_many_are_inserted_and_removed_in_pieces(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves = 3 * AT_ONCE
    change, changed = SumTree.set, []

    def counted(tree: SumTree, indices: np.ndarray, values: np.ndarray | float) -> None:
        changed.append(len(indices))
        change(tree, indices, values)

    monkeypatch.setattr(SumTree, "set", counted)
    priorities = Priorities.private(leaves, clock)
    priorities.advance(np.arange(leaves), 0)
    found = priorities.draw(np.full(leaves, 0.5))
    assert found[0].tolist() == list(range(leaves))
    priorities.advance(frames(), leaves - 2)
    assert sorted(held(priorities)) == [leaves - 2, leaves - 1]
    # Nobody else has the locks meanwhile.
    assert changed == 5 * [AT_ONCE] + [AT_ONCE - 2]


@pytest.mark.process
def test_a_change_that_fails_lets_go_of_both_locks(
    priorities: Priorities, lock: RobustLock, forked: Forked
) -> None:
    priorities.advance(frames(3, 4), 0)
    with pytest.raises(ValueError, match="broadcast"):
        priorities.update(frames(3, 7), np.array([2.0, 2.0, 2.0]))
    assert not priorities._threads.locked()
    # One process cannot shut itself out.
    assert forked.run(lambda: os._exit(0 if lock.try_enter() else 7)) == 0
    assert priorities.update(frames(3), np.array([2.0]))
    assert held(priorities) == {3: 2.0, 4: 1.0}


def test_what_lies_before_the_restored_is_lost(priorities: Priorities) -> None:
    priorities.restore(10, np.zeros(5))
    assert priorities.advance(frames(8, 12), 0)
    assert held(priorities) == {12: 1.0}


def test_a_long_way_ahead_is_gone_at_once(
    priorities: Priorities, monkeypatch: pytest.MonkeyPatch
) -> None:
    priorities.advance(frames(3, 4), 0)
    claim, claimed = priorities._claim, []

    def counted() -> bool:
        claimed.append(True)
        assert len(claimed) < 10, "frame by frame"
        return claim()

    monkeypatch.setattr(priorities, "_claim", counted)
    assert priorities.advance(frames(10**9), 10**9)
    assert held(priorities) == {10**9: 1.0}


@pytest.mark.process
def test_a_stopped_holder_stops_nobody(
    make_arena: Callable[..., Arena], memory: memoryview, clock: VirtualClock, forked: Forked
) -> None:
    arena = make_arena(1)
    priorities = Priorities(memory, LEAVES, RobustLock(arena.handle), clock)
    priorities.advance(np.arange(5), 0)

    def hold() -> None:
        with RobustLock(arena.handle):
            signal.pause()

    pid = forked.start(hold)
    assert eventually(lambda: priorities.draw(EVERYWHERE) is None)
    began = clock.now()
    assert not priorities.update(frames(3), np.array([7.0]))
    assert WAIT_S <= clock.now() - began < 2.0 * WAIT_S
    assert not priorities.discard(frames(3))
    assert not priorities.advance(frames(9), 0)
    forked.kill(pid)
    assert eventually(lambda: priorities.draw(EVERYWHERE) is not None)
    assert held(priorities) == dict.fromkeys(range(5), 1.0)


def test_two_threads_keep_out_of_each_others_way(
    shared: Callable[[int], memoryview], lock: RobustLock
) -> None:
    memory = formatted(shared(Priorities.size(LEAVES)))
    priorities = Priorities(memory, LEAVES, lock, MonotonicClock())
    priorities.advance(np.arange(LEAVES), 0)
    started = threading.Barrier(2)

    def change(seed: int) -> None:
        rng = np.random.default_rng(seed)
        started.wait()
        for _ in range(500):
            priorities.update(rng.integers(0, LEAVES, 20), rng.random(20) + 0.1)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(change, range(2)))
    assert_sums_are_right(memory)


def assert_sums_are_right(memory: memoryview, leaves: int = LEAVES) -> None:
    """Bit for bit what they are when they are computed anew."""
    part = bytearray(memory[Priorities.size(leaves) - SumTree.size(leaves) :])
    before = bytes(part)
    tree = sum_tree(memoryview(part), leaves)
    assert not tree.dirty[0]
    tree.dirty[0] = 1
    tree.repair()
    assert bytes(part) == before


def states_during(
    memory: memoryview, code: CodeType, cut_lines: bool, call: Callable[[], object]
) -> list[np.ndarray]:
    """What memory may hold if a writer is killed: before each line, or between two words of one."""
    words = np.frombuffer(memory, np.int64)
    steps: list[np.ndarray] = []
    with at_each_line(code.__eq__, lambda: steps.append(words.copy())):
        call()
    found = []
    for before, after in itertools.pairwise([*steps, words.copy()]):
        changed = np.flatnonzero(before != after)
        if cut_lines and len(changed):
            cuts = changed[np.linspace(0, len(changed) - 1, 4).astype(int)]
            found.extend(np.concatenate([after[:cut], before[cut:]]) for cut in cuts)
        found.append(after)
    return found


@pytest.mark.parametrize(
    ("code", "cut_lines"),
    [
        # Here each line is one store; elsewhere there are lines that call others.
        (SumTree._follow.__code__, True),
        (SumTree.set.__code__, False),
        (Priorities._insert.__code__, False),
        (Priorities._remove_below.__code__, False),
    ],
)
def test_a_killed_learner_leaves_nothing_wrong(
    code: CodeType, cut_lines: bool, shared: Callable[[int], memoryview], lock: RobustLock,
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch,
) -> None:
    if cut_lines:
        monkeypatch.setattr("rtagent.memory.compiled._library", lambda: None)
    leaves = 5000
    memory = formatted(shared(Priorities.size(leaves)))
    priorities = Priorities(memory, leaves, lock, clock)
    old = np.arange(0, leaves, 7)
    priorities.advance(old, 0)
    new = np.arange(leaves + 3, 2 * leaves, 9)
    states = states_during(memory, code, cut_lines, lambda: priorities.advance(new, leaves))
    assert len(states) > 3
    words = np.frombuffer(memory, np.int64)
    for state in states:
        words[:] = state
        survivor = Priorities(memory, leaves, lock, clock)
        found = survivor.draw(EVERYWHERE)
        if found is not None:
            assert set(found[0].tolist()) <= {*old.tolist(), *new.tolist()}
            assert (found[1] == 1.0).all()
        assert_sums_are_right(memory, leaves)
        assert survivor.advance(new, leaves)
        found = survivor.draw(np.full(len(new), 0.5))
        assert sorted(found[0]) == new.tolist()


@pytest.mark.process
@pytest.mark.usefixtures("either_way")
def test_who_dies_at_the_first_store_into_a_page_leaves_nothing_wrong(
    shared: Callable[[int], memoryview], lock: RobustLock, clock: VirtualClock, forked: Forked
) -> None:
    leaves = 5000
    memory = formatted(shared(Priorities.size(leaves)))
    priorities = Priorities(memory, leaves, lock, clock)
    every = np.arange(leaves)
    priorities.advance(every, 0)
    address = np.frombuffer(memory, np.uint8).ctypes.data
    old, codes = 1.0, []
    for start in range(0, len(memory), PAGE):
        new = old + 1.0

        def change() -> None:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            page = ctypes.c_void_p(address + start)  # noqa: B023
            assert not ctypes.CDLL(None).mprotect(page, ctypes.c_size_t(PAGE), PROT_READ)
            priorities.update(every, np.full(leaves, new))  # noqa: B023

        codes.append(forked.run(change))
        found = held(priorities)
        assert set(found.values()) <= {old, new}
        assert_sums_are_right(memory, leaves)
        assert priorities.update(every, np.full(leaves, new))
        old = new
    # The dirty word, the leaves and their sums; the owners do not change.
    assert codes.count(-signal.SIGSEGV) >= 10
    assert set(codes) == {-signal.SIGSEGV, 0}


def test_what_is_put_back_is_what_was_there(priorities: Priorities, clock: VirtualClock) -> None:
    priorities.advance(np.arange(250, 330, 2), 250)
    priorities.update(frames(250, 252, 328), np.array([5.0, 0.25, 2.0]))
    priorities.discard(frames(260))
    values = priorities.values(240, 340)
    assert values[10] == 5.0
    assert values[20] == values[11] == values[0] == 0.0
    again = Priorities.private(LEAVES, clock)
    again.restore(240, values)
    np.testing.assert_array_equal(again.values(240, 340), values)
    assert held(again) == held(priorities)
    # New transitions get the largest priority so far, and the old ones are not inserted again.
    again.advance(frames(250, 252, 328, 332), 250)
    assert again.values(250, 254).tolist() == [5.0, 0.0, 0.25, 0.0]
    assert again.values(332, 333).tolist() == [5.0]
