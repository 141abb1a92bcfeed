"""`rtagent export`: the policy of a checkpoint as a file for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from rtagent import __version__
from rtagent.cli.checkpoint_options import add_checkpoint_options, checkpoint_of
from rtagent.cli.options import add_json_option
from rtagent.cli.output import print_json, stderr, stdout
from rtagent.evaluation.export import FORMATS, export
from rtagent.evaluation.trained_policy import TrainedPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)
    parser.add_argument(
        "--out", metavar="FILE", type=Path, default=Path("policy.pt2"),
        help=f"its ending says the format: {', '.join(f'{a} {b}' for a, b in FORMATS.items())} "
        "(policy.pt2)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file, and say what goes in and what comes out."""
    path, saved, config = checkpoint_of(args)
    policy = TrainedPolicy(config, saved, path)
    signature = saved.signature
    about = {
        "rtagent": __version__, "environment": signature.environment,
        "network": signature.network, "updates": str(saved.counters.updates),
        "observation": signature.observation, "action": signature.action,
    }
    with stderr().status(f"exporting to {args.out}"):
        difference = export(policy.answering(), policy.blueprint.observation_space, args.out, about)
    result = {
        "file": str(args.out.absolute()), "format": FORMATS[args.out.suffix],
        "checkpoint": str(path.absolute()), "largest_difference": difference, **about,
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
