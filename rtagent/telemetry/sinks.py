"""The destinations of a run's curves: TensorBoard's files, and libraries.

Why it is correct. One thread, the recorder's, gives points to the sinks and never waits for one.
TensorBoard's files are written at once; points that a full disk refuses are kept and written later.
W&B and MLflow are libraries that may block, for example on a network. Each is used by a thread of
its own and by no other, behind a queue with `WAITING` places: points that find the queue full are
counted and dropped. Both threads say what is wrong in one attribute, and the newest holds;
each counts what it drops in a number of its own, as two that add to one lose some. The thread is a
daemon thread, and the process waits for it no longer than `CLOSE_S`. If a library crashes, the
recorder dies with it and is restarted; the rest of the run is not affected.
"""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rtagent.config.operation import RunConfig
from rtagent.errors import UserError, reason_of
from rtagent.files.append import append_whole
from rtagent.files.pruning import MIB, prune
from rtagent.telemetry.libraries import LIBRARIES
from rtagent.telemetry.points import Library, Point
from rtagent.telemetry.tensorboard import scalar_record, version_record

TENSORBOARD_DIR = "tensorboard"
EVENT_FILE = "events.out.tfevents"
_NAME = re.compile(rf"{re.escape(EVENT_FILE)}\.(\d{{1,18}})\.\d+")
PARTS = 4
"""Event files of a recorder; with the next one the oldest is removed."""
WAITING = 256
"""Writes that a library may be behind: twenty minutes, at one in five seconds."""
CLOSE_S = 1.0
"""A sink may take so long to finish at the end of the run."""
KEPT = 4096
"""Points that are kept while the disk is full."""


class EventFiles:
    """TensorBoard's event files, of which the oldest are removed.

    Args:
        most_bytes: of all files.
        wall_time: seconds since 1970.

    Attributes:
        name: for messages.
        problem: why points are not being written. If None, they are.
    """

    name = "tensorboard"

    def __init__(self, folder: Path, most_bytes: int, wall_time: Callable[[], float]) -> None:
        self.problem: str | None = None
        self.most_bytes = most_bytes
        self._folder, self._wall_time = folder, wall_time
        self._unwritten: list[Point] = []
        self._written = 0
        self._begin_file()

    def write(self, points: Sequence[Point]) -> None:
        """Take points, in order. Never raises."""
        self._unwritten = [*self._unwritten, *points][-KEPT:]
        if not self._unwritten:
            return
        head = b"" if self._written else version_record(self._wall_time())
        data = head + b"".join(scalar_record(*point) for point in self._unwritten)
        try:
            append_whole(self._file, data)
            self._unwritten, self._written = [], self._written + len(data)
            if self._written > self.most_bytes // PARTS:
                self._begin_file()
                files = [path for _, path in sorted(self._files(), reverse=True)]
                prune(files, sys.maxsize, self.most_bytes * (PARTS - 1) // PARTS)
            self.problem = None
        except OSError as error:
            self.problem = reason_of(error)

    def close(self) -> None:
        """Write what is left."""
        self.write(())

    def _begin_file(self) -> None:
        # Not by their times: the clock may have been set back since the last one.
        number = max([round(self._wall_time()), *(1 + known for known, _ in self._files())])
        name = f"{EVENT_FILE}.{number}.{os.getpid()}"
        self._file, self._written = self._folder / name, 0

    def _files(self) -> list[tuple[int, Path]]:
        """The event files that there are, each with its number: a later one has a larger number."""
        found = ((_NAME.fullmatch(path.name), path) for path in self._folder.glob("*"))
        return [(int(name[1]), path) for name, path in found if name]


class Background:
    """Gives points to a library in a thread of its own.

    Args:
        start: makes the library ready; called in the thread, and again after a failure.

    Attributes:
        name, problem: as those of `EventFiles`.
    """

    def __init__(self, name: str, start: Callable[[], Library]) -> None:
        self.name = name
        self.problem: str | None = None
        self._refused = self._failed = 0
        self._start = start
        self._queue: queue.Queue[Sequence[Point] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Points that were not written: the queue was full, or the library failed."""
        return self._refused + self._failed

    def write(self, points: Sequence[Point]) -> None:
        """Take points, in order. Never waits and never raises."""
        if not points:
            return
        try:
            self._queue.put_nowait(points)
        except queue.Full:
            self._refused += len(points)
            self.problem = f"it takes nothing more, {self.dropped} points are left out"

    def close(self) -> None:
        """Write what is left, within `CLOSE_S`."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        library: Library | None = None
        while (points := self._queue.get()) is not None:
            try:
                library = library or self._start()
                library.write(points)
                # One that stays behind takes points now and then; that is not the end of a problem.
                if self._queue.qsize() < WAITING // 2:
                    self.problem = None
            except Exception as error:
                library, self._failed = None, self._failed + len(points)
                self.problem = reason_of(error)
        try:
            if library is not None:
                library.close()
        except Exception as error:
            self.problem = reason_of(error)


Sink = EventFiles | Background


def configured(run: RunConfig) -> list[str]:
    """Names of the libraries that the configuration asks for."""
    return [name for name in LIBRARIES if getattr(run, name)]


def check(run: RunConfig) -> None:
    """Refuse a sink whose package is not installed.

    Raises:
        UserError: one line that says what to install.
    """
    for name in configured(run):
        if find_spec(name) is None:
            raise UserError(
                f"run.{name} = true needs the package {name}: "
                f"pip install 'rtagent[{name}]', or set run.{name} = false"
            )


def open_sinks(
    run: RunConfig, run_dir: Path, config: Mapping[str, Any], wall_time: Callable[[], float]
) -> list[Sink]:
    """The sinks that the configuration asks for, TensorBoard first."""
    sinks: list[Sink] = []
    if run.tensorboard:
        sinks.append(EventFiles(run_dir / TENSORBOARD_DIR, run.tensorboard_mb * MIB, wall_time))
    sinks += [
        Background(name, partial(LIBRARIES[name], run_dir, config)) for name in configured(run)
    ]
    return sinks
