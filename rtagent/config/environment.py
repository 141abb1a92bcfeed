"""The section `env` of the configuration."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rtagent.config.section import MOST_INDEX, ActionValue, Section, live


class EnvConfig(Section):
    """The world: which environment, how fast it ticks, and what it does when nobody acts."""

    id: str = Field("rtagent/Starfall-v0", min_length=1)
    """A registered Gymnasium id; `package.module:EnvId-v0`, whose module is imported first; or
    `package.module:name` of a class or function that makes the environment."""
    rate_hz: Annotated[float, Field(ge=1e-6, le=1000.0)] | Literal["auto"] = "auto"
    """Ticks per second of wall-clock time; auto: the environment's own rate (its attribute
    `rate_hz`, for a Game Boy 59.7275; for an Atari game 60 divided by the frames of a step; else
    its `metadata['render_fps']`)."""
    default_action: (
        Annotated[str, Field(max_length=256)]
        | Annotated[int, Field(ge=-MOST_INDEX, le=MOST_INDEX)]
        | Annotated[list[ActionValue], Field(max_length=256)]
    ) = Field("noop", json_schema_extra=live("at the next tick"))
    """Default behaviour when no action is ready: `noop`, `repeat`, an action (of a Box the flat
    list of its values), or `package.module:callable`, which is called with the newest frame, and
    can be set before the start only. An action that the environment does not have is refused."""
    frame_stack: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Frames per observation, 1 to 16; auto: 4 for images, 1 for vectors."""
    pending_actions: int = Field(0, ge=0, le=64)
    """Actions of the ticks after its frame that the policy is given beside an observation: those
    executed meanwhile and those promised, as far as they are known. With as many of them as the
    delay has ticks, a delayed world is Markov again. 0: none."""
    max_catch_up_ticks: int = Field(5, ge=0, le=100)
    """Ticks caught up with the default behaviour after a hold-up; beyond that the clock re-anchors
    and counts a slip."""
    step_limit_s: float = Field(30.0, gt=0.0, le=3600.0)
    """Seconds after which a step that has not come back counts as hung, and the environment is
    started anew; a shorter one is a slip of the clock."""
    reset_limit_s: float = Field(60.0, gt=0.0, le=3600.0)
    """The same for a reset."""
    image_size: Annotated[int, Field(ge=16, le=512)] | tuple[
        Annotated[int, Field(ge=16, le=512)], Annotated[int, Field(ge=16, le=512)]
    ] = 84
    """Size to which pictures are scaled: one side of a square, or [height, width]."""
    grayscale: bool = True
    """Whether pictures become grey levels; false keeps their colours, in three times the memory."""
    observation_key: str = Field("auto", min_length=1)
    """Entry of a Dict observation that the agent sees; auto: its picture (among several one named
    pixels, image, rgb, screen or camera), else all entries as one vector."""
    kwargs: dict[str, Any] = Field(default_factory=dict, examples=[{"encounter": 33}])
    """Passed on to the environment's constructor."""

    @field_validator("kwargs")
    @classmethod
    def _check_kept(cls, kwargs: dict[str, Any]) -> dict[str, Any]:
        # The run's record and its checkpoints are JSON, in which such a number would be null, and a
        # date a text: what reads them would build another world.
        left: list[tuple[str, Any]] = list(kwargs.items())
        while left:
            name, value = left.pop()
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(
                    f"{name} has {value}, which the record of a run cannot hold; give a finite "
                    "number, such as 1e308 for inf"
                )
            if isinstance(value, dict):
                left += [(f"{name}.{key}", each) for key, each in value.items()]
            elif isinstance(value, list | tuple):
                left += [(name, each) for each in value]
            elif not isinstance(value, str | int | float | None):
                raise ValueError(
                    f"{name} is of type {type(value).__name__}, which the record of a run cannot "
                    "hold; give a text, a number, true or false, or a list or table of these"
                )
        return kwargs
