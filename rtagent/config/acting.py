"""The sections `policy` and `inference` of the configuration."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from rtagent.config.addresses import PolicyAddress
from rtagent.config.section import Algorithm, Distribution, Merging, Processes, Section, live


class PolicyConfig(Section):
    """The network that maps an observation to action values or an action, and how it explores."""

    network: Literal["auto", "resnet", "nature", "mlp", "lstm", "transformer"] = "auto"
    """Network by name; auto: mlp for vectors, nature for images. lstm carries a state along from
    one inference to the next, and is learned by dqn, double-dqn and c51; transformer attends to the
    last env.frame_stack frames."""
    width: int = Field(1, ge=1, le=128)
    """Width factor k of the resnet; hidden units of mlp and lstm and features of the transformer
    are 64 k."""
    factory: str | None = Field(None, pattern=r"^[\w.]+:[\w.]+$")
    """`package.module:callable`, called with (observation_space, action_space), returns a
    torch.nn.Module. Overrides `network`. With env.pending_actions the space is a Dict of
    `observation` and `pending`, and the module takes both. With `pretrained` it is
    called with (observation_space, action_space, pretrained, device), and returns what answers one
    observation."""
    pretrained: str | None = Field(None, min_length=1)
    """A finished policy, which acts and does not learn: a torch.export program (.pt2) or an ONNX
    file; or, by policy.factory = 'rtagent.policy.lerobot:load' (extra `lerobot`), the folder or hub
    id of a LeRobot policy. Needs learning.processes = 0."""
    task: str | None = Field(None, min_length=1, examples=["fold the towel"])
    """What a finished policy is told to do, in words; its factory is called with `task`, too. A
    policy server is told by remote_inputs."""
    remote: PolicyAddress | None = None
    """Address of a policy server, `ws://host:port` or `wss://host:port`, as `rtagent policy-server`
    or openpi run it: inference processes ask it instead of a network of their own. Its token is
    taken from RTAGENT_REMOTE_TOKEN. Needs learning.processes = 0."""
    remote_inputs: dict[str, str | float | int | bool] = Field(
        default_factory=dict, examples=[{"prompt": "fold the towel"}]
    )
    """What each request to the policy server says beside the observation, such as a prompt."""
    remote_state: int = Field(0, ge=0, le=1 << 20)
    """How many numbers the server's recurrent policy carries from one inference to the next, as
    `rtagent policy-server` prints it; 0: none. They travel with each request and its answer, so
    that an inference begins with the state that the newest finished one has left."""
    remote_hedge: float | None = Field(None, gt=1.0, le=100.0, examples=[1.5])
    """Hedged requests: an answer that takes more than so many times as long as usual is not waited
    for; a request about the newest frame goes over a second connection of the process. The server
    gets more requests, and must compute several at once. If it is not set, never."""
    chunk: Merging = "newest"
    """Where several inferences promise an action for one tick, as with chunks of actions: newest
    takes the one of the newest observation; ensemble takes their weighted mean (continuous
    actions); prefix takes the newest, too, and wants a policy that is given the actions already
    promised, so it needs env.pending_actions."""
    chunk_start: Literal["auto", "promised", "observation"] = "auto"
    """The tick that the first action of a chunk is for: promised, the tick for which the answer was
    promised; observation, the one after the observation, so that actions for ticks that are over
    by the promised one are left out; auto: observation for policy.pretrained and policy.remote,
    which have learned so, promised for a network here."""
    engine: Literal["torch", "openvino", "onnxruntime", "auto"] = "torch"
    """What runs the network to act: torch; OpenVINO (extra `openvino`) or ONNX Runtime (extra
    `onnx`), for which a process of its own converts published weights; auto: the fastest of those
    installed that agrees, if it is faster than torch. Where no engine supports the network, or
    agrees, torch runs it."""
    engine_agreement: float = Field(0.99, ge=0.0, le=1.0)
    """A converted model acts only if at least this share of its actions on recent frames is what
    torch chooses in float32."""
    engine_frames: int = Field(100, ge=1, le=10_000)
    """Recent frames on which this agreement is checked; fewer if the replay keeps fewer."""
    engine_share: float = Field(0.1, gt=0.0, le=1.0)
    """Largest share of a core that conversion may take. If weights are published more often than
    that allows, only the newest are converted, and those between are skipped."""
    precision: Literal["auto", "float32", "bfloat16", "int8"] = "auto"
    """Precision of inference; auto: on the CPU the resnet in bfloat16 where that is measured to be
    faster, float32 otherwise, and with an engine the fastest that agrees. int8 needs OpenVINO.
    float16 is refused: most processors compute it far more slowly."""
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:(0|[1-9][0-9]?))?)$")
    """Where inference runs: cpu or cuda:N."""
    epsilon_start: float = Field(1.0, ge=0.0, le=1.0)
    """Exploration rate at update 0. Discrete actions: how often a random one is taken. Continuous
    ones: at 1 they are uniformly random, below 1 the rate is the standard deviation of the noise on
    them, in units of half their range. ppo, a2c and, below 1, sac draw from their policies instead,
    and at 0 take the likeliest action or the mean."""
    epsilon_end: float = Field(0.05, ge=0.0, le=1.0)
    """Exploration rate at the end; above 0 while sac, ppo or a2c learn, for at 0 they, too, stop
    exploring."""
    epsilon_steps: int = Field(2000, ge=1)
    """Updates over which the exploration rate falls."""
    epsilon_schedule: Literal["linear", "exponential"] = "linear"
    """How the exploration rate falls: by equal steps, or by an equal factor per update."""
    exploration_hold_ticks: int = Field(8, ge=1, le=1000)
    """Ticks for which an exploratory choice is held, so that exploration at a high tick rate still
    goes somewhere; 1 draws anew on every tick. Continuous actions: ticks from one draw of the noise
    to the next, between which it moves smoothly."""

    @field_validator("remote_inputs")
    @classmethod
    def _can_be_sent(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "observation" in value:
            raise ValueError("observation is what the policy sees, and cannot be set")
        for name, each in value.items():
            if isinstance(each, int) and not -(1 << 63) <= each < 1 << 64:
                raise ValueError(f"{name} must be a whole number of 64 bits, or have a point")
            # A terminal may give bytes that are no UTF-8.
            if any("\ud800" <= letter <= "\udfff" for letter in f"{name}{each}"):
                raise ValueError(f"{name!a} and its value must be text in UTF-8")
        return value

    @property
    def learns(self) -> bool:
        """Whether the run has a network of its own, whose weights it can learn."""
        return self.remote is None and self.pretrained is None

    @property
    def starts_at_observation(self) -> bool:
        """Whether chunks begin with the tick after their observation."""
        if self.chunk_start == "auto":
            return not self.learns
        return self.chunk_start == "observation"


class InferenceConfig(Section):
    """How many processes act, and how they are staggered."""

    processes: Processes = Field(2, json_schema_extra=live("once the processes run"))
    """Inference processes, 1 to 256; auto: as many as keep the interaction time within the action
    deadline, and no more than there are cores, unless they wait: for a remote policy, or because
    latency is injected."""
    algorithm: Algorithm = Field("adaptive", json_schema_extra=live("at the next inference"))
    """How the processes are staggered. For comparison only: unstaggered; sequential, one process
    that waits for an update after each action, or before it; and the algorithms as published."""
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
    """Pads the inference time, forward pass included, to a value drawn around this mean; of
    outliers, to this time for all others. To study a large or remote model on a small machine."""
    injected_latency_distribution: Distribution = "constant"
    """Distribution of the injected latency."""
    injected_latency_spread: float = Field(0.0, ge=0.0, le=100.0)
    """gauss: relative standard deviation; lognormal: sigma; outliers: below 1, the share of
    inferences that take 10 times as long; from 1 on, how many times as long 1 % of them take; 0:
    1 % take 10 times as long."""

    @property
    def sequential(self) -> bool:
        """Whether acting and learning wait for each other."""
        return self.algorithm.startswith("sequential")
