"""Replay: what leaves it is what the ring holds, also while the ring is being overwritten."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.replay import Replay
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.gather import Gather
from rtagent.memory.ledger import TERMINATED, TRUNCATED
from rtagent.staggering.arbiter import Source
from tests.rows import private_rings, write_row

pytestmark = pytest.mark.usefixtures("either_way")
STACK = 4
EPISODE = 25
GAMMA = 0.9


class ChangingFrames:
    """Stands in for a ring's pixels: something happens in the middle of a copy."""

    def __init__(self, frames: np.ndarray, happens: Callable[[], None]) -> None:
        self._frames, self._happens = frames, happens
        self.shape = frames.shape

    def take(self, slots: np.ndarray, **options: Any) -> None:
        """Half of the copy comes before what happens."""
        half = len(slots) // 2
        out = options.pop("out")
        self._frames.take(slots[:half], out=out[:half], **options)
        self._happens()
        self._frames.take(slots[half:], out=out[half:], **options)


@pytest.fixture
def during_copies(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Makes something happen in each copy that is prepared from now on."""

    def arrange(happens: Callable[[], None]) -> None:
        def prepare(*args: Any) -> Gather:
            gather = Gather(*args)
            gather._frames = ChangingFrames(gather._frames, happens)  # type: ignore[assignment]
            return gather

        for user in ("batch", "replay"):
            monkeypatch.setattr(f"rtagent.learning.replay.{user}.prepare_gather", prepare)

    return arrange


def picture(number: int) -> np.ndarray:
    """A frame that tells its number."""
    return np.frombuffer(np.full(4, number, "<u4").tobytes(), np.uint8).reshape(4, 4)


def numbers_in(stacks: torch.Tensor) -> np.ndarray:
    """The numbers of the frames, (B, stack); each must be whole."""
    raw = np.ascontiguousarray(stacks.numpy()).reshape(len(stacks), STACK, 16)
    words = raw.view("<u4")
    assert (words == words[:, :, :1]).all()
    return words[:, :, 0].astype(np.int64)


class World:
    """A frame ring and a ledger that hold 300 ticks."""

    def __init__(self, shapes: Blueprint) -> None:
        self.frames, self.ledger = self.rings = private_rings(shapes, 300)

    def replay(self, **learning: Any) -> Replay:
        settings = {"n_step": 2, "gamma": GAMMA, **learning}
        return Replay(*self.rings, LearningConfig.model_validate(settings))

    def tick(self, tick: int, first: int, **row: Any) -> None:
        self.frames.publish(tick, picture(tick), first)
        write_row(self.ledger, tick, **row)

    def play(self, start: int, stop: int) -> None:
        """Episodes of 25 ticks, a delay of one; the action tells the observed frame.

        Every third tick is demonstrated.
        """
        for tick in range(start, stop):
            self.tick(
                tick, tick - tick % EPISODE, action=tick - 1, reward=float(tick),
                episode=tick // EPISODE,
                flags=TERMINATED if tick % EPISODE == EPISODE - 1 else 0,
                worker=0 if tick % 3 else -1,
            )

    def played(self, ticks: int, **learning: Any) -> Replay:
        """A replay that has taken in so many ticks of play."""
        self.play(0, ticks)
        replay = self.replay(**learning)
        replay.refresh()
        return replay


@pytest.fixture
def blueprint(make_blueprint: Callable[..., Blueprint]) -> Blueprint:
    return make_blueprint((4, 4), "uint8", STACK)


@pytest.fixture
def world(blueprint: Blueprint) -> World:
    return World(blueprint)


def sampled(replay: Replay, count: int, seed: int = 0) -> Batch:
    """A batch; there is one."""
    batch = replay.sample(count, np.random.default_rng(seed))
    assert batch is not None
    return batch


def check(batch: Any, n_step: int = 2) -> None:
    """Each sample of a batch against what `play` played."""
    seen, following = numbers_in(batch.observations), numbers_in(batch.next_observations)
    assert batch.frames.tolist() == batch.actions.tolist()
    assert batch.demonstrated.tolist() == ((batch.actions + 1) % 3 == 0).tolist()
    for i, action in enumerate(batch.actions.tolist()):
        first = action - action % EPISODE
        last = first + EPISODE - 1
        assert seen[i].tolist() == [max(first, action + o) for o in range(-3, 1)]
        successor = min(action + n_step, last)
        if not batch.terminals[i]:
            assert following[i].tolist() == [max(first, successor + o) for o in range(-3, 1)]
        assert bool(batch.terminals[i]) == (action + n_step >= last)
        steps = min(n_step, last - action)
        assert batch.discounts[i].item() == pytest.approx(GAMMA**steps)
        reward = sum(GAMMA**k * (action + 1 + k) for k in range(steps))
        assert batch.rewards[i].item() == pytest.approx(reward)


@pytest.mark.parametrize("ticks", [60, 1000])
@pytest.mark.parametrize("n_step", [1, 2, 4, 7])
def test_batches_hold_the_played_transitions(ticks: int, n_step: int, world: World) -> None:
    replay = world.replay(n_step=n_step)
    rng = np.random.default_rng(0)
    drawn: set[int] = set()
    for stop in range(20, ticks + 1, 20):
        world.play(stop - 20, stop)
        replay.refresh()
        for count in (1, 8, 16, 23):
            batch = replay.sample(count, rng)
            assert len(batch.actions) == count
            assert batch.observations.dtype == torch.uint8
            assert batch.weights.tolist() == [1.0] * count
            check(batch, n_step)
            drawn |= set(batch.actions.tolist())
    assert len(drawn) > 0.5 * ticks * (EPISODE - 1) / EPISODE


@pytest.mark.parametrize(("discount", "power"), [("ticks", 3), ("decisions", 1)])
def test_gamma_counts_the_configured_unit(discount: str, power: int, world: World) -> None:
    """A decision for every third tick, each tick with a reward of 1."""
    for tick in range(200):
        source = Source.DEFAULT if tick % 3 else Source.AGENT
        world.tick(tick, 0, action=tick - 1, reward=1.0, source=source)
    replay = world.replay(n_step=3 if discount == "ticks" else 1, discount=discount)
    replay.refresh()
    batch = sampled(replay, 40)
    assert batch.actions.tolist() == batch.frames.tolist()
    assert (numbers_in(batch.next_observations)[:, -1] == batch.frames + 3).all()
    assert batch.discounts.tolist() == pytest.approx([GAMMA**power] * 40)
    reward = 1 + GAMMA + GAMMA**2 if discount == "ticks" else 3.0
    assert batch.rewards.tolist() == pytest.approx([reward] * 40)


def test_stacks_that_overlap_are_copied_once(world: World) -> None:
    replay = world.played(100, n_step=1)
    batch = sampled(replay, 16)
    states, successors = batch.observations, batch.next_observations
    assert successors.data_ptr() - states.data_ptr() == states[0, 0].numel()


def test_a_buffer_keeps_its_batch(world: World) -> None:
    replay, rng = world.played(290), np.random.default_rng(0)
    buffers = [replay.new_buffer() for _ in range(3)]
    batches = [replay.sample(16, rng, out=buffer) for buffer in buffers]
    replay.sample(16, rng)
    world.play(290, 900)
    for batch in batches:
        check(batch)


@pytest.mark.parametrize("n_step", [1, 2])
def test_frames_below_the_floor_are_never_sampled(
    n_step: int, world: World, during_copies: Any
) -> None:
    frames, ledger = world.rings

    def shrink() -> None:
        for ring in (ledger, frames):
            ring.raise_floor(min(frames.floor + 20, 160))
        frames.frames[: frames.floor] = 0

    during_copies(shrink)
    replay = world.played(250, n_step=n_step)
    while frames.floor < 160:
        check(sampled(replay, 32, frames.floor), n_step)
    batch = sampled(replay, 2048)
    assert batch.frames.min() == 163
    # Nor is it looked at: to read memory that has been returned would take it back.
    assert replay.index.frames(*replay.index.span)[0] == 163
    frames.raise_floor(249)
    replay.refresh()
    assert len(replay) == 0


def test_a_row_waits_for_its_frame(world: World) -> None:
    world.play(0, 10)
    replay = world.replay()
    write_row(world.ledger, 10, flags=TERMINATED, episode=0)
    assert replay.refresh() == 10
    world.frames.publish(10, picture(10), 0)
    assert replay.refresh() == 1
    assert replay.index.get(np.arange(*replay.index.span)).terminal.tolist()[-1]


def test_nothing_to_sample_is_none(world: World) -> None:
    replay = world.replay()
    assert replay.refresh() == 0
    assert replay.sample(4, np.random.default_rng(0)) is None
    assert replay.ticks == 0


def test_a_slow_learner_never_gets_a_lost_frame(world: World) -> None:
    replay = world.played(290)
    world.play(290, 500)
    for seed in range(20):
        batch = sampled(replay, 16, seed)
        assert batch.actions.min() >= 500 - 300
        check(batch)
    world.play(500, 900)
    assert replay.sample(16, np.random.default_rng(0)) is None
    replay.refresh()
    check(sampled(replay, 16))


@pytest.mark.parametrize("n_step", [1, 2])
def test_samples_torn_during_the_copy_are_drawn_again(
    n_step: int, world: World, during_copies: Any
) -> None:
    at = [300]

    def the_world_goes_on() -> None:
        world.play(at[0], at[0] + 10)
        at[0] += 10

    during_copies(the_world_goes_on)
    replay = world.played(300, n_step=n_step)
    batch = sampled(replay, 64)
    assert at[0] > 300 + 20
    check(batch, n_step)


def test_the_frame_of_a_terminal_state_may_be_lost(world: World) -> None:
    """As that of an environment that was killed between row and frame."""
    world.play(0, 26)
    # Without frame 10, too, so that batches are mended.
    world.frames.stamps[[10, 24]] = -1
    replay = world.replay(n_step=1)
    replay.refresh()
    batch = sampled(replay, 256)
    assert sorted(set(batch.frames.tolist())) == [*range(9), *range(14, 24)]
    assert batch.terminals.tolist() == (batch.frames == 23).tolist()


def test_there_is_no_batch_if_the_ring_keeps_losing_its_frames(
    world: World, during_copies: Any
) -> None:
    during_copies(lambda: world.frames.stamps.fill(-1))
    replay = world.played(300)
    assert replay.sample(16, np.random.default_rng(0)) is None


def test_a_backlog_is_taken_in_by_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtagent.learning.replay.replay.ROWS_PER_REFRESH", 70)
    world.play(0, 200)
    replay, whole, at_once = world.replay(), world.replay(), world.replay()
    assert [replay.refresh() for _ in range(4)] == [70, 70, 60, 0]
    at_once.catch_up()
    monkeypatch.undo()
    whole.refresh()
    assert whole.index.span == replay.index.span == at_once.index.span


def test_a_backlog_begins_where_the_ring_does(world: World) -> None:
    """A learner that starts after days does not go through every tick since the first."""
    world.play(0, 3000)
    replay = world.replay()
    assert replay.refresh() == 3000 - world.ledger.oldest
    assert len(replay) > 200


def test_a_torn_row_does_not_end_the_catching_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.play(0, 200)
    world.ledger.stamps[30] = -1
    replay, whole = world.replay(), world.replay()
    whole.refresh()
    monkeypatch.setattr("rtagent.learning.replay.replay.ROWS_PER_REFRESH", 70)
    replay.catch_up()
    assert replay.index.span == whole.index.span


def test_rows_for_which_there_was_no_memory_are_not_taken_in_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.play(0, 60)
    replay = world.replay()
    feed = replay.index.feed

    def fail(rows: Any) -> None:
        feed(rows[:20])
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(replay.index, "feed", fail)
        with pytest.raises(MemoryError):
            replay.refresh()
    assert replay.refresh() == 0
    world.play(60, 90)
    replay.refresh()
    frames = replay.index.frames(*replay.index.span)
    assert (np.diff(frames) > 0).all()
    assert set(frames.tolist()) <= {*range(20), *range(60, 90)}


@pytest.mark.parametrize("n_step", [1, 3])
def test_continuous_actions_come_out_as_they_went_in(n_step: int, blueprint: Blueprint) -> None:
    shapes = replace(blueprint, action_shape=(2,), action_dtype="float32")
    world = World(shapes)
    for tick in range(400):
        flags = TRUNCATED if tick % EPISODE == EPISODE - 1 else 0
        world.tick(
            tick, tick - tick % EPISODE, action=[tick - 1 + 0.25, -1.0], episode=tick // EPISODE,
            flags=flags,
        )
    replay = world.replay(n_step=n_step)
    replay.refresh()
    batch = sampled(replay, 40, seed=1)
    assert batch.actions.dtype == torch.float32
    wanted = np.stack([batch.frames + 0.25, np.full(40, -1.0)], axis=1)
    np.testing.assert_array_equal(batch.actions.numpy(), wanted.astype(np.float32))
    assert not batch.terminals.any()
