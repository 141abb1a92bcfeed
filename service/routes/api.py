"""The calls under `/v1`: status and figures here, the others in modules of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from rtagent.config import Config
from service.http.answers import raw_json_answer
from service.http.parameters import check_parameters
from service.http.places import PlacedStream
from service.routes import checkpoints, events, logins, screen, settings, timeline
from service.routes.context import Admitted, AppContext, Context
from service.routes.events import RecentEvent
from service.routes.openapi import PROBLEM_RESPONSE, STATS_SCHEMA, content, described, problems

router = APIRouter(
    prefix="/v1", responses=PROBLEM_RESPONSE, dependencies=[Depends(check_parameters)]
)
for module, tag in (
    (settings, "settings"), (checkpoints, "checkpoints"), (events, "events"),
    (timeline, "figures"), (screen, "figures"), (logins, "logins"),
):
    router.include_router(module.router, tags=[tag])

Rate = Annotated[int, Query(ge=1, le=20, description="Events per second, 1 to 20.", examples=[5])]


class Role(BaseModel):
    """One process of the daemon."""

    name: str = described("Role and, where there are several, number.", "inference 0")
    role: str = described(
        "environment, inference, learner, evaluation, recorder, converter or service.", "inference")
    index: int = described("Number within the role.", 0, ge=0)
    pid: int | None = described("Process id; null: there is none now.", 4711)
    state: str = described(
        "State of the process: starting, running, backoff, failed, stopping or stopped.", "running")
    busy: Literal["stepping", "resetting"] | None = described(
        "What the environment has been doing for more than a second, and more than a tick; null: "
        "nothing that takes so long.", None, default=None)
    restarts: int = described("Times it was replaced.", 0, ge=0)
    last_error: str | None = described(
        "Why it last died, with its traceback; null: it never has.", None)


class Status(BaseModel):
    """How the daemon is."""

    run_id: str = described("The run; a new one at every start of the daemon.", "20250101-abcd")
    state: Literal["starting", "running", "degraded", "failed", "stopping"] = described(
        "starting, running, degraded (something is being restarted), failed or stopping.", "running"
    )
    version: str = described("Version of the program.", "0.1.0")
    pid: int = described("Process id of the daemon.", 4700)
    url: str = described("What a browser opens.", "http://127.0.0.1:8008/")
    started_s: float = described("When it started: seconds of the machine's monotonic clock.", 71.5)
    roles: list[Role] = Field(description="Its processes.")
    events: list[RecentEvent] = Field(description="What happened last, newest first.")
    config: Config = Field(description="The configuration in force.")
    shortened: bool = described(
        "Whether errors and events had to be shortened, there being too many.", False,
        default=False)


@router.get(
    "/status", response_model=Status, summary="State of the daemon and its processes",
    tags=["status"],
)
async def status(context: AppContext) -> Response:
    """Run id, state, and every process with pid, state, restarts and last error; the newest events,
    and the configuration in force.
    """
    return raw_json_answer(await context.status_json.get())


@router.get(
    "/stats", summary="Every figure", tags=["figures"],
    responses=content("application/json", "The figures.", STATS_SCHEMA),
)
async def stats(context: AppContext) -> Response:
    """Clock, actions, inference, learning, replay, r3, regret, episodes, and verdicts on them.

    Unknown is null.
    """
    return raw_json_answer(await context.stats_json.get())


@router.get(
    "/stats/stream", summary="Every figure, as server-sent events", tags=["figures"],
    response_class=StreamingResponse,
    responses=problems(503) | content(
        "text/event-stream", "One event after the other; the data of each are the figures as JSON.",
        {"type": "string", "description": "Lines as the HTML standard describes them."},
    ),
)
async def stats_stream(context: AppContext, admitted: Admitted, hz: Rate = 5) -> PlacedStream:
    """The figures of `/v1/stats`, `hz` times per second, until the client disconnects or its
    session ends.

    At most 64 streams and sockets together can be open.
    """
    return PlacedStream(
        context.places, _events(context, admitted, 1.0 / hz), media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _events(
    context: Context, admitted: Callable[[], bool], interval: float
) -> AsyncIterator[bytes]:
    """The stream's events. A client that reads slowly skips figures: they do not queue up."""
    yield b"retry: 1000\n\n"
    stopped = asyncio.create_task(context.stopping.wait())
    try:
        while admitted() and not context.stopping.is_set():
            yield b"data: " + await context.stats_json.get() + b"\n\n"
            await asyncio.wait([stopped], timeout=interval)
    finally:
        stopped.cancel()
