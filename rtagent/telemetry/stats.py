"""Every figure the program reports, computed from the shared memory in the process that asks.

What happened in the world in the last minute is counted from the tick ledger and the action slots;
the counters of the run are those of the environment process, which alone executes. Percentiles and
means cover the last 60 seconds, or the time since the inference settings changed, or since the
oldest tick that has not been overwritten unread, whichever is less: `clock.window_s` says how long.
A figure that is not known is None, never 0.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO, Clock, MonotonicClock
from rtagent.memory import ordering
from rtagent.memory.engine_models import ENGINES, PRECISIONS
from rtagent.memory.ledger import Rows
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.memory.ring import Entries
from rtagent.memory.world import World
from rtagent.staggering.arbiter import Source
from rtagent.staggering.figures import interaction, processes_needed
from rtagent.staggering.register import LIVE
from rtagent.telemetry.cluster import cluster_figures
from rtagent.telemetry.figures import acting, learning
from rtagent.telemetry.figures.acting import UNKNOWN_REGRET
from rtagent.telemetry.figures.declaration import as_json
from rtagent.telemetry.figures.document import Stats
from rtagent.telemetry.learning import learning_figures
from rtagent.telemetry.quantiles import percentiles
from rtagent.telemetry.r3 import r3_figures, replay_figures
from rtagent.telemetry.recent_rows import RecentRows, from_time
from rtagent.telemetry.remote import remote_figures
from rtagent.telemetry.trend import EPISODES, trend

WINDOW_S = 60.0
"""The longest time that figures cover."""


class _Registered(NamedTuple):
    """What inference processes have registered, read in this order.

    Values that are read later may include later inferences. `overwritten` subtracts them from the
    earlier ones, so that an action is not counted before it is certain that no tick uses it.

    Attributes:
        newest: tick in the ledger.
        newest_ns: when it was executed; 0 if none was.
        total: number of all registered inferences.
        recent: registrations of the last minute, by process.
    """

    newest: int
    newest_ns: int
    total: int
    recent: list[Entries]


class StatsReader:
    """Computes the figures of a running world; `clock` is that of its workers."""

    def __init__(self, world: World, clock: Clock | None = None) -> None:
        self._world = world
        self._clock = clock or MonotonicClock()
        self._recent = RecentRows(world.ledger, world.first_tick)
        self._overwritten = 0

    def collect(self) -> dict[str, Any]:
        """The figures as `GET /v1/stats` answers them."""
        found: dict[str, Any] = as_json(self.read())
        return found

    def read(self) -> Stats:
        """The figures at this moment."""
        now = self._clock.now()
        changed = self._world.control.desired.inference_since
        # Just started, a machine has a clock of less than a minute.
        minute = self.rows_since(now - WINDOW_S)
        known_since = self._recent.whole_since_ns / NANO
        window_s = min([WINDOW_S, *(now - since for since in (changed, known_since) if since)])
        since = now - window_s
        rows = from_time(minute, since * NANO)
        if known_since > now - WINDOW_S:
            minute = minute[:0]
        status = self._world.status.read()
        registered = self._registered(status, round((now - WINDOW_S) * NANO))
        link = self._world.cluster
        actions = self._action_figures(rows, minute, registered)
        # Counted once: the world goes on meanwhile.
        ticks = actions.agent + actions.reused + actions.default
        return Stats(
            clock=self._clock_figures(rows, now, window_s, ticks), actions=actions,
            inference=self._inference_figures(status, registered.recent, since),
            learning=learning_figures(self._world, _roles(status, "learner"), now),
            replay=replay_figures(self._world), r3=r3_figures(self._world),
            regret=self._regret_figures(actions), episodes=self._episode_figures(),
            cluster=None if link is None else cluster_figures(link.read(), now),
        )

    def rows_since(self, since: float) -> Rows:
        """The whole ledger rows of ticks at `since` seconds or later."""
        ticks = max(0.0, self._clock.now() - since) * self._world.blueprint.rate_hz
        most = math.ceil(ticks) + self._world.config.env.max_catch_up_ticks
        return self._recent.since(round(since * NANO), most)

    def _clock_figures(self, rows: Rows, now: float, window_s: float, ticks: int) -> acting.Clock:
        record = self._world.metrics.environment
        target = self._world.blueprint.rate_hz
        rate = drift_ms = None
        if len(rows) > 1:
            span = int(rows["time_ns"][-1] - rows["time_ns"][0]) / NANO
            rate = int(rows["tick"][-1] - rows["tick"][0]) / span if span > 0 else None
        if len(rows):
            drift_ms = (record.slipped_ns + int(rows["lateness_ns"][-1])) / 1e6
        uptime_s = now - record.first_due_ns / NANO if ticks else None
        return acting.Clock(
            window_s=window_s, uptime_s=uptime_s, ticks=ticks,
            rate_hz=rate, target_rate_hz=target, drift_ms=drift_ms, slips=record.slips,
            realtime=bool(record.realtime),
            lateness_us=acting.FineSpread(*_spread(rows["lateness_ns"] / 1e3, 50, 99, 99.9)),
            step_us=acting.Spread(*_spread(record.step_lengths(rows["tick"]) / 1e3, 50, 99)),
            reset_ms=record.reset_ns / 1e6 if ticks else None,
        )

    def _action_figures(
        self, rows: Rows, minute: Rows, registered: _Registered
    ) -> acting.Actions:
        record = self._world.metrics.environment
        agent, reused, default = record.agent, record.reused, record.default
        ticks = agent + reused + default
        unused = registered.total - record.decisions - sum(
            _pending(each, worker, rows, registered)
            for worker, each in enumerate(registered.recent)
        )
        # A counter must not fall, even if fewer are found than the last time.
        self._overwritten = max(self._overwritten, unused)
        delays = (rows["tick"] - rows["observed"])[rows["source"] != Source.DEFAULT]
        new_ms = rows["time_ns"][rows["source"] == Source.AGENT] / 1e6
        return acting.Actions(
            agent=agent, reused=reused, default=default,
            inaction_fraction=default / ticks if ticks else None,
            strict_inaction_fraction=(default + reused) / ticks if ticks else None,
            inaction_fraction_60s=_inaction(minute), inaction_fraction_window=_inaction(rows),
            overwritten=self._overwritten,
            interaction_ms=acting.Interaction(*interaction(new_ms)),
            delay_ticks=acting.Delay(_mean(delays), *_spread(delays, 50, 99)),
            from_chunk=_mean(rows["position"] > 0), state_lag=self._state_lag(rows),
            disagreement=_disagreement(rows),
        )

    def _state_lag(self, rows: Rows) -> float | None:
        if not self._world.blueprint.state_size:
            return None
        lags = rows["state_lag"]
        return _mean(lags[lags > 0])

    def _registered(self, status: dict[str, Any], since_ns: int) -> _Registered:
        """What each inference process has registered since `since_ns`, executed or not."""
        newest = self._world.ledger.newest
        row = self._world.ledger.row(newest) if newest >= 0 else None
        newest_ns = 0 if row is None else int(row["time_ns"])
        total = sum(each.inferences for each in self._world.metrics.inference)
        # Inferences are counted after they are listed (`Driver._count_inference`), so the count is
        # read before the lists.
        ordering.fence()
        after = [role["index"] + 1 for role in _roles(status, "inference")]
        records = self._world.metrics.inference[: max([self._world.control.desired.rows, *after])]
        recent = [record.registrations_since(since_ns) for record in records]
        return _Registered(newest, newest_ns, total, recent)

    def _inference_figures(
        self, status: dict[str, Any], registered: list[Entries], since_s: float
    ) -> acting.Inference:
        desired, blueprint = self._world.control.desired, self._world.blueprint
        records, running = self._world.metrics.inference, []
        since = round(since_s * NANO)
        workers, taus = [], []
        for role in _roles(status, "inference"):
            record = records[role["index"]]
            if role["state"] == "running":
                running.append(record)
            samples = registered[role["index"]]
            latencies = samples["latency_ns"][samples["registered_ns"] >= since] / 1e6
            taus.append(latencies)
            workers.append(acting.InferenceWorker(
                id=role["index"], pid=role["pid"], state=role["state"], restarts=role["restarts"],
                inferences=record.inferences,
                # Publications count from 1; a policy that has none of their weights says 0.
                weights_version=record.weights_version or None,
                latency_ms=acting.Spread(*_spread(latencies, 50, 99)),
                takeover_us=(
                    record.takeover_ns / record.inferences / 1e3 if record.inferences else None
                ),
            ))
        tau = np.concatenate(taus) if taus else np.zeros(0)
        recommended = None
        algorithm = desired.inference.algorithm
        if len(tau) and algorithm in LIVE:
            # An agent acts once a tick at most.
            deadline_ms = desired.inference.action_deadline_ms or 0.0
            tick_ms = max(deadline_ms, blueprint.tick_seconds * 1e3)
            # The slowest 1 % are left out: a few hold-ups by the machine are no reason to grow.
            longest = percentiles(tau, (99.0,))[0]
            mean = min(float(tau.mean()), longest)
            recommended = processes_needed(mean, longest, tick_ms, algorithm)
        return acting.Inference(
            processes=desired.processes, ready=len(running), algorithm=algorithm,
            estimate_ms=_mean(tau), recommended_processes=recommended,
            injected_latency_ms=desired.inference.injected_latency_ms,
            injected_latency_distribution=desired.inference.injected_latency_distribution,
            **self._engine_figures(running), workers=workers,
            remote=remote_figures(running, records) if self._world.config.policy.remote else None,
        )

    def _engine_figures(self, running: list[InferenceRecord]) -> dict[str, Any]:
        """What runs the network, and the conversion of weights for it."""
        converter = self._world.metrics.converter
        slowest = min(running, key=lambda each: each.engine, default=None)
        engine = slowest.engine if slowest is not None else 0
        return {
            "engine": ENGINES[engine] if self._world.config.policy.learns else None,
            "engine_precision": PRECISIONS[slowest.precision] if slowest and engine else None,
            "engine_agreement": min(each.agreement for each in running) if engine else None,
            "engine_conversions": converter.conversions, "engine_refused": converter.refused,
            "conversion_ms": converter.conversion_ns / 1e6 if converter.conversion_ns else None,
        }

    def _regret_figures(self, actions: acting.Actions) -> acting.Regrets:
        """Regret in units of reward (Riemer et al., Realtime Reinforcement Learning, Theorem 1).

        Inaction: in the theorem's worst case every default tick loses the whole range of rewards
        (r_max where the least is 0, as in the theorem). The range includes 0, the reward of a world
        that is over. Of delay and learning no more is known than that they cost something.
        """
        record, declared = self._world.metrics.environment, self._world.blueprint.reward_range
        low, high = record.reward_low, record.reward_high
        kind = "estimate"
        if declared is not None and declared[0] <= low <= high <= declared[1]:
            (low, high), kind = declared, "bound"
        inaction = UNKNOWN_REGRET
        if actions.inaction_fraction is not None and high > low:
            inaction = replace(inaction, value=actions.default * (high - low), kind=kind)
        return acting.Regrets(inaction, delay=UNKNOWN_REGRET, learning=UNKNOWN_REGRET)

    def _episode_figures(self) -> learning.Episodes:
        record = self._world.metrics.environment
        newest = record.episodes.newest(EPISODES)
        recent = newest[-100:]
        return learning.Episodes(
            count=record.episodes.count, faults=record.faults,
            last_return=float(recent["return"][-1]) if len(recent) else None,
            mean_return_100=_mean(recent["return"]), mean_length_100=_mean(recent["length"]),
            trend=trend(newest["return"]),
        )


def _roles(status: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [role for role in status.get("roles", []) if role["role"] == name]


def _pending(entries: Entries, worker: int, rows: Rows, registered: _Registered) -> int:
    """Registered inferences of which no action has been executed yet, but one may still be.

    An action whose tick is over may be executed late, at the first tick after its registration.
    """
    ahead = entries["tick"] + entries["ticks"] - 1 > registered.newest
    may = entries["registered_ns"][ahead | (entries["registered_ns"] > registered.newest_ns)]
    executed = rows["registered_ns"][rows["worker"] == worker]
    return len(may) - int(np.isin(may, executed).sum())


def _inaction(rows: Rows) -> float | None:
    """Share of these ticks that executed the default behaviour."""
    return float((rows["source"] == Source.DEFAULT).mean()) if len(rows) else None


def _disagreement(rows: Rows) -> float | None:
    """How often the action computed from frame j differs from the one executed at tick j + 1.

    Tick j produced frame j, so tick j + 1 is the first that could have used an action computed from
    it; that action is known some ticks later, when it is executed itself. Only rows of the agent
    count: the cost of default behaviour and re-use is counted as inaction. Of a chunk only the
    first action is compared: the others were never meant for tick j + 1.
    """
    acted = rows["source"] == Source.AGENT
    ticks, actions = rows["tick"][acted], rows["action"][acted]
    if actions.ndim > 1:
        return None
    first_use = rows["observed"][acted] + 1
    at = np.minimum(np.searchsorted(ticks, first_use), len(ticks) - 1)
    known = (ticks[at] == first_use) & (rows["position"][acted] == 0)
    return _mean((actions[at] != actions)[known])


def _mean(values: npt.NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _spread(values: npt.NDArray[Any], *wanted: float) -> list[float | None]:
    """The percentiles `wanted`, and the maximum."""
    if not len(values):
        return [None] * (len(wanted) + 1)
    return [*percentiles(values, (*wanted, 100.0))]
