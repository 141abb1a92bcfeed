"""`/v1/timeline`: ticks and inferences of the last seconds, to be drawn."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from rtagent.telemetry.timeline import LONGEST_S, SHORTEST_S
from service.http.answers import raw_json_answer
from service.routes.context import AppContext
from service.routes.openapi import described

router = APIRouter()

Seconds = Annotated[
    float,
    Query(
        ge=SHORTEST_S, le=LONGEST_S, allow_inf_nan=False,
        description="How far back, 0.5 to 10 s; rounded to a tenth.", examples=[3.0],
    ),
]


class Ticks(BaseModel):
    """Ticks that were executed, oldest first; one entry of each list per tick."""

    tick: list[int] = described("Their numbers.", [17_998, 17_999, 18_000])
    at_ms: list[float] = described("When they happened.", [301_334.6, 301_351.3, 301_368.1])
    source: list[Literal["agent", "reused", "default"]] = described(
        "Where the executed action came from: the agent, an action of the agent used before its "
        "tick, or the default behaviour.", ["agent", "default", "reused"])
    worker: list[int | None] = described(
        "The inference process that computed it; null: the default behaviour.", [0, None, 1])
    delay: list[int | None] = described(
        "Ticks since the observation it was computed from; null: the default behaviour.",
        [5, None, 4])
    position: list[int | None] = described(
        "Its position among the actions of its inference, 0 where this answers with single ones; "
        "null: the default behaviour.", [0, None, 0])
    action: list[str | None] = described(
        "The environment's name of the executed action, or its number; null: it has neither.",
        ["LEFT", "NOOP", "LEFT"])
    components: list[list[float] | None] = described(
        "The numbers of the executed action, where actions are continuous; null: they are not.",
        [None, None, None])


class Bars(BaseModel):
    """Registered actions, by the time of registration; one entry of each list per action."""

    worker: list[int] = described("The inference process that computed it.", [0, 1])
    start_ms: list[float] = described(
        "When the frame that it observed was published, or when the process was done with its "
        "action before, if that was later.", [301_250.9, 301_267.6])
    end_ms: list[float] = described("When it was registered.", [301_333.2, 301_349.8])
    tick: list[int] = described("The tick that it was meant for.", [17_998, 17_999])


class Lane(BaseModel):
    """One inference process."""

    id: int = described("Its number.", 0)
    state: str = described("State of the process.", "running")


class Timeline(BaseModel):
    """The last seconds. Times are milliseconds since the daemon's start."""

    now_ms: float = described("When this was read.", 301_372.0)
    tick_ms: float = described("Length of a tick.", 16.7427)
    ticks: Ticks = Field(description="What was executed.")
    bars: Bars = Field(
        description="What was inferred, whether or not a tick executed it. Inferences that are "
        "still under way are not among them."
    )
    workers: list[Lane] = described("The inference processes.", [{"id": 0, "state": "running"}])


@router.get("/timeline", response_model=Timeline, summary="The last seconds, to be drawn")
async def timeline(context: AppContext, seconds: Seconds = 3.0) -> Response:
    """Every tick with the source of its action, and a bar for each action, which begins with the
    observation that it was computed from and ends with its registration. Lists are sorted by time.
    """
    return raw_json_answer(await context.timeline_json(round(seconds, 1)).get())
