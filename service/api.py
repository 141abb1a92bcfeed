"""The calls under `/v1`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from rtagent.config import MAX_INFERENCE_PROCESSES, Algorithm
from service.context import Context, Here
from service.encoding import json_bytes
from service.openapi import PROBLEM_RESPONSE, STATS_SCHEMA
from service.problems import Problem

router = APIRouter(prefix="/v1", responses=PROBLEM_RESPONSE)
JSON_TYPES = ("application/json", "application/merge-patch+json")


IfMatch = Annotated[
    str | None, Header(description="Change only if this is still the ETag of the settings.")
]
Rate = Annotated[int, Query(ge=1, le=20, description="Events per second, 1 to 20.")]


def _check_content_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in JSON_TYPES:
        raise Problem(415, f"the body must be {' or '.join(JSON_TYPES)}", kind="media-type")


class Role(BaseModel):
    """One process of the daemon."""

    name: str = Field(description="Role and, where there are several, number.")
    role: str = Field(description="environment, inference, learner or service.")
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


class InferenceState(BaseModel):
    """The inference processes."""

    processes: int = Field(description="Inference processes wanted.")
    algorithm: str = Field(description="How they are staggered.")
    action_deadline_ms: float | None = Field(
        description="Wanted interaction time; null: one tick."
    )
    ready: int | None = Field(description="Processes that act.")
    recommended_processes: int | None = Field(
        description="Processes needed to act on every tick; null: not known yet."
    )


class InferenceChange(BaseModel):
    """A merge patch: an absent field stays as it is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={"examples": [{"processes": 4}, {"algorithm": "maximum-time"}]},
    )

    processes: int = Field(
        1, ge=1, le=MAX_INFERENCE_PROCESSES, description="Inference processes wanted, 1 to 256."
    )
    algorithm: Algorithm = Field("adaptive", description="How the processes are staggered.")
    action_deadline_ms: float | None = Field(
        None, gt=0.0, le=60_000.0, description="Wanted interaction time; null: one tick."
    )


@router.get("/status", response_model=Status, summary="State of the daemon and its processes")
async def status(here: Here) -> Response:
    """Run id, state, and every process with pid, state, restarts and last error."""
    return _json(await to_thread.run_sync(here.backend.status))


@router.get("/config", summary="The configuration in force")
async def config(here: Here) -> Response:
    """The configuration the run started with and what has been changed since."""
    return _json(await to_thread.run_sync(here.backend.config))


@router.get(
    "/stats",
    summary="Every figure",
    responses={200: {"content": {"application/json": {"schema": STATS_SCHEMA}}}},
)
async def stats(here: Here) -> Response:
    """Clock, actions, inference, learning, replay, regret and episodes. Unknown is null."""
    return _raw_json(await here.stats_json.get())


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
    "/inference", response_model=InferenceState, summary="The inference processes' settings"
)
async def inference(here: Here) -> Response:
    """Settings and readiness. The ETag stands for the settings that a PATCH can change."""
    return _inference(await to_thread.run_sync(here.backend.inference))


@router.patch(
    "/inference",
    response_model=InferenceState,
    summary="Change the inference processes while they run",
    dependencies=[Depends(_check_content_type)],
)
async def change_inference(
    here: Here, change: InferenceChange, if_match: IfMatch = None
) -> Response:
    """A merge patch. Answers when the change is in force, with the new settings.

    `action_deadline_ms: null` goes back to one tick. Nothing changes unless everything is accepted.
    """
    async with here.change():
        state = await to_thread.run_sync(here.backend.inference)
        if if_match is not None and not _matches(if_match, _etag(state)):
            raise Problem(
                412,
                "the settings have changed since they were read; read them again",
                kind="stale",
                headers={"etag": _etag(state)},
            )
        arguments = change.model_dump(exclude_unset=True)
        if arguments:
            result = await to_thread.run_sync(
                here.backend.command, "set_inference", arguments, abandon_on_cancel=True
            )
            state = {**await to_thread.run_sync(here.backend.inference), **result}
        return _inference(state)


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


def _inference(state: dict[str, Any]) -> Response:
    response = _json(state)
    response.headers["etag"] = _etag(state)
    return response


def _etag(state: dict[str, Any]) -> str:
    settings = [state[name] for name in ("processes", "algorithm", "action_deadline_ms")]
    return f'"{hashlib.sha256(json_bytes(settings)).hexdigest()[:16]}"'


def _matches(if_match: str, etag: str) -> bool:
    return if_match.strip() == "*" or etag in (item.strip() for item in if_match.split(","))


def _json(value: Any) -> Response:
    return _raw_json(json_bytes(value))


def _raw_json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})
