"""The configuration: its sections, their keys, and what they mean.

Every model is frozen and refuses unknown keys; every field carries its description, so that
`rtagent config schema` is the reference manual. A field marked `live` can change while the daemon
runs: all interfaces and the shared memory follow from the mark (`live_config.py`), and what reads
the field reads it from the desired state. Nothing here imports torch or touches the machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

GAME_BOY_HZ = 59.7275
MAX_INFERENCE_PROCESSES = 256
MAX_LEARNERS = 64
MOST_PROCESSES = MAX_INFERENCE_PROCESSES + MAX_LEARNERS
LONGEST_DEADLINE_S = 366 * 86_400.0
MOST_SAMPLES = 10**15
MOST_INDEX = 2**53
"""Of a discrete action: JSON numbers are exact so far."""
MOST_ACTION = 3.4e38
"""Of a continuous action: the largest float32."""
MOST_MEMORY_MB = MOST_DISK_MB = 1 << 30

Algorithm = Literal["adaptive", "maximum-time", "expected-time", "unstaggered"]
Distribution = Literal["constant", "gauss", "lognormal", "outliers"]
LearningAlgorithm = Literal[
    "auto", "dqn", "double-dqn", "c51", "ppo", "a2c", "td3", "ddpg", "sac"
]
Precision = Literal["float32", "bfloat16", "float16"]
LEARNING_PRECISIONS: tuple[Precision, ...] = get_args(Precision)
LearningOrder = Literal["round-robin", "first-come"]
R3Mode = Literal["off", "max-a", "max-p", "episode", "step"]
Host = Annotated[str, Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$")]
LearnerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
ActionValue = Annotated[float, Field(ge=-MOST_ACTION, le=MOST_ACTION)]
Processes = Annotated[int, Field(ge=1, le=MAX_INFERENCE_PROCESSES)] | Literal["auto"]


def live(in_force: str) -> dict[str, Any]:
    """Marks a field that can change while the daemon runs; `in_force` says when a change acts."""
    return {"live": in_force}


class Section(BaseModel):
    """Base of all sections: immutable, and strict about names; docstrings describe the fields."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        # A description is one line, however its docstring is broken.
        for field in cls.model_fields.values():
            field.description = " ".join((field.description or "").split()) or None
        cls.model_rebuild(force=True)


class EnvConfig(Section):
    """The world: which environment, how fast it ticks, and what it does when nobody acts."""

    id: str = Field("rtagent/Starfall-v0", min_length=1)
    """A registered Gymnasium id, or `package.module:EnvId-v0`."""
    rate_hz: Annotated[float, Field(gt=0.0, le=1000.0)] | Literal["auto"] = "auto"
    """Ticks per second of wall-clock time; auto: the environment's own rate (59.7275 for a Game
    Boy, `metadata['render_fps']` of a Gymnasium environment)."""
    default_action: (
        Annotated[str, Field(max_length=256)]
        | Annotated[int, Field(ge=-MOST_INDEX, le=MOST_INDEX)]
        | Annotated[list[ActionValue], Field(max_length=256)]
    ) = Field("noop", json_schema_extra=live("at the next tick"))
    """Default behaviour when no action is ready: `noop`, `repeat`, an action, or
    `package.module:callable`, called with the newest frame, which can be set before the start only.
    An action that the environment does not have is reported as an event while the daemon runs, and
    the default behaviour stays as it was."""
    frame_stack: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Frames per observation, 1 to 16; auto: 4 for images, 1 for vectors."""
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
    """Size to which pictures are shrunk: one side of a square, or [height, width]."""
    grayscale: bool = True
    """Whether pictures become grey levels; false keeps their colours, in three times the memory."""
    observation_key: str = Field("auto", min_length=1)
    """Entry of a Dict observation that the agent sees; auto: its picture (among several one named
    pixels, image, rgb, screen or camera), else all entries as one vector."""
    kwargs: dict[str, Any] = Field(default_factory=dict, examples=[{"encounter": 33}])
    """Passed on to the environment's constructor."""


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


class LearningConfig(Section):
    """How the policy improves from what really happened."""

    algorithm: LearningAlgorithm = "auto"
    """dqn, double-dqn, c51, ppo or a2c for discrete actions, td3, ddpg or sac for continuous ones;
    auto: dqn or td3."""
    dueling: bool = False
    """Separate heads for the state's value and the actions' advantages."""
    where: Literal["here", "cluster"] = "here"
    """here: learner processes on this machine; cluster: a learner of a Ray cluster, and one process
    here that exchanges batches and weights with it (extra `cluster`)."""
    processes: int = Field(
        1, ge=0, le=MAX_LEARNERS, json_schema_extra=live("once the processes run")
    )
    """Learner processes, 0 to 64; 0: act only."""
    paused: bool = Field(False, strict=True, json_schema_extra=live("at the next update"))
    """Whether the learners wait."""
    order: LearningOrder = Field("round-robin", json_schema_extra=live("at the next update"))
    """round-robin: gradients are applied in strict turn; first-come: as they are ready, and those
    that are too stale are dropped."""
    lease_s: float = Field(1.0, ge=0.1, le=600.0)
    """A learner that makes no progress for so long, or for four of its updates if that is longer,
    loses its turn to the next."""
    batch_size: int = Field(32, ge=1, le=65_536, json_schema_extra=live("at the next update"))
    """Transitions per update; with r3.mode, of the smallest one."""
    prefetch: int = Field(2, ge=0, le=16)
    """Batches that a background thread keeps ready; with 0 there is no such thread."""
    learning_rate: float = Field(5e-4, gt=0.0, le=1.0, json_schema_extra=live("at the next update"))
    """Adam's step size."""
    gamma: float = Field(0.99, ge=0.0, le=1.0)
    """Discount per tick: what comes 1 / (1 - gamma) ticks later counts a third. Per decision, if
    discount says so."""
    n_step: int = Field(8, ge=1, le=1000)
    """Ticks summed before bootstrapping: as many decisions as fit into them, at least one; who
    decides seldom needs more ticks. Decisions, if discount says so."""
    discount: Literal["ticks", "decisions"] = "ticks"
    """What gamma and n_step count. ticks: the agent looks equally far ahead in time with any number
    of inference processes; decisions: it looks the further ahead, the more seldom it decides, for
    comparison."""
    target_period: int = Field(250, ge=1)
    """Updates between two copies of the weights to the target network."""
    target_tau: float | None = Field(None, gt=0.0, le=1.0)
    """Soft update: the target network moves by this fraction towards the weights at every update,
    and target_period is not used. If it is not set, target_period holds; td3, ddpg and sac
    move their target by 0.005, td3 at every policy_delay-th update."""
    prioritized: bool = False
    """Sample transitions with large errors more often (Schaul et al., 2016)."""
    priority_exponent: float = Field(0.6, ge=0.0, le=1.0)
    """How strongly errors decide: 0 samples uniformly."""
    importance_exponent: float = Field(0.4, ge=0.0, le=1.0)
    """Correction of the bias by importance weights at update 0; it grows linearly to 1, the full
    correction."""
    importance_steps: int = Field(100_000, ge=1)
    """Updates after which the correction is full."""
    atoms: int = Field(51, ge=2, le=1001)
    """c51: points of the value distribution."""
    v_min: float = -10.0
    """c51: smallest value that can be represented."""
    v_max: float = 10.0
    """c51: largest value that can be represented."""
    policy_delay: int = Field(2, ge=1, le=1000)
    """td3: updates of the critics for one of the actor."""
    target_noise: float = Field(0.2, ge=0.0, le=10.0)
    """td3: standard deviation of the noise that smooths target actions, in units of half an
    action's range."""
    target_noise_clip: float = Field(0.5, ge=0.0, le=10.0)
    """td3: largest noise of a target action, in the same units."""
    temperature: float | None = Field(None, gt=0.0)
    """sac: what a unit of entropy is worth, in units of reward. If it is not set, it is learned, so
    that the policy's entropy is target_entropy."""
    target_entropy: float | None = None
    """sac: wanted entropy of the policy, in nats, of actions scaled to [-1, 1]. If it is not set,
    minus the number of an action's components."""
    rollout: int = Field(512, ge=2, le=1_000_000)
    """ppo, a2c: decisions of a stretch; each stretch is new, and learned from in order."""
    epochs: int = Field(4, ge=1, le=1000)
    """ppo: how many times a stretch is gone through, in batches of batch_size; a2c makes one update
    of all its decisions."""
    clip: float = Field(0.2, gt=0.0, lt=1.0)
    """ppo: how far the probability of an action may move in one stretch, relatively."""
    trace: float = Field(0.95, ge=0.0, le=1.0)
    """ppo, a2c: lambda, per decision; 0: advantages look one decision ahead, 1: to the end."""
    entropy: float = Field(0.01, ge=0.0)
    """ppo, a2c: what a unit of the policy's entropy counts in the loss."""
    learning_starts: int = Field(1000, ge=1)
    """Ticks in the replay before the first update."""
    demonstrations: Path | None = None
    """A file recorded with `rtagent rom record`, or a folder of them, that an empty replay starts
    with; a saved replay that is restored goes before it."""
    demonstration_delay: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """Ticks from the frame that a demonstrated action is learned for to its execution; auto: as
    many as inference.injected_latency_ms makes them, 1 without."""
    demonstration_interval: int = Field(1, ge=1, le=1024)
    """Ticks from one demonstrated decision to the next, the first at the first tick of an episode;
    what is executed in between counts as the default behaviour. For players who decide so seldom.
    """
    demonstration_margin: float = Field(0.0, ge=0.0)
    """By how much the value of a demonstrated action is made larger than those of all others
    (Hester et al., 2018); 0: demonstrations are learned from like any other play."""
    transitions: Literal["decision", "executed"] = "decision"
    """decision: from the frame a decision saw to the frame the next one saw; executed: from the
    frame before its execution, for comparison."""
    precision: Literal["auto", Precision] = "auto"
    """Precision of the learner's forward and backward pass, over float32 weights; targets, losses
    and the head of a built-in network are float32 in any case. auto: what a short measurement
    before the first update shows to be the fastest. float16 scales its loss; most processors
    compute it hundreds of times more slowly."""
    device: Literal["auto", "cpu"] = "auto"
    """Where learners compute. There is no other choice than the processor so far."""
    placement: Literal["off", "auto"] = "off"
    """auto: each learner measures the parts of its step, and lets a second core compute some of
    them, as AP-DRL's program says, where that is faster; in float32 the gradients stay the same to
    the last bit. For dqn, double-dqn and c51. off: a step runs on one core."""
    gradient_clip: float = Field(10.0, ge=0.0)
    """Largest norm of the gradient, that of the actor's and of the critics' or values' each; 0:
    not clipped."""
    publish_every: int = Field(10, ge=1)
    """Updates between two publications of the weights."""
    updates_per_tick: float = Field(
        0.0, ge=0.0, le=10_000.0, json_schema_extra=live("at the next update")
    )
    """Upper bound of updates per tick of the world, of all learners together; 0: as many as the
    machine gives."""
    evaluation_every_s: float = Field(0.0, ge=0.0)
    """Seconds between two evaluations of the newest weights, without exploration, by a process of
    its own with an environment of its own; with 0 there are none."""
    evaluation_episodes: int = Field(5, ge=1, le=1000)
    """Episodes per evaluation."""


class ReplayConfig(Section):
    """The shared ring that is observation, replay and screen at once."""

    capacity: int = Field(100_000, ge=256, le=50_000_000)
    """Ticks kept, the newest first."""


class R3Config(Section):
    """Learning inside a deadline and a memory budget (Li et al., R3)."""

    mode: R3Mode = Field("off", json_schema_extra=live("at the next update"))
    """episode or step: the batch size follows the deadline, adjusted at every episode or at every
    update; max-a: the smallest batches throughout, max-p: the largest (the paper's baselines); off:
    no deadline."""
    deadline_s: float | None = Field(
        None, gt=0.0, le=LONGEST_DEADLINE_S, json_schema_extra=live("at the next update")
    )
    """D: seconds of one training horizon; needed unless mode is off."""
    data_budget: int | None = Field(
        None, gt=0, le=MOST_SAMPLES, json_schema_extra=live("at the next update")
    )
    """B: samples of one training horizon; needed unless mode is off."""
    memory_budget_mb: int | None = Field(
        None, gt=0, le=MOST_MEMORY_MB, json_schema_extra=live("within a second")
    )
    """MiB for all processes, batches and replay together, in every mode. If it is not set, the
    replay grows to replay.capacity."""
    factor: float = Field(2.0, gt=1.0, le=16.0)
    """c: the batch size is multiplied or divided by it."""
    margin: float = Field(0.15, ge=0.0, lt=1.0)
    """Fraction of the deadline kept in reserve: the batch size is steered to use the budget that
    much earlier; 0: the paper's rule."""
    window: int = Field(4, ge=1, le=1000)
    """gamma: episodes that the coordinator compares with."""
    batch_share: float = Field(0.25, gt=0.0, lt=1.0)
    """m: share of batches in the memory that batches and replay have together, at the start."""
    target_return: float | None = None
    """R*: a horizon ends early once enough episodes reach it. If it is not set, no horizon does."""
    target_episodes: int = Field(10, ge=1, le=1000)
    """K: consecutive episodes that must reach target_return."""


class ClusterConfig(Section):
    """The learner somewhere else, and the link to it (Morishima and Matsutani, 2024)."""

    address: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Address of a Ray cluster's head, `host:port`. If it is not set, a Ray of this machine alone
    is started."""
    name: LearnerName = "rtagent"
    """Name of the learner in that cluster: daemons with the same name feed the same learner.
    Letters, digits, dot, underscore, hyphen."""
    replay: Literal["edge", "learner"] = "edge"
    """edge: the replay stays here, and only what was sampled travels. learner: every tick travels
    once, as it happens, and the learner keeps a replay of `replay.capacity` for this daemon (the
    paper's baseline)."""
    weights_every: int = Field(16, ge=1, le=1_000_000)
    """Updates between two deliveries of the weights (N_update)."""
    cache_mb: int = Field(64, ge=0, le=MOST_MEMORY_MB)
    """MiB of frames that the learner keeps for this daemon, so that a frame that is sampled again
    need not travel again; with 0, those of two batches."""
    emulated_rtt_ms: float = Field(0.0, ge=0.0, le=10_000.0)
    """Emulated delay of the link, ms there and back, added to its own."""
    emulated_bandwidth_mbps: float | None = Field(None, gt=0.0, le=1e6)
    """Emulated bandwidth of the link in each direction, 10^6 bits per second. If it is not set, its
    own."""
    emulated_loss: float = Field(0.0, ge=0.0, le=0.99)
    """Emulated share of messages that are lost in each direction, 0 to 0.99."""


class ServiceConfig(Section):
    """Where the HTTP service listens."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address to bind."""
    port: int = Field(8008, ge=0, le=65_535)
    """Port to bind; 0 takes a free one."""
    insecure: bool = False
    """Allow a bind to an address other than loopback without TLS."""
    certificate: Path | None = None
    """PEM file with a certificate and its chain: the service then speaks TLS alone. It is read
    again when the service is restarted."""
    private_key: Path | None = None
    """PEM file with the certificate's key, without a passphrase. If it is not set, the key is in
    the certificate's file."""
    allowed_hosts: list[Host] = Field(
        default_factory=list, examples=[["hub.example", "127.0.0.1:9000"]]
    )
    """Further names under which browsers and programs may reach the service, for a reverse proxy or
    a forwarded port: `name:port`, or `name` at service.port, 80 and 443."""


class RunConfig(Section):
    """The run as a whole."""

    seed: int = Field(0, ge=0, le=2**31 - 1)
    """Seed of everything that is random."""
    state_dir: Path = Path("~/.local/state/rtagent")
    """Token, checkpoints, events of this daemon."""
    checkpoint_every_s: float = Field(120.0, ge=1.0)
    """Seconds between two checkpoints; one more is made on stop."""
    keep_checkpoints: int = Field(3, ge=1, le=10_000)
    """The newest checkpoints that are kept, beside the best one."""
    checkpoints_mb: int = Field(16_384, ge=1, le=MOST_DISK_MB)
    """MiB of the checkpoints that are kept; the newest stays in any case."""
    keep_runs: int = Field(100, ge=1, le=100_000)
    """Runs whose folders are kept, this one included: a start removes the oldest. A folder that was
    renamed stays."""
    runs_mb: int = Field(4096, ge=1, le=MOST_DISK_MB)
    """MiB of the runs' folders that are kept."""
    events_mb: int = Field(16, ge=1, le=1024)
    """MiB of events that a run keeps, and of finished episodes (`episodes.csv`); then the oldest
    go."""
    tensorboard_mb: int = Field(1024, ge=1, le=MOST_DISK_MB)
    """The same of its figures for TensorBoard."""
    checkpoint_replay: bool = False
    """Save the replay with the checkpoint on stop, and restore it at start."""
    tensorboard: bool = True
    """Write the figures of the run for TensorBoard into the state dir."""
    resume: bool = True
    """Start from the newest checkpoint of the state dir."""
    max_processes: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] | Literal["auto"] = "auto"
    """Most inference processes and learners together; auto: 16 and 16 more for each core, as long
    as half of the memory that is free at the start has room for them, but 8 at least."""
    realtime: Literal["auto", "on", "off"] = "auto"
    """SCHED_FIFO and locked memory for the environment process; on: refuse to start without the
    permission."""


class Config(Section):
    """The whole configuration."""

    env: EnvConfig = Field(default_factory=EnvConfig)
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    inference: InferenceConfig = Field(default_factory=InferenceConfig)
    learning: LearningConfig = Field(default_factory=LearningConfig)
    replay: ReplayConfig = Field(default_factory=ReplayConfig)
    r3: R3Config = Field(default_factory=R3Config)
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    service: ServiceConfig = Field(default_factory=ServiceConfig)
    run: RunConfig = Field(default_factory=RunConfig)

    @model_validator(mode="after")
    def _combinations(self) -> Config:
        policy, learning, capacity = self.policy, self.learning, self.replay.capacity
        if policy.epsilon_end > policy.epsilon_start:
            raise ValueError("policy.epsilon_end must not exceed policy.epsilon_start")
        if policy.epsilon_schedule == "exponential" and policy.epsilon_end == 0.0:
            raise ValueError(
                "policy.epsilon_end = 0 is never reached with policy.epsilon_schedule = "
                "'exponential'; use a positive one"
            )
        if learning.n_step * 2 > capacity:
            n_step = f"learning.n_step = {learning.n_step}"
            raise ValueError(f"{n_step} does not fit into replay.capacity = {capacity}")
        if learning.learning_starts > capacity // 2:
            raise ValueError(
                f"learning.learning_starts = {learning.learning_starts} is more than half "
                f"of replay.capacity = {capacity}: learning would never start"
            )
        if learning.v_min >= learning.v_max:
            raise ValueError("learning.v_min must be below learning.v_max")
        self._check_engine()
        self._check_cluster()
        self._check_on_policy()
        r3, batch = self.r3, learning.batch_size
        for name in ("deadline_s", "data_budget"):
            if r3.mode != "off" and getattr(r3, name) is None:
                raise ValueError(f"r3.mode = {r3.mode!r} needs r3.{name}")
        if r3.data_budget is not None and r3.data_budget < batch:
            raise ValueError(
                f"r3.data_budget = {r3.data_budget} is smaller than one batch of "
                f"learning.batch_size = {batch}"
            )
        return self

    def _check_engine(self) -> None:
        policy = self.policy
        if policy.engine == "torch" and policy.precision == "int8":
            raise ValueError(
                "policy.precision = 'int8' needs an engine: policy.engine = openvino, onnxruntime "
                "or auto"
            )
        if policy.engine == "onnxruntime" and policy.precision == "bfloat16":
            raise ValueError(
                "policy.precision = 'bfloat16': ONNX Runtime has none on a CPU; use auto, float32 "
                "or int8"
            )
        if policy.engine != "torch" and policy.device != "cpu":
            raise ValueError(
                f"policy.engine = {policy.engine!r} runs on the CPU, and policy.device is "
                f"{policy.device!r}; set policy.engine = torch, or policy.device = cpu"
            )

    def _check_cluster(self) -> None:
        if self.learning.where == "here":
            return
        if self.learning.processes != 1:
            raise ValueError(
                f"learning.processes = {self.learning.processes} does not fit learning.where = "
                "'cluster', which needs 1: the gateway is the one process"
            )
        if self.r3.mode != "off":
            raise ValueError(
                f"r3.mode = {self.r3.mode!r} does not fit learning.where = 'cluster', which needs "
                "'off'"
            )

    def _check_on_policy(self) -> None:
        learning = self.learning
        if learning.algorithm not in ("ppo", "a2c"):
            return
        for name, given, needed in (
            ("learning.where", learning.where, "here"),
            ("learning.prioritized", learning.prioritized, False),
            ("learning.demonstrations", learning.demonstrations, None),
            ("r3.mode", self.r3.mode, "off"),
        ):
            if given != needed:
                raise ValueError(
                    f"{name} = {given!r} does not fit learning.algorithm = "
                    f"{learning.algorithm!r}, which learns from what its policy has just done; "
                    f"use {needed!r}"
                )
        if learning.processes > 1:
            raise ValueError(
                f"learning.processes = {learning.processes} does not fit learning.algorithm = "
                f"{learning.algorithm!r}: all learners would learn from the same decisions; use 1"
            )

    @property
    def state_dir(self) -> Path:
        """The state directory with `~` expanded."""
        return self.run.state_dir.expanduser()
