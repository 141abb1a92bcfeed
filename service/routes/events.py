"""`/v1/events`: what happened in this run."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from service.http.answers import json_answer
from service.routes.context import Here

router = APIRouter()

LAST_ID = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""
Kind = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_-]{1,40}$")]


class Event(BaseModel):
    """Something that happened. Its details stand beside the fields that every event has."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "id": 12,
                    "at": "2025-01-01T12:00:31.250+00:00",
                    "uptime_s": 31.25,
                    "kind": "set",
                    "source": "inference",
                    "by": "http",
                    "before": {"processes": 2},
                    "after": {"processes": 4},
                }
            ]
        },
    )

    id: int = Field(description="Its number within the run: 1, 2, 3 ...", examples=[12])
    at: str = Field(
        description="When: ISO 8601, UTC. The time of day is read once, at the start of the run.",
        examples=["2025-01-01T12:00:31.250+00:00"],
    )
    uptime_s: float = Field(
        description="When: seconds since the start of the run.", examples=[31.25]
    )
    kind: str = Field(
        description="What: set, restarted, failed, checkpoint and others.", examples=["set"]
    )
    source: str | None = Field(
        description="The process, or the section of the settings; null: the daemon as a whole.",
        examples=["inference"],
    )


class Events(BaseModel):
    """What happened in this run."""

    uptime_s: float | None = Field(
        description="Seconds since the start of the run, now; null: not known yet.",
        examples=[301.5],
    )
    events: list[Event] = Field(description="Newest first.")


class Selection(BaseModel):
    """Which events are wanted."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(
        100, ge=1, le=1000, description="The most events to answer with, 1 to 1,000.", examples=[20]
    )
    before: int | None = Field(
        None, ge=1, le=LAST_ID, description="Only events with a smaller id: the next page.",
        examples=[57],
    )
    kind: list[Kind] = Field(
        [], max_length=20, description="Only events of these kinds, at most 20; all if left out.",
        examples=[["set", "restarted"]],
    )


@router.get("/events", response_model=Events, summary="What happened")
async def events(here: Here, wanted: Annotated[Selection, Query()]) -> Response:
    """Restarts, rescalings, checkpoints, changed settings and the rest, newest first."""
    return json_answer(
        await to_thread.run_sync(
            here.backend.events, wanted.limit, wanted.before, tuple(wanted.kind)
        )
    )
