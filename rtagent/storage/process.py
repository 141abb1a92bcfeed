"""Bodies of the short-lived processes that save and fill the replay.

Through its pipe each says ("progress", {"done": fraction}) now and then, and at the end
("saved", {...}), ("restored", {...}), ("loaded", {...}) or ("failed", text).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rtagent.clock import NANO, Clock, MonotonicClock
from rtagent.config import LearningConfig
from rtagent.errors import UserError
from rtagent.logs.shortening import EVENT_BYTES, current_traceback, short_details, short_error
from rtagent.memory.world import World, WorldHandles
from rtagent.processes.pipe import Pipe
from rtagent.processes.scheduling import enter_idle
from rtagent.processes.worker import LAST_WORDS_S, start_life
from rtagent.storage.demonstration_loading import Demonstrations, delay_ticks, load
from rtagent.storage.replay_restoring import restore
from rtagent.storage.replay_snapshot import ReplayError, find, save
from rtagent.storage.signature import replay_signature

PROGRESS_EVERY_S = 0.2

Details = dict[str, Any]


class Progress:
    """Sends progress through a pipe, at most once in `PROGRESS_EVERY_S`."""

    def __init__(self, pipe: Pipe, clock: Clock) -> None:
        self._pipe, self._clock = pipe, clock
        self._next = clock.now()

    def __call__(self, done: float) -> None:
        """Send the fraction that is done, unless the last one was sent a moment ago."""
        if self._clock.now() >= self._next:
            self._pipe.send(("progress", {"done": round(done, 4)}))
            self._next = self._clock.now() + PROGRESS_EVERY_S


def save_replay(handles: WorldHandles, folder: Path, pipe: Pipe) -> None:
    """Save the replay, at idle priority while the run acts; SIGTERM ends it between two pieces.

    Args:
        pipe: for the answer; ("saved", ticks, bytes, chunks_written, chunks_kept, seconds).
    """
    start_life("saver")
    terminated = []
    signal.signal(signal.SIGTERM, lambda number, _: terminated.append(number))

    def work(progress: Progress) -> Details:
        world = World(handles)
        if not world.control.desired.stop:
            enter_idle()
        report = save(
            folder, replay_signature(world.config, world.blueprint), world.frames, world.ledger,
            priorities=None if world.priorities is None else world.priorities.values,
            rule=priority_rule(world.config.learning), progress=progress,
            stop=lambda: bool(terminated),
        )
        return asdict(report)

    _answer("saved", work, pipe)


def restore_replay(
    handles: WorldHandles, folder: Path, pipe: Pipe, keep: int = sys.maxsize
) -> None:
    """Restore the replay into empty rings, before any other process of the run starts.

    Args:
        pipe: for the answer; ("restored", ticks, oldest, newest, seconds, priorities, problem):
            `priorities`, with prioritized sampling, is `restored`, or `begin anew` if they were
            not saved, or by another rule; `problem` is why something is left out, if it is.
        keep: most ticks; at most as many as fit are restored.
    """
    start_life("saver")

    def work(progress: Progress) -> Details:
        world = World(handles)
        wanted = replay_signature(world.config, world.blueprint)
        manifest = find(folder, wanted)
        if manifest is None or manifest.newest + 1 != world.first_tick:
            raise ReplayError(f"the replay {folder} has changed since it was found")
        report = restore(
            folder, manifest, wanted, world.frames, world.ledger, keep=keep,
            rule=priority_rule(world.config.learning), progress=progress,
        )
        details: Details = {"ticks": report.ticks, "oldest": report.oldest, "newest": report.newest}
        if world.priorities is not None:
            details["priorities"] = "begin anew" if report.priorities is None else "restored"
            if report.priorities is not None:
                world.priorities.restore(report.oldest, report.priorities)
        return details if report.problem is None else details | {"problem": report.problem}

    _answer("restored", work, pipe)


def priority_rule(learning: LearningConfig) -> str:
    """What decides which frames have a priority, and how large it is."""
    return f"{learning.transitions} {learning.priority_exponent:g}"


def load_demonstrations(
    handles: WorldHandles, past: Demonstrations, pipe: Pipe, keep: int = sys.maxsize
) -> None:
    """Fill the replay with demonstrations; else as `restore_replay`.

    The answer is ("loaded", path, files, ticks, left_out, delay, seconds).
    """
    start_life("saver")

    def work(progress: Progress) -> Details:
        world = World(handles)
        delay = delay_ticks(world.config, world.blueprint)
        ticks = load(
            past, world.blueprint, world.frames, world.ledger, delay=delay,
            interval=world.config.learning.demonstration_interval,
            time_ns=round(MonotonicClock().now() * NANO), keep=keep, progress=progress,
        )
        return {
            "path": str(past.source), "files": len(past.files), "ticks": ticks,
            "left_out": past.newest + 1 - ticks, "delay": delay,
        }

    _answer("loaded", work, pipe)


def _answer(kind: str, work: Callable[[Progress], Details], pipe: Pipe) -> None:
    """Do the work, send its result, and end the process."""
    clock = MonotonicClock()
    started = clock.now()
    answer: tuple[str, Any]
    try:
        details = work(Progress(pipe, clock))
        seconds = round(clock.now() - started, 3)
        answer = kind, {**short_details(details, EVENT_BYTES), "seconds": seconds}
    except UserError as error:
        answer = "failed", short_error(str(error))
    except Exception:
        answer = "failed", short_error(current_traceback())
    # The supervisor may be gone, or have given up.
    with suppress(OSError):
        pipe.send(answer, LAST_WORDS_S)
        pipe.close()
    os._exit(0)
