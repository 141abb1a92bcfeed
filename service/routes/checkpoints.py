"""`/v1/checkpoints`: the checkpoints that there are, and writing one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from service.http.answers import json_answer
from service.http.problems import Problem
from service.routes.changing import StrictBody, check_content_type
from service.routes.context import AppContext, Asker
from service.routes.openapi import described, problems

router = APIRouter()

NAME = "checkpoint-000001-000000004100.safetensors"


class SavedCheckpoint(BaseModel):
    """A checkpoint in the state directory."""

    file: str = described("Its name.", NAME)
    updates: int = described("Gradient updates behind it.", 4100, ge=0)
    bytes: int = described("Its size.", 10_846_208, ge=0)
    age_s: float = described("Seconds since it was written.", 12.5)
    best: bool = described("Whether `best.safetensors` is the same.", False)


class Checkpoints(BaseModel):
    """The checkpoints in the state directory."""

    checkpoints: list[SavedCheckpoint] = Field(description="Newest first.")


class CheckpointRequest(StrictBody):
    """What to save."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"replay": True}]})

    replay: bool = described("Save the replay too; that can take minutes.", True, default=False)


class WrittenCheckpoint(BaseModel):
    """A checkpoint that has just been written."""

    file: str = described("Its name.", NAME)
    updates: int = described("Gradient updates behind it.", 4100, ge=0)
    replay: bool = described("Whether the replay was saved too.", False)
    seconds: float = described("How long it took.", 0.4, ge=0.0)


def _check_body(request: Request) -> None:
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        check_content_type(request)


@router.get(
    "/checkpoints", response_model=Checkpoints, summary="What has been saved",
    responses=problems(503),
)
async def checkpoints(context: AppContext) -> Response:
    """Name, updates, size and age of each checkpoint, newest first, and which is the best."""
    return json_answer({"checkpoints": await context.from_disk(context.backend.checkpoints)})


@router.post(
    "/checkpoints", status_code=201, response_model=WrittenCheckpoint,
    summary="Write a checkpoint now", dependencies=[Depends(_check_body)],
    responses=problems(400, 409, 413, 415, 503, 504),
)
async def write_checkpoint(
    context: AppContext, by: Asker, wanted: Annotated[CheckpointRequest | None, Body()] = None
) -> Response:
    """Answered when the checkpoint is written, with its name. The body may be left out.

    While a checkpoint is being written, another is refused. With the replay it can take minutes;
    after 10 minutes the answer is 504.
    """
    if context.checkpointing.locked():
        raise Problem(409, "a checkpoint is being written; wait until it is done", kind="refused")
    async with context.checkpointing:
        arguments = (wanted or CheckpointRequest()).model_dump()
        return json_answer(await context.command("checkpoint", arguments, by), 201)
