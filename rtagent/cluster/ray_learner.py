"""The learner as a Ray actor: `ClusterLearner` with a thread that learns, and calls that wait.

Ray starts the actor again when it dies, on any node with the resource `learner`; it then learns on
from its own newest checkpoint, if that lies where it can be read. One that raises when it is made
is not started again, and its name is free.

Why it is correct. Calls run in one event loop. What waits for a lock of the learner runs in a
thread beside it (`_beside`), so no call holds up the others. The learning thread touches neither
the loop nor `_newer`, but asks the loop to. Each waiter takes the event before it looks for
weights, so none misses those that are published in between.
"""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import ray

from rtagent.clock import MonotonicClock
from rtagent.cluster.held_folder import hold
from rtagent.cluster.joining import Joining, Welcome
from rtagent.cluster.learner import ClusterLearner
from rtagent.cluster.message import Bytes
from rtagent.processes.freed_memory import keep_freed_memory
from rtagent.storage.checkpoint import CheckpointError

Found = TypeVar("Found")
Given = TypeVarTuple("Given")

STEP_S = 0.5
SAVE_EVERY_S = 30.0
EXIT_FAILED = 1


class LearnerActor:
    """What Ray runs.

    Args:
        folder: of the learner's own checkpoints. If None, it writes none.

    Raises:
        UserError: another learner writes there.
    """

    def __init__(self, folder: str | None) -> None:
        clock, path = MonotonicClock(), None if folder is None else Path(folder)
        self._held = None if path is None else hold(path, clock)
        keep_freed_memory()
        # An actor that Ray starts again has the same.
        identity = ray.get_runtime_context().get_actor_id()
        self._learner = ClusterLearner(clock, path, identity, self._wake)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._newer = asyncio.Event()
        threading.Thread(target=self._learn, name="learn", daemon=True).start()

    async def join(self, joining: Joining) -> Welcome:
        """See `ClusterLearner.join`."""
        return await self._beside(self._learner.join, joining)

    async def begin(self, block: Bytes) -> None:
        """See `ClusterLearner.begin`."""
        await self._beside(self._learner.begin, block)

    async def offer(self, node: str, session: int, blocks: list[Bytes]) -> list[Bytes]:
        """See `ClusterLearner.offer`; comes back when all shares have been learned from."""
        answers = await self._beside(self._learner.offer, node, session, blocks)
        # The last is learned from last: nearly always, that is the only wait.
        for answer in reversed(answers):
            if not answer.done():
                await asyncio.wrap_future(answer)
        return [answer.result() for answer in answers]

    async def weights(self, known: int, wait_s: float) -> Bytes | None:
        """See `ClusterLearner.weights`; waits for newer ones."""
        self._loop = loop = asyncio.get_running_loop()
        end = loop.time() + wait_s
        while True:
            newer = self._newer
            found = await self._beside(self._learner.weights, known)
            left = end - loop.time()
            if found is not None or left <= 0:
                return found
            try:
                await asyncio.wait_for(newer.wait(), left)
            except TimeoutError:
                return None

    async def snapshot(self) -> Bytes:
        """See `ClusterLearner.snapshot`."""
        return await self._beside(self._learner.snapshot)

    async def status(self, node: str | None = None) -> dict[str, Any]:
        """See `ClusterLearner.status`."""
        return await self._beside(self._learner.status, node)

    async def _beside(
        self, function: Callable[[*Given], Found], *arguments: *Given
    ) -> Found:
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._renew)

    def _renew(self) -> None:
        """Everybody who waits goes on; who waits from now on waits for the next."""
        self._newer.set()
        self._newer = asyncio.Event()

    def _learn(self) -> None:
        try:
            while True:
                self._learner.step(STEP_S)
                try:
                    self._learner.save_if_due(SAVE_EVERY_S)
                except CheckpointError as error:
                    print(f"no checkpoint of the learner: {error}", flush=True)
        except BaseException:
            # Without its thread the actor would answer and never learn: Ray starts it again.
            traceback.print_exc()
            os._exit(EXIT_FAILED)
