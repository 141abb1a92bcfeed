"""Gain of an engine: inference times and actions beside eager float32, and processes needed.

First, alone on one thread: the network in eager torch, float32, as the published code runs it; as
an inference process runs it by default; and by the engine that `auto` chooses. They take turns, so
that all see the same machine. CPU times are compared: as all calls compute in the calling thread,
they are nearly the times of a quiet machine. The targets are for calls that follow others of their
own kind; beside them stands the first call of each turn, which finds in the caches what the kind
before it needed (torch as configured follows eager torch and shares its code). Actions are compared
on frames of the environment that `auto` did not see. With `--live`, the whole daemon, by torch in
float32 and by `auto`: each gets as many processes as it recommends, and then ticks without an
action are counted.

    rtagent bench engines [--network resnet] [--widths 1 7] [--rounds N]
        [--live] [--live-width 7] [--json]
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.command import command_line
from benchmarks.runs import acting_run, rows_of
from rtagent.cli.output import print_json
from rtagent.config import Config, PolicyConfig
from rtagent.config_sources import load_config
from rtagent.staggering.arbiter import Source

FRAMES = 400
SEEN_SHARE = 4
"""One of this many frames is for the choice of the engine, the others for the comparison."""
APART = 4
"""Ticks between two frames."""
WARM, BETWEEN = 5, 4
"""Turns, and calls of each turn, that are not timed."""
SETTLE_S, MEASURE_S, MODEL_S = 20.0, 30.0, 240.0
MOST = 16
"""Most processes; a machine that needs more is too slow for the network."""
WANTED = {1: 6.0, 7: 3.0}
"""Times as fast as eager torch, by the width of the resnet; of other networks nothing is wanted."""
AGREEMENT, PROCESSES, INACTION = 0.99, 0.5, 0.01

Call = Callable[[np.ndarray], np.ndarray]


def recorded(config: Config, count: int) -> tuple[list[np.ndarray], Any]:
    """Observations of the environment under random play, and the environment."""
    from rtagent.env.adapter import open_environment

    adapter = open_environment(config.env)
    adapter.action_space.seed(0)
    rows = [adapter.reset(0)]
    while len(rows) < count * APART + adapter.frame_stack:
        step = adapter.step(adapter.action_space.sample())
        rows.append(adapter.reset() if step.terminated or step.truncated else step.frame)
    starts = range(0, count * APART, APART)
    found = [np.stack(rows[start : start + adapter.frame_stack]) for start in starts]
    adapter.close()
    return found, adapter


def alone(network: str, width: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of an inference of each kind, and the share of equal actions."""
    import torch
    from gymnasium import spaces

    from rtagent.policy.acting import ActingPolicy
    from rtagent.policy.networks import build, flattened, load_flat
    from rtagent.policy.precision import acting_precision

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = load_config(overrides=[
        f"policy.network={network}", f"policy.width={width}", "policy.engine=auto",
    ])
    frames, adapter = recorded(config, FRAMES)
    space = spaces.Box(0, 255, frames[0].shape, np.uint8)
    module = build(config.policy, space, adapter.action_space).eval().requires_grad_(False)
    weights = flattened(module)

    def eager(observation: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            values: np.ndarray = module(torch.from_numpy(observation[None]))[0].numpy()
            return values

    precision = acting_precision(config.policy, module, (torch.from_numpy(frames[0][None]),))
    acting = ActingPolicy(config.policy, space, adapter.action_space, precision=precision)
    load_flat(acting.module, weights)
    calls: dict[str, Call] = {"torch eager float32": eager, "torch as configured": acting.values}
    seen = frames[::SEEN_SHARE]
    unseen = [each for index, each in enumerate(frames) if index % SEEN_SHARE]
    expected = {id(each): eager(each) for each in frames}
    first_s, taken_s, by_engine = _by_engine(
        config.policy, adapter, module, weights, acting.values, seen,
        [expected[id(each)] for each in seen],
    )
    calls.update(by_engine)
    times = in_turns(calls, unseen, rounds)
    return {
        "parameters": len(weights),
        "calls": {
            kind: _figures(lengths, times["torch eager float32"], [
                expected[id(each)].argmax() == calls[kind](each).argmax() for each in unseen
            ])
            for kind, lengths in times.items()
        },
        "first_conversion_cpu_s": first_s, "conversion_cpu_s": taken_s,
    }


def _by_engine(
    policy: PolicyConfig, adapter: Any, module: Any, weights: np.ndarray, must_beat: Call,
    seen: list[np.ndarray], answers: list[np.ndarray],
) -> tuple[float, float, dict[str, Call]]:
    """CPU seconds of the first conversion and of the next; and a call of the chosen engine, if any.

    Args:
        policy, adapter, module, weights: of the network.
        must_beat: a call that an engine must be faster than.
        seen: observations for the choice.
        answers: action values that eager torch gives for these.
    """
    from rtagent.inference.engines.choice import Choice
    from rtagent.inference.engines.registry import candidates, make, wanted_engines
    from rtagent.inference.engines.traceable import Traceable

    engines = {name: make(name) for name in wanted_engines(policy)}
    choice = Choice(
        engines, list(candidates(policy, engines)), Traceable(module, seen[0], None),
        adapter.action_space, policy.engine_agreement, must_beat, lambda *_, **__: None,
        lambda: None,
    )
    began = time.process_time()
    first = choice.convert(weights, seen, answers)
    between = time.process_time()
    taken = choice.convert(weights, seen, answers)
    first_s, next_s = between - began, time.process_time() - between
    if first is None or taken is None:
        return first_s, next_s, {}
    by = taken.candidate
    call = engines[by.engine].open(taken.model, by.precision)
    return first_s, next_s, {f"auto: {by.engine} {by.precision}": call}


def _figures(lengths: np.ndarray, eager: np.ndarray, same_actions: list[bool]) -> dict[str, float]:
    """Figures of one kind of call beside eager torch; of both, what `in_turns` gives."""
    cpu_ms, _, first_ms = (float(each) for each in np.median(lengths, axis=0))
    eager_ms, _, eager_first_ms = (float(each) for each in np.median(eager, axis=0))
    return {
        "cpu_ms": cpu_ms, "times_eager": eager_ms / cpu_ms,
        "p50_ms": float(np.median(lengths[:, 1])),
        "p99_ms": float(np.percentile(lengths[:, 1], 99)),
        "first_cpu_ms": first_ms, "first_times_eager": eager_first_ms / first_ms,
        "agreement": float(np.mean(same_actions)),
    }


def in_turns(
    calls: dict[str, Call], observations: list[np.ndarray], rounds: int
) -> dict[str, np.ndarray]:
    """Milliseconds of each call, (rounds, 3).

    In each turn: CPU time of the last call, when the caches hold what it needs; time until its
    result was there; and CPU time of the first call, when the caches hold what the call before, of
    another kind, left in them. `BETWEEN` calls lie between the two.
    """
    times: dict[str, list[tuple[float, float, float]]] = {name: [] for name in calls}
    for number in range(WARM + rounds):
        for name, call in calls.items():
            observation = observations[number % len(observations)]
            first_cpu_s, _ = _timed(call, observation)
            for _ in range(BETWEEN):
                call(observation)
            cpu_s, until_s = _timed(call, observation)
            if number >= WARM:
                times[name].append((1e3 * cpu_s, 1e3 * until_s, 1e3 * first_cpu_s))
    return {name: np.array(each) for name, each in times.items()}


def _timed(call: Call, observation: np.ndarray) -> tuple[float, float]:
    """CPU seconds of a call, and seconds until its result was there."""
    start, before = time.monotonic(), time.thread_time()
    call(observation)
    after, end = time.thread_time(), time.monotonic()
    return after - before, end - start


def live(network: str, width: int, settings: list[str]) -> dict[str, Any]:
    """Processes needed and ticks without an action, in a daemon that also learns."""
    wants_model = not any("engine=torch" in each for each in settings)
    with acting_run(
        "run.tensorboard=false", f"policy.network={network}", f"policy.width={width}",
        "env.rate_hz=60", *settings, limit_s=120.0,
    ) as runtime:
        began = time.monotonic()
        while wants_model and runtime.stats()["inference"]["engine"] == "torch":
            if time.monotonic() - began > MODEL_S:
                break
            time.sleep(0.5)
        until_model_s = time.monotonic() - began

        def set_processes(count: int) -> None:
            # Any change of the inference settings starts the window of the figures again.
            runtime.set_inference(processes=count, fill=1)
            runtime.set_inference(fill=2)

        needed = 0
        for _ in range(3):
            set_processes(needed or 2)
            time.sleep(SETTLE_S)
            found = min(runtime.stats()["inference"]["recommended_processes"] or 1, MOST)
            if found == needed:
                break
            needed = found
        set_processes(needed)
        rows, stats = rows_of(runtime, MEASURE_S), runtime.stats()
    inference = stats["inference"]
    return {
        "processes": needed, "inaction": float((rows["source"] == Source.DEFAULT).mean()),
        "engine": inference["engine"], "precision": inference["engine_precision"],
        "agreement": inference["engine_agreement"], "estimate_ms": inference["estimate_ms"],
        "until_model_s": until_model_s if wants_model else None,
        "conversions": inference["engine_conversions"],
        "updates_per_s": stats["learning"]["updates_per_s"],
    }


def show(result: dict[str, Any]) -> bool:
    """Print the result; whether all targets were reached."""
    reached = True
    for width, found in result["alone"].items():
        print(f"\nwidth {width}, {found['parameters']:,} parameters")
        for name, each in found["calls"].items():
            print(f"  {name:28} CPU {each['cpu_ms']:8.3f} ms, until it is there p50 "
                  f"{each['p50_ms']:8.3f} p99 {each['p99_ms']:8.3f}; "
                  f"{each['times_eager']:5.2f} times as fast, actions {each['agreement']:.2%}; "
                  f"first in its turn {each['first_cpu_ms']:8.3f} ms, "
                  f"{each['first_times_eager']:5.2f} times")
        print(f"  conversion {found['conversion_cpu_s']:.2f} s of a core, the first "
              f"{found['first_conversion_cpu_s']:.2f} s")
        last = list(found["calls"].values())[-1]
        wanted = WANTED.get(int(width)) if result["network"] == "resnet" else None
        if wanted is not None:
            reached &= _verdict(f"width {width}", last["times_eager"] >= wanted, f">= {wanted}")
        reached &= _verdict("actions", last["agreement"] >= AGREEMENT, f">= {AGREEMENT:.0%}")
    if "live" in result:
        eager, auto = result["live"]["torch float32"], result["live"]["auto"]
        print()
        for name, each in result["live"].items():
            print(f"  {name:14} {each['processes']} processes  inaction {each['inaction']:.2%}  "
                  f"{each['engine']} {each['precision'] or ''}  {each['estimate_ms']:.2f} ms")
        share = auto["processes"] / eager["processes"]
        reached &= _verdict("processes", share <= PROCESSES, f"<= {PROCESSES}: {share:.2f}")
        reached &= _verdict("inaction", auto["inaction"] <= INACTION, f"<= {INACTION:.0%}")
    return reached


def _verdict(name: str, reached: bool, wanted: str) -> bool:
    print(f"  {name}: {wanted}: {'reached' if reached else 'MISSED'}")
    return reached


def main() -> int:
    """Measure and print; exit code 1 if a target was missed (never with `--json`)."""
    parser = command_line(__doc__)
    parser.add_argument("--network", choices=("nature", "resnet", "mlp"), default="resnet")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 7])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--live", action="store_true", help="also the whole daemon (minutes)")
    parser.add_argument("--live-width", type=int, default=7)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    result: dict[str, Any] = {
        "network": args.network, "load_before": load, "cores": os.cpu_count(), "alone": {},
    }
    for width in args.widths:
        result["alone"][width] = alone(args.network, width, args.rounds)
    if args.live:
        result["live"] = {
            name: live(args.network, args.live_width, settings)
            for name, settings in (
                ("torch float32", ["policy.engine=torch", "policy.precision=float32"]),
                ("auto", ["policy.engine=auto"]),
            )
        }
    if args.json:
        print_json(result)
        return 0
    print(f"load of the machine before: {load:.1f} on {os.cpu_count()} cores")
    return 0 if show(result) else 1


if __name__ == "__main__":
    sys.exit(main())
