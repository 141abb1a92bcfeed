"""`/v1/deadlines`: deadline, data budget and memory budget of learning, and how it keeps them."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from rtagent.config import LONGEST_DEADLINE_S, MOST_MEMORY_MB, MOST_SAMPLES, R3Mode
from rtagent.memory.horizon import KINDS
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
DEADLINES = Settable(
    "set_deadlines",
    ("mode", "deadline_s", "data_budget", "memory_budget_mb"),
    lambda backend: backend.deadlines(),
)


class Outcomes(BaseModel):
    """How often a deadline was kept."""

    met: int | None = Field(
        None, description="Times that it was met; null: unknown.", examples=[3]
    )
    missed: int | None = Field(
        None, description="Times that it was missed; null: unknown.", examples=[0]
    )


class Decision(BaseModel):
    """Why the batch size is what it is, or how a horizon ended."""

    number: int = Field(description="Its number within the run.", examples=[7])
    time_ns: int = Field(
        description="When, in nanoseconds on the machine's monotonic clock.",
        examples=[301_372_000_000],
    )
    kind: str = Field(
        description="What led to it: an episode's or update's turn, new settings, memory, or a "
        "horizon's end: met, missed, early-exit.",
        examples=["step"], json_schema_extra={"enum": list(KINDS)},
    )
    mode: R3Mode = Field(description="The mode in force.", examples=["step"])
    horizon: int = Field(description="Horizons that had ended.", examples=[2])
    episode: int = Field(description="Episodes that had ended.", examples=[37])
    updates: int = Field(description="Updates applied before it.", examples=[4100])
    elapsed_s: float = Field(description="Time used of the horizon.", examples=[12.0])
    deadline_s: float = Field(description="D, in seconds; 0: none.", examples=[30.0])
    consumed: int = Field(description="Samples used of the horizon.", examples=[5000])
    data_budget: int = Field(description="B, in samples; 0: none.", examples=[10_000])
    time_ratio: float | None = Field(
        description="Share of the time up to the deadline's margin, as compared; in mode episode "
        "as expected at the next decision; null: unknown.",
        examples=[0.4],
    )
    data_ratio: float | None = Field(
        description="Share of the horizon's data, as compared; null: unknown.", examples=[0.5]
    )
    samples_per_s: float | None = Field(
        description="Since the decision before; null: unknown.", examples=[1320.0]
    )
    b_min: int = Field(description="The smallest batch.", examples=[32])
    cap: int = Field(
        description="The largest batch that memory allows; 0: no limit.", examples=[256]
    )
    before: int = Field(description="Batch size before.", examples=[32])
    after: int = Field(description="Batch size after.", examples=[64])


class DeadlinesState(BaseModel):
    """What learning must keep to, and how far this horizon is."""

    mode: R3Mode = Field(
        description="How batch size and replay are controlled; off: they are not.",
        examples=["step"],
    )
    deadline_s: float | None = Field(
        description="D: seconds of one horizon; null: no deadline.", examples=[30.0]
    )
    data_budget: int | None = Field(
        description="B: samples of one horizon; null: no budget.", examples=[10_000]
    )
    memory_budget_mb: int | None = Field(
        description="MiB for all processes, batches and replay together; null: unlimited.",
        examples=[None],
    )
    elapsed_s: float | None = Field(
        description="Time used of this horizon; null: none runs.", examples=[12.0]
    )
    consumed: int | None = Field(
        description="Samples learned from in this horizon; null: none runs.", examples=[5000]
    )
    time_ratio: float | None = Field(
        description="Share of the horizon's time that is used; null: none runs.", examples=[0.4]
    )
    data_ratio: float | None = Field(
        description="Share of the horizon's data that is used; null: none runs.", examples=[0.5]
    )
    batch_size: int | None = Field(
        description="Transitions per update, as it is now; null: unknown.", examples=[64]
    )
    batch_cap: int | None = Field(
        description="Largest batch for which memory is reserved; null: no limit.", examples=[256]
    )
    horizons: Outcomes = Field(description="Horizons by outcome.")
    episode_deadlines: Outcomes = Field(description="Deadlines of episodes by outcome.")
    decisions: list[Decision] = Field(
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
        "episode or step: the batch size follows the ratios, at each episode or update.",
        examples=["step"],
    )
    deadline_s: float | None = Field(
        None, gt=0.0, le=LONGEST_DEADLINE_S, description="D: seconds of one horizon, above 0; "
        "null: no deadline, which the mode off alone allows.",
        examples=[60.0],
    )
    data_budget: int | None = Field(
        None, ge=1, le=MOST_SAMPLES, description="B: samples of one horizon, at least one batch; "
        "null: no budget, which the mode off alone allows.",
        examples=[100_000],
    )
    memory_budget_mb: int | None = Field(
        None, ge=1, le=MOST_MEMORY_MB, description="MiB for all processes, batches and replay "
        "together, from 1; null: unlimited.",
        examples=[900],
    )


@router.get(
    "/deadlines",
    response_model=DeadlinesState,
    summary="Deadlines, budgets and how they are kept",
    responses=SHOWN,
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
    responses=CHANGE_RESPONSES,
)
async def change_deadlines(
    here: Here,
    by: Asker,
    change: DeadlinesChange,
    if_match: IfMatch = None,
) -> Response:
    """A merge patch. Answers when the change is in force, with the new settings.

    It holds for the horizon that is under way. Nothing changes unless everything is accepted.
    After 30 s it answers 504.
    """
    return await DEADLINES.change(here, change, by, if_match)
