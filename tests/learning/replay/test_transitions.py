"""Transitions against a slow, obvious transcription of what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Rows, row_dtype
from rtagent.staggering.arbiter import Source
from tests.conftest import make_blueprint

pytestmark = pytest.mark.filterwarnings("ignore:invalid value")
State = Literal["decision", "executed"]
Unit = Literal["ticks", "decisions"]
Found = tuple[int, int, float, float, int, bool]
DTYPE = row_dtype(make_blueprint())


@dataclass
class Decision:
    """One decision of the slow transcription."""

    observed: int
    executed: int
    action: int
    rewards: list[float]
    """Of its own ticks, from the first on."""


def slow_chains(rows: Rows) -> list[list[Any]]:
    """Runs of rows without a missing tick, within one episode."""
    chains: list[list[Any]] = []
    # A record of numpy takes a microsecond for each look at it.
    for row in (dict(zip(DTYPE.names or (), each, strict=True)) for each in rows.tolist()):
        last = chains[-1][-1] if chains else None
        if (
            last is None
            or last["flags"]
            or row["tick"] != last["tick"] + 1
            or row["episode"] != last["episode"]
        ):
            chains.append([])
        chains[-1].append(row)
    return chains


def slow_decisions(chain: list[Any]) -> list[Decision]:
    decisions: list[Decision] = []
    first = chain[0]["tick"]
    for row in chain:
        by_agent = row["source"] in (Source.AGENT, Source.REUSED)
        of_this_episode = first <= row["observed"] < row["tick"]
        newer = all(row["observed"] > each.observed for each in decisions)
        if by_agent and of_this_episode and newer:
            decisions.append(Decision(row["observed"], row["tick"], int(row["action"]), []))
        if decisions:
            decisions[-1].rewards.append(float(row["reward"]))
    return decisions


def slow(
    rows: Rows, gamma: float, n_step: int, state: State = "decision", unit: Unit = "ticks"
) -> list[Found]:
    """All transitions of a ledger, one sample at a time."""
    found: list[Found] = []
    chains = slow_chains(rows)
    for number, chain in enumerate(chains):
        open_end = number == len(chains) - 1 and not chain[-1]["flags"]
        decisions, last = slow_decisions(chain), int(chain[-1]["tick"])
        if not decisions:
            continue
        delay = decisions[-1].executed - decisions[-1].observed
        # What would have been executed next.
        decisions.append(Decision(last + 1 - delay, last + 1, 0, []))
        for j, decision in enumerate(decisions[:-1]):
            to = slow_successor(decisions, j, n_step, unit)
            if open_end and (to == len(decisions) - 1 or (
                unit == "ticks" and last < decision.executed + n_step
            )):
                continue
            together = decisions[j:to]
            reward = 0.0
            for i, each in enumerate(together):
                for k, earned in enumerate(each.rewards):
                    time = each.executed + k - decision.executed if unit == "ticks" else i
                    reward += gamma**time * earned
            if not np.isfinite(reward):
                continue
            power = decisions[to].executed - decision.executed if unit == "ticks" else to - j
            frames = [d.observed if state == "decision" else d.executed - 1 for d in decisions]
            terminal = to == len(decisions) - 1 and bool(chain[-1]["flags"] & TERMINATED)
            found.append((frames[j], decision.action, reward, gamma**power, frames[to], terminal))
    return found


def slow_successor(decisions: list[Decision], j: int, n_step: int, unit: Unit) -> int:
    """Which decision follows a transition that begins with decision j."""
    if unit == "decisions":
        return min(j + n_step, len(decisions) - 1)
    to = j + 1
    while to + 1 < len(decisions) and (
        decisions[to + 1].executed - decisions[j].executed <= n_step
    ):
        to += 1
    return to


def random_ledger(rng: np.random.Generator, length: int) -> Rows:
    """Delays that jump, defaults, re-use, going back, ends of all kinds, missing rows.

    Demonstrated actions are negative, and only they.
    """
    rows = np.zeros(length, DTYPE)
    episode, end_rate = 0, rng.choice([0.0, 0.02, 0.2])
    # Views of the columns: numpy takes long to find one.
    each = {name: rows[name] for name in DTYPE.names or ()}
    for tick in range(length):
        each["tick"][tick], each["episode"][tick] = tick, episode
        each["action"][tick] = rng.integers(4)
        each["reward"][tick] = rng.choice([0.0, 1.0, -1.0, 0.25])
        each["source"][tick] = source = rng.choice(3, p=[0.2, 0.6, 0.2])
        each["worker"][tick] = worker = rng.integers(-1, 2)
        if source == Source.AGENT and worker < 0:
            each["action"][tick] -= 4
        each["observed"][tick] = -1 if source == 0 else tick - rng.integers(1, 5)
        if rng.random() < 0.1 and tick:
            each["observed"][tick] = each["observed"][tick - 1]
        if rng.random() < 0.01:
            each["reward"][tick] = rng.choice([np.nan, np.inf, -np.inf])
        if rng.random() < end_rate:
            each["flags"][tick] = rng.choice([0, TERMINATED, TRUNCATED, TERMINATED | TRUNCATED])
            episode += 1
    whole: Rows = rows[rng.random(length) > rng.choice([0.0, 0.05])]
    return whole


def feed_in_pieces(index: DecisionIndex, rows: Rows, rng: np.random.Generator) -> None:
    at = 0
    while at < len(rows):
        step = int(rng.choice([1, 2, 7, 40]))
        index.feed(rows[at : at + step])
        at += step


def contents(index: DecisionIndex) -> list[Found]:
    serials = np.arange(*index.span)
    held, copied = index.get(serials), index.room(len(serials))
    index.prepare(serials, copied).run()
    for name in ("frame", "next_frame", "rows"):
        np.testing.assert_array_equal(getattr(copied, name), getattr(held, name))
    assert held.demonstrated.tolist() == (held.action < 0).tolist()
    return [
        (int(f), int(a), float(r), float(d), int(n), bool(t))
        for f, a, r, d, n, t in zip(
            held.frame, held.action, held.reward, held.discount, held.next_frame, held.terminal,
            strict=True,
        )
    ]


def assert_same(found: list[Found], wanted: list[Found]) -> None:
    assert [(f, a, n, t) for f, a, _, _, n, t in found] == [
        (f, a, n, t) for f, a, _, _, n, t in wanted
    ]
    for column in (2, 3):
        np.testing.assert_allclose(
            [each[column] for each in found], [each[column] for each in wanted], rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("state", ["decision", "executed"])
@pytest.mark.parametrize("unit", ["ticks", "decisions"])
def test_random_ledgers(seed: int, state: State, unit: Unit) -> None:
    rng = np.random.default_rng(seed)
    gamma, n_step = float(rng.choice([0.0, 0.9, 1.0])), int(rng.choice([1, 2, 8, 30]))
    rows = random_ledger(rng, 300)
    index = DecisionIndex(1000, DTYPE["action"], gamma, n_step, state, unit)
    feed_in_pieces(index, rows, rng)
    wanted = slow(rows, gamma, n_step, state, unit)
    assert_same(contents(index), wanted)
    assert len(wanted) > 20
    assert len({each[1] < 0 for each in wanted}) == 2


@pytest.mark.parametrize("seed", range(5))
def test_a_small_ring_keeps_the_newest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_ledger(rng, 400)
    index = DecisionIndex(37, DTYPE["action"], 0.9, 3)
    feed_in_pieces(index, rows, rng)
    assert len(index) == 37
    assert_same(contents(index), slow(rows, 0.9, 3)[-37:])


def ledger(*rows: tuple[int, int, float, int, int]) -> Rows:
    """Rows of (tick, observed, reward, episode, flags); the action is 100 + tick."""
    made = np.zeros(len(rows), DTYPE)
    for row, (tick, observed, reward, episode, flags) in zip(made, rows, strict=True):
        row["tick"], row["observed"], row["reward"] = tick, observed, reward
        row["episode"], row["flags"], row["action"] = episode, flags, 100 + tick
        row["source"] = Source.DEFAULT if observed < 0 else Source.AGENT
    return made


def transitions(rows: Rows, n_step: int = 1) -> list[Found]:
    index = DecisionIndex(100, DTYPE["action"], 0.5, n_step)
    index.feed(rows)
    return contents(index)


@pytest.mark.parametrize(
    ("n_step", "frames"), [(1, [5, 10, 15]), (9, [5, 10]), (10, [10, 15]), (15, [15]), (99, [])]
)
def test_as_many_decisions_as_fit_into_the_ticks(n_step: int, frames: list[int]) -> None:
    rows = ledger(
        *[(tick, tick - 5 if tick % 5 == 0 and tick else -1, 1, 0, 0) for tick in range(21)]
    )
    found = transitions(rows, n_step)
    assert [each[4] for each in found] == frames
    assert [each[3] for each in found] == [0.5 ** (frame - 5 * i) for i, frame in enumerate(frames)]


@pytest.mark.parametrize("flag", [TRUNCATED, TERMINATED, 0])
@pytest.mark.parametrize("n_step", [1, 3])
def test_the_end_of_a_delayed_episode_is_as_late_as_its_last_action(flag: int, n_step: int) -> None:
    """The action of tick 50 would have been computed from frame 44: that is where 43 leads to."""
    rows = ledger(
        *[(tick, max(tick - 6, -1), 1, 0, 0) for tick in range(49)], (49, 43, 1, 0, flag),
        (50, -1, 1, 1, 0),
    )
    found = transitions(rows, n_step)
    left = [min(n_step, 44 - frame) for frame in range(44)]
    assert [(each[0], each[4] - each[0]) for each in found] == list(enumerate(left))
    assert [each[3] for each in found] == [0.5**ticks for ticks in left]
    terminal = bool(flag & TERMINATED)
    assert [each[5] for each in found] == [False] * (44 - n_step) + [terminal] * n_step


@pytest.mark.parametrize("pieces", [1, 6])
def test_an_end_counts_even_if_the_episode_number_stays(pieces: int) -> None:
    rows = ledger(
        (0, -1, 0, 0, 0), (1, 0, 1, 0, 0), (2, 1, 1, 0, TERMINATED), (3, 2, 1, 0, 0),
        (4, 3, 1, 0, 0), (5, 4, 1, 0, 0),
    )
    index = DecisionIndex(100, DTYPE["action"], 0.5, 1)
    for piece in np.array_split(rows, pieces):
        index.feed(piece)
    assert [(f, n, t) for f, _, _, _, n, t in contents(index)] == [
        (0, 1, False), (1, 2, True), (3, 4, False)
    ]


def test_an_action_from_the_future_is_no_decision() -> None:
    rows = ledger(
        (0, -1, 0, 0, 0), (1, 0, 1, 0, 0), (2, 2, 1, 0, 0), (3, 9, 1, 0, 0), (4, 3, 1, 0, 0)
    )
    assert transitions(rows) == [(0, 101, 1.75, 0.125, 3, False)]


def test_a_return_too_large_for_float32_is_left_out() -> None:
    """Of finite rewards, each of which is a float32."""
    rows = ledger(
        *[(tick, tick - 1, 3e38 if tick in (5, 6) else 1.0, 0, 0) for tick in range(12)]
    )
    assert [each[0] for each in transitions(rows, 2)] == [0, 1, 2, 3, 5, 6, 7, 8]


def test_forgetting_is_by_frame() -> None:
    index = DecisionIndex(100, DTYPE["action"], 0.5, 1)
    index.feed(ledger(*[(tick, tick - 1, 1, 0, 0) for tick in range(50)]))
    index.forget(30)
    assert [each[0] for each in contents(index)] == list(range(30, 48))
    index.forget(0)
    assert len(index) == 18


@given(seed=st.integers(0, 2**32 - 1), n_step=st.integers(1, 9), capacity=st.integers(20, 400))
def test_a_ring_that_wraps_round_and_shrinks(seed: int, n_step: int, capacity: int) -> None:
    """What is read late is missing; what lies below the floor is gone, whenever that rises."""
    rng = np.random.default_rng(seed)
    rows = random_ledger(rng, 300)
    index = DecisionIndex(capacity, DTYPE["action"], 0.9, n_step)
    seen: list[Any] = []
    at = floor = 0
    while at < len(rows):
        stop = at + int(rng.choice([1, 5, 40]))
        tick = int(rows["tick"][min(stop, len(rows)) - 1])
        floor = max(floor, tick - capacity + 1)
        if rng.random() < 0.2:
            floor = max(floor, tick - int(rng.integers(capacity)))
        part = rows[at:stop]
        part = part[part["tick"] >= floor]
        index.feed(part)
        index.forget(floor)
        seen.extend(part)
        at = stop
    wanted = [each for each in slow(np.array(seen, DTYPE), 0.9, n_step) if each[0] >= floor]
    assert_same(contents(index), wanted)
    numbers = np.arange(-1, 301)
    serials = {each[0]: index.span[0] + i for i, each in enumerate(wanted)}
    found, whole = index.find(numbers)
    assert found.tolist() == [serials.get(each, -1) for each in numbers.tolist()]
    assert not whole
    assert index.frames(*index.span).tolist() == [each[0] for each in wanted]


def test_a_transition_takes_little_memory() -> None:
    index = DecisionIndex(1000, DTYPE["action"], 0.5, 1)
    columns = [each for each in vars(index).values() if isinstance(each, np.ndarray)]
    assert sum(each.nbytes for each in columns if len(each) == 1000) == 28 * 1000
