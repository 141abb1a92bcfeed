"""The figures of learning: learners, episodes, replay, and the deadline controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rtagent.telemetry.figures.acting import ABSENT
from rtagent.telemetry.figures.declaration import (
    MS,
    SHARE,
    Figure,
    Part,
    counter,
    estimate,
    setting,
)

NO_LEARNER = "before a learner is ready"
NO_UPDATE = "before the first update"
NO_EPISODE = "before the first episode has ended"
NO_EVALUATION = "before the first evaluation"
NO_TREND = "there are fewer than 20 episodes"
NO_HORIZON = "no horizon is under way"
NONE_BEGUN = "no horizon has begun"
NOT_DIVIDED = "before the controller has measured it"
NO_WINDOW = "fewer than two episodes have ended"
NOT_SET = "none is set"


@dataclass(frozen=True)
class Staleness:
    """Updates that applied gradients missed."""

    mean: Annotated[float | None, Figure(
        "Mean number of updates that an applied gradient missed, whole run.", 0.0, "updates",
        "learning_staleness_mean_updates", names=("Staleness in updates, mean",), none=NO_UPDATE)]
    max: Annotated[int | None, Figure(
        "Largest number of updates that an applied gradient missed, whole run.", 0, "updates",
        "learning_staleness_max_updates", names=("Staleness in updates, max",), none=NO_UPDATE)]


@dataclass(frozen=True)
class Evaluation:
    """The greedy policy in a paused world."""

    evaluations: Annotated[int, counter("Evaluations finished.", 8, metric="evaluations_total")]
    episodes: Annotated[int, counter(
        "Episodes played for evaluation.", 8, metric="evaluation_episodes_total")]
    mean_return: Annotated[float | None, Figure(
        "Mean return of the newest evaluation: greedy, in a world that waits; live returns differ "
        "by delay and inaction, and also by exploration, by older weights, and as the policy was "
        "trained for late actions.", 500.0, "reward", "evaluation_mean_return", none=NO_EVALUATION)]
    updates: Annotated[int | None, Figure(
        "Updates behind the weights of that evaluation.", 2270, "updates", "evaluation_updates",
        none=NO_EVALUATION)]
    weights_version: Annotated[int | None, Figure(
        "Version of the weights of that evaluation.", 228, metric="evaluation_weights_version",
        none=NO_EVALUATION)]


@dataclass(frozen=True)
class LearnerWorker:
    """The figures of a learner process."""

    index: Annotated[int, Figure("Number of the process.", 0)]
    pid: Annotated[int | None, Figure("Process id.", 23622, none=ABSENT)]
    state: Annotated[str, Figure("State of the process.", "running")]
    restarts: Annotated[int, counter(
        "Times the process was replaced.", 0, metric="learner_worker_restarts_total")]
    update_ms: Annotated[float | None, Figure(
        "Time that its newest update took, without the wait for its turn.", 1.194, MS,
        "learner_worker_update_seconds", none=NO_UPDATE)]
    applied: Annotated[int, counter(
        "Gradients that it has applied.", 2331, metric="learner_worker_applied_total")]


@dataclass(frozen=True)
class Learning:
    """The processes that improve the policy."""

    processes: Annotated[int, setting(
        "Learner processes.", 1, metric="learning_processes", names=("Learners",))]
    silent: Annotated[int, Figure(
        "Learners that are not starting, and have not beaten for 10 s.", 0, "processes",
        "learning_silent_processes")]
    order: Annotated[str, setting(
        "How the learners take turns.", "round-robin", names=("Learners, order",))]
    paused: Annotated[bool, setting(
        "Whether the learners have been told to wait.", False, metric="learning_paused",
        names=("paused",))]
    updates: Annotated[int, counter(
        "Gradient updates, those before a resumed run included.", 2331, "updates",
        "learning_updates_total", names=("Updates per second, in all",))]
    updates_per_s: Annotated[float | None, Figure(
        "Gradient updates per second, over the last 5 s.", 121.0, "1/s",
        "learning_updates_per_second", names=("Updates per second",),
        none="there is no learner, or they are silent, or have not learned for a second")]
    samples_consumed: Annotated[int | None, counter(
        "Transitions learned from, a repeated one each time, those before a resumed run included.",
        74624, "transitions", "learning_samples_total", names=("Samples learned from",),
        none="before a learner has taken over a resumed run")]
    batch_size: Annotated[int, Figure(
        "Transitions of the next update; with ppo, which cuts rollouts into equal parts, the most; "
        "where several daemons share a learner, by the settings of this one.", 32,
        "transitions", "learning_batch_transitions", names=("Batch size",))]
    learning_rate: Annotated[float, setting(
        "Adam's step size of the next update: learning.learning_rate, and less of it where "
        "learning.learning_rate_steps is set; where several daemons share a learner, by the "
        "settings of this one.", 5e-4, metric="learning_rate")]
    loss: Annotated[float | None, Figure(
        "Loss of the newest update.", 5.109, metric="learning_loss", names=("Loss",),
        none=NO_UPDATE)]
    epsilon: Annotated[float | None, Figure(
        "Exploration rate (policy.epsilon_start): the share of random choices of discrete value "
        "learners, the scale of the noise of td3 and ddpg.", 0.05, SHARE, "exploration_ratio",
        names=("exploration rate",),
        none="before the first inference, and with ppo, a2c and sac, whose policies draw actions")]
    staleness: Staleness
    weights_version: Annotated[int | None, Figure(
        "Version of the newest published weights.", 234, metric="learning_weights_version",
        none="before weights are published")]
    skipped: Annotated[int, counter(
        "Updates left out because loss or gradient was not finite; those of overflows are counted "
        "there.", 0, metric="learning_skipped_total")]
    precision: Annotated[str | None, Figure(
        "Precision of the learners' forward and backward passes; of a plan that mixes several, "
        "that of its first layer.", "float32", none=f"{NO_LEARNER}; in a cluster, {NO_UPDATE}")]
    loss_scale: Annotated[float | None, Figure(
        "What losses are multiplied by in float16, so that small gradients do not become 0.",
        65536.0, metric="learning_loss_scale", none="the precision is not float16")]
    overflows: Annotated[int, counter(
        "Updates left out because the loss scale was too large for the range of float16; it is "
        "halved then.", 0, metric="learning_overflows_total")]
    dropped: Annotated[int, counter(
        "Gradients dropped because they missed too many updates, and updates of a learner on a GPU "
        "that were lost because another learner had stored its own.", 0,
        metric="learning_dropped_total")]
    turns_expired: Annotated[int, counter(
        "Turns handed on because their learner let them lapse.", 0,
        metric="learning_turns_expired_total")]
    placement: Annotated[str, Figure(
        "How the parts of an update are placed, of the learner that applied the newest gradient: "
        "off; measuring, before there is a plan; one core or two cores, as the plan says; taken "
        "back, for the plan was slower than none; failed, and learning goes on without.",
        "off")]
    evaluation: Evaluation
    checkpoints: Annotated[int, counter(
        "Checkpoints written.", 0, metric="checkpoints_total", names=("Checkpoints",))]
    checkpoint_failures: Annotated[int, counter(
        "Checkpoints that could not be written.", 0, metric="checkpoint_failures_total",
        names=("Checkpoints, failed",))]
    workers: list[LearnerWorker]


@dataclass(frozen=True)
class Replay:
    """What can be learned from."""

    capacity: Annotated[int, setting(
        "Ticks that the replay can hold.", 5000, "ticks", "replay_capacity_ticks")]
    limit: Annotated[int, Figure(
        "Ticks that the replay may hold at present.", 5000, "ticks", "replay_limit_ticks")]
    size: Annotated[int, Figure("Ticks that the replay holds.", 2510, "ticks", "replay_size_ticks")]
    bytes: Annotated[int, Figure(
        "Memory of the ticks that the replay holds.", 240960, "bytes", "replay_bytes",
        names=("Replay memory",))]
    bytes_per_transition: Annotated[int, Figure(
        "Memory of a stored tick: its frame and its row.", 96, "bytes",
        "replay_bytes_per_transition", names=("Replay memory, bytes per tick",))]
    memory_budget_bytes: Annotated[int | None, setting(
        "Memory allowed for all processes, batches and replay.", 2097152000, "bytes",
        "replay_memory_budget_bytes", none=NOT_SET)]


@dataclass(frozen=True)
class Outcomes:
    """How deadlines ended."""

    met: Annotated[int | None, Part("outcome", "met")]
    missed: Annotated[int | None, Part("outcome", "missed")]


@dataclass(frozen=True)
class R3:
    """Learning within a deadline and a memory budget (R3)."""

    mode: Annotated[str, setting(
        "How batch size and replay are controlled.", "step", names=("Horizon, mode",))]
    deadline_s: Annotated[float | None, setting(
        "Length of a training horizon.", 8.0, "s", "r3_deadline_seconds", names=("deadline",),
        none=NOT_SET)]
    elapsed_s: Annotated[float | None, Figure(
        "Time used of this horizon.", 0.8083, "s", "r3_elapsed_seconds", names=("elapsed",),
        none=NO_HORIZON)]
    data_budget: Annotated[int | None, setting(
        "Samples to be learned from in a horizon.", 4000, "transitions", "r3_data_budget_samples",
        names=("budget",), none=NOT_SET)]
    consumed: Annotated[int | None, Figure(
        "Samples learned from in this horizon.", 1984, "transitions", "r3_consumed_samples",
        names=("samples",), none=NO_HORIZON)]
    time_ratio: Annotated[float | None, Figure(
        "Share of the horizon's time that is used.", 0.101, SHARE, "r3_time_ratio",
        names=("time", "time used"), none=NO_HORIZON)]
    data_ratio: Annotated[float | None, Figure(
        "Share of the horizon's data that is used.", 0.496, SHARE, "r3_data_ratio",
        names=("data", "data used"), none=NO_HORIZON)]
    alpha: Annotated[float | None, Figure(
        "Runtime of the newest episode against the mean of the window before it (Li et al., R3, "
        "Eq. 4); above 1: it took longer.", 0.1154, "ratio", "r3_alpha", none=NO_WINDOW)]
    beta: Annotated[float | None, Figure(
        "Return of the newest episode against the mean of the window before it (Li et al., R3, Eq. "
        "4); above 1: it was better.", 0.1154, "ratio", "r3_beta", none=NO_WINDOW)]
    batch_memory_bytes: Annotated[int | None, Figure(
        "Memory reserved for batches, or in use by them where none is reserved.", 327680, "bytes",
        "r3_batch_memory_bytes", none=NOT_DIVIDED)]
    replay_memory_bytes: Annotated[int | None, Figure(
        "Memory reserved for the replay, or held by it where none is reserved.", 1723295744,
        "bytes", "r3_replay_memory_bytes", none=NOT_DIVIDED)]
    horizons: Annotated[Outcomes, counter(
        "Training horizons by outcome.", (18, 0), metric="r3_horizons_total", none=NONE_BEGUN,
        parts={"met": "Horizons, met", "missed": "Horizons, missed"})]
    episode_deadlines: Annotated[Outcomes, counter(
        "Deadlines of episodes by outcome.", (71, 10), metric="r3_episode_deadlines_total",
        none=NONE_BEGUN,
        parts={"met": "Episode deadlines, met", "missed": "Episode deadlines, missed"})]
    early_exits: Annotated[int | None, counter(
        "Horizons that ended early, for the returns were good enough.", 0,
        metric="r3_early_exits_total", none=NONE_BEGUN)]
    batch_cap: Annotated[int | None, Figure(
        "Largest batch for which memory is reserved.", 128, "transitions",
        "r3_batch_cap_transitions", names=("largest batch",), none="memory limits none")]
    batch_base_bytes: Annotated[int | None, Figure(
        "Memory of one update, measured; that of other batch sizes follows from it.", 81920,
        "bytes", "r3_batch_base_bytes", none=NOT_DIVIDED)]
    ticks_limit: Annotated[int | None, Figure(
        "Ticks to which the controller has limited the replay.", 5000, "ticks",
        "r3_replay_limit_ticks", none="it has not")]
    used_bytes: Annotated[int | None, Figure(
        "Memory of all processes, batches and replay together, measured.", 352901120, "bytes",
        "memory_used_bytes", none=NOT_DIVIDED)]
    baseline_bytes: Annotated[int | None, Figure(
        "Memory in use that is neither batches nor replay.", 352557056, "bytes",
        "memory_baseline_bytes", none=NOT_DIVIDED)]
    memory_budget_bytes: Annotated[int | None, setting(
        "Memory allowed for all processes, batches and replay together.", 2097152000, "bytes",
        "memory_budget_bytes", none=NOT_SET)]
    oom_events: Annotated[int, counter(
        "Times that memory ran out and reservations were halved.", 0,
        metric="r3_out_of_memory_total", names=("Out of memory",))]
    pressure_events: Annotated[int, counter(
        "Times that reservations were halved because the machine ran short of memory.", 0,
        metric="memory_pressure_total", names=("Out of memory, shortages",))]
    decisions: Annotated[int, counter(
        "Times that the batch size was decided or a horizon ended.", 21,
        metric="r3_decisions_total")]


@dataclass(frozen=True)
class Trend:
    """Whether returns rise or fall, by a test."""

    direction: Annotated[str | None, estimate(
        "Whether the returns of the newest episodes are rising, falling or steady, by a test (see "
        "its p value); unknown for fewer than 20.", "rising", none=NO_TREND)]
    change: Annotated[float | None, Figure(
        "Mean return of the newer half of these episodes, less that of the older half.", 4.31,
        "reward", "episode_trend_change", none=NO_TREND)]
    episodes: Annotated[int | None, Figure(
        "Episodes that the trend is told of, at most 200.", 62, "episodes",
        "episode_trend_episodes", none=NO_TREND)]
    p_value: Annotated[float | None, estimate(
        "How often chance alone makes a difference at least as large between the two halves (rank "
        "sum test of Mann and Whitney). Up to 0.001 it is called rising or falling, unless means "
        "and ranks say the opposite.", 2e-05, SHARE, "episode_trend_p_value", none=NO_TREND)]


@dataclass(frozen=True)
class Episodes:
    """What the agent earns."""

    count: Annotated[int, counter(
        "Finished episodes.", 106, metric="episodes_total", names=("Episodes",))]
    faults: Annotated[int, counter(
        "Episodes cut short because a reward or an observation was not finite.", 0,
        metric="environment_faults_total")]
    last_return: Annotated[float | None, Figure(
        "Return of the last finished episode.", 9.0, "reward", "episode_last_return",
        names=("Episodes, last return",), none=NO_EPISODE)]
    mean_return_100: Annotated[float | None, Figure(
        "Mean return of the last 100 episodes.", 22.83, "reward", "episode_mean_return_100",
        names=("Mean return, last 100 episodes",), none=NO_EPISODE)]
    mean_length_100: Annotated[float | None, Figure(
        "Mean length of the last 100 episodes.", 22.83, "ticks", "episode_mean_length_100_ticks",
        none=NO_EPISODE)]
    trend: Trend
