"""The learner as a Ray actor: `ClusterLearner` with a thread that learns, and calls that wait.

Ray starts the actor again when it dies, on any node with the resource `learner`. It then learns on
from its own newest checkpoint, if that can be read there. An actor whose `__init__` raises is not
started again, and its name is free.

Why it is correct. Calls run in one event loop. A function that may wait for a lock of the learner
runs in another thread, so no call holds up the others. The learning thread does not use
`_published`, but asks the loop to. Each waiting call takes the event before it looks for weights,
so it misses none that are published in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import ray

from rtagent.clock import Clock, MonotonicClock
from rtagent.cluster.held_folder import hold, named_here
from rtagent.cluster.joining import Joining, Welcome
from rtagent.cluster.learner import ClusterLearner
from rtagent.cluster.message import Bytes
from rtagent.errors import UserError
from rtagent.processes.freed_memory import keep_freed_memory
from rtagent.storage.checkpoint import CheckpointError

STEP_S = 0.5
SAVE_EVERY_S = 30.0
EXIT_FAILED = 1


class LearnerActor:
    """The actor.

    Args:
        folder: of the learner's own checkpoints. If None, the one that its node names, if any.

    Raises:
        UserError: another learner writes its checkpoints there, or nobody can.
    """

    def __init__(self, folder: str | None) -> None:
        clock, context = MonotonicClock(), ray.get_runtime_context()
        folder = folder or named_here(context.get_actor_name(), os.environ)
        path = None if folder is None else Path(folder)
        if path is not None:
            _hold(path, clock, again=context.was_current_actor_reconstructed)
        keep_freed_memory()
        # An actor that Ray starts again keeps its id.
        identity = context.get_actor_id()
        self._learner = ClusterLearner(clock, path, identity, self._note_published)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._published = asyncio.Event()
        threading.Thread(target=self._learn, name="learn", daemon=True).start()

    async def join(self, joining: Joining) -> Welcome:
        """See `ClusterLearner.join`."""
        return await asyncio.to_thread(self._learner.join, joining)

    async def begin(self, block: Bytes) -> None:
        """See `ClusterLearner.begin`."""
        await asyncio.to_thread(self._learner.begin, block)

    async def offer(self, node: str, session: int, blocks: list[Bytes]) -> list[Bytes]:
        """See `ClusterLearner.offer`; returns when all shares have been learned from."""
        answers = await asyncio.to_thread(self._learner.offer, node, session, blocks)
        # The last share is learned from last: nearly always, this is the only wait.
        for answer in reversed(answers):
            if not answer.done():
                await asyncio.wrap_future(answer)
        return [answer.result() for answer in answers]

    async def weights(self, known: int, wait_s: float) -> Bytes | None:
        """See `ClusterLearner.weights`; waits for newer ones."""
        self._loop = loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while True:
            published = self._published
            found = await asyncio.to_thread(self._learner.weights, known)
            left = end - loop.time()
            if found is not None or left <= 0:
                return found
            try:
                await asyncio.wait_for(published.wait(), left)
            except TimeoutError:
                return None

    async def snapshot(self) -> Bytes:
        """See `ClusterLearner.snapshot`."""
        return await asyncio.to_thread(self._learner.snapshot)

    async def status(self, node: str | None = None) -> dict[str, Any]:
        """See `ClusterLearner.status`."""
        return await asyncio.to_thread(self._learner.status, node)

    def _note_published(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake_waiting)

    def _wake_waiting(self) -> None:
        """Let the waiting calls go on; calls from now on wait for the next publication."""
        self._published.set()
        self._published = asyncio.Event()

    def _learn(self) -> None:
        try:
            while True:
                self._learner.step(STEP_S)
                try:
                    self._learner.save_if_due(SAVE_EVERY_S)
                except CheckpointError as error:
                    _log(f"no checkpoint of the learner: {error}")
        except BaseException:
            # Without this thread the actor would answer and never learn: let Ray start it again.
            _log(traceback.format_exc())
            os._exit(EXIT_FAILED)


def _log(text: str) -> None:
    """Print for Ray's log of this process, if that can be written: its disk may be full."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _hold(folder: Path, clock: Clock, *, again: bool) -> None:
    """Lock the folder; a learner that is started `again` also learns on where that cannot be."""
    try:
        hold(folder, clock)
    except OSError as error:
        if not again:
            raise UserError(
                f"the learner cannot write its checkpoints into {folder}: {error.strerror}; "
                "choose another folder with --checkpoint-dir"
            ) from error
