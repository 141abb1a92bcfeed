"""`/v1/events`: what happened in this run."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from rtagent.logs.event_levels import KIND_PATTERN, level_name
from service.http.answers import json_answer
from service.routes.context import AppContext
from service.routes.openapi import described, problems

router = APIRouter()

LAST_ID = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""
Kind = Annotated[str, StringConstraints(pattern=f"^{KIND_PATTERN}$")]

EXAMPLE: dict[str, Any] = {
    "id": 12, "at": "2025-01-01T12:00:31.250+00:00", "uptime_s": 31.25, "kind": "set",
    "source": "inference", "by": "http", "before": {"processes": 2}, "after": {"processes": 4},
}


class RecentEvent(BaseModel):
    """Something that happened. Its details stand beside the fields that every event has."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"examples": [EXAMPLE]})

    id: int = described("Its number within the run: 1, 2, 3 ...", 12)
    at: str = described(
        "When: ISO 8601, UTC. The time of day is read once, at the start of the run.",
        "2025-01-01T12:00:31.250+00:00")
    uptime_s: float = described("When: seconds since the start of the run.", 31.25)
    kind: str = described("What: set, restarted, failed, checkpoint and others.", "set")
    source: str | None = described(
        "The process, or the section of the settings; null: the whole daemon.", "inference")


class Event(RecentEvent):
    """Something that happened, and how bad it is."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{**EXAMPLE, "level": "info"}]}
    )

    level: Literal["info", "warning", "error"] = described("How bad it is.", "info")


class Events(BaseModel):
    """What happened in this run."""

    uptime_s: float | None = described(
        "Seconds since the start of the run, now; null: not known yet.", 301.5)
    events: list[Event] = Field(description="Newest first.")


class Selection(BaseModel):
    """Query parameters: which events are wanted."""

    model_config = ConfigDict(extra="forbid")

    limit: int = described(
        "The most events to answer with, 1 to 1,000.", 20, default=100, ge=1, le=1000)
    before: int | None = described(
        "Only events with a smaller id: the next page.", 57, default=None, ge=1, le=LAST_ID)
    kind: list[Kind] = described(
        "Only events of these kinds, at most 20; all if left out.",
        ["set", "restarted"], default=[], max_length=20)


@router.get(
    "/events", response_model=Events, summary="What happened", responses=problems(503)
)
async def events(context: AppContext, wanted: Annotated[Selection, Query()]) -> Response:
    """Restarts, rescalings, checkpoints, changed settings and the rest, newest first."""
    found = await context.from_disk(partial(
        context.backend.events, wanted.limit, wanted.before, tuple(wanted.kind)
    ))
    leveled = [{**event, "level": level_name(event["kind"])} for event in found["events"]]
    return json_answer({**found, "events": leveled})
