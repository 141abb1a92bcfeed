"""`rtagent export`: the policy of a checkpoint as a file for other programs."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path

from rtagent import __version__
from rtagent.cli.checkpoint_options import add_checkpoint_options, checkpoint_of
from rtagent.cli.options import add_json_option, print_json, stderr, stdout
from rtagent.evaluation.export import FORMATS, export
from rtagent.evaluation.trained_policy import TrainedPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_checkpoint_options(parser)
    parser.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("policy.pt2"),
        help=f"its ending says the format: {', '.join(f'{a} {b}' for a, b in FORMATS.items())} "
        "(policy.pt2)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file, and say what goes in and what comes out.

    Raises:
        UserError: the policy cannot be exported.
    """
    path, saved, config = checkpoint_of(args)
    policy = TrainedPolicy(config, saved, path)
    blueprint = policy.blueprint
    about = {
        "rtagent": __version__,
        "environment": saved.signature.environment,
        "network": saved.signature.network,
        "updates": str(saved.counters.updates),
        "observation": saved.signature.observation,
        "action": saved.signature.action,
    }
    waiting = stderr()
    with waiting.status(f"exporting to {args.out}") if waiting.is_terminal else nullcontext():
        difference = export(policy.answering(), blueprint.observation_space, args.out, about)
    result = {
        "file": str(args.out.absolute()),
        "format": FORMATS[args.out.suffix],
        "checkpoint": str(path.absolute()),
        "largest_difference": difference,
        **about,
    }
    if args.json:
        print_json(result)
        return 0
    console = stdout()
    console.print(f"observation: (B, ...) {about['observation']}, as the environment gives it")
    console.print(f"answers: values of, or actions in, {about['action']}")
    console.print(f"the file and the network differ by {difference:.1g} at most")
    console.print(result["file"], soft_wrap=True)
    return 0
