"""`/v1/learning`: the learner processes."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from rtagent.config import MAX_LEARNERS, LearningOrder
from service.routes.changing import (
    CHANGE_RESPONSES,
    SHOWN,
    IfMatch,
    Settable,
    StrictBody,
    check_content_type,
)
from service.routes.context import Asker, Here

router = APIRouter()
LEARNING = Settable(
    "set_learning",
    ("processes", "paused", "batch_size", "order"),
    lambda backend: backend.learning(),
)


class LearningState(BaseModel):
    """The learner processes."""

    processes: int = Field(
        description="Learner processes wanted; 0: act only.", ge=0, le=MAX_LEARNERS, examples=[1]
    )
    paused: bool = Field(description="Whether the learners wait.", examples=[False])
    batch_size: int = Field(
        description="Transitions per update; where the deadline controller is on, the smallest.",
        ge=1, examples=[32],
    )
    order: LearningOrder = Field(
        description="How the learners take turns.", examples=["round-robin"]
    )
    ready: int | None = Field(description="Learners that run.", examples=[1])
    updates: int | None = Field(description="Gradient updates so far.", examples=[4100])
    updates_per_s: float | None = Field(
        description="Updates per second; null: not known yet.", examples=[41.3]
    )


class LearningChange(StrictBody):
    """A merge patch: an absent field stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"processes": 2}, {"paused": True}, {"order": "first-come"}]
        }
    )

    processes: int = Field(
        1, ge=0, le=MAX_LEARNERS, description="Learner processes wanted, 0 to 64; 0: act only.",
        examples=[2],
    )
    paused: bool = Field(
        False, description="true: the learners wait; false: they go on.", examples=[True]
    )
    batch_size: int = Field(
        32, ge=1, le=65_536, description="Transitions per update, 1 to 65,536; where the deadline "
        "controller is on, the smallest batch.",
        examples=[64],
    )
    order: LearningOrder = Field(
        "round-robin", description="round-robin: gradients are applied in strict turn; "
        "first-come: as they are ready, and those that are too stale are dropped.",
        examples=["first-come"],
    )


@router.get(
    "/learning",
    response_model=LearningState,
    summary="The learner processes' settings",
    responses=SHOWN,
)
async def learning(here: Here) -> Response:
    """Settings and readiness. The ETag stands for the settings that a PATCH can change."""
    return await LEARNING.show(here)


@router.patch(
    "/learning",
    response_model=LearningState,
    summary="Change the learner processes while they run",
    dependencies=[Depends(check_content_type)],
    responses=CHANGE_RESPONSES,
)
async def change_learning(
    here: Here,
    by: Asker,
    change: LearningChange,
    if_match: IfMatch = None,
) -> Response:
    """A merge patch. Answers when the change is in force, with the new settings.

    Nothing changes unless everything is accepted. After 30 s it answers 504.
    """
    return await LEARNING.change(here, change, by, if_match)
