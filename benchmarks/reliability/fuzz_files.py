"""The fuzz targets that read files, each with a way to make and a way to read an example."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.reliability import hostile
from benchmarks.reliability.fuzz_states import AT_ONCE, states
from benchmarks.reliability.fuzz_target import Make, Target, Use, each
from benchmarks.worlds.shapes import blueprint
from rtagent.config_sources import load_config
from rtagent.env.donkey.protocol import ProtocolError
from rtagent.env.donkey.telemetry import read
from rtagent.errors import UserError
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.remote import protocol as remote
from rtagent.remote.answers import Terms, timing_of
from rtagent.remote.protocol import decode, encode
from rtagent.staggering.arbiter import Source
from rtagent.storage.checkpoint import Checkpoint, CheckpointError, Counters, load
from rtagent.storage.checkpoint import save as save_checkpoint
from rtagent.storage.replay_restoring import restore
from rtagent.storage.replay_snapshot import MANIFEST, _crc, find
from rtagent.storage.replay_snapshot import save as save_replay
from rtagent.storage.signature import Signature

SHAPE = (120, 160, 3)
TICKS, CAPACITY = 200, 400
SIGNATURE = Signature("Game-v0", "nature", "4x84x84 uint8", "Discrete(3)")


def messages_of(
    make: Callable[..., bytes], seed: int, name: str, first: int
) -> Iterator[bytes]:
    """Endless messages, from the number `first` on."""
    whole = hostile.as_text(_good_picture())
    number = first
    while True:
        random = Random(f"{seed}/{name}/{number}")
        yield make(random, whole) if make is hostile.to_client else make(random)
        number += 1


def _good_picture() -> bytes:
    random = Random(0)
    while True:
        content = hostile.picture(random)
        try:
            read({"msg_type": "telemetry", "speed": 1, "image": hostile.as_text(content)}, SHAPE)
        except ProtocolError:
            continue
        return content


@contextmanager
def _pictures(folder: Path) -> Iterator[tuple[Make, Use]]:
    def use(content: bytes) -> None:
        read({"msg_type": "telemetry", "speed": 1, "image": hostile.as_text(content)}, SHAPE)

    yield hostile.picture, partial(each, use)


@contextmanager
def _checkpoints(folder: Path) -> Iterator[tuple[Make, Use]]:
    tensors: dict[str, npt.NDArray[Any]] = {
        "online.w": np.ones((20, 3), np.float32), "optimizer.steps": np.array(7, np.int64)
    }
    whole = save_checkpoint(folder, Checkpoint(SIGNATURE, Counters(7, 8, 9), tensors)).read_bytes()
    path = folder / "checkpoint"

    def use(content: bytes) -> None:
        path.write_bytes(content)
        load(path)

    yield lambda random: hostile.checkpoint(random, whole), partial(each, use)


@contextmanager
def _replays(folder: Path) -> Iterator[tuple[Make, Use]]:
    rings = _rings()
    for tick in range(TICKS):
        rings[1].write(
            tick, observed=tick - 1, time_ns=tick, registered_ns=tick, lateness_ns=0, reward=0.5,
            weights_version=1, episode=tick // 50, worker=0, source=Source.AGENT, flags=0, action=1,
        )
        rings[0].publish(tick, np.full((6, 5), tick % 256, np.uint8), tick // 50 * 50)
    save_replay(folder, SIGNATURE, *rings, priorities=lambda first, stop: np.ones(stop - first))
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    chunks = [path for path in whole if path.name != MANIFEST]

    def make(random: Random) -> tuple[Path, bytes]:
        if random.random() < 0.5:
            return folder / MANIFEST, hostile.manifest(random, whole[folder / MANIFEST], _crc)
        path = random.choice(chunks)
        return path, hostile.chunk(random, whole[path])

    def use(example: tuple[Path, bytes]) -> None:
        path, content = example
        path.write_bytes(content)
        try:
            manifest = find(folder, SIGNATURE)
            assert manifest is not None
            restore(folder, manifest, SIGNATURE, *_rings())
        finally:
            path.write_bytes(whole[path])

    yield make, partial(each, use)


@contextmanager
def _configurations(folder: Path) -> Iterator[tuple[Make, Use]]:
    examples = Path(__file__).parents[2] / "examples"
    whole = [path.read_bytes() for path in sorted(examples.glob("*.toml"))]
    path = folder / "config.toml"

    def use(content: bytes) -> None:
        path.write_bytes(content)
        load_config(path, (), {})

    yield lambda random: hostile.configuration(random, random.choice(whole)), partial(each, use)


@contextmanager
def _answers(folder: Path) -> Iterator[tuple[Make, Use]]:
    terms = Terms(2, discrete=False)
    whole = encode({
        "actions": np.ones((10, 2), np.float32), "server_timing": {"infer_ms": np.float32(2.5)},
    })

    def use(message: bytes) -> None:
        found = decode(message)
        timing_of(found)
        terms.agreed(found).read(found)

    yield lambda random: hostile.mutated(random, whole), partial(each, use)


def _rings() -> tuple[FrameRing, Ledger]:
    """An empty frame ring and ledger."""
    about = replace(blueprint(), frame_shape=(6, 5))
    return FrameRing.private(about, CAPACITY), Ledger.private(about, CAPACITY)


FILES = {
    target.name: target
    for target in (
        Target("pictures", _pictures, ProtocolError), Target("states", states, UserError, AT_ONCE),
        Target("checkpoints", _checkpoints, CheckpointError),
        Target("replays", _replays, UserError),
        Target("configurations", _configurations, UserError),
        Target("answers", _answers, remote.ProtocolError),
    )
}
