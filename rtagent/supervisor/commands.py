"""Commands to the supervisor, from other threads and from the HTTP service.

Why it is correct. A command is a queue entry with a future; the supervisor's thread alone takes it
out, decides, and resolves the future when the change is in force. The sender waits elsewhere: in
another thread, or in the service at the other end of its pipe.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rtagent.errors import UserError
from rtagent.logs.shortening import short_error, short_text
from rtagent.supervisor.child import Child, State

CHANGE_LIMIT_S = 30.0
REFUSAL_BYTES = 8 << 10
SETTLED = (State.RUNNING, State.STOPPED)
MOST_NAMED = 3

Result = Future[dict[str, Any]]


class NotInForce(UserError):
    """A change is accepted but not in force yet, since a process is late or fails."""


InForce = Callable[[], dict[str, Any] | None]
"""The answer once a change is in force, None before; raises `UserError` if it never will be."""


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        result: resolved when the command is in force, or with a `UserError`.
        until: how long it may wait to be carried out, seconds. If None, it has not had to wait.
    """

    name: str
    arguments: dict[str, Any]
    by: str
    result: Result
    until: float | None = None


class Inbox:
    """Holds commands, and the request to stop, for the supervisor.

    Attributes:
        stop_requested: whether the run has been asked to end.
        given_up: why it is to end at once and write no more, if it is.
        wake_reader: a descriptor that is readable when there is something to do.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._closed = False
        # A signal handler may interrupt the thread that holds it.
        self._waking = threading.RLock()
        self.stop_requested = False
        self.given_up: UserError | None = None
        self.wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def put(self, name: str, arguments: dict[str, Any], by: str = "python") -> Result:
        """Hand in a command. From any thread."""
        command = Command(name, arguments, by, Future())
        self._queue.put(command)
        if self._closed:
            self._refuse_rest()
        self.wake()
        return command.result

    def put_back(self, command: Command) -> None:
        """Have a command taken again at the next step."""
        self._queue.put(command)

    def put_from_service(self, message: dict[str, Any], send: Callable[[Any], object]) -> None:
        """Hand in a command that came over a pipe, and answer it there.

        Args:
            message: {"id", "name", "arguments", "by"}.
            send: takes {"id", "result"}, {"id", "refused"} or {"id", "late"}.
        """

        def answer(result: Result) -> None:
            error = result.exception()
            if error is None:
                outcome: dict[str, Any] = {"result": result.result()}
            else:
                kind = "late" if isinstance(error, NotInForce) else "refused"
                outcome = {kind: short_text(str(error), REFUSAL_BYTES)}
            # If the service does not read, it tells its clients that there was no answer.
            with contextlib.suppress(OSError):
                send({"id": message["id"]} | outcome)

        result = self.put(message["name"], message["arguments"], message["by"])
        result.add_done_callback(answer)

    def request_stop(self) -> None:
        """Ask for an orderly end. Safe in a signal handler."""
        self.stop_requested = True
        self.wake()

    def give_up(self, error: UserError) -> None:
        """Have the run end at once, and write no more. From any thread."""
        self.given_up = error
        self.wake()

    def wake(self) -> None:
        """Wake the supervisor. Safe in a signal handler."""
        # The number of a descriptor that is closed meanwhile may be that of another file by then.
        with self._waking, contextlib.suppress(OSError):
            os.write(self._wake_writer, b"!")

    def drain_wake(self) -> None:
        """Clear the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_reader, 4096)

    def take(self) -> Iterator[Command]:
        """The commands that wait, each once."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()

    def close(self) -> None:
        """Refuse all commands, now and later, and close the descriptors."""
        self._closed = True
        self._refuse_rest()
        with self._waking:
            wake_writer, self._wake_writer = self._wake_writer, -1
            for each in (self.wake_reader, wake_writer):
                os.close(each)

    def _refuse_rest(self) -> None:
        for command in self.take():
            command.result.set_exception(UserError("the daemon has stopped"))


class PendingChanges:
    """Changes that are accepted and not in force yet."""

    def __init__(self) -> None:
        self._pending: list[tuple[Result, InForce, float, Callable[[], str]]] = []

    def add(
        self, result: Result, in_force: InForce, now: float, late: Callable[[], str],
        limit: float = CHANGE_LIMIT_S,
    ) -> None:
        """Expect a change to be in force in time; `result` is resolved then.

        Args:
            in_force: called at every step.
            late: gives the answer if it is not in force in time.
            now, limit: seconds.
        """
        self._pending.append((result, in_force, now + limit, late))

    def postpone(self, seconds: float) -> None:
        """Wait longer, since nothing could come into force for so long."""
        self._pending = [
            (result, in_force, deadline + seconds, late)
            for result, in_force, deadline, late in self._pending
        ]

    def settle(self, now: float) -> None:
        """Resolve what has come into force, failed, or taken too long.

        An unexpected error is raised after all have been looked at.
        """
        failure: Exception | None = None
        for entry in list(self._pending):
            result, in_force, deadline, late = entry
            try:
                value = None if result.done() else in_force()
                if value is not None:
                    result.set_result(value)
                elif not result.done() and now > deadline:
                    raise NotInForce(late())
            except UserError as error:
                result.set_exception(error)
            except Exception as error:
                # The sender must not wait in vain.
                result.set_exception(internal_error(error))
                failure = failure or error
            if result.done():
                self._pending.remove(entry)
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Refuse everything that is still open."""
        for result, *_ in self._pending:
            if not result.done():
                result.set_exception(UserError("the daemon has stopped"))
        self._pending.clear()


def internal_error(error: Exception) -> UserError:
    """The answer to a command over which the supervisor failed unexpectedly."""
    return UserError(short_error(f"internal error: {type(error).__name__}: {error}"))


def on_their_way(workers: Sequence[Child]) -> str:
    """The processes that are neither running nor stopped, in words."""
    moving = [f"{child.name} ({child.state})" for child in workers if child.state not in SETTLED]
    more = f" and {len(moving) - MOST_NAMED} more" if len(moving) > MOST_NAMED else ""
    return ", ".join(moving[:MOST_NAMED]) + more


def running(workers: Sequence[Child], count: int) -> bool:
    """Whether `count` of a role's processes run, and none is starting, stopping or in backoff.

    Raises:
        NotInForce: one of them has failed.
    """
    for child in workers:
        if child.state is State.FAILED:
            raise NotInForce(
                f"accepted, and it stays, but {child.name} failed: {child.last_line}; it is "
                + ("not started again before its settings change" if child.boot_error else
                   "started again by itself, and the event in_force tells when the change is in "
                   "force")
            )
    settled = all(child.state in SETTLED for child in workers)
    return settled and sum(child.state is State.RUNNING for child in workers) == count
