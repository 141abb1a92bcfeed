"""What the tests of the saved replay share: rings with a world that writes them, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.learning.replay.transitions import DecisionIndex
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ledger import TERMINATED
from rtagent.memory.ring import GUARD_TICKS
from rtagent.staggering.arbiter import Source
from rtagent.storage import replay_files, replay_snapshot
from rtagent.storage.replay_restoring import RestoreReport, restore
from rtagent.storage.replay_snapshot import SaveReport, find, save
from rtagent.storage.signature import Signature
from tests.conftest import make_blueprint
from tests.rows import private_rings

SIGNATURE = Signature("Game-v0", "nature", "4x6x5 uint8", "Discrete(3)")
CHUNK = 16
CAPACITY = 100
SHOWN = CAPACITY - GUARD_TICKS

PIXELS = make_blueprint()
VECTORS = make_blueprint(
    frame_shape=(3,), frame_dtype="float32", frame_stack=2, action_shape=(3,),
    action_dtype="float32",
)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16 ticks, copied 3 at a time."""
    monkeypatch.setattr(replay_snapshot, "CHUNK_TICKS", CHUNK)
    monkeypatch.setattr(replay_files, "PIECE_BYTES", 3 * (30 + 16))


class Rings:
    """A frame ring and a ledger, and a world that writes them, in each run other ones."""

    def __init__(
        self, blueprint: Blueprint = PIXELS, capacity: int = CAPACITY, run: int = 0
    ) -> None:
        self.frames, self.ledger = private_rings(blueprint, capacity)
        self.blueprint, self.run = blueprint, run

    def write(self, ticks: int) -> Rings:
        """Go on for so many ticks: episodes of ten, of which each third ends by itself."""
        for tick in range(self.ledger.newest + 1, self.ledger.newest + 1 + ticks):
            self.write_row(tick)
            self.publish(tick)
        return self

    def write_row(self, tick: int) -> None:
        rng = np.random.default_rng([tick, self.run])
        last = tick % 10 == 9
        self.ledger.write(
            tick,
            observed=tick - 1 - tick % 2,
            time_ns=int(rng.integers(2**62)),
            registered_ns=int(rng.integers(2**62)),
            lateness_ns=-tick,
            reward=float(rng.normal()),
            weights_version=tick // 7,
            episode=tick // 10,
            worker=tick % 4,
            source=Source.AGENT,
            flags=TERMINATED * (last and tick // 10 % 3 == 0),
            action=rng.normal(size=3) if self.blueprint.action_shape else tick % 3,
        )

    def publish(self, tick: int) -> None:
        rng = np.random.default_rng([tick, self.run, 1])
        shape = self.blueprint.frame_shape
        if self.blueprint.frame_dtype == "uint8":
            frame = rng.integers(256, size=shape, dtype=np.uint8)
        else:
            frame = rng.normal(size=shape).astype(np.float32)
        self.frames.publish(tick, frame, tick // 10 * 10)

    def save(self, folder: Path, **options: Any) -> SaveReport:
        return save(folder, SIGNATURE, self.frames, self.ledger, **options)


def load(
    folder: Path, blueprint: Blueprint = PIXELS, capacity: int = CAPACITY, **options: Any
) -> tuple[Rings, RestoreReport]:
    """What a folder holds, in new rings."""
    manifest = find(folder, SIGNATURE)
    rings = Rings(blueprint, capacity)
    report = restore(folder, manifest, SIGNATURE, rings.frames, rings.ledger, **options)
    return rings, report


def content(rings: Rings, oldest: int) -> list[bytes]:
    """Everything that can be read of ticks oldest..newest, byte for byte."""
    frames, ledger = rings.frames, rings.ledger
    ticks = np.arange(oldest, ledger.newest + 1)
    slots = ticks % frames.capacity
    whole = frames.stamps[slots] == ticks
    return [
        ledger.read(oldest, ledger.newest + 1).tobytes(),
        np.flatnonzero(whole).tobytes(),
        frames.frames[slots][whole].tobytes(),
        frames.episode_starts[slots][whole].tobytes(),
    ]


def transitions(rings: Rings, oldest: int) -> list[list[Any]]:
    """What a learner makes of it."""
    index = DecisionIndex(CAPACITY, rings.ledger.dtype["action"], 0.9, 3)
    index.feed(rings.ledger.read(oldest, rings.ledger.newest + 1))
    found = index.get(np.arange(*index.span))
    columns = (
        found.frame, found.action, found.reward, found.discount, found.next_frame, found.terminal,
        found.demonstrated,
    )
    return [column.tolist() for column in columns]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def priorities(first: int, stop: int) -> np.ndarray:
    """Priorities that tell their ticks."""
    return np.arange(first, stop) / 7
