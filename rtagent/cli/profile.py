"""`rtagent profile`: how long each part of a learning step takes here, layer by layer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rtagent.cli.measured_process import OnProgress, in_measured_process
from rtagent.cli.options import (
    add_config_options,
    add_json_option,
    add_seconds_option,
    check_between,
    check_seconds,
    config_of,
)
from rtagent.cli.output import plain_table, report, stdout
from rtagent.config import MOST_BATCH, Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.placement.profile import Profile, ProfileCache, to_json
from rtagent.processes.freed_memory import keep_freed_memory
from rtagent.processes.scheduling import enter_idle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config_options(parser)
    parser.add_argument(
        "--batch-size", type=int, nargs="+", metavar="B", dest="sizes",
        help="transitions per update; several are measured one after the other (default: "
        "learning.batch_size)",
    )
    parser.add_argument(
        "--again", action="store_true", help="measure even what was measured before"
    )
    add_seconds_option(parser, 4.0, "how long to measure each batch size")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, keep and print the profiles."""
    check_seconds(args.seconds)
    config = config_of(args)
    sizes = args.sizes or [config.learning.batch_size]
    for size in sizes:
        check_between("batch-size", size, 1, MOST_BATCH)
    profiles = [profile_of(config, size, args.seconds, again=args.again) for size in sizes]
    report(args, [to_json(each) for each in profiles], lambda _: _print(profiles))
    return 0


def profile_of(config: Config, size: int, seconds: float, *, again: bool = False) -> Profile:
    """The profile that is kept in the state directory, or a new one, which is kept there.

    Raises:
        UserError: it cannot be taken, or not be kept.
    """
    cache = ProfileCache(config.run.state_dir)
    cache.make()
    key, profile = in_measured_process(
        config, take, (size, seconds, again), f"profile of {size} transitions"
    )
    cache.write(key, profile)
    return profile


def take(
    config: Config, blueprint: Blueprint, argument: tuple[int, float, bool], report: OnProgress
) -> tuple[str, Profile]:
    """Body of the measured process: the profile, and the key under which it is kept."""
    from rtagent.learning.beginning import build_network
    from rtagent.learning.profiling import profile_key, take_profile
    from rtagent.policy.device import usable_device

    size, seconds, again = argument
    if blueprint.chunk is not None:
        raise UserError(
            f"policy.factory = {config.policy.factory!r} answers with chunks of actions, which are "
            "not learned: there is no learning step to measure"
        )
    device = config.learning.device
    if usable_device(device, "learning.device").type != "cpu":
        raise UserError(
            f"learning.device = {device!r}: the parts of a step are measured on processor cores; "
            "set learning.device = cpu"
        )
    key = profile_key(config, blueprint, size, build_network(config, blueprint))
    known = None if again else ProfileCache(config.run.state_dir).read(key)
    # As in a learner, which plans by this profile and leaves the cores to acting.
    keep_freed_memory()
    enter_idle()
    return key, known or take_profile(config, blueprint, size, seconds, report)


def _print(profiles: Sequence[Profile]) -> None:
    console = stdout()
    for profile in profiles:
        steps = ", ".join(f"{1e-3 * us:.2f} ms in {each}" for each, us in profile.step_us.items())
        console.print(
            f"{profile.network}: a step of {profile.algorithm} with {profile.batch_size} "
            f"transitions takes {steps} on one core (noise {profile.noise:.0%}, {profile.steps} "
            "steps)"
        )
        if profile.cores > 1:
            console.print(
                f"{profile.cores} cores; handing over takes {profile.handover_us:.0f} us, and "
                "times in brackets are beside a busy core"
            )
        table = plain_table("microseconds", *profile.precisions, rows=_rows(profile))
        console.print("", table, "")


def _rows(profile: Profile) -> list[list[str]]:
    rows = []
    for part in profile.parts:
        cells: list[str] = []
        for precision in profile.precisions:
            alone: Any = part.alone_us.get(precision)
            text = "" if alone is None else f"{alone:,.0f}"
            if text and profile.cores > 1:
                text += f" ({part.beside_us[precision]:,.0f})"
            cells.append(text)
        rows.append([part.name, *cells])
    return rows
