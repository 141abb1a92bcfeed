"""Commands as operations: what takes long goes on after its answer, and can be asked about.

Why it is correct. An operation is a task of the event loop; it alone writes its outcome, and it
gives back the lock that its request has handed it, whatever happens to that request. So a change
that was answered with 202 keeps others waiting, and checkpoints from being written, until it has
ended. The registry is touched in the event loop's thread alone.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import Header
from starlette.responses import Response

from rtagent.clock import Clock, MonotonicClock
from service.daemon.backend import Backend
from service.http.answers import json_answer
from service.http.problems import Problem, as_problem

KEPT = 50
WAIT_S = 10.0
"""A command that has not ended by then is answered with 202."""
LONGEST_WAIT_S = 60
_WAIT = re.compile(r"wait=(\d{1,6})")
_log = logging.getLogger(__name__)

State = Literal["running", "done", "refused"]
Complete = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Makes the answer to the client of what the supervisor has answered."""
Prefer = Annotated[
    str | None,
    Header(
        max_length=200, pattern=r"^[\x20-\x7e]*$", examples=["respond-async"],
        description="RFC 7240. `respond-async`: answer 202 at once, with an operation to ask "
        "about. `wait=N`: do so after N seconds, at most 60, instead of 10.",
    ),
]
OPERATION_BEGUN: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "Not in force yet: an operation, to be asked about at `Location`.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/OperationState"}}
        },
        "headers": {
            "Location": {
                "description": "Where to ask about the operation.",
                "schema": {"type": "string"},
                "example": "/v1/operations/0123456789abcdef",
            },
            "Preference-Applied": {
                "description": "The preferences that were followed.",
                "schema": {"type": "string"},
                "example": "respond-async",
            },
        },
    }
}
"""In the OpenAPI document."""


@dataclass
class Operation:
    """A command to the supervisor.

    Attributes:
        id: unguessable, so that no operation of a later service answers to it.
        command: its name.
        began: seconds.
        state: see `State`.
        ended: the task that carries it out.
        result: what the call would have answered, once it is done.
        error: why it was refused.
    """

    id: str
    command: str
    began: float
    ended: asyncio.Task[None]
    state: State = "running"
    result: dict[str, Any] | None = None
    error: Problem | None = None


@dataclass(frozen=True)
class Preference:
    """How long a client wants to wait (RFC 7240).

    Attributes:
        wait_s: seconds until the answer 202.
        applied: the preferences that were followed, as `Preference-Applied` says it.
    """

    wait_s: float = WAIT_S
    applied: str = ""

    @staticmethod
    def parse(header: str | None) -> Preference:
        """Of a request's `Prefer`; what is not known is ignored, as the RFC wants it."""
        wanted = [item.partition(";")[0].strip() for item in (header or "").lower().split(",")]
        found = next(filter(None, map(_WAIT.fullmatch, wanted)), None)
        applied = ["respond-async"] if "respond-async" in wanted else []
        wait_s = 0.0 if applied else WAIT_S
        if found:
            wait_s = float(min(int(found[1]), LONGEST_WAIT_S))
            applied.append(f"wait={wait_s:g}")
        return Preference(wait_s, ", ".join(applied))


class Operations:
    """The newest operations. A service that is killed forgets them.

    Args:
        backend: carries the commands out.
        clock: monotonic time.
        new_id: makes an identifier.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._backend = backend
        self._clock = clock or MonotonicClock()
        self._new_id = new_id
        self._kept: dict[str, Operation] = {}

    def begin(
        self,
        command: str,
        arguments: dict[str, Any],
        by: str,
        lock: asyncio.Lock,
        complete: Complete,
    ) -> Operation:
        """Begin a command.

        Args:
            command: its name.
            arguments: of the command.
            by: who asks.
            lock: held by the caller, who hands it over; given back when the command has ended.
            complete: makes the result.
        """
        id = self._new_id()
        task = asyncio.create_task(self._run(id, command, arguments, by, lock, complete))
        self._kept[id] = Operation(id, command, self._clock.now(), task)
        self._forget()
        return self._kept[id]

    async def settle(self, operation: Operation, preference: Preference) -> Response | None:
        """Wait for the end of a command, but not for long.

        Returns:
            None once it is done, else the answer 202.

        Raises:
            Problem: it was refused.
        """
        await asyncio.wait((operation.ended,), timeout=preference.wait_s)
        if operation.error is not None:
            raise operation.error
        if operation.state == "done":
            return None
        answer = json_answer(self._describe(operation), 202)
        answer.headers["location"] = f"/v1/operations/{operation.id}"
        if preference.applied:
            answer.headers["preference-applied"] = preference.applied
        return answer

    def newest(self) -> list[dict[str, Any]]:
        """All that are known, newest first."""
        return [self._describe(each) for each in reversed(self._kept.values())]

    def find(self, id: str) -> dict[str, Any] | None:
        """One operation."""
        found = self._kept.get(id)
        return None if found is None else self._describe(found)

    async def _run(
        self,
        id: str,
        command: str,
        arguments: dict[str, Any],
        by: str,
        lock: asyncio.Lock,
        complete: Complete,
    ) -> None:
        try:
            result = await to_thread.run_sync(
                self._backend.command, command, arguments, by, abandon_on_cancel=True
            )
            self._kept[id].result = await complete(result)
            self._kept[id].state = "done"
        except Exception as error:
            problem = as_problem(error)
            if problem.status == 500:
                _log.exception("%s failed", command)
            self._kept[id].error = problem
            self._kept[id].state = "refused"
        finally:
            lock.release()

    def _forget(self) -> None:
        """Drop the oldest that have ended."""
        ended = [each.id for each in self._kept.values() if each.state != "running"]
        for id in ended[: max(0, len(self._kept) - KEPT)]:
            del self._kept[id]

    def _describe(self, operation: Operation) -> dict[str, Any]:
        return {
            "id": operation.id,
            "command": operation.command,
            "state": operation.state,
            "result": operation.result,
            "problem": None if operation.error is None else operation.error.document,
            "age_s": self._clock.now() - operation.began,
        }
