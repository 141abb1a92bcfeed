"""What the sections of the configuration share: their base class, bounds and types."""

from __future__ import annotations

from datetime import date, time
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

GAME_BOY_HZ = 59.7275
MAX_INFERENCE_PROCESSES = 256
MAX_LEARNERS = 64
MOST_PROCESSES = MAX_INFERENCE_PROCESSES + MAX_LEARNERS
LONGEST_DEADLINE_S = 366 * 86_400.0
MOST_SAMPLES = 10**15
MOST_BATCH = 65_536
MOST_SEED = 2**31 - 1
MOST_INDEX = 2**53
"""Largest discrete action: JSON numbers are exact up to here."""
MOST_ACTION = 3.4e38
"""Largest continuous action: the largest float32."""
MOST_MEMORY_MB = MOST_DISK_MB = 1 << 30

Algorithm = Literal[
    "adaptive", "maximum-time", "expected-time", "unstaggered", "sequential-infer-learn",
    "sequential-learn-infer", "published-maximum-time", "published-expected-time",
]
Distribution = Literal["constant", "gauss", "lognormal", "outliers"]
LearningAlgorithm = Literal[
    "auto", "dqn", "double-dqn", "c51", "ppo", "a2c", "td3", "ddpg", "sac"
]
Merging = Literal["newest", "ensemble", "prefix"]
Precision = Literal["float32", "bfloat16", "float16"]
LEARNING_PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LearningOrder = Literal["round-robin", "first-come"]
R3Mode = Literal["off", "max-a", "max-p", "episode", "step"]
LearnerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
ActionValue = Annotated[float, Field(ge=-MOST_ACTION, le=MOST_ACTION)]
Processes = Annotated[int, Field(ge=1, le=MAX_INFERENCE_PROCESSES)] | Literal["auto"]


def _with_a_port(text: str) -> str:
    """The host; raises ValueError if its port is none."""
    port = text.rpartition("]")[2].partition(":")[2]
    if port and not 1 <= int(port) <= 65_535:
        raise ValueError("the port must be 1 to 65535")
    return text


Host = Annotated[
    str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$"),
    AfterValidator(_with_a_port),
]


def _names_a_path(value: Any) -> Any:
    if value == "" or "\0" in str(value):
        raise ValueError("must name a file or a folder")
    if isinstance(value, int | float | date | time):
        # As TOML reads a name that looks like one.
        raise ValueError(f"must be a text that names a file or a folder, such as './{value}'")
    return value


PathName = Annotated[Path, BeforeValidator(_names_a_path)]
"""A path that is not empty: an empty text, as from a script's unset variable, would mean the
working directory."""


def live(in_force: str) -> dict[str, Any]:
    """Marks a field that can change while the daemon runs; `in_force` says when a change acts."""
    return {"live": in_force}


class Section(BaseModel):
    """Base of all sections: immutable, and strict about names; docstrings describe the fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        # To Python it is 1.
        field = cls.model_fields[info.field_name or ""]
        values = value if isinstance(value, list | tuple) else [value]
        if field.annotation is not bool and any(isinstance(each, bool) for each in values):
            raise ValueError("must not be true or false")
        return value

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        # A description is one line, however its docstring is broken.
        for field in cls.model_fields.values():
            field.description = " ".join((field.description or "").split()) or None
        cls.model_rebuild(force=True)
