"""Every figure of `GET /v1/stats`: its place, its meaning, and its name in Prometheus.

One table, so that the OpenAPI document, `/metrics` and the page of figures cannot disagree about
what a number means. A test holds it against what `StatsReader` collects, in both directions.
Percentiles and means cover the last 60 s, or the time since the inference settings changed, unless
the text says otherwise; counters cover the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PREFIX = "rtagent_"
MILLI = 1e-3
MICRO = 1e-6


@dataclass(frozen=True)
class Figure:
    """One number.

    Attributes:
        path: its place in the figures, dotted.
        text: what it means, one sentence.
        metric: its name in Prometheus without the prefix; none: text or a number that names.
        scale: factor from the figure's unit to Prometheus' base unit.
        labels: labels that set it apart from other figures of the same metric.
        family: what the figures of the same metric have in common, one sentence; none: `text`.
        flag: whether it is true or false; 1 and 0 in Prometheus.
    """

    path: str
    text: str
    metric: str | None = None
    scale: float = 1.0
    labels: Mapping[str, str] = field(default_factory=dict)
    family: str | None = None
    flag: bool = False

    def value(self, figures: Mapping[str, Any]) -> Any:
        """The number in a set of figures; None where it is unknown."""
        value: Any = figures
        for key in self.path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    @property
    def kind(self) -> str:
        """The Prometheus type."""
        return "counter" if (self.metric or "").endswith("_total") else "gauge"

    @property
    def json_types(self) -> list[str]:
        """Its types in JSON; null: unknown."""
        if self.flag:
            return ["boolean", "null"]
        return ["number", "null"] if self.metric else ["string", "number", "null"]


def _quantiles(path: str, text: str, metric: str, scale: float, *names: str) -> list[Figure]:
    """Percentiles of one quantity: p50 is quantile 0.5, max is quantile 1."""
    quantile = {"p50": "0.5", "p99": "0.99", "p999": "0.999", "max": "1"}
    return [
        Figure(
            f"{path}.{name}", f"{text} ({name}).", metric, scale, {"quantile": quantile[name]},
            f"{text}; quantiles, at most of the last 60 s.",
        )
        for name in names
    ]


def _sources(path: str, text: str, metric: str, label: str, *names: str) -> list[Figure]:
    return [Figure(f"{path}.{name}", text, metric, 1.0, {label: name}) for name in names]


CLOCK = [
    Figure("clock.window_s", "Seconds that percentiles and means cover: 60, or those since the "
           "inference settings changed.", "window_seconds"),
    Figure("clock.uptime_s", "Seconds since the first tick was due.", "uptime_seconds"),
    Figure("clock.ticks", "Ticks of the environment.", "ticks_total"),
    Figure("clock.rate_hz", "Ticks per second, measured.", "tick_rate_hertz"),
    Figure("clock.target_rate_hz", "Ticks per second that the clock should keep.",
           "tick_rate_target_hertz"),
    Figure("clock.drift_ms", "How far the newest tick lies behind the clock of the first one, "
           "slips included.", "clock_drift_seconds", MILLI),
    Figure("clock.slips", "Times the clock gave up on catching up, or its process was replaced, "
           "and it was anchored anew.", "clock_slips_total"),
    Figure("clock.realtime", "Whether the environment has realtime priority.", "clock_realtime",
           flag=True),
    *_quantiles("clock.lateness_us", "Lateness of a tick against its due time",
                "tick_lateness_seconds", MICRO, "p50", "p99", "p999", "max"),
    *_quantiles("clock.step_us", "Time that a step of the environment took",
                "environment_step_seconds", MICRO, "p50", "p99", "max"),
    Figure("clock.reset_ms", "Time that the environment's newest reset took.",
           "environment_reset_seconds", MILLI),
]
ACTIONS = [
    *_sources("actions", "Ticks by the source of the executed action: agent (fresh), reused, or "
              "default (inaction).", "actions_total", "source", "agent", "reused", "default"),
    Figure("actions.inaction_fraction", "Share of the run's ticks that were executed with the "
           "default behaviour.", "inaction_ratio"),
    Figure("actions.strict_inaction_fraction", "The same, re-used actions counted as inaction.",
           "inaction_strict_ratio"),
    Figure("actions.inaction_fraction_60s", "Share of ticks with the default behaviour, last 60 s.",
           "inaction_60s_ratio"),
    Figure("actions.inaction_fraction_window", "The same since the inference settings changed, at "
           "most the last 60 s.", "inaction_window_ratio"),
    Figure("actions.overwritten", "Registered actions that no tick used: a newer one replaced "
           "them, or they came too late.", "actions_overwritten_total"),
    Figure("actions.interaction_ms.mean", "Mean time between two ticks that executed a new action "
           "of the agent, not a re-used one.", "interaction_time_mean_seconds", MILLI),
    Figure("actions.interaction_ms.cv", "Coefficient of variation of that time; 0 is perfectly "
           "even.", "interaction_time_variation_ratio"),
    Figure("actions.delay_ticks.mean", "Mean number of ticks between the observation an action "
           "was computed from and its execution, re-used actions included.", "delay_mean_ticks"),
    *_quantiles("actions.delay_ticks", "Ticks from an action's observation to its execution",
                "delay_ticks", 1.0, "p50", "p99", "max"),
    Figure("actions.disagreement", "How often the agent's action computed from a frame differs "
           "from the one that it executed on the next tick, the first that could have used it; "
           "exploration included.", "disagreement_ratio"),
]
INFERENCE = [
    Figure("inference.processes", "Inference processes wanted.", "inference_processes"),
    Figure("inference.ready", "Inference processes that run, and are not starting or dead.",
           "inference_processes_ready"),
    Figure("inference.algorithm", "The staggering algorithm."),
    Figure("inference.estimate_ms", "Mean inference time of all processes.",
           "inference_estimate_seconds", MILLI),
    Figure("inference.recommended_processes", "Processes needed, at these inference times, to act "
           "once per action deadline, or on every tick if none is set.",
           "inference_processes_recommended"),
    Figure("inference.injected_latency_ms", "Mean to which inference times are padded for study; "
           "0: they are the machine's own.", "inference_injected_latency_seconds", MILLI),
    Figure("inference.injected_latency_distribution", "How injected latency varies."),
]
LEARNING = [
    Figure("learning.processes", "Learner processes.", "learning_processes"),
    Figure("learning.order", "How the learners take turns."),
    Figure("learning.paused", "Whether the learners have been told to wait.", "learning_paused",
           flag=True),
    Figure("learning.updates", "Gradient updates, those before a resumed run included.",
           "learning_updates_total"),
    Figure("learning.updates_per_s", "Gradient updates per second, over the last 5 s.",
           "learning_updates_per_second"),
    Figure("learning.samples_consumed", "Transitions learned from, a repeated one each time, those "
           "before a resumed run included.", "learning_samples_total"),
    Figure("learning.batch_size", "Transitions of the next update.", "learning_batch_transitions"),
    Figure("learning.loss", "Loss of the newest update.", "learning_loss"),
    Figure("learning.epsilon", "Exploration rate: share of random choices.",
           "exploration_ratio"),
    Figure("learning.staleness.mean", "Mean number of updates that an applied gradient missed, "
           "whole run.",
           "learning_staleness_mean_updates"),
    Figure("learning.staleness.max", "Largest number of updates that an applied gradient missed, "
           "whole run.",
           "learning_staleness_max_updates"),
    Figure("learning.dropped", "Gradients dropped because they missed too many updates.",
           "learning_dropped_total"),
    Figure("learning.skipped", "Updates left out because loss or gradient was not finite.",
           "learning_skipped_total"),
    Figure("learning.turns_expired", "Turns handed on because their learner let them lapse.",
           "learning_turns_expired_total"),
    Figure("learning.weights_version", "Version of the newest published weights.",
           "learning_weights_version"),
    Figure("learning.checkpoints", "Checkpoints written.", "checkpoints_total"),
    Figure("learning.checkpoint_failures", "Checkpoints that could not be written.",
           "checkpoint_failures_total"),
    Figure("learning.evaluation.evaluations", "Evaluations finished.", "evaluations_total"),
    Figure("learning.evaluation.episodes", "Episodes played for evaluation.",
           "evaluation_episodes_total"),
    Figure("learning.evaluation.mean_return", "Mean return of the newest evaluation: greedy, in a "
           "world that waits; live returns differ by delay and inaction, and also by exploration, "
           "by older weights, and as the policy was trained for late actions.",
           "evaluation_mean_return"),
    Figure("learning.evaluation.updates", "Updates behind the weights of that evaluation.",
           "evaluation_updates"),
    Figure("learning.evaluation.weights_version", "Version of the weights of that evaluation.",
           "evaluation_weights_version"),
]
REPLAY = [
    Figure("replay.capacity", "Ticks that the replay can hold.", "replay_capacity_ticks"),
    Figure("replay.limit", "Ticks that the replay may hold at present.", "replay_limit_ticks"),
    Figure("replay.size", "Ticks that the replay holds.", "replay_size_ticks"),
    Figure("replay.bytes", "Memory of the ticks that the replay holds.", "replay_bytes"),
    Figure("replay.bytes_per_transition", "Memory of a stored tick: its frame and its row.",
           "replay_bytes_per_transition"),
    Figure("replay.memory_budget_bytes", "Memory allowed for all processes, batches and replay.",
           "replay_memory_budget_bytes"),
]
R3 = [
    Figure("r3.mode", "How batch size and replay are controlled."),
    Figure("r3.deadline_s", "Length of a training horizon.", "r3_deadline_seconds"),
    Figure("r3.elapsed_s", "Time used of this horizon.", "r3_elapsed_seconds"),
    Figure("r3.data_budget", "Samples to be learned from in a horizon.", "r3_data_budget_samples"),
    Figure("r3.consumed", "Samples learned from in this horizon.", "r3_consumed_samples"),
    Figure("r3.time_ratio", "Share of the horizon's time that is used.", "r3_time_ratio"),
    Figure("r3.data_ratio", "Share of the horizon's data that is used.", "r3_data_ratio"),
    Figure("r3.alpha", "Runtime of the newest episode against the mean of the window before it "
           "(Li et al., R3, Eq. 4); above 1: it took longer.", "r3_alpha"),
    Figure("r3.beta", "Return of the newest episode against the mean of the window before it "
           "(Li et al., R3, Eq. 4); above 1: it was better.", "r3_beta"),
    Figure("r3.batch_memory_bytes", "Memory reserved for batches, or in use by them where "
           "none is reserved.", "r3_batch_memory_bytes"),
    Figure("r3.replay_memory_bytes", "Memory reserved for the replay, or held by it "
           "where none is reserved.", "r3_replay_memory_bytes"),
    *_sources("r3.horizons", "Training horizons by outcome.", "r3_horizons_total", "outcome",
              "met", "missed"),
    *_sources("r3.episode_deadlines", "Deadlines of episodes by outcome.",
              "r3_episode_deadlines_total", "outcome", "met", "missed"),
    Figure("r3.early_exits", "Horizons that ended early, for the returns were good enough.",
           "r3_early_exits_total"),
    Figure("r3.batch_cap", "Largest batch for which memory is reserved.",
           "r3_batch_cap_transitions"),
    Figure("r3.batch_base_bytes", "Memory of one update, measured; that of other batch sizes "
           "follows from it.",
           "r3_batch_base_bytes"),
    Figure("r3.ticks_limit", "Ticks to which the controller has limited the replay.",
           "r3_replay_limit_ticks"),
    Figure("r3.used_bytes", "Memory of all processes, batches and replay together, measured.",
           "memory_used_bytes"),
    Figure("r3.baseline_bytes", "Of it, what is neither batches nor replay.",
           "memory_baseline_bytes"),
    Figure("r3.memory_budget_bytes", "Memory allowed for all of it.", "memory_budget_bytes"),
    Figure("r3.pressure_events", "Times that reservations were halved because the machine ran "
           "short of memory.", "memory_pressure_total"),
    Figure("r3.oom_events", "Times that memory ran out and reservations were halved.",
           "r3_out_of_memory_total"),
    Figure("r3.decisions", "Times that the batch size was decided or a horizon ended.",
           "r3_decisions_total"),
]
EPISODES = [
    Figure("episodes.count", "Finished episodes.", "episodes_total"),
    Figure("episodes.faults", "Episodes cut short because a reward or an observation was not "
           "finite.", "environment_faults_total"),
    Figure("episodes.last_return", "Return of the last finished episode.", "episode_last_return"),
    Figure("episodes.mean_return_100", "Mean return of the last 100 episodes.",
           "episode_mean_return_100"),
    Figure("episodes.trend.direction", "Whether the returns of the newest episodes are rising, "
           "falling or steady, by a test (see its p value); unknown for fewer than 20."),
    Figure("episodes.trend.episodes", "Episodes that the trend is told of, at most 200.",
           "episode_trend_episodes"),
    Figure("episodes.trend.change", "Mean return of the newer half of these episodes, less that of "
           "the older half.", "episode_trend_change"),
    Figure("episodes.trend.p_value", "How often chance alone makes a difference at least as large "
           "between the two halves (rank sum test of Mann and Whitney). Up to 0.001 it is called "
           "rising or falling.", "episode_trend_p_value"),
    Figure("episodes.mean_length_100", "Mean length of the last 100 episodes.",
           "episode_mean_length_100_ticks"),
]
FIGURES = [*CLOCK, *ACTIONS, *INFERENCE, *LEARNING, *REPLAY, *R3, *EPISODES]

INFERENCE_WORKER = [
    Figure("id", "Number of the process."),
    Figure("pid", "Process id."),
    Figure("state", "State of the process."),
    Figure("inferences", "Inferences whose action was registered.",
           "inference_worker_inferences_total"),
    *_quantiles("latency_ms", "Inference time", "inference_worker_latency_seconds", MILLI,
                "p50", "p99", "max"),
    Figure("weights_version", "Version of the weights in use.",
           "inference_worker_weights_version"),
    Figure("restarts", "Times the process was replaced.", "inference_worker_restarts_total"),
]
LEARNER_WORKER = [
    Figure("index", "Number of the process."),
    Figure("pid", "Process id."),
    Figure("state", "State of the process."),
    Figure("restarts", "Times the process was replaced.", "learner_worker_restarts_total"),
    Figure("update_ms", "Time that its newest update took, without the wait for its turn.",
           "learner_worker_update_seconds", MILLI),
    Figure("applied", "Gradients that it has applied.", "learner_worker_applied_total"),
]

REGRETS = ("inaction", "delay", "learning")
REGRET_TEXT = (
    "Regret in units of reward (Riemer et al., Realtime Reinforcement Learning, Theorem 1). bound: "
    "of the theorem's worst case; estimate: the same with what was observed in place of what is "
    "declared; unknown: there is no value."
)
