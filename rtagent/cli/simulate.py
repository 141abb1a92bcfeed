"""`rtagent simulate`: the staggering algorithms in virtual time; with `--env`, a whole run."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from rtagent.cli import simulate_run
from rtagent.cli.options import add_json_option, check_between, check_seconds, option
from rtagent.cli.output import known, percent, plain_table, print_json, spinner, stdout
from rtagent.errors import UserError
from rtagent.staggering.inference_times import DISTRIBUTIONS, USUAL_SPREAD
from rtagent.staggering.register import ALGORITHMS
from rtagent.staggering.simulator import SimulationConfig, simulate

LONGEST_S = 86_400.0
SPREAD = (0.0, 100.0)
TICKS = (0.01, 100_000.0)
"""Bounds of an inference time. Above these bounds a simulation would never finish."""

SCHEDULE = {
    "algorithm": "use --set inference.algorithm=VALUE",
    "inference_ticks": "use --inference-ms MS",
    "distribution": "use --set inference.injected_latency_distribution=VALUE",
    "spread": "use --set inference.injected_latency_spread=VALUE",
    "processes": "use --set inference.processes=VALUE",
    "chunk": "the network says it",
    "step_ticks": "a step takes no time",
}
"""Options of a simulated schedule alone, and what says or holds the same in a whole run."""

_FIGURES = {
    "inaction_fraction":
        ("inaction", "%", "ticks on which the world did the default behaviour"),
    "strict_inaction_fraction":
        ("strict inaction", "%", "the same, counting re-used actions too"),
    "interaction_mean":
        ("interaction time, mean", "{:.2f} ticks", "between two new actions that are executed"),
    "gap_cv": ("interaction time, CV", "{:.3f}", "its coefficient of variation; 0: perfectly even"),
    "delay_mean":
        ("delay, mean", "{:.2f} ticks", "ticks from the frame an action saw to its execution"),
    "delay_p99": ("delay, p99", "{:.2f} ticks", "99 of 100 actions have at most this delay"),
    "overwritten_fraction":
        ("overwritten", "%", "actions that no tick used: replaced, or too late"),
    "from_chunk_fraction":
        ("from chunks", "%", "ticks that executed a later action of a chunk"),
    "converged_s":
        ("converged", "{:.2f} s", "seconds from the start until a second without inaction"),
}
"""Title, format (% of a share) and meaning of each figure."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    defaults = SimulationConfig()
    add("--algorithm", help=f"one of {', '.join(ALGORITHMS)}; default: {defaults.algorithm}")
    add("--inference-ticks", type=float, metavar="X",
        help="inference time, in ticks of a Game Boy (default "
        f"{defaults.inference_ticks:g}); its mean, unless outliers, a drift or a step make it "
        "longer")
    add("--distribution", help=f"one of {', '.join(DISTRIBUTIONS)}; default: constant")
    add("--spread", type=float, metavar="S",
        help="gauss: standard deviation per mean (default 0.02); lognormal: sigma (default 0.5); "
        "outliers: share of those 10 times as long, or, from 1 on, the factor of 1 %% (default "
        "0.01); drift, step: growth of the mean (default 0.5, 2)")
    add("--processes", type=int, metavar="N",
        help=f"inference processes (default {defaults.processes})")
    add("--chunk", type=int, metavar="H",
        help="actions of consecutive ticks that each inference answers with (default "
        f"{defaults.chunk})")
    add("--step-ticks", type=float, metavar="S",
        help="ticks from the beginning of a tick until its frame is there, below 1 (default 0)")
    add("--seconds", type=float, default=defaults.seconds, metavar="T",
        help=f"seconds of virtual time (default {defaults.seconds:g})")
    add("--seed", type=int, metavar="K",
        help="seed of all chance (default 0, with --env run.seed)")
    add_json_option(parser)
    simulate_run.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate and print the figures of the second half, or those of a whole run."""
    check_seconds(args.seconds, LONGEST_S)
    if args.seed is not None and args.seed < 0:
        raise UserError(f"--seed {args.seed}: must not be negative")
    given = {name: value for name in SCHEDULE if (value := getattr(args, name)) is not None}
    if args.env is not None:
        for name in given:
            raise UserError(f"{option(name)}: with --env, {SCHEDULE[name]}")
        return simulate_run.run(args)
    simulate_run.check_absent(args)
    return _run_schedule(args, given)


def _run_schedule(args: argparse.Namespace, given: dict[str, Any]) -> int:
    if "spread" in given:
        check_between("spread", given["spread"], *SPREAD)
    if "inference_ticks" in given:
        check_between("inference-ticks", given["inference_ticks"], *TICKS)
    given.setdefault("spread", USUAL_SPREAD.get(given.get("distribution", ""), 0.0))
    try:
        config = SimulationConfig(**given, seconds=args.seconds)
        with spinner("simulating ..."):
            figures = simulate(config, np.random.default_rng(args.seed or 0)).figures()
    except ValueError as error:
        raise UserError(str(error)) from None
    if args.json:
        print_json(figures)
        return 0
    values: dict[str, Any] = dict(figures)
    shown = {name: percent(values[name]) if form == "%" else known(values[name], form)
             for name, (_, form, _) in _FIGURES.items()}
    if values["converged_s"] is None:
        shown["converged_s"] = "never"
    rows = ((title, shown[name], text) for name, (title, _, text) in _FIGURES.items())
    processes = 1 if config.algorithm.startswith("sequential") else config.processes
    console = stdout()
    console.print(
        f"{config.algorithm}, {processes} process{'es' * (processes > 1)}, "
        f"inference of {config.inference_ticks:g} ticks ({config.distribution}), second half of "
        f"{config.seconds:g} s"
    )
    console.print(plain_table("", "", "", rows=rows))
    return 0
