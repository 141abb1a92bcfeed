"""A learning step on two cores by plan: is it as fast as predicted, and faster than on one core?

Ten networks and batch sizes for DQN, and the networks of DDPG in AP-DRL's Table III. Each step is
profiled part by part (processor time, alone and beside a busy core), planned, and carried out on
private weights, in turns of some steps with the best plan for one core, so that both see the same
machine; where the plan is that plan, the ratio of their times is noise. `whole` is what the profile
has measured of a whole step on one core over the sum of its parts, medians of both; it is in the
predictions.

The machine is not the same from second to second, so each case takes its turn several times: it is
profiled anew, the times of that profile are put into the plan made of the first one, and the plan
is measured. All figures are medians over the turns; `error` is the measured time over that
predicted in the same turn, less 1, and beside it stand the smallest and the largest of all turns,
for a learner has but one profile. The measured time is the median of wall-clock times, and beside
it stands their fastest tenth: where other programs run, the first contains them, and the prediction
does not. `machine` says how much that is: the step on one core, measured over predicted. `busy` is
the error of the first core's processor time, to which other programs add little.

    rtagent bench placement [--seconds 20] [--turns 5] [--cases N] [--picture FILE] [--json]
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.command import command_line, new_picture
from benchmarks.learning import ap_drl
from rtagent.cli.output import print_json
from rtagent.clock import MonotonicClock
from rtagent.config_sources import load_config
from rtagent.evaluation.probe import probe
from rtagent.learning.beginning import build_network
from rtagent.learning.placed import StepTimes, measure_placement
from rtagent.learning.profiling import take_profile
from rtagent.placement.gantt import draw
from rtagent.placement.problem import schedule
from rtagent.placement.profile import Profile
from rtagent.placement.step import FIRST, SECOND, Placement, place, step_problem
from rtagent.processes.freed_memory import keep_freed_memory

CASES = {
    "nature, B=16": ("nature", 1, 16),
    "nature, B=64": ("nature", 1, 64),
    "nature, B=256": ("nature", 1, 256),
    "resnet k=1, B=16": ("resnet", 1, 16),
    "resnet k=1, B=64": ("resnet", 1, 64),
    "resnet k=2, B=16": ("resnet", 2, 16),
    "mlp 64, B=256": ("mlp", 1, 256),
    "mlp 512, B=64": ("mlp", 8, 64),
    "mlp 512, B=256": ("mlp", 8, 256),
    "mlp 1024, B=256": ("mlp", 16, 256),
    "ddpg, B=16": ("ddpg", 1, 16),
    "ddpg, B=64": ("ddpg", 1, 64),
    "ddpg, B=256": ("ddpg", 1, 256),
    "resnet k=1, B=256": ("resnet", 1, 256),
    "resnet k=2, B=64": ("resnet", 2, 64),
    "resnet k=2, B=256": ("resnet", 2, 256),
}
"""Network, width and transitions."""
WORLDS = {"mlp": "CartPole-v1", "ddpg": "LunarLanderContinuous-v3"}
IMAGES = "rtagent/Starfall-v0"
WITHIN = 0.15
"""Largest relative difference of prediction and measurement."""
NOT_SLOWER = 1.02
"""Longest accepted time of a step by the plan, over that by the best plan for one core."""
FAST = 10.0
"""Percentile of the times that stands for an undisturbed step."""


def measure(
    name: str, width: int, size: int, seconds: float, turns: int, picture: Path | None
) -> dict[str, Any]:
    """Milliseconds of one case, and the figures that follow from them: medians of all turns."""
    actor_critic = name == "ddpg"
    config = load_config(None, [
        f"env.id={WORLDS.get(name, IMAGES)}", f"learning.batch_size={size}",
        *(["learning.algorithm=ddpg"] if actor_critic else
          [f"policy.network={name}", f"policy.width={width}"]),
    ], {})
    blueprint, build = probe(config), ap_drl.ddpg if actor_critic else build_network
    what, each_s = (config, blueprint), seconds / 2.0 / turns
    chosen: Placement | None = None
    found = []
    for _ in range(turns):
        profile = take_profile(*what, size, each_s, lambda done: None, build=build)
        chosen = chosen or place(profile)
        measured = measure_placement(*what, chosen, each_s, lambda done: None, build=build)
        found.append(_turn(with_times(chosen, profile), measured) | {"noise": profile.noise})
    assert chosen is not None
    if picture is not None:
        shown = f"{name} {ap_drl.HIDDEN}" if actor_critic else chosen.profile.network
        draw(picture, f"{shown}, {size} transitions", chosen)
    errors = [each["error"] for each in found]
    return {
        **{figure: median(each[figure] for each in found) for figure in found[0]},
        "error_least": min(errors), "error_most": max(errors), "error_first": errors[0],
        "two_cores": chosen.uses_second, "proven": chosen.plan.proven, "turns": turns,
    }


def _turn(predicted: Placement, measured: StepTimes) -> dict[str, float]:
    """The figures of one turn."""
    predicted_ms, single_ms = 1e-3 * predicted.predicted_us, 1e-3 * predicted.predicted_single_us
    busy_ms = 1e-3 * predicted.whole * sum(
        each.end_us - each.start_us for n, each in enumerate(predicted.plan.placed)
        if predicted.unit(n).processor == FIRST
    )
    planned_fast, single_fast = (
        float(np.percentile(times, FAST)) for times in (measured.planned, measured.single)
    )
    return {
        "predicted_ms": predicted_ms, "measured_ms": measured.planned_ms, "fast_ms": planned_fast,
        "single_predicted_ms": single_ms, "single_ms": measured.single_ms,
        "single_fast_ms": single_fast, "steps": len(measured.planned),
        "error": measured.planned_ms / predicted_ms - 1.0,
        "error_fast": planned_fast / predicted_ms - 1.0,
        "error_busy": median(measured.busy) / busy_ms - 1.0, "whole": predicted.whole,
        "speedup": measured.single_ms / measured.planned_ms,
        "speedup_fast": single_fast / planned_fast, "speedup_predicted": single_ms / predicted_ms,
        "machine": measured.single_ms / single_ms,
    }


def with_times(placement: Placement, profile: Profile) -> Placement:
    """The same plan with the times of another profile of the same step."""
    problem = step_problem(
        profile, tuple(unit.precision for unit in placement.problem.units),
        beside=SECOND in placement.problem.processors,
    )
    assert problem.units == placement.problem.units
    plan = schedule(
        problem, [each.unit for each in placement.plan.placed],
        [each.start_us for each in placement.plan.placed],
    )
    single = placement.single and with_times(placement.single, profile)
    return Placement(profile, problem, replace(plan, proven=placement.plan.proven), single)


def _print(report: dict[str, dict[str, Any]]) -> None:
    print(f"{'milliseconds':18}{'cores':>6}{'predicted':>10}{'median':>9}{'fastest':>9}"
          f"{'error':>8}{'from':>7}{'to':>6}{'fastest':>8}{'busy':>7}{'whole':>7}"
          "   speedup: predicted, median, fastest  machine")
    for case, row in report.items():
        print(
            f"{case:18}{2 if row['two_cores'] else 1:6}{row['predicted_ms']:10.2f}"
            f"{row['measured_ms']:9.2f}{row['fast_ms']:9.2f}{row['error']:+8.0%}"
            f"{row['error_least']:+7.0%}{row['error_most']:+6.0%}"
            f"{row['error_fast']:+8.0%}{row['error_busy']:+7.0%}{row['whole']:7.2f}"
            f"{row['speedup_predicted']:21.2f}{row['speedup']:8.2f}"
            f"{row['speedup_fast']:9.2f}{row['machine']:9.2f}"
        )


def main(argv: list[str] | None = None) -> int:
    """Measure and print; exit code 1 if a prediction is wrong or a plan is slower than one core."""
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each case (default 20)")
    parser.add_argument(
        "--turns", type=int, default=5, help="profiles and measurements of each case (default 5)"
    )
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first so many")
    parser.add_argument("--picture", type=new_picture, help="draw the plan of the newest case")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    keep_freed_memory()
    clock = MonotonicClock()
    began = clock.now()
    report = {}
    for case, (name, width, size) in list(CASES.items())[: args.cases]:
        print(f"{case} ...", file=sys.stderr)
        report[case] = measure(name, width, size, args.seconds, args.turns, args.picture)
    within, within_first, within_busy = (
        sum(abs(row[name]) <= WITHIN for row in report.values())
        for name in ("error", "error_first", "error_busy")
    )
    slower = [
        case for case, row in report.items()
        if row["two_cores"] and row["speedup"] < 1.0 / NOT_SLOWER
    ]
    summary = {
        "within": within, "within_first": within_first, "within_busy": within_busy,
        "of": len(report), "slower": slower, "seconds": round(clock.now() - began, 1),
    }
    if args.json:
        print_json({"cases": report, **summary})
    else:
        _print(report)
        print(f"within {WITHIN:.0%} of the prediction: {within} of {len(report)}; in the first "
              f"turn alone: {within_first}; the first core's processor time: {within_busy}; "
              f"slower than one core: {', '.join(slower) or 'none'}; {summary['seconds']} s")
    return 0 if within == len(report) and not slower else 1


if __name__ == "__main__":
    sys.exit(main())
