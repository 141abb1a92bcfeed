"""The figures of acting: clock, actions, inference, and what being late costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from rtagent.telemetry.figures.declaration import (
    MS,
    RATIO,
    SHARE,
    US,
    Figure,
    Part,
    counter,
    estimate,
    setting,
)

BEFORE = "before the first tick"
NO_TICK = "no tick in the window"
NO_ACTION = "no action was executed in the window"
NO_INFERENCE = "no inference in the window"
NO_ANSWER = "no policy server answers"
TOO_FEW = "too few new actions in the window"
BY_OTHERS = "a policy server or a finished policy computes"
BY_TORCH = f"torch acts, or {BY_OTHERS}"
ABSENT = "there is no such process at present"
SOURCES = (
    "Ticks by the source of the executed action: agent (fresh), reused, or default (inaction)."
)


@dataclass(frozen=True)
class Spread:
    """Percentiles of a quantity, and its maximum."""

    p50: Annotated[float | None, Part("quantile", "0.5")]
    p99: Annotated[float | None, Part("quantile", "0.99")]
    max: Annotated[float | None, Part("quantile", "1")]


@dataclass(frozen=True)
class FineSpread:
    """Percentiles of a quantity that is measured often, and its maximum."""

    p50: Annotated[float | None, Part("quantile", "0.5")]
    p99: Annotated[float | None, Part("quantile", "0.99")]
    p999: Annotated[float | None, Part("quantile", "0.999")]
    max: Annotated[float | None, Part("quantile", "1")]


@dataclass(frozen=True)
class Clock:
    """The world's clock, which waits for nobody."""

    window_s: Annotated[float, Figure(
        "Seconds that percentiles and means cover: 60, or those since the inference settings "
        "changed, or those of the ticks that are known: of a short replay the oldest may have been "
        "overwritten. A run that is younger is covered since its start (clock.uptime_s). Inference "
        "times are of each process's newest 4,096 inferences at most.",
        60.0, "s", "window_seconds")]
    uptime_s: Annotated[float | None, Figure(
        "Seconds since the first tick was due.", 25.03, "s", "uptime_seconds", names=("up",),
        none=BEFORE)]
    ticks: Annotated[int, counter("Ticks of the environment.", 2503, "ticks", "ticks_total")]
    rate_hz: Annotated[float | None, Figure(
        "Ticks per second, measured.", 100.0, "Hz", "tick_rate_hertz", names=("Ticks per second",),
        none="fewer than two ticks in the window")]
    target_rate_hz: Annotated[float, setting(
        "Ticks per second that the clock should keep.", 100.0, "Hz", "tick_rate_target_hertz",
        names=("Ticks per second, target",))]
    drift_ms: Annotated[float | None, Figure(
        "How far the newest tick lies behind the clock of the first one, slips included.", 0.003634,
        MS, "clock_drift_seconds", names=("Clock slips, drift",), none=NO_TICK)]
    slips: Annotated[int, counter(
        "Times the clock gave up on catching up, or its process was replaced, and it was anchored "
        "anew.", 0, metric="clock_slips_total", names=("Clock slips",))]
    realtime: Annotated[bool, Figure(
        "Whether the environment has realtime priority.", True, metric="clock_realtime")]
    lateness_us: Annotated[FineSpread, Figure(
        "Lateness of a tick against its due time", (15.83, 198.6, 6275.0, 8612.0), US,
        "tick_lateness_seconds", none=NO_TICK,
        parts={"p99": "Tick lateness, p99", "max": "Tick lateness, max"})]
    step_us: Annotated[Spread, Figure(
        "Time that a step of the environment took", (396.2, 812.4, 2106.0), US,
        "environment_step_seconds", none=NO_TICK)]
    reset_ms: Annotated[float | None, Figure(
        "Time that the environment's newest reset took.", 12.6, MS, "environment_reset_seconds",
        none=BEFORE)]


@dataclass(frozen=True)
class Interaction:
    """Time between two ticks that executed a new action of the agent, not a re-used one."""

    mean: Annotated[float | None, Figure(
        "Mean time between two ticks that executed a new action of the agent, not a re-used one.",
        10.67, MS, "interaction_time_mean_seconds", names=("Interaction time, mean",),
        none=TOO_FEW)]
    cv: Annotated[float | None, Figure(
        "Coefficient of variation of that time; 0 is perfectly even.", 0.6481, RATIO,
        "interaction_time_variation_ratio", names=("Interaction time, CV",), none=TOO_FEW)]


@dataclass(frozen=True)
class Delay:
    """Ticks from an action's observation to its execution."""

    mean: Annotated[float | None, Figure(
        "Mean number of ticks between the observation an action was computed from and its "
        "execution, re-used actions included.", 2.058, "ticks", "delay_mean_ticks",
        names=("Delay, mean",), none=NO_ACTION)]
    p50: Annotated[float | None, Part("quantile", "0.5")]
    p99: Annotated[float | None, Part("quantile", "0.99")]
    max: Annotated[float | None, Part("quantile", "1")]


@dataclass(frozen=True)
class Actions:
    """Which action each tick got, as the environment counts it, and as its ledger shows it."""

    agent: Annotated[int, counter(
        SOURCES, 2271, "ticks", "actions_total", labels={"source": "agent"},
        names=("agent", "from the agent"))]
    reused: Annotated[int, counter(
        SOURCES, 37, "ticks", "actions_total", labels={"source": "reused"}, names=("re-used",))]
    default: Annotated[int, counter(
        SOURCES, 200, "ticks", "actions_total", labels={"source": "default"},
        names=("default", "Default ticks, run"))]
    inaction_fraction: Annotated[float | None, Figure(
        "Share of the run's ticks that were executed with the default behaviour.", 0.07974, SHARE,
        "inaction_ratio", names=("Inaction, run",), none=BEFORE)]
    strict_inaction_fraction: Annotated[float | None, Figure(
        "The same, re-used actions counted as inaction.", 0.0945, SHARE, "inaction_strict_ratio",
        names=("Inaction, strict",), none=BEFORE)]
    inaction_fraction_60s: Annotated[float | None, Figure(
        "Share of ticks with the default behaviour, last 60 s.", 0.0795, SHARE,
        "inaction_60s_ratio", names=("Inaction, last 60 s",),
        none="no tick in the last 60 s, or some of them have been overwritten in a short replay")]
    inaction_fraction_window: Annotated[float | None, Figure(
        "The same in the last clock.window_s seconds.", 0.0795, SHARE,
        "inaction_window_ratio", none=NO_TICK)]
    overwritten: Annotated[int, counter(
        "Registered actions that no tick used: a newer one replaced them, or they came too late.",
        79, metric="actions_overwritten_total", names=("Overwritten",))]
    interaction_ms: Interaction
    delay_ticks: Annotated[Delay, Figure(
        "Ticks from an action's observation to its execution", (2.0, 4.0, 21.0), "ticks",
        "delay_ticks", none=NO_ACTION, parts={"p99": "Delay, p99"})]
    from_chunk: Annotated[float | None, Figure(
        "Share of ticks that executed an action behind the first of a chunk: the actions of one "
        "inference for several ticks. 0 where policies answer with single actions.", 0.0, SHARE,
        "actions_from_chunk_ratio", none=NO_TICK, names=("Ticks by later actions of chunks",))]
    state_lag: Annotated[float | None, Figure(
        "Mean number of ticks between the observation behind the state that a recurrent policy "
        "began with and its own; inferences that began anew are left out.", 2.0, "ticks",
        "policy_state_lag_mean_ticks", names=("State lag, mean",),
        none="a policy that is not recurrent, or no state was carried along in the window")]
    disagreement: Annotated[float | None, Figure(
        "How often the agent's action computed from a frame, of a chunk the first, differs from "
        "the one that it executed on the next tick, the first that could have used it; exploration "
        "included.", 0.3827, SHARE,
        "disagreement_ratio", names=("Disagreement",),
        none=f"{TOO_FEW}, or actions that are not discrete")]


@dataclass(frozen=True)
class InferenceWorker:
    """The figures of an inference process."""

    id: Annotated[int, Figure("Number of the process.", 0)]
    pid: Annotated[int | None, Figure("Process id.", 23623, none=ABSENT)]
    state: Annotated[str, Figure("State of the process.", "running")]
    inferences: Annotated[int, counter(
        "Inferences whose action was registered.", 1140,
        metric="inference_worker_inferences_total")]
    latency_ms: Annotated[Spread, Figure(
        "Inference time", (0.3964, 6.312, 55.78), MS, "inference_worker_latency_seconds",
        none=NO_INFERENCE, parts={"p50": "Inference p50", "p99": "Inference p99"})]
    takeover_us: Annotated[float | None, Figure(
        "Mean time that new weights take of an inference, whole run: their adoption, and the part "
        "of their preparation for which the wait before it was too short.", 1.2, US,
        "inference_worker_takeover_seconds", none="no inference yet")]
    weights_version: Annotated[int | None, Figure(
        "Version of the weights in use.", 234, metric="inference_worker_weights_version",
        names=("Weights",), none=f"no inference yet, or {BY_OTHERS}")]
    restarts: Annotated[int, counter(
        "Times the process was replaced.", 0, metric="inference_worker_restarts_total")]


@dataclass(frozen=True)
class Remote:
    """A policy on another machine: the link to its server, and where the time of an inference goes.

    Times are smoothed, and means over the processes that are connected.
    """

    connected: Annotated[bool, Figure(
        "Whether the policy server answers an inference process.", True,
        metric="inference_remote_connected")]
    round_trip_ms: Annotated[float | None, Figure(
        "Time on the network, there and back, packing included.", 60.4, MS,
        "inference_remote_round_trip_seconds", names=("Policy server, round trip",),
        none=NO_ANSWER)]
    queue_ms: Annotated[float | None, Figure(
        "Time for which an observation waits in the server before its turn, as the server says; 0 "
        "if it does not.", 1.2, MS, "inference_remote_queue_seconds",
        names=("Policy server, queue",), none=NO_ANSWER)]
    compute_ms: Annotated[float | None, Figure(
        "Time that the server's policy takes, as the server says; 0 if it does not.", 80.3, MS,
        "inference_remote_compute_seconds", names=("Policy server, compute",), none=NO_ANSWER)]
    in_flight: Annotated[int, Figure(
        "Observations that have been sent and are not answered yet.", 9,
        metric="inference_remote_in_flight", names=("Policy server, in flight",))]
    dropped: Annotated[int, counter(
        "Answers that came when a newer frame had been acted on already, and were dropped.", 3,
        metric="inference_remote_dropped_total")]
    hedged: Annotated[int, counter(
        "Questions whose answer was late, so that the newest frame was asked about on a second "
        "connection (policy.remote_hedge).", 0, metric="inference_remote_hedged_total")]


@dataclass(frozen=True)
class Inference:
    """The processes that compute actions from observations."""

    processes: Annotated[int, setting(
        "Inference processes wanted.", 2, metric="inference_processes")]
    ready: Annotated[int, Figure(
        "Inference processes that run, and are not starting or dead.", 2,
        metric="inference_processes_ready")]
    algorithm: Annotated[str, setting("The staggering algorithm.", "adaptive")]
    estimate_ms: Annotated[float | None, Figure(
        "Mean inference time of all processes.", 0.8007, MS, "inference_estimate_seconds",
        names=("Inference time, mean",), none=NO_INFERENCE)]
    recommended_processes: Annotated[int | None, estimate(
        "Processes needed, at these inference times, to act once per action deadline, or on every "
        "tick if none is set; some ticks may still have no action where a few times are many times "
        "as long as the others, and with expected-time where times vary at all. One "
        "action of each inference counts: with the later ones of chunks fewer are enough.", 2,
        metric="inference_processes_recommended",
        names=("Inference time, processes needed",),
        none=f"{NO_INFERENCE}, or an algorithm that does not stagger")]
    injected_latency_ms: Annotated[float, setting(
        "Mean to which inference times are padded for study, where some are outliers that of all "
        "others; 0: they are the machine's own.", 0.0,
        MS, "inference_injected_latency_seconds", names=("injected",))]
    injected_latency_distribution: Annotated[str, setting(
        "How injected latency varies.", "constant")]
    engine: Annotated[str | None, Figure(
        "What runs the network: torch, openvino or onnxruntime; torch as long as it does in one "
        "inference process.", "openvino", names=("Engine",), none=BY_OTHERS)]
    engine_precision: Annotated[str | None, Figure(
        "What the engine computes in: float32, bfloat16 or int8.", "int8",
        names=("Engine, in",), none=BY_TORCH)]
    engine_agreement: Annotated[float | None, Figure(
        "Share of recent frames on which the model that acts chooses the action that torch chooses "
        "in float32; the least of all processes.", 1.0, SHARE, "inference_engine_agreement_ratio",
        names=("Agreement with torch",), none=BY_TORCH)]
    engine_conversions: Annotated[int, counter(
        "Snapshots of the weights that were converted for an engine and agreed with torch.", 41,
        metric="inference_engine_conversions_total")]
    engine_refused: Annotated[int, counter(
        "Converted models that did not agree with torch often enough, and were not used.", 1,
        metric="inference_engine_refused_total", names=("Engine, models refused",))]
    conversion_ms: Annotated[float | None, Figure(
        "CPU time of the newest conversion, its check against torch included.", 412.0, MS,
        "inference_engine_conversion_seconds", none="nothing has been converted")]
    workers: list[InferenceWorker]
    remote: Remote | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Regret:
    """What is known of a regret."""

    value: Annotated[float | None, Figure("The regret.", 400.0, "reward", none="it is unknown")]
    kind: Annotated[str, Figure("What is known of it: bound, estimate or unknown.", "bound")]
    unit: Annotated[str, Figure("The value's unit.", "reward")]


UNKNOWN_REGRET = Regret(None, "unknown", "reward")
UNKNOWN_EXAMPLE = {"value": None, "kind": "unknown", "unit": "reward"}


@dataclass(frozen=True)
class Regrets:
    """Regret in units of reward (Riemer et al., Realtime Reinforcement Learning, Theorem 1).

    bound: of the theorem's worst case; estimate: the same with what was observed in place of what
    is declared; unknown: there is no value.
    """

    inaction: Annotated[Regret, Figure(
        "What the run's default ticks (actions.default) can have cost: their number times the "
        "range of rewards, 0 among them, which the environment declares (bound) or which was "
        "observed (estimate). What a default tick brings about later is not in it.",
        {"value": 400.0, "kind": "bound", "unit": "reward"}, kind="bound",
        names=("Regret, inaction",))]
    delay: Annotated[Regret, Figure(
        "What old actions cost. Unknown: it depends on how predictable the world is. What is "
        "measured is actions.delay_ticks and actions.disagreement.", UNKNOWN_EXAMPLE, kind="bound",
        names=("Regret, delay",))]
    learning: Annotated[Regret, Figure(
        "What a policy costs that has not learned everything. Unknown: the theorem's bound has no "
        "constant.", UNKNOWN_EXAMPLE, kind="bound", names=("Regret, learning",))]
