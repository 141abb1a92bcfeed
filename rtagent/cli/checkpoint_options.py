"""The options of the commands that take a checkpoint."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from rtagent.cli.options import add_config_options
from rtagent.config import Config
from rtagent.config_sources import load_config
from rtagent.evaluation.trained_policy import configuration, load_checkpoint
from rtagent.storage.checkpoint import Checkpoint, match


def add_checkpoint_options(parser: argparse.ArgumentParser, other: str = "") -> None:
    """`[CHECKPOINT]`, and the options of the configuration; `other` says what else it may be."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=Path, nargs="?",
        help="a checkpoint, or a folder or state directory: its best one, else its newest; "
        f"{other}default: the configured state directory",
    )
    add_config_options(parser, default="the checkpoint's own configuration")


def checkpoint_of(args: argparse.Namespace) -> tuple[Path, Checkpoint, Config]:
    """The checkpoint that the options name, with the configuration of its run.

    Raises:
        UserError: there is none, or it cannot be used.
    """
    given = args.checkpoint or load_config(args.config, args.overrides).state_dir
    path, saved = load_checkpoint(given)
    config = configuration(saved, path, args.config, args.overrides)
    # What else must fit is known when the network is built.
    match(saved, replace(saved.signature, environment=config.env.id), path)
    return path, saved, config
