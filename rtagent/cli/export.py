"""`rtagent export`: the policy of a checkpoint, or what a run saved, for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from rtagent import __version__
from rtagent.cli.checkpoint_options import add_checkpoint_options, checkpoint_of
from rtagent.cli.options import add_json_option, config_of
from rtagent.cli.output import own_stdout, plain_table, progress_bar, report, spinner, stdout
from rtagent.errors import UserError
from rtagent.evaluation.export import FORMATS, export
from rtagent.evaluation.run_export import to_lerobot, to_mcap
from rtagent.evaluation.trained_policy import TrainedPolicy
from rtagent.memory.blueprint import Blueprint
from rtagent.storage.replay_reading import SavedReplay

DEFAULT_OUT = {
    "torch": "policy.pt2", "onnx": "policy.onnx", "mcap": "run.mcap", "lerobot": "dataset",
}
ENDINGS = {name: Path(out).suffix for name, out in DEFAULT_OUT.items()}
"""How the file's name ends in each format; a dataset is a folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)
    parser.add_argument(
        "--format", choices=list(ENDINGS),
        help="the policy as torch.export or ONNX; or, of a state directory, the saved replay "
        "(run.checkpoint_replay = true) as an MCAP file or a LeRobot dataset; default: by the "
        "ending of --out",
    )
    parser.add_argument(
        "--out", metavar="FILE", type=Path,
        help=f"file to write ({', '.join(DEFAULT_OUT.values())}); --format lerobot makes a folder",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Write the file, and say what goes in and what comes out."""
    chosen = _format(args)
    out = args.out or Path(DEFAULT_OUT[chosen])
    if chosen in ("torch", "onnx"):
        return _export_policy(args, out)
    return _export_run(args, chosen, out)


def _format(args: argparse.Namespace) -> str:
    """The format that `--format` or the ending of `--out` names.

    Raises:
        UserError: they name different ones.
    """
    if args.out is None:
        return args.format or "torch"
    ending = args.out.suffix
    named = next((name for name, each in ENDINGS.items() if each and each == ending), "torch")
    chosen: str = args.format or named
    if ENDINGS[chosen] not in ("", ending):
        wanted = ENDINGS[chosen] if args.format else " or ".join(filter(None, ENDINGS.values()))
        raise UserError(f"--out {args.out}: the name must end in {wanted}")
    return chosen


def _export_run(args: argparse.Namespace, chosen: str, out: Path) -> int:
    replay = SavedReplay(args.checkpoint or config_of(args).state_dir)
    manifest = replay.manifest
    columns = (TextColumn("ticks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with progress_bar(*columns) as progress:
        task = progress.add_task("", total=manifest.newest + 1 - manifest.oldest)
        write = to_lerobot if chosen == "lerobot" else to_mcap
        written = write(replay, out, lambda ticks: progress.advance(task, ticks))
    result: dict[str, Any] = {
        "file": str(out.absolute()), "format": chosen, "environment": replay.environment, **written,
    }
    rows = [(name, str(value)) for name, value in result.items()]
    report(args, result, lambda _: stdout().print(plain_table("", "", rows=rows)))
    return 0


def _export_policy(args: argparse.Namespace, out: Path) -> int:
    path, saved, config = checkpoint_of(args)
    with own_stdout():
        policy = TrainedPolicy(config, saved, path)
    _check_inputs(policy.blueprint)
    signature = saved.signature
    about = {
        "rtagent": __version__, "environment": signature.environment,
        "network": signature.network, "updates": str(saved.counters.updates),
        "observation": signature.observation, "action": signature.action,
    }
    with spinner(f"exporting to {out}"):
        difference = export(policy.answering(), policy.blueprint.observation_space, out, about)
    result = {
        "file": str(out.absolute()), "format": FORMATS[out.suffix],
        "checkpoint": str(path.absolute()), "largest_difference": difference, **about,
    }
    report(args, result, _print_policy)
    return 0


def _print_policy(result: dict[str, Any]) -> None:
    console = stdout()
    console.print(f"observation: (B, ...) {result['observation']}, as the environment gives it")
    console.print(f"answers: values of, or actions in, {result['action']}")
    console.print(f"the file and the network differ by {result['largest_difference']:.1g} at most")
    console.print(result["file"], soft_wrap=True)


def _check_inputs(blueprint: Blueprint) -> None:
    """Refuse the policy of a run whose network is given more than observations."""
    if blueprint.pending_actions:
        raise UserError(
            f"env.pending_actions = {blueprint.pending_actions}: this policy takes them beside an "
            "observation, and an exported one takes observations alone"
        )
    if blueprint.state_size:
        raise UserError(
            "this policy carries a state from one inference to the next, and an exported one takes "
            "observations alone"
        )
