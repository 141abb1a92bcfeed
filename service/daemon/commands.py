"""Commands to the supervisor over one duplex pipe.

Why it is correct. Each request carries a number that is used once. One reader thread takes every
reply off the pipe and hands it to the request of that number, so replies may come in any order; a
reply to a request whose sender has given up is dropped. Sending happens under a lock, for a pipe
takes messages from one thread at a time. A supervisor that hangs does not read its pipe: a request
counts as unanswered until its reply comes, and while `MOST_UNANSWERED` do, further requests are
refused before they are sent. At the end of the pipe every waiting request fails.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from concurrent.futures import Future
from typing import Any

from rtagent.errors import UserError
from rtagent.processes.pipe import Pipe

MOST_UNANSWERED = 16


class BackendBusy(Exception):
    """The supervisor does not answer."""


class BackendLate(BackendBusy):
    """A command was sent, and is not in force in time; it may still come into force."""


class BackendGone(BackendBusy):
    """The supervisor has closed its end of the pipe."""


class CommandChannel:
    """The service's end of the pipe, from which nothing else may read.

    Args:
        connection: that end.
    """

    def __init__(self, connection: Pipe) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._unanswered: dict[int, Future[dict[str, Any]]] = {}
        self._gone = False
        threading.Thread(target=self._read, name="supervisor replies", daemon=True).start()

    def call(
        self, name: str, arguments: dict[str, Any], by: str, timeout_s: float
    ) -> dict[str, Any]:
        """The supervisor's result of one command.

        Args:
            by: who gives it, for the events.
            timeout_s: how long to wait for the reply.

        Raises:
            UserError: the supervisor refused; its one line says why.
            BackendLate: no reply in time, or the change is not in force in time.
            BackendBusy: the supervisor does not read; the command was not sent.
            BackendGone: there is no supervisor any more; it may have carried the command out.
        """
        reply: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._gone:
                raise BackendGone("the supervisor is gone")
            if len(self._unanswered) >= MOST_UNANSWERED:
                raise BackendBusy("the supervisor does not answer; the command was not sent")
            number = next(self._numbers)
            try:
                sent = self._connection.send(
                    {"id": number, "name": name, "arguments": arguments, "by": by}
                )
            except OSError:
                raise BackendGone("the supervisor is gone; the command was not sent") from None
            if not sent:
                raise BackendBusy("the supervisor does not read; the command was not sent")
            # The reader waits for the lock: the reply cannot have been taken yet.
            self._unanswered[number] = reply
        try:
            return reply.result(timeout_s)
        except TimeoutError:
            raise BackendLate(
                f"the supervisor did not answer within {timeout_s:g} s; the change may still "
                f"come into force, so read the value before trying again"
            ) from None

    def send_event(self, kind: str, details: dict[str, Any]) -> None:
        """Send an event, which has no reply. It is lost if the supervisor does not answer commands.

        For events that are seconds apart: the pipe has little room.
        """
        with self._lock:
            if not self._gone and len(self._unanswered) < MOST_UNANSWERED:
                with contextlib.suppress(OSError):
                    self._connection.send(("event", {"kind": kind, **details}))

    def _read(self) -> None:
        try:
            with contextlib.suppress(EOFError, OSError):
                while True:
                    self._deliver(self._connection.recv())
        finally:
            with self._lock:
                self._gone = True
                waiting = list(self._unanswered.values())
                self._unanswered.clear()
            for reply in waiting:
                reply.set_exception(BackendGone(
                    "the supervisor went away before it answered; it is not known whether this was "
                    "done"
                ))

    def _deliver(self, message: dict[str, Any]) -> None:
        with self._lock:
            reply = self._unanswered.pop(message["id"], None)
        if reply is None:
            return
        if "refused" in message:
            reply.set_exception(UserError(str(message["refused"])))
        elif "late" in message:
            reply.set_exception(BackendLate(str(message["late"])))
        else:
            reply.set_result(message["result"])
