"""The calls under `/v1`: the reading ones here, what can be changed in modules of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response, StreamingResponse

from service import checkpoints, deadlines, inference, learning
from service.answers import json_answer, raw_json_answer
from service.context import Context, Here
from service.openapi import PROBLEM_RESPONSE, STATS_SCHEMA
from service.problems import Problem

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSE)
for module in (inference, learning, deadlines, checkpoints):
    router.include_router(module.router)

Rate = Annotated[int, Query(ge=1, le=20, description="Events per second, 1 to 20.")]


class Role(BaseModel):
    """One process of the daemon."""

    name: str = Field(description="Role and, where there are several, number.")
    role: str = Field(
        description="environment, inference, learner, evaluation, recorder or service."
    )
    index: int = Field(description="Number within the role.")
    pid: int | None = Field(description="Process id; null: there is none now.")
    state: str = Field(description="State of the process.")
    restarts: int = Field(description="Times it was replaced.")
    last_error: str | None = Field(description="Why it last died, with its traceback.")


class Status(BaseModel):
    """How the daemon is."""

    run_id: str = Field(description="The run; a new one at every start of the daemon.")
    state: str = Field(description="starting, running, degraded, failed or stopping.")
    version: str = Field(description="Version of the program.")
    roles: list[Role] = Field(description="Its processes.")


@router.get("/status", response_model=Status, summary="State of the daemon and its processes")
async def status(here: Here) -> Response:
    """Run id, state, and every process with pid, state, restarts and last error."""
    return json_answer(await to_thread.run_sync(here.backend.status))


@router.get("/config", summary="The configuration in force")
async def config(here: Here) -> Response:
    """The configuration the run started with and what has been changed since."""
    return json_answer(await to_thread.run_sync(here.backend.config))


@router.get(
    "/stats",
    summary="Every figure",
    responses={200: {"content": {"application/json": {"schema": STATS_SCHEMA}}}},
)
async def stats(here: Here) -> Response:
    """Clock, actions, inference, learning, replay, r3, regret, episodes. Unknown is null."""
    return raw_json_answer(await here.stats_json.get())


@router.get(
    "/stats/stream",
    summary="Every figure, as server-sent events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stats_stream(here: Here, hz: Rate = 5) -> StreamingResponse:
    """The figures of `/v1/stats`, `hz` times per second, until the client goes away."""
    return StreamingResponse(
        _events(here, 1.0 / hz),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


@router.get(
    "/screen.png",
    summary="What the agent sees",
    response_class=Response,
    responses={200: {"content": {"image/png": {"schema": {"type": "string"}}}}},
)
async def screen(here: Here) -> Response:
    """The newest frame, enlarged by a whole factor."""
    if not here.backend.has_screen:
        raise Problem(404, "this environment has no picture", kind="no-screen")
    picture = await here.screen_png.get()
    if picture is None:
        raise Problem(404, "there is no frame yet", kind="no-frame")
    return Response(picture, media_type="image/png", headers={"cache-control": "no-store"})


async def _events(here: Context, interval: float) -> AsyncIterator[bytes]:
    """The stream's events. A client that reads slowly skips figures, it never piles them up."""
    yield b"retry: 1000\n\n"
    while not here.stopping.is_set():
        yield b"data: " + await here.stats_json.get() + b"\n\n"
        try:
            await asyncio.wait_for(here.stopping.wait(), interval)
        except TimeoutError:
            continue
