"""`/v1/deadlines`: deadline, data budget and memory budget of learning, and how it keeps them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from rtagent.config import LONGEST_DEADLINE_S, MOST_MEMORY_MB, MOST_SAMPLES, R3Mode
from service.changing import IfMatch, Settable, StrictBody, check_content_type
from service.context import Here

router = APIRouter()
DEADLINES = Settable(
    "set_deadlines",
    ("mode", "deadline_s", "data_budget", "memory_budget_mb"),
    lambda backend: backend.deadlines(),
)


class Outcomes(BaseModel):
    """How often a deadline was kept."""

    met: int | None = Field(None, description="Times that it was met; null: unknown.")
    missed: int | None = Field(None, description="Times that it was missed; null: unknown.")


class DeadlinesState(BaseModel):
    """What learning must keep to, and how far this horizon is."""

    mode: str = Field(description="How batch size and replay are controlled; off: they are not.")
    deadline_s: float | None = Field(description="D: seconds of one horizon; null: no deadline.")
    data_budget: int | None = Field(description="B: samples of one horizon; null: no budget.")
    memory_budget_mb: int | None = Field(
        description="MiB for all processes, batches and replay together; null: unlimited."
    )
    elapsed_s: float | None = Field(description="Time used of this horizon.")
    consumed: int | None = Field(description="Samples learned from in this horizon.")
    time_ratio: float | None = Field(description="Share of the horizon's time that is used.")
    data_ratio: float | None = Field(description="Share of the horizon's data that is used.")
    batch_size: int | None = Field(description="Transitions per update, as it is now.")
    batch_cap: int | None = Field(description="Largest batch for which memory is reserved.")
    horizons: Outcomes = Field(description="Horizons by outcome.")
    episode_deadlines: Outcomes = Field(description="Deadlines of episodes by outcome.")
    decisions: list[dict[str, Any]] = Field(
        description="The controller's newest decisions, newest first, each with its inputs."
    )


class DeadlinesChange(StrictBody):
    """A merge patch: an absent field stays as it is, null takes a limit away."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"deadline_s": 30.0},
                {"mode": "step", "deadline_s": 60.0, "data_budget": 100_000},
                {"memory_budget_mb": None},
            ]
        }
    )

    mode: R3Mode = Field(
        "off", description="off; max-a: always the smallest batch; max-p: always the largest; "
        "episode or step: the batch size follows the ratios, at each episode or update."
    )
    deadline_s: float | None = Field(
        None, gt=0.0, le=LONGEST_DEADLINE_S, description="D: seconds of one horizon, above 0; "
        "null: no deadline, which the mode off alone allows."
    )
    data_budget: int | None = Field(
        None, ge=1, le=MOST_SAMPLES, description="B: samples of one horizon, at least one batch; "
        "null: no budget, which the mode off alone allows."
    )
    memory_budget_mb: int | None = Field(
        None, ge=1, le=MOST_MEMORY_MB, description="MiB for all processes, batches and replay "
        "together; null: unlimited."
    )


@router.get(
    "/deadlines", response_model=DeadlinesState, summary="Deadlines, budgets and how they are kept"
)
async def deadlines(here: Here) -> Response:
    """Settings, progress of this horizon, outcomes, and why the batch size is what it is.

    The ETag stands for the settings that a PATCH can change.
    """
    return await DEADLINES.show(here)


@router.patch(
    "/deadlines",
    response_model=DeadlinesState,
    summary="Change deadline, data budget, memory budget or mode",
    dependencies=[Depends(check_content_type)],
)
async def change_deadlines(
    here: Here, change: DeadlinesChange, if_match: IfMatch = None
) -> Response:
    """A merge patch. Answers when the change is in force, with the new settings.

    It holds for the horizon that is under way. Nothing changes unless everything is accepted.
    """
    return await DEADLINES.change(here, change, if_match)
