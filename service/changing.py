"""Settings that can be read and changed while the daemon runs: one mechanism for all of them.

A GET shows the settings with what they bring about; its ETag stands for the settings alone. A PATCH
is a merge patch: it is checked whole, sent as one command, and answers when it is in force.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Header, Request
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from service.answers import json_answer
from service.backend import Backend
from service.context import Context
from service.encoding import json_bytes
from service.problems import Problem

JSON_TYPES = ("application/json", "application/merge-patch+json")

IfMatch = Annotated[
    str | None, Header(description="Change only if this is still the ETag of the settings.")
]


class StrictBody(BaseModel):
    """A request's body: nothing is guessed, nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Settable:
    """Some settings of the daemon.

    Attributes:
        command: what the supervisor calls changing them.
        settings: their names.
        read: their values, and whatever else a GET shows.
    """

    command: str
    settings: tuple[str, ...]
    read: Callable[[Backend], dict[str, Any]]

    async def show(self, here: Context) -> Response:
        """Answer a GET."""
        return self._answer(await to_thread.run_sync(self.read, here.backend))

    async def change(self, here: Context, change: StrictBody, if_match: str | None) -> Response:
        """Answer a PATCH.

        Raises:
            Problem: the settings are no longer those that the client has seen.
        """
        async with here.change():
            state = await to_thread.run_sync(self.read, here.backend)
            if if_match is not None and not _matches(if_match, self._etag(state)):
                raise Problem(
                    412,
                    "the settings have changed since they were read; read them again",
                    kind="stale",
                    headers={"etag": self._etag(state)},
                )
            arguments = change.model_dump(exclude_unset=True)
            if arguments:
                result = await to_thread.run_sync(
                    here.backend.command, self.command, arguments, abandon_on_cancel=True
                )
                state = {**await to_thread.run_sync(self.read, here.backend), **result}
            return self._answer(state)

    def _answer(self, state: dict[str, Any]) -> Response:
        response = json_answer(state)
        response.headers["etag"] = self._etag(state)
        return response

    def _etag(self, state: dict[str, Any]) -> str:
        settings = [state[name] for name in self.settings]
        return f'"{hashlib.sha256(json_bytes(settings)).hexdigest()[:16]}"'


def check_content_type(request: Request) -> None:
    """Refuse a body that does not call itself JSON: a foreign page's form cannot.

    Raises:
        Problem: 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES:
        raise Problem(415, f"the body must be {' or '.join(JSON_TYPES)}", kind="media-type")


def _matches(if_match: str, etag: str) -> bool:
    return if_match.strip() == "*" or etag in (item.strip() for item in if_match.split(","))
