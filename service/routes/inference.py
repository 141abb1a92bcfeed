"""`/v1/inference`: the inference processes."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from rtagent.config import MAX_INFERENCE_PROCESSES, Algorithm, Processes
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
INFERENCE = Settable(
    "set_inference",
    ("processes", "algorithm", "action_deadline_ms", "injected_latency_ms"),
    lambda backend: backend.inference(),
)


def _in_one_sentence(value: Any, check: Any) -> Any:
    """One error for both alternatives: a reader wants to know what is possible."""
    try:
        return check(value)
    except ValidationError:
        raise PydanticCustomError(
            "processes", f'must be a whole number from 1 to {MAX_INFERENCE_PROCESSES}, or "auto"'
        ) from None


class InferenceState(BaseModel):
    """The inference processes."""

    processes: Processes = Field(
        description="Inference processes wanted; auto: as many as keep the interaction time "
        "within the action deadline.",
        examples=[2, "auto"],
    )
    algorithm: Algorithm = Field(
        description="How they are staggered.", examples=["adaptive"]
    )
    action_deadline_ms: float | None = Field(
        description="Wanted interaction time; null: one tick.", examples=[None]
    )
    injected_latency_ms: float = Field(
        description="Mean to which inference times are padded for study; 0: not at all.",
        ge=0.0, examples=[0.0],
    )
    ready: int | None = Field(description="Processes that act.", examples=[2])
    recommended_processes: int | None = Field(
        description="Processes needed to act on every tick; null: not known yet.", examples=[5]
    )


class InferenceChange(StrictBody):
    """A merge patch: an absent field stays as it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"processes": 4}, {"processes": "auto"}, {"algorithm": "maximum-time"}]
        }
    )

    processes: Annotated[Processes, WrapValidator(_in_one_sentence)] = Field(
        1, description="Inference processes wanted, 1 to 256; auto: as many as keep the "
        "interaction time within the action deadline.",
        examples=[4, "auto"],
    )
    algorithm: Algorithm = Field(
        "adaptive", description="How the processes are staggered.", examples=["adaptive"]
    )
    action_deadline_ms: float | None = Field(
        None, gt=0.0, le=60_000.0, description="Wanted interaction time, above 0 and up to "
        "60,000; null: one tick.",
        examples=[20.0],
    )
    injected_latency_ms: float = Field(
        0.0, ge=0.0, le=60_000.0, description="Pads inference times to this mean, 0 to 60,000, to "
        "study a larger policy than this machine's; 0: not at all.",
        examples=[82.0],
    )


@router.get(
    "/inference",
    response_model=InferenceState,
    summary="The inference processes' settings",
    responses=SHOWN,
)
async def inference(here: Here) -> Response:
    """Settings and readiness. The ETag stands for the settings that a PATCH can change."""
    return await INFERENCE.show(here)


@router.patch(
    "/inference",
    response_model=InferenceState,
    summary="Change the inference processes while they run",
    dependencies=[Depends(check_content_type)],
    responses=CHANGE_RESPONSES,
)
async def change_inference(
    here: Here,
    by: Asker,
    change: InferenceChange,
    if_match: IfMatch = None,
) -> Response:
    """A merge patch. Answers when the change is in force, with the new settings.

    `action_deadline_ms: null` goes back to one tick. Nothing changes unless everything is accepted.
    After 30 s it answers 504.
    """
    return await INFERENCE.change(here, change, by, if_match)
