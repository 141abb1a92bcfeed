"""The memory of a run: laid out, checked against the machine, resized while others use it."""

from __future__ import annotations

import os
import pickle
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from rtagent.clock import MonotonicClock
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.errors import UserError
from rtagent.memory import arena as arena_module
from rtagent.memory.arena import PAGE, Arena
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.double_buffer import TooLong
from rtagent.memory.ledger import checksum
from rtagent.memory.world import CLUSTER_CAPACITY, LEAST_RESERVE_TICKS, World, WorldMemory
from rtagent.processes.kernel_state import is_stopped
from rtagent.processes.scheduling import enter_realtime
from tests.conftest import make_blueprint, open_descriptors
from tests.forked import Forked, eventually
from tests.rows import write_row

MIB = 1 << 20
ATARI = make_blueprint(frame_shape=(84, 84))
SEED = 20_240_301


def config(capacity: int, *settings: str) -> Config:
    return load_config(
        overrides=[f"replay.capacity={capacity}", "learning.learning_starts=64", *settings]
    )


@contextmanager
def laid_out(
    capacity: int, *settings: str, blueprint: Blueprint = ATARI, first_tick: int = 0
) -> Iterator[WorldMemory]:
    memory = WorldMemory(config(capacity, *settings), blueprint, first_tick)
    try:
        yield memory
    finally:
        memory.close()


def ring_pages(memory: WorldMemory) -> int:
    pages = memory.pages()
    return pages["frames"] + pages["ledger"]


def picture(number: int) -> np.ndarray:
    """A picture; of 251 in succession no two are the same."""
    return np.full((84, 84), 1 + number % 251, np.uint8)


def add(world: World, number: int) -> None:
    write_row(
        world.ledger, number, time_ns=number * 3, lateness_ns=-number, reward=number % 99,
        episode=number // 40, action=number % 3,
    )
    world.frames.publish(number, picture(number), number - number % 40)


def test_bytes_of_a_tick() -> None:
    with laid_out(1000) as memory:
        assert memory.bytes_per_tick == 84 * 84 + 2 * 8 + 72


def test_a_cluster_has_a_document_of_its_own() -> None:
    with laid_out(1000) as memory:
        assert "cluster" not in memory.handles.arenas
        assert World(memory.handles).cluster is None
    with laid_out(1000, "learning.where=cluster") as memory:
        written, read = World(memory.handles).cluster, World(memory.handles).cluster
        assert read.read() == {}
        # Of a thousand nodes.
        document = {"reason": "x" * 250_000}
        written.write(document)
        assert read.read() == document
        with pytest.raises(TooLong):
            written.write({"reason": "x" * CLUSTER_CAPACITY})


def test_a_closed_world_keeps_no_descriptor_of_its_locks() -> None:
    with laid_out(1000, "learning.prioritized=true") as memory:
        before, world = open_descriptors(), World(memory.handles)
        held = world.claim_lock, world.turns, world.priorities

        def locks() -> list[str]:
            """Those opened since; a mapping keeps a descriptor, too, as long as it is there."""
            new = open_descriptors().items() - before.items()
            names = {f"/memfd:rtagent-{each}" for each in ("claims", "apply", "priorities-lock")}
            return [path for _, path in new if path.split()[0] in names]

        assert len(locks()) == len(held)
        world.close()
        world.close()
        assert locks() == []


def test_starts_small_and_grows_as_ticks_come() -> None:
    with laid_out(20_000) as memory:
        world = World(memory.handles)
        assert set(memory.pages()) == set(memory.handles.arenas)
        assert ring_pages(memory) < 0.05 * 20_000 * memory.bytes_per_tick
        assert memory.pages()["weights"] == memory.handles.arenas["weights"].size
        for number in range(1000):
            held = ring_pages(memory)
            add(world, number)
            # Nothing was left to the page faults of the writer.
            assert ring_pages(memory) == held
            if number % 50 == 0:
                assert memory.maintain(number, 20_000)
        assert world.frames.oldest == world.ledger.oldest == 0


def test_shrinking_gives_memory_back() -> None:
    with laid_out(4000) as memory:
        world = World(memory.handles)
        for number in range(4100):
            if number % 50 == 0:
                memory.maintain(number - 1, 4000)
            add(world, number)
        full = ring_pages(memory)
        assert full == sum(memory.handles.arenas[name].size for name in ("frames", "ledger"))
        calls = 1
        while not memory.maintain(4099, 1000, budget=4 * MIB):
            calls += 1
        assert calls == -(-3000 * memory.bytes_per_tick // (4 * MIB))
        kept = (1000 + LEAST_RESERVE_TICKS) * memory.bytes_per_tick
        assert kept <= ring_pages(memory) < kept + 12 * PAGE
        assert world.frames.oldest == world.ledger.oldest == 3100
        assert world.frames.frame(3099) is None
        for number in range(3100, 4100):
            frame, row = world.frames.frame(number), world.ledger.row(number)
            assert (frame == picture(number)).all()
            assert checksum(row) == row["crc"]


def test_run_that_begins_after_a_restored_replay() -> None:
    with laid_out(4000, first_tick=70_010) as memory:
        world = World(pickle.loads(pickle.dumps(memory.handles)))
        assert world.first_tick == 70_010
        for ring in (world.frames, world.ledger):
            assert ring.newest == 70_009
            assert ring.oldest == 70_010
        assert len(world.ledger.read(0, 80_000)) == 0
        add(world, 70_010)
        out = np.zeros((4, 84, 84), np.uint8)
        # The frames before it in its episode are not there.
        assert not world.frames.observation(70_010, out)
        assert world.ledger.row(70_010) is not None


@pytest.mark.parametrize("capacity", [300, 5000, 1_000_000])
@pytest.mark.parametrize("rate_hz", [5.0, 60.0, 1000.0])
def test_ticks_in_a_budget(capacity: int, rate_hz: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "available_memory", lambda: 1 << 40)
    with laid_out(
        capacity, "r3.memory_budget_mb=64", blueprint=make_blueprint(rate_hz=rate_hz)
    ) as memory:
        rng = random.Random(SEED)
        before = -(10**9)
        for ticks in sorted(rng.randrange(2 * capacity) for _ in range(200)):
            limit = memory.ticks_in(ticks * memory.bytes_per_tick)
            assert before <= limit <= capacity
            before = limit
            if ticks >= capacity:
                assert limit == capacity
            elif limit > 0:
                assert limit + memory._reserve_ticks(limit) <= ticks
                # Little is given away.
                most = ticks + 1 - max(LEAST_RESERVE_TICKS, rate_hz) - ticks / 64
                assert limit >= most - 1


def test_budget_limits_what_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "available_memory", lambda: 200 * MIB)
    descriptors = open_descriptors()
    with pytest.raises(UserError, match="too little memory"):
        WorldMemory(config(100_000), ATARI)
    with pytest.raises(UserError, match="too little memory"):
        WorldMemory(config(100_000, "r3.memory_budget_mb=250"), ATARI)
    with laid_out(100_000, "r3.memory_budget_mb=100") as memory:
        assert ring_pages(memory) < 10 * MIB
    # The budget is for all of the memory: what is not replay was asked for beyond it.
    with laid_out(100_000, "r3.memory_budget_mb=199"):
        pass
    del memory
    with pytest.raises(UserError, match="too little memory"):
        # A budget beyond the whole ring asks for no more than that.
        WorldMemory(config(40_000, "r3.memory_budget_mb=5000"), ATARI)
    with laid_out(20_000, "r3.memory_budget_mb=5000"):
        pass
    assert open_descriptors().items() <= descriptors.items()


def test_lack_of_memory_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = open_descriptors()
    reserve = Arena.reserve

    def refuse(arena: Arena, start: int, stop: int) -> None:
        if arena.name == "ledger" and stop > PAGE:
            raise UserError("no memory for ledger")
        reserve(arena, start, stop)

    monkeypatch.setattr(Arena, "reserve", refuse)
    with pytest.raises(UserError, match="no memory for ledger"):
        WorldMemory(config(5000), ATARI)
    assert open_descriptors().items() <= descriptors.items()


# ---- while others use it

CAPACITY = 3000
RESIZES = 12
Counts = np.ndarray


def write_for_ever(memory: WorldMemory, counts: Counts) -> None:
    """Write as the environment does, with memory locked where that is permitted, but faster."""
    world, clock = World(memory.handles), MonotonicClock()
    enter_realtime("auto")
    number = world.ledger.newest
    while True:
        for _ in range(4):
            number += 1
            add(world, number)
        counts[0] = number
        clock.sleep_until(clock.now() + 0.001)


def read_for_ever(memory: WorldMemory, counts: Counts, index: int) -> None:
    """Look at frames and rows from below the floor to the newest, until told to stop."""
    world = World(memory.handles)
    rng = random.Random(SEED + index)
    out = np.zeros((4, 84, 84), np.uint8)
    while not counts[1]:
        oldest, newest = world.frames.oldest, world.frames.newest
        number = rng.randrange(max(0, oldest - 20), newest + 1)
        if world.frames.observation(number, out):
            start = number - number % 40
            for shown, each in zip(out, range(number - 3, number + 1), strict=True):
                assert (shown == picture(max(each, start))).all(), number
            counts[2 + index] += 1
        ticks = np.array([rng.randrange(max(0, oldest - 50), newest + 1) for _ in range(32)])
        rows, whole = world.ledger.at(ticks)
        assert (rows["time_ns"][whole] == 3 * ticks[whole]).all()
        rows = world.ledger.read(oldest - 5, oldest + 40)
        assert all(checksum(row) == row["crc"] for row in rows)
        assert (rows["lateness_ns"] == -rows["tick"]).all()


@pytest.mark.process
def test_resized_under_load(shared: Callable[[int], memoryview], forked: Forked) -> None:
    counts = np.frombuffer(shared(4096), np.int64)
    rng = random.Random(SEED)
    with laid_out(CAPACITY) as memory:
        world = World(memory.handles)
        for number in range(500):
            add(world, number)
        writer = forked.start(lambda: write_for_ever(memory, counts))
        readers = [
            forked.start(lambda index=index: read_for_ever(memory, counts, index))
            for index in range(2)
        ]
        held = []

        def settled(limit: int, until: int) -> bool:
            done = memory.maintain(world.ledger.newest, limit, budget=MIB)
            return done and world.ledger.newest > until

        for turn in range(RESIZES):
            limit = CAPACITY if turn % 2 else rng.randrange(200, 900)
            until = world.ledger.newest + rng.randrange(200, 800)
            assert eventually(partial(settled, limit, until))
            if limit < CAPACITY:
                # What a writer adds that goes on meanwhile depends on who gets a core.
                os.kill(writer, signal.SIGSTOP)
                assert eventually(lambda: is_stopped(writer))
                assert eventually(partial(settled, limit, until))
                held.append(ring_pages(memory) / memory.bytes_per_tick - limit)
                os.kill(writer, signal.SIGCONT)
        assert eventually(lambda: min(counts[2:4]) > 200)
        counts[1] = 1
        # A reader that saw anything torn has left with a traceback.
        assert [forked.wait(pid) for pid in readers] == [0, 0]
        forked.kill(writer)
    # The reserve, and what readers may have brought back.
    assert max(held) < 64 + 200 + MIB / 7136 + 50, held
