"""The replay on disk: chunks of ledger rows and frames, and a manifest that names them.

Why it is correct. The name of a chunk holds a digest of its rows, and a row says to the nanosecond
when its tick happened: a chunk of the same name has the same content, so that a save goes on where
an earlier one ended. Rows that differ make another name, so nothing that the manifest in force
names is ever overwritten. The manifest comes last, and only then are the files removed that the
one before has named: a save that is killed, ended or out of disk leaves the replay saved before as
it was.

The world goes on meanwhile. Rows and frames are copied in pieces, oldest first, and after each
piece the rings are asked what is still there: what was overwritten or given up during the copy is
left out. One process at a time saves.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.errors import UserError, reason_of
from rtagent.files.atomic_write import atomic_write
from rtagent.files.regular_file import read_regular
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger, Rows
from rtagent.storage.replay_files import (
    COMMON,
    DRAFT,
    FORMAT,
    SUFFIX,
    Chunk,
    common,
    digest,
    header,
    new_file,
    piece_ticks,
)
from rtagent.storage.signature import Signature

CHUNK_TICKS = 4096
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 22
"""Bytes of the largest manifest: a chunk takes some 130 of them."""

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Priorities = Callable[[int, int], Doubles]
"""The priorities of the ticks first <= tick < stop, (stop - first,); 0 where there is none."""

_ADVICE = "move it away, or start with --set run.checkpoint_replay=false"


class ReplayError(UserError):
    """A replay cannot be written, read or used."""


@dataclass(frozen=True)
class Manifest:
    """A saved replay.

    Attributes:
        oldest: its oldest tick.
        newest: its newest tick.
        chunks: oldest first; each begins where the one before ends.
        priorities: the file with those of all its ticks. If None, they were not saved.
    """

    oldest: int
    newest: int
    chunks: tuple[Chunk, ...]
    priorities: Chunk | None


@dataclass(frozen=True)
class SaveReport:
    """What `save` did.

    Attributes:
        ticks: ticks that are saved now; 0: the rings were empty, and nothing was changed.
        bytes: of all files that hold them.
        chunks_written: chunks written by this call.
        chunks_kept: chunks that were there before.
    """

    ticks: int
    bytes: int
    chunks_written: int
    chunks_kept: int


def save(
    folder: Path, signature: Signature, frames: FrameRing, ledger: Ledger, *,
    priorities: Priorities | None = None, rule: str = "",
    progress: Callable[[float], None] = lambda done: None,
    stop: Callable[[], bool] = lambda: False,
) -> SaveReport:
    """Save what the rings hold, while the world goes on.

    Args:
        folder: made if it is not there.
        frames, ledger: the rings.
        priorities: where sampling is prioritized.
        rule: what decides what the priorities mean.
        progress: told the fraction that is done, between pieces.
        stop: asked between pieces; ends the save.

    Raises:
        ReplayError: it cannot be written, or was ended; the replay saved before is as it was.
    """
    window = _Window(frames, ledger)
    if window.stop <= window.oldest:
        return SaveReport(0, 0, 0, 0)
    saving = _Saving(folder, signature, window, progress, stop)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove(folder, f"{DRAFT}*")
        saving.remove_useless()
        chunks = saving.add_chunks()
        if not chunks:
            raise ReplayError("the replay was overwritten faster than it could be saved")
        extra = None if priorities is None else saving.add_priorities(priorities, rule)
        manifest = Manifest(window.oldest, window.stop - 1, tuple(chunks), extra)
        _write_manifest(folder, signature, manifest)
        files = [*chunks, extra] if extra else chunks
        # What cannot be removed now, the next save removes.
        with suppress(OSError):
            _remove(folder, f"*{SUFFIX}", {chunk.file for chunk in files})
    except OSError as error:
        saving.discard()
        raise ReplayError(
            f"cannot write the replay {folder}: {reason_of(error)}; the replay saved before is as "
            "it was"
        ) from error
    written = sum(chunk.file in saving.written for chunk in chunks)
    size = sum(chunk.bytes for chunk in files)
    return SaveReport(window.stop - window.oldest, size, written, len(chunks) - written)


def find(folder: Path, signature: Signature) -> Manifest | None:
    """The saved replay of a folder, whatever its network was; None if there is none.

    Raises:
        ReplayError: it belongs to something else, or its manifest is corrupt.
    """
    found = read_manifest(folder)
    if found is None:
        return None
    manifest, theirs = found
    for name, mine in common(signature).items():
        if theirs[name] != mine:
            raise ReplayError(
                f"the replay {folder} belongs to the {name} {theirs[name]}, not {mine}; use "
                "another --state-dir, or start with --set run.checkpoint_replay=false"
            )
    return manifest


def read_manifest(folder: Path) -> tuple[Manifest, dict[str, str]] | None:
    """The saved replay of a folder, and its `common` signature; None if there is none.

    Raises:
        ReplayError: its manifest is corrupt.
    """
    try:
        values = json.loads(read_regular(folder / MANIFEST, LARGEST_MANIFEST))
        content = values["replay"]
        if int(values["crc32"], 16) != _crc(content):
            raise ValueError("wrong checksum")
        if content["format"] != FORMAT:
            raise ReplayError(
                f"the replay {folder} has format {content['format']}, and this version reads "
                f"{FORMAT}; {_ADVICE}"
            )
        theirs, extra = content["signature"], content["priorities"]
        manifest = Manifest(
            content["oldest"], content["newest"],
            tuple(Chunk.read(each) for each in content["chunks"]),
            None if extra is None else Chunk.read(extra),
        )
        _check_ranges(manifest)
        theirs = {name: str(theirs[name]) for name in COMMON}
    except FileNotFoundError:
        return None
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        reason = reason_of(error)
        raise ReplayError(f"the replay {folder} is corrupt ({reason}); {_ADVICE}") from error
    return manifest, theirs


def _check_ranges(manifest: Manifest) -> None:
    """Raise a ValueError unless the chunks hold the ticks that the manifest names."""
    oldest, newest, chunks = manifest.oldest, manifest.newest, manifest.chunks
    ends = [chunk.stop for chunk in chunks]
    if [chunk.first for chunk in chunks[1:]] != ends[:-1]:
        raise ValueError("its chunks do not follow each other")
    if any(not 0 < chunk.stop - chunk.first <= CHUNK_TICKS for chunk in chunks):
        raise ValueError(f"a chunk does not hold 1 to {CHUNK_TICKS} ticks")
    if type(oldest) is not int or type(newest) is not int or not chunks:
        raise ValueError("it names no ticks")
    if not chunks[0].first <= oldest < chunks[0].stop or newest + 1 != ends[-1]:
        raise ValueError("its chunks hold other ticks than it names")


class _Window:
    """What the rings hold, read while they are written.

    Attributes:
        oldest: the oldest tick that could be copied before it was gone; grows.
        stop: one past the newest tick that has both a row and a frame.
    """

    def __init__(self, frames: FrameRing, ledger: Ledger) -> None:
        self._frames, self._ledger = frames, ledger
        self.stop = min(frames.newest, ledger.newest) + 1
        self.oldest = self.held()

    def held(self) -> int:
        """The oldest tick that is still in both rings."""
        return max(self._frames.oldest, self._ledger.oldest)

    def rows(self, first: int, stop: int) -> Rows:
        """The rows of a range, (stop - first,); one that is not whole has the stamp -1."""
        rows = np.zeros(stop - first, self._ledger.dtype)
        rows["tick"] = -1
        found = self._ledger.read(first, stop)
        rows[found["tick"] - first] = found
        return rows

    def frames(
        self, first: int, stop: int
    ) -> Iterator[tuple[int, tuple[npt.NDArray[Any], Ints, Ints]]]:
        """Frames, numbers and episode starts of a range, in pieces, each with its offset.

        A frame that is not whole has the number -1.
        """
        ring = self._frames
        for start in range(first, stop, piece_ticks(ring)):
            ticks = np.arange(start, min(start + piece_ticks(ring), stop))
            pixels, starts, whole = ring.read(ticks)
            held = self.held()
            if held > start:
                self.oldest = max(self.oldest, held)
            yield start - first, (pixels, np.where(whole, ticks, -1), starts)


class _Saving:
    """One save.

    Attributes:
        written: names of the files that were not there before.
    """

    def __init__(
        self, folder: Path, signature: Signature, window: _Window,
        progress: Callable[[float], None], stop: Callable[[], bool],
    ) -> None:
        self.written: set[str] = set()
        self._folder, self._signature, self._window = folder, signature, window
        self._begin = window.oldest
        self._progress, self._stop = progress, stop

    def remove_useless(self) -> None:
        """Remove what killed or ended saves have left, except what this save takes over: otherwise
        each daemon that is killed while it saves would leave more."""
        in_force = self._in_force()
        left = [
            path for path in self._folder.glob(f"*{SUFFIX}")
            if path.name.encode() not in in_force
        ]
        if left:
            taken = {_name_of(at, self._window.rows(at, stop)) for at, stop in self._ranges()}
            for path in left:
                if path.name not in taken:
                    path.unlink(missing_ok=True)

    def add_chunks(self) -> list[Chunk]:
        """The chunks of the window, without those that were lost before the end."""
        chunks = []
        for first, stop in self._ranges():
            chunks.append(self._add(first, stop))
            self._advance(stop)
        return [chunk for chunk in chunks if chunk.stop > self._window.oldest]

    def add_priorities(self, priorities: Priorities, rule: str) -> Chunk:
        """The priorities of the window, by a rule."""
        first, stop = self._window.oldest, self._window.stop
        values = priorities(first, stop)
        name = f"priorities-{first:012d}-{digest(values)}{SUFFIX}"
        with new_file(self._folder / name, header(self._signature, first, stop, rule)) as put:
            put(values)
        self.written.add(name)
        return self._chunk(name, first, stop)

    def discard(self) -> None:
        """Remove files that no manifest names: on a full disk no other program could write."""
        with suppress(OSError):
            in_force = self._in_force()
            for name in self.written:
                if name.encode() not in in_force:
                    (self._folder / name).unlink()

    def _in_force(self) -> bytes:
        """The manifest in force, which names the files that must stay; empty if there is none."""
        with suppress(FileNotFoundError):
            return read_regular(self._folder / MANIFEST, LARGEST_MANIFEST)
        return b""

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """The first tick of each chunk of the window, and one past its last."""
        window = self._window
        for base in range(self._begin // CHUNK_TICKS * CHUNK_TICKS, window.stop, CHUNK_TICKS):
            first, stop = max(base, window.oldest), min(base + CHUNK_TICKS, window.stop)
            if first < stop:
                yield first, stop

    def _add(self, first: int, stop: int) -> Chunk:
        window = self._window
        rows = window.rows(first, stop)
        name = _name_of(first, rows)
        if not (self._folder / name).exists():
            about = header(self._signature, first, stop, str(rows.dtype.descr))
            numbers, starts = np.empty((2, stop - first), np.int64)
            with new_file(self._folder / name, about) as put:
                put(rows)
                for at, (pixels, *columns) in window.frames(first, stop):
                    put(pixels)
                    numbers[at : at + len(pixels)], starts[at : at + len(pixels)] = columns
                    self._advance(first + at + len(pixels))
                put(numbers)
                put(starts)
            self.written.add(name)
        return self._chunk(name, first, stop)

    def _chunk(self, name: str, first: int, stop: int) -> Chunk:
        return Chunk(name, first, stop, (self._folder / name).stat().st_size)

    def _advance(self, tick: int) -> None:
        self._progress((tick - self._begin) / (self._window.stop - self._begin))
        if self._stop():
            raise ReplayError("saving the replay was ended; the one saved before is as it was")


def _name_of(first: int, rows: Rows) -> str:
    """The name of the chunk that begins with a tick and has these rows."""
    return f"ticks-{first:012d}-{digest(rows)}{SUFFIX}"


def _write_manifest(folder: Path, signature: Signature, manifest: Manifest) -> None:
    content = {"format": FORMAT, "signature": common(signature), **asdict(manifest)}
    text = json.dumps({"crc32": f"{_crc(content):08x}", "replay": content}, indent=1)
    with atomic_write(folder / MANIFEST, DRAFT) as write:
        write(text.encode())


def _crc(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _remove(folder: Path, pattern: str, keep: Collection[str] = ()) -> None:
    for path in folder.glob(pattern):
        if path.name not in keep:
            path.unlink(missing_ok=True)
