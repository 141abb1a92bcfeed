"""Learning inside deadlines: miss rate, latency and return by mode and algorithm, batch and replay.

Figs. 3 to 5, 9 to 11 and 15 and Tables IV and V of Li et al., R3, in shape, most on CartPole at 200
ticks a second of wall-clock time (the paper's tasks have no clock, and ran on other boards).
The modes are the paper's: `max-a` (the smallest batch), `max-p` (the largest), `episode` and
`step`; the last two with the default `r3.margin` and, as `margin 0`, by the paper's rule, which
steers at the deadline itself. In every trial the same daemon first tells how many samples it learns
from in some seconds, undisturbed, with the smallest batch: that is the data budget B, and the
deadline D is a share of those seconds, which are more where a learner is slow. Then B is run
through again and again.

    what = deadline   `share` of the time; and the deadline of 1 beside `busy` other programs that
                      want a core each
    what = changed    1.5 times the time for the first half of the horizons, 0.8 for the others
    what = batch      R3 off: what a batch size does for updates, samples, memory and return
    what = replay     R3 off: the same of the replay's size
    what = world      the deadline of 1 in other worlds: Acrobot, Starfall, the embedded DonkeyCar
    what = memory     with the handler of out of memory and without, in virtual time, `r3_memory.py`
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time as clock
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rtagent
from benchmarks.experiment import Experiment
from benchmarks.experiments import r3_memory
from benchmarks.results import Results, bars
from benchmarks.runs import acting_run, check_whole, wait_learning
from rtagent.config import R3Config
from rtagent.memory.horizon import Horizon

MARGIN = R3Config().margin
CONTENDERS = {
    "max-a": ("max-a", MARGIN),
    "max-p": ("max-p", MARGIN),
    "episode": ("episode", MARGIN),
    "step": ("step", MARGIN),
    "episode margin 0": ("episode", 0.0),
    "step margin 0": ("step", 0.0),
}
"""Name -> `r3.mode`, `r3.margin`; the margin means nothing to the first two."""
ALGORITHMS = ("dqn", "double-dqn", "c51")
SHARES = (0.7, 1.0, 1.5)
BUSY = (1, 2)
CHANGED = (1.5, 0.8)
BATCH = 32
LEAST_BATCHES = 16
"""Least batches of the smallest size in a horizon: a slow learner gets more time."""
PANELS = (
    *[("deadline",)] * 3, ("batch",), ("replay",), ("deadline", "changed"), *[("world",)] * 2,
    ("memory",),
)
"""What each panel of the picture shows; without figures of such trials it is left out."""
COLUMNS = 3
SWEPT = {
    "batch": ("batch size, transitions", "samples_per_s", "samples per second"),
    "replay": ("replay, ticks", "memory_mib", "memory of all processes, MiB"),
}
"""What is swept -> its name; the figure of what it costs, and its name."""
ENDLESS_S = 1e7
ENDLESS = 1_000_000_000
WARM_UP_S = 3.0
LOOK_S = 0.01
LOOKS_OF_A_CHECK = 100
"""Looks at the horizon for one at the processes, which takes longer."""
CLASSIC = (
    "env.rate_hz=200",
    "env.default_action=repeat",
    "policy.exploration_hold_ticks=1",
    "learning.n_step=3",
    # Without these, so many updates per tick forget now and then what they have learned, and the
    # return of a run says little.
    "learning.learning_rate=2.5e-4",
    "learning.target_tau=0.001",
    "learning.learning_starts=500",
    "replay.capacity=50000",
)
PICTURES = ("learning.learning_starts=200", "replay.capacity=10000")
WORLDS = {
    "cartpole": ("env.id=CartPole-v1", *CLASSIC),
    "acrobot": ("env.id=Acrobot-v1", *CLASSIC),
    "starfall": ("env.id=rtagent/Starfall-v0", *PICTURES),
    # As in examples/donkey.toml.
    "donkeycar": (
        "env.id=donkey-generated-track-v0", "env.kwargs.rate_hz=20.0", "env.kwargs.max_cte=8.0",
        'env.kwargs.actions="grid"', 'env.kwargs.noop="coast"', "env.default_action=noop",
        "policy.exploration_hold_ticks=5", "learning.gamma=0.97", "learning.n_step=5", *PICTURES,
    ),
}
SETTINGS = (
    "inference.processes=1",
    "learning.processes=1",
    "run.resume=false",
    "run.tensorboard=false",
)
DISTRIBUTION = ("learning.v_min=0", "learning.v_max=100")
HOG = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"
"""Until the trial that started it is gone: one that is killed can end nothing."""


def trials(quick: bool) -> list[dict[str, Any]]:
    """Modes by algorithm, deadline and load; then changed deadlines, batches and replays."""
    size = {"time": "wall clock", "horizons": 3 if quick else 20, "seconds": 2.0 if quick else 3.0}
    algorithms = ALGORITHMS[1:2] if quick else ALGORITHMS
    conditions: list[tuple[str, float, int]] = [
        *((algorithm, share, 0) for algorithm in algorithms
          for share in (SHARES[1:2] if quick else SHARES)),
        *(("double-dqn", 1.0, busy) for busy in (() if quick else BUSY)),
    ]
    modes = [
        {"what": "deadline", "algorithm": algorithm, "mode": mode, "share": share, "busy": busy}
        for algorithm, share, busy in conditions for mode in CONTENDERS
    ]
    changed = [
        {"what": "changed", "algorithm": "double-dqn", "mode": mode, "busy": 0}
        for mode in ("max-a", "episode", "step")
    ]
    sweeps = [
        {"what": what, "algorithm": "double-dqn", what: value}
        for what, values in (
            ("batch", (16, 32, 64, 128, 256, 512)), ("replay", (1000, 3000, 10_000, 30_000))
        )
        for value in (values[::3] if quick else values)
    ]
    worlds = [
        {"what": "world", "algorithm": "double-dqn", "mode": mode, "share": 1.0, "busy": 0,
         "world": world}
        for world in list(WORLDS)[1:] for mode in (list(CONTENDERS)[::3] if quick else CONTENDERS)
    ]
    memory = [
        {"what": "memory", "time": "virtual", "mode": mode, "handler": handler,
         "room_mib": r3_memory.ROOM_MIB}
        for mode in r3_memory.MODES for handler in r3_memory.HANDLERS
    ]
    timed: list[dict[str, Any]] = [*modes, *changed, *sweeps, *worlds]
    return [*(each | size for each in timed), *memory]


def run(what: str, seed: int, time: str, **more: Any) -> Any:
    """One trial."""
    if what == "memory":
        return r3_memory.run((*WORLDS["cartpole"], *SETTINGS), seed=seed, **more)
    seconds, horizons, algorithm = more["seconds"], more["horizons"], more["algorithm"]
    settings = [
        *WORLDS[more.get("world", "cartpole")], f"learning.algorithm={algorithm}",
        f"run.seed={seed}", f"learning.batch_size={more.get('batch', BATCH)}",
        *([f"replay.capacity={more['replay']}"] if what == "replay" else ()),
        *(DISTRIBUTION if algorithm == "c51" else ()),
    ]
    if what in ("batch", "replay"):
        return _swept(settings, seconds * horizons)
    shares = CHANGED if what == "changed" else (more["share"],)
    return _controlled(settings, more["mode"], shares, seconds, horizons, more["busy"])


@contextlib.contextmanager
def running(*settings: str) -> Iterator[rtagent.Runtime]:
    """A daemon that has begun to learn."""
    with acting_run(*SETTINGS, *settings) as runtime:
        wait_learning(runtime)
        yield runtime


@contextlib.contextmanager
def hogs(count: int) -> Iterator[None]:
    """Other programs that want a core each."""
    command = [sys.executable, "-c", HOG, str(os.getpid())]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def horizon_settings(contender: str, deadline_s: float, budget: int) -> dict[str, Any]:
    """Settings of section `r3`, without the margin, which cannot change while the daemon runs."""
    mode, _ = CONTENDERS[contender]
    return {"mode": mode, "deadline_s": round(deadline_s, 3), "data_budget": budget}


def _controlled(
    settings: list[str], contender: str, shares: tuple[float, ...], seconds: float, horizons: int,
    busy: int,
) -> dict[str, Any]:
    """Measure B, then run horizons: how many were met, how long each took, what was learned."""
    begin = horizon_settings("max-a", ENDLESS_S, ENDLESS) | {"margin": CONTENDERS[contender][1]}
    with running(*settings, *(f"r3.{name}={value}" for name, value in begin.items())) as runtime:
        rate = _samples_per_s(runtime, seconds)
        seconds = max(seconds, LEAST_BATCHES * BATCH / rate)
        budget = int(rate * seconds)
        latencies: list[float] = []
        spans: list[tuple[Horizon, Horizon]] = []
        before = runtime.stats()["learning"]
        with hogs(busy):
            for share in shares:
                deadline_s = share * seconds
                runtime.set_deadlines(**horizon_settings(contender, deadline_s, budget))
                ends = _ends(runtime, horizons // len(shares))
                latencies += (np.diff([at for at, _ in ends]) / deadline_s).tolist()
                spans.append((ends[0][1], ends[-1][1]))
        stats = runtime.stats()
        returns = runtime.world.metrics.environment.episodes.newest(1000)["return"]
    met, missed, episodes_met, episodes_missed = (
        sum(getattr(last, name) - getattr(first, name) for first, last in spans)
        for name in ("met", "missed", "episode_met", "episode_missed")
    )
    episodes = episodes_met + episodes_missed
    samples, updates = (
        stats["learning"][name] - before[name] for name in ("samples_consumed", "updates")
    )
    return {
        "missed_percent": 100.0 * missed / (met + missed),
        "episodes_missed_percent": 100.0 * episodes_missed / episodes if episodes else None,
        "latency_p50": float(np.percentile(latencies, 50)),
        "latency_p99": float(np.percentile(latencies, 99)),
        "mean_return": _later_mean(returns),
        "mean_batch": samples / updates,
        "inaction_percent": 100.0 * stats["actions"]["inaction_fraction"],
        "samples_per_s": rate, "latencies": latencies, **_memory(stats),
    }


def _samples_per_s(runtime: rtagent.Runtime, seconds: float) -> float:
    """Samples learned from in a second, with the batch in force."""
    clock.sleep(WARM_UP_S)
    start, before = clock.monotonic(), runtime.stats()["learning"]["samples_consumed"]
    clock.sleep(seconds)
    consumed = runtime.stats()["learning"]["samples_consumed"] - before
    return float(consumed / (clock.monotonic() - start))


def _ends(runtime: rtagent.Runtime, horizons: int) -> list[tuple[float, Horizon]]:
    """Ends of the horizon under way and of so many after it, exact to `LOOK_S`.

    Raises:
        RuntimeError: a process keeps failing, so there will be none.
    """
    record = runtime.world.horizon
    ends: list[tuple[float, Horizon]] = []
    number, looks = record.read().number, 0
    while len(ends) <= horizons:
        clock.sleep(LOOK_S)
        looks += 1
        if looks % LOOKS_OF_A_CHECK == 0:
            check_whole(runtime)
        if (now := record.read()).number != number:
            number = now.number
            ends.append((clock.monotonic(), now))
    return ends


def _swept(settings: list[str], seconds: float) -> dict[str, Any]:
    """Without R3: what is learned in so many seconds, how fast, and with how much memory."""
    with running(*settings) as runtime:
        start, before = clock.monotonic(), runtime.stats()["learning"]
        clock.sleep(seconds)
        check_whole(runtime)
        stats = runtime.stats()
        elapsed, after = clock.monotonic() - start, stats["learning"]
        returns = runtime.world.metrics.environment.episodes.newest(1000)["return"]
    return {
        "updates_per_s": (after["updates"] - before["updates"]) / elapsed,
        "samples_per_s": (after["samples_consumed"] - before["samples_consumed"]) / elapsed,
        "mean_return": _later_mean(returns), **_memory(stats),
    }


def _later_mean(returns: NDArray[np.float64]) -> float | None:
    later = returns[len(returns) // 2 :]
    return float(later.mean()) if len(later) else None


def _memory(stats: dict[str, Any]) -> dict[str, Any]:
    """MiB in all and of the replay (Fig. 14)."""
    parts = {"memory_mib": stats["r3"]["used_bytes"], "replay_mib": stats["replay"]["bytes"]}
    return {name: None if value is None else value / 2**20 for name, value in parts.items()}


def draw(results: Results, figure: Any) -> None:
    """Misses and return by deadline, latencies as a distribution, and both sweeps."""
    panels = _panels(results, figure)
    deadline = results.where(what="deadline")
    for place, mode in enumerate(CONTENDERS):
        own = deadline.where(mode=mode)
        how: dict[str, Any] = {"color": f"C{place}", "label": mode}
        alone = own.where(busy=0)
        alone.line(panels[0, 0], "share", "missed_percent", **how)
        alone.line(panels[0, 1], "share", "mean_return", **how)
        latencies = np.sort([
            each for trial in alone.where(share=1.0).trials
            for each in trial.get("figures", {}).get("latencies", [])
        ])
        if len(latencies):
            below = np.arange(1, len(latencies) + 1) / len(latencies)
            panels[0, 2].step(latencies, below, **how)
        results.where(what="changed", mode=mode).line(
            panels[1, 2], "busy", "missed_percent", **{**how, "fmt": "s"}
        )
        own.where(share=1.0, algorithm="double-dqn").line(
            panels[1, 2], "busy", "missed_percent", **how
        )
    panels[0, 0].set(xlabel="deadline over undisturbed time", ylabel="horizons missed, %")
    panels[0, 1].set(xlabel="deadline over undisturbed time", ylabel="mean return, later half")
    panels[0, 2].set(xlabel="time of a horizon over its deadline of 1", ylabel="share of horizons")
    panels[0, 2].axvline(1.0, color="grey", linewidth=0.8)
    panels[1, 2].set(
        xlabel="busy programs beside it", xticks=results.values("busy"),
        ylabel="missed at the deadline of 1, %; squares: changing",
    )
    _draw_others(results, panels[2])
    for axes, what in zip(panels[1], SWEPT, strict=False):
        swept = results.where(what=what)
        if axes.get_visible():
            _draw_sweep(swept, axes, what)
    for axes in panels.flat:
        axes.grid(alpha=0.3)
    by_mode = [axes for axes in (panels[0, 0], panels[1, 2]) if axes.get_visible()]
    for axes in by_mode[:1]:
        axes.legend(fontsize=7)
    figure.suptitle(
        "CartPole at 200 Hz, wall clock, where nothing else is said; intervals over algorithms and "
        "seeds"
    )


def _panels(results: Results, figure: Any) -> NDArray[Any]:
    """Axes for every panel, those with figures side by side, the others invisible."""
    known = {trial["params"]["what"] for trial in results.trials if "figures" in trial}
    shown = [not known.isdisjoint(whats) for whats in PANELS]
    rows = -(-max(1, sum(shown)) // COLUMNS)
    figure.set_figheight(figure.get_figheight() * rows * COLUMNS / len(PANELS))
    grid = figure.add_gridspec(rows, min(COLUMNS, max(1, sum(shown))))
    places = np.maximum(0, np.cumsum(shown) - 1)
    return np.array([
        figure.add_subplot(grid[place], visible=visible)
        for place, visible in zip(places.tolist(), shown, strict=True)
    ]).reshape(-1, COLUMNS)


def _draw_sweep(swept: Results, axes: Any, what: str) -> None:
    """Return by the size of the batch, or of the replay, and what it costs."""
    swept.line(axes, what, "mean_return", color="tab:green", label="mean return")
    other = axes.twinx()
    size, cost, label = SWEPT[what]
    swept.line(other, what, cost, color="tab:red", label=label)
    axes.set(xlabel=size, ylabel="mean return (green)", xscale="log")
    axes.set_xticks(swept.values(what), swept.values(what))
    axes.minorticks_off()
    other.set_ylabel(f"{label} (red)")


def _draw_others(results: Results, panels: Any) -> None:
    """Other worlds, and out of memory."""
    worlds, modes = list(WORLDS)[1:], list(CONTENDERS)
    for axes, name, label in (
        (panels[0], "missed_percent", "horizons missed, %"),
        (panels[1], "latency_p99", "p99 of a horizon over its deadline of 1"),
    ):
        for place, mode in enumerate(modes):
            points = [results.where(what="world", world=each, mode=mode).point(name)
                      for each in worlds]
            bars(axes, place, len(modes), points, capsize=2, color=f"C{place}", label=mode)
        axes.set_xticks(range(len(worlds)), worlds)
        axes.set_ylabel(label)
    panels[1].axhline(1.0, color="grey", linewidth=0.8)
    # The legends stand above the bars.
    for axes in (panels[0], panels[2]):
        axes.set(ylim=(0, 140), yticks=range(0, 101, 20))
    for place, handler in enumerate(r3_memory.HANDLERS):
        points = [results.where(what="memory", mode=mode, handler=handler).point("budget_percent")
                  for mode in r3_memory.MODES]
        bars(
            panels[2], place, len(r3_memory.HANDLERS), points, capsize=2, label=f"{handler} handler"
        )
    panels[2].set_xticks(range(len(r3_memory.MODES)), r3_memory.MODES)
    panels[2].set_ylabel("of the data budget at the deadline, %")
    panels[2].set_title("injected lack of memory, virtual time", fontsize=9)
    for axes in (panels[0], panels[2]):
        if axes.get_visible():
            axes.legend(fontsize=7, ncols=3, loc="upper center")


EXPERIMENT = Experiment(trials, run, draw, size=(15, 12.5))
