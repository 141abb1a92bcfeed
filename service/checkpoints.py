"""`/v1/checkpoints`: what has been saved, and save now."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.answers import json_answer
from service.changing import StrictBody, check_content_type
from service.context import Here
from service.problems import Problem

router = APIRouter()


class SavedCheckpoint(BaseModel):
    """A checkpoint in the state directory."""

    file: str = Field(description="Its name.")
    updates: int = Field(description="Gradient updates behind it.")
    bytes: int = Field(description="Its size.")
    age_s: float = Field(description="Seconds since it was written.")


class Checkpoints(BaseModel):
    """The checkpoints in the state directory."""

    checkpoints: list[SavedCheckpoint] = Field(description="Newest first.")


class CheckpointRequest(StrictBody):
    """What to save."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"replay": True}]})

    replay: bool = Field(False, description="Save the replay too; that can take minutes.")


class WrittenCheckpoint(BaseModel):
    """A checkpoint that has just been written."""

    file: str = Field(description="Its name.")
    updates: int = Field(description="Gradient updates behind it.")
    replay: bool = Field(description="Whether the replay was saved too.")
    seconds: float = Field(description="How long it took.")


def _check_body(request: Request) -> None:
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        check_content_type(request)


@router.get("/checkpoints", response_model=Checkpoints, summary="What has been saved")
async def checkpoints(here: Here) -> Response:
    """Name, updates, size and age of each checkpoint, newest first."""
    return json_answer({"checkpoints": await to_thread.run_sync(here.backend.checkpoints)})


@router.post(
    "/checkpoints",
    status_code=201,
    response_model=WrittenCheckpoint,
    summary="Write a checkpoint now",
    dependencies=[Depends(_check_body)],
)
async def write_checkpoint(
    here: Here, wanted: Annotated[CheckpointRequest | None, Body()] = None
) -> Response:
    """Answers when it is written, with its name. The body may be left out.

    One at a time: while one is being written, another is refused.
    """
    if here.checkpointing.locked():
        raise Problem(409, "a checkpoint is being written; wait for its answer", kind="refused")
    arguments = (wanted or CheckpointRequest()).model_dump()
    async with here.checkpointing:
        result = await to_thread.run_sync(
            here.backend.command, "checkpoint", arguments, abandon_on_cancel=True
        )
    return json_answer(result, 201)
