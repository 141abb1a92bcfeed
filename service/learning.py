"""`/v1/learning`: the learner processes."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from rtagent.config import MAX_LEARNERS, LearningOrder
from service.changing import IfMatch, Settable, StrictBody, check_content_type
from service.context import Here

router = APIRouter()
LEARNING = Settable(
    "set_learning",
    ("processes", "paused", "batch_size", "order"),
    lambda backend: backend.learning(),
)


class LearningState(BaseModel):
    """The learner processes."""

    processes: int = Field(description="Learner processes wanted; 0: act only.")
    paused: bool = Field(description="Whether the learners wait.")
    batch_size: int = Field(
        description="Transitions per update; where the deadline controller is on, the smallest."
    )
    order: str = Field(description="How the learners take turns.")
    ready: int | None = Field(description="Learners that run.")
    updates: int | None = Field(description="Gradient updates so far.")
    updates_per_s: float | None = Field(description="Updates per second; null: not known yet.")


class LearningChange(StrictBody):
    """A merge patch: an absent field stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"processes": 2}, {"paused": True}, {"order": "first-come"}]
        }
    )

    processes: int = Field(
        1, ge=0, le=MAX_LEARNERS, description="Learner processes wanted, 0 to 64; 0: act only."
    )
    paused: bool = Field(False, description="true: the learners wait; false: they go on.")
    batch_size: int = Field(
        32, ge=1, le=65_536, description="Transitions per update, 1 to 65,536; where the deadline "
        "controller is on, the smallest batch."
    )
    order: LearningOrder = Field(
        "round-robin", description="round-robin: gradients are applied in strict turn; "
        "first-come: as they are ready, and those that are too stale are dropped."
    )


@router.get("/learning", response_model=LearningState, summary="The learner processes' settings")
async def learning(here: Here) -> Response:
    """Settings and readiness. The ETag stands for the settings that a PATCH can change."""
    return await LEARNING.show(here)


@router.patch(
    "/learning",
    response_model=LearningState,
    summary="Change the learner processes while they run",
    dependencies=[Depends(check_content_type)],
)
async def change_learning(here: Here, change: LearningChange, if_match: IfMatch = None) -> Response:
    """A merge patch. Answers when the change is in force, with the new settings.

    Nothing changes unless everything is accepted.
    """
    return await LEARNING.change(here, change, if_match)
