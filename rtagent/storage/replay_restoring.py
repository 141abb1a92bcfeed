"""Reads a saved replay from the disk back into the rings, before the world starts.

Why it is correct. Nothing else runs yet, so this process may write what belongs to others. The
numbers of a chunk's frames and its rows go in after its frames, and only when the whole chunk has
been read; the rings' `newest` and `floor` come last. Whatever fails or is killed before leaves
rings that look empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.ring import GUARD_TICKS
from rtagent.storage.replay_files import Chunk, Corrupt, Reader, header, piece_ticks
from rtagent.storage.replay_snapshot import Manifest, ReplayError
from rtagent.storage.signature import Signature

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RestoreReport:
    """What `restore` did.

    Attributes:
        oldest: the oldest tick restored; newest + 1 if there is none.
        newest: the newest tick saved: the world goes on behind it, whatever was restored.
        problem: why something that was saved is left out. If None, nothing is.
        priorities: of the ticks oldest..newest, (ticks,). If None, they are not known, or were by
            another rule.
    """

    oldest: int
    newest: int
    problem: str | None
    priorities: Doubles | None

    @property
    def ticks(self) -> int:
        """Ticks restored."""
        return self.newest + 1 - self.oldest


def restore(
    folder: Path, manifest: Manifest, signature: Signature, frames: FrameRing, ledger: Ledger, *,
    keep: int = sys.maxsize, rule: str = "",
    progress: Callable[[float], None] = lambda done: None,
) -> RestoreReport:
    """Fill empty rings, newest chunks first, before anything else runs.

    A chunk that is corrupt is left out, and so is everything older: readers see a shorter past,
    never one with a hole that nobody knows of.

    Args:
        folder: where the replay was saved.
        manifest: from `find`.
        frames, ledger: the rings, empty.
        keep: most ticks; at most as many as the rings can show are restored.
        rule: what decides what the priorities mean; those by another rule are left out.
        progress: told the fraction that is done.

    Raises:
        ReplayError: its rows have other fields than those of this ledger.
    """
    stop = manifest.newest + 1
    lowest = max(manifest.oldest, stop - min(keep, frames.capacity - GUARD_TICKS))
    oldest, problem = stop, None
    for chunk in reversed(manifest.chunks):
        if oldest <= lowest:
            break
        try:
            _fill(folder, chunk, signature, lowest, frames, ledger)
        except Corrupt as error:
            problem = f"{chunk.file}: {error}; the ticks before {oldest} are left out"
            break
        oldest = max(chunk.first, lowest)
        progress((stop - oldest) / (stop - lowest))
    for ring in (frames, ledger):
        ring.begin(manifest.newest, oldest)
    values: Doubles | None = None
    if manifest.priorities is not None:
        try:
            values = _priorities(folder, manifest, manifest.priorities, signature, rule)
            values = None if values is None else values[oldest - manifest.oldest :]
        except Corrupt as error:
            problem = problem or f"{manifest.priorities.file}: {error}; priorities are left out"
    return RestoreReport(oldest, manifest.newest, problem, values)


def _priorities(
    folder: Path, manifest: Manifest, chunk: Chunk, signature: Signature, rule: str
) -> Doubles | None:
    """The priorities of all ticks that were saved; None if they are by another rule."""
    about = header(signature, manifest.oldest, manifest.newest + 1, rule)
    reader = Reader(folder / chunk.file, chunk.bytes)
    if not reader.has(about):
        return None
    values: Doubles = reader.take("<f8", (manifest.newest + 1 - manifest.oldest,))
    if not (np.isfinite(values) & (values >= 0.0)).all():
        raise Corrupt("a priority is negative or not finite")
    return values


def _fill(
    folder: Path, chunk: Chunk, signature: Signature, lowest: int, frames: FrameRing,
    ledger: Ledger,
) -> None:
    """Restore the ticks of a chunk from `lowest` on; after a failure none can be read."""
    count, skipped = chunk.stop - chunk.first, max(0, lowest - chunk.first)
    about = header(signature, chunk.first, chunk.stop, str(ledger.dtype.descr))
    reader = Reader(folder / chunk.file, chunk.bytes)
    if not reader.has(about):
        raise ReplayError("its rows are those of another version of rtagent")
    rows = reader.take(ledger.dtype, (count,))
    slots = np.arange(chunk.first, chunk.stop) % frames.capacity
    step = piece_ticks(frames)
    for start in range(0, count, step):
        stop = min(start + step, count)
        pixels = reader.take(frames.frames.dtype, (stop - start, *frames.frames.shape[1:]))
        first = min(max(start, skipped), stop)
        frames.frames[slots[first:stop]] = pixels[first - start :]
    numbers, starts = (reader.take("<i8", (count,)) for _ in range(2))
    frames.episode_starts[slots[skipped:]] = starts[skipped:]
    frames.stamps[slots[skipped:]] = numbers[skipped:]
    ledger._rows[slots[skipped:]] = rows[skipped:]
