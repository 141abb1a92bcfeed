"""`/v1/config`, and `/v1/inference`, `/v1/learning`, `/v1/deadlines` as views of it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field, create_model

from rtagent.config import Config, R3Mode
from rtagent.live_config import FIELDS
from rtagent.memory.horizon import KINDS
from service.routes.changing import PATCH, StrictBody, View, change_model, offer, state_model

router = APIRouter()


class InferenceProgress(BaseModel):
    """The inference processes."""

    ready: int | None = Field(description="Processes that act.", examples=[2])
    recommended_processes: int | None = Field(
        description="Processes needed to act on every tick; null: not known yet.", examples=[5]
    )


class LearningProgress(BaseModel):
    """The learner processes."""

    ready: int | None = Field(description="Learners that run.", examples=[1])
    updates: int | None = Field(description="Gradient updates so far.", examples=[4100])
    updates_per_s: float | None = Field(
        description="Updates per second; null: not known yet.", examples=[41.3]
    )


class Outcomes(BaseModel):
    """How often a deadline was kept."""

    met: int | None = Field(None, description="Times that it was met; null: unknown.", examples=[3])
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


class DeadlinesProgress(BaseModel):
    """What learning must keep to, and how far this horizon is."""

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


def _example(section: str) -> dict[str, Any]:
    """A change of the section's first setting, to its default."""
    name, field = next(iter(FIELDS[section].items()))
    return {name: field.default}


CHANGES = {section: change_model(f"{section.title()}Change", section) for section in FIELDS}
_bodies: dict[str, Any] = {
    section: (model, Field(None, examples=[_example(section)]))
    for section, model in CHANGES.items()
}
ConfigChange = create_model("ConfigChange", __base__=StrictBody, __doc__=PATCH, **_bodies)

offer(
    router, "/config", View(lambda backend: backend.config()), Config, ConfigChange,
    what="the configuration in force",
    examples=[{"inference": {"processes": 4}, "learning": {"paused": True}}],
)
for path, section, progress, read, what, examples in (
    ("/inference", "inference", InferenceProgress, lambda backend: backend.inference(),
     "the inference processes' settings",
     [{"processes": 4}, {"processes": "auto"}, {"algorithm": "maximum-time"}]),
    ("/learning", "learning", LearningProgress, lambda backend: backend.learning(),
     "the learner processes' settings",
     [{"processes": 2}, {"paused": True}, {"order": "first-come"}]),
    ("/deadlines", "r3", DeadlinesProgress, lambda backend: backend.deadlines(),
     "deadline, data budget, memory budget and mode",
     [{"deadline_s": 30.0}, {"mode": "step", "deadline_s": 60.0, "data_budget": 100_000},
      {"memory_budget_mb": None}]),
):
    state = state_model(f"{progress.__name__.removesuffix('Progress')}State", section, progress)
    offer(
        router, path, View(read, (section,), section), state, CHANGES[section], what=what,
        examples=examples,
    )
