"""`/v1/inference`: the inference processes."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from rtagent.config import MAX_INFERENCE_PROCESSES, Algorithm
from service.changing import IfMatch, Settable, StrictBody, check_content_type
from service.context import Here

router = APIRouter()
INFERENCE = Settable(
    "set_inference",
    ("processes", "algorithm", "action_deadline_ms"),
    lambda backend: backend.inference(),
)


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


class InferenceChange(StrictBody):
    """A merge patch: an absent field stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"processes": 4}, {"algorithm": "maximum-time"}]}
    )

    processes: int = Field(
        1, ge=1, le=MAX_INFERENCE_PROCESSES, description="Inference processes wanted, 1 to 256."
    )
    algorithm: Algorithm = Field("adaptive", description="How the processes are staggered.")
    action_deadline_ms: float | None = Field(
        None, gt=0.0, le=60_000.0, description="Wanted interaction time; null: one tick."
    )


@router.get(
    "/inference", response_model=InferenceState, summary="The inference processes' settings"
)
async def inference(here: Here) -> Response:
    """Settings and readiness. The ETag stands for the settings that a PATCH can change."""
    return await INFERENCE.show(here)


@router.patch(
    "/inference",
    response_model=InferenceState,
    summary="Change the inference processes while they run",
    dependencies=[Depends(check_content_type)],
)
async def change_inference(
    here: Here, change: InferenceChange, if_match: IfMatch = None
) -> Response:
    """A merge patch. Answers when the change is in force, with the new settings.

    `action_deadline_ms: null` goes back to one tick. Nothing changes unless everything is accepted.
    """
    return await INFERENCE.change(here, change, if_match)
