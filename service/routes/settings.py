"""`/v1/config`, and `/v1/inference`, `/v1/learning`, `/v1/deadlines` as views of it."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field, create_model

from rtagent.config import Config, R3Mode
from rtagent.live_config import FIELDS, live_values
from rtagent.memory.horizon import KINDS
from service.routes.changing import (
    PATCH,
    StrictBody,
    View,
    add_calls,
    change_model,
    state_model,
    with_example,
)
from service.routes.openapi import described

router = APIRouter()


class InferenceProgress(BaseModel):
    """The inference processes."""

    ready: int | None = described("Processes that act.", 2)
    recommended_processes: int | None = described(
        "Processes needed to act once per action deadline, or on every tick if none is set; null: "
        "not known yet, or the algorithm does not stagger.", 5)


class LearningProgress(BaseModel):
    """The learner processes."""

    ready: int | None = described("Learners that run.", 1)
    updates: int | None = described("Gradient updates so far.", 4100)
    updates_per_s: float | None = described("Updates per second; null: not known yet.", 41.3)


class Outcomes(BaseModel):
    """How often a deadline was kept."""

    met: int | None = described("Times that it was met; null: unknown.", 3, default=None)
    missed: int | None = described("Times that it was missed; null: unknown.", 0, default=None)


class Decision(BaseModel):
    """Why the batch size is what it is, or how a horizon ended."""

    number: int = described("Its number within the run.", 7)
    time_ns: int = described(
        "When, in nanoseconds on the machine's monotonic clock.", 301_372_000_000)
    kind: str = described(
        "What led to it: an episode's or update's turn, new settings, memory, or a horizon's end: "
        "met, missed, early-exit.", "step", json_schema_extra={"enum": list(KINDS)})
    mode: R3Mode = described("The mode in force.", "step")
    horizon: int = described("Horizons that had ended.", 2)
    episode: int = described("Episodes that had ended.", 37)
    updates: int = described("Updates applied before it.", 4100)
    elapsed_s: float = described("Time used of the horizon.", 12.0)
    deadline_s: float = described("D, in seconds; 0: none.", 30.0)
    consumed: int = described("Samples used of the horizon.", 5000)
    data_budget: int = described("B, in samples; 0: none.", 10_000)
    time_ratio: float | None = described(
        "Share of the time up to the deadline's margin, as compared; in mode episode as expected "
        "at the next decision; null: unknown.", 0.4)
    data_ratio: float | None = described(
        "Share of the horizon's data, as compared; null: unknown.", 0.5)
    samples_per_s: float | None = described("Since the decision before; null: unknown.", 1320.0)
    b_min: int = described("The smallest batch.", 32)
    cap: int = described("The largest batch that memory allows; 0: no limit.", 256)
    before: int = described("Batch size before; 0: none, as the run began.", 32)
    after: int = described("Batch size after.", 64)


class DeadlinesProgress(BaseModel):
    """What learning must keep to, and how far this horizon is."""

    elapsed_s: float | None = described("Time used of this horizon; null: none runs.", 12.0)
    consumed: int | None = described("Samples learned from in this horizon; null: none runs.", 5000)
    time_ratio: float | None = described(
        "Share of the horizon's time that is used; null: none runs.", 0.4)
    data_ratio: float | None = described(
        "Share of the horizon's data that is used; null: none runs.", 0.5)
    batch_size: int | None = described("Transitions per update, as it is now; null: unknown.", 64)
    batch_cap: int | None = described(
        "Largest batch for which memory is reserved; null: no limit.", 256)
    horizons: Outcomes = Field(description="Horizons by outcome.")
    episode_deadlines: Outcomes = Field(description="Deadlines of episodes by outcome.")
    decisions: list[Decision] = Field(
        description="The controller's newest decisions, newest first, each with its inputs."
    )


CHANGES = {section: change_model(f"{section.title()}Change", section) for section in FIELDS}
_bodies: dict[str, Any] = {section: (model, None) for section, model in CHANGES.items()}
ConfigChange = with_example(
    create_model("ConfigChange", __base__=StrictBody, __doc__=PATCH, **_bodies),
    live_values(Config()),
)

add_calls(
    router, "/config", View(methodcaller("config")), Config, ConfigChange,
    "the configuration in force",
)
for path, section, progress, read, summary in (
    ("/inference", "inference", InferenceProgress, methodcaller("inference"),
     "the inference processes' settings"),
    ("/learning", "learning", LearningProgress, methodcaller("learning"),
     "the learner processes' settings"),
    ("/deadlines", "r3", DeadlinesProgress, methodcaller("deadlines"),
     "deadline, data budget, memory budget and mode"),
):
    state = state_model(f"{progress.__name__.removesuffix('Progress')}State", section, progress)
    add_calls(router, path, View(read, section), state, CHANGES[section], summary)
