"""`rtagent plan --placement`: which core runs which part of a learning step, and what it gains."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rtagent.cli.measured_process import OnProgress, in_measured_process
from rtagent.cli.options import check_written
from rtagent.cli.output import plain_table, report, stdout
from rtagent.cli.profile import profile_of
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.placement.gantt import draw
from rtagent.placement.step import SECOND_CORE_WORTH, Placement, place
from rtagent.processes.freed_memory import keep_freed_memory
from rtagent.processes.scheduling import enter_idle


def run_placement(args: argparse.Namespace, config: Config) -> int:
    """Profile, plan, measure the plan, and print it."""
    check_written("--picture", args.picture)
    size = config.learning.batch_size
    placement = place(profile_of(config, size, args.seconds))
    planned_ms, single_ms = in_measured_process(
        config, measure, (placement, args.seconds), "measuring the plan"
    )
    if args.picture is not None:
        _draw(args.picture, placement)
    document = describe(placement) | {"measured_ms": planned_ms, "measured_single_ms": single_ms}
    report(args, document, lambda each: _print(each, placement))
    return 0


def describe(placement: Placement) -> dict[str, Any]:
    """The plan as one JSON object, without the measurement of the plan itself.

    Returns:
        `layers` are the parts of a step in the order in which they start; `critical_path` names
        those that decide the length of the step; `proven` says that no plan is shorter; `whole` is
        the measured time of a whole step on one core over the sum of its parts, by which the
        prediction is multiplied. Predictions are in processor time.
    """
    problem, plan, profile = placement.problem, placement.plan, placement.profile
    order = sorted(range(len(plan.placed)), key=lambda n: (plan.placed[n].start_us, n))
    layers = [
        {
            "name": problem.tasks[n].name, "unit": placement.unit(n).processor,
            "precision": placement.unit(n).precision, "start_us": plan.placed[n].start_us,
            "predicted_us": plan.placed[n].end_us - plan.placed[n].start_us,
        }
        for n in order
    ]
    return {
        "network": profile.network, "algorithm": profile.algorithm,
        "batch_size": profile.batch_size, "units": [unit.name for unit in problem.units],
        "layers": layers,
        "critical_path": [problem.tasks[n].name for n in placement.critical()],
        "proven": plan.proven, "noise": profile.noise, "whole": placement.whole,
        "predicted_ms": 1e-3 * placement.predicted_us,
        "best_single_unit_ms": 1e-3 * placement.predicted_single_us,
    }


def measure(
    config: Config, blueprint: Blueprint, argument: tuple[Placement, float], report: OnProgress
) -> tuple[float, float]:
    """Body of the measured process: milliseconds of a step with the plan, and on one core."""
    from rtagent.learning.placed import measure_placement

    placement, seconds = argument
    # As in a learner, whose step this is, and which leaves the cores to acting.
    keep_freed_memory()
    enter_idle()
    measured = measure_placement(config, blueprint, placement, seconds, report)
    return measured.planned_ms, measured.single_ms


def _draw(path: Path, placement: Placement) -> None:
    profile, plan = placement.profile, placement.plan
    step = f"a step of {profile.algorithm} with {profile.batch_size} transitions"
    try:
        # Drawn are the medians of the parts, of which the prediction is a multiple.
        predicted_ms, drawn_ms = 1e-3 * placement.predicted_us, 1e-3 * plan.length_us
        said = f"predicted {predicted_ms:.1f} ms, by the medians of its parts {drawn_ms:.1f} ms"
        draw(path, f"{profile.network}: {step}, {said}", placement)
    except OSError as error:
        raise UserError(f"--picture {path}: {error.strerror}") from None


def _print(document: dict[str, Any], placement: Placement) -> None:
    console = stdout()
    critical = set(document["critical_path"])
    console.print(
        f"{document['network']}: a step of {document['algorithm']} with {document['batch_size']} "
        f"transitions; its time on one core has noise {document['noise']:.0%}"
    )
    rows = (
        (
            each["name"], each["unit"], each["precision"], f"{1e-3 * each['start_us']:.3f}",
            f"{1e-3 * each['predicted_us']:.3f}", "*" if each["name"] in critical else "",
        )
        for each in document["layers"]
    )
    table = plain_table("part", "unit", "precision", "start ms", "ms", "critical", rows=rows)
    console.print("", table, "")
    proof = "no plan is shorter" if document["proven"] else (
        "the best plan found in time, or a simpler one that takes little more"
    )
    gain = document["best_single_unit_ms"] / document["predicted_ms"]
    console.print(
        f"predicted: {document['predicted_ms']:.2f} ms ({proof}), on one core "
        f"{document['best_single_unit_ms']:.2f} ms: {gain:.2f} times as fast"
    )
    console.print(
        f"predicted so: a whole step takes {document['whole']:.2f} times the sum of its parts' "
        "medians, in processor time"
    )
    console.print(
        f"measured:  {document['measured_ms']:.2f} ms, on one core "
        f"{document['measured_single_ms']:.2f} ms, by the clock: what other programs take counts"
    )
    if placement.profile.cores < 2:
        console.print("only one core can be used here")
    elif not placement.uses_second:
        least = 100.0 * (1.0 - SECOND_CORE_WORTH)
        console.print(f"a second core is predicted to save less than {least:.0f} %")
