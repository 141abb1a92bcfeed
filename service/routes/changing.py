"""Settings that can be read and changed while the daemon runs: one mechanism for all of them.

A GET shows the settings with what they bring about; its ETag stands for the settings alone. A PATCH
is a merge patch: it is checked whole, sent as one command, and answers when it is in force; after
30 s it answers 504, and a GET tells what is in force.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Header, Request
from pydantic import BaseModel, ConfigDict, model_validator
from starlette.responses import Response

from service.daemon.backend import Backend
from service.daemon.encoding import json_bytes
from service.http.answers import json_answer
from service.http.problems import Problem
from service.routes.context import Context
from service.routes.openapi import problems

JSON_TYPES = ("application/json", "application/merge-patch+json")

IfMatch = Annotated[
    str | None,
    Header(
        max_length=1000, examples=['"0123456789abcdef"'],
        description="Change only if this is still the ETag of the settings; several are separated "
        "by commas, * is any.",
    ),
]


SHOWN: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The settings, and what they bring about.",
        "headers": {
            "ETag": {
                "description": "Stands for the settings; for `If-Match`.",
                "schema": {"type": "string"},
                "example": '"0123456789abcdef"',
            }
        },
    }
}
CHANGE_RESPONSES = {
    **SHOWN, **problems(400, 409, 412, 413, 415, 503, 504)
}


class StrictBody(BaseModel):
    """A request's body: nothing is guessed, nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, values: Any) -> Any:
        """JSON knows one kind of number, so 4.0 is an integer as good as 4."""
        if not isinstance(values, dict):
            return values
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in values.items()
        }


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

    async def change(
        self, here: Context, change: StrictBody, by: str, if_match: str | None
    ) -> Response:
        """Answer a PATCH.

        Args:
            here: what the calls share.
            change: a merge patch.
            by: who asks.
            if_match: ETags of which one must stand for the settings; none: whatever they are.

        Raises:
            Problem: the settings are no longer those that the client has seen.
        """
        await here.begin_change()
        try:
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
                result = await here.command(self.command, arguments, by)
                state = {**await to_thread.run_sync(self.read, here.backend), **result}
            return self._answer(state)
        finally:
            here.changing.release()

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
