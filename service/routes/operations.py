"""`/v1/operations`: what has become of commands that were answered with 202."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.http.answers import json_answer
from service.http.problems import Problem
from service.routes.context import Here
from service.routes.openapi import PROBLEM, problems
from service.routes.operating import KEPT, State

router = APIRouter()

ID = "0123456789abcdef"
Identifier = Annotated[
    str,
    Path(
        alias="id", pattern=r"^[0-9a-f]{16}$", max_length=16, examples=[ID],
        description="Of the operation, from the `Location` of the answer 202.",
    ),
]


class OperationState(BaseModel):
    """A command to the daemon and what has become of it."""

    id: str = Field(description="Its identifier.", examples=[ID])
    command: str = Field(description="What was asked for.", examples=["set_inference"])
    state: State = Field(
        description="running: not in force yet; done: in force, the result is there; refused: "
        "not in force, or not known to be, and the problem says why.",
        examples=["done"],
    )
    result: dict[str, Any] | None = Field(
        description="What the call would have answered; null until it is done.",
        examples=[{"processes": 4}],
    )
    problem: dict[str, Any] | None = Field(
        description="The problem (RFC 9457) that the call would have answered; null unless it was "
        "refused.",
        examples=[None], json_schema_extra={"anyOf": [{**PROBLEM}, {"type": "null"}]},
    )
    age_s: float = Field(description="Seconds since it began.", examples=[12.5])


class OperationList(BaseModel):
    """The newest operations."""

    operations: list[OperationState] = Field(description=f"Newest first, at most {KEPT}.")


@router.get(
    "/operations", response_model=OperationList, summary="The newest changes and checkpoints"
)
async def operations(here: Here) -> Response:
    """Changes and checkpoints of all clients, newest first, those that have ended included.

    They are kept in the service's memory: a service that is killed and started again knows none
    of those before.
    """
    return json_answer({"operations": here.operations.newest()})


@router.get(
    "/operations/{id}",
    response_model=OperationState,
    summary="What has become of a change or checkpoint",
    responses=problems(404),
)
async def operation(here: Here, identifier: Identifier) -> Response:
    """State and result of one operation.

    The newest 50 are kept in the service's memory: a service that is killed and started again
    knows none of those before.
    """
    found = here.operations.find(identifier)
    if found is None:
        raise Problem(
            404, f"there is no operation {identifier}: the newest {KEPT} are known, and those of "
            "this service alone", kind="no-operation",
        )
    return json_answer(found)
