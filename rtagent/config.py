"""The configuration: TOML, then `RTAGENT_SECTION__KEY`, then `--set SECTION.KEY=VALUE`.

Every model is frozen and refuses unknown keys; every field carries its description, so that
`rtagent config schema` is the reference manual. Nothing here imports torch or touches the machine.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rtagent.errors import UserError

GAME_BOY_HZ = 59.7275
MAX_INFERENCE_PROCESSES = 256
ENVIRONMENT_PREFIX = "RTAGENT_"

Algorithm = Literal["adaptive", "maximum-time", "expected-time", "unstaggered"]
Distribution = Literal["constant", "gauss", "lognormal", "outliers"]
Processes = Annotated[int, Field(ge=1, le=MAX_INFERENCE_PROCESSES)]


class Section(BaseModel):
    """Base of all sections: immutable, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EnvConfig(Section):
    """The world: which environment, how fast it ticks, and what it does when nobody acts."""

    id: str = Field(
        "rtagent/Starfall-v0",
        min_length=1,
        description="A registered Gymnasium id, or `package.module:EnvId-v0`.",
    )
    rate_hz: Annotated[float, Field(gt=0.0, le=1000.0)] | Literal["auto"] = Field(
        "auto",
        description="Ticks per second of wall-clock time; auto: the environment's own rate "
        "(59.7275 for a Game Boy, `metadata['render_fps']` of a Gymnasium environment).",
    )
    default_action: str | int | list[float] = Field(
        "noop",
        description="Default behaviour when no action is ready: `noop`, `repeat`, an action, or "
        "`package.module:callable`, called with the newest frame.",
    )
    frame_stack: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = Field(
        "auto", description="Frames per observation, 1 to 16; auto: 4 for images, 1 for vectors."
    )
    max_catch_up_ticks: int = Field(
        5, ge=0, le=100, description="Ticks caught up with the default behaviour after a hold-up; "
        "beyond that the clock re-anchors and counts a slip.",
    )
    kwargs: dict[str, Any] = Field(
        default_factory=dict, description="Passed on to the environment's constructor."
    )


class PolicyConfig(Section):
    """The network that maps an observation to action values, and how it explores."""

    network: Literal["auto", "resnet", "nature", "mlp"] = Field(
        "auto", description="Network by name; auto: mlp for vectors, nature for images."
    )
    width: int = Field(
        1, ge=1, le=128, description="Width factor k of the resnet; hidden units of the mlp are "
        "64 k.",
    )
    factory: str | None = Field(
        None,
        pattern=r"^[\w.]+:[\w.]+$",
        description="`package.module:callable`, called with (observation_space, action_space), "
        "returns a torch.nn.Module. Overrides `network`.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Precision of inference on the CPU; auto: bfloat16 for the resnet, "
        "float32 otherwise. float16 is refused: it is 30 to 100 times slower there.",
    )
    device: str = Field(
        "cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="Where inference runs: cpu or cuda:N."
    )
    epsilon_start: float = Field(1.0, ge=0.0, le=1.0, description="Exploration rate at update 0.")
    epsilon_end: float = Field(0.05, ge=0.0, le=1.0, description="Exploration rate at the end.")
    epsilon_steps: int = Field(
        2000, ge=1, description="Updates over which the exploration rate falls linearly."
    )
    exploration_hold_ticks: int = Field(
        8, ge=1, le=1000, description="Ticks for which an exploratory choice is held, so that "
        "exploration at a high tick rate still goes somewhere; 1 draws anew on every tick.",
    )


class InferenceConfig(Section):
    """How many processes act, and how they are staggered."""

    processes: Processes = Field(2, description="Inference processes, 1 to 256.")
    algorithm: Algorithm = Field(
        "adaptive", description="How the processes are staggered; unstaggered is there for "
        "comparison only.",
    )
    action_deadline_ms: float | None = Field(
        None, gt=0.0, le=60_000.0, description="Wanted interaction time; none: one tick."
    )
    fill: int = Field(
        2, ge=0, le=2, description="How many ticks ahead an action may be re-used to avoid "
        "inaction; 0: strictly one action per tick.",
    )
    injected_latency_ms: float = Field(
        0.0, ge=0.0, le=60_000.0, description="Pads the inference time, forward pass included, to "
        "a value drawn around this mean: to study a large or remote model on a small machine.",
    )
    injected_latency_distribution: Distribution = Field(
        "constant", description="Distribution of the injected latency."
    )
    injected_latency_spread: float = Field(
        0.0, ge=0.0, le=100.0, description="gauss: relative standard deviation; lognormal: sigma; "
        "outliers: below 1 their share, each 10 times as long, from 1 on the factor of the 1 % "
        "that they are; 0: 1 %, 10 times as long.",
    )


class LearningConfig(Section):
    """How the policy improves from what really happened."""

    algorithm: Literal["auto", "dqn"] = Field(
        "auto", description="auto: dqn for discrete actions."
    )
    processes: int = Field(1, ge=0, le=1, description="Learner processes; 0: act only.")
    batch_size: int = Field(32, ge=1, le=65_536, description="Transitions per update.")
    learning_rate: float = Field(5e-4, gt=0.0, le=1.0, description="Adam's step size.")
    gamma: float = Field(0.99, ge=0.0, le=1.0, description="Discount per decision.")
    n_step: int = Field(8, ge=1, le=1000, description="Decisions summed before bootstrapping.")
    target_period: int = Field(
        250, ge=1, description="Updates between two copies of the weights to the target network."
    )
    learning_starts: int = Field(
        1000, ge=1, description="Ticks in the replay before the first update."
    )
    transitions: Literal["decision", "executed"] = Field(
        "decision", description="decision: from the frame a decision saw to the frame the next "
        "one saw; executed: from the frame before its execution, for comparison.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="Precision of the learner's forward and backward pass, over float32 "
        "weights; auto: bfloat16 where the processor has instructions for it.",
    )
    gradient_clip: float = Field(
        10.0, ge=0.0, description="Largest norm of the gradient; 0: not clipped."
    )
    publish_every: int = Field(
        10, ge=1, description="Updates between two publications of the weights."
    )
    updates_per_tick: float = Field(
        0.0, ge=0.0, description="Upper bound of updates per tick of the world; 0: as many as the "
        "machine gives.",
    )


class ReplayConfig(Section):
    """The shared ring that is observation, replay and screen at once."""

    capacity: int = Field(
        100_000, ge=256, le=50_000_000, description="Ticks kept, the newest first."
    )


class ServiceConfig(Section):
    """Where the HTTP service listens."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to bind.")
    port: int = Field(8008, ge=0, le=65_535, description="Port to bind; 0 takes a free one.")
    insecure: bool = Field(
        False, description="Allow a bind to an address other than loopback without TLS."
    )


class RunConfig(Section):
    """The run as a whole."""

    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of everything that is random.")
    state_dir: Path = Field(
        Path("~/.local/state/rtagent"), description="Token, checkpoints, events of this daemon."
    )
    checkpoint_every_s: float = Field(
        120.0, ge=1.0, description="Seconds between two checkpoints; one more is made on stop."
    )
    resume: bool = Field(True, description="Start from the newest checkpoint of the state dir.")
    realtime: Literal["auto", "on", "off"] = Field(
        "auto", description="SCHED_FIFO and locked memory for the environment process; on: refuse "
        "to start without the permission.",
    )


class Config(Section):
    """The whole configuration."""

    env: EnvConfig = Field(default_factory=EnvConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    inference: InferenceConfig = Field(default_factory=InferenceConfig)
    learning: LearningConfig = Field(default_factory=LearningConfig)
    replay: ReplayConfig = Field(default_factory=ReplayConfig)
    service: ServiceConfig = Field(default_factory=ServiceConfig)
    run: RunConfig = Field(default_factory=RunConfig)

    @model_validator(mode="after")
    def _combinations(self) -> Config:
        if self.policy.epsilon_end > self.policy.epsilon_start:
            raise ValueError("policy.epsilon_end must not exceed policy.epsilon_start")
        if self.learning.n_step * 2 > self.replay.capacity:
            raise ValueError(
                f"learning.n_step = {self.learning.n_step} does not fit into replay.capacity = "
                f"{self.replay.capacity}"
            )
        if self.learning.learning_starts > self.replay.capacity // 2:
            raise ValueError(
                f"learning.learning_starts = {self.learning.learning_starts} is more than half "
                f"of replay.capacity = {self.replay.capacity}: learning would never start"
            )
        return self

    @property
    def state_dir(self) -> Path:
        """The state directory with `~` expanded."""
        return self.run.state_dir.expanduser()


def load_config(
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read the configuration.

    Args:
        path: a TOML file; none: the defaults, which fit the built-in game.
        overrides: `SECTION.KEY=VALUE` strings, the strongest source.
        environ: where `RTAGENT_SECTION__KEY` is looked up; the process's environment if none.

    Returns:
        The validated configuration.

    Raises:
        UserError: names the field and the value that is not acceptable.
    """
    values: dict[str, Any] = _read_toml(Path(path)) if path is not None else {}
    for name, text in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENVIRONMENT_PREFIX) and "__" in name:
            section, _, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
            _assign(values, [section, *key.split("__")], text)
    for item in overrides:
        dotted, equals, text = item.partition("=")
        if not equals or "." not in dotted:
            raise UserError(f"--set {item}: expected SECTION.KEY=VALUE")
        _assign(values, dotted.strip().split("."), text.strip())
    return parse_config(values)


def parse_config(values: Mapping[str, Any]) -> Config:
    """Validate a nested mapping of settings.

    Raises:
        UserError: names the field and the value that is not acceptable.
    """
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(describe_validation_error(error)) from None


def describe_validation_error(error: ValidationError) -> str:
    """The first problem of a validation error as one line: field, value, reason."""
    first = error.errors()[0]
    # Beyond the field's name come the branches of a union, which say nothing to the user.
    field = ".".join(str(part) for part in first["loc"][:2]) or "configuration"
    reason = first["msg"].removeprefix("Value error, ")
    others = len({each["loc"][:2] for each in error.errors()}) - 1
    more = f" (and {others} more)" if others else ""
    if first["type"] == "extra_forbidden":
        return f"{field}: unknown key; `rtagent config schema` lists all keys{more}"
    if isinstance(first["input"], dict | BaseModel):
        return f"{field}: {reason}{more}"
    return f"{field} = {first['input']!r}: {reason}{more}"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def _assign(values: dict[str, Any], keys: Sequence[str], text: str) -> None:
    """Set one nested value; the text is TOML where it parses as TOML, else a bare string."""
    try:
        value: Any = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    table = values
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise UserError(f"{'.'.join(keys)}: {key} is a value, not a section")
    table[keys[-1]] = value
