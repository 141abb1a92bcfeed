"""`rtagent rerun`: the running daemon as a Rerun stream, in its viewer or in a file.

It reads over HTTP what the dashboard reads, and every tick once: it asks for the timeline several
times in the time that an answer covers. If it sleeps too long, ticks are lost; their number is
printed at the end.
"""

from __future__ import annotations

import argparse
import math
import shutil
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from rtagent.cli.daemon import Daemon, add_state_dir_option, find_daemon
from rtagent.cli.options import add_json_option, check_between
from rtagent.cli.output import report, spinner, stdout
from rtagent.cli.stop_signal import interrupted_by_stop_signals
from rtagent.errors import UserError, reason_of
from rtagent.telemetry.process import scalars
from rtagent.telemetry.timeline import SOURCES

PERIOD_S = 0.5
TIMELINE_S = 2
LONGEST_S = 86_400.0
LEAST_FREE = 16 << 20
"""Bytes that a disk keeps free. When it is full, Rerun waits for ever, and does not hear Ctrl-C."""
SUFFIX = ".rrd"
SETTLED_MS = 100.0
"""How long ago an inference must have ended to be known for sure: it is noted after its end."""
COLUMNS = ("delay", "position", "worker")
"""Columns of the timeline's ticks that are logged where they are present."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--save", metavar="FILE", type=Path,
        help="write FILE, which ends in .rrd, for `rerun FILE`; default: open the viewer")
    add("--seconds", type=float, metavar="S",
        help="seconds to stream; default: until Ctrl-C, or the end of the daemon")
    add_state_dir_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Stream until the time is over, daemon or viewer ends, or Ctrl-C; the exit code is 0."""
    if args.seconds is not None:
        check_between("seconds", args.seconds, PERIOD_S, LONGEST_S)
    if args.save is not None and args.save.suffix != SUFFIX:
        raise UserError(f"--save {args.save}: rerun only opens files that end in {SUFFIX}")
    daemon = find_daemon(args.state_dir)
    stream = Stream(daemon, *_recording(daemon, args.save), viewed=args.save is None)
    until = math.inf if args.seconds is None else monotonic() + args.seconds
    try:
        with interrupted_by_stop_signals(), spinner("streaming to Rerun; Ctrl-C ends it"):
            stream.look()
            while (rest := until - monotonic()) > 0.0:
                sleep(min(PERIOD_S, rest))
                _check_room(args.save)
                stream.look()
    except KeyboardInterrupt:
        pass
    except UserError as error:
        # The daemon has ended, or the viewer was closed; what was received before is complete.
        if not stream.ticks or isinstance(error, _NoRoomError):
            raise
    finally:
        stream.close()
    result = {
        "ticks": stream.ticks, "ticks_missed": stream.missed, "pictures": stream.pictures,
        "file": None if args.save is None else str(args.save.absolute()),
    }
    report(args, result, lambda _: stdout().print(
        f"{stream.ticks} ticks, {stream.missed} missed, {stream.pictures} pictures"
    ))
    return 0


class _NoRoomError(UserError):
    """The disk is nearly full."""


def _check_room(save: Path | None) -> None:
    """Raise `_NoRoomError` if the disk of the file, where there is one, is nearly full."""
    if save is not None and shutil.disk_usage(save.parent).free < LEAST_FREE:
        raise _NoRoomError(
            f"--save {save}: less than {LEAST_FREE >> 20} MiB are free there; the file has what "
            "came before"
        )


def _recording(daemon: Daemon, save: Path | None) -> tuple[Any, Any]:
    """The package Rerun, and the recording that takes the stream.

    Raises:
        UserError: the package is missing, the viewer does not open, as without a display, or the
            file cannot be written.
    """
    try:
        import rerun
    except ImportError:
        raise UserError(
            "rtagent rerun needs the package rerun-sdk: pip install 'rtagent[rerun]'"
        ) from None
    run_id = str(daemon.get("/v1/status").get("run_id"))
    recording = rerun.RecordingStream("rtagent", recording_id=run_id)
    try:
        if save is None:
            recording.spawn()
            # Raises, unless a viewer takes it.
            recording.flush()
        else:
            save.touch()
            _check_room(save)
            recording.save(save)
    except (OSError, RuntimeError) as error:
        reason = reason_of(error)
        if save is None:
            raise UserError(f"the viewer: {reason}; --save FILE.rrd writes a file") from None
        raise UserError(f"--save {save}: {reason}") from None
    return rerun, recording


class Stream:
    """Logs to Rerun what is new since the last look at the daemon.

    Args:
        daemon: to ask.
        rerun: the package.
        recording: takes what is logged.
        viewed: whether a viewer does.

    Attributes:
        ticks: how many were logged.
        missed: ticks that no answer had any more.
        pictures: how many were logged.
    """

    def __init__(
        self, daemon: Daemon, rerun: Any, recording: Any, *, viewed: bool = False
    ) -> None:
        self._daemon, self._rerun, self._recording = daemon, rerun, recording
        self._viewed = viewed
        self._action: str | None = None
        self._tick, self._ms = -1, 0.0
        self._inferences_until_ms = 0.0
        self.ticks = self.missed = self.pictures = 0

    def look(self) -> None:
        """Ask the daemon, and log what is new.

        Raises:
            UserError: the daemon does not answer, or the viewer is gone.
        """
        timeline = self._daemon.get(f"/v1/timeline?seconds={TIMELINE_S}")
        self._log_ticks(timeline["ticks"])
        self._log_inferences(timeline["bars"], timeline["now_ms"] - SETTLED_MS)
        self._log_figures(self._daemon.get("/v1/stats"))
        picture = self._daemon.get_bytes_if_known("/v1/screen.png")
        if picture is not None:
            image = self._rerun.EncodedImage(contents=picture, media_type="image/png")
            self._recording.log("screen", image)
            self.pictures += 1
        if self._viewed:
            try:
                self._recording.flush()
            except RuntimeError as error:
                raise UserError(f"the viewer: {error}") from None

    def close(self) -> None:
        """Write what Rerun still holds, and end the recording."""
        # A viewer that is gone takes nothing more.
        with suppress(RuntimeError):
            self._recording.flush()
        self._recording.disconnect()

    def _log_ticks(self, ticks: dict[str, list[Any]]) -> None:
        new = [at for at, tick in enumerate(ticks["tick"]) if tick > self._tick]
        if not new:
            return
        if self._tick >= 0:
            self.missed += ticks["tick"][new[0]] - self._tick - 1
        for at in new:
            self._set_time(ticks["tick"][at], ticks["at_ms"][at])
            self._scalar("tick/source", SOURCES.index(ticks["source"][at]))
            for name in COLUMNS:
                if name in ticks:
                    self._scalar(f"tick/{name}", ticks[name][at])
            components = ticks["components"][at] if "components" in ticks else None
            if components is not None:
                self._recording.log("tick/action", self._rerun.Scalars(components))
            if ticks["action"][at] not in (None, self._action):
                self._action = ticks["action"][at]
                self._recording.log("tick/action", self._rerun.TextLog(self._action))
        self._tick, self._ms = ticks["tick"][new[-1]], ticks["at_ms"][new[-1]]
        self.ticks += len(new)

    def _log_inferences(self, bars: dict[str, list[Any]], until_ms: float) -> None:
        """Log the length of the inferences that have ended until then, and were not logged yet."""
        since_ms, self._inferences_until_ms = self._inferences_until_ms, until_ms
        columns = (bars[name] for name in ("worker", "start_ms", "end_ms", "tick"))
        for worker, start, end, tick in zip(*columns, strict=True):
            if since_ms < end <= until_ms:
                self._set_time(tick, end)
                self._scalar(f"inference/{worker}/ms", end - start)

    def _log_figures(self, stats: dict[str, Any]) -> None:
        self._set_time(self._tick, self._ms)
        for name, value in scalars(stats):
            self._scalar(f"stats/{name}", value)

    def _set_time(self, tick: int, at_ms: float) -> None:
        self._recording.set_time("tick", sequence=tick)
        self._recording.set_time("run", duration=at_ms / 1e3)

    def _scalar(self, name: str, value: float | None) -> None:
        if value is not None:
            self._recording.log(name, self._rerun.Scalars(value))
