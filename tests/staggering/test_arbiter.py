"""What the environment executes, case by case, and its promises under any deposits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.staggering.arbiter import Arbiter, Deposited, Source


class ActionStore:
    """A plain list of deposits, registered in this order."""

    def __init__(self, *deposits: tuple[int, int]) -> None:
        self.deposits = [
            Deposited(worker, frame, tick, f"{frame}->{tick}", 1, float(worker))
            for worker, (frame, tick) in enumerate(deposits)
        ]

    def at(self, tick: int) -> Sequence[Deposited]:
        return [d for d in self.deposits if d.tick == tick]

    def late(self, tick: int, newer_than_frame: int) -> Deposited | None:
        late = [d for d in self.deposits if d.tick < tick and d.frame > newer_than_frame]
        return max(late, key=lambda d: (d.frame, d.tick), default=None)


def executed(arbiter: Arbiter, tick: int, *deposits: tuple[int, int]) -> tuple[Source, int]:
    choice = arbiter.choose(tick, ActionStore(*deposits))
    return choice.source, choice.deposit.frame


def test_nothing_there_is_the_default_behaviour() -> None:
    choice = Arbiter().choose(5, ActionStore())
    assert (choice.source, choice.deposit.frame, choice.deposit.worker) == (Source.DEFAULT, -1, -1)
    assert choice.deposit.action is None


def test_the_deposit_for_the_tick_is_executed_whole() -> None:
    choice = Arbiter().choose(10, ActionStore((3, 9), (4, 10), (5, 11)))
    assert choice.source is Source.AGENT
    assert (choice.deposit.frame, choice.deposit.worker, choice.deposit.action) == (4, 1, "4->10")


def test_of_one_frame_for_the_same_tick_the_one_registered_last_wins() -> None:
    choice = Arbiter().choose(10, ActionStore((6, 10), (6, 10)))
    assert (choice.deposit.frame, choice.deposit.worker) == (6, 1)


def test_an_older_frame_registered_later_is_not_re_used_either() -> None:
    assert executed(Arbiter(), 10, (7, 11), (5, 11)) == (Source.REUSED, 7)


def test_a_late_action_is_executed_once() -> None:
    arbiter = Arbiter(fill=0)
    assert executed(arbiter, 10, (3, 8), (2, 9)) == (Source.AGENT, 3)
    assert executed(arbiter, 11, (3, 8), (2, 9)) == (Source.DEFAULT, -1)


def test_a_late_action_goes_before_re_use() -> None:
    assert executed(Arbiter(), 10, (3, 9), (5, 11)) == (Source.AGENT, 3)


@pytest.mark.parametrize(("fill", "source"), [(0, 0), (1, 0), (2, 2), (3, 2)])
def test_fill_limits_how_far_ahead_an_action_is_re_used(fill: int, source: int) -> None:
    assert executed(Arbiter(fill), 10, (7, 12))[0] == source


def test_the_nearest_early_deposit_is_re_used_and_still_executed_at_its_own_tick() -> None:
    arbiter = Arbiter()
    store = ((6, 11), (7, 12))
    assert executed(arbiter, 10, *store) == (Source.REUSED, 6)
    assert executed(arbiter, 11, *store) == (Source.AGENT, 6)
    assert executed(arbiter, 12, *store) == (Source.AGENT, 7)


@pytest.mark.parametrize(("frame", "source"), [(5, Source.DEFAULT), (6, Source.REUSED)])
def test_re_use_may_hold_a_frame_but_never_goes_back(frame: int, source: Source) -> None:
    assert executed(Arbiter(last_frame=6), 10, (frame, 11))[0] == source


deposits = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda pair: (pair[0], sum(pair))),
    max_size=30,
)


@given(deposits, st.integers(0, 3))
def test_promises(store: list[tuple[int, int]], fill: int) -> None:
    arbiter = Arbiter(fill)
    highest = -1
    late_executed: set[int] = set()
    for tick in range(30):
        # A deposit exists once its frame does.
        there = [d for d in store if d[0] < tick]
        choice = arbiter.choose(tick, ActionStore(*there))
        exact = [frame for frame, target in there if target == tick]
        ahead = [f for f, target in there if tick < target <= tick + fill and f >= highest]
        if exact:
            assert (choice.source, choice.deposit.frame) == (Source.AGENT, max(exact))
        elif choice.source == Source.AGENT:
            assert choice.deposit.frame > highest
            assert choice.deposit.frame not in late_executed
            late_executed.add(choice.deposit.frame)
        elif choice.source == Source.REUSED:
            assert choice.deposit.frame >= highest
            assert choice.deposit.frame in ahead
        else:
            assert not any(target < tick and frame > highest for frame, target in there)
        highest = max(highest, choice.deposit.frame)
        # A restarted environment goes on alike.
        arbiter = Arbiter(fill, arbiter.last_frame)
        assert arbiter.last_frame == highest


def chunk(frame: int, first: int, actions: int) -> list[tuple[int, int]]:
    """What one inference deposits."""
    return [(frame, first + position) for position in range(actions)]


def test_a_chunk_covers_ticks_for_which_nothing_newer_is_promised() -> None:
    arbiter, promised = Arbiter(fill=0), [*chunk(3, 10, 5), *chunk(5, 12, 2), *chunk(4, 11, 2)]
    frames = [executed(arbiter, tick, *promised)[1] for tick in range(10, 16)]
    # At tick 14 only the oldest chunk has an action, and at 15 none has.
    assert frames == [3, 4, 5, 5, 3, -1]


def test_what_a_chunk_had_for_ticks_that_are_over_is_not_executed_late() -> None:
    """The chunk came in time for its third tick: each later action is executed at its own tick."""
    arbiter, promised = Arbiter(), chunk(5, 8, 4)
    actions = [arbiter.choose(tick, ActionStore(*promised)).deposit for tick in (10, 11, 12)]
    assert [each.action if each else None for each in actions] == ["5->10", "5->11", None]


def test_of_a_chunk_that_comes_too_late_the_last_action_is_executed_once() -> None:
    arbiter, promised = Arbiter(), chunk(5, 3, 4)
    actions = [arbiter.choose(tick, ActionStore(*promised)).deposit for tick in (10, 11)]
    assert [each.action if each else None for each in actions] == ["5->6", None]
