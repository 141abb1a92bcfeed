"""A saved replay as the ledger's episodes, for other programs: without a run and its environment.

The manifest and the headers of the chunks say what the rows and frames look like, so nothing else
needs to be known. One chunk at a time is in memory. A tick that was torn when it was saved is left
out, and ends an episode.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO
from rtagent.memory.ledger import COLUMNS, Rows
from rtagent.staggering.arbiter import Source
from rtagent.storage.replay_files import Chunk, Corrupt, Reader
from rtagent.storage.replay_snapshot import MANIFEST, ReplayError, read_manifest

FOLDER = "replay"
"""Name of a replay's folder in a state directory."""

Frames = npt.NDArray[Any]
_SHAPE = re.compile(r"(\d{1,18}(?:x\d{1,18})*) (uint8|float32)(?: and .+)?")
_UNREADABLE = (
    Corrupt, LookupError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError,
)
"""What reading a chunk raises that another program may have written."""


@dataclass(frozen=True)
class Stretch:
    """Consecutive ticks of one episode.

    Attributes:
        rows: (n,) of the ledger; row i says what was executed to come to frame i.
        frames: (n, *frame_shape).
        ends: whether no saved tick continues the episode.
    """

    rows: Rows
    frames: Frames
    ends: bool


class SavedReplay:
    """A replay on the disk.

    Args:
        path: a state directory, or the folder of a replay.

    Attributes:
        environment: id of the environment.
        frame_shape: of one frame, without the stack.
        frame_dtype: uint8 or float32.
        manifest: its ticks and chunks.

    Raises:
        ReplayError: there is none, or it is corrupt.
    """

    def __init__(self, path: Path) -> None:
        given = path.expanduser()
        self._folder = given if (given / MANIFEST).exists() else given / FOLDER
        found = read_manifest(self._folder)
        if found is None:
            raise ReplayError(
                f"{path}: no saved replay in it; a run saves one as it stops with "
                "--set run.checkpoint_replay=true"
            )
        self.manifest, about = found
        self.environment = about["environment"]
        observation = _SHAPE.fullmatch(about["observation"])
        if observation is None:
            raise ReplayError(f"{self._folder}: observations of {about['observation']!r:.80}")
        shape, self.frame_dtype = observation.groups()
        self.frame_shape = tuple(map(int, shape.split("x")))[1:]

    @property
    def pictures(self) -> bool:
        """Whether a frame is a picture: (height, width), or (height, width, 1, 3 or 4)."""
        shape = self.frame_shape
        return self.frame_dtype == "uint8" and (
            len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
        )

    def rate_hz(self) -> float:
        """Ticks per second, by the times of the newest chunk that tells them.

        Raises:
            ReplayError: a chunk is corrupt, or none has two ticks of an episode in a row.
        """
        for chunk in reversed(self.manifest.chunks):
            rows = self._chunk(chunk)[0]
            follows = (np.diff(rows["tick"]) == 1) & (np.diff(rows["episode"]) == 0)
            steps = np.diff(rows["time_ns"])[follows]
            # All demonstrated ticks have the time at which they were loaded.
            if (passed := steps[steps > 0]).size:
                return NANO / float(np.median(passed))
        raise ReplayError(f"{self._folder}: too few ticks to tell their rate")

    def stretches(self, progress: Callable[[int], None] = lambda ticks: None) -> Iterator[Stretch]:
        """Everything that was saved, oldest first.

        Args:
            progress: told how many ticks are done.

        Raises:
            ReplayError: a chunk is corrupt.
        """
        held: Stretch | None = None
        for chunk in self.manifest.chunks:
            rows, frames = self._chunk(chunk)
            breaks = np.diff(rows["tick"]) != 1
            breaks |= rows["episode"][1:] != rows["episode"][:-1]
            edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(rows)]
            for first, stop in pairwise(edges):
                if first == stop:
                    continue
                found = Stretch(rows[first:stop], frames[first:stop], True)
                if held is not None:
                    yield _ended(held, found)
                held = found
                progress(stop - first)
        if held is not None:
            yield held

    def _chunk(self, chunk: Chunk) -> tuple[Rows, Frames]:
        """Rows and frames that are whole, (n,) and (n, *frame_shape)."""
        count, path = chunk.stop - chunk.first, self._folder / chunk.file
        try:
            reader = Reader(path, chunk.bytes)
            dtype = np.lib.format.descr_to_dtype(ast.literal_eval(str(reader.about["row"])))
            _check_layout(dtype)
            rows = reader.take(dtype, (count,))
            frames = reader.take(self.frame_dtype, (count, *self.frame_shape))
            numbers = reader.take("<i8", (count,))
        except _UNREADABLE as error:
            raise ReplayError(f"{path}: {str(error) or type(error).__name__}") from error
        ticks = np.arange(chunk.first, chunk.stop)
        whole = (rows["tick"] == ticks) & (numbers == ticks) & (ticks >= self.manifest.oldest)
        rows = rows[whole]
        if (rows["source"] > max(Source)).any() or (rows["time_ns"] < 0).any():
            raise ReplayError(f"{path}: its rows are not those of a ledger")
        return rows, frames[whole]


def _check_layout(row: np.dtype[Any]) -> None:
    """Raise a ValueError unless this is the layout of a ledger's rows."""
    found = {name: each[0] for name, each in (row.fields or {}).items()}
    same = all(name in found and found[name] == np.dtype(kind) for name, kind in COLUMNS)
    if not same or "action" not in found or found["action"].base.kind not in "biuf":
        raise ValueError("its rows are those of another version of rtagent, which can export it")


def _ended(stretch: Stretch, following: Stretch) -> Stretch:
    """The stretch, with `ends` set by whether the following one continues its episode."""
    last, first = stretch.rows[-1], following.rows[0]
    joins = last["episode"] == first["episode"] and last["tick"] + 1 == first["tick"]
    return Stretch(stretch.rows, stretch.frames, not joins)
