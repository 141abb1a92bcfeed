"""The policy, and the processes that act by it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rtagent.config.section import Algorithm, Distribution, Processes, Section, live


class PolicyConfig(Section):
    """The network that maps an observation to action values or an action, and how it explores."""

    network: Literal["auto", "resnet", "nature", "mlp"] = "auto"
    """Network by name; auto: mlp for vectors, nature for images."""
    width: int = Field(1, ge=1, le=128)
    """Width factor k of the resnet; hidden units of the mlp are 64 k."""
    factory: str | None = Field(None, pattern=r"^[\w.]+:[\w.]+$")
    """`package.module:callable`, called with (observation_space, action_space), returns a
    torch.nn.Module. Overrides `network`."""
    engine: Literal["torch", "openvino", "onnxruntime", "auto"] = "torch"
    """What runs the network to act: torch; OpenVINO (extra `openvino`) or ONNX Runtime (extra
    `onnx`), for which a process of its own converts published weights; auto: the fastest of those
    installed that agrees. Whatever cannot take the network leaves acting to torch."""
    engine_agreement: float = Field(0.99, ge=0.0, le=1.0)
    """A converted model acts only if at least this share of its actions on recent frames is what
    torch chooses in float32."""
    engine_frames: int = Field(100, ge=1, le=10_000)
    """Recent frames on which that is checked."""
    engine_share: float = Field(0.1, gt=0.0, le=1.0)
    """Largest share of a core that conversion may take. Where weights are published more often than
    they can be converted, the newest ones are, when their turn comes."""
    precision: Literal["auto", "float32", "bfloat16", "int8"] = "auto"
    """Precision of inference on the CPU; auto: bfloat16 for the resnet, float32 otherwise, and with
    an engine the fastest that agrees. int8 needs an engine. float16 is refused: it is 30 to 100
    times slower there."""
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    """Where inference runs: cpu or cuda:N."""
    epsilon_start: float = Field(1.0, ge=0.0, le=1.0)
    """Exploration rate at update 0. Discrete actions: how often a random one is taken. Continuous
    ones: at 1 they are uniformly random, below 1 the rate is the standard deviation of the noise on
    them, in units of half their range. sac, ppo and a2c draw from their policies instead, and at 0
    take the mean or the likeliest action."""
    epsilon_end: float = Field(0.05, ge=0.0, le=1.0)
    """Exploration rate at the end."""
    epsilon_steps: int = Field(2000, ge=1)
    """Updates over which the exploration rate falls."""
    epsilon_schedule: Literal["linear", "exponential"] = "linear"
    """How it falls: by equal steps, or by an equal factor per update."""
    exploration_hold_ticks: int = Field(8, ge=1, le=1000)
    """Ticks for which an exploratory choice is held, so that exploration at a high tick rate still
    goes somewhere; 1 draws anew on every tick. Continuous actions: ticks from one draw of the noise
    to the next, between which it moves smoothly."""


class InferenceConfig(Section):
    """How many processes act, and how they are staggered."""

    processes: Processes = Field(2, json_schema_extra=live("once the processes run"))
    """Inference processes, 1 to 256; auto: as many as keep the interaction time within the action
    deadline, and no more than there are cores unless latency is injected."""
    algorithm: Algorithm = Field("adaptive", json_schema_extra=live("at the next inference"))
    """How the processes are staggered; unstaggered is there for comparison only."""
    action_deadline_ms: float | None = Field(
        None, gt=0.0, le=60_000.0, json_schema_extra=live("within a second")
    )
    """Wanted interaction time, ms. If it is not set, one tick."""
    fill: int = Field(2, ge=0, le=2, json_schema_extra=live("at the next tick"))
    """How many ticks ahead an action may be re-used to avoid inaction; 0: strictly one action per
    tick."""
    injected_latency_ms: float = Field(
        0.0, ge=0.0, le=60_000.0, json_schema_extra=live("at the next inference")
    )
    """Pads the inference time, forward pass included, to a value drawn around this mean: to study a
    large or remote model on a small machine."""
    injected_latency_distribution: Distribution = "constant"
    """Distribution of the injected latency."""
    injected_latency_spread: float = Field(0.0, ge=0.0, le=100.0)
    """gauss: relative standard deviation; lognormal: sigma; outliers: below 1 their share, each 10
    times as long, from 1 on the factor of the 1 % that they are; 0: 1 %, 10 times as long."""
