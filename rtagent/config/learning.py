"""The sections `learning`, `replay`, `r3` and `cluster` of the configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rtagent.config.addresses import ClusterAddress
from rtagent.config.section import (
    LONGEST_DEADLINE_S,
    MAX_LEARNERS,
    MOST_BATCH,
    MOST_MEMORY_MB,
    MOST_SAMPLES,
    LearnerName,
    LearningAlgorithm,
    LearningOrder,
    PathName,
    Precision,
    R3Mode,
    Section,
    live,
)

A2C_DEFAULTS = {"rollout": 32, "publish_every": 1}
"""A rollout gives a2c one update, so it needs many; as the last one of its rollout, each of them is
published in any case."""

MOST_VALUE = 1e15
"""Largest amount of a value that c51 represents, far from the largest float32."""


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
    """Whether the learners wait, and make no updates."""
    order: LearningOrder = Field("round-robin", json_schema_extra=live("at the next update"))
    """round-robin: gradients are applied in strict turn; first-come: as they are ready, and those
    that are too stale are dropped."""
    lease_s: float = Field(1.0, ge=0.1, le=600.0)
    """A learner that makes no progress for so long, or for four of its updates if that is longer,
    loses its turn to the next."""
    batch_size: int = Field(32, ge=1, le=MOST_BATCH, json_schema_extra=live("at the next update"))
    """Transitions per update; where r3.mode steers their number, the smallest. Those of a2c are
    rollout instead."""
    prefetch: int = Field(2, ge=0, le=16)
    """Batches that a background thread keeps ready; with 0 there is no such thread."""
    learning_rate: float = Field(5e-4, gt=0.0, le=1.0, json_schema_extra=live("at the next update"))
    """Adam's step size; where learning_rate_steps is set, that of the first update."""
    learning_rate_steps: int = Field(0, ge=0)
    """Updates, those before a resumed run included, over which the step size falls in a straight
    line to learning_rate_end_factor times learning_rate, to stay there; 0: it stays learning_rate.
    """
    learning_rate_end_factor: float = Field(0.02, gt=0.0, le=1.0)
    """The share of learning_rate that is left after learning_rate_steps updates."""
    gamma: float = Field(0.99, ge=0.0, le=1.0)
    """Discount per tick: what comes 1 / (1 - gamma) ticks later counts a third. Per decision, if
    discount says so."""
    n_step: int = Field(8, ge=1, le=1000)
    """Ticks whose rewards are summed before bootstrapping: as many decisions as fit into them, at
    least one; with few decisions per second, set more ticks. Decisions, if discount says so."""
    sequence: int = Field(16, ge=1, le=1024)
    """Recurrent networks: consecutive decisions of a sequence that are learned from. A batch has as
    many sequences as batch_size needs."""
    burn_in: int = Field(16, ge=0, le=1024)
    """Recurrent networks: decisions before these, which only bring the stored state up to date with
    the newest weights (R2D2)."""
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
    v_min: float = Field(-10.0, ge=-MOST_VALUE, le=MOST_VALUE)
    """c51: smallest value that can be represented."""
    v_max: float = Field(10.0, ge=-MOST_VALUE, le=MOST_VALUE)
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
    minus the number of an action's components whose bounds differ."""
    rollout: int = Field(512, ge=2, le=1_000_000)
    """ppo, a2c: decisions of a rollout; each rollout is new, and learned from in order. At most
    half of replay.capacity. If it is not set, 32 for a2c."""
    epochs: int = Field(4, ge=1, le=1000)
    """ppo: how many times a rollout is gone through, in batches of at most batch_size; a2c makes
    one update of all its decisions."""
    clip: float = Field(0.2, gt=0.0, lt=1.0)
    """ppo: how far the probability of an action may move in one rollout, relatively."""
    trace: float = Field(0.95, ge=0.0, le=1.0)
    """ppo, a2c: lambda, per decision; 0: advantages look one decision ahead, 1: to the end."""
    entropy: float = Field(0.01, ge=0.0)
    """ppo, a2c: what a unit of the policy's entropy counts in the loss."""
    learning_starts: int = Field(1000, ge=1)
    """Ticks in the replay before the first update."""
    demonstrations: PathName | None = None
    """A file recorded with `rtagent rom record`, or a folder of them, that an empty replay starts
    with; a saved replay is restored in its place."""
    demonstration_delay: Annotated[int, Field(ge=1, le=1024)] | Literal["auto"] = "auto"
    """Ticks from the frame that a demonstrated action is learned for to its execution; auto: as
    many as inference.injected_latency_ms makes them, 1 without."""
    demonstration_interval: int = Field(1, ge=1, le=1024)
    """Ticks from one demonstrated decision to the next, the first at the first tick of an episode;
    what is executed in between counts as the default behaviour. For players who decide less often
    than at every tick."""
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
    compute convolutions in it hundreds of times more slowly."""
    device: str = Field("cpu", pattern=r"^(auto|cpu|cuda(:(0|[1-9][0-9]?))?)$")
    """Where learners compute: cpu, cuda:N, or auto, the first GPU if torch can use one; in a
    cluster, on the learner's machine. On a GPU a learner has weights, moments and target network of
    its own, and stores them in the host's memory, where learners meet."""
    placement: Literal["off", "auto"] = "off"
    """auto: each learner measures the parts of its step, and lets a second core compute some of
    them, as AP-DRL's program says, where that is faster; in float32 the gradients stay the same to
    the last bit. Refused for ppo and a2c. off: a step runs on one core."""
    gradient_clip: float = Field(10.0, ge=0.0)
    """Largest norm of the gradient, that of the actor's and of the critics' or values' each; 0:
    not clipped."""
    publish_every: int = Field(10, ge=1)
    """Updates between two publications of the weights. If it is not set, 1 for a2c. ppo and a2c
    publish after the last update of a rollout, too."""
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

    @property
    def on_policy(self) -> bool:
        """Whether the algorithm learns from what the policy has just done, a rollout at a time."""
        return self.algorithm in ("ppo", "a2c")

    @property
    def update_size(self) -> int:
        """Transitions of an update, if memory allows and R3 does not ask for more."""
        if self.algorithm == "a2c":
            return self.rollout
        return min(self.batch_size, self.rollout) if self.on_policy else self.batch_size

    def step_size(self, updates: int) -> float:
        """Adam's step size after a number of updates."""
        done = min(1.0, updates / self.learning_rate_steps) if self.learning_rate_steps else 0.0
        return self.learning_rate * (1.0 - done * (1.0 - self.learning_rate_end_factor))

    @property
    def whole_sequence(self) -> int:
        """Recurrent networks: decisions of a sequence, those around the learned ones included."""
        return self.burn_in + self.sequence + self.n_step

    @model_validator(mode="before")
    @classmethod
    def _of_algorithm(cls, values: Any) -> Any:
        """Add the defaults of an algorithm that has its own."""
        if isinstance(values, dict) and values.get("algorithm") == "a2c":
            return {**A2C_DEFAULTS, **values}
        return values


class ReplayConfig(Section):
    """The shared ring that is observation, replay and screen at once."""

    capacity: int = Field(100_000, ge=256, le=50_000_000)
    """How many ticks are kept: the newest ones."""


class R3Config(Section):
    """Learning within a deadline and a memory budget (Li et al., R3)."""

    mode: R3Mode = Field("off", json_schema_extra=live("at the next update"))
    """episode or step: the batch size follows the deadline, adjusted at every episode or at every
    update; max-a: the smallest batches throughout, max-p: the largest (the paper's baselines); off:
    no deadline."""
    deadline_s: float | None = Field(
        None, ge=0.001, le=LONGEST_DEADLINE_S, json_schema_extra=live("at the next update")
    )
    """D: seconds of one training horizon; needed unless mode is off."""
    data_budget: int | None = Field(
        None, gt=0, le=MOST_SAMPLES, json_schema_extra=live("at the next update")
    )
    """B: samples of one training horizon; needed unless mode is off."""
    memory_budget_mb: int | None = Field(
        None, gt=0, le=MOST_MEMORY_MB, json_schema_extra=live("within a second")
    )
    """MiB for all processes, batches and replay together, in every mode: of the host's memory, that
    of a GPU does not count. If it is not set, the replay grows to replay.capacity."""
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
    """A learner on another machine, and the link to it (Morishima and Matsutani, 2024)."""

    address: ClusterAddress | None = None
    """Address of a Ray cluster's head, `host:port`. If it is not set, a Ray of this machine alone
    is started."""
    name: LearnerName = "rtagent"
    """Name of the learner in that cluster: daemons with the same name feed the same learner.
    Letters, digits, dot, underscore, hyphen."""
    replay: Literal["edge", "learner"] = "edge"
    """edge: the replay stays here, and only what was sampled travels. learner: every tick travels
    once, as it happens, and the learner keeps a replay of `replay.capacity` for this daemon, as
    the paper's baseline does, which replaces its replay as a whole."""
    weights_every: int = Field(16, ge=1, le=1_000_000)
    """Updates between two deliveries of the weights (N_update)."""
    cache_mb: int = Field(1024, ge=0, le=MOST_MEMORY_MB)
    """MiB of frames that the learner keeps for this daemon at most, so that a frame that is sampled
    again need not travel again; with 0, those of two batches. Where it holds all of the replay, no
    frame travels twice; the learner's memory grows by as much, for each daemon."""
    emulated_rtt_ms: float = Field(0.0, ge=0.0, le=10_000.0)
    """Emulated delay of the link, ms there and back, added to its own."""
    emulated_bandwidth_mbps: float | None = Field(None, gt=0.0, le=1e6)
    """Emulated bandwidth of the link in each direction, 10^6 bits per second. If it is not set, its
    own."""
    emulated_loss: float = Field(0.0, ge=0.0, le=0.99)
    """Emulated share of messages that are lost in each direction, 0 to 0.99."""
