"""`rtagent plan`: how long an inference takes here, and how many processes that needs."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from rtagent.cli.forward_time import ForwardTimes, measure
from rtagent.cli.options import (
    add_config_options,
    add_json_option,
    add_picture_option,
    add_seconds_option,
    check_seconds,
    config_of,
)
from rtagent.cli.output import plain_table, report, stdout
from rtagent.cli.plan_placement import run_placement
from rtagent.cli.update_time import UpdateTimes
from rtagent.config import MAX_INFERENCE_PROCESSES, Config
from rtagent.errors import UserError
from rtagent.learning.learners_needed import learners_needed
from rtagent.processes.limit import most_busy_cores
from rtagent.staggering.figures import processes_needed
from rtagent.staggering.register import LIVE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_options(parser)
    add_seconds_option(parser, 5.0, "how long to measure")
    parser.add_argument(
        "--placement", action="store_true",
        help="plan a learning step instead: which of its parts runs on which core, how precisely",
    )
    add_picture_option(parser, "with --placement: draw that plan")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, and print the plan."""
    check_seconds(args.seconds)
    config = config_of(args)
    if args.placement:
        return run_placement(args, config)
    if args.picture is not None:
        raise UserError("--picture draws the plan of a learning step: give --placement, too")
    forward, update = measure(config, args.seconds)
    report(args, make_plan(config, forward, update, most_busy_cores()), _print)
    return 0


def processes_for(times: npt.NDArray[np.float64], wanted: float) -> dict[str, int]:
    """Processes that each algorithm needs.

    Args:
        times: measured inference times.
        wanted: time between two actions, in the same unit.
    """
    mean, longest = float(times.mean()), dict.fromkeys(LIVE, float(times.max()))
    longest["adaptive"] = float(np.percentile(times, 99))
    return {
        # The mean is rounded, and may be above the 99th percentile.
        name: processes_needed(min(mean, longest[name]), longest[name], wanted, name)
        for name in LIVE
    }


def make_plan(
    config: Config, measured: ForwardTimes, update: UpdateTimes | None, cores: float
) -> dict[str, Any]:
    """The plan as one JSON object; without the times of learning if they are unknown.

    Returns:
        Times in milliseconds; `inference_ticks` is x; `processes` has the number for each
        algorithm; `cores_needed` is what acting alone keeps busy; `learning` says how many learners
        an update per tick needs; `advice` says in words whether the machine is large enough.
    """
    inference = config.inference
    tick = 1.0 / measured.rate_hz
    wanted = max(tick, (inference.action_deadline_ms or 0.0) / 1e3)
    mean = float(measured.inference_s.mean())
    processes = processes_for(measured.inference_s, wanted)
    busy = measured.busy_s / wanted
    learning = None if update is None else _learning(config, update, tick)
    learning_advice: list[str] = []
    if config.learning.processes:
        learning_advice = _learning_advice(learning, 1e3 * tick, cores - busy)
    return {
        "environment": config.env.id, "rate_hz": measured.rate_hz, "tick_ms": 1e3 * tick,
        "interaction_ms": 1e3 * wanted, "network": measured.network,
        "precision": measured.precision, "parameters": measured.parameters,
        "passes": len(measured.forward_s), "forward_ms": _spread(measured.forward_s),
        "takeover_ms": _spread(measured.takeover_s), "injected_latency": _injected(config),
        "inference_ms": _spread(measured.inference_s), "inference_ticks": mean / tick,
        "processes": processes, "configured_processes": inference.processes,
        "cores": cores, "cores_needed": busy, "enough_cores": busy <= cores, "learning": learning,
        "advice": [*_advice(config, processes, busy, cores), *learning_advice],
    }


def _injected(config: Config) -> dict[str, Any] | None:
    inference = config.inference
    return {
        "mean_ms": inference.injected_latency_ms,
        "distribution": inference.injected_latency_distribution,
        "spread": inference.injected_latency_spread,
    } if inference.injected_latency_ms else None


def _learning(config: Config, update: UpdateTimes, tick_s: float) -> dict[str, Any]:
    gradient, apply = float(update.gradient_s.mean()), float(update.apply_s.mean())
    return {
        "algorithm": update.algorithm,
        "batch_size": update.batch_size,
        "precision": update.precision,
        "gradient_ms": _spread(update.gradient_s),
        "apply_ms": _spread(update.apply_s),
        "learners_needed": learners_needed(gradient, apply, tick_s),
        "configured_learners": config.learning.processes,
        "cores_needed": update.busy_s / tick_s,
    }


def _learning_advice(
    learning: dict[str, Any] | None, tick_ms: float, cores_left: float
) -> list[str]:
    if learning is None:
        return ["too little memory to measure learning here"]
    needed = learning["learners_needed"]
    if needed is None:
        return [
            f"no number of learners makes an update per tick: to apply one takes "
            f"{learning['apply_ms']['mean']:.1f} ms, and a tick lasts {tick_ms:.1f} ms"
        ]
    if learning["cores_needed"] > cores_left:
        return [
            f"to learn from every transition keeps {learning['cores_needed']:.1f} cores busy, and "
            f"acting leaves {max(0.0, cores_left):.1f}; learning goes on more slowly"
        ]
    if needed > learning["configured_learners"]:
        return [
            f"learning.processes = {learning['configured_learners']} is too few to learn from "
            f"every transition: --set learning.processes={needed}"
        ]
    return []


def _spread(seconds: npt.NDArray[np.float64]) -> dict[str, float]:
    p50, p99 = np.percentile(seconds, (50, 99))
    figures = {"mean": seconds.mean(), "p50": p50, "p99": p99, "max": seconds.max()}
    return {name: 1e3 * float(value) for name, value in figures.items()}


def _advice(
    config: Config, processes: dict[str, int], cores_needed: float, cores: float
) -> list[str]:
    needed = processes[config.inference.algorithm] if config.inference.algorithm in LIVE else 0
    lines = []
    if cores_needed > cores:
        lines.append(
            f"too few cores: acting this often keeps {cores_needed:.1f} cores busy and there are "
            f"{cores:g}; the processes would slow each other down. Take a smaller network, a lower "
            "env.rate_hz or a longer inference.action_deadline_ms"
        )
    elif config.learning.processes and cores_needed + config.learning.processes > cores:
        lines.append(
            f"enough cores for acting ({cores_needed:.2f} of {cores:g} busy); the learner takes "
            "what is left"
        )
    else:
        lines.append(f"enough cores: acting keeps {cores_needed:.2f} of {cores:g} busy")
    if config.policy.engine != "torch":
        lines.append(
            f"torch was measured: where policy.engine = {config.policy.engine!r} acts, fewer cores "
            "and processes are enough; inference.processes = 'auto' finds how many"
        )
    if config.inference.injected_latency_ms:
        lines.append("injected latency needs no core: the padding is waited out")
    if needed > MAX_INFERENCE_PROCESSES:
        lines.append(f"rtagent runs at most {MAX_INFERENCE_PROCESSES} inference processes")
    elif config.inference.processes != "auto" and needed > config.inference.processes:
        lines.append(
            f"inference.processes = {config.inference.processes} is too few for "
            f"{config.inference.algorithm}: --set inference.processes={needed}"
        )
    return lines


def _print(plan: dict[str, Any]) -> None:
    console = stdout()
    injected, learning = plan["injected_latency"], plan["learning"]
    whole = "with injected latency" if injected else "all that an action takes"
    console.print(
        f"{plan['environment']} at {plan['rate_hz']:g} Hz: a tick lasts {plan['tick_ms']:.3f} ms\n"
        f"{plan['network']}, {plan['precision']}, {plan['parameters']:,} parameters, "
        f"{plan['passes']:,} forward passes on one core"
    )
    if injected:
        console.print(
            f"injected latency: {injected['mean_ms']:g} ms, {injected['distribution']}, "
            f"spread {injected['spread']:g}"
        )
    _print_times(console, {
        "forward pass": plan["forward_ms"], whole: plan["inference_ms"],
        "new weights, while it waits": plan["takeover_ms"],
    })
    console.print(f"x = {plan['inference_ticks']:.3f} ticks per inference")
    console.print(f"processes for an action every {plan['interaction_ms']:.3f} ms:")
    rows = ((f"  {name}", str(count)) for name, count in plan["processes"].items())
    console.print(plain_table("", "", rows=rows), "")
    if learning is not None:
        console.print(
            f"{learning['algorithm']}, {learning['precision']}, {learning['batch_size']} "
            "transitions per update"
        )
        _print_times(
            console, {"gradient": learning["gradient_ms"], "applying it": learning["apply_ms"]}
        )
        needed = learning["learners_needed"] or "none is enough"
        console.print(f"learners for an update on every tick: {needed}\n")
    for line in plan["advice"]:
        console.print(line)


def _print_times(console: Console, rows: dict[str, dict[str, float]]) -> None:
    table = plain_table("", "", "", "", "")
    table.add_row("milliseconds", "mean", "p50", "p99", "max", style="bold")
    for title, figures in rows.items():
        table.add_row(title, *(f"{value:.3f}" for value in figures.values()))
    console.print("", table, "")
