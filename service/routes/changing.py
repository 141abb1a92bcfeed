"""GET and PATCH of live settings, the same for all of them; the models are made from `config`.

A GET shows the settings with the progress that belongs to them; its ETag identifies the settings
alone. A PATCH is a merge patch: it is checked whole, sent as one command, and answered when it is
in force. After 30 s it is answered with 504, and a GET tells what is in force.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Request
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from rtagent.config_sources import plain
from rtagent.live_config import FIELDS
from service.daemon.backend import Backend
from service.daemon.encoding import json_bytes
from service.http.answers import json_answer
from service.http.problems import Problem
from service.routes.context import AppContext, Asker, Context
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


SHOWN: dict[int | str, dict[str, Any]] = {200: {
    "description": "The settings, and the progress that belongs to them.",
    "headers": {"ETag": {
        "description": "Identifies the settings; for `If-Match`.", "schema": {"type": "string"},
        "example": '"0123456789abcdef"',
    }},
}}
PATCH = "A merge patch: an absent field stays as it is; null takes a limit away."
PATCH_ANSWER = (
    "A merge patch. It is answered when the change is in force, with the new settings. Nothing "
    "changes unless everything is accepted. After 30 s the answer is 504."
)
CHANGE_RESPONSES = {**SHOWN, **problems(400, 409, 412, 413, 415, 503, 504)}


class StrictBody(BaseModel):
    """A request's body: no value is converted, and an unknown field is refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, values: Any) -> Any:
        """JSON has one kind of number, so 4.0 is as good an integer as 4."""
        if not isinstance(values, dict):
            return values
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in values.items()
        }


def change_model(name: str, section: str) -> type[StrictBody]:
    """The body that changes live settings of a section; every field may be left out."""
    fields: dict[str, Any] = {
        each: (Annotated[field.annotation, WrapValidator(_in_one_sentence)], field)
        for each, field in FIELDS[section].items()
    }
    model = create_model(name, __base__=StrictBody, __doc__=PATCH, **fields)
    return with_example(model, {each: field.default for each, field in FIELDS[section].items()})


def with_example(model: type[StrictBody], example: Any) -> type[StrictBody]:
    """The model of a body, with an example."""
    model.model_config["json_schema_extra"] = {"examples": [example]}
    model.model_rebuild(force=True)
    return model


def state_model(name: str, section: str, progress: type[BaseModel]) -> type[BaseModel]:
    """What a GET shows: the live settings of a section, and the progress that belongs to them."""
    fields: dict[str, Any] = {
        each: (field.annotation, field) for each, field in FIELDS[section].items()
    }
    return create_model(name, __base__=progress, __doc__=progress.__doc__, **fields)


def _in_one_sentence(value: Any, check: Any) -> Any:
    """Join the errors of all alternatives in one, so that it names all that is possible."""
    try:
        return check(value)
    except ValidationError as error:
        reasons = error.errors()
        if len(reasons) == 1:
            raise
        text = ", or ".join(dict.fromkeys(plain(each["msg"]) for each in reasons))
        text = text.replace("{", "(").replace("}", ")")
        raise PydanticCustomError("alternatives", text) from None


@dataclass(frozen=True)
class View:
    """Live settings of the daemon, as a call shows and changes them.

    Attributes:
        read: gives what a GET shows.
        section: the one section whose settings it shows, without the section's name. If None, all
            sections, by their names.
    """

    read: Callable[[Backend], dict[str, Any]]
    section: str | None = None

    async def show(self, context: Context) -> Response:
        """Answer a GET."""
        return self._answer(await to_thread.run_sync(self.read, context.backend))

    async def change(
        self, context: Context, change: StrictBody, by: str, if_match: str | None
    ) -> Response:
        """Answer a PATCH.

        Args:
            by: who changes it, for the events.
            if_match: ETags, one of which must be that of the settings. If None, any settings.

        Raises:
            Problem: the settings are no longer those that the client has read.
        """
        async with context.change():
            state = await to_thread.run_sync(self.read, context.backend)
            if if_match is not None and not _matches(if_match, self._etag(state)):
                raise Problem(
                    412, "the settings have changed since they were read; read them again",
                    kind="stale", headers={"etag": self._etag(state)},
                )
            wanted = change.model_dump(exclude_unset=True)
            changes = {self.section: wanted} if self.section else wanted
            if changes := {name: values for name, values in changes.items() if values}:
                result = await context.command("set", changes, by)
                state = await to_thread.run_sync(self.read, context.backend)
                for name, values in result.items():
                    self._settings(state, name).update(values)
            return self._answer(state)

    def _settings(self, state: dict[str, Any], section: str) -> dict[str, Any]:
        settings: dict[str, Any] = state if self.section else state[section]
        return settings

    def _answer(self, state: dict[str, Any]) -> Response:
        response = json_answer(state)
        response.headers["etag"] = self._etag(state)
        return response

    def _etag(self, state: dict[str, Any]) -> str:
        settings = [
            self._settings(state, section)[name]
            for section in ([self.section] if self.section else FIELDS)
            for name in FIELDS[section]
        ]
        return f'"{hashlib.sha256(json_bytes(settings)).hexdigest()[:16]}"'


def add_calls(
    router: APIRouter, path: str, view: View, state: type[BaseModel], change: type[StrictBody],
    summary: str,
) -> None:
    """Add the GET and the PATCH of a view to a router.

    Args:
        path: of both calls.
        state: model of both answers.
        change: model of the body of the PATCH.
        summary: names the settings, for the OpenAPI document.
    """
    name = path.rpartition("/")[2]

    async def show(context: AppContext) -> Response:
        return await view.show(context)

    async def patch(
        context: AppContext, by: Asker, change: Any, if_match: IfMatch = None
    ) -> Response:
        return await view.change(context, change, by, if_match)

    # FastAPI reads the body's fields from the annotation.
    patch.__annotations__["change"] = change
    router.add_api_route(
        path, show, response_model=state, summary=f"{summary[0].upper()}{summary[1:]}",
        description="The ETag identifies the settings that a PATCH can change.", responses=SHOWN,
        name=name,
    )
    router.add_api_route(
        path, patch, methods=["PATCH"], response_model=state, summary=f"Change {summary}",
        name=f"change_{name}", dependencies=[Depends(check_content_type), Depends(check_names)],
        description=PATCH_ANSWER, responses=CHANGE_RESPONSES,
    )


def check_content_type(request: Request) -> None:
    """Refuse a body without the content type of JSON, which the form of a foreign page cannot set.

    Raises:
        Problem: 415.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES:
        raise Problem(415, f"the body must be {' or '.join(JSON_TYPES)}", kind="media-type")


async def check_names(request: Request) -> None:
    """Refuse a body that names a setting twice, of which the last one would count.

    Raises:
        Problem: 400.
    """
    def named_once(pairs: list[tuple[str, Any]]) -> None:
        if len(dict(pairs)) < len(pairs):
            raise Problem(400, "the body names a setting twice", kind="malformed")

    # A value that is nested too deeply is refused, too, by the model.
    with suppress(RecursionError):
        json.loads(await request.body() or b"null", object_pairs_hook=named_once)


def _matches(if_match: str, etag: str) -> bool:
    # A proxy that compresses marks the ETag as weak: the bytes are others, the settings the same.
    given = (item.strip().removeprefix("W/") for item in if_match.split(","))
    return if_match.strip() == "*" or etag in given
